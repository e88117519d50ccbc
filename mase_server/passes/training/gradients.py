"""Gradients in number formats: functions that change nothing on the way forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from mase_server.formats import NumberFormat, quantise, round_gradient
from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts, Produced, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ops.table import named_arguments
from mase_server.passes.functional import as_function
from mase_server.passes.quantize.config import Chooser, Config
from mase_server.passes.quantize.values import is_floating
from mase_server.passes.selection import Selection

Chosen = list[tuple[fx.Node, Config]]


def chosen(graph: MaseGraph, pass_args: Mapping[str, Any]) -> Chosen:
    """The operators whose gradients are rounded, with their formats; pass_args as quantize has them."""
    chooser, only = Chooser(pass_args, graph.module), Selection.of(pass_args.get("only"))
    nodes = (node for node in graph.nodes if only.covers(node))
    return [(node, config) for node in nodes if (config := chooser.of(node)) is not None]


def round_gradients(graph: MaseGraph, nodes: Chosen) -> list[str]:
    """Round gradients to formats; the names of the nodes where there was something to round.

    output_grad: of the gradient that comes to a node's result; data_in, weight and bias: of those that it gives on.
    """
    _expose_parameters(graph, nodes)
    facts = dict(graph.facts)
    return [node.name for node, config in nodes if is_floating(facts.get(node)) and _round(graph, facts, node, config)]


def _expose_parameters(graph: MaseGraph, nodes: Chosen) -> None:
    for node, config in nodes:
        if node.op == "call_module" and (config.format_of("weight") or config.format_of("bias")):
            layer = attribute(graph.module, str(node.target))
            if next(layer.parameters(), None) is not None:
                as_function(node, layer)


def _round(graph: MaseGraph, facts: Facts, node: fx.Node, config: Config) -> bool:
    call, found = call_of(node, facts, graph.module), False
    for name, value in named_arguments(call).items():
        source = value.node if isinstance(value, Produced) and not value.path else None
        format = config.format_of(_kind(name)) if source is not None and is_floating(facts.get(source)) else None
        if source is not None and format is not None and not name.startswith("running_"):
            with node.graph.inserting_before(node):
                node.replace_input_with(source, _rounding(source, format, node, facts))
            found = True
    format = config.format_of("output_grad")
    if format is not None and not isinstance(facts[node], tuple):
        _round_result(node, format, facts)
    return found or format is not None


def _kind(name: str) -> str:
    return "bias" if "bias" in name else "weight" if "weight" in name else name


def _round_result(node: fx.Node, format: NumberFormat, facts: Facts) -> None:
    """After the rounding of the result, so that this stays beside its operator."""
    users = list(node.users)
    last = users[0] if len(users) == 1 and users[0].target is quantise else node
    users = list(last.users)
    with node.graph.inserting_after(last):
        rounded = _rounding(last, format, last, facts)
    for user in users:
        user.replace_input_with(last, rounded)


def _rounding(source: fx.Node, format: NumberFormat, like: fx.Node, facts: Facts) -> fx.Node:
    made = source.graph.call_function(round_gradient, (source, str(format)))
    made.meta["scope"] = like.meta.get("scope")
    facts[made] = facts.get(source)
    return made
