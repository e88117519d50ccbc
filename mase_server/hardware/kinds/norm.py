"""Layer norm and RMS norm over rows: `fixed_norm`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mase_server.hardware.arithmetic import Norm
from mase_server.hardware.design import Constant, Design, Operation, Stream
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import integer_norm
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind, Rule, row_major
from mase_server.hardware.kinds.settings import Settings
from mase_server.hardware.kinds.softmax import reach_of_rows
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.memories import words_of_bias
from mase_server.hardware.wiring import Parameters, Tap, Wide, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _rule(centred: bool) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        name = lowering.whole(node_of(given["data_in_0"]))
        settings, stream = Settings.of(lowering, node, given), lowering.stream(name)
        over = settings.get("normalized_shape", stream.shape[-1:])
        if tuple(over if isinstance(over, tuple | list) else (over,)) != stream.shape[-1:]:
            raise NoHardware(f"it goes over {over}; over the last dimension alone there is hardware")
        source = in_order(lowering, name, torch.arange(stream.size))
        epsilon = settings.get("eps", 1e-5 if centred else torch.finfo(torch.float32).eps)
        options = {"centred": centred, "epsilon": float(epsilon)}
        return Unrounded("norm", (source,), node, lowering.weights(given), options)

    return rule


def _norm(design: Design, operation: Operation) -> Norm:
    """The arithmetic."""
    return _of(design.operations[operation.inputs[0]].out, operation.out, operation.constants, operation.options)


def _of(source: Stream, out: Stream, constants: Mapping[str, Constant], options: Mapping[str, Any]) -> Norm:
    weight, bias = (None if (found := constants.get(name)) is None else found.format for name in ("weight", "bias"))
    return Norm.fitting(out.shape[-1], source.format, out.format, weight, bias, options["centred"], options["epsilon"])


def _order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Row-major. NoHardware where its sums need more bits than there are."""
    try:
        _of(lowering.stream(unrounded.inputs[0]), out, unrounded.constants, unrounded.options)
    except ValueError as why:
        raise NoHardware(f"{why}; quantise its input to a narrower format") from why
    return row_major(lowering, unrounded, out)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    options = operation.options
    return maker.call(operation, integer_norm, source, weight, bias, formats, options["centred"], options["epsilon"])


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """One beat a cycle, but a row takes as long as its root."""
    length = operation.out.shape[-1]
    norm = _norm(design, operation)
    scaled = norm.centred and length & (length - 1) != 0
    products = 1 + (norm.weight is not None) + scaled
    for lanes in divisors(length):
        beats = length // lanes
        cycles = operation.out.size // length * max(beats, _root_width(norm, beats, lanes) + 2)
        yield Fold(lanes, lanes, cycles, products * lanes)


def _root_width(norm: Norm, beats: int, lanes: int) -> int:
    """Bits of the root, as `fixed_norm` works them out."""
    bits = (norm.size - 1).bit_length()
    centred = norm.data.width + (bits + 1 if norm.centred else 0)
    summed = 2 * centred + (beats - 1).bit_length() + (lanes - 1).bit_length()
    return (max(summed, norm.steps.bit_length()) + 2) // 2 + norm.root_fraction


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, out, norm = builder.folding.folds[operation.name], operation.out, _norm(builder.design, operation)
    source = builder.read(operation, fold.par_in)
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.format.width)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": norm.data.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": out.shape[-1],
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        "MEAN": int(norm.centred),
        "EPSILON": Wide(norm.steps),
        "ROOT_FRACTION": norm.root_fraction,
        "NORM_FRACTION": norm.norm_fraction,
        **precision("DATA_OUT_0", out.format),
    }
    for name in ("weight", "bias"):
        constant = operation.constants.get(name)
        parameters[f"HAS_{name.upper()}"] = int(constant is not None)
        if constant is not None:
            words = words_of_bias(constant.integers, constant.format.width, fold.par_out)
            parameters |= precision(name.upper(), constant.format)
            parameters[f"{name.upper()}_FILE"] = builder.memory(operation, name, fold.par_out, words)
    builder.instance(f"{operation.name}_i", "fixed_norm", parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


_RULES = {"layer_norm": _rule(True), "rms_norm": _rule(False)}

KIND = Kind("norm", _node, _build, _RULES, _order, _folds, reach_of_rows, mixes=1)
