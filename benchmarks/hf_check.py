"""One model type of transformers: built, inputs found, recorded, run again from its graph, and timed."""

from __future__ import annotations

import copy
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from hf_types import CUTS, Built, Cut, NotBuilt, build
from torch import nn

from mase_server.ir.build import GraphBuilder, build_graph_module
from mase_server.ir.feeding import feed_placeholders, flatten_arguments
from mase_server.ir.session import Session
from mase_server.tracing.execution.running import Trials
from mase_server.tracing.inputs.library.huggingface import library_choices
from mase_server.tracing.inputs.searching.search import MAX_ATTEMPTS, search_inputs
from mase_server.tracing.inputs.spec import Inputs, inputs_at, on_meta
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import call_arguments, plain_hooks
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.rungs import needs_values
from mase_server.tracing.recording.shadow import MetaMode
from mase_server.tracing.recording.state import preserve_state
from mase_server.tracing.recording.values import Rebuild

#: How often each of two times is measured, alternately.
REPEATS = 3
#: Inputs that are tried on what has been cut otherwise.
ATTEMPTS = 16
#: Models with more parameters are not run for real.
MOST_PARAMETERS = 1_200_000_000

#: How long what a model makes up is may depend on random numbers.
SEED = 1

Types = list[tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class Outcome:
    """How far one type came, and why not further.

    layers: what its depth was cut to, 0 where it was not.  narrow: was its width cut too?  mended: were its
    defaults changed?  eager: what plain PyTorch
    raises with the same inputs.  rung: meta or real.  trace, plain: median seconds; plain is
    0.0 where meta alone cannot run the forward.  auto: has it a class among transformers' Auto classes?
    """

    name: str
    model: str = ""
    not_built: str = ""
    layers: int = 0
    narrow: bool = False
    mended: bool = False
    auto: bool = True
    inputs: str = ""
    traced: bool = False
    rung: str = ""
    same: bool = False
    nodes: int = 0
    trace: float = 0.0
    plain: float = 0.0
    why: str = ""
    eager: str = ""
    needs_values: bool = False
    where: list[str] = field(default_factory=list)


def check(name: str) -> dict[str, Any]:
    """The outcome of one type as a map; nothing is raised."""
    first: Outcome | None = None
    needs_values = False
    for cut in CUTS:
        if cut.narrow and not needs_values:
            continue
        outcome = _checked(name, cut)
        if outcome.same or (outcome.not_built and first is None):
            return asdict(outcome)
        first = first or outcome
        needs_values = needs_values or outcome.needs_values
    return asdict(first or Outcome(name))


def _checked(name: str, cut: Cut) -> Outcome:
    outcome = Outcome(name)
    try:
        built = build(name, cut)
        outcome.model, outcome.auto = type(built.model).__name__, built.auto
        outcome.layers = cut.layers if built.cut else 0
        outcome.narrow, outcome.mended = cut.narrow, cut.mended
        _trace(outcome, built)
    except NotBuilt as error:
        outcome.not_built = str(error)
    except BaseException as error:  # noqa: BLE001 - one type's fault is a row of the table
        outcome.why = outcome.why or said(error)
        outcome.needs_values = needs_values(error)
        outcome.where = [f"{each.filename}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)[-6:]]
    return outcome


def _in_eager(model: nn.Module) -> str:
    """What eager PyTorch says of the likeliest inputs; empty where it succeeds, or the model is too big to ask."""
    choices = library_choices(model)
    if not choices or sum(each.numel() for each in model.parameters()) > MOST_PARAMETERS:
        return ""
    try:
        real = copy.deepcopy(model).to_empty(device="cpu")
        args, kwargs = call_arguments(real, inputs_at(Inputs(choices[-1])))
        with torch.no_grad():
            real(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the library's own code; its error is the answer
        # Without weights an index may be anything.
        return (
            ""
            if needs_values(error) or isinstance(error, IndexError) or "alloc" in str(error) or "device" in str(error)
            else said(error)
        )
    return ""


def said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _trace(outcome: Outcome, built: Built) -> None:
    model, shadows = built.model, built.shadows
    hooks = replace(plain_hooks(shadows), attempt=Trials(shadows).attempt)
    with preserve_state(model, shadows):
        searched = search_inputs(
            model, hooks, ATTEMPTS if outcome.layers != CUTS[0].layers or outcome.mended else MAX_ATTEMPTS
        )
    if searched.spec is None:
        outcome.inputs, outcome.why = searched.example, searched.how
        outcome.eager = _in_eager(model)
        if searched.errors:
            raise searched.errors[0]
        return
    outcome.inputs = format_inputs(searched.spec)
    session = _session(built, searched.spec)
    torch.manual_seed(SEED)
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
    module = build_graph_module(GraphBuilder(run).build(), model, run.constants)
    mode = MetaMode(session.shadows)
    try:
        with torch.no_grad(), preserve_state(model, session.shadows):
            args, kwargs = call_arguments(model, arguments)
            theirs = _under(mode, session.rung, lambda: model(*args, **kwargs))
            values = feed_placeholders(module.graph, flatten_arguments(arguments, model))
            ours = _under(mode, session.rung, lambda: module(*values))
    except Exception as error:
        outcome.why = f"run again: {said(error)}"
        raise
    outcome.same = ours == theirs and len(theirs) > 0
    if not outcome.same:
        outcome.why = f"run again: {ours[:6]} instead of {theirs[:6]}"


def _under(mode: MetaMode, rung: str, run: Callable[[], Any]) -> Types:
    torch.manual_seed(SEED)
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
