"""The algorithm itself: columns in turn, each error made up for by the columns that are still to come."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.passes.gptq.grid import Grid


@dataclass(frozen=True, slots=True)
class Options:
    """damping: share of the Hessian's mean diagonal that is added to it.  block: columns that are finished before the
    rest hears of them; it changes nothing but the time.  act_order: columns that matter most go first."""

    damping: float = 0.01
    block: int = 128
    act_order: bool = False

    def __post_init__(self) -> None:
        if not self.damping >= 0:
            raise ValueError(f"gptq: damping is {self.damping!r}, expected a number of at least 0")
        if type(self.block) is not int or self.block < 1:
            raise ValueError(f"gptq: block is {self.block!r}, expected a whole number of at least 1")


def solve(weight: Tensor, hessian: Tensor, grid: Grid, options: Options, keep: Tensor | None = None) -> Tensor:
    """The weight on its grid, such that a product with inputs of this Hessian changes little.

    weight: [outputs, inputs].  hessian: [inputs, inputs], the mean of x x^T over inputs.  keep: 0 where an element has
    to be zero.  Inputs that were never other than zero leave their column to plain rounding.
    Source: Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2022.
    """
    order = hessian.diagonal().argsort(descending=True, stable=True) if options.act_order else None
    columns = torch.arange(weight.shape[1], device=weight.device) if order is None else order
    # Columns are rows here, so that each of them lies together in memory.
    values = weight.detach().to(hessian.dtype).T[columns].contiguous()
    factor = inverse_factor(hessian[columns][:, columns], options.damping)
    found = torch.empty_like(weight)
    for first in range(0, len(columns), options.block):
        last = min(first + options.block, len(columns))
        errors = values.new_empty(last - first, values.shape[1])
        for at in range(first, last):
            rounded = _rounded(values[at], columns[at], weight, grid, keep)
            error = torch.sub(values[at], rounded, out=errors[at - first]).div_(factor[at, at])
            values[at:last].addr_(factor[at, at:last], error, alpha=-1)
            found[:, columns[at]] = rounded.to(found)
        values[last:].addmm_(factor[first:last, last:].T, errors, alpha=-1)
    return found


def _rounded(column: Tensor, index: Tensor, weight: Tensor, grid: Grid, keep: Tensor | None) -> Tensor:
    rounded = grid.rounded(column.to(weight)[:, None], index[None])[:, 0].to(column)
    return rounded if keep is None else rounded * keep[:, index].to(column)


def inverse_factor(hessian: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse of the damped Hessian; damped more where it needs that."""
    whole = hessian.clone()
    mean = float(whole.diagonal().mean())
    # Inputs that are always zero: alone, and so rounded by themselves.
    whole.diagonal()[whole.diagonal() == 0] = 1.0
    while True:
        damped = whole + damping * mean * torch.eye(len(whole), dtype=whole.dtype, device=whole.device)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                found: Tensor = factor
                return found
        damping, mean = max(10 * damping, 1e-6), mean or 1.0


def loss(weight: Tensor, found: Tensor, hessian: Tensor) -> Tensor:
    """The mean squared change of each output over the inputs of this Hessian, [outputs], float64."""
    change = (found.detach() - weight.detach()).to(hessian.dtype)
    return ((change @ hessian) * change).sum(1, dtype=torch.float64)
