"""The examinations of `mase-server doctor`: one function for each, which reports only what it has tried."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mase_server import __version__
from mase_server.daemon.projects import project_of
from mase_server.daemon.trust import is_trusted
from mase_server.directories import state_dir, usual_cache_dir
from mase_server.private import NotPrivate, own_folder
from mase_server.programs import find_program
from mase_server.rpc.registry import registrations, runtime_dir


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one examination. state: "ok", "warn" or "fail".  mend: what to do, "" if nothing."""

    check: str
    state: str
    text: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder to examine. python: the interpreter that the command line names, if it names one."""

    folder: Path
    python: str | None


def examined(folder: Path, python: str | None) -> Iterator[Finding]:
    """All findings, each as soon as it is there."""
    for check in CHECKS:
        yield from check(Place(folder, python))


def _server(place: Place) -> Iterator[Finding]:
    where = Path(__file__).parents[2]
    yield Finding("mase-server", "ok", f"{__version__} in {where}, Python {platform.python_version()}")


def _interpreter(place: Place) -> Iterator[Finding]:
    from mase_server.cli.interpreters import interpreter_findings

    yield from interpreter_findings(place)


def _trust(place: Place) -> Iterator[Finding]:
    project = project_of(str(place.folder / "any.py"))
    if is_trusted(state_dir(), project):
        yield Finding("trust", "ok", f"{project} is trusted: daemons run its model files")
    else:
        text = f"{project} is not trusted: editors ask for it, `mase-server serve` refuses to run its files"
        yield Finding("trust", "warn", text, f"mase-server trust {project}, if you know what is in it")


def _forks(place: Place) -> Iterator[Finding]:
    if sys.platform == "linux":
        yield Finding("processes", "ok", "fork is safe here: a save is traced in a copy of a process that has torch")
    else:
        text = f"on {sys.platform} processes are not forked: a spare one is kept ready, a burst of saves waits for more"
        yield Finding("processes", "warn", text)


#: What is watched for, as <sys/inotify.h> has it.
_IN_MODIFY = 0x2


def _watches(place: Place) -> Iterator[Finding]:
    """Is an inotify instance to be had, and a watch? The limits belong to the user, not to the process."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(0)
    limits = {name: _number(f"/proc/sys/fs/inotify/{name}") for name in ("max_user_instances", "max_user_watches")}
    told = ", ".join(f"{name} = {value}" for name, value in limits.items())
    lacking = limit = why = ""
    if descriptor < 0:
        lacking, limit, why = "inotify instance", "max_user_instances=512", os.strerror(ctypes.get_errno())
    elif library.inotify_add_watch(descriptor, os.fsencode(place.folder), _IN_MODIFY) < 0:
        lacking, limit, why = "watch of a folder", "max_user_watches=524288", os.strerror(ctypes.get_errno())
    if descriptor >= 0:
        os.close(descriptor)
    if lacking:
        text = f"no {lacking} is left ({why}; {told}): saves are found by polling, twice a second"
        yield Finding("watching", "warn", text, f"sudo sysctl fs.inotify.{limit}")
    else:
        yield Finding("watching", "ok", f"the system reports saves ({told})")


def _number(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _folders(place: Place) -> Iterator[Finding]:
    for name, find, kept in (
        ("cache", lambda: own_folder(usual_cache_dir()), "what can be made again"),
        ("state", lambda: own_folder(state_dir()), "what you trust"),
        ("runtime", runtime_dir, "sockets of daemons"),
    ):
        yield _folder(name, find, kept)
    yield _folder("scratch", lambda: Path(tempfile.gettempdir()), "what model files write")


def _folder(name: str, find: Callable[[], Path], kept: str) -> Finding:
    try:
        folder = find()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TRIED))
            file.flush()
        left = shutil.disk_usage(folder).free
    except NotPrivate as error:
        return Finding(name, "fail", f"the folder for {kept} cannot be used", str(error))
    except OSError as error:
        path = error.filename or "it"
        text = f"the folder for {kept} cannot be written: {path}: {error.strerror}"
        return Finding(name, "fail", text, f"make {path} writable, or free space on its disk")
    if left < _LITTLE:
        text = f"{folder} takes {kept}, but its disk has only {left >> 20} MiB left"
        return Finding(name, "warn", text, "free some space: a full disk loses results and logs, but no shapes")
    return Finding(name, "ok", f"{folder} takes {kept}")


#: Bytes that are written to see whether a disk takes any, and of which one that has fewer left is nearly full.
_TRIED, _LITTLE = 64 << 10, 200 << 20
#: Program -> (what for, Debian's package).
_TOOLS = {
    "verilator": ("simulates hardware (`verilog --simulate`)", "verilator"),
    "g++": ("compiles simulations", "g++"),
    "yosys": ("counts what hardware takes (`verilog --synthesize`)", "yosys"),
    "iverilog": ("runs the cocotb bench of emitted folders", "iverilog"),
}


def _tools(place: Place) -> Iterator[Finding]:
    for name, (used, package) in _TOOLS.items():
        if found := find_program(name, str(Path(sys.executable).parent)):
            yield Finding(name, "ok", found)
        else:
            yield Finding(name, "warn", f"is not there; it {used}", f"sudo apt-get install {package}")


def _daemons(place: Place) -> Iterator[Finding]:
    from mase_server.cli.attached import Detached, connected

    try:
        folder = runtime_dir()
        before = len(list(folder.glob("*.json")))
        found = registrations(folder)
    except OSError:
        return  # told with the folders
    if before > len(found):
        yield Finding("daemons", "ok", f"{before - len(found)} left behind by daemons that died: removed")
    for one in found:
        who = f"{one.kind} {one.version}, process {one.pid}, serves {one.workspace}"
        try:
            with connected(one) as client:
                files = client.call("mase/statistics")["files"]
            yield Finding("daemons", "ok", f"{who}: {files} files")
        except Detached as error:
            yield Finding("daemons", "warn", f"{who}\n{error}", f"end it: kill {one.pid}, or restart the editor")
    if not found:
        yield Finding("daemons", "ok", "none runs; commands trace by themselves")


CHECKS = (_server, _interpreter, _trust, _forks, _watches, _folders, _tools, _daemons)
