"""Facts about every node's result: types of tensors and values of numbers, from a recording or a run of the graph.

A fact is a `TensorType`, a number or other simple value itself, a tuple or dict of facts, or `Python` with the name
of a type for any other object.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from mase_server.formats import with_parameters
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ops.types import OpCall, TensorType
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.values import DictOf, Python, TupleOf, fields_of, tensor_type

Facts = dict[fx.Node, Any]

SIMPLE = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
#: The functions that the builder adds for sizes of symbols; computed here on numbers.
ARITHMETIC = frozenset({operator.add, operator.mul, operator.floordiv, operator.sub})


@dataclass(frozen=True, slots=True)
class Produced(TensorType):
    """A tensor among a call's arguments, with the node that made it and its path in that node's result."""

    node: fx.Node | None = field(default=None, compare=False)
    path: tuple[Any, ...] = field(default=(), compare=False)


def fact_of(value: Any, depth: int = 0) -> Any:
    """The fact of a real or meta value. Call it only while no torch function mode is active."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, SIMPLE):
        return value
    if depth < 6:
        if isinstance(value, tuple | list):
            return tuple(fact_of(item, depth + 1) for item in value)
        if (fields := fields_of(value)) is not None:
            return {str(key): fact_of(item, depth + 1) for key, item in fields.items()}
    return Python(type(value).__name__)


def fact_from_recorded(value: Any) -> Any:
    """A recorded description as a fact."""
    if isinstance(value, TupleOf):
        return tuple(fact_from_recorded(item) for item in value.items)
    if isinstance(value, DictOf):
        return {key: fact_from_recorded(item) for key, item in value.items}
    return None if value == Python("None") else value


def recorded_facts(graph: fx.Graph, run: Run, model: nn.Module) -> Facts:
    """The facts of a graph that was built from a recording and not changed since."""
    facts: Facts = {}
    for node in graph.nodes:
        call = node.meta.get("call")
        facts[node] = (
            fact_from_recorded(run.calls[call].value) if call is not None else _compute_added_fact(node, facts, model)
        )
    return facts


def _compute_added_fact(node: fx.Node, facts: Facts, model: nn.Module) -> Any:
    """The fact of a node that building added to the recorded calls: a size, arithmetic on sizes, or a constant."""
    if node.op == "get_attr":
        return fact_of(attribute(model, str(node.target)))
    args = map_nodes(node.args, facts.__getitem__)
    if node.target == "size":
        return args[0].shape[args[1]]
    return node.target(*args) if callable(node.target) and node.target in ARITHMETIC else Python("unknown")


def call_of(node: fx.Node, facts: Facts, model: nn.Module) -> OpCall:
    """The call that a node makes, with the types of its tensors in place of nodes.

    A layer that runs with parameters other than its own counts as a call of that layer.
    """
    module = attribute(model, str(node.target)) if node.op == "call_module" else None
    target = module if module is not None else underlying_callable(node.target)

    def known(source: fx.Node) -> Any:
        return mark_producer(facts[source], source)

    kind, args = node.op, node.args
    if node.target is with_parameters:
        layer, _, *rest = args
        assert isinstance(layer, fx.Node)
        kind, args = "call_module", tuple(rest)
        target = module = attribute(model, str(layer.target))
    return OpCall(kind, target, map_nodes(args, known), map_nodes(node.kwargs, known), facts.get(node), module)


def map_nodes(value: Any, change: Callable[[fx.Node], Any]) -> Any:
    """A node's arguments with `change` applied to its nodes; containers become plain tuples, lists and dicts."""
    if isinstance(value, fx.Node):
        return change(value)
    if isinstance(value, tuple):
        return tuple([map_nodes(item, change) for item in value])
    if isinstance(value, list):
        return [map_nodes(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_nodes(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nodes(item, change) for item in (value.start, value.stop, value.step)))
    return value


def mark_producer(fact: Any, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
    """A fact whose tensors carry the node and path that they come from."""
    if isinstance(fact, TensorType):
        return Produced(fact.dtype, fact.shape, node, path)
    if isinstance(fact, tuple):
        return tuple(mark_producer(item, node, (*path, index)) for index, item in enumerate(fact))
    if isinstance(fact, dict):
        return {key: mark_producer(item, node, (*path, key)) for key, item in fact.items()}
    return fact


def fact_leaves(fact: Any) -> Iterator[Any]:
    """Yield the tensors and numbers of a fact, in order, without None and objects."""
    if isinstance(fact, tuple | list):
        for item in fact:
            yield from fact_leaves(item)
    elif isinstance(fact, dict):
        for item in fact.values():
            yield from fact_leaves(item)
    elif isinstance(fact, TensorType | bool | int | float | complex):
        yield fact
