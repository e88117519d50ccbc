"""Putting the roundings into the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, fx, nn

from mase_server.formats import NumberFormat, Open, parse, quantise
from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, rounded_to
from mase_server.passes.functional import as_function
from mase_server.passes.quantize.closing import Closing
from mase_server.passes.quantize.places import Place, Places


@dataclass(frozen=True, slots=True)
class Rounding:
    """A rounding that was put in. owner: the node for which.  value: what is rounded, a node's value or a parameter."""

    node: fx.Node
    owner: fx.Node
    value: fx.Node | Tensor


@dataclass(slots=True)
class Rewritten:
    """results: the formats of nodes' results by name, or of what they read where results are not rounded.
    roundings: what was put in, in that order."""

    results: dict[str, str] = field(default_factory=dict)
    roundings: list[Rounding] = field(default_factory=list)


def rewrite(graph: MaseGraph, places: Places, closing: Closing) -> Rewritten:
    """Round at every place."""
    rewriter = _Rewriter(graph.fx_graph, graph.module, closing)
    for place in places.found:
        rewriter.rewrite(place)
    return rewriter.done


class _Rewriter:
    def __init__(self, graph: fx.Graph, model: nn.Module, closing: Closing) -> None:
        self.graph, self.model, self.closing = graph, model, closing
        self.made: dict[tuple[fx.Node, str], fx.Node] = {}
        self.done = Rewritten()

    def rewrite(self, place: Place) -> None:
        """One node."""
        for source, format in place.arguments:
            self._round_argument(place.node, source, format)
        if place.parameters:
            self._round_parameters(place)
        if place.result is not None:
            for tensor in place.tensors:
                self._round_result(place.node, tensor, place.result)
        if (told := self._told(place)) is not None:
            self.done.results[place.node.name] = told

    def _round_argument(self, node: fx.Node, source: fx.Node, format: NumberFormat) -> None:
        """What the node gets: the source, or what it was rounded to by the place before."""
        for given in [each for each in node.all_input_nodes if each is source or _rounds(each, source)]:
            node.replace_input_with(given, self._rounded(given, source, format, node))

    def _rounded(self, given: fx.Node, source: fx.Node, format: NumberFormat, before: fx.Node) -> fx.Node:
        """The value in a format: itself, if it is in it already."""
        if _is_in(rounded_to(given, self.model), format):
            return given
        closed = str(self.closing.of_value(source, format))
        if (given, closed) not in self.made:
            with self.graph.inserting_before(before):
                self.made[given, closed] = self._quantised(given, closed)
            self.done.roundings.append(Rounding(self.made[given, closed], before, source))
        return self.made[given, closed]

    def _round_parameters(self, place: Place) -> None:
        """The parameters of a layer, which becomes a function of them."""
        node, module = place.node, attribute(self.model, str(place.node.target))
        for name, tensor in as_function(node, module).items():
            if (format := place.parameters[name]) is not None:
                parameter = attribute(module, name)
                closed = self.closing.of_parameter(parameter, format)
                with self.graph.inserting_before(node):
                    rounded = self.graph.call_function(quantise, (tensor, str(closed)))
                node.replace_input_with(tensor, rounded)
                self.done.roundings.append(Rounding(rounded, node, parameter))

    def _round_result(self, owner: fx.Node, result: fx.Node, format: NumberFormat) -> None:
        """One rounding after the node, unless all users round it just so."""
        users = list(result.users)
        if users and all(_is_in(format_text(user), format) for user in users):
            return
        with self.graph.inserting_after(result):
            rounded = self._quantised(result, str(self.closing.of_value(result, format)))
        for user in users:
            user.replace_input_with(result, rounded)
        self.done.roundings.append(Rounding(rounded, owner, result))

    def _quantised(self, source: fx.Node, format: str) -> fx.Node:
        made = self.graph.call_function(quantise, (source, format))
        made.meta["scope"] = source.meta.get("scope")
        return made

    def _told(self, place: Place) -> str | None:
        """The format of a node's result, of several tensors the first one's; else of what it reads."""
        if place.result is not None:
            node = place.tensors[0] if place.tensors else place.node
            return str(self.closing.of_value(node, place.result))
        for source, format in place.arguments:
            return str(self.closing.of_value(source, format))
        return next((str(format) for format in place.parameters.values() if format is not None), None)


def _rounds(node: fx.Node, source: fx.Node) -> bool:
    return format_text(node) is not None and node.all_input_nodes[:1] == [source]


def _is_in(text: str | None, format: NumberFormat) -> bool:
    """Is what is rounded to this text in the format, whatever data chose?"""
    if text is None:
        return False
    known = parse(text)
    return format.fits(known) if isinstance(format, Open) else known == format
