"""Arguments of passes: what is declared of one, and whether a given value fits. Standard library only."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Literal

#: integer, number, boolean, text: as in JSON.  choice: one of `choices`.  format: a number format's text, e.g.
#: "fixed(8,4)", or a map as MASE's configurations have it; "none" for none.  texts: a list of texts.  map: a map whose
#: entries the pass reads itself.  file: a path.  value: any plain value; a text means the Python literal that it is.
Kind = Literal["integer", "number", "boolean", "text", "choice", "format", "texts", "map", "file", "value"]

#: The words of a command line for true and false.
TRUE, FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
#: The word for no value where one may be missing.
NONE = "none"


class ArgumentError(ValueError):
    """An argument that a pass does not have, lacks or cannot take; the text says which, and what it takes."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. name: its key in pass_args; a dotted one stands in a map, e.g. "weight.sparsity".

    default: None where the pass decides.  choices: of kind "choice" all there are, of others what is usual.
    minimum, maximum: both included.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values, under the names of the fields."""
        default = list(self.default) if isinstance(self.default, tuple) else self.default
        return {**asdict(self), "default": default, "choices": list(self.choices)}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Argument:
        """The inverse of `to_wire`."""
        return cls(**{**data, "choices": tuple(data["choices"])})

    @property
    def takes(self) -> str:
        """What it takes, in words: "a whole number from 1 to 64"."""
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        return _KINDS[self.kind].words + _range_words(self.minimum, self.maximum)

    def value(self, given: Any) -> Any:
        """The value that a given one means: itself, or what its text means. ArgumentError for one that does not fit.

        Formats are only looked at, not parsed: see `Checker`.
        """
        if given is None or (isinstance(given, str) and given == NONE and self._may_be_none):
            return None
        try:
            value = _KINDS[self.kind].read(given)
            fits = value in self.choices if self.kind == "choice" else self._within(value)
        except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError):
            fits = False
        if not fits:
            raise ArgumentError(f"{self.name} is {_quoted(given)}, expected {self.takes}")
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
    """Checks the arguments of one pass. others: what further keys mean, where it takes any.  format: raises ValueError
    for a text that is no number format; without it formats are not checked."""

    name: str
    arguments: Sequence[Argument]
    others: Argument | None = None
    format: Callable[[str], object] | None = None

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values by argument's name (dotted), defaults in place of what is not given; further keys as they are.

        given: values, or texts that mean them; a map in place of dotted names.  ArgumentError for what does not fit.
        """
        found: dict[str, Any] = {}
        for key, value in self._flat(given):
            argument = self._argument(key)
            found[key] = self._value(argument, key, value)
        for argument in self.arguments:
            if found.get(argument.name) is None:
                found.pop(argument.name, None)
                if argument.required:
                    raise ArgumentError(f"{self.name} needs {argument.name}: {argument.takes} ({argument.help})")
                if argument.default is not None:
                    found[argument.name] = argument.value(argument.default)
        return found

    def _flat(self, given: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
        names = [argument.name for argument in self.arguments]
        for key, value in given.items():
            dotted = f"{prefix}{key}"
            inside = dotted not in names and any(name.startswith(f"{dotted}.") for name in names)
            if inside and (inner := _as_map(value)) is not None:
                yield from self._flat(inner, f"{dotted}.")
            elif not (inside and value is None):
                yield dotted, value

    def _argument(self, key: str) -> Argument:
        known = {argument.name: argument for argument in self.arguments}
        found = known.get(key, self.others)
        if found is not None:
            return found
        near = get_close_matches(key, known, 1)
        told = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'none'}"
        raise ArgumentError(f"{self.name} has no argument {key!r}; {told}")

    def _value(self, argument: Argument, key: str, given: Any) -> Any:
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


def nested(values: Mapping[str, Any], dotted: Iterable[str]) -> dict[str, Any]:
    """pass_args: each of the dotted names becomes a map in a map; other keys stay as they are."""
    names, found = set(dotted), dict[str, Any]()
    for key, value in values.items():
        *outer, last = key.split(".") if key in names else [key]
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def _integer(given: Any) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool) or int(given) != given:
        raise ValueError
    return int(given)


def _number(given: Any) -> float:
    value = float(given) if isinstance(given, str) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return value


def _boolean(given: Any) -> bool:
    if isinstance(given, str) and given.lower() in TRUE | FALSE:
        return given.lower() in TRUE
    if not isinstance(given, bool):
        raise ValueError
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    return given


def _texts(given: Any) -> list[str]:
    """A list, or one text with commas between; commas in brackets do not count."""
    if isinstance(given, str):
        literal = given.strip().startswith("[")
        given = ast.literal_eval(given.strip()) if literal else split_texts(given)
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError
    return list(given)


def split_texts(text: str) -> list[str]:
    """The parts of a text between commas that stand outside of brackets, without blanks around them."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _map(given: Any) -> dict[str, Any]:
    value = ast.literal_eval(given) if isinstance(given, str) else given
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def _as_map(given: Any) -> dict[str, Any] | None:
    """A map, or what a text means by one; None for anything else."""
    try:
        return _map(given)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _value(given: Any) -> Any:
    """Any value; a text that is a literal, as `4` or `[1, 2]` is, means that."""
    try:
        return ast.literal_eval(given.strip()) if isinstance(given, str) else given
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return given


def _format(given: Any) -> str | dict[str, Any]:
    return _map(given) if not isinstance(given, str) or given.lstrip().startswith("{") else given


@dataclass(frozen=True, slots=True)
class _Kind:
    words: str
    read: Callable[[Any], Any]


_KINDS: Mapping[str, _Kind] = {
    "integer": _Kind("a whole number", _integer),
    "number": _Kind("a number", _number),
    "boolean": _Kind("true or false", _boolean),
    "text": _Kind("a text", _text),
    "choice": _Kind("a choice", _text),
    "format": _Kind("a number format such as fixed(8,4)", _format),
    "texts": _Kind("texts with commas between", _texts),
    "map": _Kind("a map such as {'name': 1}", _map),
    "file": _Kind("the path of a file", _text),
    "value": _Kind("a value", _value),
}


def _range_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    return f" of at least {low:g}" if low is not None else f" of at most {high:g}" if high is not None else ""


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
