"""Masks of the elements that stay: by a score, a share and a granularity."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

#: Method -> the score of each element; the lowest are pruned first. Movement takes scores gathered in training.
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "l1-norm": Tensor.abs,
    "random": torch.rand_like,
}
METHODS = (*SCORES, "movement")
SCOPES = ("local", "global")
_GROUP = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to prune one kind of tensors.

    sparsity: share of zeros, 0 to below 1.  method: l1-norm | random | movement.  scope: local, each tensor by
    itself, or global, all together.  granularity: elementwise, channelwise (whole channels, by their mean score), or
    n:m: n of every m neighbours that a product sums over stay, regardless of sparsity.
    """

    sparsity: float
    method: str = "l1-norm"
    scope: str = "local"
    granularity: str = "elementwise"

    def __post_init__(self) -> None:
        if not isinstance(self.sparsity, int | float) or not 0 <= self.sparsity < 1:
            raise ValueError(f"prune: sparsity is {self.sparsity!r}, expected a share from 0 to below 1")
        if self.method not in METHODS:
            raise ValueError(f"prune: method is {self.method!r}, expected one of {', '.join(METHODS)}")
        if self.scope not in SCOPES:
            raise ValueError(f"prune: scope is {self.scope!r}, expected one of {', '.join(SCOPES)}")
        if self.granularity not in ("elementwise", "channelwise") and self.group is None:
            expected = "elementwise, channelwise or n:m with n below m, e.g. 2:4"
            raise ValueError(f"prune: granularity is {self.granularity!r}, expected {expected}")

    @property
    def group(self) -> tuple[int, int] | None:
        """n and m of n:m."""
        match = _GROUP.fullmatch(self.granularity)
        found = (int(match[1]), int(match[2])) if match else None
        return found if found is not None and 0 < found[0] < found[1] else None

    def score(self, values: Tensor) -> Tensor:
        """The score of each element, by a method that needs only the values."""
        return SCORES[self.method](values.detach())


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of one tensor's elements; the higher ones stay.

    channels: the dimension whose indices are whole channels.  sums: the dimension that products sum over.
    """

    scores: Tensor
    channels: int = 0
    sums: int = -1

    def fits(self, plan: Plan) -> bool:
        """Can the plan be followed? n:m asks for whole groups."""
        return plan.group is None or self.scores.shape[self.sums] % plan.group[1] == 0


def make_masks(plan: Plan, scored: Mapping[str, Scored]) -> dict[str, Tensor]:
    """A mask of each tensor's shape by name, 1 where an element stays. ValueError if the size is no multiple of a
    group."""
    if plan.group is not None:
        return {name: of_groups(each, *plan.group) for name, each in scored.items()}
    grains = {name: _score_grains(each, plan.granularity) for name, each in scored.items()}
    if plan.scope == "local":
        kept = {name: _keep_highest(grain, plan.sparsity) for name, grain in grains.items()}
    else:
        together = _keep_highest(torch.cat([grain.flatten() for grain in grains.values()]), plan.sparsity)
        parts = torch.split(together, [grain.numel() for grain in grains.values()])
        kept = {name: part.view_as(grain) for (name, grain), part in zip(grains.items(), parts, strict=True)}
    return {name: kept[name].expand_as(each.scores).contiguous() for name, each in scored.items()}


def of_groups(scored: Scored, stay: int, group: int) -> Tensor:
    """n:m along the summed dimension; among equal scores the first stay."""
    scores = scored.scores.movedim(scored.sums, -1)
    if scores.shape[-1] % group:
        shape = list(scored.scores.shape)
        raise ValueError(f"prune: {stay}:{group} needs a dimension divisible by {group} to sum over, got {shape}")
    grouped = scores.reshape(-1, group)
    order = grouped.sort(dim=1, descending=True, stable=True).indices
    mask = torch.zeros_like(grouped).scatter_(1, order[:, :stay], 1.0)
    return mask.view(scores.shape).movedim(-1, scored.sums).contiguous()


def _score_grains(scored: Scored, granularity: str) -> Tensor:
    scores = scored.scores
    if granularity == "elementwise" or scores.dim() < 2:
        return scores
    others = tuple(axis for axis in range(scores.dim()) if axis != scored.channels % scores.dim())
    return scores.mean(dim=others, keepdim=True)


def _keep_highest(scores: Tensor, sparsity: float) -> Tensor:
    """1 for all but exactly the lowest share; among equal scores the first are pruned."""
    gone = round(scores.numel() * sparsity)
    order = scores.flatten().sort(stable=True).indices
    mask = torch.ones_like(scores).flatten()
    mask[order[:gone]] = 0.0
    return mask.view_as(scores)
