"""An input of the model: a port of the top module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from mase_server.hardware.design import Operation, Stream
from mase_server.hardware.held import Unrounded
from mase_server.hardware.kinds.images import by_pixels
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.wiring import Tap
from mase_server.ir.number_formats import operator_of

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker

_WINDOWED = frozenset({"conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"})


def _node(maker: Maker, operation: Operation) -> fx.Node:
    return maker.graph.placeholder(operation.name)


def _build(builder: Builder, operation: Operation) -> Tap:
    """As wide as its first reader wants it."""
    name = f"data_in_{len(builder.made.inputs)}"
    lanes, bits = builder.lanes_wanted(operation), operation.out.format.width
    tap = Tap(name, f"{name}_valid", f"{name}_ready", lanes, bits)
    builder.made.inputs.append(tap)
    return tap


def _order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Images come pixel by pixel where the model looks at them with windows; all else is row-major."""
    windows = any(operator_of(node, lowering.model) in _WINDOWED for node in lowering.graph.nodes)
    return by_pixels(lowering, unrounded, out) if windows and len(out.shape) == 3 else out


KIND = Kind("input", _node, _build, order=_order)
