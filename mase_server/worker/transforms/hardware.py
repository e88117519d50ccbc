"""Verilog of a model: its pipeline on the real one, then what hardware comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from mase_server.inputs.making.real import Real
from mase_server.snapshot import CHUNK_ROWS
from mase_server.worker.live import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Applied, Pipeline
from mase_server.worker.transforms.room import refusal
from mase_server.worker.transforms.runs import Subject, raise_stopped, run_steps, useful_threads


def emission(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """The answer is a map of `building.EMISSION_KEYS`, the first of many operations in events before it.

    On meta it is only seen whether there is room for weights.
    """
    subject = Subject.of(live, ask.model, real)
    if real is None:
        if problem := refusal(subject.traced, ask.memory):
            raise AskError(problem, "limit")
        send({"value": {"then": "measure"}})
        return
    torch.set_num_threads(useful_threads(real.model))
    applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
    raise_stopped(applied.stopped)
    _tell(send, placed(_built(subject, applied, ask, send), live, subject.index, applied))


def _tell(send: Send, told: dict[str, Any]) -> None:
    """The answer; all but the last operations go before it, for whom one frame must not hold up for long."""
    operations = told["operations"]
    last = max(0, (len(operations) - 1) // CHUNK_ROWS * CHUNK_ROWS)
    for start in range(0, last, CHUNK_ROWS):
        send({"event": "operations", "operations": operations[start : start + CHUNK_ROWS]})
    send({"value": told | {"operations": operations[last:]}})


def _built(subject: Subject, applied: Applied, ask: Ask, send: Send) -> dict[str, Any]:
    # Emission is of no concern to a child that nobody asks for it.
    from mase_server.passes.verilog.told import build

    wanted, whose = ask.hardware, applied.weights or ("" if subject.real is None else subject.real.how)

    def tell(stage: str) -> None:
        send({"event": "progress", "message": stage, "fraction": None})

    try:
        told = build(
            applied.graph, wanted.build, subject.traced.name,
            folder=wanted.folder, vectors=wanted.vectors, inputs=wanted.inputs, weights=whose, tell=tell,
        )  # fmt: skip
    except ValueError as error:
        raise AskError(str(error)) from error
    except OSError as error:
        raise AskError(error.strerror or str(error)) from error
    return {**told, "steps": [*map(str, ask.steps), *told["steps"]]}


def placed(told: Mapping[str, Any], live: Live, index: int, applied: Applied) -> dict[str, Any]:
    """The report on the hardware, with the payload's rows of the nodes of each operation, and of nodes without any."""
    rows = dict(_rows(live, index, applied))
    operations = [
        {**each, "rows": sorted({rows[name] for name in each["nodes"] if name in rows})} for each in told["operations"]
    ]
    unsupported = [
        {**each, "row": _first(rows, (each["node"], *each.get("nodes", ())))} for each in told["unsupported"]
    ]
    return {**told, "operations": operations, "unsupported": unsupported}


def _first(rows: Mapping[str, int], names: Iterable[str]) -> int:
    """The row of the first node that has one, -1 where none has."""
    return next((rows[name] for name in names if name in rows), -1)


def _rows(live: Live, index: int, applied: Applied) -> Iterator[tuple[str, int]]:
    """The name of each recorded node, and its row."""
    for node, row in zip(applied.recording.builder.nodes, live.sources[index].nodes, strict=True):
        if node is not None and row >= 0:
            yield node.name, row
