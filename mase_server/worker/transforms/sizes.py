"""What the parameters of a graph take: how many there are, and their bytes in the formats that they are rounded to."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator

from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.ir.build import attribute
from mase_server.ir.number_formats import format_text


def parameter_sizes(graph: fx.Graph, model: nn.Module) -> tuple[int, int]:
    """(elements, bytes) of the parameters that the graph uses; one that is shared counts once.

    A parameter that every user gets rounded takes the bits of its widest format, any other those of its element type.
    """
    bits: dict[nn.Parameter, float] = {}
    for parameter, width in _uses(graph, model):
        bits[parameter] = max(width, bits.get(parameter, 0.0))
    elements = {parameter: parameter.numel() for parameter in bits}
    return sum(elements.values()), round(sum(elements[each] * width / 8 for each, width in bits.items()))


def _uses(graph: fx.Graph, model: nn.Module) -> Iterator[tuple[nn.Parameter, float]]:
    for node in graph.nodes:
        if node.op == "call_module":
            for parameter in attribute(model, str(node.target)).parameters():
                yield parameter, _width(parameter)
        elif node.op == "get_attr" and isinstance(value := attribute(model, str(node.target)), nn.Parameter):
            yield from ((value, min(bits, _width(value))) for bits in _bits(node, model))


def _bits(node: fx.Node, model: nn.Module) -> Iterator[float]:
    """The bits in which each user gets a value, masked or not; infinite for one that gets it as it is."""
    for user in node.users:
        text = format_text(user)
        if text is not None:
            yield parse(text).bits
        elif user.target is operator.mul and any(_is_mask(source, model) for source in user.all_input_nodes):
            yield from _bits(user, model)
        else:
            yield math.inf


def _is_mask(node: fx.Node, model: nn.Module) -> bool:
    found = attribute(model, str(node.target)) if node.op == "get_attr" else None
    return isinstance(found, Tensor) and not isinstance(found, nn.Parameter)


def _width(parameter: nn.Parameter) -> float:
    return parameter.element_size() * 8.0
