"""calculate_avg_bits_mg_analysis_pass: the average number of bits of data and of weights, and the memory of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.bits.operands import PRODUCTS, Operand, operands, stored_parameters
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"operators": None})


@analysis
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
    given = options("calculate_avg_bits_mg_analysis_pass", pass_args, _DEFAULTS)
    counted = PRODUCTS if given["operators"] is None else frozenset(given["operators"])
    read = [operand for operand in operands(graph) if operand.operator in counted]
    stored = stored_parameters(graph).values()
    memory = sum(each.elements * each.bits for each in stored) / 8
    original = sum(each.elements * each.stored for each in stored) / 8
    return graph, {
        "data_avg_bit": average(operand for operand in read if not operand.is_weight),
        "w_avg_bit": average(operand for operand in read if operand.is_weight),
        "memory_bytes": round(memory),
        "original_bytes": round(original),
        "memory_density": original / memory if memory else 1.0,
    }


def average(read: Iterable[Operand]) -> float:
    """Bits of an element, each operand weighted by its elements; 0.0 for none."""
    sizes = [(operand.elements, operand.bits) for operand in read]
    total = sum(elements for elements, _ in sizes)
    return sum(elements * bits for elements, bits in sizes) / total if total else 0.0


PASS = Pass(
    name="calculate_avg_bits_mg",
    title="Count average bits of data and weights",
    kind="analysis",
    function=calculate_avg_bits_mg_analysis_pass,
    arguments=(Argument("operators", "texts", "operators to count, e.g. linear; without it, all that multiply"),),
    needs=frozenset({"metadata"}),
)
