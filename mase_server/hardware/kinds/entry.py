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

_IMAGES = frozenset(
    {"conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"}
)
_ROWS = frozenset(
    {"conv1d", "conv_transpose1d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"}
)


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
    windowed = {2: _ROWS, 3: _IMAGES}.get(len(out.shape), frozenset())
    looked_at = any(operator_of(node, lowering.model) in windowed for node in lowering.graph.nodes)
    return by_pixels(lowering, unrounded, out) if looked_at else out


KIND = Kind("input", _node, _build, order=_order)
