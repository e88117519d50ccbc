"""The forms in which a model's graph is written: a checkpoint of the real model, its weights as bytes, a drawing."""

from __future__ import annotations

import importlib.util

import torch

from mase_server.inputs.making.real import Real
from mase_server.worker.live import Live
from mase_server.worker.transforms import arrays
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Applied, Pipeline
from mase_server.worker.transforms.room import refusal
from mase_server.worker.transforms.runs import Subject, raise_stopped, run_steps, useful_threads


def checkpoint(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Write `{name}.pt` and `{name}.mz` of the model with its weights, after its steps: {"files", "weights"}."""
    if real is None:
        return _later(live, ask, send)
    applied = _applied(live, ask, real, send)
    try:
        applied.graph.export(ask.name)
    except ValueError as error:
        raise AskError(str(error), "pass") from error
    value = {"files": [f"{ask.name}.pt", f"{ask.name}.mz"], "weights": applied.weights or real.how}
    return send({"value": value})


def weights(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """A page of the parameters and buffers after the steps: `arrays.page` and "weights", whose they are."""
    if real is None:
        return _later(live, ask, send)
    applied = _applied(live, ask, real, send)
    try:
        page = arrays.page(applied.graph.model, ask.names, ask.start, ask.count)
    except ValueError as error:
        raise AskError(str(error)) from error
    return send({"value": {**page, "weights": applied.weights or real.how}})


def _later(live: Live, ask: Ask, send: Send) -> None:
    """On meta it is only seen whether there is room for weights."""
    if problem := refusal(Subject.of(live, ask.model).traced, ask.memory):
        raise AskError(problem, "limit")
    send({"value": {"then": "measure"}})


def _applied(live: Live, ask: Ask, real: Real, send: Send) -> Applied:
    subject = Subject.of(live, ask.model, real)
    torch.set_num_threads(useful_threads(real.model))
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=True)
    raise_stopped(applied.stopped)
    return applied


def drawing(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """The graph as SVG, after its steps or, if asked for, without any: {"text"}. name: what boxes are coloured by."""
    from mase_server.ir.draw import svg

    if importlib.util.find_spec("igraph") is None:
        raise AskError("drawing needs igraph in the interpreter that runs the model: install it there", "pass")
    subject = Subject.of(live, ask.model, real)
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=real is not None)
    if real is None and applied.stopped is None and applied.rest:
        if problem := refusal(subject.traced, ask.memory):
            raise AskError(problem, "limit")
        send({"value": {"then": "measure"}})
        return
    raise_stopped(applied.stopped)
    send({"value": {"text": svg(applied.graph, "format" if ask.name == "format" else "family")}})
