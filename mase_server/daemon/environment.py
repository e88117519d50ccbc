"""Decide which interpreter traces a folder's files, and which project a file belongs to."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mase_server.dependencies import Kind
from mase_server.programs import find_program
from mase_server.protocol.snapshot import Problem
from mase_server.reading import is_folder, path_exists

_VENV_NAMES = (".venv", "venv")
_PYTHONS = ("bin/python", "bin/python3", "Scripts/python.exe")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An interpreter and why it was considered.

    chosen: the user chose it, so no other interpreter replaces it.  unfit: why it is not even tried, else "".
    broken: is it the project's own environment, without a python?
    """

    path: str
    reason: str
    chosen: bool
    unfit: str = ""
    broken: bool = False


def list_interpreters(folder: str, file: str, interpreter: str | None, env: Mapping[str, str]) -> list[Candidate]:
    """The interpreters to try in order, ending with the first one that the user chose."""
    found: list[Candidate] = []
    broken = ""
    for candidate in survey_interpreters(folder, file, interpreter, env):
        if candidate.unfit:
            broken = broken or (candidate.unfit if candidate.broken else "")
            continue
        found.append(replace(candidate, reason=f"{candidate.reason}, since {broken}") if broken else candidate)
        if candidate.chosen:
            break
        broken = ""
    return found


def find_broken_venv(file: str) -> str:
    """Which virtual environment of a file's project cannot be used, and why, though it would be the one to use; ""."""
    for candidate in survey_interpreters(project_of(file), file, None, os.environ):
        if candidate.chosen or candidate.broken:
            return candidate.unfit
    return ""


def survey_interpreters(folder: str, file: str, interpreter: str | None, env: Mapping[str, str]) -> Iterator[Candidate]:
    """Every interpreter that the project may mean, the likeliest first, each once, also those that are not tried."""
    seen = set[Path]()
    for candidate in _iterate_interpreters(folder, file, interpreter, env):
        path = Path(candidate.path)
        place = Path(os.path.realpath(path.parent), path.name)
        if place not in seen:
            seen.add(place)
            yield candidate


def look_ups(folder: str, file: str, found: Sequence[Candidate]) -> Iterator[tuple[Kind, str]]:
    """The lookups that decide which interpreter is chosen and whether the first of `found` has torch."""
    for parent in _iterate_parents(Path(file).parent, Path(folder)):
        yield from (("presence", str(parent / name / "bin" / "python")) for name in _VENV_NAMES)
    yield "presence", found[0].path
    for packages in list_packages(Path(found[0].path).parent.parent):
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
            elif unfit := _describe_dangling(parent / name):
                yield Candidate(str(parent / name / "bin" / "python"), f"{name} in {parent}", False, unfit, broken=True)
    if named := env.get("UV_PROJECT_ENVIRONMENT"):
        yield from _make_candidates(Path(folder) / named, "UV_PROJECT_ENVIRONMENT", env, chosen=True)
    yield from _make_candidates(Path(env.get("VIRTUAL_ENV", "")), "VIRTUAL_ENV", env)
    on_path = [Path(entry) for entry in env.get("PATH", "").split(os.pathsep)]
    for entry in on_path:  # a tool that brought its own environment put it before the one that was active
        if path_exists(entry.parent / "pyvenv.cfg") and entry.is_absolute():
            yield from _make_candidates(entry.parent, "the environment that is active on PATH", env)
    yield from _make_candidates(Path(env.get("CONDA_PREFIX", "")), "CONDA_PREFIX", env)
    for prefix in _iterate_conda_environments(Path(folder), env):
        yield from _make_candidates(prefix, "conda, by environment.yml", env)
    for prefix in _iterate_poetry_environments(Path(folder), env):
        yield from _make_candidates(prefix, "poetry", env)
    for entry in on_path:
        if (python := find_program("python3", path=str(entry))) is not None and not _is_of_tool(entry.parent, env):
            yield Candidate(python, "python3 on PATH", False)
    yield Candidate(sys.executable, "the server's own interpreter", False)


def _make_candidates(prefix: Path, reason: str, env: Mapping[str, str], *, chosen: bool = False) -> Iterator[Candidate]:
    """The interpreter of an environment, if there is one."""
    if prefix.is_absolute() and (python := _python_of(prefix)) is not None:
        unfit = "it is the own environment of a tool, without torch" if _is_of_tool(prefix, env) else ""
        yield Candidate(python, reason, chosen and not unfit, unfit)


def _describe_dangling(venv: Path) -> str:
    """Why a virtual environment of a project cannot be used; "" for a folder that is none."""
    for name in _PYTHONS:
        python = venv / name
        if python.is_symlink() and not path_exists(python):
            return f"{venv} is broken: its python is a link to {python.readlink()}, which is not there"
    return f"{venv} is broken: it has no python" if path_exists(venv / "pyvenv.cfg") else ""


def _is_of_tool(prefix: Path, env: Mapping[str, str]) -> bool:
    """Is it the environment of this program, or of another tool such as pre-commit, pipx or uv, without torch?"""
    caches = [
        Path(env.get("PRE_COMMIT_HOME") or "~/.cache/pre-commit"), Path(env.get("PIPX_HOME") or "~/.local/share/pipx"),
        Path(env.get("UV_TOOL_DIR") or "~/.local/share/uv/tools"),
    ]  # fmt: skip
    if cache := env.get("XDG_CACHE_HOME"):
        caches.append(Path(cache) / "pre-commit")
    own = os.path.realpath(prefix) == os.path.realpath(sys.prefix) != os.path.realpath(sys.base_prefix)
    if not own and not any(prefix.is_relative_to(each.expanduser()) for each in caches):
        return False
    return not any(any(packages.glob("torch-*.dist-info")) for packages in list_packages(prefix))


def list_packages(prefix: Path) -> list[Path]:
    """The folders of packages of an environment."""
    return [*prefix.glob("lib/python*/site-packages"), *prefix.glob("Lib/site-packages")]


def _iterate_conda_environments(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """The conda environments, as conda lists them, whose name is in the project's `environment.yml`."""
    try:
        text = "".join(found.read_text("utf-8") for found in folder.glob("environment.y*ml"))
        listed = Path(env.get("HOME") or "~", ".conda", "environments.txt").expanduser().read_text("utf-8")
    except (OSError, ValueError):
        return
    if (named := re.search(r"^name: *[\"']?([\w.-]+)", text, re.MULTILINE)) is not None:
        yield from (Path(line) for line in listed.splitlines() if Path(line).name == named[1])


def _iterate_poetry_environments(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """The environments of a project that poetry keeps in its cache, by the name that it gives them."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        tool = project.get("tool", {}).get("poetry", {})
        name = tool.get("name") or project.get("project", {}).get("name", "")
    except (OSError, ValueError, AttributeError):
        return
    if not tool and not path_exists(folder / "poetry.lock"):
        return
    cleaned = re.sub("[-_.]+", "-", str(name)).lower()[:42]
    digest = hashlib.sha256(os.path.normcase(os.path.realpath(folder)).encode()).digest()
    cache = Path(env.get("POETRY_CACHE_DIR") or Path(env.get("XDG_CACHE_HOME") or "~/.cache", "pypoetry"))
    kept = Path(env.get("POETRY_VIRTUALENVS_PATH") or cache / "virtualenvs").expanduser()
    yield from sorted(kept.glob(f"{cleaned}-{base64.urlsafe_b64encode(digest).decode()[:8]}-py*"), reverse=True)


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
    for name in _PYTHONS:
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

#: Names that mark a directory as the root of a project, and those that do where no directory has one of these.
_ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_LESSER_ROOTS = ("requirements.txt", "README.md", "README.rst", "LICENSE")


def project_of(path: str) -> str:
    """The project directory of a file: the nearest one with a project mark, else the file's own directory.

    A project that was downloaded as an archive may have a README alone; one in a home directory marks no project.
    """
    parents = list(Path(path).parents)
    inner = parents[: parents.index(Path.home())] if Path.home() in parents else parents[:-1]
    for marks, folders in ((_ROOTS, parents), (_LESSER_ROOTS, inner)):
        marked = (folder for folder in folders if any(path_exists(folder / mark) for mark in marks))
        if (found := next(marked, None)) is not None:
            return str(found)
    return str(parents[0])
