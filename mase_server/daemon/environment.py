"""Which interpreter traces a folder's files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mase_server.dependencies import Kind
from mase_server.programs import find_program
from mase_server.reading import is_folder
from mase_server.snapshot import Problem

_VENV_NAMES = (".venv", "venv")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An interpreter and why it was considered. `chosen`: the person meant it, so that no other stands in for it."""

    path: str
    reason: str
    chosen: bool


def candidates(folder: str, file: str, interpreter: str | None, env: Mapping[str, str]) -> list[Candidate]:
    """The interpreters to try in order, ending at the first that was meant."""
    found: list[Candidate] = []
    for candidate in _all(folder, file, interpreter, env):
        if candidate.path not in (known.path for known in found):
            found.append(candidate)
        if candidate.chosen:
            break
    return found


def look_ups(folder: str, file: str, found: Sequence[Candidate]) -> Iterator[tuple[Kind, str]]:
    """What decides which interpreter is chosen, and whether the first of those `found` has torch."""
    for parent in _up(Path(file).parent, Path(folder)):
        yield from (("presence", str(parent / name / "bin" / "python")) for name in _VENV_NAMES)
    yield "presence", found[0].path
    for packages in Path(found[0].path).parent.parent.glob("lib/python*/site-packages"):
        if not any(packages.glob("torch-*.dist-info")):
            yield "listing", str(packages)


def _all(folder: str, file: str, interpreter: str | None, env: Mapping[str, str]) -> Iterator[Candidate]:
    if interpreter:
        yield Candidate(_expand(interpreter, folder), "the setting `interpreter`", True)
    for parent in _up(Path(file).parent, Path(folder)):
        for name in _VENV_NAMES:
            if (python := _python_of(parent / name)) is not None:
                yield Candidate(python, f"{name} in {parent}", True)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = Path(env.get(variable, ""))
        if prefix.is_absolute() and (python := _python_of(prefix)) is not None:
            yield Candidate(python, variable, False)
    if (on_path := find_program("python3", path=env.get("PATH"))) is not None:
        yield Candidate(on_path, "python3 on PATH", False)
    yield Candidate(sys.executable, "the server's own interpreter", False)


def _up(start: Path, folder: Path) -> Iterator[Path]:
    yield start
    for parent in start.parents:
        if start != folder and parent.is_relative_to(folder):
            yield parent
    if not start.is_relative_to(folder):
        yield folder


def _expand(interpreter: str, folder: str) -> str:
    path = Path(folder) / Path(interpreter).expanduser()
    if is_folder(path):
        return _python_of(path) or str(path)
    if Path(interpreter).parent == Path():
        return find_program(interpreter) or interpreter
    return str(path)


def _python_of(prefix: Path) -> str | None:
    for name in ("bin/python", "bin/python3", "Scripts/python.exe"):
        if os.access(prefix / name, os.X_OK):
            return str(prefix / name)
    return None


def version_of(python: str) -> tuple[int, int] | None:
    """(major, minor) of a virtual environment's interpreter, from its pyvenv.cfg; None where there is none."""
    try:
        text = (Path(python).parent.parent / "pyvenv.cfg").read_text("utf-8")
    except (OSError, ValueError):
        return None
    found = re.search(r"^version(?:_info)? *= *(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def environment_problem(path: str, code: str, tried: list[tuple[Candidate, str]]) -> Problem:
    """The diagnostic for a folder without a usable interpreter, on line 1: what was tried, and what to do."""
    first = f"No interpreter for this folder can trace: {tried[0][1]}"
    others = "".join(f"\nAlso tried {one.path} ({one.reason}): {text}" for one, text in tried[1:])
    why = f"\n{tried[0][0].path} was chosen by {tried[0][0].reason}."
    return Problem(path, 1, 0, 2, 0, "error", code, first + why + others)
