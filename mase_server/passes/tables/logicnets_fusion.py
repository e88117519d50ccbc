"""logicnets_fusion_transform_pass: small layers as truth tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, TypedDict

import torch
from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.facts import Facts, map_nodes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, operator_of, rounded_to
from mase_server.ops.table import op_info
from mase_server.ops.types import TensorType
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Result, Selection, complete_options
from mase_server.passes.tables.functional import format_values, look_up
from mase_server.passes.weighted import Weighted, find_weighted, require_values

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"max_bits": 12, "only": ()})


FusedLayer = TypedDict("FusedLayer", {"inputs": int, "entries": int, "neurons": int, "with": list[str]})
"""A layer that became a table: what a neuron reads, and the names of its nodes. "with" is a word of Python."""


@transform(
    "Make small layers truth tables",
    arguments=(Argument("max_bits", "integer", "bits of a table's address", 12, minimum=1, maximum=20),),
    needs={"weights"},
    selects=True,
)
def logicnets_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Join each linear layer on few rounded inputs with the operators after it, as one truth table for each neuron.

    max_bits: of an address; a neuron that reads 4 inputs of 3 bits needs 12.  only: nodes and modules to work on;
    without it, the whole graph.
    The inputs have to be rounded to fixed point, and few enough weights of each neuron may differ from zero: quantise
    and prune first. Batch norms (in eval mode), activations, numbers that are added or multiplied and roundings that
    follow are in the table too. The table has the layer's result for every combination of codes; if weights are
    rounded too, sums are exact, and so is the graph. It cannot be trained any more.
    Gives {"fused": {node: {"inputs": read by a neuron, "entries": of its table, "neurons", "with": names of the nodes
    that are in it}}, "kept": node: why it stays}.  ValueError for an unknown name, and for weights without values.
    Source: `chop.passes.graph.transforms.utils.logicnets_fusion`.

    >>> layer = nn.Linear(3, 2)
    >>> weight = nn.init.constant_(layer.weight, 0.5)
    >>> graph = MaseGraph(nn.Sequential(layer, nn.ReLU()), {"input": torch.randn(5, 3)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(3,1)"})
    >>> graph, found = passes.logicnets_fusion_transform_pass(graph)
    >>> [found["fused"]["_1"][key] for key in ("inputs", "entries", "neurons")]
    [3, 512, 2]
    """
    given = complete_options("logicnets_fusion_transform_pass", pass_args, _DEFAULTS)
    selection = Selection.of(given["only"])
    facts, model = dict(graph.facts), graph.module
    fused: dict[str, FusedLayer] = {}
    kept: dict[str, str] = {}
    for found in find_weighted(graph.fx_graph, model, selection):
        require_values("logicnets_fusion", found, found.weight(model))
        try:
            chosen = find_table_layer(found, facts, model)
            table = chosen.table(model, int(given["max_bits"]))
        except UnfitError as error:
            kept[found.node.name] = str(error)
            continue
        names = [node.name for node in chosen.chain]
        inputs, entries = table.inputs.shape[1], table.values.shape[1]
        last = _put_table(graph, chosen, table)
        fused[last.name] = {"inputs": inputs, "entries": entries, "neurons": len(table.inputs), "with": names}
    return graph, {"fused": fused, "kept": kept}


def _put_table(graph: MaseGraph, chosen: Layer, table: Table) -> fx.Node:
    """Replace a layer by its table. The layer's last node keeps its name; a rounding after it stays too: it changes
    nothing any more, but shows the format."""
    chain, nodes = chosen.chain, graph.fx_graph
    last = chain[-2] if format_text(chain[-1]) is not None else chain[-1]
    names = {"inputs": f"{last.name}_table_inputs", "values": f"{last.name}_table"}
    for part, name in names.items():
        graph.module.register_buffer(name, getattr(table, part))
    with nodes.inserting_before(last):
        parts = [nodes.get_attr(names[part]) for part in ("inputs", "values")]
    sources = last.all_input_nodes
    last.op, last.target = "call_function", look_up
    last.args, last.kwargs = (chosen.product.data, *parts, chosen.format), {}
    for source in sources:
        _erase_if_unused(source)
    return last


def _erase_if_unused(node: fx.Node) -> None:
    """Erase an unused node, and the nodes that only it used."""
    if not node.users and node.op != "placeholder" and not node._erased:
        sources = node.all_input_nodes
        node.graph.erase_node(node)
        for source in sources:
            _erase_if_unused(source)


# Layers that can be truth tables: a linear layer on rounded inputs, and the operators after it that work neuron by
# neuron.

_NORMS = frozenset({"batch_norm", "batch_norm1d"})
_WITH_NUMBERS = frozenset({"add", "sub", "mul", "div", "neg", "clamp"})


class UnfitError(Exception):
    """The reason why a layer is not turned into a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """inputs: the inputs that each neuron reads, [neurons, reads].  values: its result for each combination of
    codes, [neurons, codes ** reads]."""

    inputs: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.  format: of its inputs.  chain: the nodes that the table contains, the product first."""

    product: Weighted
    format: str
    chain: tuple[fx.Node, ...]

    def table(self, model: nn.Module, most_bits: int) -> Table:
        """Its truth table. UnfitError if a neuron needs an address of more than `most_bits` bits."""
        first = self.chain[0]
        weight, bias = _effective_parameters(first, model)
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
        given = torch.tensor(list(product(format_values(self.format), repeat=count)), dtype=weight.dtype)
        values = nn.functional.linear(given, chosen, bias)
        for node in self.chain[1:]:
            values = _run_node(node, model, {node.args[0]: values})
        return Table(inputs, values.T.contiguous())


def find_table_layer(found: Weighted, facts: Facts, model: nn.Module) -> Layer:
    """The layer that begins with a product. UnfitError if it cannot be a table."""
    format = rounded_to(found.data, model)
    if format is None or not isinstance(parse(format), FixedPoint):
        raise UnfitError(f"its inputs are {format or 'not rounded'}, and not in a fixed-point format")
    if found.operator != "linear":
        raise UnfitError("it is no linear layer")
    chain, fact = [found.node], facts[found.node]
    is_flat = isinstance(fact, TensorType) and len(fact.shape) == 2
    while len(users := list(chain[-1].users)) == 1 and _is_elementwise_follower(users[0], chain[-1], model, is_flat):
        chain.append(users[0])
    return Layer(found, format, tuple(chain))


def _is_elementwise_follower(node: fx.Node, before: fx.Node, model: nn.Module, is_flat: bool) -> bool:
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
    info = op_info(node.op, module if module is not None else underlying_callable(node.target), module)
    # Operators over a dimension, and those that draw random numbers, do not work on each neuron by itself.
    return info.family == "activation" and not info.mase_op.endswith(("softmax", "softmin", "glu", "dropout", "rrelu"))


def _effective_parameters(node: fx.Node, model: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias as the product reads them, rounded and masked."""
    if node.op == "call_module":
        module = attribute(model, str(node.target))
        return module.weight.detach(), None if module.bias is None else module.bias.detach()
    given = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | node.kwargs
    weight, bias = (_value_of_parameters(given.get(name), model) for name in ("weight", "bias"))
    if weight is None:
        raise UnfitError("its weight depends on its inputs")
    return weight, bias


def _value_of_parameters(source: Any, model: nn.Module) -> Tensor | None:
    """The value of a node that depends only on parameters."""
    if not isinstance(source, fx.Node):
        return None
    if source.op == "placeholder":
        raise UnfitError("its weight depends on its inputs")
    if source.op == "get_attr":
        found: Tensor = attribute(model, str(source.target)).detach()
        return found
    computed: Tensor = _run_node(
        source, model, {each: _value_of_parameters(each, model) for each in source.all_input_nodes}
    )
    return computed


def _run_node(node: fx.Node, model: nn.Module, given: Mapping[Any, Any]) -> Any:
    args, kwargs = (map_nodes(part, given.__getitem__) for part in (node.args, node.kwargs))
    with torch.no_grad():
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        function: Any = attribute(model, str(node.target)) if node.op == "call_module" else node.target
        return function(*args, **kwargs)
