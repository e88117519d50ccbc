"""Arguments of passes: their declarations, and checking and converting given values. Standard library only."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mase_server.protocol.answers.models import ArgumentKind as Kind
from mase_server.protocol.records import Plain, StepRecord
from mase_server.suggestions import describe_unreadable, suggest

if TYPE_CHECKING:
    from mase_server.protocol.answers import PassArgument


#: Arguments of a pass, or a part of them, by their names: plain values.
Arguments = dict[str, Any]


def name_pass(function: str) -> str:
    """The name of the pass that a function of this name declares: `quantize` for `quantize_transform_pass`."""
    return re.sub("(_transform|_analysis)?_pass$", "", function)


# Kinds of arguments: how a value, or its text from a command line, is read.
#
# integer, number, boolean, text: as in JSON.  choice: one of `choices`.  format: a number format's text, e.g.
# "fixed(8,4)", or a map in the form of MASE's configurations; "none" for none.  texts: a list of texts.  map: a map
# whose entries the pass reads itself.  file: a path.  value: any plain value; a text is read as a Python literal.

#: The words for true and false on a command line.
TRUE, FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})

#: The exceptions of reading an unreadable value.
UNREADABLE = (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError)


def _convert_integer(given: Any) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool) or int(given) != given:
        raise ValueError
    return int(given)


def _convert_number(given: Any) -> float:
    value = float(given) if isinstance(given, str) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return value


def _convert_boolean(given: Any) -> bool:
    if isinstance(given, str) and given.lower() in TRUE | FALSE:
        return given.lower() in TRUE
    if not isinstance(given, bool):
        raise ValueError
    return given


def _convert_text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    return given


def _convert_texts(given: Any) -> list[str]:
    """A list of texts, or one text with commas in between; commas in brackets do not count."""
    if isinstance(given, str):
        literal = given.strip().startswith("[")
        given = ast.literal_eval(given.strip()) if literal else split_texts(given)
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError
    return list(given)


def split_texts(text: str) -> list[str]:
    """Split a text at the commas outside of brackets, and strip the parts."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _convert_map(given: Any) -> Arguments:
    value = ast.literal_eval(given) if isinstance(given, str) else given
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def as_map(given: Any) -> Arguments | None:
    """A map, or the map that a text describes; None for anything else."""
    try:
        return _convert_map(given)
    except UNREADABLE:
        return None


def _convert_value(given: Any) -> Any:
    """Any value; a text that is a literal, such as `4` or `[1, 2]`, becomes its value."""
    try:
        return ast.literal_eval(given.strip()) if isinstance(given, str) else given
    except UNREADABLE:
        return given


def _convert_format(given: Any) -> str | Arguments:
    return _convert_map(given) if not isinstance(given, str) or given.lstrip().startswith("{") else given


@dataclass(frozen=True, slots=True)
class Reader:
    """words: the kind in words.  read: converts a value or its text; UNREADABLE for anything else."""

    words: str
    read: Callable[[Any], Any]


READERS: Mapping[str, Reader] = {
    "integer": Reader("a whole number", _convert_integer),
    "number": Reader("a number", _convert_number),
    "boolean": Reader("true or false", _convert_boolean),
    "text": Reader("a text", _convert_text),
    "choice": Reader("a choice", _convert_text),
    "format": Reader("a number format such as fixed(8,4)", _convert_format),
    "texts": Reader("texts, separated by commas", _convert_texts),
    "map": Reader("a map such as {'name': 1}", _convert_map),
    "file": Reader("the path of a file", _convert_text),
    "value": Reader("a value", _convert_value),
}


__all__ = ["Argument", "ArgumentError", "Checker", "Kind", "nested", "split_texts"]

#: The word for a missing value, where it is optional.
NONE = "none"


class ArgumentError(ValueError):
    """An unknown, missing or unfitting argument of a pass; the text says which, and what the pass takes."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. name: its key in pass_args; a dotted one is inside a map, e.g. "weight.sparsity".

    default: None if the pass decides.  choices: all values for kind "choice", typical ones for others.
    minimum, maximum: inclusive.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def to_wire(self) -> PassArgument:
        """As a map of plain values, with the fields' names."""
        return {
            "name": self.name, "kind": self.kind, "help": self.help,
            "default": list(self.default) if isinstance(self.default, tuple) else self.default,
            "required": self.required, "choices": list(self.choices),
            "minimum": self.minimum, "maximum": self.maximum,
        }  # fmt: skip

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Argument:
        """The inverse of `to_wire`."""
        return cls(**{**data, "choices": tuple(data["choices"])})

    @property
    def takes(self) -> str:
        """The values it takes, in words: "a whole number from 1 to 64"."""
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        return READERS[self.kind].words + _range_words(self.minimum, self.maximum)

    def value(self, given: Any) -> Any:
        """Convert a given value, or its text. ArgumentError if it does not fit.

        Formats are only checked for their type, not parsed: see `Checker`.
        """
        if given is None or (isinstance(given, str) and given == NONE and self._may_be_none):
            return None
        try:
            value = READERS[self.kind].read(given)
            fits = value in self.choices if self.kind == "choice" else self._within(value)
        except UNREADABLE:
            fits = False
        if not fits:
            raise ArgumentError(f"{self.name} is {_quote_value(given)}, expected {self.takes}")
        return value

    @property
    def _may_be_none(self) -> bool:
        return not self.required and NONE not in self.choices

    def _within(self, value: Any) -> bool:
        if self.kind not in ("integer", "number"):
            return True
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks the arguments of one pass. others: the meaning of further keys, if it takes any.  format: raises
    ValueError for a text that is no number format; without it formats are not checked.
    """

    name: str
    arguments: Sequence[Argument]
    others: Argument | None = None
    format: Callable[[str], object] | None = None

    def check(self, given: Mapping[str, Any]) -> Arguments:
        """Values by the arguments' (dotted) names, with defaults for missing ones; further keys stay as they are.

        given: values or their texts; maps may replace dotted names.  ArgumentError for values that do not fit.
        """
        found: Arguments = {}
        for key, value in self._flatten_values(given):
            argument = self._find_argument(key)
            found[key] = self._check_value(argument, key, value)
        for argument in self.arguments:
            if found.get(argument.name) is None:
                found.pop(argument.name, None)
                if argument.required:
                    raise ArgumentError(f"{self.name} needs {argument.name}: {argument.takes} ({argument.help})")
                if argument.default is not None:
                    found[argument.name] = argument.value(argument.default)
        return found

    def _flatten_values(self, given: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
        names = [argument.name for argument in self.arguments]
        for key, value in given.items():
            dotted = f"{prefix}{key}"
            inside = dotted not in names and any(name.startswith(f"{dotted}.") for name in names)
            if inside and (inner := as_map(value)) is not None:
                yield from self._flatten_values(inner, f"{dotted}.")
            elif not (inside and value is None):
                yield dotted, value

    def _find_argument(self, key: str) -> Argument:
        known = {argument.name: argument for argument in self.arguments}
        found = known.get(key, self.others)
        if found is not None:
            return found
        raise ArgumentError(f"{self.name} has no argument {key!r}{suggest(key, known, 'it takes')}")

    def _check_value(self, argument: Argument, key: str, given: Any) -> Any:
        try:
            value = argument.value(given)
            if argument.kind == "format" and isinstance(value, str) and self.format is not None:
                self.format(value)
        except ArgumentError as error:
            told = str(error) if key == argument.name else str(error).replace(argument.name, key, 1)
            raise ArgumentError(f"{self.name}: {told}") from None
        except ValueError as error:
            raise ArgumentError(f"{self.name}: {key}: {error}") from None
        return value


def nested(values: Mapping[str, Any], dotted: Iterable[str]) -> Arguments:
    """Convert dotted names to pass_args: each becomes a key in a nested map; other keys stay as they are."""
    names, found = set(dotted), Arguments()
    for key, value in values.items():
        *outer, last = key.split(".") if key in names else [key]
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def _range_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    return f" of at least {low:g}" if low is not None else f" of at most {high:g}" if high is not None else ""


def _quote_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# A pipeline as text: the passes applied to a model, with their arguments. Standard library only.
#
# One step is written as a call, e.g. ``quantize(by='type', linear='fixed(8,4)', **{'0.weight': 'mxint(8,8)'})``; a
# pipeline is a list of them. Settings, provenance and the command line use this form.


@dataclass(frozen=True, slots=True)
class Step:
    """One pass with its arguments: plain values (numbers, texts, booleans, None, lists and maps of them)."""

    name: str
    arguments: Mapping[str, Plain] = field(default_factory=dict)

    def to_wire(self) -> StepRecord:
        """{"pass", "arguments"}."""
        return {"pass": self.name, "arguments": dict(self.arguments)}

    @classmethod
    def from_wire(cls, data: StepRecord) -> Step:
        """The inverse of `to_wire`."""
        return cls(data["pass"], dict(data["arguments"]))

    @classmethod
    def parse(cls, text: str) -> Step:
        """The inverse of `str`; ValueError quotes a text that is not a call with named plain values."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
            call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
            if not isinstance(call.func, ast.Name) or call.args:
                raise ValueError("a step is a pass with named arguments")
            return cls(call.func.id, _keyword_values(call))
        except (SyntaxError, ValueError, TypeError) as error:
            why = describe_unreadable(error)
            raise ValueError(f"{text!r} is no step{why}; an example: quantize(default='fixed(8,4)')") from None

    def __str__(self) -> str:
        named = [f"{key}={value!r}" for key, value in self.arguments.items() if _is_name(key)]
        other = {key: value for key, value in self.arguments.items() if not _is_name(key)}
        return f"{self.name}({', '.join([*named, *([f'**{other!r}'] if other else [])])})"


def _is_name(key: str) -> bool:
    """Can Python read this name unchanged? It refuses keywords, and normalises non-ASCII letters."""
    return key.isidentifier() and key.isascii() and not keyword.iskeyword(key)


def _keyword_values(call: ast.Call) -> dict[str, Plain]:
    found: dict[str, Plain] = {}
    for each in call.keywords:
        value = ast.literal_eval(each.value)
        found |= dict(value) if each.arg is None else {each.arg: value}
    return found
