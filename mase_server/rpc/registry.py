"""The registry of servers: a small file per server and workspace in the user's runtime directory; and addresses.

Loads neither the daemon nor msgpack, because clients use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import platformdirs

from mase_server.private import NotPrivate, private_folder, read_private, write_whole
from mase_server.protocol.records import Plain
from mase_server.reading import is_folder
from mase_server.system import start_of, unix_socket, user_id

# The address of a server: a Unix socket, or TCP on loopback. Only the standard library, because clients load it, too.

#: Maximum bytes of a Unix socket's path, on the systems with the smallest limit.
MAX_PATH = 103
#: The error for a token file without a TCP address.
NO_TCP = "--token-file is for --tcp; a socket is protected by its mode"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    def connect(self, timeout: float | None) -> socket.socket:
        """A connected blocking socket; OSError."""
        made = unix_socket()
        return _connect_socket(made, self.path, timeout)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host, as a numeric loopback address of this machine, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, timeout: float | None) -> socket.socket:
        """A connected blocking socket; OSError."""
        made = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _connect_socket(made, (self.host, self.port), timeout)


Address = UnixAddress | TcpAddress


def _connect_socket(made: socket.socket, where: str | tuple[str, int], timeout: float | None) -> socket.socket:
    try:
        made.settimeout(timeout)
        made.connect(where)
    except BaseException:
        made.close()
        raise
    return made


def parse_address(text: str) -> Address:
    """Parse "unix:/run/x.sock", an absolute path, or "127.0.0.1:8123"; ValueError."""
    if text.startswith(("unix:", "/")):
        return unix_address(text.removeprefix("unix:"))
    return tcp_address(text)


def unix_address(path: str) -> UnixAddress:
    """The address of a socket at an absolute path; ValueError."""
    if not path.startswith("/"):
        raise ValueError(f"the socket's path {path!r} is not absolute")
    if len(path.encode()) > MAX_PATH:
        raise ValueError(f"the socket's path has {len(path.encode())} bytes, {MAX_PATH} are the most: {path}")
    return UnixAddress(path)


def tcp_address(text: str) -> TcpAddress:
    """The address of "HOST:PORT" on loopback; ValueError for any other host: the server is never on a network."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]").replace("localhost", "127.0.0.1")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is no HOST:PORT, e.g. 127.0.0.1:8123 (port 0 takes a free one)")
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = False
    if not own:
        raise ValueError(f"{host!r} is not this machine's loopback: only 127.0.0.1 and ::1 are served")
    return TcpAddress(host, int(port))


_NAME = "mase-server"
_PROBE_SECONDS = 0.5
#: The environment variable with a runtime directory of the user's choice.
VARIABLE = "MASE_RUNTIME_DIR"


@dataclass(frozen=True, slots=True)
class Registration:
    """One server and one of its workspaces.

    address: text that `parse_address` reads.  token_file: "" if none is needed.  kind: "editor" or "serve".
    started: the start time of process `pid` from the system; "" if unknown.
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
    """The user's private folder for sockets and registrations.

    NotPrivate if it is not private, OSError if it is missing.
    """
    if chosen := os.environ.get(VARIABLE):
        return _make_private_folder(Path(chosen))
    folder = _usual_folder()
    longest = folder / f"{os.getpid()}-00000000.sock"
    if len(str(longest).encode()) <= MAX_PATH:
        try:
            return private_folder(folder)
        except NotPrivate:
            raise
        except OSError:
            pass  # the session's variable names a missing folder, or another user's
    return _make_private_folder(_temporary_folder())


def _make_private_folder(folder: Path) -> Path:
    try:
        return private_folder(folder)
    except NotPrivate:
        raise
    except OSError as error:
        told = f"the folder for sockets, {folder}, cannot be created ({error.strerror}); set {VARIABLE} to another"
        raise OSError(error.errno, told) from error


def _usual_folder() -> Path:
    """The folder by the system's conventions. On Linux without a session folder, platformdirs would warn and choose a
    name in the temporary folder that any user may take first.
    """
    if sys.platform == "linux" and not is_folder(os.environ.get("XDG_RUNTIME_DIR", "")):
        session = Path(f"/run/user/{user_id()}")
        return session / _NAME if is_folder(session) else _temporary_folder()
    return Path(platformdirs.user_runtime_dir(_NAME, appauthor=False))


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{_NAME}-{'user' if user_id() is None else user_id()}"


def write_registration(folder: Path, registration: Registration) -> Path:
    """Write a server's registration for one workspace; returns its file."""
    digest = hashlib.sha256(registration.workspace.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = folder / f"{digest}-{registration.pid}.json"
    write_whole(path, json.dumps(asdict(registration)))
    return path


def registrations(folder: Path) -> list[Registration]:
    """The live servers, newest first; files and sockets of dead ones are removed."""
    return [found for _, found in _iterate_living(folder)]


def find_registration(folder: Path, path: str) -> Registration | None:
    """The server for a file or folder: that of the innermost workspace around it, an editor's first."""
    where = Path(path)
    held = [one for one in registrations(folder) if where.is_relative_to(one.workspace)]
    return max(held, key=lambda one: (len(one.workspace), one.kind == "editor"), default=None)


def _iterate_living(folder: Path) -> Iterator[tuple[Path, Registration]]:
    files = sorted(folder.glob("*.json"), key=_time_of, reverse=True)
    for file in files:
        found = _read_registration(file)
        if found is None or not is_alive(found):
            _remove_registration(folder, file, found)
        else:
            yield file, found


def _time_of(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _read_registration(file: Path) -> Registration | None:
    try:
        told: dict[str, Plain] = json.loads(read_private(file))
        found = Registration(**told)
        parse_address(found.address)
        return replace(found, pid=int(found.pid))
    except (NotPrivate, OSError, ValueError, TypeError, AttributeError):
        return None


def is_alive(registration: Registration) -> bool:
    """Is the registered process still running and listening?"""
    address = parse_address(registration.address)
    started = start_of(registration.pid)
    if isinstance(address, TcpAddress) and registration.started and started != registration.started:
        return False  # another process has that port now
    try:
        address.connect(_PROBE_SECONDS).close()
    except (ConnectionError, FileNotFoundError):
        return False
    except OSError:
        return started == registration.started  # a process that is too busy to answer is alive
    return True


def _remove_registration(folder: Path, file: Path, registration: Registration | None) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
    socket_file = registration and registration.address.removeprefix("unix:")
    if socket_file and Path(socket_file).parent == folder:
        with contextlib.suppress(OSError):
            Path(socket_file).unlink()


def is_listening(address: Address) -> bool:
    """Does a process listen there?"""
    try:
        address.connect(_PROBE_SECONDS).close()
    except OSError:
        return False
    return True
