"""quantize_transform_pass: inserts roundings before the arguments and after the results of operators that compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from mase_server.formats import NumberFormat, Open, parse, quantise
from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, rounded_to
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES
from mase_server.passes.declaration import LEFT, Result, Selection
from mase_server.passes.functional import as_function
from mase_server.passes.quantize.calibration import METHODS, Closing
from mase_server.passes.quantize.config import USUAL, WAYS, Chooser, take_apart
from mase_server.passes.quantize.places import Place, Places
from mase_server.protocol.arguments import Argument

# Inserting the roundings into the graph.


@dataclass(frozen=True, slots=True)
class Rounding:
    """An inserted rounding. owner: the node it was inserted for.  value: the rounded value, of a node or a
    parameter."""

    node: fx.Node
    owner: fx.Node
    value: fx.Node | Tensor


@dataclass(slots=True)
class Rewritten:
    """results: the formats of nodes' results by name; of their arguments if results are not rounded.
    roundings: the inserted ones, in order."""

    results: dict[str, str] = field(default_factory=dict)
    roundings: list[Rounding] = field(default_factory=list)


def rewrite_graph(graph: MaseGraph, places: Places, closing: Closing) -> Rewritten:
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
        """Round at one place."""
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
        """The argument that the node reads: the source, or the rounding of it that the previous place inserted."""
        for given in [each for each in node.all_input_nodes if each is source or _is_rounding_of(each, source)]:
            node.replace_input_with(given, self._rounded(given, source, format, node))

    def _rounded(self, given: fx.Node, source: fx.Node, format: NumberFormat, before: fx.Node) -> fx.Node:
        """The value in a format: the value itself if it is in that format already."""
        if _is_in(rounded_to(given, self.model), format):
            return given
        closed = str(self.closing.of_value(source, format))
        if (given, closed) not in self.made:
            with self.graph.inserting_before(before):
                self.made[given, closed] = self._quantised(given, closed)
            self.done.roundings.append(Rounding(self.made[given, closed], before, source))
        return self.made[given, closed]

    def _round_parameters(self, place: Place) -> None:
        """Round the parameters of a layer, which becomes a function of them."""
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
        """Insert one rounding after the node, unless all users already round to the same format."""
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
        """The format of a node's result, or the first of several; if it has none, that of its arguments."""
        if place.result is not None:
            node = place.tensors[0] if place.tensors else place.node
            return str(self.closing.of_value(node, place.result))
        for source, format in place.arguments:
            return str(self.closing.of_value(source, format))
        return next((str(format) for format in place.parameters.values() if format is not None), None)


def _is_rounding_of(node: fx.Node, source: fx.Node) -> bool:
    return format_text(node) is not None and node.all_input_nodes[:1] == [source]


def _is_in(text: str | None, format: NumberFormat) -> bool:
    """Is a value with this text as its format in `format`, with any parameter that data chose?"""
    if text is None:
        return False
    known = parse(text)
    return format.fits(known) if isinstance(format, Open) else known == format


#: The arguments of every pass that quantises by operators, nodes or scopes.
ARGUMENTS = (
    Argument(
        "default",
        "format",
        f"the format of all other operators that compute; {USUAL[0]} if no format is given",
        choices=USUAL,
    ),
    Argument(
        "by",
        "choice",
        "what the other names refer to: operator types, nodes or layers, regular "
        "expressions that match names, or scopes",
        "type",
        choices=WAYS,
    ),
    Argument("calibrate", "choice", "how data determine a parameter that is `auto`", "mse", choices=METHODS),
    Argument(
        "percentile", "number", "the percentage of the values that the format must hold", 99.9, minimum=50, maximum=100
    ),
    DATA,
    SAMPLES,
)


@transform(
    "Quantise",
    arguments=ARGUMENTS,
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, node, expression or scope"),
    selects=True,
)
def quantize_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Round the arguments and results of operators to number formats; the graph still runs, trains and exports.

    pass_args: as MASE writes them. by: type | name | regex_name | scope.  default: the format of operators that
    compute and that no other key names; without any format at all, "fixed(8,auto)".  only: nodes, layers or scopes,
    everything without it.  Every other key is an operator, a node's name or its module's path, a regular
    expression on either, or a module's path, which covers all below it.  A value is {"config": {"name": "integer",
    "data_in_width": 8, "data_in_frac_width": 4, "weight_width": ..., "bias_width": ..., "data_out_width": ...}}, with
    name None or bypass True to leave them alone, or one format for everything, results too, e.g. "fixed(8,4)".  A
    configuration rounds what it names and nothing else: results where it has data_out.

    A format may leave a parameter to the data: "fixed(8,auto)". It is chosen for each tensor: for parameters by their
    own values, for other tensors by running the graph.  calibrate: mse, the smallest squared error; minmax, the full
    range; percentile, the range of the share `percentile` of the values.  data, samples: see `data.load`.  Where the
    model is on meta, it stays open.

    A rounding is a node, `quantise(x, "fixed(8,4)")`, with a straight-through gradient. Layers with parameters become
    calls of functions, with the parameters rounded at each run: the parameters themselves stay as they were. Masks,
    sizes and integers are not rounded, nor are sums with a mask. torch.nn's transformers are taken apart first
    (see lower_granularity).  Gives {"quantised": nodes by format of their results, or of their arguments where a
    configuration does not round results, "left": the reason for each other operation on floating-point values by
    node, "unused": keys that matched nothing, "calibrated": the data, None where nothing was left to data}.
    ValueError for pass_args that cannot be read, and for a key of a configuration that says nothing.
    Source: `chop.passes.graph.transforms.quantize.quantize_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, found = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    >>> [node.name for node in graph.nodes if node.op == "call_function"]
    ['quantise', 'quantise_1', 'quantise_2', '_0', 'quantise_3']
    >>> found["quantised"]
    {'_0': 'fixed(8,4)'}
    """
    given = dict(pass_args or {})
    chooser = Chooser(given, graph.module)
    take_apart(graph, chooser, given.get("only"))
    places = Places.of(graph, chooser, Selection.of(given.get("only")).checked(graph.fx_graph))
    closing = Closing.of(graph, places, given)
    found = rewrite_graph(graph, places, closing)
    return graph, {
        "quantised": found.results, LEFT: {name: f"not quantised: {why}" for name, why in places.left.items()},
        "unused": chooser.unused, "calibrated": closing.words,
    }  # fmt: skip
