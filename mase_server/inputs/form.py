"""What a person may change of a model's inputs and constructor arguments, as texts to be edited and read back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from mase_server.inputs.assumed import without_text
from mase_server.inputs.making.constructions import construction_of, signature_of
from mase_server.inputs.making.expressions import NoTextError, value_text
from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import write_spec

#: One field: name, text ("" where nothing is given, or `why` says what has no text), required, default as a text.
Field = dict[str, Any]
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def input_fields(model: nn.Module, spec: Inputs) -> list[Field]:
    """A field for each input: those that are given, then what forward takes besides."""
    parameters = _parameters(model.forward)
    sizes = dict(spec.sizes)
    # In the order of the inputs: a symbol says its size where it stands first.
    fields = [_field(name, parameters.get(name), *_input_text(each, sizes), {}) for name, each in spec.entries.items()]
    left = (name for name, each in parameters.items() if name not in spec.entries and each.kind not in _VARIABLE)
    return [*fields, *(_field(name, parameters[name], "", "", {}) for name in left)]


def _input_text(entry: Any, sizes: dict[str, int]) -> tuple[str, str]:
    """(text, why there is none) of one input."""
    if (trouble := next(without_text(entry), None)) is not None:
        return "", trouble
    return write_spec(entry, sizes), ""


def argument_fields(made_by: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, Any]) -> list[Field]:
    """A field for each argument of what makes a model. given: the arguments that it was given, by name."""
    fields = []
    for name, parameter in _parameters(made_by).items():
        if parameter.kind in _VARIABLE:
            continue
        text, why = _value_text(given[name], names) if name in given else ("", "")
        fields.append(_field(name, parameter, text, why, names))
    return fields


def maker(model: nn.Module, owner: str, names: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What a comment has to call to make a model: the class or function of the file that has this name."""
    found = type(model) if type(model).__name__ == owner else names.get(owner)
    return None if found is None or isinstance(found, nn.Module) or not callable(found) else found


def given_to(model: nn.Module, owner: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments that a model's maker was given."""
    made = construction_of(model)
    return made.bound() if type(model).__name__ == owner and made is not None else arguments


def _field(name: str, parameter: inspect.Parameter | None, text: str, why: str, names: Mapping[str, Any]) -> Field:
    empty = inspect.Parameter.empty
    required = parameter is not None and parameter.default is empty and parameter.kind not in _VARIABLE
    optional = parameter is None or parameter.default is empty
    default = "" if optional or parameter is None else _value_text(parameter.default, names)[0]
    return {"name": name, "text": text, "why": why, "required": required, "default": default}


def _value_text(value: Any, names: Mapping[str, Any]) -> tuple[str, str]:
    try:
        return value_text(value, names), ""
    except NoTextError as error:
        return "", str(error)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        is_model = isinstance(function, type) and issubclass(function, nn.Module)
        found = signature_of(function) if is_model else inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}
    return found.parameters


def form_of(
    model: nn.Module, owner: str, arguments: Mapping[str, Any], spec: Inputs, names: Mapping[str, Any]
) -> dict[str, Any]:
    """{"call", "arguments", "inputs"}: call: what makes the model, "" where nobody can say that in a comment."""
    makes = maker(model, owner, names)
    fields = [] if makes is None else argument_fields(makes, given_to(model, owner, arguments), names)
    return {"call": "" if makes is None else owner, "arguments": fields, "inputs": input_fields(model, spec)}
