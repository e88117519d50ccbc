"""Comparing a graph with the model that it came from, on real values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from mase_server.inputs.found import call_arguments
from mase_server.ir.propagate import preserved
from mase_server.tracing.values import fields_of


@dataclass(frozen=True, slots=True)
class Check:
    """How far a graph's outputs are from a model's.

    largest: the largest absolute difference of any element.  relative: the same, divided by the largest absolute value
    of that output.  equal: bit for bit.  close: within the tolerances that were asked for.  where: the output that
    differs most.  outputs: how many tensors were compared.

    >>> model = nn.Linear(4, 2)
    >>> found = MaseGraph(model, {"input": torch.randn(3, 4)}).check_against(model)
    >>> found
    Check(largest=0.0, relative=0.0, equal=True, close=True, where='output', outputs=1)
    >>> bool(found)
    True
    """

    largest: float
    relative: float
    equal: bool
    close: bool
    where: str
    outputs: int

    def __bool__(self) -> bool:
        return self.close


def check(
    module: fx.GraphModule, values: list[Any], model: nn.Module, arguments: Mapping[str, Any], rtol: float, atol: float
) -> Check:
    """Run both on these inputs, with the same random state, and compare every tensor of the outputs.

    values: what the graph's placeholders get; arguments: what the model's forward gets, by name.
    """
    args, kwargs = call_arguments(model, arguments)
    ours = tensors_of(_run(module, values, {}))
    theirs = tensors_of(_run(model, args, kwargs))
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())
        raise ValueError(f"the outputs have other parts: {odd[0]} is only in one of them")
    return _compared(ours, theirs, rtol, atol)


def _run(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Any:
    with preserved(module), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return module(*args, **kwargs)


def tensors_of(value: Any, path: str = "output") -> dict[str, torch.Tensor]:
    """The tensors of a result by where they are."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    if isinstance(value, list | tuple):
        return {name: item for i, part in enumerate(value) for name, item in tensors_of(part, f"{path}[{i}]").items()}
    fields = fields_of(value) or {}
    return {name: item for key, part in fields.items() for name, item in tensors_of(part, f"{path}.{key}").items()}


def _compared(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], rtol: float, atol: float) -> Check:
    worst, relative, where, close, equal = 0.0, 0.0, "", True, True
    for name, mine in ours.items():
        other = theirs[name]
        if mine.shape != other.shape or mine.dtype != other.dtype:
            raise ValueError(f"{name} is {_text(mine)} in the graph, but {_text(other)} in the model")
        equal = equal and torch.equal(mine, other)
        close = close and torch.allclose(mine, other, rtol=rtol, atol=atol, equal_nan=True)
        difference = _difference(mine, other)
        if difference > worst or not where:
            worst, where = max(worst, difference), name
        relative = max(relative, difference / max(_difference(other, torch.zeros_like(other)), 1e-30))
    return Check(worst, relative, equal, close, where, len(ours))


def _difference(mine: torch.Tensor, other: torch.Tensor) -> float:
    """The largest absolute difference; equal infinities and NaN at the same place differ by nothing."""
    if mine.numel() == 0:
        return 0.0
    wide = torch.complex128 if mine.is_complex() else torch.float64
    same = (mine == other) | (mine.isnan() & other.isnan())
    distance = (mine.to(wide) - other.to(wide)).abs().masked_fill(same, 0.0)
    return float(distance.max())


def _text(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
