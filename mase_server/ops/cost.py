"""What a model costs: parameters counted once, and nodes added up by scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.ops.paths import named_parameters
from mase_server.ops.table import op_info
from mase_server.ops.types import OpCall


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs that add up.  flops: all operations.  matmul_flops: those that torch.utils.flop_counter would count too.

    bytes: read and written.  A multiply-accumulate is 2 operations.

    >>> graph = MaseGraph(nn.Linear(4, 2), {"input": torch.randn(3, 4)})
    >>> graph.scope_costs()[""]
    Cost(flops=48, matmul_flops=48, bytes=112)
    """

    flops: int = 0
    matmul_flops: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.matmul_flops + other.matmul_flops, self.bytes + other.bytes)


def cost_of(call: OpCall) -> Cost:
    """The cost of one call."""
    info = op_info(call.kind, call.target, call.module)
    flops = info.flops(call)
    return Cost(flops, flops if info.is_matmul_like else 0, info.bytes(call))


def parameters_of(module: nn.Module) -> tuple[int, int]:
    """(elements, bytes) of a module's parameters, its children's included; a shared one counts once.

    Parameters on meta count too; those of a lazy module that has not run yet do not.
    """
    known = [p for p in module.parameters() if not nn.parameter.is_lazy(p)]
    return sum(p.numel() for p in known), sum(p.numel() * p.element_size() for p in known)


def trainable_of(module: nn.Module) -> int:
    """Elements of the parameters of a module that learn: those that need a gradient; a shared one counts once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad and not nn.parameter.is_lazy(p))


def weights_of(module: nn.Module) -> dict[str, list[Any]]:
    """The parameters as columns, as `snapshot.WEIGHTS_KEYS` says, under every name that they have."""
    found: dict[str, list[Any]] = {key: [] for key in ("name", "elements", "bytes", "same")}
    first: dict[int, int] = {}
    for name, parameter in named_parameters(module):
        if not nn.parameter.is_lazy(parameter):
            index = len(found["name"])
            size = parameter.numel()
            row = (name, size, size * parameter.element_size(), first.setdefault(id(parameter), index))
            for key, cell in zip(found, row, strict=True):
                found[key].append(cell)
    return found


def total(calls: Iterable[OpCall]) -> Cost:
    """The cost of all calls together."""
    return sum(map(cost_of, calls), Cost())


def by_scope(costs: Iterable[tuple[str, Cost]]) -> dict[str, Cost]:
    """Roll up costs by module path: "a.b" counts for "a.b", "a" and "", the whole model."""
    totals: dict[str, Cost] = {"": Cost()}
    for path, cost in costs:
        for scope in _enclosing(path):
            totals[scope] = totals.get(scope, Cost()) + cost
    return totals


def _enclosing(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]
