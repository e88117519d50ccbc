"""The number of bits of a graph's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.number_formats import MOVES, Formats, format_text, number_formats, operator_of
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Result, complete_options, with_common_metadata
from mase_server.passes.weighted import is_mask

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"operators": None})


@analysis(
    "Count average bits of data and weights",
    arguments=(Argument("operators", "texts", "operators to count, e.g. linear; without it, all that multiply"),),
    needs={"metadata"},
)
def calculate_avg_bits_mg_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Bits of an element of data and of weights, averaged over all elements that products read.

    operators: the operators to count instead: MASE's names, e.g. ["linear", "conv2d"].  Products are linear layers,
    convolutions, matrix products, attention and recurrent layers; what they have of parameters are weights, biases
    included, everything else is data. An element of a block format counts its share of what the block shares.
    The memory is that of all parameters of the graph, embeddings and norms included, each once, in the widest format
    that it is read in. The common metadata must be there; ValueError where it is not.
    Gives {"data_avg_bit", "w_avg_bit": 0.0 where there is none, "memory_bytes", "original_bytes": as the model stores
    them, "memory_density": the second of these divided by the first}.
    Source: `chop.passes.graph.analysis.quantization.calculate_avg_bits`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    >>> graph, _ = passes.add_common_metadata_analysis_pass(graph)
    >>> passes.calculate_avg_bits_mg_analysis_pass(graph)[1]["w_avg_bit"]
    8.0
    """
    given = complete_options("calculate_avg_bits_mg_analysis_pass", pass_args, _DEFAULTS)
    counted = PRODUCTS if given["operators"] is None else frozenset(given["operators"])
    read = [operand for operand in find_operands(graph) if operand.operator in counted]
    stored = stored_parameters(graph).values()
    memory = sum(each.elements * each.bits for each in stored) / 8
    original = sum(each.elements * each.stored for each in stored) / 8
    return graph, {
        "data_avg_bit": average_bits(operand for operand in read if not operand.is_weight),
        "w_avg_bit": average_bits(operand for operand in read if operand.is_weight),
        "memory_bytes": round(memory),
        "original_bytes": round(original),
        "memory_density": original / memory if memory else 1.0,
    }


def average_bits(read: Iterable[Operand]) -> float:
    """Bits of an element, each operand weighted by its elements; 0.0 for none."""
    sizes = [(operand.elements, operand.bits) for operand in read]
    total = sum(elements for elements, _ in sizes)
    return sum(elements * bits for elements, bits in sizes) / total if total else 0.0


# The operands of a graph's operators, and the bits of their elements.

#: Operators that multiply: their multipliers cost more with each bit, and they hold most of the memory.
PRODUCTS = frozenset(
    {
        "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "matmul", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention", "multihead_attention",
        "lstm", "gru", "rnn",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operator reads.  name: MASE's, e.g. data_in_0.  bits: of an element, its share of a block's
    common bits included.  is_weight: is it computed from a parameter alone?"""

    node: str
    operator: str
    name: str
    elements: int
    bits: float
    is_weight: bool


def find_operands(graph: MaseGraph) -> Iterator[Operand]:
    """Every tensor that a node reads, according to the common metadata. ValueError if there is none."""
    with_common_metadata(graph)
    formats, weights = number_formats(graph.fx_graph, graph.module), weight_nodes(graph.fx_graph, graph.module)
    for node in graph.fx_graph.nodes:
        common = metadata_of(node, graph.module)["common"]
        for name, entry in common["args"].items() if node.op.startswith("call_") else ():
            if isinstance(entry, dict) and entry.get("precision") and "shape" in entry:
                source = entry.get("from")
                is_weight = source in weights if source is not None else not name.startswith("data_in")
                bits = _bits_of_entry(entry, formats.get(source) if isinstance(source, fx.Node) else None)
                yield Operand(node.name, common["mase_op"], name, prod(entry["shape"]), bits, is_weight)


def _bits_of_entry(entry: Mapping[str, Any], format: Any) -> float:
    """Bits of an element: the format's own if it matches the entry, else the first number of the entry's precision."""
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
    """A parameter that a graph uses.  bits: of an element, in the widest format in which it is read.  stored: in the
    model."""

    elements: int
    bits: float
    stored: float


def stored_parameters(graph: MaseGraph) -> dict[str, Stored]:
    """Every parameter that the graph uses, by its path; a shared one counts once, under its first path."""
    model = graph.module
    paths: dict[int, str] = {}
    widths: dict[str, tuple[nn.Parameter, float]] = {}
    for path, parameter, bits in _parameter_readings(graph.fx_graph, model, number_formats(graph.fx_graph, model)):
        name = paths.setdefault(id(parameter), path)
        widths[name] = parameter, max(bits, widths[name][1] if name in widths else 0.0)
    return {name: Stored(each.numel(), bits, _parameter_width(each)) for name, (each, bits) in widths.items()}


def _parameter_readings(
    graph: fx.Graph, model: nn.Module, formats: Formats
) -> Iterator[tuple[str, nn.Parameter, float]]:
    """(path, parameter, bits) for each reader of a parameter other than a rounding."""
    weights = weight_nodes(graph, model)
    for node in graph.nodes:
        if node.op == "call_module":
            for name, parameter in attribute(model, str(node.target)).named_parameters():
                yield f"{node.target}.{name}", parameter, _parameter_width(parameter)
        elif node in weights and any(user not in weights for user in node.users):
            parameter = attribute(model, weights[node])
            yield weights[node], parameter, _read_at(node, formats, parameter)


def _read_at(node: fx.Node, formats: Formats, parameter: nn.Parameter) -> float:
    while node not in formats and is_mask(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return float(formats[node].bits) if node in formats else _parameter_width(parameter)


def _parameter_width(parameter: nn.Parameter) -> float:
    return parameter.element_size() * 8.0
