"""The model as hardware computes it, as a graph: integers in, integers out, at tensor speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import fx, nn

from mase_server.hardware.design import Constant, Design, Operation, blame_operation
from mase_server.hardware.kinds import KINDS
from mase_server.ir.graph import MaseGraph


def integer_graph(design: Design) -> MaseGraph:
    """A MaseGraph that takes and returns int64 tensors, the batch first; its nodes have the names of operations.

    For an incomplete design it computes the existing part.  ValueError for a design without results.
    """
    if not design.outputs:
        raise ValueError("no part of the model has hardware: there is nothing to compute")
    root, graph = nn.Module(), fx.Graph()
    nodes: dict[str, fx.Node] = {}
    maker = Maker(root, graph, design, nodes)
    for operation in design.operations.values():
        with blame_operation(operation):
            nodes[operation.name] = KINDS[operation.kind].node(maker, operation)
    graph.output(tuple(nodes[name] for name in design.outputs) if len(design.outputs) > 1 else nodes[design.outputs[0]])
    return MaseGraph(fx.GraphModule(root, graph, "Integers"))


class Maker:
    """A graph of integers in the making, as kinds see it.

    root: holds the constants; prefix: its path in the graph's module.  nodes: by name of operation.
    """

    def __init__(
        self, root: nn.Module, graph: fx.Graph, design: Design, nodes: Mapping[str, fx.Node], prefix: str = ""
    ) -> None:
        self.root, self.graph, self.design, self.nodes, self.prefix = root, graph, design, nodes, prefix

    def call(self, operation: Operation, function: Callable[..., torch.Tensor], *args: object) -> fx.Node:
        """Add the node of an operation."""
        return self.graph.create_node("call_function", function, args, name=operation.name)  # type: ignore[arg-type]

    def inputs(self, operation: Operation) -> list[fx.Node]:
        """The nodes of its operands."""
        return [self.nodes[name] for name in operation.inputs]

    def format_in(self, operation: Operation, index: int = 0) -> str:
        """The format of an operand."""
        return str(self.design.operations[operation.inputs[index]].out.format)

    def constant(self, operation: Operation, name: str) -> tuple[fx.Node | None, str | None]:
        """The node of a constant and its format; None for a missing one."""
        constant: Constant | None = operation.constants.get(name)
        if constant is None:
            return None, None
        return self.buffer(f"{operation.name}_{name}", constant.integers), str(constant.format)

    def buffer(self, name: str, values: torch.Tensor) -> fx.Node:
        """The node of a new buffer."""
        self.root.register_buffer(name, values)
        return self.graph.get_attr(f"{self.prefix}{name}")

    def weights(self, operation: Operation) -> tuple[fx.Node | None, fx.Node | None, tuple[str | None, ...]]:
        """Weight, bias, and the formats of data, weight, bias and result."""
        (weight, of_weight), (bias, of_bias) = self.constant(operation, "weight"), self.constant(operation, "bias")
        return weight, bias, (self.format_in(operation), of_weight, of_bias, str(operation.out.format))
