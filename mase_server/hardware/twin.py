"""The model as hardware computes it, as a graph again: integers in, integers out, at tensor speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import fx, nn

from mase_server.hardware.design import Constant, Design, Operation
from mase_server.hardware.functional import integer_linear, integer_requantise, move
from mase_server.ir.graph import MaseGraph


def integer_graph(design: Design) -> MaseGraph:
    """A MaseGraph that takes and gives int64 tensors, the batch first; its nodes have the names of operations.

    ValueError for a design that is not whole.
    """
    if design.unsupported:
        lacking = ", ".join(each.node for each in design.unsupported)
        raise ValueError(f"the design lacks {lacking}: without them there is nothing to compute")
    root, graph = nn.Module(), fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for operation in design.operations.values():
        nodes[operation.name] = _NODES[operation.kind](_Maker(root, graph, design, nodes), operation)
    graph.output(tuple(nodes[name] for name in design.outputs) if len(design.outputs) > 1 else nodes[design.outputs[0]])
    return MaseGraph(fx.GraphModule(root, graph, "Integers"))


class _Maker:
    def __init__(self, root: nn.Module, graph: fx.Graph, design: Design, nodes: Mapping[str, fx.Node]) -> None:
        self.root, self.graph, self.design, self.nodes = root, graph, design, nodes

    def call(self, operation: Operation, function: Callable[..., torch.Tensor], *args: object) -> fx.Node:
        node = self.graph.create_node("call_function", function, args, name=operation.name)  # type: ignore[arg-type]
        return node

    def inputs(self, operation: Operation) -> list[fx.Node]:
        return [self.nodes[name] for name in operation.inputs]

    def format_in(self, operation: Operation, index: int = 0) -> str:
        return str(self.design.operations[operation.inputs[index]].out.format)

    def constant(self, operation: Operation, name: str) -> tuple[fx.Node | None, str | None]:
        """The node of a constant and its format; None for one that there is not."""
        constant: Constant | None = operation.constants.get(name)
        if constant is None:
            return None, None
        target = f"{operation.name}_{name}"
        self.root.register_buffer(target, constant.integers)
        return self.graph.get_attr(target), str(constant.format)


def _input(maker: _Maker, operation: Operation) -> fx.Node:
    return maker.graph.placeholder(operation.name)


def _linear(maker: _Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    (weight, of_weight), (bias, of_bias) = maker.constant(operation, "weight"), maker.constant(operation, "bias")
    formats = maker.format_in(operation), of_weight, of_bias, str(operation.out.format)
    return maker.call(operation, integer_linear, source, weight, bias, formats, operation.options["relu"])


def _requantise(maker: _Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(operation, integer_requantise, source, *formats, operation.options["relu"])


def _move(maker: _Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    target = f"{operation.name}_places"
    maker.root.register_buffer(target, operation.options["places"])
    return maker.call(operation, move, source, maker.graph.get_attr(target), operation.out.shape)


_NODES: Mapping[str, Callable[[_Maker, Operation], fx.Node]] = {
    "input": _input,
    "linear": _linear,
    "requantise": _requantise,
    "move": _move,
}
