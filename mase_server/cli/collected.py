"""The contents of a report, as plain values without personal data: see `observe.reduced` and `observe.settings`."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mase_server import __version__
from mase_server.daemon.projects import project_of
from mase_server.directories import state_dir
from mase_server.observe import settings
from mase_server.observe.logs import folder_of
from mase_server.observe.records import within
from mase_server.observe.reduced import Reduced
from mase_server.reading import is_folder
from mase_server.rpc.registry import registrations, runtime_dir

Told = dict[str, Any]

#: Lines of the log, and crashes, that are told: the last ones.
LINES = 400
CRASHES = 20
#: Seconds that a daemon may be silent; somebody who reports trouble may have a busy one.
_PATIENCE = 5.0
#: Environment variables of which it is told that they are set; never to what.
_VARIABLES = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "TMPDIR", "XDG_STATE_HOME",
    "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "MASE_RUNTIME_DIR",
)  # fmt: skip
#: What a fault handler writes that holds no text of anybody's.
_FAULT = re.compile(r'^(?:Fatal Python error: [\w ]+|(?:Current thread|Thread) 0x\w+ .*|  File ".*", line \d+ in .*)$')


def gathered(folders: Sequence[str], about: Mapping[str, Any]) -> Told:
    """Everything. about: what an editor says of itself: {"editor", "extension", "settings", "interpreters"}.

    interpreters: folder -> the Python that the person chose for its models.
    """
    reduced = Reduced({*folders, *_workspaces(folders)}, os.environ, str(Path.home()))
    logs = folder_of(state_dir())
    lines = list(log_lines(logs))
    section, chosen = about.get("settings"), about.get("interpreters")
    pythons = chosen if isinstance(chosen, Mapping) else {}
    told: Told = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": _versions(about),
        "settings": settings.told(section) if isinstance(section, Mapping) else {},
        "environment": [name for name in _VARIABLES if os.environ.get(name)],
        "doctor": [finding for folder in folders for finding in _doctor(folder, pythons.get(folder))],
        "daemons": list(_daemons(folders)),
        "crashes": [*crashes(lines), *_faults(logs)][-CRASHES:],
    }
    found: Told = reduced.value(told)
    return found | {"log": [json.dumps(reduced.value(line)) for line in lines[-LINES:]]}


def _workspaces(folders: Sequence[str]) -> Iterator[str]:
    """Folders whose names are nobody's business: the projects around these, and what all daemons serve."""
    yield from (project_of(f"{folder}/any.py") for folder in folders)
    with contextlib.suppress(OSError):
        yield from (each.workspace for each in registrations(runtime_dir()))


def log_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The log lines of all servers, the newest last."""
    found = []
    for path in folder.glob("*.jsonl*") if is_folder(folder) else ():
        try:
            found += [json.loads(line) for line in path.read_text("ascii", "replace").splitlines()[-LINES:] if line]
        except (OSError, ValueError):
            continue  # a server is just beginning its next file
    yield from sorted((line for line in found if isinstance(line, dict)), key=lambda line: str(line.get("time", "")))


def crashes(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The deaths of processes that the log records."""
    keys = ("time", "path", "code", "status", "stack")
    return [{key: line[key] for key in keys if key in line} for line in lines if line.get("event") == "died"]


def _faults(folder: Path) -> Iterator[dict[str, Any]]:
    """Servers that were ended by a fault of native code: where their threads were."""
    for path in sorted(folder.glob("*.fault")) if is_folder(folder) else ():
        try:
            lines = [line for line in path.read_text("ascii", "replace").splitlines() if _FAULT.match(line)]
        except OSError:
            continue
        if lines:
            yield {"server": path.stem, "stack": lines[:60]}


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    told = {"mase-server": __version__, "python": platform.python_version(), "system": platform.platform()}
    told |= {"processors": str(os.cpu_count()), "byte order": sys.byteorder}
    return told | {key: str(about[key])[:80] for key in ("editor", "extension") if about.get(key)}


def _doctor(folder: str, python: Any) -> Iterator[dict[str, str]]:
    from mase_server.cli.findings import examined

    for each in examined(Path(folder), python if isinstance(python, str) else None):
        yield {"check": each.check, "state": each.state, "text": each.text}


def _daemons(folders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The counters of the daemons of these folders; for one that does not answer, the reason."""
    from mase_server.cli.attached import Detached, connected, daemon_of

    for registration in {found for folder in folders if (found := daemon_of(Path(folder))) is not None}:
        told = {"kind": registration.kind, "version": registration.version, "pid": registration.pid}
        try:
            with connected(registration, _PATIENCE) as client:
                told["statistics"] = client.call("mase/statistics")
                told["workers"] = [_worker(each) for each in client.call("mase/workers")["workers"]]
        except Detached as error:
            told["silent"] = str(error)
        yield told


def _worker(told: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: told[key] for key in ("pid", "memory", "generation", "idle")}
    return {"path": within(told["path"], told["folder"]), **facts}
