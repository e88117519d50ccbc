"""All number formats by name: found in this package's files and made from texts."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from mase_server.formats.format import AUTO, FormatParameters, NumberFormat, Open, key_of
from mase_server.suggestions import describe_unreadable, suggest

Kind = TypeVar("Kind", bound=NumberFormat)


def _find_formats() -> dict[str, type[NumberFormat]]:
    """Name -> class, for every concrete format that a file of this package defines."""
    found: dict[str, type[NumberFormat]] = {}
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if file.name in {"registry", "functional"}:
            continue
        for kind in vars(importlib.import_module(f"{__package__}.{file.name}")).values():
            if isinstance(kind, type) and issubclass(kind, NumberFormat) and isinstance(vars(kind).get("name"), str):
                found[kind.name] = kind
    return found


_KINDS = _find_formats()
#: Name -> class.
FORMATS: Mapping[str, type[NumberFormat]] = MappingProxyType(_KINDS)


def register(kind: type[Kind]) -> type[Kind]:
    """Register a user-defined format by its name, for texts, configurations and checkpoints; use it as a decorator.

    kind: a frozen dataclass that extends `NumberFormat`. It has a `name`, `bits`, and `round` (any floating-point
    tensor) or `nearest` (float32 and float64), and `parse` and `__str__` if its text is not `name(parameter, ...)`.
    ValueError for a name that another format has, or that is no identifier.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{kind.__name__} needs a class attribute 'name', an identifier; it is {name!r}")
    if (known := _KINDS.get(name, kind)) is not kind and known.__qualname__ != kind.__qualname__:
        raise ValueError(f"another number format is called {name!r} already: {known.__module__}.{known.__qualname__}")
    _KINDS[name] = kind
    parse.cache_clear()
    return kind


@lru_cache(maxsize=1024)
def parse(text: str) -> NumberFormat:
    """The format that a text such as `fixed(8,4)` or `mxfp(4,3,block_size=32)` names: the inverse of `str`.

    `auto` may replace the parameter that can be chosen from data: `fixed(8,auto)`.
    Raises ValueError, which quotes it, for an unknown name, a missing or unknown parameter, or one out of range.
    """
    kind = FORMATS.get(text.strip().partition("(")[0].strip())
    return of_text(text) if kind is None else kind.parse(text)


def of_text(text: str) -> NumberFormat:
    """The format of a text written as a call."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name):
            raise ValueError("a format begins with its name")
        given = [_literal_or_auto(each) for each in call.args]
        named = {str(each.arg): _literal_or_auto(each.value) for each in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{text!r} is no number format{describe_unreadable(error)}; an example: fixed(8,4)") from None
    kind = kind_of(call.func.id)
    try:
        return make_format(kind, _bind_parameters(kind, given, named))
    except TypeError:
        raise ValueError(f"{text!r} does not fit {describe_usage(kind)}") from None


def _literal_or_auto(node: ast.expr) -> Any:
    return AUTO if isinstance(node, ast.Name) and node.id == AUTO else ast.literal_eval(node)


def _bind_parameters(kind: type[NumberFormat], given: list[Any], named: Mapping[str, Any]) -> FormatParameters:
    """The parameters by name; TypeError if there are too many, or one is given twice."""
    names = [each.name for each in dataclasses.fields(kind)]
    first = dict(zip(names, given, strict=False))
    if len(given) > len(names) or first.keys() & named.keys():
        raise TypeError
    return {**first, **named}


def make_format(kind: type[NumberFormat], given: Mapping[str, Any]) -> NumberFormat:
    """The format with these parameters, one of which may be left open for data to choose."""
    opened = [name for name, value in given.items() if isinstance(value, str) and value == AUTO]
    if not opened:
        return kind(**given)
    if opened != [kind.calibrated]:
        may = f"only {kind.calibrated} may" if kind.calibrated else "no parameter may"
        raise ValueError(f"{kind.name}: {opened[0]} is {AUTO}, but {may} be left to data")
    (field,) = (each for each in dataclasses.fields(kind) if each.name == kind.calibrated)
    return Open(kind(**{**given, kind.calibrated: 0 if is_required(field) else field.default}))


def describe_usage(kind: type[NumberFormat]) -> str:
    """Describe how a format is written, e.g. `fixed(width, fraction_width, is_signed=True)`."""
    shown = [each.name if is_required(each) else f"{each.name}={each.default!r}" for each in dataclasses.fields(kind)]
    return f"{kind.name}({', '.join(shown)})"


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Does a parameter lack a default?"""
    return field.default is dataclasses.MISSING


def kind_of(name: Any) -> type[NumberFormat]:
    """The format class of this name; ValueError for an unknown one."""
    if name not in FORMATS:
        raise ValueError(f"no number format is called {name!r}{suggest(name, sorted(FORMATS))}")
    return FORMATS[name]


# MASE's quantiser configurations: maps of a format's name and its parameters, under keys prefixed with an argument.

#: The arguments that a configuration may speak of.
ARGUMENTS = ("data_in", "weight", "bias", "data_out", "output_grad")
#: Format names of MASE that are refused here, with the reason.
REFUSED: Mapping[str, str] = {
    "flexround": "its roundings are learned on data, layer by layer; gptq_transform_pass chooses weights on data",
    "lutnet": "it replaces layers by look-up tables that have to be trained; logicnets_fusion_transform_pass makes "
    "tables of a layer that is rounded already",
    "logicnets": "it is no format: quantise to integer, data_out included, then logicnets_fusion_transform_pass makes "
    "truth tables of the layers",
    "mxint_hardware": "it is the arithmetic of one of MASE's circuits, which rounds down and whose exponent is that of "
    'the next power of two; mxint(8,block_size=(4,4)) is its data type: {"name": "mxint", "weight_block_size": (4, 4)}',
}
#: Keys of MASE that change nothing here: format name -> key -> the accepted values, None for any.
_IDLE: Mapping[str, Mapping[str, tuple[Any, ...] | None]] = {
    "binary": {"width": None},
    "binary_residual": {"width": None, "residual_sign": (True,), "stochastic": (False,), "bipolar": (True,)},
    "ternary": {"width": None, "mean": (None,), "median": (None,), "max": (None,)},
}
#: Keys without an argument prefix, with the accepted values; None for any.
_WHOLE: Mapping[str, tuple[Any, ...] | None] = {
    "name": None, "bypass": (True, False), "floor": (True, False), "binary_training": (True,), "clip_search": (False,),
    "gptq": (False,),
}  # fmt: skip


def from_config(config: Mapping[str, Any], argument: str = "") -> NumberFormat | None:
    """The format that MASE's configuration gives one argument; None where the configuration leaves it as it is.

    config: e.g. {"name": "integer", "data_in_width": 8, "data_in_frac_width": 4}.  argument: data_in | weight | bias
    | data_out | output_grad; "" where the keys have no prefix.  floor: round down.  The argument itself may be a key
    with the value None, which leaves it as it is.  ValueError for an unknown name, and for a missing parameter or
    one out of range.
    """
    kind = _kind_of_name(config.get("name"))
    if config.get("bypass") is True or (argument in config and config[argument] is None):
        return None
    prefix = f"{argument}_" if argument else ""
    given = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    fields = dataclasses.fields(kind)
    values = kind.of_keys({each.name: given[key_of(each)] for each in fields if key_of(each) in given}, given)
    values = {name: value for name, value in values.items() if value is not None}
    if not values and argument:
        return None
    missing = [prefix + key_of(each) for each in fields if each.name not in values and is_required(each)]
    if missing:
        raise ValueError(f"the configuration of {kind.name} lacks {', '.join(missing)}; it has {', '.join(config)}")
    if config.get("floor"):
        values = {"rounding": "floor", **values}
    return make_format(
        kind, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    )


def check_config(config: Mapping[str, Any]) -> None:
    """Raise ValueError for a key that the format does not have, naming the nearest, or for a value without a
    meaning."""
    kind = _kind_of_name(config.get("name"))
    idle = _IDLE.get(kind.name, {})
    own = {key_of(each) for each in dataclasses.fields(kind)} | set(kind.further_keys)
    known = {f"{argument}_{key}" for argument in ARGUMENTS for key in own}
    known |= {*_WHOLE, *ARGUMENTS}
    allowed: dict[str, tuple[Any, ...] | None] = {**_WHOLE, **dict.fromkeys(ARGUMENTS, (None,))}
    for argument in ARGUMENTS:
        allowed |= {f"{argument}_{key}": values for key, values in idle.items() if key not in own}
    for key, value in config.items():
        if key not in known and key not in allowed:
            raise ValueError(
                f"the configuration of {kind.name} has no key {key!r}{suggest(key, sorted(known), 'it takes')}"
            )
        if (values := allowed.get(key)) is not None and not any(value is each for each in values):
            expected = " or ".join(map(repr, values))
            raise ValueError(
                f"the configuration of {kind.name}: {key} is {value!r}, only {expected} has a meaning here"
            )
    if config.get("floor") and "rounding" not in own:
        raise ValueError(f"the configuration of {kind.name}: floor is for formats that can round down, as integer can")


def _kind_of_name(name: Any) -> type[NumberFormat]:
    if name in REFUSED:
        raise ValueError(f"{name} is no number format here: {REFUSED[name]}")
    return kind_of(name)
