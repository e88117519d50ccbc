"""Checks of the environment: what `mase-server doctor` finds. A report makes them without the command line library."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from mase_server import __version__
from mase_server.daemon.environment import Candidate, project_of, survey_interpreters
from mase_server.daemon.trust import is_trusted
from mase_server.private import NotPrivate, own_folder, state_dir, usual_cache_dir
from mase_server.programs import find_program, person_code
from mase_server.rpc.registry import registrations, runtime_dir
from mase_server.system import HAS_FORK, PROC

_SECONDS = 60.0

_OLDEST_PYTHON, _OLDEST_TORCH = (3, 11), (2, 6)
#: Bytes written to test a disk, and the free bytes below which a disk counts as nearly full.
_TRIED, _LITTLE = 64 << 10, 200 << 20

#: Optional packages -> their purpose.
_PACKAGES = {
    "transformers": "traces models of Hugging Face",
    "igraph": "lays out drawings (`mase-server draw`)",
    "scipy": "solves `autosharding` and retimes plans",
}

#: Runs in the examined interpreter: it must parse under any Python 3.
_PROGRAM = """
import json, sys
told = {"python": list(sys.version_info[:3]), "executable": sys.executable, "packages": {}}
try:
    import torch
    told["torch"] = torch.__version__
except ImportError as error:
    told["missing"] = str(error)
except Exception as error:
    told["broken"] = "%s: %s" % (type(error).__name__, error)
try:
    from importlib.metadata import PackageNotFoundError, version
    for name in sys.argv[1:]:
        try:
            told["packages"][name] = version(name)
        except PackageNotFoundError:
            pass
except ImportError:
    pass
print(json.dumps(told))
"""


class Interpreter(TypedDict):
    """The facts of an interpreter, told by _PROGRAM. packages: versions.  missing, broken: why it has no torch."""

    python: list[int]
    executable: str
    packages: dict[str, str]
    torch: NotRequired[str]
    missing: NotRequired[str]
    broken: NotRequired[str]


def interpreter_findings(place: Place) -> Iterator[Finding]:
    """The first candidate that can trace, or why each cannot; then its torch and packages, and the other candidates."""
    file = str(place.folder / "any.py")
    project = project_of(file)
    found = list(survey_interpreters(project, file, place.python, os.environ))
    refused: list[str] = []
    mend = ""
    for index, candidate in enumerate(found):
        named = f"{candidate.path} ({candidate.reason})"
        if candidate.unfit:
            refused.append(f"{named}: {candidate.unfit}")
            continue
        if not may_start(candidate, project, place.python):
            text = f"{named} lies in a folder that is not trusted: it was not started"
            yield Finding("interpreter", "warn", text, f"mase-server trust {project}, or --python {candidate.path}")
            return
        told = _query_interpreter(candidate.path)
        why = told if isinstance(told, str) else _why_unfit(told)
        if isinstance(told, dict) and why is None:
            later = [f"\ncomes later: {other.path} ({other.reason})" for other in found[index + 1 :]]
            text = f"{named}, Python {_dotted_version(told)}{''.join(later)}"
            yield Finding("interpreter", "ok", text)
            yield from (Finding("interpreter", "ok", f"passed over: {each}") for each in refused)
            yield from _package_findings(candidate.path, told)
            return
        refused.append(f"{named}: {why}")
        if isinstance(told, dict) and tuple(told["python"][:2]) >= _OLDEST_PYTHON:
            mend = mend or f"{candidate.path} -m pip install --upgrade torch"
        if candidate.chosen:
            break
    venv = Path(project, ".venv")
    mend = mend or f"python3 -m venv --clear {venv} && {venv}/bin/python -m pip install torch"
    mend = f"{mend}; or choose another: --python, or the setting mase.interpreter"
    yield Finding("interpreter", "fail", "none can trace:\n" + "\n".join(refused), mend)


def may_start(candidate: Candidate, project: str, named: str | None = None) -> bool:
    """May an interpreter be started? Only if it was named, its project is trusted, or it is outside the project."""
    folder = Path(candidate.path).parent.resolve()
    inside = folder.is_relative_to(Path(project).resolve()) and Path(candidate.path) != Path(sys.executable)
    return bool(named) or not inside or is_trusted(state_dir(), project)


def _query_interpreter(python: str) -> Interpreter | str:
    """The interpreter's description of itself, or the reason why it gives none."""
    try:
        done = person_code(python, _PROGRAM, *_PACKAGES).run(capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not import torch within {_SECONDS:.0f} s"
    except OSError as error:
        return f"does not start: {error.strerror}"
    try:
        told: Interpreter = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        return f"ended with status {done.returncode}: {last}"
    return told


def _why_unfit(told: Interpreter) -> str | None:
    if tuple(told["python"][:2]) < _OLDEST_PYTHON:
        return f"is Python {_dotted_version(told)}; {'.'.join(map(str, _OLDEST_PYTHON))} is the oldest that can trace"
    if "missing" in told:
        return f"has no torch ({told['missing']})"
    if "broken" in told:
        return f"its torch cannot be imported: {told['broken']}"
    if _version_numbers(told["torch"]) < _OLDEST_TORCH:
        return f"has torch {told['torch']}; {'.'.join(map(str, _OLDEST_TORCH))} is the oldest that can trace"
    return None


def _dotted_version(told: Interpreter) -> str:
    return ".".join(map(str, told["python"]))


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _package_findings(python: str, told: Interpreter) -> Iterator[Finding]:
    yield Finding("torch", "ok", told["torch"])
    for name, used in _PACKAGES.items():
        if name in told["packages"]:
            yield Finding(name, "ok", told["packages"][name])
        else:
            yield Finding(name, "warn", f"is not there; it {used}", f"{python} -m pip install {name}")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one examination. state: "ok", "warn" or "fail".  mend: what to do, "" if nothing."""

    check: str
    state: str
    text: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder to examine. python: the interpreter given on the command line, if any."""

    folder: Path
    python: str | None


def examine_environment(folder: Path, python: str | None) -> Iterator[Finding]:
    """All findings, each as soon as it is available."""
    for check in CHECKS:
        yield from check(Place(folder, python))


def _check_server(place: Place) -> Iterator[Finding]:
    where = Path(__file__).parents[2]
    yield Finding("mase-server", "ok", f"{__version__} in {where}, Python {platform.python_version()}")


def _check_interpreter(place: Place) -> Iterator[Finding]:

    yield from interpreter_findings(place)


def _check_trust(place: Place) -> Iterator[Finding]:
    project = project_of(str(place.folder / "any.py"))
    if is_trusted(state_dir(), project):
        yield Finding("trust", "ok", f"{project} is trusted: daemons run its model files")
    else:
        text = f"{project} is not trusted: editors ask for it, `mase-server serve` refuses to run its files"
        yield Finding("trust", "warn", text, f"mase-server trust {project}, if you know what is in it")


def _check_forks(place: Place) -> Iterator[Finding]:
    if HAS_FORK:
        yield Finding("processes", "ok", "fork is safe here: a save is traced in a copy of a process that has torch")
    else:
        text = f"on {sys.platform} processes are not forked: a spare one is kept ready, a burst of saves waits for more"
        yield Finding("processes", "warn", text)


#: The watched event, as in <sys/inotify.h>.
_IN_MODIFY = 0x2


def _check_watches(place: Place) -> Iterator[Finding]:
    """Can an inotify instance and a watch be obtained? The limits belong to the user, not to the process."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(0)
    limits = {name: _read_limit(PROC / "sys/fs/inotify" / name) for name in ("max_user_instances", "max_user_watches")}
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


def _read_limit(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"


def _check_folders(place: Place) -> Iterator[Finding]:
    for name, find, kept in (
        ("cache", lambda: own_folder(usual_cache_dir()), "what can be made again"),
        ("state", lambda: own_folder(state_dir()), "what you trust"),
        ("runtime", runtime_dir, "sockets of daemons"),
    ):
        yield _check_folder(name, find, kept)
    yield _check_folder("scratch", lambda: Path(tempfile.gettempdir()), "what model files write")


def _check_folder(name: str, find: Callable[[], Path], kept: str) -> Finding:
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


#: Program -> (purpose, Debian's package).
_TOOLS = {
    "verilator": ("simulates hardware (`verilog --simulate`)", "verilator"),
    "g++": ("compiles simulations", "g++"),
    "yosys": ("counts what hardware takes (`verilog --synthesize`)", "yosys"),
    "iverilog": ("runs the cocotb bench of emitted folders", "iverilog"),
}


def _check_tools(place: Place) -> Iterator[Finding]:
    for name, (used, package) in _TOOLS.items():
        if found := find_program(name, str(Path(sys.executable).parent)):
            yield Finding(name, "ok", found)
        else:
            yield Finding(name, "warn", f"is not there; it {used}", f"sudo apt-get install {package}")


def _check_daemons(place: Place) -> Iterator[Finding]:
    from mase_server.cli.attached import Detached, connect_daemon

    try:
        folder = runtime_dir()
        before = len(list(folder.glob("*.json")))
        found = registrations(folder)
    except OSError:
        return  # reported with the folders
    if before > len(found):
        yield Finding("daemons", "ok", f"{before - len(found)} left behind by daemons that died: removed")
    for one in found:
        who = f"{one.kind} {one.version}, process {one.pid}, serves {one.workspace}"
        try:
            with connect_daemon(one) as client:
                files = client.call("mase/statistics")["files"]
            yield Finding("daemons", "ok", f"{who}: {files} files")
        except Detached as error:
            yield Finding("daemons", "warn", f"{who}\n{error}", f"end it: kill {one.pid}, or restart the editor")
    if not found:
        yield Finding("daemons", "ok", "none runs; commands trace by themselves")


CHECKS = (
    _check_server,
    _check_interpreter,
    _check_trust,
    _check_forks,
    _check_watches,
    _check_folders,
    _check_tools,
    _check_daemons,
)
