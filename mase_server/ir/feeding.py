"""A model's arguments by name, the values of its graph's placeholders, and the comparison of the graph with the
model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.propagate import preserve_model
from mase_server.suggestions import suggest
from mase_server.tracing.inputs.spec import InputValues
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.recording.values import fields_of, holds_tensor

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

#: The values of the placeholders of a graph, by their names.
PlaceholderValues = dict[str, Any]


def name_arguments(dummy_in: Any, model: nn.Module) -> InputValues:
    """Inputs by parameter name: a dict, a BatchEncoding, one tensor, or a tuple in forward's order.

    Raises ValueError for a name that forward does not have.
    """
    if isinstance(dummy_in, tuple | list):
        return dict(inspect.signature(model.forward).bind(*dummy_in).arguments)
    fields = fields_of(dummy_in)
    if fields is None:
        return name_arguments((dummy_in,), model)
    given = {str(name): value for name, value in fields.items()}
    parameters = inspect.signature(model.forward).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        for name in given:
            if name not in parameters:
                raise ValueError(
                    f"dummy_in has {name!r}, but the forward of {type(model).__name__} has no such parameter"
                    f"{suggest(name, parameters, 'it takes')}"
                )
    return given


def flatten_arguments(arguments: Mapping[str, Any], model: nn.Module) -> PlaceholderValues:
    """Arguments under the names of placeholders: those of `*args` are numbered, those of `**kwargs` keep their own
    names."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        parameters = {}
    found: PlaceholderValues = {}
    for name, value in arguments.items():
        kind = parameters[name].kind if name in parameters else None
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}_{index}": item for index, item in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def feed_placeholders(graph: fx.Graph, arguments: Mapping[str, Any]) -> list[Any]:
    """The value of each placeholder, in order, from arguments by name.

    Raises ValueError for a tensor that no placeholder takes, and for a placeholder without a value.
    """
    placeholders = {str(node.target).lstrip("*"): node for node in graph.nodes if node.op == "placeholder"}
    for name, value in arguments.items():
        if name not in placeholders and holds_tensor(value):
            raise ValueError(
                f"the graph has no input {name!r}{suggest(name, placeholders, 'it takes')}: trace the model again "
                f"with {name!r} among its inputs"
            )
    missing = [name for name, node in placeholders.items() if name not in arguments and not node.args]
    if missing:
        raise ValueError(f"no value for the graph's input {missing[0]!r}; given were {', '.join(arguments) or 'none'}")
    return [arguments[name] if name in arguments else node.args[0] for name, node in placeholders.items()]


# Comparing a graph with the model that it came from, on real values.


@dataclass(frozen=True, slots=True)
class Check:
    """How far a graph's outputs are from a model's.

    largest: the largest absolute difference of any element.  relative: the same, divided by the largest absolute
    value of that output.  equal: bit for bit.  close: within the given tolerances.  where: the output that differs
    most.  outputs: how many tensors were compared.

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


def compare_with_model(
    module: fx.GraphModule, values: list[Any], model: nn.Module, arguments: Mapping[str, Any], rtol: float, atol: float
) -> Check:
    """Run both on these inputs, with the same random state, and compare every tensor of the outputs.

    values: for the graph's placeholders; arguments: for the model's forward, by name.
    """
    args, kwargs = call_arguments(model, arguments)
    ours = tensors_of(_run_reproducibly(module, values, {}))
    theirs = tensors_of(_run_reproducibly(model, args, kwargs))
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())
        raise ValueError(f"the outputs have other parts: {odd[0]} is only in one of them")
    return _compare_outputs(ours, theirs, rtol, atol)


def _run_reproducibly(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Any:
    with preserve_model(module), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return module(*args, **kwargs)


def tensors_of(value: Any, path: str = "output") -> dict[str, torch.Tensor]:
    """The tensors of a result by their paths."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    if isinstance(value, list | tuple):
        return {name: item for i, part in enumerate(value) for name, item in tensors_of(part, f"{path}[{i}]").items()}
    fields = fields_of(value) or {}
    return {name: item for key, part in fields.items() for name, item in tensors_of(part, f"{path}.{key}").items()}


def _compare_outputs(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], rtol: float, atol: float) -> Check:
    worst, relative, where, close, equal = 0.0, 0.0, "", True, True
    for name, mine in ours.items():
        other = theirs[name]
        if mine.shape != other.shape or mine.dtype != other.dtype:
            raise ValueError(f"{name} is {_tensor_text(mine)} in the graph, but {_tensor_text(other)} in the model")
        equal = equal and torch.equal(mine, other)
        close = close and torch.allclose(mine, other, rtol=rtol, atol=atol, equal_nan=True)
        difference = _largest_difference(mine, other)
        if difference > worst or not where:
            worst, where = max(worst, difference), name
        relative = max(relative, difference / max(_largest_difference(other, torch.zeros_like(other)), 1e-30))
    return Check(worst, relative, equal, close, where, len(ours))


def _largest_difference(mine: torch.Tensor, other: torch.Tensor) -> float:
    """The largest absolute difference; equal infinities, and NaN in both at the same place, count as no difference."""
    if mine.numel() == 0:
        return 0.0
    wide = torch.complex128 if mine.is_complex() else torch.float64
    same = (mine == other) | (mine.isnan() & other.isnan())
    distance = (mine.to(wide) - other.to(wide)).abs().masked_fill(same, 0.0)
    return float(distance.max())


def _tensor_text(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
