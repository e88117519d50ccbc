"""Masks: scores that a softmax leaves out. Masks that depend on no input are stored in the hardware."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Stream
from mase_server.hardware.held import Held, Known, Masked, NoHardware, Unrounded, Whole
from mase_server.hardware.kinds.entry import constant_stream
from mase_server.ir.number_formats import format_text

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: In float32, exp of anything below this is 0.
_VANISHES = -104.0
#: Zeros and ones.
_FLAGS = FixedPoint(2, 0)


def masked_fill(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """masked_fill(x, mask, value)."""
    arguments = dict(zip(("input", "mask", "value"), node.args, strict=False)) | node.kwargs
    mask = _known_mask(lowering, arguments["mask"])
    return fill_by_mask(lowering, node, arguments["input"], mask, fill_number(lowering, arguments["value"]))


def lower_masked_where(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """where(mask, x, value), or where(mask, value, x)."""
    if len(node.args) != 3 or node.op != "call_function":
        raise NoHardware("it returns indices, or is called as a method; torch.where(mask, x, value) has hardware")
    mask, first, second = node.args
    kept = _known_mask(lowering, mask)
    if isinstance(second, fx.Node) and lowering.values(second) is None:
        return fill_by_mask(lowering, node, second, kept, fill_number(lowering, first))
    return fill_by_mask(lowering, node, first, ~kept, fill_number(lowering, second))


def fill_by_mask(lowering: Lowering, node: fx.Node, source: Any, mask: Tensor, value: float) -> Held:
    """Fill some elements with a number: minus infinity, an equally low number, or zero."""
    if not isinstance(source, fx.Node) or lowering.values(source) is not None:
        raise NoHardware("it fills a number into a constant")
    held, left_out = lowering.held[source], lowering.same_for_all(mask.bool(), node)
    if not left_out.any() and lowering.facts[source].shape == lowering.facts[node].shape:
        return held
    name = held.source if isinstance(held, Masked) else lowering.whole(source)
    if lowering.stream(name).shape != left_out.shape:
        raise NoHardware(
            f"its mask has {list(left_out.shape)} a sample, and its tensor {list(lowering.stream(name).shape)}"
        )
    if value == 0 and isinstance(held, Whole):
        return _clear_by_mask(lowering, node, name, left_out)
    if not is_vanishing(value, lowering.stream(name)):
        raise NoHardware(f"it fills in {value}; only minus infinity before a softmax, and 0, have hardware")
    if value != -math.inf and left_out.all(-1).any():
        raise NoHardware(f"a row is filled with {value} from end to end, where a softmax gives equal weights")
    return Masked(name, left_out | held.mask if isinstance(held, Masked) else left_out)


def is_vanishing(value: float, stream: Stream) -> bool:
    """Is a number so low that it vanishes in a softmax beside any value of a stream?"""
    return value < _VANISHES - _value_range(stream)


def add_mask(lowering: Lowering, node: fx.Node, scores: fx.Node, mask: Tensor) -> Held:
    """Scores plus a constant: entries as low as minus infinity are a mask, the rest is a bias."""
    held = lowering.held[scores]
    stream = lowering.stream(held.source if isinstance(held, Masked) else lowering.whole(scores))
    low = float(mask.min())
    left_out = (
        mask < _VANISHES - _value_range(stream)
        if is_vanishing(low, stream)
        else torch.zeros_like(mask, dtype=torch.bool)
    )
    rest = mask.masked_fill(left_out, 0.0)
    if not rest.any():
        return fill_by_mask(lowering, node, scores, left_out, low) if low else held
    sum_ = _add_bias(lowering, node, held.source if isinstance(held, Masked) else lowering.whole(scores), rest)
    if not isinstance(held, Masked) and not left_out.any():
        rounded = any(format_text(user) for user in node.users)
        return sum_ if rounded else lowering.add(sum_, stream.format)
    before = held.mask if isinstance(held, Masked) else torch.tensor(False)
    name = lowering.add(sum_, stream.format).operation
    return Masked(name, (lowering.same_for_all(left_out, node) | before).expand(lowering.sample(node)))


def _add_bias(lowering: Lowering, node: fx.Node, name: str, rest: Tensor) -> Unrounded:
    """Scores plus a constant bias. The bias was in one tensor with a mask, so it is not rounded yet: it gets the
    scores' format."""
    stream = lowering.stream(name)
    values = Constant(stream.format.encode(lowering.same_for_all(rest, node)), stream.format)
    like = Stream(stream.format, stream.shape, stream.order)
    sources = name, constant_stream(lowering, node, values, like)
    return Unrounded("elementwise", sources, node, options={"function": "add", "relu": False})


def _value_range(stream: Stream) -> float:
    """The difference between the highest and the lowest value of a stream."""
    low, high = (float(each) for each in stream.format.decode(torch.tensor(stream.format.integers)))
    return high - low


def lower_masked_equal(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """The masked scores: those that equal minus infinity."""
    held = lowering.held[node.all_input_nodes[0]]
    if not isinstance(held, Masked) or node.args[1:] != (-math.inf,):
        raise NoHardware("it compares values that depend on the inputs; only constant masks have hardware")
    layout, shape = lowering.layout(node), lowering.facts[node].shape
    return Known(layout.joined(held.mask.expand(layout.samples, *held.mask.shape), shape))


def _clear_by_mask(lowering: Lowering, node: fx.Node, name: str, mask: Tensor) -> Held:
    """Zero where the mask is true: a softmax already gives zeros in rows that are masked completely."""
    operation, stream = lowering.operations[name], lowering.stream(name)
    if operation.kind == "softmax" and "mask" in operation.constants:
        rows = operation.constants["mask"].integers.bool().all(-1, keepdim=True)
        if bool((rows.expand_as(mask) | ~mask).all()):
            return Whole(name)
    kept = Constant((~mask).long(), _FLAGS)
    sources = name, constant_stream(lowering, node, kept, Stream(_FLAGS, stream.shape, stream.order))
    unrounded = Unrounded("elementwise", sources, node, options={"function": "mul", "relu": False})
    return lowering.add(unrounded, stream.format)


def _known_mask(lowering: Lowering, mask: Any) -> Tensor:
    values = lowering.values(mask) if isinstance(mask, fx.Node) else None
    if values is None:
        raise NoHardware("its mask depends on the inputs; only a constant mask, e.g. a causal one, has hardware")
    return values.bool()


def fill_number(lowering: Lowering, value: Any) -> float:
    """The number to fill in. NoHardware for a tensor of several numbers, or one that depends on the inputs."""
    values = lowering.values(value) if isinstance(value, fx.Node) else None
    if values is not None and values.numel() == 1:
        return float(values)
    if not isinstance(value, int | float):
        raise NoHardware("its fill value is no number")
    return float(value)
