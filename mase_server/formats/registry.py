"""Every format by name: found in this package's files, made from a text."""

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

from mase_server.formats.format import NumberFormat
from mase_server.formats.open import AUTO, Open
from mase_server.suggestions import suggest

Kind = TypeVar("Kind", bound=NumberFormat)


def _found() -> dict[str, type[NumberFormat]]:
    """Name -> class, for every concrete format that a file of this package defines."""
    found: dict[str, type[NumberFormat]] = {}
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if file.name in {"registry", "configuration", "functional", "open"}:
            continue
        for kind in vars(importlib.import_module(f"{__package__}.{file.name}")).values():
            if isinstance(kind, type) and issubclass(kind, NumberFormat) and "name" in vars(kind):
                found[kind.name] = kind
    return found


_KINDS = _found()
#: Name -> class.
FORMATS: Mapping[str, type[NumberFormat]] = MappingProxyType(_KINDS)


def register(kind: type[Kind]) -> type[Kind]:
    """Make a format of one's own known by its name, in texts, configurations and checkpoints; to be used as decorator.

    kind: a frozen dataclass that extends `NumberFormat`. It has a `name`, `bits`, and `round` (any floating-point
    tensor) or `nearest` (float32 and float64); `parse` and `__str__`, where its text is to be another one than
    `name(parameter, ...)`.  ValueError for a name that another format has, or that is no identifier.
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

    In place of the parameter that data may choose there may be `auto`: `fixed(8,auto)`.
    ValueError, quoting it, for an unknown name, a missing or unknown parameter, or one out of range.
    """
    kind = FORMATS.get(text.strip().partition("(")[0].strip())
    return of_text(text) if kind is None else kind.parse(text)


def of_text(text: str) -> NumberFormat:
    """The format of a text that is written as a call."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name):
            raise ValueError("a format begins with its name")
        given = [_literal(each) for each in call.args]
        named = {str(each.arg): _literal(each.value) for each in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{text!r} is no number format ({error}); an example: fixed(8,4)") from None
    kind = kind_of(call.func.id)
    try:
        return made(kind, _bound(kind, given, named))
    except TypeError:
        raise ValueError(f"{text!r} does not fit {usage(kind)}") from None


def _literal(node: ast.expr) -> Any:
    return AUTO if isinstance(node, ast.Name) and node.id == AUTO else ast.literal_eval(node)


def _bound(kind: type[NumberFormat], given: list[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by name; TypeError for more than there are, or the same one twice."""
    names = [each.name for each in dataclasses.fields(kind)]
    first = dict(zip(names, given, strict=False))
    if len(given) > len(names) or first.keys() & named.keys():
        raise TypeError
    return {**first, **named}


def made(kind: type[NumberFormat], given: Mapping[str, Any]) -> NumberFormat:
    """The format with these parameters, one of which may be left to data."""
    opened = [name for name, value in given.items() if isinstance(value, str) and value == AUTO]
    if not opened:
        return kind(**given)
    if opened != [kind.calibrated]:
        may = f"only {kind.calibrated} may" if kind.calibrated else "no parameter may"
        raise ValueError(f"{kind.name}: {opened[0]} is {AUTO}, but {may} be left to data")
    (field,) = (each for each in dataclasses.fields(kind) if each.name == kind.calibrated)
    return Open(kind(**{**given, kind.calibrated: 0 if required(field) else field.default}))


def usage(kind: type[NumberFormat]) -> str:
    """How a format is written, e.g. `fixed(width, fraction_width, is_signed=True)`."""
    shown = [each.name if required(each) else f"{each.name}={each.default!r}" for each in dataclasses.fields(kind)]
    return f"{kind.name}({', '.join(shown)})"


def required(field: dataclasses.Field[Any]) -> bool:
    """Has a parameter no default?"""
    return field.default is dataclasses.MISSING


def kind_of(name: Any) -> type[NumberFormat]:
    """The format of this name; ValueError for none."""
    if name not in FORMATS:
        raise ValueError(f"no number format is called {name!r}{suggest(name, sorted(FORMATS))}")
    return FORMATS[name]
