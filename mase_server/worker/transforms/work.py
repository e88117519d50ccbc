"""The methods that run in forks, and the conversion of their errors to answers."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import selectors
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mase_server import system
from mase_server.ops.paths import named_parameters
from mase_server.protocol.answers.models import ArrayPage, ArrayPart, ParameterStatistics, ValueStatistics
from mase_server.protocol.records import EmissionRecord, MissingHardware, Operation, TransformRecord
from mase_server.protocol.snapshot import CHUNK_ROWS, TransformAssembler
from mase_server.suggestions import suggest
from mase_server.tracing.models.real import Real
from mase_server.tracing.recording.rungs import OnCpu
from mase_server.worker.traced import Live
from mase_server.worker.transforms import runs
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.compiled import send_compiled
from mase_server.worker.transforms.device_costs import send_calibration, send_run_costs
from mase_server.worker.transforms.forks import Fork, Send, make_sender
from mase_server.worker.transforms.pipeline import Applied, Pipeline
from mase_server.worker.transforms.runs import Subject, answer_on_meta, raise_stopped, run_steps, useful_threads

# The forms in which a model's graph is written: a checkpoint of the real model, its weights as bytes, a drawing.


def write_checkpoint(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Write `{name}.pt` and `{name}.mz` of the model with its weights, after its steps: {"files", "weights"}."""
    if real is None:
        return answer_on_meta(Subject.of(live, ask.model), ask, send)
    applied = _apply_steps(live, ask, real, send)
    try:
        applied.graph.export(ask.name)
    except ValueError as error:
        raise AskError(str(error), "pass") from error
    value = {"files": [f"{ask.name}.pt", f"{ask.name}.mz"], "weights": applied.weights or real.how}
    return send({"value": value})


def send_weights(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """A page of the parameters and buffers after the steps: `read_array_page`, with their source as "weights"."""
    if real is None:
        return answer_on_meta(Subject.of(live, ask.model), ask, send)
    applied = _apply_steps(live, ask, real, send)
    try:
        page = read_array_page(applied.graph.model, ask.names, ask.start, ask.count)
    except ValueError as error:
        raise AskError(str(error)) from error
    return send({"value": {**page, "weights": applied.weights or real.how}})


def send_weight_statistics(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Statistics of the parameters of a module, or of one parameter, after the steps. name: of either."""
    if real is None:
        return answer_on_meta(Subject.of(live, ask.model), ask, send)
    applied = _apply_steps(live, ask, real, send)
    traced = live.traced[live.index(ask.model)].found.model
    whole = applied.weights or real.given.issuperset(name for name, _ in named_parameters(traced))
    try:
        parameters, total = describe_parameters(applied.graph.model, ask.name, None if whole else real.given)
    except ValueError as error:
        raise AskError(str(error)) from error
    return send({"value": {"parameters": parameters, "total": total, "weights": applied.weights or real.how}})


def _apply_steps(live: Live, ask: Ask, real: Real, send: Send) -> Applied:
    subject = Subject.of(live, ask.model, real)
    torch.set_num_threads(useful_threads(real.model))
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=True)
    raise_stopped(applied.stopped)
    return applied


def send_drawing(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """The graph as SVG, after its steps or, if asked for, without any: {"text"}. name: selects the colours of the
    boxes."""
    from mase_server.ir.draw import graph_svg

    if importlib.util.find_spec("igraph") is None:
        raise AskError("drawing needs igraph in the interpreter that runs the model: install it there", "pass")
    subject = Subject.of(live, ask.model, real)
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=real is not None)
    if real is None and applied.stopped is None and applied.rest:
        return answer_on_meta(subject, ask, send)
    raise_stopped(applied.stopped)
    send({"value": {"text": graph_svg(applied.graph, "format" if ask.name == "format" else "family")}})


# Parameters and buffers as bytes, page by page: the requested arrays form one sequence, and a page is a part of it.


def read_array_page(model: nn.Module, names: Sequence[str], start: int, count: int) -> ArrayPage:
    """{"arrays", "total", "next"}: `count` bytes of the concatenated arrays, from `start` on.

    arrays: {"name", "dtype" as torch calls it, "shape", "size" in bytes, "offset" in the array, "data"} of each
    array with bytes in that range; all of them, without data, if `count` is 0.  names: the arrays in order; () for
    all.  total: bytes.  next: the start of the rest, or None.  ValueError for an unknown name, and for a tensor that
    is no plain array.
    """
    arrays: list[ArrayPart] = []
    begin = 0
    for name, tensor in _iterate_chosen(dict(_iterate_named_tensors(model)), names):
        size = tensor.numel() * tensor.element_size()
        first, last = max(start, begin), min(start + count, begin + size)
        if count == 0 or first < last or (size == 0 and start <= begin <= start + count):
            data = _read_tensor_bytes(name, tensor, first - begin, last - begin)
            arrays.append({
                "name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                "size": size, "offset": max(0, first - begin) if data else 0, "data": data,
            })  # fmt: skip
        begin += size
    return {"arrays": arrays, "total": begin, "next": start + count if count and start + count < begin else None}


def _iterate_named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _iterate_chosen(known: dict[str, torch.Tensor], names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for name in names or known:
        if name not in known:
            raise ValueError(f"the model has no parameter or buffer {name!r}{suggest(name, known, 'it has')}")
        yield name, known[name]


def _read_tensor_bytes(name: str, tensor: torch.Tensor, first: int, last: int) -> bytes:
    """Some of the bytes of a tensor, row-major, in this machine's order of bytes, which is little-endian."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(f"{name} is of layout {tensor.layout} and type {tensor.dtype}, which is no plain array")
    plain = tensor.detach().cpu().contiguous()
    return ctypes.string_at(plain.data_ptr() + first, last - first) if first < last else b""


# Statistics of the weights of a model whose values a file gave: mean, deviation, range, zeros and a histogram.

BINS = 48
#: Parameters in one answer.
_MOST = 100
#: Elements that are converted to doubles at once.
_AT_ONCE = 1 << 22
_UNKNOWN: ValueStatistics = {
    "mean": None, "std": None, "min": None, "max": None, "zeros": None, "not_finite": None, "bins": [],
}  # fmt: skip


def describe_parameters(model: nn.Module, path: str, given: Set[str] | None) -> tuple[list[ParameterStatistics], int]:
    """The statistics of the parameter `path`, or of those of the module `path`, and how many there are.

    given: the names of those whose values a file gave, None for all; of others only the shape is told.  ValueError if
    there is no such parameter.
    """
    known = dict(model.named_parameters(remove_duplicate=False))
    names = [name for name in known if not path or name == path or name.startswith(f"{path}.")]
    if not names:
        modules = dict.fromkeys(name.rpartition(".")[0] for name in known)
        raise ValueError(f"the model has no parameters in {path!r}{suggest(path, [*modules, *known], 'it has')}")
    return [
        _describe_parameter(name, known[name], given is not None and name not in given) for name in names[:_MOST]
    ], len(names)


def _describe_parameter(name: str, tensor: torch.Tensor, random: bool) -> ParameterStatistics:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_complex()
    values = _summarize_values(tensor.detach()) if plain and not random else _UNKNOWN
    return {
        "name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
        "count": tensor.numel(), "random": random, **values,
    }  # fmt: skip


def _summarize_values(tensor: torch.Tensor) -> ValueStatistics:
    """The statistics of the finite values, computed in double precision piece by piece."""
    count = zeros = 0
    total, low, high = 0.0, float("inf"), float("-inf")
    for values in _iterate_finite_values(tensor):
        count, zeros = count + values.numel(), zeros + int((values == 0).sum())
        total, low, high = total + float(values.sum()), min(low, float(values.min())), max(high, float(values.max()))
    if not count:
        return {**_UNKNOWN, "not_finite": tensor.numel()}
    mean, squares, bins = total / count, 0.0, torch.zeros(BINS, dtype=torch.float64)
    for values in _iterate_finite_values(tensor):
        squares += float(((values - mean) ** 2).sum())
        bins += torch.histc(values, BINS, low, high)
    deviation = (squares / max(1, count - 1)) ** 0.5
    return {
        "not_finite": tensor.numel() - count, "mean": mean, "std": deviation, "min": low, "max": high,
        "zeros": zeros / tensor.numel(), "bins": [int(each) for each in bins] if low < high else [count],
    }  # fmt: skip


def _iterate_finite_values(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        values = flat[start : start + _AT_ONCE].double()
        finite = values[values.isfinite()]
        if finite.numel():
            yield finite


# The hardware of a model: its pipeline runs on the real one, then its Verilog is made.


def send_hardware(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a map of `building.EMISSION_KEYS`; if there are many operations, the first ones go ahead in events.

    On meta, only check whether there is enough memory for weights.
    """
    subject = Subject.of(live, ask.model, real)
    if real is None:
        return answer_on_meta(subject, ask, send)
    torch.set_num_threads(useful_threads(real.model))
    applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
    raise_stopped(applied.stopped)
    _send_operations(send, add_rows(_build_hardware(subject, applied, ask, send), live, subject.index, applied))


def _send_operations(send: Send, told: EmissionRecord) -> None:
    """Send the answer; operations beyond the last chunk go ahead of it, so that no large frame blocks other
    messages."""
    operations = told["operations"]
    last = max(0, (len(operations) - 1) // CHUNK_ROWS * CHUNK_ROWS)
    for start in range(0, last, CHUNK_ROWS):
        send({"event": "operations", "operations": operations[start : start + CHUNK_ROWS]})
    send({"value": told | {"operations": operations[last:]}})


def _build_hardware(subject: Subject, applied: Applied, ask: Ask, send: Send) -> EmissionRecord:
    # Imported here, because most children never make hardware.
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


def add_rows(told: EmissionRecord, live: Live, index: int, applied: Applied) -> EmissionRecord:
    """Add to the hardware report the payload rows of each operation's nodes, and of nodes without an operation."""
    rows = dict(_iterate_node_rows(live, index, applied))
    operations: list[Operation] = [
        {**each, "rows": sorted({rows[name] for name in each["nodes"] if name in rows})} for each in told["operations"]
    ]
    unsupported: list[MissingHardware] = [
        {**each, "row": _find_first_row(rows, (each["node"], *each["nodes"]))} for each in told["unsupported"]
    ]
    return {**told, "operations": operations, "unsupported": unsupported}


def _find_first_row(rows: Mapping[str, int], names: Iterable[str]) -> int:
    """The row of the first node that has one, -1 if none has."""
    return next((rows[name] for name in names if name in rows), -1)


def _iterate_node_rows(live: Live, index: int, applied: Applied) -> Iterator[tuple[str, int]]:
    """The name of each recorded node, and its row."""
    for node, row in zip(applied.recording.builder.nodes, live.sources[index].nodes, strict=True):
        if node is not None and row >= 0:
            yield node.name, row


_Method = Callable[[Live, Ask, Real | None, Send], None]

#: Method of the wire -> the function for a fork; real: the model with values, None on meta.
_WORK: dict[str, _Method] = {
    "passes": lambda live, ask, real, send: runs.send_known_passes(live, send),
    "transform": lambda live, ask, real, send: (
        runs.send_formats(live, ask, send) if real is None else runs.send_measured(live, ask, real, send)
    ),
    "code": runs.send_code,
    "verilog": send_hardware,
    "export": write_checkpoint,
    "draw": send_drawing,
    "compiled": send_compiled,
    "run_costs": send_run_costs,
    "calibrate": send_calibration,
    "weights": send_weights,
    "weight_statistics": send_weight_statistics,
}
METHODS = frozenset(_WORK)


def perform_method(method: str, live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """In a fork: run a method, with the workspace's paths and imports; send its errors as its answer."""
    request = live.request
    with answer_errors(send), nullcontext() if real is None else OnCpu():
        os.chdir(request.folder)
        sys.path[:0] = [folder for folder in (str(Path(request.path).parent), request.folder) if folder not in sys.path]
        _WORK[method](live, ask, real, send)


@contextmanager
def answer_errors(send: Send) -> Iterator[None]:
    """Send an error that is raised inside as the answer of the call."""
    try:
        yield
    except AskError as error:
        send({"error": str(error), "kind": error.kind})
    except Exception as error:  # noqa: BLE001 - the call's border: its failure is its answer
        traceback.print_exc()
        send({"error": f"{type(error).__name__}: {error}", "kind": "internal"})


# The pipelines of a file's models, applied again when the file is traced: formats only, without errors.

#: Seconds that a payload waits for its transforms; a client that needs later ones asks again.
SECONDS = 10.0


def replay_pipelines(live: Live, pipelines: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[TransformRecord]:
    """The overlay of each model's pipeline, without errors; pipelines that fail or take too long are left out."""
    if not system.HAS_FORK:
        return []
    forks = [_fork_replay(live, title, steps) for title, steps in pipelines.items() if steps]
    assemblers = {fork: TransformAssembler() for fork in forks}
    found: list[TransformRecord] = []
    end = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        for fork in forks:
            selector.register(fork, selectors.EVENT_READ, fork)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for fork in [key.data for key, _ in selector.select(left)]:
                frames = [message["frame"] for message in fork.messages() if message.get("event") == "transform"]
                found += filter(None, map(assemblers[fork].add, frames))
                if fork.ended:
                    selector.unregister(fork)
    for fork in forks:
        fork.reap()
    return sorted(found, key=lambda transform: int(transform["model"]))


def _fork_replay(live: Live, title: str, steps: Sequence[Mapping[str, Any]]) -> Fork:
    # Errors are measured in a separate call, which knows how much memory is available.
    ask = Ask.of({"model": title, "steps": steps, "measure": True, "memory": 1 << 62})

    def work(sock: socket.socket) -> None:
        perform_method("transform", live, ask, None, make_sender(sock))

    return Fork.of(work)
