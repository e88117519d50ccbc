"""The settings of layers that look at images, and the order in which images flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.held import NoHardware, node_of
from mase_server.ir.build import attribute

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a call: its own arguments, else the attributes of the layer that is called.

    one_row: they speak of columns alone.
    """

    given: Mapping[str, Any]
    layer: Any
    one_row: bool = False

    @classmethod
    def of(cls, lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Settings:
        """Of a node with its arguments by name."""
        layer = attribute(lowering.model, str(node.target)) if node.op == "call_module" else None
        return cls(given, layer, len(lowering.sample(node_of(given["data_in_0"]))) == 2)

    def get(self, name: str, default: Any = None) -> Any:
        """One setting; `default` where it was not given, or is None."""
        value = self.given.get(name, getattr(self.layer, name, None))
        return default if value is None else value

    def pair(self, name: str, default: Any = None) -> tuple[int, int]:
        """Rows and columns."""
        value = self.get(name, default)
        numbers = (value,) if isinstance(value, int) else tuple(value)
        if self.one_row and not (value is default and len(numbers) == 2):
            numbers = _ALONE.get(name, 1), *numbers
        rows, columns = (*numbers, *numbers)[:2]
        return int(rows), int(columns)

    def windows(self, kernel: tuple[int, int], stride: Any) -> Windows:
        """Windows of a size; stride: what it is where nothing is said."""
        plain = Windows(kernel, self.pair("stride", stride), (0, 0), self.pair("dilation", 1))
        return replace(plain, padding=self._padding(plain))

    def _padding(self, windows: Windows) -> tuple[int, int]:
        match self.get("padding", 0):
            case "valid":
                return 0, 0
            case "same":
                rows, columns = (reach - 1 for reach in windows.reach)
                if rows % 2 or columns % 2:
                    raise NoHardware(
                        f"padding 'same' of {rows} rows and {columns} columns is uneven; pad the image first"
                    )
                return rows // 2, columns // 2
            case _:
                return self.pair("padding", 0)


#: What a setting of columns alone is for the one row.
_ALONE: Mapping[str, int] = {"padding": 0}


def image_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, rows and columns of a sample; one row or pixel where it has no such dimension."""
    channels, *size = shape
    rows, columns = (1, 1, *size)[-2:]
    return channels, rows, columns


def image_order(shape: tuple[int, ...]) -> Tensor:
    """Rows, columns, channels: the order in which images of [channels, rows, columns] flow."""
    return torch.arange(prod(shape)).reshape(image_size(shape)).permute(1, 2, 0).reshape(-1)
