"""Layers that can be truth tables: a linear layer on rounded inputs, and what follows it neuron by neuron."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.ir.build import attribute, underlying
from mase_server.ir.facts import Facts, map_nodes
from mase_server.ir.number_formats import format_text, operator_of, rounded_to
from mase_server.ops.table import op_info
from mase_server.ops.types import TensorType
from mase_server.passes.tables.functional import codes
from mase_server.passes.weighted import Weighted

_NORMS = frozenset({"batch_norm", "batch_norm1d"})
_WITH_NUMBERS = frozenset({"add", "sub", "mul", "div", "neg", "clamp"})


class UnfitError(Exception):
    """Why a layer is not made a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """inputs: which of its inputs each neuron reads, [neurons, reads].  values: what it gives for each combination of
    codes, [neurons, codes ** reads]."""

    inputs: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.  format: of its inputs.  chain: what is taken along, the product first."""

    product: Weighted
    format: str
    chain: tuple[fx.Node, ...]

    def table(self, model: nn.Module, most_bits: int) -> Table:
        """Its truth table. UnfitError where a neuron reads more than fits into so many bits of address."""
        first = self.chain[0]
        weight, bias = _parameters(first, model)
        reads = [row.nonzero().flatten() for row in weight]
        count = max(1, *(len(each) for each in reads))
        bits = int(parse(self.format).bits)
        if count * bits > most_bits:
            raise UnfitError(
                f"a neuron reads {count} inputs of {bits} bits, and its table has 2**{count * bits} entries, more than "
                f"2**{most_bits}: prune the layer, or round its inputs to fewer bits, first"
            )
        inputs = torch.stack([torch.cat([each, each.new_zeros(count - len(each))]) for each in reads])
        used = torch.stack([torch.arange(count) < len(each) for each in reads])
        chosen = weight.gather(1, inputs) * used
        given = torch.tensor(list(product(codes(self.format), repeat=count)), dtype=weight.dtype)
        values = nn.functional.linear(given, chosen, bias)
        for node in self.chain[1:]:
            values = _run(node, model, {node.args[0]: values})
        return Table(inputs, values.T.contiguous())


def layer(found: Weighted, facts: Facts, model: nn.Module) -> Layer:
    """The layer that begins with a product. UnfitError where it can be no table."""
    format = rounded_to(found.data, model)
    if format is None or not isinstance(parse(format), FixedPoint):
        raise UnfitError(f"its inputs are {format or 'not rounded'}, and not in a fixed-point format")
    if found.operator != "linear":
        raise UnfitError("it is no linear layer")
    chain, fact = [found.node], facts[found.node]
    is_flat = isinstance(fact, TensorType) and len(fact.shape) == 2
    while len(users := list(chain[-1].users)) == 1 and _follows(users[0], chain[-1], model, is_flat):
        chain.append(users[0])
    return Layer(found, format, tuple(chain))


def _follows(node: fx.Node, before: fx.Node, model: nn.Module, is_flat: bool) -> bool:
    """Does a node work on each neuron by itself, in the same way at each run?"""
    if not node.op.startswith("call_") or not node.args or node.args[0] is not before:
        return False
    operator = operator_of(node, model)
    if operator in _NORMS:
        return is_flat and node.op == "call_module" and not attribute(model, str(node.target)).training
    if format_text(node) is not None:
        return isinstance(parse(str(format_text(node))), FixedPoint)
    if len(node.all_input_nodes) > 1:
        return False
    return operator in _WITH_NUMBERS or _is_activation(node, model)


def _is_activation(node: fx.Node, model: nn.Module) -> bool:
    module = attribute(model, str(node.target)) if node.op == "call_module" else None
    info = op_info(node.op, module if module is not None else underlying(node.target), module)
    # Those over a dimension, and those that draw numbers, do not work on each neuron by itself.
    return info.family == "activation" and not info.mase_op.endswith(("softmax", "softmin", "glu", "dropout", "rrelu"))


def _parameters(node: fx.Node, model: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias as the product reads them, rounded and masked."""
    if node.op == "call_module":
        module = attribute(model, str(node.target))
        return module.weight.detach(), None if module.bias is None else module.bias.detach()
    given = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | node.kwargs
    weight, bias = (_value(given.get(name), model) for name in ("weight", "bias"))
    if weight is None:
        raise UnfitError("its weight depends on its inputs")
    return weight, bias


def _value(source: Any, model: nn.Module) -> Tensor | None:
    """What a node that depends on parameters alone gives."""
    if not isinstance(source, fx.Node):
        return None
    if source.op == "placeholder":
        raise UnfitError("its weight depends on its inputs")
    if source.op == "get_attr":
        found: Tensor = attribute(model, str(source.target)).detach()
        return found
    computed: Tensor = _run(source, model, {each: _value(each, model) for each in source.all_input_nodes})
    return computed


def _run(node: fx.Node, model: nn.Module, given: Mapping[Any, Any]) -> Any:
    args, kwargs = (map_nodes(part, given.__getitem__) for part in (node.args, node.kwargs))
    with torch.no_grad():
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        function: Any = attribute(model, str(node.target)) if node.op == "call_module" else node.target
        return function(*args, **kwargs)
