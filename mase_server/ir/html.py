"""A graph as an HTML table: what notebooks show of it. Everything that a person named is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.dtypes import SHORT
from mase_server.formats import with_parameters
from mase_server.ir.build import attribute
from mase_server.ir.number_formats import Formats, number_formats, operator_of
from mase_server.ops.cost import parameters_of
from mase_server.ops.types import TensorType
from mase_server.visible import escape_markup

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph

#: Nodes that are shown; of larger graphs the rest is counted.
MOST_ROWS = 500
_HEAD = ("layer", "operator", "result", "format", "parameters", "FLOPs")
_NUMBERS = frozenset({"parameters", "FLOPs"})


def table(graph: MaseGraph) -> str:
    """A row for each node that computes: its path or name, MASE's operator, what it gives, and its cost."""
    nodes = [node for node in graph.nodes if node.op.startswith("call")]
    rows = list(_rows(graph, nodes[:MOST_ROWS]))
    used = [index for index, name in enumerate(_HEAD) if name != "format" or any(row[index] for row in rows)]
    name = type(graph.root).__name__
    parts = [f"<b>{escape_markup(name)}</b>: {escape_markup(_summary(graph, len(nodes)))}", "<table><thead>"]
    parts.append(_line("th", used, _HEAD) + "</thead><tbody>")
    parts += [_line("td", used, row) for row in rows]
    left = f"<p>… and {len(nodes) - MOST_ROWS:,} more nodes</p>" if len(nodes) > MOST_ROWS else ""
    return f"<div>{''.join(parts)}</tbody></table>{left}</div>"


def _summary(graph: MaseGraph, count: int) -> str:
    count_of = f"{count:,} operation{'' if count == 1 else 's'}"
    parameters, _ = parameters_of(graph.root)
    inputs = [f"{node.name}: {_told(graph.facts.get(node))}" for node in graph.nodes if node.op == "placeholder"]
    flops = graph.scope_costs()[""].flops
    return f"{count_of} · {parameters:,} parameters · {flops:,} FLOPs · {', '.join(inputs) or 'no inputs'}"


def _rows(graph: MaseGraph, nodes: list[fx.Node]) -> Iterator[tuple[str, ...]]:
    facts, costs, formats = graph.facts, graph.costs(), number_formats(graph.fx_graph, graph.module)
    for node in nodes:
        flops = costs[node.name].flops
        yield (
            _path(node) or node.name,
            operator_of(node, graph.module),
            _told(facts.get(node)),
            _format(formats, node),
            f"{_parameters(graph, node):,}" if _path(node) else "",
            f"{flops:,}" if flops else "",
        )


def _path(node: fx.Node) -> str:
    """Of the layer that a node is, also where it runs with rounded parameters; "" for one that is none."""
    layer = node.args[0] if node.target is with_parameters else node
    is_layer = isinstance(layer, fx.Node) and (layer is not node or node.op == "call_module")
    return str(layer.target) if is_layer and isinstance(layer, fx.Node) else ""


def _parameters(graph: MaseGraph, node: fx.Node) -> int:
    return parameters_of(attribute(graph.module, _path(node)))[0]


def _format(formats: Formats, node: fx.Node) -> str:
    return str(formats[node]) if node in formats else ""


def _told(fact: Any) -> str:
    """A fact as hints have it: `f32[2, 8]`."""
    if isinstance(fact, TensorType):
        return f"{SHORT.get(fact.dtype, fact.dtype)}[{', '.join(map(str, fact.shape))}]"
    if isinstance(fact, tuple):
        return f"({', '.join(map(_told, fact))})"
    if isinstance(fact, dict):
        return f"{{{', '.join(f'{key}: {_told(value)}' for key, value in fact.items())}}}"
    return "" if fact is None else str(fact)


def _line(tag: str, used: list[int], cells: tuple[str, ...]) -> str:
    parts = []
    for index in used:
        align = "right" if _HEAD[index] in _NUMBERS else "left"
        parts.append(f'<{tag} style="text-align: {align}">{escape_markup(cells[index])}</{tag}>')
    return f"<tr>{''.join(parts)}</tr>"
