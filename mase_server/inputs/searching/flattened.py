"""The size of an image, or the length of a sequence, that makes as many features as a layer behind it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.trees import Path, put, shape_of, size_of
from mase_server.inputs.spec import Inputs, TensorSpec

Pairs = Sequence[tuple[Path, TensorSpec]]

#: Symbols that a resolution is scaled by, each kind together.
_SPACES = (("H", "W"), ("L",), ("T",), ("D", "H", "W"))
MAX_SIDE = 4096


def flattened(failed: Failed, tensor: torch.Tensor | None, had: int, wanted: int, pairs: Pairs) -> Iterator[Inputs]:
    """Changes after which `had` features, flattened from a map that was computed before, are `wanted` ones."""
    yield from _images(failed, had, wanted, pairs)
    seen: dict[tuple[int, int], None] = {}
    for before, after in _sides(failed, had, wanted):
        if (before, after) not in seen:
            seen[before, after] = None
            yield from _scaled(failed, before, after)
    yield from _patches(failed, had, wanted)


def _images(failed: Failed, had: int, wanted: int, pairs: Pairs) -> Iterator[Inputs]:
    """What was handed over is itself flattened: square images of so many values, of one channel or of a few."""
    for path, spec in pairs:
        shape = shape_of(failed.inputs, spec)
        if len(shape) == 4 and math.prod(shape[1:]) == had:
            for channels in (shape[1], 1, 3, 4):
                side = math.isqrt(wanted // channels)
                if channels * side * side == wanted and side > 1:
                    yield put(failed.inputs, path, TensorSpec(spec.dtype, (spec.dims[0], channels, side, side)))


def _sides(failed: Failed, had: int, wanted: int) -> Iterator[tuple[int, int]]:
    """A side of a map that was flattened to `had` features, and what it has to be for `wanted` ones."""
    mode = failed.trail.mode
    shapes = [tuple(each.shape) for each in reversed(mode.made)] if mode is not None else []
    leaves = [shape_of(failed.inputs, spec) for spec in failed.specs.values() if isinstance(spec, TensorSpec)]
    for shape in dict.fromkeys(each for each in (*shapes, *leaves) if len(each) > 2):
        if not had or math.prod(shape[1:]) != had:
            continue
        for channels, sides in ((shape[1], shape[2:]), (shape[-1], shape[1:-1])):
            if channels and wanted % channels == 0:
                yield from _side(sides, wanted // channels)


def _side(sides: tuple[int, ...], product: int) -> Iterator[tuple[int, int]]:
    """All sides scaled alike; a map of one side is a length."""
    scale = (product / math.prod(sides)) ** (1 / len(sides))
    scaled = [round(side * scale) for side in sides]
    if math.prod(scaled) == product and min(scaled) > 0:
        yield max(sides), max(scaled)


def _scaled(failed: Failed, before: int, after: int) -> Iterator[Inputs]:
    """Inputs with which a side of a map inside is `after` where it was `before`, if it shrinks by a whole stride."""
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


def _patches(failed: Failed, had: int, wanted: int) -> Iterator[Inputs]:
    """An image cut into `had` patches (and a few tokens more) that should be `wanted`."""
    height, width = (failed.inputs.sizes.get(symbol) for symbol in ("H", "W"))
    if height is None or height != width:
        return
    for more in (0, 1, 2):
        per_side, wanted_side = math.isqrt(max(0, had - more)), math.isqrt(max(0, wanted - more))
        if per_side and wanted_side and per_side**2 == had - more and wanted_side**2 == wanted - more:
            side = max(1, height // per_side) * wanted_side
            yield Inputs(failed.inputs.entries, {**failed.inputs.sizes, "H": side, "W": side})
