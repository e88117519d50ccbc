"""One model type of transformers: built, inputs found, recorded, run again from its graph, and timed."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from hf_types import Built, NotBuilt, build
from torch import nn

from mase_server.inputs.found import call_arguments, plain_hooks
from mase_server.inputs.generate import inputs_at
from mase_server.inputs.modes import on_meta
from mase_server.inputs.search import search
from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import write
from mase_server.ir.build import GraphBuilder, executable
from mase_server.ir.feeding import feed, flattened
from mase_server.ir.session import Session
from mase_server.tracing.calls import Run
from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.shadow import MetaMode
from mase_server.tracing.state import unchanged

#: How often each of two times is measured, alternately.
REPEATS = 3

Types = list[tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class Outcome:
    """How far one type came. trace, plain: median seconds; plain is 0.0 where meta alone cannot run the forward."""

    name: str
    model: str = ""
    not_built: str = ""
    cut: bool = False
    auto: bool = True
    inputs: str = ""
    traced: bool = False
    rung: str = ""
    same: bool = False
    nodes: int = 0
    trace: float = 0.0
    plain: float = 0.0
    why: str = ""
    where: list[str] = field(default_factory=list)


def check(name: str) -> dict[str, Any]:
    """The outcome of one type as a map; nothing is raised."""
    outcome = Outcome(name)
    try:
        built = build(name)
        outcome.model, outcome.cut, outcome.auto = type(built.model).__name__, built.cut, built.auto
        _trace(outcome, built)
    except NotBuilt as error:
        outcome.not_built = str(error)
    except BaseException as error:  # noqa: BLE001 - one type's fault is a row of the table
        outcome.why = outcome.why or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        outcome.where = [f"{each.filename}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)[-6:]]
    return asdict(outcome)


def _trace(outcome: Outcome, built: Built) -> None:
    model, shadows = built.model, built.shadows
    with unchanged(model, shadows):
        searched = search(model, plain_hooks(shadows))
    if searched.spec is None:
        outcome.inputs = searched.example
        outcome.why = searched.how
        if searched.errors:
            raise searched.errors[0]
        return
    outcome.inputs = write(searched.spec)
    session = _session(built, searched.spec)
    run = session.record()
    outcome.traced, outcome.rung, outcome.nodes = True, session.rung, len(run.calls)
    _run_again(outcome, session, run)
    if session.rung == "meta":
        outcome.trace, outcome.plain = _times(built, searched.spec)


def _session(built: Built, spec: Inputs) -> Session:
    return Session(built.model, on_meta(inputs_at(spec), built.shadows), built.shadows, spec=spec)


def _run_again(outcome: Outcome, session: Session, run: Run) -> None:
    """Does the graph give tensors of the types that the forward itself gives?"""
    model, arguments = session.model, session.arguments
    module = executable(GraphBuilder(run).build(), model, run.constants)
    mode = MetaMode(session.shadows)
    try:
        with torch.no_grad(), unchanged(model, session.shadows):
            args, kwargs = call_arguments(model, arguments)
            theirs = _under(mode, session.rung, lambda: model(*args, **kwargs))
            values = feed(module.graph, flattened(arguments, model))
            ours = _under(mode, session.rung, lambda: module(*values))
    except Exception as error:
        outcome.why = f"run again: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise
    outcome.same = ours == theirs and len(theirs) > 0
    if not outcome.same:
        outcome.why = f"run again: {ours[:6]} instead of {theirs[:6]}"


def _under(mode: MetaMode, rung: str, run: Callable[[], Any]) -> Types:
    if rung != "meta":
        return types_of(run())
    with mode:
        out = run()
    return types_of(out)


def types_of(value: Any) -> Types:
    """Element type and sizes of every tensor in a result, in order."""
    return [(str(tensor.dtype), tuple(tensor.shape)) for tensor in Rebuild.of(value).tensors]


def _times(built: Built, spec: Inputs) -> tuple[float, float]:
    """Medians of recording and of the plain forward on meta, measured in turn; the latter 0.0 where it does not run."""
    arguments = on_meta(inputs_at(spec), built.shadows)
    traces, plains = list[float](), list[float]()
    for _ in range(REPEATS):
        built.shadows.results.clear()
        traces.append(_seconds(_session(built, spec).record))
        try:
            plains.append(_seconds(lambda: _plain(built.model, arguments)))
        except Exception:  # noqa: BLE001 - what meta alone cannot run is why there is a recorder
            return statistics.median(traces), 0.0
    return statistics.median(traces), statistics.median(plains)


def _plain(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    args, kwargs = call_arguments(model, arguments)
    with torch.device("meta"), torch.no_grad():
        model(*args, **kwargs)


def _seconds(run: Callable[[], Any]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started
