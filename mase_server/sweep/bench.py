"""Where points are measured: a daemon of its own, which traces each file once."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mase_server.daemon.calls import WorkerGone
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.projects import project_of
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import FolderSettings
from mase_server.directories import cache_dir, state_dir
from mase_server.sweep.measuring import Comparisons, Traced, measured
from mase_server.sweep.points import Point, Result, sha256_of
from mase_server.worker.request import TraceOptions

#: So often is a point tried whose process ended under it.
ATTEMPTS = 3
#: What the child says where one of its forks ended by itself (worker/transforms/service): not always the pass's fault.
_DEATHS = ("the process that ran the passes ", "the process with the real model ")
#: End states of a trace that another one would not change.
_FINAL = frozenset({"no_model", "no_environment", "untrusted"})


class Untraceable(Exception):
    """A file whose models cannot be had; the text says why."""


@dataclass(slots=True, eq=False)
class _File:
    """A model file on the bench. lock: held while it is traced.  hopeless: why nobody need try again."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    comparisons: Comparisons = field(default_factory=Comparisons)
    passes: list[dict[str, Any]] | None = None
    hopeless: str = ""


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
        started = time.perf_counter()
        for attempt in range(1, ATTEMPTS + 1):
            result = await self._tried(point)
            if result.kind != "died":
                break
            result = replace(result, error=f"{result.error} (tried {attempt} times)")
        return replace(result, seconds=time.perf_counter() - started)

    async def passes(self, point: Point) -> list[dict[str, Any]]:
        """The passes that there are for the file of a point; [] where it cannot be traced."""
        with suppress(Untraceable, PassError, WorkerGone, ValueError):
            await self._traced(point)
        return self._file(point).passes or []

    async def done_with(self, point: Point) -> None:
        """No more points of this file come: its process may end."""
        if (file := self._files.pop((point.file, point.inputs), None)) is not None:
            await file.comparisons.close()
            self._daemon(point).closed(point.file)

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(file.comparisons.close() for file in self._files.values()))
        await asyncio.gather(*(daemon.shutdown() for daemon in self._daemons.values()))

    async def _tried(self, point: Point) -> Result:
        traced: Traced | None = None
        try:
            traced = await self._traced(point)
            return await measured(point, traced, self._file(point).comparisons)
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
        """The model of a point in a live child. ValueError for a title that there is not."""
        daemon, file = self._daemon(point), self._file(point)
        async with file.lock:
            if file.hopeless:
                raise Untraceable(file.hopeless)
            worker = daemon.worker(point.file) or await self._trace(daemon, point)
            snapshot = daemon.store.snapshot(point.file)
            if worker is None or snapshot is None or not snapshot.titles:
                file.hopeless = _why_not(daemon, point.file)
                raise Untraceable(file.hopeless)
            if file.passes is None:
                file.passes = await daemon.passes.refresh(point.file)
        sources = {each["name"]: each["source"] for each in file.passes if each["source"]}
        return Traced(worker, snapshot, daemon.passes.title(point.file, point.model or None), sources)

    @staticmethod
    async def _trace(daemon: Daemon, point: Point) -> Any:
        """The live child, after a trace, and a second one where the first was lost."""
        daemon.opened(
            point.file, TraceOptions(inputs=point.inputs, inputs_from="option" if point.inputs else "settings")
        )
        status = await daemon.wait(point.file)
        if daemon.worker(point.file) is None and status.state not in _FINAL:
            daemon.retrace(point.file)
            await daemon.wait(point.file)
        return daemon.worker(point.file)

    def _file(self, point: Point) -> _File:
        return self._files.setdefault((point.file, point.inputs), _File())

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
