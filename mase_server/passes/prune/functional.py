"""Making an activation sparse, as a function that graphs can call."""

from __future__ import annotations

from torch import Tensor

from mase_server.passes.prune.masks import Plan, Scored, make_masks


def sparsify(
    values: Tensor, sparsity: float, method: str = "l1-norm", granularity: str = "elementwise", channels: int = -1
) -> Tensor:
    """Set a share of a tensor's elements to zero, chosen anew at each call.

    channels: the dimension of the channels, which products sum over.  The other arguments are those of `Plan`.
    """
    plan = Plan(sparsity, method, "local", granularity)
    if values.is_meta:
        return values.clone()
    return values * make_masks(plan, {"": Scored(plan.score(values), channels, channels)})[""]
