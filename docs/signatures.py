"""Signatures as people write them, with the same text on every machine and in every Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

_WIDTH = 100
#: Longer defaults get a separate table.
_LONGEST = 40
#: Names of types without a meaning outside of their module.
_ALIASES = {"Result": "tuple[MaseGraph, dict[str, Any]]"}


def parameters_of(thing: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a callable, without the object that a method belongs to."""
    return [each for each in _signature(thing).parameters.values() if each.name not in ("self", "cls")]


def _signature(thing: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(thing)
    except ValueError:  # an exception class without its own constructor
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])


def signature(name: str, thing: Callable[..., Any]) -> str:
    """`name(parameter: type = default, ...) -> type`, with one parameter per line if one line is too short."""
    parts = list(_parts(parameters_of(thing)))
    annotation = _signature(thing).return_annotation
    gives = "" if annotation in (inspect.Signature.empty, None, "None") or isinstance(thing, type) else annotation
    end = f") -> {_annotation(gives)}" if gives else ")"
    line = f"{name}({', '.join(parts)}{end}"
    return line if len(line) <= _WIDTH else f"{name}(\n    {(',' + chr(10) + '    ').join(parts)},\n{end}"


def _parts(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        typed = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        yield f"{stars.get(each.kind, '')}{each.name}{typed}" + (
            "" if each.default is each.empty else f" = {_short(shown(each.default))}"
        )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[0]}...{text[-1]}"


def _annotation(annotation: Any) -> str:
    return _ALIASES.get(annotation, annotation) if isinstance(annotation, str) else inspect.formatannotation(annotation)


def shown(value: Any) -> str:
    """A default as its author wrote it: no addresses, no paths, a read-only mapping as a dict."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shown, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, ModuleType | type):
        return value.__name__
    return "..." if repr(value).startswith("<") else repr(value)
