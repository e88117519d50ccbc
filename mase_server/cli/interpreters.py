"""Which interpreter would run a folder's models, and whether it can: it is asked, as the daemon would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.cli.findings import Finding
from mase_server.daemon.environment import Candidate, candidates
from mase_server.daemon.projects import project_of
from mase_server.daemon.trust import is_trusted
from mase_server.directories import state_dir
from mase_server.programs import person_code

if TYPE_CHECKING:
    from mase_server.cli.findings import Place

_SECONDS = 60.0
_OLDEST_PYTHON, _OLDEST_TORCH = (3, 11), (2, 6)
#: Packages that something needs: what for.
_PACKAGES = {
    "transformers": "traces models of Hugging Face",
    "igraph": "lays out drawings (`mase-server draw`)",
    "scipy": "solves `autosharding` and retimes plans",
}
#: Run there: it must parse under any Python 3.
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


def interpreter_findings(place: Place) -> Iterator[Finding]:
    """The first candidate that can trace, or why each cannot; then its torch, and what it lacks."""
    project = project_of(str(place.folder / "any.py"))
    found = candidates(project, str(place.folder / "any.py"), place.python, os.environ)
    refused: list[str] = []
    for candidate in found:
        if not may_start(candidate, project, place.python):
            text = f"{candidate.path} ({candidate.reason}) lies in a folder that is not trusted: it was not started"
            yield Finding("interpreter", "warn", text, f"mase-server trust {project}, or --python {candidate.path}")
            return
        told = _asked(candidate.path)
        if isinstance(told, dict) and (why := _unfit(told)) is None:
            yield Finding("interpreter", "ok", f"{candidate.path} ({candidate.reason}), Python {_dotted(told)}")
            yield from (Finding("interpreter", "ok", f"passed over: {each}") for each in refused)
            yield from _packages(candidate.path, told)
            return
        refused.append(f"{candidate.path} ({candidate.reason}): {told if isinstance(told, str) else why}")
    other = "choose another: --python, or the setting mase.interpreter"
    mend = f"{found[-1].path} -m pip install torch, or {other}" if "has no torch" in refused[-1] else other
    yield Finding("interpreter", "fail", "none can trace:\n" + "\n".join(refused), mend)


def may_start(candidate: Candidate, project: str, named: str | None = None) -> bool:
    """May an interpreter be started: was it named, is its project trusted, or does it lie elsewhere?"""
    folder = Path(candidate.path).parent.resolve()
    inside = folder.is_relative_to(Path(project).resolve()) and Path(candidate.path) != Path(sys.executable)
    return bool(named) or not inside or is_trusted(state_dir(), project)


def _asked(python: str) -> dict[str, Any] | str:
    """The interpreter's description of itself, or the reason why it gives none."""
    try:
        done = person_code(python, _PROGRAM, *_PACKAGES).run(capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not import torch within {_SECONDS:.0f} s"
    except OSError as error:
        return f"does not start: {error.strerror}"
    try:
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        return f"ended with status {done.returncode}: {last}"
    return told


def _unfit(told: Mapping[str, Any]) -> str | None:
    if tuple(told["python"][:2]) < _OLDEST_PYTHON:
        return f"is Python {_dotted(told)}; {'.'.join(map(str, _OLDEST_PYTHON))} is the oldest that can trace"
    if "missing" in told:
        return f"has no torch ({told['missing']})"
    if "broken" in told:
        return f"its torch cannot be imported: {told['broken']}"
    if _numbers(told["torch"]) < _OLDEST_TORCH:
        return f"has torch {told['torch']}; {'.'.join(map(str, _OLDEST_TORCH))} is the oldest that can trace"
    return None


def _dotted(told: Mapping[str, Any]) -> str:
    return ".".join(map(str, told["python"]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _packages(python: str, told: Mapping[str, Any]) -> Iterator[Finding]:
    yield Finding("torch", "ok", told["torch"])
    for name, used in _PACKAGES.items():
        if name in told["packages"]:
            yield Finding(name, "ok", told["packages"][name])
        else:
            yield Finding(name, "warn", f"is not there; it {used}", f"{python} -m pip install {name}")
