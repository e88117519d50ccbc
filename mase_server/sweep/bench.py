"""Measure points on a bench: a separate daemon that traces each file once.

A point needs two calls to a live child, `verilog` and `transform`, so no pipeline is set and several points of a file
run at once. The death of a child or a fork costs one of three attempts; an error raised by a pass is final.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.daemon.changes import ask_child
from mase_server.daemon.channel import WorkerGone
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.environment import list_interpreters, project_of
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import PassError, Steps
from mase_server.daemon.slots import end_tasks
from mase_server.daemon.status import FolderSettings, Listener
from mase_server.daemon.supervisor import Limits, TraceWorker
from mase_server.daemon.verilog import Order, Subject, emission_of
from mase_server.dependencies import Dependency
from mase_server.private import cache_dir, state_dir
from mase_server.protocol.answers import Pass
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import EmissionRecord, TransformFacts, TransformRecord
from mase_server.protocol.request import TraceOptions
from mase_server.protocol.snapshot import facts_of_transform
from mase_server.protocol.wire import Message
from mase_server.sweep.points import FIGURES, Point, Result, sha256_of

# The figures of one point, requested from the live child that holds its model.
#
# The daemon's shown state does not change: each request runs in a fork of the child, so many may run at once.

#: The same limits as for passes in the editor: seconds, and bytes.
LIMITS = Limits(300.0, 4 << 30)
#: Maximum number of named operators without hardware.
_NAMED = 3
_MEASURED = tuple(each for each in FIGURES.values() if not each.hardware)
_HARDWARE = tuple(each for each in FIGURES.values() if each.hardware)


@dataclass(slots=True)
class Comparisons:
    """The effects of pipelines on the models of one trace; each is requested once, for all budgets."""

    known: dict[tuple[str, ...], asyncio.Task[TransformFacts]] = field(default_factory=dict)

    async def of(self, traced: Traced, steps: Steps) -> TransformFacts:
        """The report of a transform (`snapshot.TRANSFORM_KEYS`), with measured errors."""
        key = (traced.title, *map(str, steps))
        if key not in self.known:
            self.known[key] = asyncio.create_task(_request_transform(traced, steps))
        try:
            return await asyncio.shield(self.known[key])
        except Exception:
            self.known.pop(key, None)  # a new attempt must request it again
            raise

    async def close(self) -> None:
        """Cancel the running requests."""
        await end_tasks(self.known.values())


@dataclass(frozen=True, slots=True)
class Traced:
    """A model held by a live child. title: of the model.  sources: sha256 of the file and of its imports.

    passes: files of the workspace's own passes, by name.
    """

    worker: TraceWorker
    snapshot: GraphSnapshot
    title: str
    comparisons: Comparisons
    sources: Mapping[str, str]
    passes: Mapping[str, str]

    def result(self, point: Point) -> Result:
        """A result without figures: the versions, and the files that it depends on."""
        names = (Step.parse(text).name for text in point.pipeline)
        own = {path: sha256_of(path) for path in (self.passes[name] for name in names if name in self.passes)}
        facts = {name: str(self.snapshot.payload[name]) for name in ("python", "torch")}
        return Result(self.title, facts=facts, sources={**self.sources, **own})


def sources_of(snapshot: GraphSnapshot) -> dict[str, str]:
    """The sha256 of a traced file and of the files read by its trace, except large ones, as they were at that time."""
    read = [Dependency(*row) for row in snapshot.payload["dependencies"]]
    return {snapshot.path: snapshot.sha256, **{one.path: str(one.seen) for one in read if one.has_hash}}


async def measure_point(point: Point, traced: Traced) -> Result:
    """The figures of a point. PassError if a pass or the hardware fails; WorkerGone if the child ends."""
    result, steps = traced.result(point), tuple(map(Step.parse, point.pipeline))
    if point.build is None:
        return _add_comparison(result, steps, await traced.comparisons.of(traced, steps))
    subject = Subject(traced.snapshot, traced.title, steps)
    told = (await emission_of(traced.worker, subject, Order(Build.from_wire(point.build)), LIMITS)).told
    # Compare the graph that becomes hardware with the model: it includes the additional steps that hardware needs.
    whole = tuple(map(Step.parse, told["steps"]))
    result = _add_comparison(result, whole, await traced.comparisons.of(traced, whole))
    if why := _without_hardware(told):
        return result if result.error else replace(result, error=why, kind="hardware")
    totals: Mapping[str, Any] = told["totals"]
    hardware = {each.name: totals[each.source] for each in _HARDWARE}
    return replace(result, figures={**result.figures, **hardware})


def _add_comparison(result: Result, steps: Steps, told: TransformFacts) -> Result:
    """Add the figures of a comparison to a result."""
    if told["failed"] is not None:
        raise PassError("pass", str(told["problem"]))
    summary: Mapping[str, Any] = told["summary"] or {}
    figures = {each.name: _number_of_summary(summary.get(each.source)) for each in _MEASURED}
    if not steps:
        figures |= {"sqnr": math.inf, "max_error": 0}  # the model is unchanged, so nothing was run
    facts = {**result.facts, "weights": told["weights"], "inputs": told["inputs"]}
    unmeasured = figures["sqnr"] is None
    error = told["problem"] or "its error could not be measured" if unmeasured else ""
    return replace(result, figures=figures, facts=facts, error=error, kind="pass" if unmeasured else "")


def _number_of_summary(value: Any) -> float | None:
    """A number from a summary, which has pairs (before, after), "inf", and numbers. Whole numbers become integers."""
    last = value[-1] if isinstance(value, list | tuple) else value
    if last is None:
        return None
    number = float(last)
    return int(number) if number.is_integer() else number


def _without_hardware(told: EmissionRecord) -> str:
    """Why an emission lacks a part of the model; "" if it does not."""
    if told["unsupported"]:
        names = [f"{each['node']} ({each['operator']}): {each['why']}" for each in told["unsupported"]]
        more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"no hardware for {'; '.join(names[:_NAMED])}{more}"
    return str(told["refusal"] or "")


async def _request_transform(traced: Traced, steps: Steps) -> TransformFacts:
    """Apply steps to the model in the child, run both, and return the report."""
    heard: list[Message] = []
    params = {"model": traced.title, "steps": [step.to_wire() for step in steps], "measure": True, "trial": False}
    what = f"the passes on {traced.title}"
    await ask_child(traced.worker, "transform", params, LIMITS, what, heard.append)
    told: list[TransformRecord] = [message["transform"] for message in heard if message["event"] == "transform"]
    if not told:
        raise PassError("internal", f"The worker reported no effect of the passes on {traced.title}.")
    return facts_of_transform(told[-1])


# The torch version that a file will meet, from the files of its interpreter; no process is started.


def environment_of(file: str, python: str | None) -> str:
    """E.g. "torch-2.13.0", from the first interpreter that has one; "" if none is found."""
    for candidate in list_interpreters(project_of(file), file, python, os.environ):
        prefix = Path(candidate.path).parent.parent
        for places in ("lib/python3*/site-packages", "lib/python3/dist-packages", "Lib/site-packages"):
            for found in sorted(prefix.glob(f"{places}/torch-*.dist-info")):
                return found.name.removesuffix(".dist-info")
    return ""


#: How often a point is tried if its process ends.
ATTEMPTS = 3
#: The child's messages if one of its forks ended (worker/transforms/service): not always the fault of the pass.
_DEATHS = ("the process that ran the passes ", "the process with the real model ")
#: End states of a trace that would not change with another attempt.
_FINAL = frozenset({"no_model", "no_environment", "untrusted"})


#: Maximum number of files on the bench that no point is using.
_KEPT = 8


class Untraceable(Exception):
    """The models of a file are not available; the text says why."""


@dataclass(slots=True, eq=False)
class _File:
    """A model file on the bench, as of its last trace. lock: held during a trace.  busy: points that use the file.

    hopeless: why another attempt with this text is useless.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    comparisons: Comparisons = field(default_factory=Comparisons)
    passes: list[Pass] = field(default_factory=list)
    sources: Mapping[str, str] = field(default_factory=dict)
    hopeless: str = ""
    busy: int = 0

    @property
    def changed(self) -> bool:
        """Has any of its texts changed?"""
        return any(sha256_of(path) != known for path, known in self.sources.items())

    def own_passes(self) -> dict[str, str]:
        """The files of the workspace's own passes, by name."""
        return {each["name"]: each["source"] for each in self.passes if each["source"]}


@dataclass(slots=True, eq=False)
class Bench:
    """Measures points. All methods belong to one event loop.

    python: the interpreter for the models, None for each project's own.
    """

    python: str | None = None
    #: Daemons by the given inputs, because a daemon traces a file with one set of inputs.
    _daemons: dict[tuple[str, ...], Daemon] = field(default_factory=dict)
    _files: dict[tuple[str, tuple[str, ...]], _File] = field(default_factory=dict)

    async def measure(self, point: Point) -> Result:
        """The figures of a point, or why it has none. If its process ends, that counts as one of ATTEMPTS."""
        started, file = time.perf_counter(), self._file_of_point(point)
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

    async def passes(self, point: Point) -> list[Pass]:
        """The passes available for the file of a point; [] if it cannot be traced."""
        with suppress(Untraceable, PassError, WorkerGone, ValueError):
            await self._traced(point)
        return self._file_of_point(point).passes

    async def _make_room(self) -> None:
        """If there are too many files, close those that were used longest ago."""
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
            return await measure_point(point, traced)
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
        """The model of a point in a live child with the present text. ValueError for an unknown title."""
        daemon, file = self._daemon(point), self._file_of_point(point)
        async with file.lock:
            if file.changed:
                file.hopeless = ""
            if file.hopeless:
                raise Untraceable(file.hopeless)
            worker = daemon.worker(point.file)
            if worker is None or not file.sources or file.changed:
                worker = await self._trace_file(daemon, point, file)
            snapshot = daemon.store.snapshot(point.file)
            if worker is None or snapshot is None or not snapshot.titles:
                file.hopeless = _why_not(daemon, point.file)
                raise Untraceable(file.hopeless)
        title = daemon.passes.title(point.file, point.model or None)
        return Traced(worker, snapshot, title, file.comparisons, file.sources, file.own_passes())

    @staticmethod
    async def _trace_file(daemon: Daemon, point: Point, file: _File) -> TraceWorker | None:
        """Trace the file and return the live child; if the child is lost, trace once more."""
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

    def _file_of_point(self, point: Point) -> _File:
        """The bench's record of a point's file, which becomes the newest."""
        key = (point.file, point.inputs)
        found = self._files.pop(key) if key in self._files else _File()
        self._files[key] = found
        return found

    def _daemon(self, point: Point) -> Daemon:
        if (known := self._daemons.get(point.inputs)) is not None:
            return known
        settings = FolderSettings(trusted=True, interpreter=self.python)
        daemon = self._daemons[point.inputs] = Daemon(
            Listener(),
            cache_dir=cache_dir(),
            state_dir=state_dir(),
            settings_of=lambda folder: settings,
            folder_of=project_of,
        )
        return daemon


def _why_not(daemon: Daemon, path: str) -> str:
    """Why a file shows no model: its first error, else the message of its end state."""
    errors = [problem for problem in daemon.store.entry(path).problems if problem.severity == "error"]
    if errors:
        return f"line {errors[0].line}: {errors[0].message}"
    status = daemon.status(path)
    return f"it shows no model: {(status and (status.message or status.state)) or 'it was never traced'}"
