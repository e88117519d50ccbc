"""Arguments of passes: what is declared of one, and whether a given value fits. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mase_server.kinds import READERS, UNREADABLE, Kind, as_map, split_texts
from mase_server.suggestions import suggest

__all__ = ["Argument", "ArgumentError", "Checker", "Kind", "nested", "split_texts"]

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
        return READERS[self.kind].words + _range_words(self.minimum, self.maximum)

    def value(self, given: Any) -> Any:
        """The value that a given one means: itself, or what its text means. ArgumentError for one that does not fit.

        Formats are only looked at, not parsed: see `Checker`.
        """
        if given is None or (isinstance(given, str) and given == NONE and self._may_be_none):
            return None
        try:
            value = READERS[self.kind].read(given)
            fits = value in self.choices if self.kind == "choice" else self._within(value)
        except UNREADABLE:
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
            if inside and (inner := as_map(value)) is not None:
                yield from self._flat(inner, f"{dotted}.")
            elif not (inside and value is None):
                yield dotted, value

    def _argument(self, key: str) -> Argument:
        known = {argument.name: argument for argument in self.arguments}
        found = known.get(key, self.others)
        if found is not None:
            return found
        raise ArgumentError(f"{self.name} has no argument {key!r}{suggest(key, known, 'it takes')}")

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


def _range_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    return f" of at least {low:g}" if low is not None else f" of at most {high:g}" if high is not None else ""


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
