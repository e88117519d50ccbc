"""Where a graph is rounded, and into which formats: found before anything is changed."""

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
from mase_server.ir.number_formats import MOVES, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType
from mase_server.passes.quantize.config import Chooser, Config
from mase_server.passes.quantize.values import Values, is_floating
from mase_server.passes.selection import Selection

_IN_PLACE = frozenset({operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow})
#: Of what moves data, what gives data of its own: it can be changed in place, and nothing else changes.
_COPIES = frozenset(
    {
        "cat", "stack", "repeat", "repeat_interleave", "tile", "flip", "roll", "clone", "index_select", "gather",
        "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One node. arguments: (what it gets, format).  parameters: formats by name, where it calls a layer that has some.
    result: the format of what it gives; tensors: the nodes that have it, more than one where it is a tuple."""

    node: fx.Node
    arguments: tuple[tuple[fx.Node, NumberFormat], ...] = ()
    parameters: Mapping[str, NumberFormat | None] = field(default_factory=dict)
    result: NumberFormat | None = None
    tensors: tuple[fx.Node, ...] = ()

    @property
    def values(self) -> Iterator[tuple[fx.Node, NumberFormat]]:
        """Every node whose value is rounded, with the format."""
        yield from self.arguments
        if self.result is not None:
            yield from ((tensor, self.result) for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Places:
    """All places of a graph, in order."""

    model: nn.Module
    found: tuple[Place, ...]

    @classmethod
    def of(cls, graph: MaseGraph, chooser: Chooser, selected: Selection) -> Places:
        """What the chooser's configurations say of the selected nodes."""
        finder = _Finder(graph.module, graph.facts, Values.of(graph.fx_graph, graph.facts, graph.module))
        found = []
        for node in graph.fx_graph.nodes:
            config = chooser.of(node) if selected.covers(node) else None
            if config is not None and finder.fits(node):
                found.append(finder.place(node, config))
        return cls(graph.module, tuple(found))


@dataclass(frozen=True, slots=True)
class _Finder:
    model: nn.Module
    facts: Facts
    values: Values

    def fits(self, node: fx.Node) -> bool:
        """Can this node be rounded? Not where masks are, and not where a part of something else is changed."""
        if not is_floating(self.facts.get(node)) or node in self.values.masked:
            return False
        return not _changes_a_part(node, self.model)

    def place(self, node: fx.Node, config: Config) -> Place:
        result = config.format_of("data_out") if node in self.values.data else None
        tensors = () if result is None else tuple(self._tensors(node))
        return Place(node, tuple(self._arguments(node, config)), self._parameters(node, config), result, tensors)

    def _arguments(self, node: fx.Node, config: Config) -> Iterator[tuple[fx.Node, NumberFormat]]:
        """The tensors among a node's arguments; statistics of norms are none of its data."""
        for name, value in named_arguments(call_of(node, self.facts, self.model)).items():
            source = value.node if isinstance(value, Produced) and not value.path else None
            if source is None or name.startswith("running_") or not self._rounds(node, source):
                continue
            if (format := config.format_of(name)) is not None:
                yield source, format

    def _rounds(self, node: fx.Node, source: fx.Node) -> bool:
        """Is an argument rounded? Factors are, constant ones such as sines of positions too; single numbers are not."""
        if self.values.rounds(source):
            return True
        fact = self.facts.get(source)
        is_factor = operator_of(node, self.model) == "mul" and isinstance(fact, TensorType) and prod(fact.shape) > 1
        return is_factor and is_floating(fact) and source not in self.values.masked

    def _parameters(self, node: fx.Node, config: Config) -> dict[str, NumberFormat | None]:
        if node.op != "call_module":
            return {}
        module = attribute(self.model, str(node.target))
        formats = {name: config.format_of(_kind(name)) for name, _ in module.named_parameters()}
        return formats if any(formats.values()) else {}

    def _tensors(self, node: fx.Node) -> Iterator[fx.Node]:
        """The node, or the floating-point tensors that are picked from its tuple."""
        if not isinstance(self.facts[node], tuple):
            yield node
            return
        for user in node.users:
            fact = self.facts.get(user)
            if operator_of(user, self.model) == "getitem" and isinstance(fact, TensorType) and is_floating(fact):
                yield user


def _kind(name: str) -> str:
    """A parameter's name as configurations have it: weight or bias, also of recurrent and attention layers."""
    return "bias" if "bias" in name else "weight"


def _changes_a_part(node: fx.Node, model: nn.Module) -> bool:
    """Does a node change a part of something else in place? Then its argument must stay the thing itself."""
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") or node.target in _IN_PLACE
    return in_place and any(operator_of(source, model) in MOVES - _COPIES for source in node.all_input_nodes[:1])
