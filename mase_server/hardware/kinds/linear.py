"""Sums of products with fixed weights: `fixed_linear`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Design, Operation
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import integer_linear
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of, vectors_in_order
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.memories import Words, words_of_bias, words_of_weight
from mase_server.hardware.wiring import Parameters, Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _linear(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    lowering.whole(source)  # what is not rounded at all is told first
    return of_weights(lowering, node, source, lowering.weights(given, "weight"))


def _addmm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """addmm(bias, x, weight): a layer whose weight stands the other way round."""
    if set(node.kwargs) & {"alpha", "beta"} or len(node.args) != 3:
        raise NoHardware("its alpha or beta is not 1; scale the operands instead")
    bias, source, weight = (each for each in node.args if isinstance(each, fx.Node))
    constants = {"weight": _turned(lowering.constant(weight)), "bias": lowering.constant(bias)}
    if constants["bias"].shape != constants["weight"].shape[:1]:
        raise NoHardware(f"it adds {list(constants['bias'].shape)}; a vector for all rows has hardware")
    return of_weights(lowering, node, source, constants)


def of_weights(lowering: Lowering, node: fx.Node, source: fx.Node, constants: Mapping[str, Constant]) -> Unrounded:
    """A layer with a weight of [out, in], whatever the operator that has it."""
    name = lowering.whole(source)
    if not vectors_in_order(lowering.stream(name)):
        name = in_order(lowering, name, torch.arange(lowering.stream(name).size))
    return Unrounded("linear", (name,), node, constants, {"relu": False})


def times_constant(lowering: Lowering, node: fx.Node, source: fx.Node, weight: Constant) -> Unrounded:
    """source @ weight."""
    return of_weights(lowering, node, source, {"weight": _turned(weight)})


def _turned(weight: Constant) -> Constant:
    return weight.moved(lambda values: values.T.contiguous())


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    return maker.call(operation, integer_linear, source, weight, bias, formats, operation.options["relu"])


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    features_out, features_in = operation.constants["weight"].shape
    rows = prod(operation.out.shape[:-1])
    for par_in in divisors(features_in):
        for par_out in divisors(features_out):
            cycles = rows * (features_in // par_in) * (features_out // par_out)
            yield Fold(par_in, par_out, cycles, par_in * par_out)


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A vector is needed to its end."""
    features_out, features_in = operation.constants["weight"].shape
    return ((torch.arange(operation.out.size) // features_out + 1) * features_in - 1,)


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, length = builder.folding.folds[operation.name], operation.constants["weight"].shape[1]
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    parameters: Parameters = {
        **precision("DATA_IN_0", before.format),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": length,
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        # The columns of the weight stand in the order in which their elements come.
        **weights(builder, operation, fold, lambda weight: weight[:, before.indices[:length]]),
    }
    builder.instance(f"{operation.name}_i", "fixed_linear", parameters, streams(source, to), operation.name)
    return to


def weights(builder: Builder, operation: Operation, fold: Fold, arranged: Callable[[Tensor], Tensor]) -> Parameters:
    """The parameters of a dot product, and its memories. arranged: its weight as [out, in], as the elements come."""
    weight, bias = operation.constants["weight"], operation.constants.get("bias")
    lanes, width = fold.par_in * prod(fold.taps), weight.format.width
    words = Words(
        prod(weight.shape) // (lanes * fold.par_out),
        width,
        lambda: words_of_weight(arranged(weight.integers), width, lanes, fold.par_out).make(),
    )
    found: Parameters = {
        **precision("WEIGHT", weight.format),
        "WEIGHT_FILE": builder.memory(operation, "weight", lanes * fold.par_out, words),
        "HAS_BIAS": int(bias is not None),
    }
    if bias is not None:
        words = words_of_bias(bias.integers, bias.format.width, fold.par_out)
        found |= precision("BIAS", bias.format)
        found["BIAS_FILE"] = builder.memory(operation, "bias", fold.par_out, words)
    return found | {
        **precision("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": weight.shape[0],
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "RELU": int(operation.options["relu"]),
    }


KIND = Kind("linear", _node, _build, {"linear": _linear, "addmm": _addmm}, row_major, _folds, _reach, mixes=1)
