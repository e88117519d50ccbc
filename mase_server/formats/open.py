"""A format with a parameter that data are to choose: `fixed(8,auto)`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, key_of, written


class _Auto(str):
    """A word that is no text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


#: What stands in a text, or in a configuration, in place of the parameter.
AUTO = _Auto("auto")


@dataclass(frozen=True, slots=True)
class Open(NumberFormat):
    """A format whose calibrated parameter is not chosen yet. On meta it is a format as any other; it rounds nothing.

    example: the format with some value for it.  ValueError for a format that has no such parameter.
    """

    example: NumberFormat

    def __post_init__(self) -> None:
        self.example.choices(-1.0, 1.0)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The format's."""
        return self.example.name

    @property
    def bits(self) -> float:
        """The format's."""
        return self.example.bits

    @property
    def range(self) -> None:
        """Nobody knows yet."""
        return

    @property
    def precision(self) -> list[int]:
        """What is known of it."""
        fields = dataclasses.fields(self.example)
        known = [getattr(self.example, each.name) for each in fields if each.name != self.parameter]
        return [value for value in known if isinstance(value, int) and not isinstance(value, bool)]

    @property
    def parameter(self) -> str:
        """The name of what is open."""
        return self.example.calibrated

    def choices(self, low: float, high: float) -> list[Any]:
        """The format's."""
        return self.example.choices(low, high)

    def closed(self, value: Any) -> NumberFormat:
        """The format with this value."""
        return dataclasses.replace(self.example, **{self.parameter: value})

    def fits(self, format: NumberFormat) -> bool:
        """Is this format the same one with some value?"""
        return isinstance(format, type(self.example)) and self.closed(getattr(format, self.parameter)) == format

    def nearest(self, values: Tensor) -> Tensor:
        """The values themselves on meta; ValueError for real ones."""
        with torch._C.DisableTorchFunction():  # modes that record on meta show another device
            if values.is_meta:
                return values.clone()
        raise ValueError(f"{self} rounds nothing yet: data must choose its {self.parameter}, as quantize does")

    def to_config(self) -> dict[str, Any]:
        """The parameters under MASE's keys, one of them open."""
        (field,) = (each for each in dataclasses.fields(self.example) if each.name == self.parameter)
        return {**self.example.to_config(), key_of(field): AUTO}

    def __str__(self) -> str:
        return written(self.example, {self.parameter: AUTO})
