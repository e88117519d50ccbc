"""The number formats of what every operator reads and gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from mase_server.dtypes import short
from mase_server.formats import NumberFormat
from mase_server.ir.facts import call_of, leaves
from mase_server.ir.formats import format_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, number_formats
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType
from mase_server.passes.error.measuring import GIVES


@dataclass(frozen=True, slots=True)
class Value:
    """A floating-point tensor.  format: its text, or the short name of its element type.  bits: of an element."""

    format: str
    elements: int
    bits: float

    @classmethod
    def of(cls, tensor: TensorType, format: NumberFormat | None) -> Value:
        """Of a type, in a format or as it is."""
        if format is None:
            return cls(short(tensor.dtype), tensor.numel, float(sum(format_of(tensor.dtype)[1])))
        return cls(str(format), tensor.numel, format.bits)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator on floating-point numbers.  gives: the name of the original's node whose value this is.  arguments:
    by MASE's names, those of parameters included."""

    node: fx.Node
    gives: str
    arguments: Mapping[str, Value]
    result: Value

    @property
    def formats(self) -> tuple[Any, ...]:
        """What quantisation can change of it."""
        return {name: value.format for name, value in self.arguments.items()}, self.result.format

    @property
    def average_bits(self) -> float:
        """Bits of an element of all that it reads and gives."""
        values = [*self.arguments.values(), self.result]
        return sum(each.elements * each.bits for each in values) / max(sum(each.elements for each in values), 1)


def operators(graph: MaseGraph, *, rounded: bool = True) -> Iterator[Operator]:
    """Every operator that gives a floating-point tensor, roundings themselves excepted; not rounded: as if nothing
    were."""
    facts, model = graph.facts, graph.module
    formats = number_formats(graph.fx_graph, model) if rounded else {}
    for node in graph.fx_graph.nodes:
        results = list(floating(facts.get(node)))
        if node.op.startswith("call_") and format_text(node) is None and results:
            named = named_arguments(call_of(node, facts, model))
            arguments = {
                name: Value.of(tensor, formats.get(getattr(tensor, "node", node)))
                for name, value in named.items()
                for tensor in floating(value)
            }
            result = Value.of(results[0], formats.get(node))
            yield Operator(node, str(node.meta.get(GIVES, node.name)), arguments, result)


def floating(value: Any) -> Iterator[TensorType]:
    """The floating-point tensors of a fact."""
    for each in leaves(value):
        if isinstance(each, TensorType) and each.dtype.startswith(("float", "bfloat")):
            yield each
