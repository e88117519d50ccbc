"""Values of nodes, computed when the first one is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx, nn

from mase_server.ir.facts import Facts
from mase_server.ir.propagate import visit_for_real
from mase_server.ops.types import TensorType
from mase_server.tracing.calling import IN_PLACE_OPERATORS, leaves
from mase_server.tracing.values import fields_of

#: Bytes of values that are kept after a run; what is over is computed again when it is read.
KEPT_BYTES = 1 << 30


class ValueSource(Protocol):
    """Where lazily read values come from."""

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """The value of a node's result, or of the part of it at `path`."""

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """The value of a module's own parameter."""


class MetaValues:
    """Tensors on meta in place of values: nothing is computed."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """A meta tensor of the result's type; the number itself where it is one."""
        fact = self._facts[node]
        for key in path:
            fact = fact[key]
        if not isinstance(fact, TensorType):
            return fact
        return torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta")

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """A meta tensor of the parameter's type."""
        return torch.empty_like(parameter, device="meta")


Feed = Callable[[], Sequence[Any]]


class Values:
    """The results of a graph's nodes for one set of inputs. Costs nothing until the first value is read.

    One run then serves all values that together fit into KEPT_BYTES.
    """

    def __init__(self, module: fx.GraphModule, feed: Feed) -> None:
        self._module, self._feed = module, feed
        self._kept: dict[fx.Node, Any] = {}

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """The value of a node's result, or of the part of it at `path`. Raises what the graph raises."""
        value = self._kept[node] if node in self._kept else self._run(node)
        return part_of(value, path)

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """The parameter itself."""
        return parameter

    def _run(self, wanted: fx.Node) -> Any:
        budget = KEPT_BYTES
        found: list[Any] = []
        copies = any(changes_its_input(node, self._module) for node in self._module.graph.nodes)

        def visit(node: fx.Node, value: Any) -> None:
            nonlocal budget
            size = sum(tensor.nbytes for tensor in leaves(value))
            if node is not wanted and size > budget:
                return
            kept = _copied(value) if copies else value
            if node is wanted:
                found.append(kept)
            if size <= budget:
                self._kept[node] = kept
                budget -= size

        visit_for_real(self._module, self._feed(), visit)
        if not found:
            raise LookupError(f"node {wanted.name!r} is no longer in the graph: annotate the graph again")
        return found[0]


def part_of(value: Any, path: tuple[Any, ...]) -> Any:
    """What stands at `path` in nested tuples, dicts and model outputs."""
    for key in path:
        fields = None if isinstance(value, tuple | list) else fields_of(value)
        value = value[key] if fields is None else next(item for name, item in fields.items() if str(name) == key)
    return value


def changes_its_input(node: fx.Node, module: fx.GraphModule) -> bool:
    """Does this node write to a tensor that another node made?"""
    if node.op == "call_module":
        return bool(getattr(module.get_submodule(str(node.target)), "inplace", False))
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return node.op.startswith("call_") and (in_place or name == "setitem" or name in IN_PLACE_OPERATORS)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(_copied(item) for item in value)
    return {key: _copied(item) for key, item in value.items()} if type(value) is dict else value
