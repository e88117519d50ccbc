"""Arguments of a model by name, and what the placeholders of its graph get of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from mase_server.suggestions import suggest
from mase_server.tracing.values import fields_of, holds_tensor

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def named(dummy_in: Any, model: nn.Module) -> dict[str, Any]:
    """Inputs by parameter name: a dict, a BatchEncoding, one tensor, or a tuple in forward's order.

    Raises ValueError for a name that forward does not have.
    """
    if isinstance(dummy_in, tuple | list):
        return dict(inspect.signature(model.forward).bind(*dummy_in).arguments)
    fields = fields_of(dummy_in)
    if fields is None:
        return named((dummy_in,), model)
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


def flattened(arguments: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Arguments under the names of placeholders: those of `*args` are numbered, those of `**kwargs` stand alone."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        parameters = {}
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = parameters[name].kind if name in parameters else None
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}_{index}": item for index, item in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def feed(graph: fx.Graph, arguments: Mapping[str, Any]) -> list[Any]:
    """The value of each placeholder, in order, from arguments by name.

    Raises ValueError where a tensor is given that no placeholder takes, or a placeholder is left without a value.
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
