"""The costs of a traced model's run, recorded in a fork of the trace child: `ir/run_costs.py` on its inputs.

And how fast the processors of this machine run each kind of operator, which is measured once.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import quantiles
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from mase_server import system
from mase_server.ir.graph import MaseGraph
from mase_server.ir.parallel_costs import parse_parallel
from mase_server.ir.run_costs import Plan, Run, find_optimizer, write_costs
from mase_server.passes.sharding.autosharding import autosharding_analysis_pass
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing.importer import restore_plain_code
from mase_server.tracing.inputs.spec import LARGEST_FILLED, inputs_at
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.models.real import Real
from mase_server.tracing.recording.state import SEED
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.compiled import list_libraries
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.runs import Subject, answer_on_meta, list_namespaces

#: Bytes and operations a second for which tensors are split, where a device has no figures.
_LINK, _RATE = 100e9, 100e12
#: Each is run for so many seconds, and at least so often; what disturbs them takes time from the slower ones.
_SECONDS, _TIMES = 0.04, 5
#: The sizes at which each kind of operator is measured.
_SIZES = 5


def send_run_costs(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `RunCosts` of the model as it is written, without passes; with values only if fake tensors do not do."""
    subject = Subject.of(live, ask.model, real)
    train = str(ask.run.get("train") or "")
    if train == "auto":
        train = find_optimizer(live.request.path) or "adamw"
    try:
        rates = {name: ask.run.get(name) for name in ("link", "rate")}
        plan = Plan(**{name: value for name, value in ask.run.items() if name not in rates} | {"train": train})
    except ValueError as error:
        raise AskError(str(error)) from error
    model = subject.model
    restore_plain_code(live.request.path, list_namespaces(model))
    probed = subject.traced.probed
    sizes = {} if probed is None else probed.symbols
    known = set(sys.modules)
    try:
        with guard_program(live.request.scratch):
            told = write_costs(
                Run(
                    model, partial(_feed, subject), plan, live.request.folder, sizes, values=real is not None,
                    sharding=_split_tensors(subject, plan, rates) if "tp" in plan.parallel else None,
                )
            )  # fmt: skip
    except Exception as error:
        if real is None:
            return answer_on_meta(subject, ask, send)  # its path depends on values, or a kernel knows no fake tensors
        if isinstance(error, ValueError | ImportError | TimeoutError):
            raise AskError(str(error)) from error
        raise
    send({"event": "imported", "modules": list(list_libraries(known, live.request.folder))})
    return send({"value": told})


def _split_tensors(subject: Subject, plan: Plan, rates: Mapping[str, Any]) -> tuple[MaseGraph, Mapping[str, Any]]:
    graph = subject.graph()
    mesh = (1, parse_parallel(plan.parallel)["tp"])
    given = {"mesh_shape": mesh, "intra_node_bandwidth": rates["link"] or _LINK, "flops": rates["rate"] or _RATE}
    return graph, autosharding_analysis_pass(graph, given)[1]


def _feed(subject: Subject, sizes: Mapping[str, int] | None) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    given = subject.example.arguments
    if sizes is not None:
        largest = None if subject.real is not None else LARGEST_FILLED
        given = inputs_at(subject.traced.session.inputs, sizes, seed=SEED, largest=largest)
    return call_arguments(subject.model, dict(given))


# The processors of this machine.


def send_calibration(live: Live, ask: Ask, real: Any, send: Send) -> None:
    """Send what `measure_processor` finds; only the key if it is `name`, which is known."""
    key = _make_key()
    send({"event": "progress", "message": "measuring this machine", "fraction": None})
    send({"value": {"key": key} if ask.name == key else measure_processor()})


def _make_key() -> str:
    return f"3 {platform.processor() or platform.machine()} {system.count_cores()} {torch.__version__}"


def measure_processor() -> dict[str, Any]:
    """How long each kind of operator takes at several sizes, as points (work, seconds), and a layer without work."""
    cores = system.count_cores()
    torch.set_num_threads(cores)
    # What Python and torch need for a layer that computes next to nothing.
    small = nn.Sequential(*(each for _ in range(20) for each in (nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))))
    curves: dict[str, list[tuple[float, float]]] = {}
    with torch.no_grad():
        for size in range(_SIZES):
            # In turn, as in a model: alone, each would find its data and its code in the nearest cache.
            calls = list(_list_benchmarks(size))
            for (kind, work, _), seconds in zip(calls, _time([run for _, _, run in calls]), strict=True):
                curves.setdefault(kind, []).append((work, seconds))
        (launch,) = _time([partial(small, torch.randn(4, 8))])
    return {
        "key": _make_key(),
        "title": f"the {cores} processors of this machine",
        "memory": system.physical_bytes(),
        "launch": launch / len(small),
        "curves": {kind: _make_monotone(points) for kind, points in curves.items()},
    }


def _time(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The seconds that each call takes, one after the other, once all are warm: those of the lower quartile."""
    seconds: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + _SECONDS * len(calls)
    while len(seconds[0]) <= _TIMES or time.perf_counter() < end:
        for call, spent in zip(calls, seconds, strict=True):
            started = time.perf_counter()
            call()
            spent.append(time.perf_counter() - started)
    return [quantiles(spent[1:], n=4)[0] for spent in seconds]


def _make_monotone(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """More work never takes less time, whatever disturbed a benchmark."""
    least = float("inf")
    for place in range(len(points) - 1, -1, -1):
        least = min(least, points[place][1])
        points[place] = points[place][0], least
    return points


def _list_benchmarks(place: int) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Kind, work (operations, or bytes read and written), and the call; of the sizes at a place."""
    size = (16, 64, 192, 512, 1024)[place]
    left, right, bias = torch.randn(size, size), torch.randn(size, size), torch.randn(size)
    yield "product", 2.0 * size**3, partial(F.linear, left, right, bias)
    size, channels = ((8, 8), (16, 32), (32, 64), (56, 64), (28, 256))[place]
    image, kernel = torch.randn(2, channels, size, size), torch.randn(channels, channels, 3, 3)
    yield "convolution", 36.0 * channels**2 * size**2, partial(F.conv2d, image, kernel, padding=1)
    length, heads = ((16, 2), (64, 4), (128, 8), (256, 8), (512, 12))[place]
    query = torch.randn(2, heads, length, 64)
    yield "attention", 8.0 * heads * length**2 * 64, partial(F.scaled_dot_product_attention, query, query, query)
    rows = (4, 64, 1024, 8192, 32768)[place]
    values, scale = torch.randn(rows, 256), torch.ones(256)
    parts = values.view(4, rows // 4, 8, 32).transpose(1, 2)
    yield "copy", 3.0 * values.nbytes, partial(torch.add, values, values)
    yield "layout", 2.0 * values.nbytes, parts.contiguous
    yield "function", 2.0 * values.nbytes, partial(F.gelu, values)
    yield "row", 2.0 * values.nbytes, partial(F.layer_norm, values, (256,), scale, scale)
