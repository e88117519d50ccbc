"""Changes of sizes that an error suggests: channels, lengths, image sides that fit what the model's weights are for."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.flattened import flattened
from mase_server.inputs.searching.operands import CHANNELS, OPERANDS, Disagreement, elementwise
from mase_server.inputs.searching.tracking import operands
from mase_server.inputs.searching.trees import Path, named, put, resized, shape_of, tensors
from mase_server.inputs.spec import Inputs, TensorSpec

Changes = Iterator[Inputs]
Match = re.Match[str]


def agreements(failed: Failed) -> Changes:
    """Changes after which the operands of the failing call agree."""
    yield from _broadcast(failed)
    for each in _disagreements(failed):
        yield from _settled(failed, each)


def _disagreements(failed: Failed) -> Iterator[Disagreement]:
    row = OPERANDS.get(failed.trail.name)
    if row is None:
        return
    try:
        yield from (each for each in row(*failed.trail.args, **failed.trail.kwargs) if each.had != each.wanted)
    except (TypeError, IndexError, AttributeError, ValueError):
        return  # not called as the row expects


def _broadcast(failed: Failed) -> Changes:
    """Something handed over that meets a computed tensor takes its shape: trailing sizes, then all of them."""
    if OPERANDS.get(failed.trail.name) is not elementwise:
        return
    found = [value for value in operands(failed.trail) if value.dim()]
    for one, other in ((one, other) for one in found for other in found if one is not other):
        path, spec = failed.place(one), failed.leaf(one)
        if path is None or spec is None:
            continue
        shape = tuple(other.shape)
        options = [shape[-len(spec.dims) :], shape]
        if len(shape) == 4:
            options.insert(1, (shape[0], 1, *shape[2:]))
        for each in options:
            yield put(failed.inputs, path, TensorSpec(spec.dtype, named(failed.inputs, each), spec.fill, spec.argument))


def _settled(failed: Failed, told: Disagreement) -> Changes:
    paths = failed.sources(told.tensor) if told.tensor is not None else list(failed.specs)
    pairs = [(path, spec) for path in paths if isinstance(spec := failed.specs.get(path), TensorSpec)]
    if failed.trail.name in CHANNELS:
        yield from _moved(failed, told, pairs)
    direct = failed.leaf(told.tensor) if told.tensor is not None else None
    if direct is not None and told.tensor is not None:
        path = failed.place(told.tensor)
        if path is not None and told.at < len(direct.dims):
            yield from resized(failed.inputs, path, direct, told.at, told.wanted)
    for fit in (_same, _part_of_sum, _factor):
        for path, spec in pairs:
            for at, size in enumerate(shape_of(failed.inputs, spec)):
                value = None if at == 0 and len(spec.dims) > 1 else fit(size, told)
                if value is not None and _is_sound(failed, spec, at, value):
                    yield from resized(failed.inputs, path, spec, at, value)
    yield from flattened(failed, told.tensor, told.had, told.wanted, pairs)


def _moved(failed: Failed, told: Disagreement, pairs: Sequence[tuple[Path, TensorSpec]]) -> Changes:
    """Channels that are there, in another place: behind instead of in front, or the other way."""
    for path, spec in pairs:
        for at, other in ((1, len(spec.dims) - 1), (len(spec.dims) - 1, 1)):
            if len(spec.dims) > 2 and spec.dims[at] == told.wanted and isinstance(spec.dims[other], str):
                rest = [dim for index, dim in enumerate(spec.dims) if index != at]
                rest.insert(other, spec.dims[at])
                yield put(failed.inputs, path, replace(spec, dims=tuple(rest)))


def _is_sound(failed: Failed, spec: TensorSpec, at: int, value: int) -> bool:
    """Not a size that fits by chance: a length of one, or of the batch, or a number of tokens that are channels."""
    if isinstance(spec.dims[at], int):
        return True
    channels = failed.trail.name in CHANNELS
    return value > 1 and value != failed.inputs.sizes.get("B") and not (channels and spec.dtype.startswith("i"))


def _same(size: int, told: Disagreement) -> int | None:
    return told.wanted if size == told.had else None


def _part_of_sum(size: int, told: Disagreement) -> int | None:
    """What is joined with others: more or less by as much as is missing."""
    value = size + told.wanted - told.had
    return value if size < told.had and value > 0 else None


def _factor(size: int, told: Disagreement) -> int | None:
    """What is repeated: encodings of each coordinate, heads, groups."""
    times = told.had // size if size > 1 and told.had % size == 0 else 0
    return told.wanted // times if times > 1 and told.wanted % times == 0 else None


def _told(failed: Failed, match: Match) -> Changes:
    """Two sizes of a message: that which was there, and that which should be."""
    first, second = (int(group) for group in match.groups()[:2])
    tensor = next(iter(operands(failed.trail)), None)
    for had, wanted in ((second, first), (first, second)):
        yield from _settled(failed, Disagreement(tensor, -1, had, wanted))


def _shapes(failed: Failed, match: Match) -> Changes:
    """Two shapes of a message: what was handed over has the second and should have the first."""
    wanted, had = ([int(size) for size in re.findall(r"\d+", group)] for group in match.groups()[:2])
    for path, spec in tensors(failed.inputs):
        if list(shape_of(failed.inputs, spec)) == had:
            yield put(
                failed.inputs,
                path,
                TensorSpec(spec.dtype, named(failed.inputs, tuple(wanted)), spec.fill, spec.argument),
            )


def _larger(failed: Failed, match: Match) -> Changes:
    """Images, lengths and depths twice and more as large."""
    for step in range(3):
        grown = {
            symbol: next(itertools.islice((each for each in sorted(table) if each > size), step, None), size * 2)
            for symbol, size in failed.inputs.sizes.items()
            if (table := LARGER.get(symbol))
        }
        if grown and max(grown.values()) <= MAX_SIZE:
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **grown})


def _selecting(failed: Failed, match: Match) -> Changes:
    """A mask with as many elements as what it selects from, in as many dimensions as it has or in the first alone."""
    subject = failed.trail.args[0] if failed.trail.args else None
    for path, spec in failed.suspects():
        if spec.dtype == "bool" and isinstance(subject, torch.Tensor):
            for count in dict.fromkeys((len(spec.dims), 1)):
                dims = named(failed.inputs, tuple(subject.shape[:count]))
                yield put(failed.inputs, path, replace(spec, dims=dims, fill="ones"))


def _viewed(failed: Failed, match: Match) -> Changes:
    """`shape '[2, -1, 8]' is invalid for input of size 36`: sizes with which the numbers of elements agree."""
    sizes, count = [int(each) for each in match[1].split(",")], int(match[2])
    wanted = math.prod(size for size in sizes if size > 0)
    if not count:  # nothing is viewed, whatever its sizes
        return
    for path, spec in failed.suspects():
        for at, size in reversed(list(enumerate(shape_of(failed.inputs, spec)))):
            if at == 0 and len(spec.dims) > 1:
                continue
            if -1 in sizes:
                rest = count // size if count % size == 0 else 1
                yield from resized(failed.inputs, path, spec, at, wanted // math.gcd(wanted, rest))
            elif size * wanted % count == 0:
                yield from resized(failed.inputs, path, spec, at, size * wanted // count)
    side = math.sqrt(wanted / count)
    scaled = {
        symbol: round(failed.inputs.sizes[symbol] * side) for symbol in ("H", "W") if symbol in failed.inputs.sizes
    }
    if scaled and -1 not in sizes and min(scaled.values()) > 0:
        yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **scaled})


def _chunks(failed: Failed, match: Match) -> Changes:
    """`can't divide axis of length 32 in chunks of 7`: the next multiple."""
    length, chunk = int(match[1]), int(match[2])
    for path, spec in failed.suspects() if chunk else ():
        for at, size in enumerate(shape_of(failed.inputs, spec)):
            if size == length:
                for value in (math.ceil(length / chunk) * chunk, chunk):
                    yield from resized(failed.inputs, path, spec, at, value)


def _compared(failed: Failed, match: Match) -> Changes:
    """Sizes that the failing statement compares: made equal, within a limit, or divisible."""
    step = failed.clue.last()
    for node in ast.walk(step.node) if step else ():
        if step and isinstance(node, ast.Compare) and len(node.comparators) == 1:
            yield from _made_equal(failed, step.value(node.left), step.value(node.comparators[0]))
        if step and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            size, divisor = step.value(node.left), step.value(node.right)
            if _whole(size) and _whole(divisor) and size % divisor:
                yield from _settled(failed, Disagreement(None, -1, size, math.ceil(size / divisor) * divisor))


def _made_equal(failed: Failed, one: Any, other: Any) -> Changes:
    pairs = [(one, other)]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = list(zip(one, other, strict=True))
        both = {left: right for left, right in pairs if left != right}
        known = {symbol: both[size] for symbol, size in failed.inputs.sizes.items() if size in both}
        if known and all(map(_whole, known.values())):
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **known})
    for left, right in pairs:
        if _whole(left) and _whole(right) and left != right:
            yield from _settled(failed, Disagreement(None, -1, left, right))
            yield from _settled(failed, Disagreement(None, -1, right, left))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


#: Sizes of a symbol that is too small, and the largest that is tried.
LARGER: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("H", "W"), (64, 128, 224, 256, 512)),
    "L": (1024, 4096, 16000),
    **dict.fromkeys(("T", "S"), (32, 64, 128, 256, 1024)),
    "D": (32, 64),
    "N": (16, 64, 256, 1024),
}
MAX_SIZE = 32000

Row = tuple[str, Callable[[Failed, Match], Changes]]

#: Pattern of `Type: message` -> what could be changed. Every row that fits is asked, in order.
ROWS: tuple[Row, ...] = (
    (r"can't be greater than actual input size|[Oo]utput size is too small|smaller than kernel|should be less than the"
     r"|maximum size for tensor|not in range for dimension|non-empty|too small|Expected more than 1 ", _larger),
    (r"shape of the mask", _selecting),
    (r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", _viewed),
    (r"axis of length (\d+) in chunks of (\d+)", _chunks),
    (r"Expected \w*(?:\[\d\])? ?size \(([\d, ]+)\), got \[([\d, ]+)\]", _shapes),
    (r"should be \(([\d, ]+)\).*\[([\d, ]+)\]", _shapes),
    (r"Expected (\d+),? (?:but )?got:? (\d+)", _told),
    (r"to be (\d+), but got (\d+)", _told),
    (r"of (\d+),? but got (\d+)", _told),
    (r"input_size: got (\d+) expected (\d+)", _told),
    (r"to have (\d+) channels, but got (\d+)", _told),
    (r"must be (\d+).*, got (\d+)", _told),
    (r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", _told),
    (r"tensor \((\d+)\) must match the existing size \((\d+)\)", _told),
    (r"X1: (\d+) X2: (\d+)", _told),
    (r"parameter numbers = (\d+) and channel size = (\d+)", _told),
    (r"has size (\d+) for operand \d.* seen size (\d+)", _told),
    (r"\(\d+x(\d+) and (\d+)x\d+\)", _told),
    (r"^(?:AssertionError|ValueError|RuntimeError|Exception|NotImplementedError)", _compared),
)  # fmt: skip
