"""The interface of a number format, and the gradient that goes straight through its rounding."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.rounding import ROUNDINGS, clamp

#: Element types that are wide enough to round in; narrower ones are computed in float32.
_WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Range:
    """What a format can hold: its lowest and highest finite value, and its smallest positive one."""

    lowest: float
    highest: float
    smallest: float


@dataclass(frozen=True, slots=True)
class NumberFormat(ABC):
    """A set of values, and the rounding into it.

    Values are carried by floating-point tensors: `quantise` gives the same shape and element type, and runs on meta.
    NaN stays NaN; infinities saturate.  Subclasses are frozen dataclasses whose fields are the format's parameters, in
    the order of the text form; a field's metadata may give MASE's `key` for it in a configuration.
    """

    #: MASE's name in metadata and configurations.
    name: ClassVar[str]
    #: Keys that MASE has for it besides those of its parameters (see `of_keys`).
    further_keys: ClassVar[tuple[str, ...]] = ()
    #: The parameter that data may choose (see `open`); "" for none.
    calibrated: ClassVar[str] = ""

    @classmethod
    def parse(cls, text: str) -> NumberFormat:
        """The format of its text, the inverse of `str`. ValueError, quoting it, for a text that does not fit."""
        from mase_server.formats.registry import of_text

        return of_text(text)

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest values of the format to a float32 or float64 tensor, without gradient."""
        raise NotImplementedError(f"{type(self).__name__} has neither nearest nor round")

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits of an element on average, its share of what a block or a tensor shares included (scales of whole
        tensors or channels are not counted)."""

    @property
    def range(self) -> Range | None:
        """What it can hold; None where the data decide, or nobody has said."""
        return None

    @property
    def precision(self) -> list[int]:
        """MASE's `precision` of a tensor in this format: its whole numbers, the width first; its bits where it has
        none."""
        found = [value for value in self._values().values() if isinstance(value, int) and not isinstance(value, bool)]
        return found or [math.ceil(self.bits)]

    def passes_gradient(self, values: Tensor) -> Tensor | None:
        """Where the gradient goes through, as a mask; None for everywhere. Saturated values learn nothing."""
        limits = self.range
        return None if limits is None else (values >= limits.lowest) & (values <= limits.highest)

    def choices(self, low: float, high: float) -> list[Any]:
        """Values of the calibrated parameter for data from low to high: first the one with which all of it is held, as
        finely as can be, then finer ones, which saturate the largest."""
        raise ValueError(f"{self.name} has no parameter that data may choose")

    def quantise(self, values: Tensor) -> Tensor:
        """The nearest values of the format; the gradient goes straight through. TypeError for integer tensors."""
        if not values.is_floating_point():
            raise TypeError(f"{self} rounds floating-point tensors, not {values.dtype}: convert it with .float() first")
        if not (values.requires_grad and torch.is_grad_enabled()):
            return self.round(values)
        return _StraightThrough.apply(values, self)  # type: ignore[no-any-return, no-untyped-call]

    def round(self, values: Tensor) -> Tensor:
        """`quantise` without a gradient."""
        given = values.detach()
        if given.dtype in _WIDE:
            return self.nearest(given)
        rounded, limits = self.nearest(given.float()).to(values.dtype), self.range
        # A narrow carrier may round the ends of the range to the outside.
        return rounded if limits is None else clamp(rounded, limits.lowest, limits.highest)

    @classmethod
    def of_keys(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a configuration of MASE. values: those whose own keys it has.  given: all that it has for
        the argument, by key, `further_keys` among them."""
        return values

    def to_config(self) -> dict[str, Any]:
        """The parameters under MASE's keys, without the argument's prefix."""
        keys = {each.name: key_of(each) for each in dataclasses.fields(self)}
        return {"name": self.name, **{keys[name]: value for name, value in self._values().items()}}

    def _values(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def __str__(self) -> str:
        return written(self)


def key_of(field: dataclasses.Field[Any]) -> str:
    """MASE's key of a parameter in a configuration, without the argument's prefix."""
    return str(field.metadata.get("key", field.name))


def written(format: NumberFormat, other: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The text of a format, with other values for some of its parameters."""
    values = {**format._values(), **other}
    shown = [_text(each, values[each.name]) for each in dataclasses.fields(format)]
    return f"{format.name}({','.join(filter(None, shown))})" if any(shown) else format.name


def _text(field: dataclasses.Field[Any], value: Any) -> str:
    """A parameter that has no default stands by itself, another one by name, where it differs."""
    if field.default is dataclasses.MISSING:
        return str(value)
    return "" if value == field.default else f"{field.name}={value!r}".replace(" ", "")


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, format: NumberFormat) -> Tensor:
        ctx.mask = format.passes_gradient(values)
        return format.round(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return (gradient if ctx.mask is None else gradient * ctx.mask), None


def check_rounding(format: NumberFormat, rounding: object) -> None:
    """ValueError, quoting it, for a way of rounding that there is not."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"{format.name}: rounding is {rounding!r}, expected {', '.join(ROUNDINGS)}")


def check(format: NumberFormat, parameter: str, low: float, high: float) -> None:
    """ValueError, quoting it, where a parameter is not a whole number within bounds (both included)."""
    value = getattr(format, parameter)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{format.name}: {parameter} is {value!r}, expected a whole number from {low} to {high}")
