"""What a model's graph is written as: a checkpoint of the real one, a drawing."""

from __future__ import annotations

import importlib.util

import torch

from mase_server.inputs.making.real import Real
from mase_server.worker.live import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Pipeline
from mase_server.worker.transforms.room import refusal
from mase_server.worker.transforms.runs import Subject, raise_stopped, run_steps, useful_threads


def checkpoint(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Write `{name}.pt` and `{name}.mz` of the model with its weights, after its steps: {"files", "weights"}."""
    subject = Subject.of(live, ask.model, real)
    if real is None:
        if problem := refusal(subject.traced, ask.memory):
            raise AskError(problem, "limit")
        send({"value": {"then": "measure"}})
        return
    torch.set_num_threads(useful_threads(real.model))
    applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
    raise_stopped(applied.stopped)
    try:
        applied.graph.export(ask.name)
    except ValueError as error:
        raise AskError(str(error), "pass") from error
    send({"value": {"files": [f"{ask.name}.pt", f"{ask.name}.mz"], "weights": real.how}})


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
