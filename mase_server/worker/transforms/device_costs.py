"""What a run of a traced model costs, recorded in a fork of the trace child: `ir/run_costs.py` on its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mase_server.ir.run_costs import Plan, Run, find_optimizer, write_costs
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing.importer import restore_plain_code
from mase_server.tracing.inputs.spec import LARGEST_FILLED, inputs_at
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.models.real import SEED, Real
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.runs import Subject, answer_on_meta, list_namespaces


def send_run_costs(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `RunCosts` of the model as it is written, without passes; with values only if fake tensors do not do."""
    subject = Subject.of(live, ask.model, real)
    train = str(ask.run.get("train") or "")
    if train == "auto":
        train = find_optimizer(live.request.path) or "adamw"
    try:
        plan = Plan(train, ask.run.get("dtype", ""), bool(ask.run.get("gpu")), int(ask.run.get("memory") or 0))
    except ValueError as error:
        raise AskError(str(error)) from error
    model = subject.model
    restore_plain_code(live.request.path, list_namespaces(model))
    probed = subject.traced.probed
    sizes = {} if probed is None else probed.symbols
    try:
        with guard_program(live.request.scratch):
            told = write_costs(
                Run(model, partial(_feed, subject), plan, live.request.folder, sizes, values=real is not None)
            )
    except Exception as error:
        if real is None:
            return answer_on_meta(subject, ask, send)  # its path depends on values, or a kernel knows no fake tensors
        if isinstance(error, ValueError):
            raise AskError(str(error)) from error
        raise
    return send({"value": told})


def _feed(subject: Subject, sizes: Mapping[str, int] | None) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    given = subject.example.arguments
    if sizes is not None:
        largest = None if subject.real is not None else LARGEST_FILLED
        given = inputs_at(subject.traced.session.inputs, sizes, seed=SEED, largest=largest)
    return call_arguments(subject.model, dict(given))
