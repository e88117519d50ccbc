"""Changes of sizes that an error suggests: channels, lengths, image sides that fit what the model's weights are for."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mase_server.inputs.failed import Failed
from mase_server.inputs.flattened import flattened
from mase_server.inputs.spec import Inputs, TensorSpec
from mase_server.inputs.tracking import operands
from mase_server.inputs.trees import named, put, resized, shape_of, size_of, tensors

Changes = Iterator[Inputs]
Match = re.Match[str]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A size that a call had and one that it wanted instead. tensor: whose size, in its dimension `at`."""

    tensor: torch.Tensor | None
    at: int
    had: int
    wanted: int


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


# ------------------------------------------------------------ operands of the failing call


def _linear(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    yield Disagreement(input, input.dim() - 1, input.shape[-1], weight.shape[-1])


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Any = None, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    groups = options.get("groups", more[3] if len(more) > 3 and isinstance(more[3], int) else 1)
    yield Disagreement(input, 1, input.shape[1], weight.shape[1] * groups)


def _transposed(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    yield Disagreement(input, 1, input.shape[1], weight.shape[0])


def _batch_norm(input: torch.Tensor, running_mean: Any = None, *more: Any, **options: Any) -> Iterator[Disagreement]:
    if running_mean is not None:
        yield Disagreement(input, 1, input.shape[1], running_mean.shape[0])


def _layer_norm(input: torch.Tensor, shape: Sequence[int], *more: Any, **options: Any) -> Iterator[Disagreement]:
    for back in range(1, len(shape) + 1):
        yield Disagreement(input, input.dim() - back, input.shape[-back], shape[-back])


def _group_norm(
    input: torch.Tensor, groups: int, weight: Any = None, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    yield Disagreement(input, 1, input.shape[1], weight.shape[0] if weight is not None else groups)


def _product(left: torch.Tensor, right: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    inner = right.shape[-2] if right.dim() > 1 else right.shape[0]
    yield Disagreement(left, left.dim() - 1, left.shape[-1], inner)
    yield Disagreement(right, max(0, right.dim() - 2), inner, left.shape[-1])
    if left.dim() == right.dim() and left.dim() > 2:
        yield Disagreement(left, 0, left.shape[0], right.shape[0])


def _joined(parts: Sequence[torch.Tensor], dim: int = 0, *more: Any, **options: Any) -> Iterator[Disagreement]:
    first, *others = parts
    along = dim % first.dim()
    for other, at in ((other, at) for other in others for at in range(first.dim()) if at != along):
        yield Disagreement(other, at, other.shape[at], first.shape[at])
        yield Disagreement(first, at, first.shape[at], other.shape[at])


def _elementwise(*values: Any, **options: Any) -> Iterator[Disagreement]:
    found = [value for value in values if isinstance(value, torch.Tensor) and value.dim()]
    for one, other in ((one, other) for one in found for other in found if one is not other):
        for back in range(1, min(one.dim(), other.dim()) + 1):
            if 1 not in (one.shape[-back], other.shape[-back]):
                yield Disagreement(one, one.dim() - back, one.shape[-back], other.shape[-back])


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, width: int = 0, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    for each in (query, key, value):
        if width:
            yield Disagreement(each, each.dim() - 1, each.shape[-1], width)
    yield from _elementwise(query, key)
    yield from _elementwise(key, value)


#: Plain name of a callable -> sizes of its operands that should agree, from the arguments of a call.
OPERANDS: dict[str, Callable[..., Iterator[Disagreement]]] = {
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("batch_norm", "instance_norm"), _batch_norm),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "group_norm": _group_norm,
    **dict.fromkeys(("matmul", "mm", "bmm", "rmatmul"), _product),
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    "stack": lambda parts, *more, **options: _elementwise(*parts),
    **dict.fromkeys(
        ("add", "sub", "mul", "truediv", "div", "where", "masked_fill", "masked_fill_", "addcmul", "maximum", "minimum",
         "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "eq",
         "cosine_similarity", "pairwise_distance", "cdist", "lerp", "pow", "and", "or", "lt", "logical_and", "einsum"),
        _elementwise,
    ),
    **dict.fromkeys(("multi_head_attention_forward", "scaled_dot_product_attention"), _attention),
    "bilinear": lambda one, other, weight, *more: iter(
        (Disagreement(one, one.dim() - 1, one.shape[-1], weight.shape[1]),
         Disagreement(other, other.dim() - 1, other.shape[-1], weight.shape[2]))
    ),
}  # fmt: skip


#: Calls that disagree about channels or features, never about how many tokens there are.
CHANNELS = frozenset(OPERANDS) - {name for name, row in OPERANDS.items() if row in (_elementwise, _joined, _product)}


def _broadcast(failed: Failed) -> Changes:
    """Something handed over that meets a computed tensor takes its shape: trailing sizes, then all of them."""
    if OPERANDS.get(failed.trail.name) is not _elementwise:
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


# ------------------------------------------------------------ sizes of what was handed over


def _settled(failed: Failed, told: Disagreement) -> Changes:
    paths = failed.sources(told.tensor) if told.tensor is not None else list(failed.specs)
    pairs = [(path, spec) for path in paths if isinstance(spec := failed.specs.get(path), TensorSpec)]
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


def _viewed(failed: Failed, match: Match) -> Changes:
    """`shape '[2, -1, 8]' is invalid for input of size 36`: sizes with which the numbers of elements agree."""
    sizes, count = [int(each) for each in match[1].split(",")], int(match[2])
    wanted = math.prod(size for size in sizes if size > 0)
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
    for path, spec in failed.suspects():
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


def _tokens_of_image(failed: Failed, match: Match) -> Changes:
    """Height and width that are handed over as numbers make as many tokens as there are."""
    yield from (
        Inputs(failed.inputs.entries, {**failed.inputs.sizes, symbol: size_of(failed.inputs, symbol) * 2})
        for symbol in failed.inputs.sizes
        if symbol in ("H", "W")
    )


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
