"""Comparisons, logic, and choices by them: streams of zeros and ones, in fixed(2,0)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware import masks
from mase_server.hardware.composed.steps import Steps, format_of_both, saturated_format
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Barred, Held, Known, Masked, NoHardware, Whole, node_of
from mase_server.hardware.indices import FLAGS, as_input, possible_values
from mase_server.hardware.kinds import RULES
from mase_server.hardware.kinds.kind import Rule
from mase_server.ir.number_formats import operator_of
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: A number this far below every score has an exp of less than half a step of the table: it vanishes in a softmax.
_NOTHING = 11

_COMPARED: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "gt": torch.gt, "greater": torch.gt, "ge": torch.ge, "lt": torch.lt, "less": torch.lt, "le": torch.le,
    "eq": torch.eq, "ne": torch.ne, "not_equal": torch.ne,
}  # fmt: skip


def stream_of(lowering: Lowering, node: fx.Node, reader: fx.Node) -> str:
    """The stream of a tensor that a node reads; also of an unrounded input of integers or flags."""
    held = lowering.held[node]
    if isinstance(held, Whole):
        return held.operation
    if isinstance(held, Known | Constant | Masked | Barred):
        raise NoHardware(f"{node.name} is a constant or a mask where a stream is needed")
    name = as_input(lowering, node)
    before = lowering.stream(name).format
    if before.is_signed:
        return name
    return Steps(lowering, reader).table(name, torch.clone, FixedPoint(before.width + 1, before.fraction_width))


def _lower_cast(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Numbers do not change under another type; integers and flags can become floats, numbers can become flags."""
    source = node_of(given["data_in_0"])
    before, after = (_dtype_sort(lowering.facts[each].dtype) for each in (source, node))
    if after == before:
        lowering.same_places(node, source)
        return lowering.held[source]
    if before not in ("bool", "int") and after != "bool":
        words = f"it converts its input to {lowering.facts[node].dtype}, whose rounding no component has"
        raise NoHardware(words)
    name = stream_of(lowering, source, node)
    if after == "bool":
        return Whole(Steps(lowering, node).table(name, lambda values: (values != 0).double(), FLAGS))
    lowering.same_places(node, source)
    return Whole(name)


def _dtype_sort(dtype: str) -> str:
    """Bool, int or float; half precision is a type of its own, because it rounds."""
    if dtype in ("float32", "float64"):
        return "float"
    return "int" if dtype.startswith(("int", "uint")) else dtype


def _lower_comparison(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Compare a tensor with a number by a table, and two tensors by a table of their difference."""
    operands = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType)]
    if any(isinstance(lowering.held[each], Masked) for each in operands):
        return masks.lower_masked_equal(lowering, node, given)
    steps, name = Steps(lowering, node), operator_of(node, lowering.model)
    streams = [each for each in operands if lowering.values(each) is None]
    if len(operands) == 1:
        single = operands[0]
        return Whole(
            steps.table(stream_of(lowering, single, node), _function_of_operand(lowering, node, single), FLAGS)
        )
    ranks = {len(lowering.facts[each].shape) for each in streams}
    if len(ranks) > 1:
        raise NoHardware("its operands have different numbers of dimensions; unsqueeze one of them")
    first = stream_of(lowering, streams[0], node)
    if len(streams) == 2:
        difference = _difference_stream(steps, first, stream_of(lowering, streams[1], node))
        return Whole(steps.table(difference, _than_zero(_COMPARED[name]), FLAGS))
    constant = next(each for each in operands if each not in streams)
    swapped = node.args[0] is constant
    return Whole(
        _with_constant(
            steps, first, _constant_beside_sample(steps, constant), _MIRRORED.get(name, name) if swapped else name
        )
    )


#: The comparison of y and x that is equivalent to one of x and y.
_MIRRORED = {"gt": "lt", "greater": "lt", "lt": "gt", "less": "gt", "ge": "le", "le": "ge"}


def _function_of_operand(lowering: Lowering, node: fx.Node, source: fx.Node) -> Callable[[Tensor], Tensor]:
    return lambda values: lowering.evaluated(node, {source: values}).double()


def _than_zero(function: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda values: function(values, 0.0).double()


def _difference_stream(steps: Steps, first: str, second: str) -> str:
    """The difference, with the sign of the exact one even if it saturates."""
    exact = format_of_both(steps.stream(first).format, steps.stream(second).format)
    return steps.paired("sub", first, second, saturated_format(FixedPoint(exact.width + 1, exact.fraction_width)))


def _constant_beside_sample(steps: Steps, node: fx.Node) -> Tensor:
    """A constant, as it is beside one sample of the result."""
    values = steps.lowering.values(node)
    assert values is not None
    return steps.lowering.same_for_all(values, steps.node)


def _with_constant(steps: Steps, name: str, constant: Tensor, operator: str) -> str:
    """x > c is x > floor(c) in steps of x, and x >= c is x >= ceil(c); a value that is no step equals nothing."""
    format = steps.stream(name).format
    low, high = format.integers
    exact = constant.double() * 2.0**format.fraction_width
    whole = exact.ceil() if operator in ("ge", "lt", "less") else exact.floor()
    if operator in ("eq", "ne", "not_equal"):
        whole = torch.where(exact == exact.round(), exact, float(high + 1))
    wide = FixedPoint(format.width + 2, format.fraction_width)
    values = wide.decode(whole.clamp(low - 1, high + 1).to(torch.int64))
    other = steps.constant(values, wide, tuple(values.shape), None)
    difference = steps.paired("sub", name, other, saturated_format(FixedPoint(wide.width + 1, wide.fraction_width)))
    return steps.table(difference, _than_zero(_COMPARED[operator]), FLAGS)


def _lower_inversion(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    steps, source = Steps(lowering, node), node.all_input_nodes[0]
    if lowering.facts[source].dtype != "bool":
        raise NoHardware("it inverts the bits of integers; only flags have hardware")
    return Whole(invert_flags(steps, stream_of(lowering, source, node)))


def invert_flags(steps: Steps, flags: str) -> str:
    """One where flags are zero, zero where they are one."""
    return steps.table(flags, lambda values: 1 - values, FLAGS)


def _logic_rule(function: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        if any(lowering.facts[each].dtype != "bool" for each in node.all_input_nodes):
            raise NoHardware("it combines the bits of integers; only flags have hardware")
        steps = Steps(lowering, node)
        first, second = (_flag_stream(steps, each) for each in node.all_input_nodes)
        # "or" is the sum of two flags, which saturates at one; "xor" is the square of their difference.
        if function == "xor":
            difference = steps.paired("sub", first, second)
            return Whole(steps.table(difference, torch.abs, FLAGS))
        return Whole(steps.paired("mul" if function == "and" else "add", first, second, FLAGS))

    return rule


def _flag_stream(steps: Steps, node: fx.Node) -> str:
    """Flags, which may be constant."""
    if steps.lowering.values(node) is None:
        return stream_of(steps.lowering, node, steps.node)
    values = _constant_beside_sample(steps, node).double()
    return steps.constant(values, FLAGS, tuple(values.shape))


def _masked_fill(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    arguments = dict(zip(("input", "mask", "value"), node.args, strict=False)) | node.kwargs
    source, mask = arguments["input"], arguments["mask"]
    if not isinstance(source, fx.Node) or not isinstance(mask, fx.Node) or lowering.values(mask) is not None:
        return masks.masked_fill(lowering, node, given)
    value, steps = masks.fill_number(lowering, arguments["value"]), Steps(lowering, node)
    flags = stream_of(lowering, mask, node)
    return fill_by_flags(steps, source, flags, value)


def fill_by_flags(steps: Steps, source: fx.Node, flags: str, value: float) -> Held:
    """A tensor with a number wherever flags are one."""
    held, lowering = steps.lowering.held[source], steps.lowering
    if (known := lowering.values(source)) is not None:
        if bool((known == 0).all()) and value < _LOW:
            return Barred(flags)
        raise NoHardware("it fills a number into a constant")
    name = held.source if isinstance(held, Masked) else lowering.whole(source)
    if value >= _LOW or not masks.is_vanishing(value, lowering.stream(name)):
        if isinstance(held, Masked):
            raise NoHardware(f"it fills {value} into scores that are masked")
        return Whole(_choose_by_flags(steps, flags, value, name))
    made = bar_scores(steps, name, flags)
    return Masked(made, held.mask) if isinstance(held, Masked) else Whole(made)


#: Fill values below this are meant as minus infinity.
_LOW = -1e3


def bar_scores(steps: Steps, name: str, flags: str) -> str:
    """Scores that are so low wherever flags are one that they vanish in a softmax."""
    format = steps.stream(name).format
    steps_below = _NOTHING << max(format.fraction_width, 0) if format.fraction_width >= 0 else _NOTHING
    lowest = format.integers[0] - steps_below
    width = (-lowest - 1).bit_length() + 1
    if width > 16:
        raise NoHardware(f"scores of {format} leave no room for what is masked out in 16 bits; use fewer bits for them")
    wide = FixedPoint(width, format.fraction_width)
    low = float(wide.decode(torch.tensor(lowest)))
    kept = steps.paired("mul", name, invert_flags(steps, flags), format)
    return steps.paired("add", kept, steps.table(flags, lambda values: values * low, wide), wide)


def _choose_by_flags(steps: Steps, flags: str, first: float | str, second: float | str) -> str:
    """The first where flags are one, else the second; one of them is a stream, whose format the result has."""
    formats = [steps.stream(each).format for each in (first, second) if isinstance(each, str)]
    format = formats[0] if len(formats) == 1 or formats[0] == formats[-1] else format_of_both(*formats)
    parts = []
    for value, where in ((first, flags), (second, invert_flags(steps, flags))):
        if isinstance(value, str):
            parts.append(steps.paired("mul", value, where, format))
        elif value:
            parts.append(steps.table(where, _times_value(value), format))
    return parts[0] if len(parts) == 1 else steps.paired("add", parts[0], parts[1], format)


def _times_value(value: float) -> Callable[[Tensor], Tensor]:
    return lambda values: values * value


def _lower_where(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    mask, *choices = node.args
    if len(choices) != 2 or not isinstance(mask, fx.Node) or lowering.values(mask) is not None:
        return masks.lower_masked_where(lowering, node, given)
    steps = Steps(lowering, node)
    flags = stream_of(lowering, mask, node)
    values = [_choice_operand(steps, each) for each in choices]
    numbers = [each for each in values if isinstance(each, float)]
    if len(numbers) == 2:
        raise NoHardware("it chooses between two numbers; multiply the condition, as numbers, and add")
    if numbers and numbers[0] < _LOW:
        place = values.index(numbers[0])
        source = choices[1 - place]
        assert isinstance(source, fx.Node)
        return fill_by_flags(steps, source, flags if place == 0 else invert_flags(steps, flags), numbers[0])
    return Whole(_choose_by_flags(steps, flags, *values))


def _choice_operand(steps: Steps, value: Any) -> float | str:
    """A number, or the stream of a tensor, also of a constant one."""
    if not isinstance(value, fx.Node):
        return float(value)
    known, held = steps.lowering.values(value), steps.lowering.held[value]
    if known is None:
        return steps.lowering.whole(value)
    if known.numel() == 1:
        return float(known)
    if not isinstance(held, Constant):
        raise NoHardware(f"{value.name} is not rounded to fixed point; quantise it first, e.g. to fixed(8,4)")
    values = _constant_beside_sample(steps, value)
    return steps.constant(values, held.format, tuple(values.shape))


def with_barred(lowering: Lowering, node: fx.Node, scores: fx.Node, mask: Barred) -> Held:
    """Scores plus minus infinity wherever flags are one."""
    held, steps = lowering.held[scores], Steps(lowering, node)
    if isinstance(held, Masked):
        return Masked(bar_scores(steps, held.source, mask.flags), held.mask)
    return Whole(bar_scores(steps, lowering.whole(scores), mask.flags))


def _lower_addition(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    operands = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType)]
    if len(operands) == 2:
        for scores, other in (operands, operands[::-1]):
            if isinstance(mask := lowering.held[other], Barred):
                return with_barred(lowering, node, scores, mask)
            if isinstance(mask, Whole) and _is_low_or_nothing(lowering, mask.operation):
                low = Steps(lowering, node).table(mask.operation, lambda values: (values < _LOW).double(), FLAGS)
                return with_barred(lowering, node, scores, Barred(low))
    return RULES["add"](lowering, node, given)


def _is_low_or_nothing(lowering: Lowering, name: str) -> bool:
    """Is a stream an additive mask, of zeros and numbers as low as minus infinity?"""
    values = possible_values(lowering, name)
    return values is not None and bool(((values == 0) | (values < _LOW)).all()) and bool((values < _LOW).any())


_AND = ("bitwise_and", "logical_and", "and")
_OR = ("bitwise_or", "logical_or", "or")

COMPOSED: Mapping[str, Rule] = {
    **dict.fromkeys(_COMPARED, _lower_comparison),
    **dict.fromkeys(("invert", "bitwise_not", "logical_not", "not"), _lower_inversion),
    **dict.fromkeys(_AND, _logic_rule("and")),
    **dict.fromkeys(_OR, _logic_rule("or")),
    **dict.fromkeys(("bitwise_xor", "logical_xor"), _logic_rule("xor")),
    **dict.fromkeys(("masked_fill", "masked_fill_"), _masked_fill),
    **dict.fromkeys(("to", "float", "double", "type", "type_as", "bool", "int", "long", "cast"), _lower_cast),
    "where": _lower_where,
    "add": _lower_addition,
}
