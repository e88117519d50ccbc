"""Values as Python text that evaluates to them among the names of the user's file: numbers, classes, parts.

A module that is used twice has no text, since its text would make two.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import torch
from torch import nn

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.models.configs import AnyConfig
from mase_server.tracing.models.constructions import construction_of

#: Further names that the text of constructor arguments may use, besides those of the file.
NAMES: Mapping[str, Any] = {
    "torch": torch, "nn": nn, "F": nn.functional, "partial": functools.partial,
    "SimpleNamespace": types.SimpleNamespace, "config": AnyConfig,
}  # fmt: skip

#: The longest text that is still useful in a comment.
MAX_LENGTH = 600


class NoTextError(ValueError):
    """A value without a short expression; the message names it, as the end of a sentence."""


def write_call(function: Callable[..., Any], arguments: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """The text of a call; NoTextError names the first argument without a text form.

    arguments: by parameter name.  names: further names that the text may use, besides `NAMES`.
    """
    writer = _Writer(names)
    text = writer.call(writer.name(function), arguments, function)
    if len(text) > MAX_LENGTH:
        raise NoTextError(f"their text would have {len(text)} characters")
    return text


def value_text(value: Any, names: Mapping[str, Any]) -> str:
    """The text of one value; NoTextError if there is no short one."""
    text = _Writer(names).value(value)
    if len(text) > MAX_LENGTH:
        raise NoTextError(f"its text would have {len(text)} characters")
    return text


class _Writer:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = {**NAMES, **names}
        self.parts: set[int] = set()

    def call(self, name: str, arguments: Mapping[str, Any], function: Callable[..., Any]) -> str:
        """`Net(3, width=4)`: positional as long as the signature allows, then by name."""
        kinds = _get_parameter_kinds(function)
        texts: list[str] = []
        for key, value in arguments.items():
            kind = kinds.get(key, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                texts += [self._write_argument(key, each) for each in value]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                texts += [f"{inner}={self._write_argument(inner, each)}" for inner, each in value.items()]
            elif kind is inspect.Parameter.POSITIONAL_ONLY or _before_variable(key, kinds):
                texts.append(self._write_argument(key, value))
            else:
                texts.append(f"{key}={self._write_argument(key, value)}")
        return f"{name}({', '.join(texts)})"

    def _write_argument(self, key: str, value: Any) -> str:
        try:
            return self.value(value)
        except NoTextError as error:
            raise NoTextError(f"{key}: {error}" if ":" not in str(error) else str(error)) from None

    def value(self, value: Any) -> str:
        """One value; NoTextError if there is no short text."""
        for kind, write in _WRITERS:
            if isinstance(value, kind):
                return write(self, value)
        return self._write_other(value)

    def name(self, value: Any) -> str:
        """The file's name for a class, function or module."""
        for name, held in self.names.items():
            if held is value and name.isidentifier():
                return name
        own = _get_own_name(value)
        for name, held in self.names.items():
            known = isinstance(held, types.ModuleType | type) and name.isidentifier()
            if known and own.isidentifier() and getattr(held, own, None) is value:
                return f"{name}.{own}"
        raise NoTextError(f"{_name_value(value)} has no name here")

    def _write_other(self, value: Any) -> str:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
            told = {name: held for name, held in fields.items() if not self._is_default(value, name, held)}
            return self.call(self.name(type(value)), told, type(value))
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return self.name(value)
        raise NoTextError(f"{_name_value(value)} has no text form")

    def _is_default(self, value: Any, name: str, held: Any) -> bool:
        """Does a field of a dataclass hold its default?"""
        [each] = [each for each in dataclasses.fields(value) if each.name == name]
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        return type(default) is type(held) and self.value(default) == self.value(held)

    def number(self, value: float) -> str:
        if type(value) not in (bool, int, float):
            raise NoTextError(f"{_name_value(value)} has no text form")
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"

    def sequence(self, value: Sequence[Any]) -> str:
        texts = [self.value(each) for each in value]
        if hasattr(value, "_fields"):
            return f"{self.name(type(value))}({', '.join(texts)})"
        brackets = {list: "[{}]", tuple: "({},)" if len(texts) == 1 else "({})"}.get(type(value))
        if brackets is None:
            raise NoTextError(f"{_name_value(value)} has no text form")
        return brackets.format(", ".join(texts))

    def mapping(self, value: Mapping[Any, Any]) -> str:
        if type(value) is AnyConfig and all(isinstance(key, str) and key.isidentifier() for key in value):
            return f"config({', '.join(f'{key}={self.value(each)}' for key, each in value.items())})"
        text = f"{{{', '.join(f'{self.value(key)}: {self.value(each)}' for key, each in value.items())}}}"
        return text if type(value) is dict else f"{self.name(type(value))}({text})"

    def module(self, value: nn.Module) -> str:
        made = construction_of(value)
        if made is None or id(value) in self.parts:
            raise NoTextError(f"its {type(value).__name__} cannot be made by one expression")
        self.parts.add(id(value))
        return self.call(self.name(type(value)), made.bound(), type(value))

    def namespace(self, value: types.SimpleNamespace) -> str:
        if type(value) is not types.SimpleNamespace:
            raise NoTextError(f"{_name_value(value)} has no text form")
        return self.call("SimpleNamespace", vars(value), types.SimpleNamespace)

    def partial(self, value: functools.partial[Any]) -> str:
        texts = [self.value(value.func), *map(self.value, value.args)]
        texts += [f"{key}={self.value(each)}" for key, each in value.keywords.items()]
        return f"{self.name(functools.partial)}({', '.join(texts)})"


#: type -> how its values are written; the first that fits counts.
_WRITERS: tuple[tuple[Any, Callable[[_Writer, Any], str]], ...] = (
    (enum.Enum, lambda writer, value: f"{writer.name(type(value))}.{value.name}"),
    (int | float, _Writer.number),
    (str | bytes | None, lambda writer, value: repr(value)),
    (torch.dtype | torch.device, lambda writer, value: _of_torch(value)),
    (torch.Size, lambda writer, value: repr(tuple(value))),
    (range, lambda writer, value: repr(value)),
    (nn.Module, _Writer.module),
    (list | tuple, _Writer.sequence),
    (dict, _Writer.mapping),
    (types.SimpleNamespace, _Writer.namespace),
    (functools.partial, _Writer.partial),
    (PurePath, lambda writer, value: repr(str(value))),
)


def _of_torch(value: torch.dtype | torch.device) -> str:
    return repr(value) if isinstance(value, torch.dtype) else repr(str(value))


def _get_parameter_kinds(function: Callable[..., Any]) -> dict[str, inspect._ParameterKind]:
    try:
        return {name: each.kind for name, each in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):
        return {}


def _before_variable(key: str, kinds: Mapping[str, inspect._ParameterKind]) -> bool:
    """Must a parameter be given by position, because `*args` follow it?"""
    return key.isdigit() or (
        key in kinds and inspect.Parameter.VAR_POSITIONAL in list(kinds.values())[list(kinds).index(key) :]
    )


def _name_value(value: Any) -> str:
    return _get_own_name(value) or f"a {type(value).__name__}"


def _get_own_name(value: Any) -> str:
    """The name of a class, function or module; empty for other values and for those that raise when they are asked."""
    try:
        name = value.__name__
    except RAISED:  # the border to the user's `__getattr__`
        return ""
    return name if isinstance(name, str) else ""
