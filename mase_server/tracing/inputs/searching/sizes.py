"""Changes of sizes that an error suggests: channels, lengths, and image sides that fit the model's weights."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from mase_server.tracing.inputs.searching.failures import Failed, is_check
from mase_server.tracing.inputs.searching.operands import (
    CHANNELS,
    MOST_RANK,
    OPERANDS,
    Disagreement,
    compare_elementwise,
    list_operands,
)
from mase_server.tracing.inputs.searching.trees import (
    Path,
    iterate_tensor_specs,
    name_sizes,
    put_member,
    resize_dimension,
    shape_of,
    size_of,
)
from mase_server.tracing.inputs.spec import Inputs, TensorSpec
from mase_server.tracing.models.clues import Step
from mase_server.tracing.models.names import usual_inputs

Changes = Iterator[Inputs]
Match = re.Match[str]


def propose_agreements(failed: Failed) -> Changes:
    """Changes after which the operands of the failing call agree."""
    yield from _propose_broadcasts(failed)
    for each in _find_disagreements(failed):
        yield from _settle_disagreement(failed, each)


def _find_disagreements(failed: Failed) -> Iterator[Disagreement]:
    row = OPERANDS.get(failed.trail.name)
    if row is None:
        return
    try:
        yield from (each for each in row(*failed.trail.args, **failed.trail.kwargs) if each.had != each.wanted)
    except (TypeError, IndexError, AttributeError, ValueError):
        return  # not called as the row expects


def _propose_broadcasts(failed: Failed) -> Changes:
    """An input that meets another tensor takes its shape: its sizes above one, trailing sizes, then all of them.

    A tensor that has the shape of the one input that it is computed from counts as that input.
    """
    if OPERANDS.get(failed.trail.name) is not compare_elementwise:
        return
    found = [value for value in list_operands(failed.trail) if value.dim()]
    for one, other in ((one, other) for one in found for other in found if one is not other):
        path = failed.place(one) or _find_input_of_shape(failed, one)
        spec = failed.specs.get(path or ())
        if path is None or not isinstance(spec, TensorSpec):
            continue
        shape = tuple(other.shape)
        if "mask" in str(path[-1]).lower() and len(shape) > 2 and spec.fill in ("", "ones"):
            # One mask for all channels, for all heads, or for all features of each token.
            is_of_tokens = len(shape) == 3 and one.shape[1:2] == shape[1:2] != shape[2:]
            sizes = (*shape[:2], 1) if is_of_tokens else (shape[0], 1, *shape[2:])
            dtype = "f32" if failed.trail.name == "mul" else spec.dtype
            yield put_member(failed.inputs, path, TensorSpec(dtype, name_sizes(failed.inputs, sizes), "ones"))
        options = [shape[-len(spec.dims) :], shape]
        if len(shape) == 4:
            options.insert(1, (shape[0], 1, *shape[2:]))
        if len(shape) == one.dim():
            own = tuple(one.shape)
            options.insert(0, tuple(size if wanted == 1 else wanted for size, wanted in zip(own, shape, strict=True)))
        for each in options:
            changed = TensorSpec(spec.dtype, name_sizes(failed.inputs, each), spec.fill, spec.argument)
            yield put_member(failed.inputs, path, changed)
            twins = [twin for twin, held in failed.specs.items() if held == spec]
            if len(twins) > 1:  # inputs that are alike often have to stay so
                yield functools.reduce(lambda inputs, twin: put_member(inputs, twin, changed), twins, failed.inputs)


def _find_input_of_shape(failed: Failed, tensor: torch.Tensor) -> Path | None:
    """The one input that a tensor is computed from, if they have the same shape."""
    paths = failed.sources(tensor)
    spec = failed.specs.get(paths[0]) if len(paths) == 1 else None
    same = isinstance(spec, TensorSpec) and shape_of(failed.inputs, spec) == tuple(tensor.shape)
    return paths[0] if same else None


def meets_mask(failed: Failed) -> bool:
    """Does a mask meet a tensor of three or more dimensions? Then the mask has its shape, but for the channels."""
    if OPERANDS.get(failed.trail.name) is not compare_elementwise:
        return False
    found = list(list_operands(failed.trail))
    masks = [path for path in map(failed.place, found) if path is not None and "mask" in str(path[-1]).lower()]
    return bool(masks) and any(value.dim() > 2 and failed.place(value) is None for value in found)


def propose_partners(failed: Failed) -> Changes:
    """What is computed of one input meets what is computed of another: the later one gets the batch and the lengths of
    the first, or is like it altogether."""
    if OPERANDS.get(failed.trail.name) is not compare_elementwise:
        return
    found = [value for value in list_operands(failed.trail) if value.dim() > 1]
    names = list(failed.inputs.entries)
    sources = {id(value): failed.sources(value) for value in found}
    alone = [value for value in found if len(sources[id(value)]) == 1]
    alone.sort(key=lambda value: names.index(str(sources[id(value)][0][0])))
    for one, other in itertools.combinations(alone, 2):
        first, path = sources[id(one)][0], sources[id(other)][0]
        spec = failed.specs[path]
        if path == first or not isinstance(spec, TensorSpec):
            continue
        if one.shape[-1] != other.shape[-1]:
            if spec.dtype == "f32" and one.dim() == other.dim():
                yield put_member(failed.inputs, path, failed.specs[first])
            continue
        lengths = name_sizes(failed.inputs, tuple(one.shape[:-1]))
        if spec.dtype == "i64" and len(spec.dims) < other.dim():
            yield put_member(failed.inputs, path, replace(spec, dims=lengths))
        elif spec.dims and isinstance(spec.dims[-1], int):
            yield put_member(failed.inputs, path, replace(spec, dims=(*lengths, spec.dims[-1])))


def propose_alike(failed: Failed) -> Changes:
    """An input takes the shape of the tensor with whose shape its own is compared where a check fails."""
    pairs = ((step, node) for step in reversed(failed.clue.steps) for node in ast.walk(step.function))
    for step, node in pairs if is_check(failed.error) else ():
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            one, other = (_find_measured(step, side) for side in (node.left, node.comparators[0]))
            if one is None or other is None or one.shape == other.shape:
                continue
            for tensor, shape in ((one, other.shape), (other, one.shape)):
                path = failed.place(tensor) or _find_input_of_shape(failed, tensor)
                spec = failed.specs.get(path or ())
                if path is not None and isinstance(spec, TensorSpec):
                    dims = name_sizes(failed.inputs, tuple(shape))
                    yield put_member(failed.inputs, path, replace(spec, dims=dims))


def _find_measured(step: Step, node: ast.expr) -> torch.Tensor | None:
    """The tensor of which an expression is the shape."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr="size"), args=[]) | ast.Attribute(value=held, attr="shape"):
            value = step.value(held)
            return value if isinstance(value, torch.Tensor) else None
    return None


def propose_shorter(failed: Failed) -> Changes:
    """Sequences that are longer than a table of positions, shortened by one factor: a step may be several tokens."""
    if OPERANDS.get(failed.trail.name) is not compare_elementwise:
        return
    found = [value for value in list_operands(failed.trail) if value.dim() > 2]
    lengths = {value.shape[-2] for value in found if value.shape[-2] > 1}
    if len(lengths) != 2:
        return
    most, had = sorted(lengths)
    shapes = [shape_of(failed.inputs, spec) for _, spec in iterate_tensor_specs(failed.inputs)]
    for length in dict.fromkeys(shape[1] for shape in shapes if len(shape) > 1 and had >= shape[1] > 1):
        value, changed = length * most // had, failed.inputs
        for path, spec in iterate_tensor_specs(failed.inputs):
            if len(spec.dims) > 1 and size_of(failed.inputs, spec.dims[1]) == length:
                changed = put_member(changed, path, replace(spec, dims=(spec.dims[0], "T", *spec.dims[2:])))
        if value > 1:
            yield Inputs(changed.entries, {**changed.sizes, "T": value})


def propose_joined(failed: Failed) -> Changes:
    """Inputs that are joined get the other sizes of what they are joined with. Along their last dimension, one of two
    inputs gets the batch and the lengths of the other, and the number of columns that is usual for its name."""
    parts = failed.trail.args[0] if failed.trail.args else failed.trail.kwargs.get("tensors")
    if failed.trail.name not in ("cat", "concat", "concatenate") or not isinstance(parts, list | tuple):
        return
    dim = failed.trail.kwargs.get("dim", failed.trail.args[1] if len(failed.trail.args) > 1 else 0)
    tensors = [part for part in parts if isinstance(part, torch.Tensor) and part.dim()]
    for computed in (part for part in tensors if failed.place(part) is None):
        if isinstance(dim, int) and -computed.dim() <= dim < computed.dim() <= MOST_RANK:
            changed = _join_all_with(failed, tensors, computed, dim % computed.dim())
            yield from [changed] if changed != failed.inputs else ()
    found = [(path, spec) for part in parts if (path := failed.place(part)) and (spec := failed.leaf(part)) is not None]
    for (path, spec), (_, like) in ((one, two) for two in found for one in found if one[0] != two[0]):
        if dim in (-1, len(like.dims) - 1) and like.dims[:-1] != spec.dims[:-1] and like.dims and spec.dims:
            usual = [each for each in usual_inputs(str(path[-1])) if len(each.dims) == len(like.dims)]
            for each in (*usual, spec):
                yield put_member(failed.inputs, path, replace(spec, dims=(*like.dims[:-1], each.dims[-1])))


def _join_all_with(failed: Failed, tensors: Sequence[torch.Tensor], like: torch.Tensor, along: int) -> Inputs:
    """Every input that is joined with a computed tensor, or that a layer only gave other columns before, with the sizes
    of that tensor in all dimensions but the one along which they are joined."""
    changed = failed.inputs
    for part in (each for each in tensors if each is not like):
        paths = [path] if (path := failed.place(part)) is not None else failed.sources(part)
        spec = failed.specs.get(paths[0]) if len(paths) == 1 else None
        if not isinstance(spec, TensorSpec) or not spec.dims or paths[0] in failed.sources(like):
            continue
        own = shape_of(failed.inputs, spec)
        is_last = along == like.dim() - 1
        if path is None and not (is_last and own[:-1] == tuple(part.shape[:-1])):
            continue
        at = len(own) - 1 if is_last else min(along, len(own) - 1)
        kept = spec.dims[at] if len(own) == like.dim() or is_last else 1
        around = (*like.shape[:along], *like.shape[along + 1 :])
        named = name_sizes(failed.inputs, around)
        if around != (*own[:at], *own[at + 1 :]):
            dims = (*named[:along], kept, *named[along:])
            changed = put_member(changed, paths[0], replace(spec, dims=dims))
    return changed


def _settle_disagreement(failed: Failed, told: Disagreement) -> Changes:
    paths = failed.sources(told.tensor) if told.tensor is not None else list(failed.specs)
    pairs = [(path, spec) for path in paths if isinstance(spec := failed.specs.get(path), TensorSpec)]
    if failed.trail.name in CHANNELS:
        yield from _move_channels(failed, told, pairs)
    direct = failed.leaf(told.tensor) if told.tensor is not None else None
    if direct is not None and told.tensor is not None:
        path = failed.place(told.tensor)
        if path is not None and told.at < len(direct.dims):
            yield from resize_dimension(failed.inputs, path, direct, told.at, told.wanted)
    channels = failed.trail.name in CHANNELS
    for fit in (_match_same_size, _part_of_sum, _match_factor, _match_stride, *([_rest_of_slice] * channels)):
        for path, spec in pairs:
            for at, size in enumerate(shape_of(failed.inputs, spec)):
                value = None if at == 0 and len(spec.dims) > 1 and isinstance(spec.dims[0], str) else fit(size, told)
                if fit is _rest_of_slice and not (spec.dtype == "f32" and isinstance(spec.dims[at], int)):
                    continue
                if value is not None and _is_sound(failed, spec, at, value):
                    yield from resize_dimension(failed.inputs, path, spec, at, value)
    yield from change_flattened(failed, told.tensor, told.had, told.wanted, pairs)


def _move_channels(failed: Failed, told: Disagreement, pairs: Sequence[tuple[Path, TensorSpec]]) -> Changes:
    """Channels that exist in another place: last instead of first, or the other way."""
    for path, spec in pairs:
        for at, other in ((1, len(spec.dims) - 1), (len(spec.dims) - 1, 1)):
            if len(spec.dims) > 2 and spec.dims[at] == told.wanted and isinstance(spec.dims[other], str):
                rest = [dim for index, dim in enumerate(spec.dims) if index != at]
                rest.insert(other, spec.dims[at])
                yield put_member(failed.inputs, path, replace(spec, dims=tuple(rest)))


def _is_sound(failed: Failed, spec: TensorSpec, at: int, value: int) -> bool:
    """Is a size no coincidence, such as a length of one, or of the batch, or a number of tokens equal to channels?"""
    if isinstance(spec.dims[at], int):
        return True
    channels = failed.trail.name in CHANNELS
    return value > 1 and value != failed.inputs.sizes.get("B") and not (channels and spec.dtype.startswith("i"))


def _match_same_size(size: int, told: Disagreement) -> int | None:
    return told.wanted if size == told.had else None


def _part_of_sum(size: int, told: Disagreement) -> int | None:
    """The size of a tensor that is joined with others: more or less by the difference."""
    value = size + told.wanted - told.had
    return value if size < told.had and value > 0 else None


def _rest_of_slice(size: int, told: Disagreement) -> int | None:
    """The channels of a tensor of which all behind the first few were taken: more by the difference."""
    return size + told.wanted - told.had if told.had < size <= 2 * told.wanted and told.wanted > told.had else None


def _match_factor(size: int, told: Disagreement) -> int | None:
    """The size of a tensor that is repeated: encodings of each coordinate, heads, groups."""
    times = told.had // size if size > 1 and told.had % size == 0 else 0
    return told.wanted // times if times > 1 and told.wanted % times == 0 else None


def _match_stride(size: int, told: Disagreement) -> int | None:
    """The size of a tensor that is made shorter: by a stride, by patches."""
    times = size // told.had if told.had > 1 and size % told.had == 0 else 0
    return told.wanted * times if times > 1 else None


def _propose_told_sizes(failed: Failed, match: Match) -> Changes:
    """Two sizes of a message: the actual one, and the required one."""
    first, second = (int(group) for group in match.groups()[:2])
    tensor = next(filter(failed.sources, list_operands(failed.trail)), None)
    for had, wanted in ((second, first), (first, second)):
        yield from _settle_disagreement(failed, Disagreement(tensor, -1, had, wanted))


def _propose_longer(failed: Failed, match: Match) -> Changes:
    """`padding (512, 512) at dimension 2 of input [1, 2, 16]`: the next power of two, twice as long as the padding."""
    padding, at = max(int(match[1]), int(match[2])), int(match[3])
    shape = [int(size) for size in re.findall(r"\d+", match[4])]
    if at < len(shape):
        wanted = 1 << (2 * padding).bit_length() - (padding & (padding - 1) == 0)
        yield from _settle_disagreement(failed, Disagreement(None, -1, shape[at], wanted))


def _propose_window(failed: Failed, match: Match) -> Changes:
    """`stft([32, 64], n_fft=4096, ...`: a signal of several windows."""
    shape, window = [int(size) for size in re.findall(r"\d+", match[1])], int(match[2])
    if shape and shape[-1] <= window:
        yield from _settle_disagreement(failed, Disagreement(None, -1, shape[-1], 4 * window))


def _propose_rows_of_mask(failed: Failed, match: Match) -> Changes:
    """A mask of another size than the tensor that it selects from: an input with more rows, as neighbours of each are
    many."""
    mask, other = ([int(size) for size in re.findall(r"\d+", group)] for group in match.groups()[:2])
    for had, wanted in zip(mask, other, strict=False):
        if had != wanted:
            yield from _settle_disagreement(failed, Disagreement(None, -1, min(had, wanted), 4 * max(had, wanted)))


def _propose_split(failed: Failed, match: Match) -> Changes:
    """`to sum exactly to 3, but got split_sizes=[3, 3]`: as many as the parts have together."""
    wanted = sum(int(size) for size in re.findall(r"\d+", match[3]))
    tensor = next(iter(list_operands(failed.trail)), None)
    yield from _settle_disagreement(failed, Disagreement(tensor, int(match[2]), int(match[1]), wanted))


def _propose_two_sizes(failed: Failed, match: Match) -> Changes:
    """A check of the forward's own that names two sizes: the actual one, and the required one, in either order."""
    told = list(dict.fromkeys(int(each) for each in re.findall(r"(?<![\w.-])\d+(?![\w.])", failed.text)))
    if len(told) == 2 and min(told) > 0 and is_check(failed.error):
        for had, wanted in (told, told[::-1]):
            yield from _settle_disagreement(failed, Disagreement(None, -1, had, wanted))


def _propose_told_shapes(failed: Failed, match: Match) -> Changes:
    """Two shapes of a message: the input has the second and should have the first, or the batch is that of a state."""
    wanted, had = ([int(size) for size in re.findall(r"\d+", group)] for group in match.groups()[:2])
    batch = failed.inputs.sizes.get("B")
    for kept in [kept for given, kept in zip(wanted, had, strict=False) if given == batch != kept]:
        yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, "B": kept})
    for path, spec in iterate_tensor_specs(failed.inputs):
        if list(shape_of(failed.inputs, spec)) == had:
            yield put_member(
                failed.inputs,
                path,
                TensorSpec(spec.dtype, name_sizes(failed.inputs, tuple(wanted)), spec.fill, spec.argument),
            )


def _propose_larger(failed: Failed, match: Match) -> Changes:
    """Images, lengths and depths twice and more as large."""
    for step in range(3):
        grown = {
            symbol: next(itertools.islice((each for each in sorted(table) if each > size), step, None), size * 2)
            for symbol, size in failed.inputs.sizes.items()
            if (table := LARGER.get(symbol))
        }
        if grown and max(grown.values()) <= MAX_SIZE:
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **grown})


def _propose_selecting_masks(failed: Failed, match: Match) -> Changes:
    """A mask with as many elements as the tensor that it selects from, in as many dimensions as it has or only in the
    first."""
    subject = failed.trail.args[0] if failed.trail.args else None
    for path, spec in failed.suspects():
        if spec.dtype == "bool" and isinstance(subject, torch.Tensor):
            for count in dict.fromkeys((len(spec.dims), 1)):
                dims = name_sizes(failed.inputs, tuple(subject.shape[:count]))
                yield put_member(failed.inputs, path, replace(spec, dims=dims, fill="ones"))


def _propose_viewable(failed: Failed, match: Match) -> Changes:
    """`shape '[2, -1, 8]' is invalid for input of size 36`: sizes with which the numbers of elements agree."""
    sizes, count = [int(each) for each in match[1].split(",")], int(match[2])
    wanted = math.prod(size for size in sizes if size > 0)
    if not count:  # nothing is viewed, whatever its sizes
        return
    batch = failed.inputs.sizes.get("B", count + 1)
    if count % batch == 0 and sizes[0] > 0 and _is_filled(count // batch * sizes[0], wanted, -1 in sizes):
        yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, "B": sizes[0]})  # the code says how large it is
    path = next(filter(None, map(failed.place, list_operands(failed.trail))), ())
    if -1 not in sizes and isinstance(viewed := failed.specs.get(path), TensorSpec):
        # The input itself: what it is told to be, without the dimensions of one that are added behind.
        told = sizes[: max((at + 1 for at, size in enumerate(sizes) if size > 1), default=1)]
        yield put_member(failed.inputs, path, replace(viewed, dims=name_sizes(failed.inputs, tuple(told))))
    for path, spec in failed.suspects():
        for at, size in reversed(list(enumerate(shape_of(failed.inputs, spec)))):
            if at == 0 and len(spec.dims) > 1:
                continue
            if -1 in sizes:
                rest = count // size if count % size == 0 else 1
                yield from resize_dimension(failed.inputs, path, spec, at, wanted // math.gcd(wanted, rest))
            elif size * wanted % count == 0:
                yield from resize_dimension(failed.inputs, path, spec, at, size * wanted // count)
    if len(sizes) == 2 and sizes[0] == -1 and count % batch == 0:
        yield from change_flattened(failed, None, count // batch, wanted, failed.suspects())
    side = math.sqrt(wanted / count)
    scaled = {
        symbol: round(failed.inputs.sizes[symbol] * side) for symbol in ("H", "W") if symbol in failed.inputs.sizes
    }
    if scaled and -1 not in sizes and min(scaled.values()) > 0:
        yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **scaled})


def _is_filled(count: int, wanted: int, is_open: bool) -> bool:
    """Are so many elements a view of `wanted` ones, or of any number of times as many if one size is open?"""
    return count % wanted == 0 if is_open else count == wanted


def _propose_chunks(failed: Failed, match: Match) -> Changes:
    """`can't divide axis of length 32 in chunks of 7`: the next multiple."""
    length, chunk = int(match[1]), int(match[2])
    for path, spec in failed.suspects() if chunk else ():
        for at, size in enumerate(shape_of(failed.inputs, spec)):
            if size == length:
                for value in (math.ceil(length / chunk) * chunk, chunk):
                    yield from resize_dimension(failed.inputs, path, spec, at, value)


def _propose_compared(failed: Failed, match: Match) -> Changes:
    """Sizes that the failing statement compares: made equal, within a limit, or divisible."""
    step = failed.clue.last()
    for node in ast.walk(step.node) if step else ():
        if step and isinstance(node, ast.Compare) and len(node.comparators) == 1:
            yield from _made_equal(failed, step.value(node.left), step.value(node.comparators[0]))
        if step and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            size, divisor = step.value(node.left), step.value(node.right)
            if _is_positive_int(size) and _is_positive_int(divisor) and size % divisor:
                yield from _settle_disagreement(
                    failed, Disagreement(None, -1, size, math.ceil(size / divisor) * divisor)
                )


def _made_equal(failed: Failed, one: Any, other: Any) -> Changes:
    pairs = [(one, other)]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = list(zip(one, other, strict=True))
        pairs = [pair for pair in pairs if all(map(_is_positive_int, pair))]  # tensors cannot be compared on meta
        both = {left: right for left, right in pairs if left != right}
        known = {symbol: both[size] for symbol, size in failed.inputs.sizes.items() if size in both}
        if known:
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **known})
    for left, right in pairs:
        if _is_positive_int(left) and _is_positive_int(right) and left != right:
            yield from _settle_disagreement(failed, Disagreement(None, -1, left, right))
            yield from _settle_disagreement(failed, Disagreement(None, -1, right, left))


def _is_positive_int(value: Any) -> bool:
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

#: A loss that says which targets its predictions have; nothing else is likelier.
TOLD_TARGETS: tuple[Row, ...] = (
    (r"target must be \[([\d, ]+)\],\s+but is the target \w+\[([\d, ]*)\]", _propose_told_shapes),
)
#: A check of the forward's own that says which sizes differ.
TOLD_SIZES: tuple[Row, ...] = ((r"^(?:AssertionError|ValueError|RuntimeError): .*\d", _propose_two_sizes),)
#: Pattern of `Type: message` -> what could be changed. Every row that fits is asked, in order.
ROWS: tuple[Row, ...] = (
    (r"stft\(\w+\[([\d, ]+)\], n_fft=(\d+)", _propose_window),
    (r"shape of the mask \[([\d, ]+)\].*indexed tensor \[([\d, ]+)\]", _propose_rows_of_mask),
    (r"padding \((\d+), (\d+)\) at dimension (\d+) of input.*\[([\d, ]+)\]", _propose_longer),
    (r"sum exactly to (\d+) .*at dimension (-?\d+)\).*split_sizes=\[([\d, ]+)\]", _propose_split),
    (r"can't be greater than actual input size|[Oo]utput size is too small|smaller than kernel|should be less than the"
     r"|maximum size for tensor|not in range for dimension|non-empty|non-zero dimensions|too small"
     r"|Expected more than 1 |index k out of range", _propose_larger),
    (r"shape of the mask", _propose_selecting_masks),
    (r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", _propose_viewable),
    (r"axis of length (\d+) in chunks of (\d+)", _propose_chunks),
    (r"Expected \w*(?:\[\d\])? ?size \(([\d, ]+)\), got \[([\d, ]+)\]", _propose_told_shapes),
    (r"should be \(([\d, ]+)\).*\[([\d, ]+)\]", _propose_told_shapes),
    (r"Expected (\d+),? (?:but )?got:? (\d+)", _propose_told_sizes),
    (r"to be (\d+), but got (\d+)", _propose_told_sizes),
    (r"of (\d+),? but got (\d+)", _propose_told_sizes),
    (r"input_size: got (\d+) expected (\d+)", _propose_told_sizes),
    (r"(?s)(?:to have|expects) (\d+) channels,\s+but (?:got|the input .*? has) (\d+)", _propose_told_sizes),
    (r"must be (\d+).*, got (\d+)", _propose_told_sizes),
    (r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", _propose_told_sizes),
    (r"tensor \((\d+)\) must match the existing size \((\d+)\)", _propose_told_sizes),
    (r"X1: (\d+) X2: (\d+)", _propose_told_sizes),
    (r"parameter numbers = (\d+) and channel size = (\d+)", _propose_told_sizes),
    (r"has size (\d+) for operand \d.* seen size (\d+)", _propose_told_sizes),
    (r"\(\d+x(\d+) and (\d+)x\d+\)", _propose_told_sizes),
    (r"^(?:AssertionError|ValueError|RuntimeError|Exception|NotImplementedError)", _propose_compared),
    *TOLD_SIZES,
)  # fmt: skip


# The size of an image, or the length of a sequence, that gives as many features as a later layer takes.

Pairs = Sequence[tuple[Path, TensorSpec]]

#: Symbols that are scaled together.
_SPACES = (("H", "W"), ("L",), ("T",), ("D", "H", "W"))
MAX_SIDE = 4096


def change_flattened(
    failed: Failed, tensor: torch.Tensor | None, had: int, wanted: int, pairs: Pairs
) -> Iterator[Inputs]:
    """Changes after which `had` features, flattened from a computed map, become `wanted` ones."""
    yield from _change_flat_images(failed, had, wanted, pairs)
    seen: dict[tuple[int, int], None] = {}
    for before, after in _find_flattened_sides(failed, had, wanted):
        if (before, after) not in seen:
            seen[before, after] = None
            yield from _scale_inputs(failed, before, after)
    yield from _change_columns(failed, had, wanted, pairs)
    yield from _change_patches(failed, had, wanted)


def _change_columns(failed: Failed, had: int, wanted: int, pairs: Pairs) -> Iterator[Inputs]:
    """Rows whose columns a convolution made fewer before they were flattened with its channels, or the other way round:
    more or fewer columns, by a whole stride."""
    mode = failed.trail.mode
    shapes = dict.fromkeys(tuple(each.shape) for each in (reversed(mode.made) if mode is not None else ()))
    for shape, at in ((shape, at) for shape in shapes if len(shape) == 4 for at in (-1, -2)):
        channels, before = shape[1], shape[at]
        if not had or channels * before != had or wanted % channels:
            continue
        for path, spec in pairs:
            size = size_of(failed.inputs, spec.dims[at]) if len(spec.dims) >= -at else 0
            if size > before and (at == -2 or isinstance(spec.dims[at], int)):
                stride = 2 ** round(math.log2(size / before))
                value = size + (wanted // channels - before) * stride
                if value > 0:
                    dims = list(spec.dims)
                    dims[at] = value
                    yield put_member(failed.inputs, path, replace(spec, dims=tuple(dims)))


def _change_flat_images(failed: Failed, had: int, wanted: int, pairs: Pairs) -> Iterator[Inputs]:
    """The input is itself flattened: square images with so many values, of one channel or of a few."""
    for path, spec in pairs:
        shape = shape_of(failed.inputs, spec)
        if len(shape) == 4 and math.prod(shape[1:]) == had:
            for channels in (shape[1], 1, 3, 4):
                side = math.isqrt(wanted // channels)
                if channels * side * side == wanted and side > 1:
                    yield put_member(failed.inputs, path, TensorSpec(spec.dtype, (spec.dims[0], channels, side, side)))


def _find_flattened_sides(failed: Failed, had: int, wanted: int) -> Iterator[tuple[int, int]]:
    """A side of a map that was flattened to `had` features, and the side that gives `wanted` ones."""
    mode = failed.trail.mode
    shapes = [tuple(each.shape) for each in reversed(mode.made)] if mode is not None else []
    leaves = [shape_of(failed.inputs, spec) for spec in failed.specs.values() if isinstance(spec, TensorSpec)]
    for shape in dict.fromkeys(each for each in (*shapes, *leaves) if len(each) > 2):
        if not had or math.prod(shape[1:]) != had:
            continue
        for channels, sides in ((shape[1], shape[2:]), (shape[-1], shape[1:-1])):
            if channels and wanted % channels == 0:
                yield from _scale_sides(sides, wanted // channels)


def _scale_sides(sides: tuple[int, ...], product: int) -> Iterator[tuple[int, int]]:
    """All sides scaled alike; a map of one side is a length."""
    scale = (product / math.prod(sides)) ** (1 / len(sides))
    scaled = [round(side * scale) for side in sides]
    if math.prod(scaled) == product and min(scaled) > 0:
        yield max(sides), max(scaled)


def _scale_inputs(failed: Failed, before: int, after: int) -> Iterator[Inputs]:
    """Inputs with which an inner map's side is `after` instead of `before`, if it shrinks by a whole stride."""
    for symbols in _SPACES:
        used = [symbol for symbol in symbols if symbol in failed.inputs.sizes]
        if len(used) != len(symbols):
            continue
        side = size_of(failed.inputs, used[-1])
        power = 2 ** round(math.log2(max(1, side / before)))
        for stride in dict.fromkeys((power, power * 2, max(1, round(side / before)), max(1, power // 2))):
            changed = {symbol: size_of(failed.inputs, symbol) + (after - before) * stride for symbol in used}
            if min(changed.values()) > 0 and max(changed.values()) <= MAX_SIDE * 8:
                yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, **changed})


def _change_patches(failed: Failed, had: int, wanted: int) -> Iterator[Inputs]:
    """An image cut into `had` patches (and a few tokens more) that should be `wanted`."""
    height, width = (failed.inputs.sizes.get(symbol) for symbol in ("H", "W"))
    if height is None or height != width:
        return
    for more in (0, 1, 2):
        per_side, wanted_side = math.isqrt(max(0, had - more)), math.isqrt(max(0, wanted - more))
        if per_side and wanted_side and per_side**2 == had - more and wanted_side**2 == wanted - more:
            side = max(1, height // per_side) * wanted_side
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, "H": side, "W": side})
