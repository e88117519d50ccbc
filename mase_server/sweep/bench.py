"""Where points are measured: a daemon of its own, which traces each file once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mase_server.daemon.calls import WorkerGone
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.projects import project_of
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import FolderSettings
from mase_server.daemon.supervisor import TraceWorker
from mase_server.directories import cache_dir, state_dir
from mase_server.sweep.measuring import Comparisons, Traced, measured, sources_of
from mase_server.sweep.points import Point, Result, sha256_of
from mase_server.worker.request import TraceOptions

#: So often is a point tried whose process ended under it.
ATTEMPTS = 3
#: What the child says where one of its forks ended by itself (worker/transforms/service): not always the pass's fault.
_DEATHS = ("the process that ran the passes ", "the process with the real model ")
#: End states of a trace that another one would not change.
_FINAL = frozenset({"no_model", "no_environment", "untrusted"})


#: So many files stay on the bench though no point looks at them.
_KEPT = 8


class Untraceable(Exception):
    """A file whose models cannot be had; the text says why."""


@dataclass(slots=True, eq=False)
class _File:
    """A model file on the bench, as it was traced last. lock: held while it is traced.  busy: points that look at it.

    hopeless: why nobody need try again with this text.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    comparisons: Comparisons = field(default_factory=Comparisons)
    passes: list[dict[str, Any]] = field(default_factory=list)
    sources: Mapping[str, str] = field(default_factory=dict)
    hopeless: str = ""
    busy: int = 0

    @property
    def changed(self) -> bool:
        """Is any of its texts another one now?"""
        return any(sha256_of(path) != known for path, known in self.sources.items())

    def own_passes(self) -> dict[str, str]:
        """The files of the workspace's own passes, by name."""
        return {each["name"]: each["source"] for each in self.passes if each["source"]}


@dataclass(slots=True, eq=False)
class Bench:
    """Measures points. All methods belong to one event loop.

    python: the interpreter that the models run in, None for each project's own.
    """

    python: str | None = None
    #: By the inputs that were asked for: a daemon traces a file in one way.
    _daemons: dict[tuple[str, ...], Daemon] = field(default_factory=dict)
    _files: dict[tuple[str, tuple[str, ...]], _File] = field(default_factory=dict)

    async def measure(self, point: Point) -> Result:
        """The figures of a point, or why there are none. A process that ends under it costs one of ATTEMPTS."""
        started, file = time.perf_counter(), self._file(point)
        file.busy += 1
        try:
            result = await self._measured(point)
        finally:
            file.busy -= 1
            await self._make_room()
        return replace(result, seconds=time.perf_counter() - started)

    async def _measured(self, point: Point) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            result = await self._tried(point)
            if result.kind != "died":
                break
            result = replace(result, error=f"{result.error} (tried {attempt} times)")
        return result

    async def passes(self, point: Point) -> list[dict[str, Any]]:
        """The passes that there are for the file of a point; [] where it cannot be traced."""
        with suppress(Untraceable, PassError, WorkerGone, ValueError):
            await self._traced(point)
        return self._file(point).passes

    async def _make_room(self) -> None:
        """Let go of the files that were asked for longest ago, where there are many."""
        idle = [key for key, file in self._files.items() if not file.busy]
        for path, inputs in idle[: max(0, len(self._files) - _KEPT)]:
            file = self._files.pop((path, inputs))
            await file.comparisons.close()
            self._daemons[inputs].closed(path)

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(file.comparisons.close() for file in self._files.values()))
        await asyncio.gather(*(daemon.shutdown() for daemon in self._daemons.values()))

    async def _tried(self, point: Point) -> Result:
        traced: Traced | None = None
        try:
            traced = await self._traced(point)
            return await measured(point, traced)
        except Untraceable as error:
            kind, text = "trace", str(error)
        except WorkerGone as error:
            kind, text = "died", str(error)
        except PassError as error:
            died = error.kind == "gone" or str(error).startswith(_DEATHS)
            kind, text = "died" if died else error.kind, str(error)
        except ValueError as error:
            kind, text = "argument", str(error)
        plain = Result(point.model, sources={point.file: sha256_of(point.file)})
        return replace(plain if traced is None else traced.result(point), error=text, kind=kind)

    async def _traced(self, point: Point) -> Traced:
        """The model of a point in a live child that has the present text. ValueError for a title that there is not."""
        daemon, file = self._daemon(point), self._file(point)
        async with file.lock:
            if file.changed:
                file.hopeless = ""
            if file.hopeless:
                raise Untraceable(file.hopeless)
            worker = daemon.worker(point.file)
            if worker is None or not file.sources or file.changed:
                worker = await self._trace(daemon, point, file)
            snapshot = daemon.store.snapshot(point.file)
            if worker is None or snapshot is None or not snapshot.titles:
                file.hopeless = _why_not(daemon, point.file)
                raise Untraceable(file.hopeless)
        title = daemon.passes.title(point.file, point.model or None)
        return Traced(worker, snapshot, title, file.comparisons, file.sources, file.own_passes())

    @staticmethod
    async def _trace(daemon: Daemon, point: Point, file: _File) -> TraceWorker | None:
        """The live child, after a trace, and a second one where the first was lost."""
        path, came_from = point.file, "option" if point.inputs else "settings"
        was_traced = daemon.file(path) is not None
        file.sources, file.comparisons = {path: sha256_of(path)}, Comparisons()
        daemon.opened(path, TraceOptions(inputs=point.inputs, inputs_from=came_from))
        if was_traced:
            daemon.retrace(path)
        status = await daemon.wait(path)
        if daemon.worker(path) is None and status.state not in _FINAL:
            daemon.retrace(path)
            await daemon.wait(path)
        if (worker := daemon.worker(path)) is not None and (snapshot := daemon.store.snapshot(path)) is not None:
            file.sources = sources_of(snapshot)
            file.passes = await daemon.passes.refresh(path)
        return worker

    def _file(self, point: Point) -> _File:
        """The newest last."""
        key = (point.file, point.inputs)
        found = self._files.pop(key) if key in self._files else _File()
        self._files[key] = found
        return found

    def _daemon(self, point: Point) -> Daemon:
        if (known := self._daemons.get(point.inputs)) is not None:
            return known
        settings = FolderSettings(trusted=True, interpreter=self.python)
        daemon = self._daemons[point.inputs] = Daemon(
            Quiet(),
            cache_dir=cache_dir(),
            state_dir=state_dir(),
            settings_of=lambda folder: settings,
            folder_of=project_of,
        )
        return daemon


def _why_not(daemon: Daemon, path: str) -> str:
    """Why a file shows no model: its first error, else what the end of its trace says."""
    errors = [problem for problem in daemon.store.entry(path).problems if problem.severity == "error"]
    if errors:
        return f"line {errors[0].line}: {errors[0].message}"
    status = daemon.status(path)
    return f"it shows no model: {(status and (status.message or status.state)) or 'it was never traced'}"
