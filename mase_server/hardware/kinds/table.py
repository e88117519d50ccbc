"""Functions of one number, looked up: `fixed_table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.arithmetic import look_up, table
from mase_server.hardware.arithmetic.elements import WIDEST_TABLE
from mase_server.hardware.design import Operation
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.memories import Words
from mase_server.hardware.wiring import Parameters, Tap, streams
from mase_server.ir.facts import produced
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _table(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """The table is filled by the node itself, whatever its settings are."""
    source = node_of(given["data_in_0"])
    name = lowering.whole(source)
    if (width := lowering.stream(name).format.width) > WIDEST_TABLE:
        raise NoHardware(f"its table would have 2**{width} words; quantise its input to {WIDEST_TABLE} bits or fewer")

    known = {each: value.double() for each in node.all_input_nodes if (value := _float(lowering, each)) is not None}

    def function(values: Tensor) -> Tensor:
        """0 where there is no value, such as the root of a negative number: the graph has NaN there."""
        found = lowering.evaluated(node, {source: values, **known})
        return found.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)

    function(torch.zeros(1, dtype=torch.float64))  # what cannot be computed so is told now
    return Unrounded("table", (name,), node, options={"function": function})


def _float(lowering: Lowering, node: fx.Node) -> Tensor | None:
    """A constant operand that is no integer; None for all else."""
    fact = lowering.facts.get(node)
    is_float = isinstance(fact, TensorType) and fact.dtype.startswith(("float", "bfloat"))
    return lowering.values(node) if is_float else None


def by_number(lowering: Lowering, node: fx.Node) -> Held | None:
    """What a node gives that has one tensor and numbers for operands: a function of one number. None for another."""
    tensors = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType)]
    tensors = [each for each in tensors if lowering.values(each) is None or prod(lowering.facts[each].shape) != 1]
    if len(tensors) != 1:
        return None
    return _table(lowering, node, {"data_in_0": produced(lowering.facts[tensors[0]], tensors[0])})


def _words(operation: Operation, before: Any) -> Tensor:
    function: Callable[[Tensor], Tensor] = operation.options["function"]
    return table(function, before, operation.out.format)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    before = maker.design.operations[operation.inputs[0]].out.format
    return maker.call(operation, look_up, source, maker.buffer(f"{operation.name}_words", _words(operation, before)))


def _build(builder: Builder, operation: Operation) -> Tap:
    source, width = builder.read(operation), operation.out.format.width
    before = builder.design.operations[operation.inputs[0]].out.format
    to = builder.wires(f"{operation.name}_cast", source.lanes, width)
    words = Words(1 << before.width, width, lambda: _words(operation, before)[:, None])
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        "DATA_OUT_0_PRECISION_0": width,
        "FILE": builder.file(operation, "words", width, words),
    }
    builder.instance(f"{operation.name}_i", "fixed_table", parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


#: Functions of one number; others of their operands are numbers or constants of one element.
_SERVED = (
    "gelu", "silu", "sigmoid", "tanh", "exp", "elu", "selu", "celu", "mish", "softplus", "softsign", "hardswish",
    "hardsigmoid", "hardtanh", "leaky_relu", "relu6", "logsigmoid", "erf", "abs", "neg", "sin", "cos", "square",
    "softshrink", "hardshrink", "tanhshrink", "threshold", "prelu", "pow", "sqrt", "rsqrt", "reciprocal", "log", "exp2",
    "log2", "log10", "log1p", "expm1", "clamp", "clip", "sign", "round", "floor", "ceil", "trunc", "erfc", "tan",
    "atan", "sinh", "cosh", "asinh", "rsub", "rrelu",
)  # fmt: skip

KIND = Kind("table", _node, _build, dict.fromkeys(_SERVED, _table), mixes=0)
