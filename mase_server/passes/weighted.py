"""Products with a weight, in all their forms in a graph: calls of layers, or of functions with a parameter.

A weight may be in a layer, an argument of a function, behind a mask or a rounding, or transposed as in GPT-2. Pruning,
movement, sparsity and GPTQ go by this module. n:m groups lie along the dimension that a product sums over, as hardware
that skips zeros needs.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from mase_server.formats import quantise, round_gradient, with_parameters
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.passes.declaration import Selection
from mase_server.passes.functional import as_function


@dataclass(frozen=True, slots=True)
class Layout:
    """data, weight: position and keyword of an argument.  sums: the weight's dimension that a product sums over.
    name: MASE's name of the weight."""

    data: tuple[int, str]
    weight: tuple[int, str]
    sums: int
    name: str = "weight"


_LAYER = Layout((0, "input"), (1, "weight"), 1)
#: Functions that may be between a weight and its product.
_BETWEEN = (quantise, round_gradient)
#: The end of the name of a pruning mask.
MASK = "_pruning_mask"
#: The end of the name of a weight that pruning wrote zeros into.
PRUNED = "_weight_pruned"

#: Operator -> the position of its weight. Layers written as a product, such as GPT-2's, have it transposed.
LAYOUTS: Mapping[str, Layout] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d"), _LAYER),
    "addmm": Layout((1, "mat1"), (2, "mat2"), 0, "data_in_2"),
}


@dataclass(frozen=True, slots=True)
class Weighted:
    """One product. path: its weight in the graph's module.  data: the node whose result the weight is multiplied with.

    origin: the node that reads the weight; None if the called layer holds it.  user: the node that takes it from
    there, a rounding, a mask or the node itself.
    """

    node: fx.Node
    operator: str
    path: str
    data: fx.Node
    origin: fx.Node | None
    user: fx.Node

    @property
    def sums(self) -> int:
        """The weight's dimension that the product sums over."""
        return LAYOUTS[self.operator].sums

    @property
    def name(self) -> str:
        """MASE's name of the weight among the node's arguments."""
        return LAYOUTS[self.operator].name

    @property
    def argument(self) -> fx.Node:
        """The node that gives the weight, perhaps masked and rounded; ValueError while the layer holds it."""
        if self.node.op == "call_module":
            raise ValueError(f"the weight of {self.node.name} is no argument of it")
        found = _weight_of_product(self.node, LAYOUTS[self.operator])
        assert isinstance(found, fx.Node)
        return found

    @property
    def masked(self) -> bool:
        """Is it pruned?"""
        return is_mask(self.user)

    def weight(self, module: nn.Module) -> Tensor:
        """The weight itself, from the model."""
        found: Tensor = attribute(module, self.path)
        return found

    def masked_weight(self, module: nn.Module) -> Tensor:
        """The weight with zeros where its pruning mask has them."""
        weight = self.weight(module)
        mask = attribute(module, str(self.user.all_input_nodes[1].target)) if self.masked else None
        return weight if mask is None else weight * mask

    @property
    def rounded_to(self) -> str | None:
        """The number format that the weight is rounded to; None for none."""
        if self.node.op == "call_module":
            return None
        value: Any = self.argument
        while isinstance(value, fx.Node) and value.op != "get_attr":
            if (text := format_text(value)) is not None:
                return text
            value = value.args[0]
        return None


def find_weighted(graph: fx.Graph, module: nn.Module, only: Selection | None = None) -> list[Weighted]:
    """Every product with a weight that is a parameter, in the graph's order."""
    chosen = Selection() if only is None else only.checked(graph)
    return [found for node in graph.nodes if chosen.covers(node) for found in _weighted_of_node(node, module)]


def without_weight(graph: fx.Graph, module: nn.Module, only: Selection | None = None) -> list[fx.Node]:
    """Products of the same kinds whose weight is no parameter, but computed before each call."""
    chosen = Selection() if only is None else only
    nodes = [node for node in graph.nodes if chosen.covers(node) and node.op in ("call_module", "call_function")]
    return [node for node in nodes if operator_of(node, module) in LAYOUTS and not any(_weighted_of_node(node, module))]


def expose_weight(found: Weighted, module: nn.Module) -> Weighted:
    """The same product with a node that reads its weight: a layer becomes a function of its parameters."""
    if found.origin is not None:
        return found
    origin = as_function(found.node, attribute(module, str(found.node.target)))["weight"]
    return Weighted(found.node, found.operator, found.path, found.data, origin, found.node)


def _weighted_of_node(node: fx.Node, module: nn.Module) -> Iterator[Weighted]:
    name = operator_of(node, module) if node.op in ("call_module", "call_function") else ""
    layout = LAYOUTS.get(name)
    if layout is None:
        return
    data = _data_of_product(node, layout)
    if node.op == "call_module":
        layer = attribute(module, str(node.target))
        if data is not None and "weight" in dict(layer.named_parameters(recurse=False)):
            yield Weighted(node, name, f"{node.target}.weight", data, None, node)
        return
    origin, user = _find_read_parameter(_weight_of_product(node, layout), node)
    if data is not None and origin is not None and isinstance(attribute(module, str(origin.target)), nn.Parameter):
        yield Weighted(node, name, str(origin.target), data, origin, user)


def _data_of_product(node: fx.Node, layout: Layout) -> fx.Node | None:
    if node.target is with_parameters:
        found: Any = node.args[2] if len(node.args) > 2 else None
    else:
        found = _argument_at(node, layout.data) if node.op == "call_function" else _argument_at(node, _LAYER.data)
    return found if isinstance(found, fx.Node) else None


def _weight_of_product(node: fx.Node, layout: Layout) -> Any:
    if underlying_callable(node.target) is with_parameters:
        parameters = node.args[1]
        return parameters.get("weight") if isinstance(parameters, Mapping) else None
    return _argument_at(node, layout.weight)


def _argument_at(node: fx.Node, place: tuple[int, str]) -> Any:
    position, name = place
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)


def _find_read_parameter(value: Any, user: fx.Node) -> tuple[fx.Node | None, fx.Node]:
    """The node that reads the parameter behind roundings and masks, and the node that takes it from there."""
    while isinstance(value, fx.Node) and (value.target in _BETWEEN or is_mask(value)):
        value, user = value.args[0], value
    return (value, user) if isinstance(value, fx.Node) and value.op == "get_attr" else (None, user)


def is_mask(node: fx.Node) -> bool:
    """Does this node multiply a weight with its pruning mask?"""
    place = node.args[1] if node.target is operator.mul and len(node.args) == 2 else None
    return isinstance(place, fx.Node) and place.op == "get_attr" and str(place.target).endswith(MASK)


def require_values(name: str, found: Weighted, tensor: Tensor) -> None:
    """Raise ValueError if a weight has no values, because it is on meta."""
    if tensor.is_meta:
        raise ValueError(f"{name} needs the values of {found.path}, which is on meta: build the model with its weights")
