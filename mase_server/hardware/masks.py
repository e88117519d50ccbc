"""Masks: what a softmax leaves out. Those that depend on no input stand in the hardware."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Stream
from mase_server.hardware.held import Held, Known, Masked, NoHardware, Unrounded, Whole
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.ir.number_formats import format_text

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: In float32, exp of anything below is 0.
_VANISHES = -104.0
#: Zeros and ones.
_FLAGS = FixedPoint(2, 0)


def masked_fill(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """masked_fill(x, mask, value)."""
    arguments = dict(zip(("input", "mask", "value"), node.args, strict=False)) | node.kwargs
    mask = _known(lowering, arguments["mask"])
    return filled(lowering, node, arguments["input"], mask, number(lowering, arguments["value"]))


def where(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """where(mask, x, value), or the other way round."""
    if len(node.args) != 3 or node.op != "call_function":
        raise NoHardware("it gives places, or is called as a method; torch.where(mask, x, value) has hardware")
    mask, first, second = node.args
    kept = _known(lowering, mask)
    if isinstance(second, fx.Node) and lowering.values(second) is None:
        return filled(lowering, node, second, kept, number(lowering, first))
    return filled(lowering, node, first, ~kept, number(lowering, second))


def filled(lowering: Lowering, node: fx.Node, source: Any, mask: Tensor, value: float) -> Held:
    """What a node gives with a number in place of some elements: minus infinity, or what is as low, and zero."""
    if not isinstance(source, fx.Node) or lowering.values(source) is not None:
        raise NoHardware("it fills in a number where a constant is")
    held, left_out = lowering.held[source], lowering.same_for_all(mask.bool(), node)
    if not left_out.any() and lowering.facts[source].shape == lowering.facts[node].shape:
        return held
    name = held.source if isinstance(held, Masked) else lowering.whole(source)
    if lowering.stream(name).shape != left_out.shape:
        raise NoHardware(
            f"its mask has {list(left_out.shape)} a sample, and what it fills {list(lowering.stream(name).shape)}"
        )
    if value == 0 and isinstance(held, Whole):
        return _cleared(lowering, node, name, left_out)
    if not vanishes(value, lowering.stream(name)):
        raise NoHardware(f"it fills in {value}; minus infinity before a softmax, and 0, have hardware")
    if value != -math.inf and left_out.all(-1).any():
        raise NoHardware(f"a row is filled with {value} from end to end, where a softmax gives equal weights")
    return Masked(name, left_out | held.mask if isinstance(held, Masked) else left_out)


def vanishes(value: float, stream: Stream) -> bool:
    """Is a number so low that nothing is left of it in a softmax beside any value of a stream?"""
    return value < _VANISHES - _range(stream)


def added(lowering: Lowering, node: fx.Node, scores: fx.Node, mask: Tensor) -> Held:
    """Scores with a constant: what is as low as minus infinity in it is a mask, the rest a bias."""
    held = lowering.held[scores]
    stream = lowering.stream(held.source if isinstance(held, Masked) else lowering.whole(scores))
    low = float(mask.min())
    left_out = mask < _VANISHES - _range(stream) if vanishes(low, stream) else torch.zeros_like(mask, dtype=torch.bool)
    rest = mask.masked_fill(left_out, 0.0)
    if not rest.any():
        return filled(lowering, node, scores, left_out, low) if low else held
    sum_ = _biased(lowering, node, held.source if isinstance(held, Masked) else lowering.whole(scores), rest)
    if not isinstance(held, Masked) and not left_out.any():
        rounded = any(format_text(user) for user in node.users)
        return sum_ if rounded else lowering.add(sum_, stream.format)
    before = held.mask if isinstance(held, Masked) else torch.tensor(False)
    name = lowering.add(sum_, stream.format).operation
    return Masked(name, (lowering.same_for_all(left_out, node) | before).expand(lowering.sample(node)))


def _biased(lowering: Lowering, node: fx.Node, name: str, rest: Tensor) -> Unrounded:
    """Scores and a constant bias that stood in one tensor with a mask, so that nobody has rounded it: it gets their
    format."""
    stream = lowering.stream(name)
    values = Constant(stream.format.encode(lowering.same_for_all(rest, node)), stream.format)
    like = Stream(stream.format, stream.shape, stream.order)
    sources = name, constant_stream(lowering, node, values, like)
    return Unrounded("elementwise", sources, node, options={"function": "add", "relu": False})


def _range(stream: Stream) -> float:
    """How far apart the values of a stream can be."""
    low, high = (float(each) for each in stream.format.decode(torch.tensor(stream.format.integers)))
    return high - low


def equal(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Which scores are minus infinity: those that are masked."""
    held = lowering.held[node.all_input_nodes[0]]
    if not isinstance(held, Masked) or node.args[1:] != (-math.inf,):
        raise NoHardware("it compares values that depend on the inputs; masks that depend on none have hardware")
    layout, shape = lowering.layout(node), lowering.facts[node].shape
    return Known(layout.joined(held.mask.expand(layout.samples, *held.mask.shape), shape))


def _cleared(lowering: Lowering, node: fx.Node, name: str, mask: Tensor) -> Held:
    """Zero where the mask is true: a softmax has zeros already in rows that are left out whole."""
    operation, stream = lowering.operations[name], lowering.stream(name)
    if operation.kind == "softmax" and "mask" in operation.constants:
        rows = operation.constants["mask"].integers.bool().all(-1, keepdim=True)
        if bool((rows.expand_as(mask) | ~mask).all()):
            return Whole(name)
    kept = Constant((~mask).long(), _FLAGS)
    sources = name, constant_stream(lowering, node, kept, Stream(_FLAGS, stream.shape, stream.order))
    unrounded = Unrounded("elementwise", sources, node, options={"function": "mul", "relu": False})
    return lowering.add(unrounded, stream.format)


def _known(lowering: Lowering, mask: Any) -> Tensor:
    values = lowering.values(mask) if isinstance(mask, fx.Node) else None
    if values is None:
        raise NoHardware("its mask depends on the inputs; a mask that depends on none, e.g. a causal one, has hardware")
    return values.bool()


def number(lowering: Lowering, value: Any) -> float:
    """What is filled in. NoHardware for a tensor of several numbers, or that depends on the inputs."""
    values = lowering.values(value) if isinstance(value, fx.Node) else None
    if values is not None and values.numel() == 1:
        return float(values)
    if not isinstance(value, int | float):
        raise NoHardware("what it fills in is no number")
    return float(value)
