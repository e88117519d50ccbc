"""Batches for a graph, each one checked against its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from mase_server.ir.feeding import feed, flattened
from mase_server.ir.graph import MaseGraph
from mase_server.passes.data.examples import alike
from mase_server.passes.data.files import read
from mase_server.passes.data.functions import batches_of
from mase_server.tracing.values import fields_of, holds_tensor

#: Batches that are taken where nobody says how many.
MOST = 32

Batch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """batches: forward's arguments by name.  words: where they are from, e.g. "4 batches of calibration.pt"."""

    batches: tuple[Batch, ...]
    words: str

    def feeds(self, graph: MaseGraph) -> Iterator[list[Any]]:
        """What the graph's placeholders get, batch by batch."""
        for batch in self.batches:
            yield feed(graph.fx_graph, flattened(batch, graph.root))


def load(graph: MaseGraph, data: Any = None, samples: int | None = None) -> Data:
    """Batches to run a graph on.

    data: a path of tensors, "module:function" or "file.py:function", a function, anything that gives batches, or one
    batch; None for `graph.data`, else the example inputs that the graph was made with, or random ones where nobody
    gave any.  A batch is a map by the names of forward's parameters, a tensor, or a tuple of which the first items are
    taken.  Files hold a batch, a list of them, or many rows, which are cut into batches of the example's size. Inputs
    that a batch does not have are the example's.
    samples: batches at most; None for 32, and for 1 without data.
    ValueError where there is none, or where one does not fit the graph.
    """
    data = graph.data or None if data is None else data
    if data is None or data == "random":
        return _examples(graph, samples or 1)
    named = isinstance(data, str)
    given = raw_batches(data)
    fitting = (batch for each in given for batch in _fitted(graph, each))
    batches = tuple(islice(fitting, samples or MOST))
    if not batches:
        raise ValueError(f"data: {data if named else type(data).__name__} has no batch")
    of = f" of {data}" if named else ""
    return Data(batches, f"{len(batches)} batch{'es' if len(batches) > 1 else ''}{of}")


def raw_batches(data: Any) -> Iterable[Any]:
    """The batches that `data` stands for, as they are, targets and all."""
    return _named(data) if isinstance(data, str) else batches_of(data)


def _named(text: str) -> Iterable[Any]:
    """What a text stands for: files have no colon but in front of a function's name."""
    place, colon, function = text.rpartition(":")
    return batches_of(text) if colon and function.isidentifier() and place else read(text)


def _examples(graph: MaseGraph, count: int) -> Data:
    first = dict(graph.arguments)
    others = [alike(first, seed) for seed in range(1, count)]
    if any(holds_tensor(value) for value in graph.given.values()):
        more = f" and {count - 1} random like them" if others else ""
        words = f"the example inputs{more}"
    else:
        words = f"{count} batches of random inputs" if others else "random inputs"
    return Data((first, *others), words)


def _fitted(graph: MaseGraph, batch: Any) -> Iterator[Batch]:
    """A batch by the names of the graph's inputs, cut into several where it has that many rows more."""
    yield from _cut(fitted(graph, batch), flattened(graph.arguments, graph.root))


def fitted(graph: MaseGraph, batch: Any) -> Batch:
    """A batch by the names of the graph's inputs, in their element types, all of its rows. ValueError as for `load`."""
    example = flattened(graph.arguments, graph.root)
    named = {**_constants(example), **_by_name(graph, batch, example)}
    for name, value in named.items():
        if isinstance(value, Tensor) and isinstance(example.get(name), Tensor):
            named[name] = _typed(name, value, example[name])
    return named


def _constants(example: Mapping[str, Any]) -> Batch:
    return {name: value for name, value in example.items() if not holds_tensor(value)}


def _by_name(graph: MaseGraph, batch: Any, example: Mapping[str, Any]) -> Batch:
    """Inputs by name, without what the graph has no use for, labels beside them; what a batch lacks, masks or targets,
    is as in the example."""
    inputs = [str(node.target).lstrip("*") for node in graph.fx_graph.nodes if node.op == "placeholder"]
    fields = None if isinstance(batch, Tensor | tuple | list) else fields_of(batch)
    if fields is not None:
        found = {str(name): _tensors(value) for name, value in fields.items() if str(name) in inputs}
    else:
        items = batch if isinstance(batch, tuple | list) else (batch,)
        found = {name: _tensors(value) for name, value in zip(inputs, items, strict=False)}
    missing = [name for name in inputs if name not in found and holds_tensor(example.get(name))]
    if missing and not found:
        has = ", ".join(map(str, fields)) if fields is not None else f"{len(items)} values"
        raise ValueError(f"data: a batch has {has or 'nothing'}, but no {missing[0]}, which the model takes")
    return found | {name: example[name] for name in missing}


def _tensors(value: Any) -> Any:
    """numpy's arrays as tensors."""
    return torch.from_numpy(value) if type(value).__module__ == "numpy" and hasattr(value, "dtype") else value


def _typed(name: str, value: Tensor, example: Tensor) -> Tensor:
    """In the example's element type, where both are of one kind."""
    if value.layout is not torch.strided:
        raise ValueError(f"data: {name} is of layout {value.layout}; save it dense, as tensor.to_dense() makes it")
    if value.dtype == example.dtype:
        return value
    if value.is_floating_point() != example.is_floating_point() or value.is_complex() != example.is_complex():
        raise ValueError(f"data: {name} is {value.dtype}, but the model takes {example.dtype}")
    return value.to(example.dtype)


def _cut(named: Batch, example: Mapping[str, Any]) -> Iterator[Batch]:
    given = {name: value for name, value in named.items() if value is not example.get(name)}
    rows, size = _rows(given), _rows({name: value for name, value in example.items() if name in given})
    if rows is None or size is None or rows <= size:
        yield named
        return
    for start in range(0, rows - size + 1, size):
        yield {name: _part(value, rows, start, size) for name, value in named.items()}


def _rows(named: Mapping[str, Any]) -> int | None:
    """How many rows all tensors have; None where they have not the same number."""
    counts = {len(value) for value in named.values() if isinstance(value, Tensor) and value.dim()}
    return counts.pop() if len(counts) == 1 else None


def _part(value: Any, rows: int, start: int, size: int) -> Any:
    return value[start : start + size] if isinstance(value, Tensor) and value.dim() and len(value) == rows else value
