"""The places where a graph is rounded, and their formats, found before anything is changed.

Masks are not data: a value that depends on no input, parameter or buffer is not rounded, nor is a result that a mask
was added to or filled into, because minus infinity must stay minus infinity.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from torch import fx, nn

from mase_server.formats import NumberFormat
from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts, Produced, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import MOVES, format_text, is_moving_operator, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType
from mase_server.passes.declaration import Selection
from mase_server.passes.quantize.config import Chooser, Config, Values, is_floating
from mase_server.passes.weighted import is_mask

_IN_PLACE = frozenset({operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow})
#: Moving operators whose result does not share memory with their input: changing it in place changes nothing else.
_COPIES = frozenset(
    {
        "cat", "stack", "repeat", "repeat_interleave", "tile", "flip", "roll", "clone", "index_select", "gather",
        "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One node. arguments: (source, format).  parameters: formats by name, if it calls a layer that has some.
    result: the format of its result; tensors: the nodes that have it, more than one for a tuple."""

    node: fx.Node
    arguments: tuple[tuple[fx.Node, NumberFormat], ...] = ()
    parameters: Mapping[str, NumberFormat | None] = field(default_factory=dict)
    result: NumberFormat | None = None
    tensors: tuple[fx.Node, ...] = ()

    @property
    def is_rounded(self) -> bool:
        """Is anything of it rounded?"""
        return bool(self.arguments or self.parameters or self.tensors)

    @property
    def values(self) -> Iterator[tuple[fx.Node, NumberFormat]]:
        """Every node whose value is rounded, with the format."""
        yield from self.arguments
        if self.result is not None:
            yield from ((tensor, self.result) for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Places:
    """All places of a graph, in order.  left: why each other operation on floating-point values is not rounded, by the
    name of its node; operators that only move values are neither."""

    model: nn.Module
    found: tuple[Place, ...]
    left: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: MaseGraph, chooser: Chooser, selected: Selection) -> Places:
        """The places of the selected nodes, by the chooser's configurations."""
        finder = _Finder(graph.module, graph.facts, Values.of(graph.fx_graph, graph.facts, graph.module))
        found, left = [], {}
        for node in graph.fx_graph.nodes:
            config = chooser.of(node) if selected.covers(node) else None
            if config is not None and finder.fits(node):
                found.append(place := finder.place(node, config))
                nothing = "its configuration names nothing that it reads or gives"
                why = "" if place.is_rounded else finder.explain_values(node) or nothing
            else:
                why = finder.explain_left(node, chooser, selected, config)
            if why:
                left[node.name] = why
        return cls(graph.module, tuple(found), left)


@dataclass(frozen=True, slots=True)
class _Finder:
    model: nn.Module
    facts: Facts
    values: Values

    def fits(self, node: fx.Node) -> bool:
        """Can this node be rounded? Not if its values contain masks, and not if it changes a part of another tensor."""
        return is_floating(self.facts.get(node)) and not self._explain_misfit(node)

    def explain_left(self, node: fx.Node, chooser: Chooser, selected: Selection, config: Config | None) -> str:
        """Why a node is not rounded; "" for one of which nobody would expect it."""
        if not node.op.startswith("call_") or not is_floating(self.facts.get(node)) or format_text(node) is not None:
            return ""
        if node.target is getattr or is_moving_operator(node, self.model) or is_mask(node):
            return ""
        if not selected.covers(node):
            return "it is outside of the selection"
        return (
            self._explain_misfit(node) or self.explain_values(node) or (chooser.explain(node) if config is None else "")
        )

    def explain_values(self, node: fx.Node) -> str:
        """Why there is nothing to round in a node's values; "" for data."""
        return "" if node in self.values.data else "it is computed from sizes, masks or whole numbers alone"

    def _explain_misfit(self, node: fx.Node) -> str:
        if node in self.values.masked:
            return "its values hold a mask, which rounding would spoil"
        return "it changes a part of another tensor in place" if _changes_a_part(node, self.model) else ""

    def place(self, node: fx.Node, config: Config) -> Place:
        result = config.format_of("data_out") if node in self.values.data else None
        tensors = () if result is None else tuple(self._tensors(node))
        return Place(node, tuple(self._arguments(node, config)), self._parameters(node, config), result, tensors)

    def _arguments(self, node: fx.Node, config: Config) -> Iterator[tuple[fx.Node, NumberFormat]]:
        """The tensors among a node's arguments, without the statistics of norms."""
        for name, value in named_arguments(call_of(node, self.facts, self.model)).items():
            source = value.node if isinstance(value, Produced) and not value.path else None
            if source is None or name.startswith("running_") or not self._rounds(node, source):
                continue
            if (format := config.format_of(name)) is not None:
                yield source, format

    def _rounds(self, node: fx.Node, source: fx.Node) -> bool:
        """Is an argument rounded? Factors are, also constant ones such as sines of positions; single numbers are
        not."""
        if self.values.rounds(source):
            return True
        fact = self.facts.get(source)
        is_factor = operator_of(node, self.model) == "mul" and isinstance(fact, TensorType) and prod(fact.shape) > 1
        return is_factor and is_floating(fact) and source not in self.values.masked

    def _parameters(self, node: fx.Node, config: Config) -> dict[str, NumberFormat | None]:
        if node.op != "call_module":
            return {}
        module = attribute(self.model, str(node.target))
        formats = {name: config.format_of(_parameter_kind(name)) for name, _ in module.named_parameters()}
        return formats if any(formats.values()) else {}

    def _tensors(self, node: fx.Node) -> Iterator[fx.Node]:
        """The node itself, or the floating-point tensors that are picked from its tuple."""
        if not isinstance(self.facts[node], tuple):
            yield node
            return
        for user in node.users:
            fact = self.facts.get(user)
            if operator_of(user, self.model) == "getitem" and isinstance(fact, TensorType) and is_floating(fact):
                yield user


def _parameter_kind(name: str) -> str:
    """A parameter's name in configurations: weight or bias, also for recurrent and attention layers."""
    return "bias" if "bias" in name else "weight"


def _changes_a_part(node: fx.Node, model: nn.Module) -> bool:
    """Does a node change a part of another tensor in place? Its argument must then stay the tensor itself."""
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") or node.target in _IN_PLACE
    return in_place and any(operator_of(source, model) in MOVES - _COPIES for source in node.all_input_nodes[:1])
