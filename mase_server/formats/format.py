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

from mase_server.formats.rounding import ROUNDINGS, clamp_to_range

#: Element types that are wide enough to round in; narrower ones are computed in float32.
_WIDE = (torch.float32, torch.float64)

#: The parameters of a format by the names of its fields.
FormatParameters = dict[str, Any]
#: The parameters of a format under MASE's keys, and "name", the format's own.
FormatConfiguration = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a format can hold: the lowest and highest finite one, and the smallest positive one."""

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
    #: Further keys that MASE has for it, besides those of its parameters (see `of_keys`).
    further_keys: ClassVar[tuple[str, ...]] = ()
    #: The parameter that can be chosen from data (see `open`); "" for none.
    calibrated: ClassVar[str] = ""

    @classmethod
    def parse(cls, text: str) -> NumberFormat:
        """The format that a text names, the inverse of `str`. Raises ValueError, which quotes it, for a text that does
        not fit."""
        from mase_server.formats.registry import of_text

        return of_text(text)

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest values of the format to a float32 or float64 tensor, without gradient."""
        raise NotImplementedError(f"{type(self).__name__} has neither nearest nor round")

    @property
    @abstractmethod
    def bits(self) -> float:
        """Average bits of an element, including its share of the bits that a block stores once.

        Scales of whole tensors or channels are not counted.
        """

    @property
    def range(self) -> Range | None:
        """The range of the format; None where it depends on the data or is not known."""
        return None

    @property
    def precision(self) -> list[int]:
        """MASE's `precision` of a tensor in this format: its whole-number parameters, the width first, or else its
        bits."""
        found = [value for value in self._values().values() if isinstance(value, int) and not isinstance(value, bool)]
        return found or [math.ceil(self.bits)]

    def passes_gradient(self, values: Tensor) -> Tensor | None:
        """A mask of the values that pass the gradient; None if all do. Saturated values pass none."""
        limits = self.range
        return None if limits is None else (values >= limits.lowest) & (values <= limits.highest)

    def choices(self, low: float, high: float) -> list[Any]:
        """Values of the calibrated parameter for data from low to high, the coarsest first.

        The first one holds all data, as finely as possible; the later ones are finer and saturate the largest
        values.
        """
        raise ValueError(f"{self.name} has no parameter that data may choose")

    def quantise(self, values: Tensor) -> Tensor:
        """Round to the nearest values; the gradient goes straight through. TypeError for integer tensors."""
        if not values.is_floating_point():
            raise TypeError(f"{self} rounds floating-point tensors, not {values.dtype}: convert it with .float() first")
        if not (values.requires_grad and torch.is_grad_enabled()):
            return self.round(values)
        return _StraightThrough.apply(values, self)  # type: ignore[no-any-return, no-untyped-call]

    def round(self, values: Tensor) -> Tensor:
        """Round without a gradient."""
        given = values.detach()
        if given.dtype in _WIDE:
            return self.nearest(given)
        rounded, limits = self.nearest(given.float()).to(values.dtype), self.range
        # A narrow element type may round the ends of the range outwards.
        return rounded if limits is None else clamp_to_range(rounded, limits.lowest, limits.highest)

    @classmethod
    def of_keys(cls, values: FormatParameters, given: Mapping[str, Any]) -> FormatParameters:
        """The parameters of a MASE configuration.

        values: the parameters found under their own keys.  given: all entries for the argument by key,
        `further_keys` included.
        """
        return values

    def to_config(self) -> FormatConfiguration:
        """The parameters under MASE's keys, without the argument's prefix."""
        keys = {each.name: key_of(each) for each in dataclasses.fields(self)}
        return {"name": self.name, **{keys[name]: value for name, value in self._values().items()}}

    def _values(self) -> FormatParameters:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def __str__(self) -> str:
        return format_to_text(self)


def key_of(field: dataclasses.Field[Any]) -> str:
    """MASE's key of a parameter in a configuration, without the argument's prefix."""
    return str(field.metadata.get("key", field.name))


def format_to_text(format: NumberFormat, other: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The text of a format, with some parameters replaced by those in `other`."""
    values = {**format._values(), **other}
    shown = [_parameter_text(each, values[each.name]) for each in dataclasses.fields(format)]
    return f"{format.name}({','.join(filter(None, shown))})" if any(shown) else format.name


def _parameter_text(field: dataclasses.Field[Any], value: Any) -> str:
    """The text of a parameter: its bare value if it has no default, else `name=value`, and "" where it has its
    default."""
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
    """Raise ValueError, which quotes it, for an unknown way of rounding."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"{format.name}: rounding is {rounding!r}, expected {', '.join(ROUNDINGS)}")


def check_whole_number(format: NumberFormat, parameter: str, low: float, high: float) -> None:
    """Raise ValueError, which quotes it, if a parameter is not a whole number from low to high, both included."""
    value = getattr(format, parameter)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{format.name}: {parameter} is {value!r}, expected a whole number from {low} to {high}")


# A format whose parameter is to be chosen from data: `fixed(8,auto)`.


class _Auto(str):
    """The word `auto`, as a value that is not a string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


#: Written in a text or a configuration in place of the parameter.
AUTO = _Auto("auto")


@dataclass(frozen=True, slots=True)
class Open(NumberFormat):
    """A format whose calibrated parameter is not chosen yet. On meta it acts like any other; it does not round real
    values.

    example: the format with some value for it.  ValueError for a format that has no such parameter.
    """

    example: NumberFormat

    def __post_init__(self) -> None:
        self.example.choices(-1.0, 1.0)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The format's name."""
        return self.example.name

    @property
    def bits(self) -> float:
        """The format's bits."""
        return self.example.bits

    @property
    def range(self) -> None:
        """Return None: the range depends on the open parameter."""
        return

    @property
    def precision(self) -> list[int]:
        """The known part of the precision."""
        fields = dataclasses.fields(self.example)
        known = [getattr(self.example, each.name) for each in fields if each.name != self.parameter]
        return [value for value in known if isinstance(value, int) and not isinstance(value, bool)]

    @property
    def parameter(self) -> str:
        """The name of the open parameter."""
        return self.example.calibrated

    def choices(self, low: float, high: float) -> list[Any]:
        """The format's choices."""
        return self.example.choices(low, high)

    def closed(self, value: Any) -> NumberFormat:
        """The format with this value of the parameter."""
        return dataclasses.replace(self.example, **{self.parameter: value})

    def fits(self, format: NumberFormat) -> bool:
        """Is `format` this one with some value of the parameter?"""
        return isinstance(format, type(self.example)) and self.closed(getattr(format, self.parameter)) == format

    def nearest(self, values: Tensor) -> Tensor:
        """On meta, return the values themselves; ValueError for real ones."""
        with torch._C.DisableTorchFunction():  # modes that record on meta show another device
            if values.is_meta:
                return values.clone()
        raise ValueError(f"{self} rounds nothing yet: data must choose its {self.parameter}, as quantize does")

    def to_config(self) -> FormatConfiguration:
        """The parameters under MASE's keys, one of them open."""
        (field,) = (each for each in dataclasses.fields(self.example) if each.name == self.parameter)
        return {**self.example.to_config(), key_of(field): AUTO}

    def __str__(self) -> str:
        return format_to_text(self.example, {self.parameter: AUTO})
