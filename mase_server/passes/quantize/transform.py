"""quantize_transform_pass: roundings before the arguments and after the results of the operators that compute."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from mase_server.formats import NumberFormat, quantise
from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts, Produced, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import MOVES, format_text, operator_of, rounded_to
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType
from mase_server.passes.arguments import Result
from mase_server.passes.functional import as_function
from mase_server.passes.quantize.config import Chooser, Config
from mase_server.passes.quantize.values import Values, is_floating

_IN_PLACE = frozenset({operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow})


def quantize_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Round the arguments and results of operators to number formats; the graph still runs, trains and exports.

    pass_args: as MASE writes them. by: type | name | regex_name | scope.  default: what becomes of operators that
    compute and that nothing else names.  Every other key is an operator, a node's name or its module's path, a regular
    expression on either, or a module's path, which covers all below it.  A value is {"config": {"name": "integer",
    "data_in_width": 8, "data_in_frac_width": 4, "weight_width": ..., "bias_width": ..., "data_out_width": ...}}, with
    name None to leave them alone, or one format for everything, e.g. "fixed(8,4)".  Results take the format of
    data_in where data_out has none.

    A rounding is a node, `quantise(x, "fixed(8,4)")`, with a straight-through gradient. Layers with parameters become
    calls of functions, with the parameters rounded at each run: the parameters themselves stay as they were. Masks,
    sizes and integers are not rounded, nor is what a mask was added to.  Gives {"quantised": nodes by format of their
    results, "unused": keys that matched nothing}.  ValueError for pass_args that cannot be read.
    Source: `chop.passes.graph.transforms.quantize.quantize_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, found = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    >>> [node.name for node in graph.nodes if node.op == "call_function"]
    ['quantise', 'quantise_1', 'quantise_2', '_0', 'quantise_3']
    >>> found["quantised"]
    {'_0': 'fixed(8,4)'}
    """
    chooser = Chooser(pass_args or {}, graph.module)
    found = _Rewriter(graph, chooser).run()
    return graph, {"quantised": found, "unused": chooser.unused}


class _Rewriter:
    def __init__(self, graph: MaseGraph, chooser: Chooser) -> None:
        self.model: nn.Module = graph.module
        self.graph: fx.Graph = graph.fx_graph
        self.facts: Facts = dict(graph.facts)
        self.chooser = chooser
        self.values = Values.of(self.graph, self.facts, self.model)
        self.made: dict[tuple[fx.Node, str], fx.Node] = {}
        self.found: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Rewrite every node that has a configuration; the formats of results by node name."""
        for node in list(self.graph.nodes):
            config = self.chooser.of(node)
            if config is not None and is_floating(self.facts.get(node)) and node not in self.values.masked:
                self._quantise(node, config)
        return self.found

    def _quantise(self, node: fx.Node, config: Config) -> None:
        if _changes_a_part(node, self.model):
            return
        self._round_data(node, named_arguments(call_of(node, self.facts, self.model)), config)
        if node.op == "call_module":
            self._round_parameters(node, config)
        format = config.format_of("data_out")
        if format is not None and node in self.values.data:
            self._round_result(node, format)

    def _round_data(self, node: fx.Node, arguments: Mapping[str, Any], config: Config) -> None:
        """The tensors among a node's arguments; statistics of norms are none of its data."""
        for name, value in arguments.items():
            source = value.node if isinstance(value, Produced) and not value.path else None
            if source is None or name.startswith("running_") or not self.values.rounds(source):
                continue
            if (format := config.format_of(name)) is not None:
                node.replace_input_with(source, self._rounded(source, format, node))

    def _round_parameters(self, node: fx.Node, config: Config) -> None:
        """The parameters of a layer, which becomes a function of them."""
        module = attribute(self.model, str(node.target))
        formats = {name: config.format_of(_kind(name)) for name, _ in module.named_parameters()}
        if not any(formats.values()):
            return
        for name, tensor in as_function(node, module).items():
            if (format := formats[name]) is not None:
                with self.graph.inserting_before(node):
                    rounded = self.graph.call_function(quantise, (tensor, str(format)))
                node.replace_input_with(tensor, rounded)

    def _round_result(self, node: fx.Node, format: NumberFormat) -> None:
        """One rounding after the node, or after each tensor that is taken from its tuple."""
        self.found[node.name] = str(format)
        for result in [node] if not isinstance(self.facts[node], tuple) else self._taken(node):
            users = list(result.users)
            if users and all(format_text(user) == str(format) for user in users):
                continue
            with self.graph.inserting_after(result):
                rounded = self._quantised(result, format)
            for user in users:
                user.replace_input_with(result, rounded)

    def _taken(self, node: fx.Node) -> list[fx.Node]:
        """The floating-point tensors that are picked from a tuple."""
        picked = [user for user in node.users if operator_of(user, self.model) == "getitem"]
        tensors = [user for user in picked if isinstance(self.facts.get(user), TensorType)]
        return [user for user in tensors if is_floating(self.facts[user])]

    def _rounded(self, source: fx.Node, format: NumberFormat, before: fx.Node) -> fx.Node:
        """The source in a format: itself, if it is in it already."""
        if rounded_to(source, self.model) == str(format):
            return source
        if (source, str(format)) not in self.made:
            with self.graph.inserting_before(before):
                self.made[source, str(format)] = self._quantised(source, format)
        return self.made[source, str(format)]

    def _quantised(self, source: fx.Node, format: NumberFormat) -> fx.Node:
        made = self.graph.call_function(quantise, (source, str(format)))
        made.meta["scope"] = source.meta.get("scope")
        self.facts[made] = self.facts[source]
        self.values.data.add(made)
        return made


def _kind(name: str) -> str:
    """A parameter's name as configurations have it: weight or bias, also of recurrent and attention layers."""
    return "bias" if "bias" in name else "weight"


def _changes_a_part(node: fx.Node, model: nn.Module) -> bool:
    """Does a node change a part of something else in place? Then its argument must stay the thing itself."""
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") or node.target in _IN_PLACE
    return in_place and any(operator_of(source, model) in MOVES for source in node.all_input_nodes[:1])
