"""A kind of operation: the operators it implements, the order of its results, and how it is folded, built and
computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.design import MOST_SERIAL, Design, Dots, Fold, Operation, Stream, products_of_mean
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of
from mase_server.hardware.timing.times import beat_of_serial_mean, clog2
from mase_server.hardware.verilog import Tap
from mase_server.ir.build import attribute

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


#: (lowering, node, its arguments by MASE's names) -> the lowered node. NoHardware for a node that cannot be lowered.
Rule = Callable[["Lowering", fx.Node, Mapping[str, Any]], Held]


def as_given(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """The order of the first operand if it has the same shape; row-major without operands."""
    given = [lowering.stream(name) for name in unrounded.inputs[:1]]
    return replace(out, order=given[0].order) if given and given[0].shape == out.shape else out


def row_major(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Row-major."""
    return out


def one_by_one(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """Each element needs the elements at its own place."""
    return tuple(torch.arange(operation.out.size) for _ in operation.inputs)


def at_any_pace(design: Design, operation: Operation) -> Iterator[Fold]:
    """Yield no folds: the operation runs at the pace of its neighbours."""
    return iter(())


def folds_of_means(design: Design, operation: Operation, count: int, lanes: int, cycles: int) -> Iterator[Fold]:
    """The folds of means with some lanes: a beat a cycle, or a few lanes bit by bit, without multipliers.

    count: the numbers of a mean.  cycles: in which all numbers come.
    """
    products, out = products_of_mean(count), operation.out
    yield Fold(lanes, lanes, cycles, products * lanes)
    if products and lanes <= MOST_SERIAL:
        before = design.operations[operation.inputs[0]].out.format
        shift = out.format.fraction_width - before.fraction_width
        beat = beat_of_serial_mean(before.width + clog2(count), shift, count)
        yield Fold(lanes, lanes, max(cycles, out.size // lanes * beat), 0, serial=True)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind, declared by a module of this package as a constant.

    rules: by MASE's operator.  node: in the graph of integers.  build: makes its instances and returns the tap of
    the result.  order: of its results, with the format and shape that they have.  folds: every way to build it.
    reach: for each operand, the position in flow of the last of its elements that each element of the result needs.
    mixes: how many of the last dimensions a result depends on; None if the batch has to be the first dimension.
    dots: its dot products, if it can share an engine; None if it cannot.
    networks: every way to build it of additions, without multipliers.
    """

    name: str
    node: Callable[[Maker, Operation], fx.Node]
    build: Callable[[Builder, Operation], Tap]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    order: Callable[[Lowering, Unrounded, Stream], Stream] = as_given
    folds: Callable[[Design, Operation], Iterator[Fold]] = at_any_pace
    reach: Callable[[Design, Operation], tuple[Tensor, ...]] = one_by_one
    mixes: int | None = None
    dots: Callable[[Design, Operation], Dots] | None = None
    networks: Callable[[Design, Operation], Iterator[Fold]] = at_any_pace


# The settings of layers with windows, and the order in which images flow.


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a call: its own arguments, else the attributes of the called layer.

    one_row: they describe only columns.
    """

    given: Mapping[str, Any]
    layer: Any
    one_row: bool = False

    @classmethod
    def of(cls, lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Settings:
        """The settings of a node with its arguments by name."""
        layer = attribute(lowering.model, str(node.target)) if node.op == "call_module" else None
        return cls(given, layer, len(lowering.sample(node_of(given["data_in_0"]))) == 2)

    def get(self, name: str, default: Any = None) -> Any:
        """One setting; `default` if it was not given, or is None."""
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
        """Windows of the given size; stride: the default."""
        plain = Windows(kernel, self.pair("stride", stride), (0, 0), self.pair("dilation", 1))
        return replace(plain, padding=self._padding_of_windows(plain))

    def _padding_of_windows(self, windows: Windows) -> tuple[int, int]:
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


#: Settings of the single row if the given ones describe only columns.
_ALONE: Mapping[str, int] = {"padding": 0}


def image_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, rows and columns of a sample; 1 for dimensions that it lacks."""
    channels, *size = shape
    rows, columns = (1, 1, *size)[-2:]
    return channels, rows, columns


def image_order(shape: tuple[int, ...]) -> Tensor:
    """Rows, columns, channels: the order in which images of [channels, rows, columns] flow."""
    return torch.arange(prod(shape)).reshape(image_size(shape)).permute(1, 2, 0).reshape(-1)
