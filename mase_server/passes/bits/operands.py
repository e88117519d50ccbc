"""What the operators of a graph read, and how many bits an element of it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.number_formats import MOVES, Formats, format_text, number_formats, operator_of
from mase_server.passes.arguments import with_common_metadata
from mase_server.passes.weighted import is_mask

#: Operators that multiply: there a bit more costs multipliers, and most of the memory is theirs.
PRODUCTS = frozenset(
    {
        "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "matmul", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention", "multihead_attention",
        "lstm", "gru", "rnn",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operator reads.  name: MASE's, e.g. data_in_0.  bits: of an element, its share of what a block
    shares included.  is_weight: does it come of a parameter alone?"""

    node: str
    operator: str
    name: str
    elements: int
    bits: float
    is_weight: bool


def operands(graph: MaseGraph) -> Iterator[Operand]:
    """Every tensor that a node reads, as the common metadata has it. ValueError where there is none."""
    with_common_metadata(graph)
    formats, weights = number_formats(graph.fx_graph, graph.module), weight_nodes(graph.fx_graph, graph.module)
    for node in graph.fx_graph.nodes:
        common = metadata_of(node, graph.module)["common"]
        for name, entry in common["args"].items() if node.op.startswith("call_") else ():
            if isinstance(entry, dict) and entry.get("precision") and "shape" in entry:
                source = entry.get("from")
                is_weight = source in weights if source is not None else not name.startswith("data_in")
                bits = _bits(entry, formats.get(source) if isinstance(source, fx.Node) else None)
                yield Operand(node.name, common["mase_op"], name, prod(entry["shape"]), bits, is_weight)


def _bits(entry: Mapping[str, Any], format: Any) -> float:
    """Bits of an element: the format's own where the entry speaks of it, else the first number of its precision."""
    if format is not None and (format.name, format.precision) == (entry["type"], entry["precision"]):
        return float(format.bits)
    return float(entry["precision"][0])


def weight_nodes(graph: fx.Graph, model: nn.Module) -> dict[fx.Node, str]:
    """Node -> the parameter's path, for nodes that read a parameter, and for those that round, mask or move one."""
    found: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            if isinstance(attribute(model, str(node.target)), nn.Parameter):
                found[node] = str(node.target)
            continue
        source = node.args[0] if node.args else None
        if isinstance(source, fx.Node) and source in found and _only_changes(node, model):
            found[node] = found[source]
    return found


def _only_changes(node: fx.Node, model: nn.Module) -> bool:
    if format_text(node) is not None or is_mask(node):
        return True
    return len(node.all_input_nodes) == 1 and operator_of(node, model) in MOVES


@dataclass(frozen=True, slots=True)
class Stored:
    """A parameter that a graph uses.  bits: of an element, in the widest format that is read of it.  stored: as the
    model has it."""

    elements: int
    bits: float
    stored: float


def stored_parameters(graph: MaseGraph) -> dict[str, Stored]:
    """Every parameter that the graph uses, by its path; one that is shared counts once, under the first."""
    model = graph.module
    paths: dict[int, str] = {}
    widths: dict[str, tuple[nn.Parameter, float]] = {}
    for path, parameter, bits in _readings(graph.fx_graph, model, number_formats(graph.fx_graph, model)):
        name = paths.setdefault(id(parameter), path)
        widths[name] = parameter, max(bits, widths[name][1] if name in widths else 0.0)
    return {name: Stored(each.numel(), bits, _width(each)) for name, (each, bits) in widths.items()}


def _readings(graph: fx.Graph, model: nn.Module, formats: Formats) -> Iterator[tuple[str, nn.Parameter, float]]:
    """(path, parameter, bits) wherever something other than a rounding reads a parameter."""
    weights = weight_nodes(graph, model)
    for node in graph.nodes:
        if node.op == "call_module":
            for name, parameter in attribute(model, str(node.target)).named_parameters():
                yield f"{node.target}.{name}", parameter, _width(parameter)
        elif node in weights and any(user not in weights for user in node.users):
            parameter = attribute(model, weights[node])
            yield weights[node], parameter, _read_at(node, formats, parameter)


def _read_at(node: fx.Node, formats: Formats, parameter: nn.Parameter) -> float:
    while node not in formats and is_mask(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return float(formats[node].bits) if node in formats else _width(parameter)


def _width(parameter: nn.Parameter) -> float:
    return parameter.element_size() * 8.0
