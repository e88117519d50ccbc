"""Making an activation sparse, as a function that stands in a graph."""

from __future__ import annotations

from torch import Tensor

from mase_server.passes.prune.masks import Plan, masks


def sparsify(values: Tensor, sparsity: float, method: str = "l1-norm", granularity: str = "elementwise") -> Tensor:
    """The same tensor with so great a share of its elements zero, chosen anew at each call. Arguments as in `Plan`."""
    plan = Plan(sparsity, method, "local", granularity)
    if values.is_meta:
        return values.clone()
    return values * masks(plan, {"": plan.score(values)})[""]
