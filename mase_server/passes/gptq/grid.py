"""The values that each element of a weight may take, fixed before any of them changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.formats import NumberFormat
from mase_server.formats.blocks import blockwise
from mase_server.formats.scale_integer import ScaleInteger


@dataclass(frozen=True, slots=True)
class Layout:
    """How a weight is a matrix [outputs, inputs]. transposed: it is [inputs, outputs]; else outputs come first."""

    shape: torch.Size
    transposed: bool = False

    def matrix(self, values: Tensor) -> Tensor:
        """Something of the weight's shape as the matrix."""
        return values.T if self.transposed else values.reshape(self.shape[0], -1)

    def restored(self, matrix: Tensor) -> Tensor:
        """The inverse of `matrix`."""
        return matrix.T if self.transposed else matrix.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rounding to a format whose shared scales are those of the weight as it was.

    format: rounds a value beside its anchor, the magnitude that decided its scale, in one block.  shape: of such pairs.
    anchors: of each element of the matrix [outputs, inputs]; None where elements share nothing.
    """

    format: NumberFormat
    anchors: Tensor | None = None
    shape: tuple[int, ...] = ()

    def rounded(self, values: Tensor, columns: Tensor | slice) -> Tensor:
        """The nearest values to some columns of the matrix; what is beyond the anchor saturates."""
        if self.anchors is None:
            return self.format.round(values)
        anchors = self.anchors[:, columns].to(values)
        limited = values.clamp(-anchors, anchors)
        pairs = torch.stack([limited.flatten(), anchors.flatten()], dim=1)
        return self.format.round(pairs.view(-1, *self.shape)).view(-1, 2)[:, 0].view(values.shape)

    def of_rows(self, rows: slice) -> Grid:
        """The grid of some rows."""
        return self if self.anchors is None else dataclasses.replace(self, anchors=self.anchors[rows])


def grid_of(format: NumberFormat, weight: Tensor, layout: Layout) -> Grid:
    """The grid of a weight.

    ValueError for formats in which an element's value depends on the whole weight otherwise than by a scale.
    """
    rounded, matrix = layout.matrix(format.round(weight)), layout.matrix(weight.detach())
    for grid in _grids(format, weight.detach(), layout):
        if _is_that(grid, matrix, rounded):
            return grid
    raise ValueError(f"gptq: {format} has no fixed set of values to choose from; use a format such as mxint(4)")


def _is_that(grid: Grid, matrix: Tensor, rounded: Tensor) -> bool:
    """Does it round to the same, all at once and some columns by themselves?"""
    last = matrix.shape[1] - 1
    some = {last * part // 4 for part in range(5)}
    parts = [slice(None), *(slice(at, at + 1) for at in some)]
    return all(torch.equal(grid.rounded(matrix[:, part], part), rounded[:, part]) for part in parts)


def _grids(format: NumberFormat, weight: Tensor, layout: Layout) -> Sequence[Grid]:
    if isinstance(format, ScaleInteger):
        largest = _largest_of_channels(weight, format.axis)
        anchors = layout.matrix(largest.expand_as(weight))
        return [Grid(dataclasses.replace(format, axis=0), anchors, (2,))]
    block: tuple[int, ...] | None = getattr(format, "block_size", None)
    if block is None or max(block) == 1:
        return [Grid(format)]
    largest = blockwise(weight, block, lambda values, top: top.expand_as(values))
    anchors, shape = layout.matrix(largest), _pair(block)
    paired = dataclasses.replace(format, **{"block_size": shape})
    return [Grid(paired, _top(anchors), shape), Grid(paired, anchors, shape)]


def _largest_of_channels(weight: Tensor, axis: int | None) -> Tensor:
    others = tuple(range(weight.dim())) if axis is None else _others(weight, axis)
    return weight.abs().amax(dim=others, keepdim=True) if others else weight.abs()


def _others(weight: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(each for each in range(weight.dim()) if each != axis % weight.dim())


def _pair(block: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a value and its anchor in one block: along the last dimension in which blocks are longer than 1."""
    last = max(index for index, size in enumerate(block) if size > 1)
    return tuple(2 if index == last else 1 for index in range(len(block)))


def _top(anchors: Tensor) -> Tensor:
    """The largest values below the next power of two: scales that are powers of two are the same for them."""
    fraction, exponent = torch.frexp(anchors)
    highest = 1.0 - torch.finfo(anchors.dtype).eps / 2
    return torch.where(fraction > 0, torch.ldexp(torch.full_like(fraction, highest), exponent), anchors)
