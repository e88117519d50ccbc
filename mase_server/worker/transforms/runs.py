"""The work of a fork: it runs a pipeline on meta, or on the real model with errors, and sends the result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mase_server.inputs.making.real import SEED, Real
from mase_server.ir.code import code_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.recording import Recording
from mase_server.ops.cost import parameters_of
from mase_server.passes.declaration import Pass
from mase_server.passes.error import measure
from mase_server.passes.registry import passes_for
from mase_server.snapshot import split_transform
from mase_server.worker import processes
from mase_server.worker.live import Live
from mase_server.worker.traced import Traced
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.example import Example, example
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.overlay import Measured, OverlayWriter
from mase_server.worker.transforms.pipeline import Applied, Pipeline, Stopped, told
from mase_server.worker.transforms.room import refusal

#: Models with fewer parameters are run by one thread.
WORTH_THREADS = 20_000_000


@dataclass(frozen=True, slots=True)
class Subject:
    """One model, to be transformed. example: its inputs.  real: the model with values, None on meta."""

    live: Live
    index: int
    example: Example
    real: Real | None = None

    @classmethod
    def of(cls, live: Live, title: str, real: Real | None = None) -> Subject:
        """The model of a title; AskError where there is none, and where its forward fails."""
        try:
            index = live.index(title)
        except ValueError as error:
            raise AskError(str(error)) from None
        traced = live.traced[index]
        if traced.error is not None:
            raise AskError(f"the forward of {traced.name} fails ({traced.error}): fix it first", "pass")
        return cls(live, index, example(traced, live.request.path), real)

    @property
    def traced(self) -> Traced:
        """The model as it was traced."""
        return self.live.traced[self.index]

    @property
    def model(self) -> nn.Module:
        """The model that graphs are built over."""
        return self.traced.session.model if self.real is None else self.real.model

    def graph(self) -> MaseGraph:
        """A new graph of the recording."""
        traced, example = self.traced, self.example
        graph = MaseGraph.from_recording(self.model, Recording.of(traced.run, traced.probed, example.arguments))
        if example.of_file:
            # Passes that choose by data say so then.
            graph.given = dict(example.arguments)
        graph.data = self.data
        return graph

    @property
    def data(self) -> str:
        """What a `# mase: data` comment names for the model, its own before the file's; "" for none.

        Files are found from the folder of the model's file.
        """
        said = sorted(
            (each for each in self.traced.found.written if each.data), key=lambda each: each.owner is not None
        )
        if not said:
            return ""
        file, colon, function = said[-1].data.rpartition(":")
        here = Path(self.live.request.path).parent / (file or function)
        return f"{here}{colon}{function if file else ''}" if here.is_file() else said[-1].data

    def known(self) -> Mapping[str, Pass]:
        """The passes that there are."""
        request = self.live.request
        return passes_for(request.folder, request.path)


def formats(live: Live, ask: Ask, send: Send) -> None:
    """On meta: the formats. Then the answer: {"then": "measure"} where real weights are wanted and there is room."""
    subject = Subject.of(live, ask.model)
    pipeline = Pipeline(ask.steps, subject.known())
    applied = run_steps(subject, pipeline, send, real=False)
    refused = ask.trial and applied.stopped is not None
    wanted = not refused and (applied.rest > 0 or (ask.measure and bool(applied.steps)))
    problem = refusal(subject.traced, ask.memory) if wanted else ""
    writer = OverlayWriter(live, subject.index, Applied(subject.graph()))
    _tell(send, writer.write(applied, None, complete=not wanted or bool(problem), problem=problem))
    if problem:
        raise AskError(problem, "limit")
    if not wanted:
        raise_stopped(applied.stopped)
    send({"value": {"then": "measure"} if wanted else {}})


def measured(live: Live, ask: Ask, real: Real, send: Send) -> None:
    """On the real model: formats and, if asked for, errors."""
    subject = Subject.of(live, ask.model, real)
    torch.set_num_threads(useful_threads(real.model))
    applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
    found: Measured | None = None
    problem = ""
    if ask.measure and applied.steps:
        send(_progress("measuring errors", len(ask.steps), ask))
        try:
            found = _errors(subject, applied)
        except Exception as error:  # noqa: BLE001 - what the person's model does on these inputs is not known before
            problem = f"errors could not be measured on {subject.example.how}: {told(error)}"
    writer = OverlayWriter(live, subject.index, Applied(subject.graph()))
    _tell(send, writer.write(applied, found, complete=True, problem=problem))
    raise_stopped(applied.stopped)
    if problem:
        raise AskError(problem, "internal")
    send({"value": {}})


def code(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """The graph as Python, after its steps or, if asked for, without any."""
    subject = Subject.of(live, ask.model, real)
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=real is not None)
    if real is None and applied.stopped is None and (applied.rest or applied.is_open):
        problem = refusal(subject.traced, ask.memory)
        if not problem:
            send({"value": {"then": "measure"}})
            return
        if applied.rest:
            raise AskError(problem, "limit")
    stopped = "" if applied.stopped is None else f"# {applied.stopped.text.replace(chr(10), ' ')}\n"
    send({"value": {"text": stopped + code_of(applied.graph.module, subject.traced.name)}})


def known(live: Live, send: Send) -> None:
    """Every pass that there is for this file."""
    request = live.request
    send({"value": [each.to_wire() for each in passes_for(request.folder, request.path).values()]})


def useful_threads(model: nn.Module) -> int:
    """How many threads are of use: small operations, and those on a busy machine, wait longer than they compute."""
    if parameters_of(model)[0] < WORTH_THREADS or not processes.may_compute_with_threads():
        return 1
    count = os.cpu_count() or 1
    return max(1, min(count, round(count - os.getloadavg()[0])))


def run_steps(subject: Subject, pipeline: Pipeline, send: Send, *, real: bool) -> Applied:
    """Apply the steps to a new graph; each is told before it runs."""
    torch.manual_seed(SEED)
    count = len(pipeline.steps)

    def tell(index: int) -> None:
        name = pipeline.steps[index].name
        send({"event": "progress", "message": f"{name} ({index + 1} of {count})", "fraction": index / (count + 1)})

    return pipeline.run(subject.graph, tell, real=real)


def _progress(message: str, index: int, ask: Ask) -> dict[str, Any]:
    return {"event": "progress", "message": message, "fraction": index / (len(ask.steps) + 1)}


def _tell(send: Send, overlay: Mapping[str, Any]) -> None:
    for frame in split_transform(overlay):
        send({"event": "transform", "frame": frame})


def raise_stopped(stopped: Stopped | None) -> None:
    """AskError where a step failed."""
    if stopped is not None:
        raise AskError(stopped.text, stopped.kind)


def _errors(subject: Subject, applied: Applied) -> Measured:
    """Both graphs on the same inputs: those of the file's own run where their values are known, else random ones."""
    assert subject.real is not None
    original, graph = subject.graph(), applied.graph
    feed = original.knowledge.feed(subject.example.arguments)
    return Measured(
        measure(original.model, graph.model, feed), subject.example.how, applied.weights or subject.real.how
    )
