"""Which servers there are: a small file for each workspace of each server, in the user's runtime directory.

Loads neither the daemon nor msgpack: clients look here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from mase_server.private import NotPrivate, private_folder, read_private, write_whole
from mase_server.reading import is_folder
from mase_server.rpc.addresses import MAX_PATH, Address, TcpAddress, parse

_NAME = "mase-server"
_PROBE_SECONDS = 0.5
#: Names a runtime directory of one's own choice.
VARIABLE = "MASE_RUNTIME_DIR"


@dataclass(frozen=True, slots=True)
class Registration:
    """One server and one workspace that it serves.

    address: text, as `addresses.parse` reads it.  token_file: "" where none is needed.  kind: "editor" or "serve".
    started: when process `pid` started, as the system tells it; "" where it does not.
    """

    workspace: str
    address: str
    pid: int
    started: str
    kind: str
    version: str
    token_file: str = ""

    @property
    def token(self) -> str:
        """The token that a client has to send first; "" if it needs none. OSError."""
        return read_private(Path(self.token_file)).strip() if self.token_file else ""


def runtime_dir() -> Path:
    """The folder of sockets and registrations, this user's alone; NotPrivate where it is not, OSError for none."""
    if chosen := os.environ.get(VARIABLE):
        return _made(Path(chosen))
    folder = _usual_folder()
    longest = folder / f"{os.getpid()}-00000000.sock"
    if len(str(longest).encode()) <= MAX_PATH:
        try:
            return private_folder(folder)
        except NotPrivate:
            raise
        except OSError:
            pass  # the session's variable names a folder that is not there, or another user's
    return _made(_temporary_folder())


def _made(folder: Path) -> Path:
    try:
        return private_folder(folder)
    except NotPrivate:
        raise
    except OSError as error:
        told = f"the folder for sockets, {folder}, cannot be created ({error.strerror}); set {VARIABLE} to another"
        raise OSError(error.errno, told) from error


def _usual_folder() -> Path:
    """By the system's conventions. Where Linux has no folder of this session, the library would warn, and take another
    one in the temporary folder, of a name that anybody may take first.
    """
    if sys.platform == "linux" and not is_folder(os.environ.get("XDG_RUNTIME_DIR", "")):
        session = Path(f"/run/user/{os.getuid()}")
        return session / _NAME if is_folder(session) else _temporary_folder()
    return Path(platformdirs.user_runtime_dir(_NAME, appauthor=False))


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def register(folder: Path, registration: Registration) -> Path:
    """Write a server's registration for one workspace; its file."""
    digest = hashlib.sha256(registration.workspace.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = folder / f"{digest}-{registration.pid}.json"
    write_whole(path, json.dumps(asdict(registration)))
    return path


def registrations(folder: Path) -> list[Registration]:
    """The servers that are alive, newest first; files and sockets of dead ones are removed."""
    return [found for _, found in _living(folder)]


def find(folder: Path, path: str) -> Registration | None:
    """The server for a file or folder: of the innermost workspace that holds it, an editor's before another."""
    where = Path(path)
    held = [one for one in registrations(folder) if where.is_relative_to(one.workspace)]
    return max(held, key=lambda one: (len(one.workspace), one.kind == "editor"), default=None)


def start_of(pid: int) -> str:
    """When a process started, in the system's own clock ticks; "" where it is gone or nobody tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _living(folder: Path) -> Iterator[tuple[Path, Registration]]:
    files = sorted(folder.glob("*.json"), key=_time_of, reverse=True)
    for file in files:
        found = _read(file)
        if found is None or not is_alive(found):
            _remove(folder, file, found)
        else:
            yield file, found


def _time_of(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _read(file: Path) -> Registration | None:
    try:
        told: dict[str, Any] = json.loads(read_private(file))
        found = Registration(**told)
        parse(found.address)
        return replace(found, pid=int(found.pid))
    except (NotPrivate, OSError, ValueError, TypeError, AttributeError):
        return None


def is_alive(registration: Registration) -> bool:
    """Is it still the same process, and does somebody listen there?"""
    address = parse(registration.address)
    started = start_of(registration.pid)
    if isinstance(address, TcpAddress) and registration.started and started != registration.started:
        return False  # whoever has that port now is somebody else
    try:
        address.connect(_PROBE_SECONDS).close()
    except (ConnectionError, FileNotFoundError):
        return False
    except OSError:
        return started == registration.started  # too busy to answer is alive
    return True


def _remove(folder: Path, file: Path, registration: Registration | None) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
    socket_file = registration and registration.address.removeprefix("unix:")
    if socket_file and Path(socket_file).parent == folder:
        with contextlib.suppress(OSError):
            Path(socket_file).unlink()


def probe(address: Address) -> bool:
    """Does somebody listen there?"""
    try:
        address.connect(_PROBE_SECONDS).close()
    except OSError:
        return False
    return True
