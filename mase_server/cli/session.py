"""A daemon for one command: the named files are traced once, side by side."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mase_server.daemon.daemon import Daemon
from mase_server.daemon.status import FolderSettings, Listener, Status
from mase_server.daemon.store import FileView, GraphSnapshot
from mase_server.directories import cache_dir, state_dir
from mase_server.lsp.text import Text, decode
from mase_server.snapshot import Problem
from mase_server.worker.request import TraceOptions

#: What makes a directory the root of a project.
_ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_EXTENT = ("line", "column", "end_line", "end_column")
#: End states that explain themselves only by their message.
_UNSHOWN = frozenset({"no_model", "no_environment", "crashed", "failed", "superseded", "untrusted"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to trace, and how."""

    files: tuple[Path, ...]
    model: str | None = None
    inputs: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tracing one file gave. view, snapshot: None where nothing was traced."""

    file: str
    path: str
    text: Text
    status: Status
    view: FileView | None
    snapshot: GraphSnapshot | None
    problems: tuple[Problem, ...]

    @property
    def has_errors(self) -> bool:
        """Was anything wrong, or nothing shown?"""
        shown = self.snapshot is not None and bool(self.snapshot.payload["models"])
        return not shown or any(problem.severity == "error" for problem in self.problems)

    @property
    def was_misused(self) -> bool:
        """Could the inputs that the command line gave not be read?"""
        return any(problem.code == "bad-inputs" for problem in self.problems)

    @property
    def same_text(self) -> bool:
        """Do the view's positions speak of `text`?"""
        return self.view is not None and self.view.sha256 == hashlib.sha256(Path(self.path).read_bytes()).hexdigest()


class Silent:
    """A listener for whom the end is enough."""

    def status_changed(self, status: Status) -> None:
        """Nothing to do."""

    def views_changed(self, paths: frozenset[str]) -> None:
        """Nothing to do."""

    def progress(self, path: str, stage: str, message: str) -> None:
        """Nothing to do."""

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Nothing to do."""

    def pass_ended(self, path: str, model: str) -> None:
        """Nothing to do."""

    def verilog_changed(self, path: str, model: str) -> None:
        """Nothing to do."""

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Nothing to do."""

    def verilog_ended(self, path: str, model: str) -> None:
        """Nothing to do."""


async def trace(wanted: Wanted) -> list[Outcome]:
    """Trace every file; the outcomes in the order of the files."""
    async with daemon_for(wanted, Silent()) as daemon:
        return [outcome_of(daemon, file, await daemon.wait(str(file.absolute()))) for file in wanted.files]


@asynccontextmanager
async def daemon_for(wanted: Wanted, listener: Listener, folder: str | None = None) -> AsyncIterator[Daemon]:
    """A daemon that traces the files, which are trusted by being named, and that ends with the context.

    folder: of the project that they belong to; without it each file's own.
    """
    settings = FolderSettings(trusted=True, interpreter=wanted.python)
    daemon = Daemon(
        listener,
        cache_dir=cache_dir(),
        state_dir=state_dir(),
        settings_of=lambda folder: settings,
        folder_of=project_of if folder is None else lambda path: folder,
    )
    options = TraceOptions(
        model=wanted.model, inputs=wanted.inputs, inputs_from="option" if wanted.inputs else "settings"
    )
    # The daemon is not started: that would watch files, and every file is traced once here.
    try:
        for file in wanted.files:
            daemon.opened(str(file.absolute()), options)
        yield daemon
    finally:
        await daemon.shutdown()


def project_of(path: str) -> str:
    """The directory of the project that a file belongs to: the nearest with a mark of one, else the file's own."""
    parents = list(Path(path).parents)
    marked = (parent for parent in parents if any((parent / mark).exists() for mark in _ROOTS))
    return str(next(marked, parents[0]))


def outcome_of(daemon: Daemon, file: Path, status: Status, overlays: bool = False) -> Outcome:
    """What tracing a file gave, as the daemon has it now. overlays: with the problems of passes and hardware."""
    path = str(file.absolute())
    text = Text(decode(file.read_bytes()))
    entry = daemon.store.entry(path)
    problems = [_here(problem, path) for problem in (entry.told if overlays else entry.problems)]
    if entry.shown is None and status.state in _UNSHOWN and not problems:
        code = status.state.replace("_", "-")
        problems.append(Problem(path, 1, 0, 1, len(text.line(0)), "error", code, status.message or code))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    return Outcome(str(file), path, text, status, daemon.store.view(path), entry.shown, tuple(problems))


def _here(problem: Problem, path: str) -> Problem:
    """A problem of another file, told at the place in this file that led to it."""
    if problem.file == path:
        return problem
    message = f"{problem.file}:{problem.line}: {problem.message}"
    place = next((place for place in problem.related if place["file"] == path), None)
    line, column, end_line, end_column = (place[key] for key in _EXTENT) if place else (1, 0, 1, 0)
    return Problem(path, line, column, end_line, end_column, problem.severity, problem.code, message, problem.related)
