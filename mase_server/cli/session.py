"""A daemon for one command: the named files are traced once, side by side."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mase_server.cli.reports import Report, here, report_of, source_of
from mase_server.daemon.api import API, Api
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.projects import project_of as project_of
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import FolderSettings, Listener, Status
from mase_server.daemon.store import GraphSnapshot
from mase_server.directories import cache_dir, state_dir
from mase_server.lsp.text import Text, decode
from mase_server.paths import canonical
from mase_server.snapshot import Problem
from mase_server.worker.request import EVERY, TraceOptions

_METHODS = {method.name: method for method in API}
#: End states that explain themselves only by their message.
_UNSHOWN = frozenset({"no_model", "no_environment", "crashed", "failed", "superseded", "untrusted"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The file to trace, and how to trace it."""

    files: tuple[Path, ...]
    model: str | None = None
    inputs: tuple[str, ...] = ()
    python: str | None = None
    set: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of tracing one file. snapshot: None if nothing was traced."""

    file: str
    path: str
    snapshot: GraphSnapshot | None
    problems: tuple[Problem, ...]


async def trace(wanted: Wanted, everything: bool = False) -> list[Report]:
    """Trace every file; the reports in the order of the files. everything: with expressions."""
    async with daemon_for(wanted, Quiet()) as daemon:
        return [await traced(daemon, file, everything) for file in wanted.files]


async def trace_each(wanted: Wanted) -> AsyncIterator[Report]:
    """The reports of many files, each as soon as it is there; a few at once, so that few processes are alive."""
    turns = asyncio.Semaphore(os.cpu_count() or 1)
    async with daemon_for(replace(wanted, files=()), Quiet()) as daemon:

        async def one(file: Path) -> Report:
            async with turns:
                daemon.opened(canonical(file))
                try:
                    return await traced(daemon, file)
                finally:
                    daemon.closed(canonical(file))

        for done in asyncio.as_completed([one(file) for file in wanted.files]):
            yield await done


async def traced(daemon: Daemon, file: Path, everything: bool = False, passes: bool = False) -> Report:
    """The report of a file that the daemon has open, once it is traced. passes: as its passes made it."""
    path = canonical(file)
    await daemon.wait(path)
    params = {"path": path, "all": everything, "passes": passes}
    pages = [await call(daemon, "mase/traced", params)]
    while (following := pages[-1]["next"]) is not None:
        pages.append(await call(daemon, "mase/traced", params | {"first": following}))
    return report_of(file, pages)


async def call(daemon: Daemon, name: str, params: dict[str, Any]) -> Any:
    """The answer of a function of the API."""
    return await _METHODS[name].call(Api(daemon), params)


async def told(daemon: Daemon, name: str, params: dict[str, Any]) -> dict[str, Any]:
    """The same as a map, as it crosses a wire."""
    return _METHODS[name].as_map(await call(daemon, name, params))


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
        model=wanted.model,
        inputs=wanted.inputs,
        inputs_from="option" if wanted.inputs else "settings",
        sets={} if wanted.set is None else {EVERY: wanted.set},
    )
    # The daemon is not started: that would watch files, and every file is traced once here.
    try:
        for file in wanted.files:
            daemon.opened(canonical(file), options)
        yield daemon
    finally:
        await daemon.shutdown()


def outcome_of(daemon: Daemon, file: Path, status: Status, overlays: bool = False) -> Outcome:
    """The present result of tracing a file, from the daemon. overlays: include the problems of passes and hardware?"""
    path = canonical(file)
    text = Text(decode(source_of(file)))
    entry = daemon.store.entry(path)
    problems = [here(problem, path) for problem in (entry.told if overlays else entry.problems)]
    if entry.shown is None and status.state in _UNSHOWN and not problems:
        code = status.state.replace("_", "-")
        problems.append(Problem(path, 1, 0, 1, len(text.line(0)), "error", code, status.message or code))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    return Outcome(str(file), path, entry.shown, tuple(problems))
