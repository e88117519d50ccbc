"""Decide which interpreter traces a folder's files, and which project a file belongs to."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mase_server.dependencies import Kind
from mase_server.programs import find_program
from mase_server.protocol.snapshot import Problem
from mase_server.reading import is_folder, path_exists

_VENV_NAMES = (".venv", "venv")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An interpreter and why it was considered. `chosen`: the user chose it, so no other interpreter replaces it."""

    path: str
    reason: str
    chosen: bool


def list_interpreters(folder: str, file: str, interpreter: str | None, env: Mapping[str, str]) -> list[Candidate]:
    """The interpreters to try in order, ending with the first one that the user chose."""
    found: list[Candidate] = []
    for candidate in _iterate_interpreters(folder, file, interpreter, env):
        if candidate.path not in (known.path for known in found):
            found.append(candidate)
        if candidate.chosen:
            break
    return found


def look_ups(folder: str, file: str, found: Sequence[Candidate]) -> Iterator[tuple[Kind, str]]:
    """The lookups that decide which interpreter is chosen and whether the first of `found` has torch."""
    for parent in _iterate_parents(Path(file).parent, Path(folder)):
        yield from (("presence", str(parent / name / "bin" / "python")) for name in _VENV_NAMES)
    yield "presence", found[0].path
    for packages in Path(found[0].path).parent.parent.glob("lib/python*/site-packages"):
        if not any(packages.glob("torch-*.dist-info")):
            yield "listing", str(packages)


def _iterate_interpreters(
    folder: str, file: str, interpreter: str | None, env: Mapping[str, str]
) -> Iterator[Candidate]:
    if interpreter:
        yield Candidate(_expand_interpreter(interpreter, folder), "the setting `interpreter`", True)
    for parent in _iterate_parents(Path(file).parent, Path(folder)):
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


def _iterate_parents(start: Path, folder: Path) -> Iterator[Path]:
    yield start
    for parent in start.parents:
        if start != folder and parent.is_relative_to(folder):
            yield parent
    if not start.is_relative_to(folder):
        yield folder


def _expand_interpreter(interpreter: str, folder: str) -> str:
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
    """(major, minor) of a virtual environment's interpreter, from its pyvenv.cfg; None if it has none."""
    try:
        text = (Path(python).parent.parent / "pyvenv.cfg").read_text("utf-8")
    except (OSError, ValueError):
        return None
    found = re.search(r"^version(?:_info)? *= *(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def environment_problem(path: str, code: str, tried: list[tuple[Candidate, str]]) -> Problem:
    """The diagnostic on line 1 for a folder without a usable interpreter: what was tried, and what to do."""
    first = f"No interpreter for this folder can trace: {tried[0][1]}"
    others = "".join(f"\nAlso tried {one.path} ({one.reason}): {text}" for one, text in tried[1:])
    why = f"\n{tried[0][0].path} was chosen by {tried[0][0].reason}."
    return Problem(path, 1, 0, 2, 0, "error", code, first + why + others)


# The project that a file belongs to, for clients that name none.

#: Names that mark a directory as the root of a project.
_ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


def project_of(path: str) -> str:
    """The project directory of a file: the nearest one with a project mark, else the file's own directory."""
    parents = list(Path(path).parents)
    marked = (parent for parent in parents if any(path_exists(parent / mark) for mark in _ROOTS))
    return str(next(marked, parents[0]))
