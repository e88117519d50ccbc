"""Where the samples of a batch are in a tensor: hardware takes one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.hardware.folds import divisors

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which dimension has the samples: alone, or, where rows or heads were joined with the batch, with others.

    samples: how many there are.  inner: elements of that dimension from one sample to the next; those beyond
    samples * inner come again behind them.
    """

    samples: int
    dim: int = 0
    inner: int = 1

    def alone(self, shape: Shape) -> bool:
        """Is the dimension the batch and nothing else?"""
        return shape[self.dim] == self.samples

    def sample(self, shape: Shape) -> Shape:
        """The shape of one sample of a tensor."""
        rest = () if self.alone(shape) else (shape[self.dim] // self.samples,)
        return (*shape[: self.dim], *rest, *shape[self.dim + 1 :])

    def split(self, values: Tensor) -> Tensor:
        """A tensor as [samples, *sample]."""
        shape = tuple(values.shape)
        apart = values.reshape(*shape[: self.dim], -1, self.samples, self.inner, *shape[self.dim + 1 :])
        return apart.movedim(self.dim + 1, 0).reshape(self.samples, *self.sample(shape))

    def joined(self, values: Tensor, shape: Shape) -> Tensor:
        """The inverse of `split`: a tensor of a shape from [samples, ...]."""
        outer = shape[self.dim] // (self.samples * self.inner)
        apart = values.reshape(self.samples, *shape[: self.dim], outer, self.inner, *shape[self.dim + 1 :])
        return apart.movedim(0, self.dim + 1).reshape(shape)


def layouts(shape: Shape, samples: int) -> list[Layout]:
    """Every layout that a tensor of a shape may have: those with a dimension of their own for the batch come first."""
    fitting = [dim for dim, size in enumerate(shape) if size and size % samples == 0]
    found = [Layout(samples, dim, inner) for dim in fitting for inner in divisors(shape[dim] // samples)[::-1]]
    return sorted(found, key=lambda each: not each.alone(shape))


def moved_samples(indices: Tensor, samples: int, size: int) -> tuple[Layout, Tensor] | None:
    """Where samples are after elements moved, and the index that each element of the first one had.

    indices: what became of arange(samples * size), `size` elements a sample.  None where samples were mixed.
    """
    first = (torch.arange(samples) * size)[:, None]
    for layout in layouts(tuple(indices.shape), samples):
        rows = layout.split(indices).reshape(samples, -1)
        if torch.equal(rows - rows[:1], first.expand_as(rows)) and bool((rows[0] < size).all()):
            return layout, rows[0]
    return None
