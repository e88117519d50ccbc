"""An input of the model: a port of the top module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from mase_server.hardware.design import Operation
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.wiring import Tap

if TYPE_CHECKING:
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _node(maker: Maker, operation: Operation) -> fx.Node:
    return maker.graph.placeholder(operation.name)


def _build(builder: Builder, operation: Operation) -> Tap:
    """As wide as its first reader wants it."""
    name = f"data_in_{len(builder.made.inputs)}"
    lanes, bits = builder.lanes_wanted(operation), operation.out.format.width
    tap = Tap(name, f"{name}_valid", f"{name}_ready", lanes, bits)
    builder.made.inputs.append(tap)
    return tap


KIND = Kind("input", _node, _build)
