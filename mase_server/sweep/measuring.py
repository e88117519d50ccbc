"""The figures of one point, asked of the live child that holds its model.

Nothing is applied to what a daemon shows: each question is answered in a fork of the child, so many may run at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mase_server.building import Build
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.orders import Order, Subject, emission_of
from mase_server.daemon.pipelines import PassError, Steps
from mase_server.daemon.runs import ask_child
from mase_server.daemon.supervisor import Limits, TraceWorker
from mase_server.dependencies import Dependency
from mase_server.steps import Step
from mase_server.sweep.figures import FIGURES
from mase_server.sweep.points import Point, Result, sha256_of
from mase_server.wire import Message

#: As a person's passes have it in the editor: seconds, and bytes.
LIMITS = Limits(300.0, 4 << 30)
#: So many operators without hardware are named.
_NAMED = 3
_MEASURED = tuple(each for each in FIGURES.values() if not each.hardware)
_HARDWARE = tuple(each for each in FIGURES.values() if each.hardware)


@dataclass(slots=True)
class Comparisons:
    """The effects of pipelines on the models of one trace; each is requested once, however many budgets there are."""

    known: dict[tuple[str, ...], asyncio.Task[dict[str, Any]]] = field(default_factory=dict)

    async def of(self, traced: Traced, steps: Steps) -> dict[str, Any]:
        """The report of a transform (`snapshot.TRANSFORM_KEYS`), with measured errors."""
        key = (traced.title, *map(str, steps))
        if key not in self.known:
            self.known[key] = asyncio.create_task(_transform(traced, steps))
        try:
            return await asyncio.shield(self.known[key])
        except Exception:
            self.known.pop(key, None)  # whoever tries again asks again
            raise

    async def close(self) -> None:
        """Stop what runs."""
        for task in self.known.values():
            task.cancel()
        await asyncio.gather(*self.known.values(), return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Traced:
    """A model that a live child holds. title: of the model.  sources: sha256 of the file and of what it imports.

    passes: files of the workspace's own passes, by name.
    """

    worker: TraceWorker
    snapshot: GraphSnapshot
    title: str
    comparisons: Comparisons
    sources: Mapping[str, str]
    passes: Mapping[str, str]

    def result(self, point: Point) -> Result:
        """A result without figures: the versions, and the files that it rests on."""
        names = (Step.parse(text).name for text in point.pipeline)
        own = {path: sha256_of(path) for path in (self.passes[name] for name in names if name in self.passes)}
        facts = {name: str(self.snapshot.payload[name]) for name in ("python", "torch")}
        return Result(self.title, facts=facts, sources={**self.sources, **own})


def sources_of(snapshot: GraphSnapshot) -> dict[str, str]:
    """The sha256 of a traced file and of the files that its trace read, but for large ones: as they were then."""
    read = [Dependency(*row) for row in snapshot.payload["dependencies"]]
    return {snapshot.path: snapshot.sha256, **{one.path: str(one.seen) for one in read if one.has_hash}}


async def measured(point: Point, traced: Traced) -> Result:
    """The figures of a point. PassError where a pass or the hardware fails; WorkerGone where the child ends."""
    result, steps = traced.result(point), tuple(map(Step.parse, point.pipeline))
    if point.build is None:
        return _compared(result, steps, await traced.comparisons.of(traced, steps))
    subject = Subject(traced.snapshot, traced.title, steps)
    told = (await emission_of(traced.worker, subject, Order(Build.from_wire(point.build)), LIMITS)).told
    # What is compared with the model is what becomes hardware: with the steps that this needs besides.
    whole = tuple(map(Step.parse, told["steps"]))
    result = _compared(result, whole, await traced.comparisons.of(traced, whole))
    if why := _without_hardware(told):
        return result if result.error else replace(result, error=why, kind="hardware")
    hardware = {each.name: told["totals"][each.source] for each in _HARDWARE}
    return replace(result, figures={**result.figures, **hardware})


def _compared(result: Result, steps: Steps, told: Mapping[str, Any]) -> Result:
    """With the figures of a comparison."""
    if told["failed"] is not None:
        raise PassError("pass", str(told["problem"]))
    summary = told["summary"]
    figures = {each.name: _number(summary.get(each.source)) for each in _MEASURED}
    if not steps:
        figures |= {"sqnr": math.inf, "max_error": 0}  # it is the model itself, so nothing was run
    facts = {**result.facts, **{name: str(told[name]) for name in ("weights", "inputs")}}
    unmeasured = figures["sqnr"] is None
    error = told["problem"] or "its error could not be measured" if unmeasured else ""
    return replace(result, figures=figures, facts=facts, error=error, kind="pass" if unmeasured else "")


def _number(value: Any) -> float | None:
    """Of a summary: pairs before and after, "inf", numbers. Whole ones are integers, as they come back from a file."""
    last = value[-1] if isinstance(value, list | tuple) else value
    if last is None:
        return None
    number = float(last)
    return int(number) if number.is_integer() else number


def _without_hardware(told: Mapping[str, Any]) -> str:
    """Why an emission is not all of the model; "" where it is."""
    if told["unsupported"]:
        names = [f"{each['node']} ({each['operator']}): {each['why']}" for each in told["unsupported"]]
        more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"no hardware for {'; '.join(names[:_NAMED])}{more}"
    return str(told["refusal"] or "")


async def _transform(traced: Traced, steps: Steps) -> dict[str, Any]:
    """Have the child apply steps to the model, run both, and tell."""
    heard: list[Message] = []
    params = {"model": traced.title, "steps": [step.to_wire() for step in steps], "measure": True, "trial": False}
    what = f"the passes on {traced.title}"
    await ask_child(traced.worker, "transform", params, LIMITS, what, heard.append)
    told = [message["transform"] for message in heard if message["event"] == "transform"]
    if not told:
        raise PassError("internal", f"The worker reported no effect of the passes on {traced.title}.")
    return {key: value for key, value in told[-1].items() if key not in ("rows", "nodes")}
