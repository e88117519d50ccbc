"""How operators work on split tensors: for one axis of the mesh, what each of them can do without a transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from mase_server.formats import parse
from mase_server.ir.build import attribute, underlying
from mase_server.ir.facts import SIMPLE, Facts, call_of, map_nodes
from mase_server.ir.number_formats import MOVES, operator_of
from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import TensorType
from mase_server.passes.sharding.layouts import Place


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to work along one axis of the mesh.

    output: of the result, or of each of several.  inputs: for each tensor that the node takes, in the order of
    `Call.inputs`.  parameters: of the layer that it calls, by name; whole where not named.
    """

    output: Place
    inputs: tuple[Place, ...]
    parameters: Mapping[str, Place] = field(default_factory=dict)

    @property
    def is_split(self) -> bool:
        """Does each device do only a part of the work?"""
        return self.output != "R" or any(place != "R" for place in self.inputs)


@dataclass(frozen=True, slots=True)
class Call:
    """A node with what rules look at.  inputs: the nodes that give it tensors.  result: its first tensor's type."""

    node: fx.Node
    operator: str
    family: str
    inputs: tuple[fx.Node, ...]
    types: tuple[TensorType, ...]
    result: TensorType
    arguments: Mapping[str, Any]
    layer: nn.Module | None

    @property
    def rank(self) -> int:
        """Dimensions of the result."""
        return len(self.result.shape)

    def place(self, name: str) -> int:
        """Which of the inputs is given for MASE's argument; -1 where it is none."""
        source = getattr(self.arguments.get(name), "node", None)
        return self.inputs.index(source) if source in self.inputs else -1

    def rule(self, output: Place, places: Mapping[int, Place], **parameters: Place) -> Rule:
        """A rule whose inputs are whole but for some, by their places; those at -1 are not there."""
        return Rule(output, tuple(places.get(index, "R") for index in range(len(self.inputs))), parameters)


def tensor_of(fact: Any) -> TensorType | None:
    """The type of a result's first tensor; None for numbers and for several tensors of different kinds."""
    if isinstance(fact, tuple) and fact and len({type(item) for item in fact}) == 1:
        ranks = {len(item.shape) for item in fact if isinstance(item, TensorType)}
        fact = fact[0] if len(ranks) == 1 else None
    return fact if isinstance(fact, TensorType) else None


def needs_whole(node: fx.Node, facts: Facts) -> bool:
    """Does a node give something of which no rule speaks, several tensors of different kinds or an object?"""
    return node.op.startswith("call_") and tensor_of(facts.get(node)) is None and not _is_number(facts.get(node))


def _is_number(fact: Any) -> bool:
    return all(map(_is_number, fact)) if isinstance(fact, tuple) else isinstance(fact, SIMPLE)


def call(node: fx.Node, facts: Facts, model: nn.Module) -> Call | None:
    """What rules look at; None for a node that gives no tensor."""
    result = tensor_of(facts.get(node))
    if result is None:
        return None
    inputs = tuple(source for source in node.all_input_nodes if tensor_of(facts.get(source)) is not None)
    types = tuple(fact for source in inputs if (fact := tensor_of(facts[source])) is not None)
    layer = attribute(model, str(node.target)) if node.op == "call_module" else None
    info = op_info(node.op, layer if layer is not None else underlying(node.target), layer)
    called = node.op.startswith("call_")
    arguments = named_arguments(call_of(node, facts, model)) if called else {}
    operator = operator_of(node, model) if called else node.op
    return Call(node, operator, info.family, inputs, types, result, arguments, layer)


def rules_of(found: Call, facts: Facts) -> list[Rule]:
    """Everything that an operator can do; the first is to work on whole tensors."""
    rules = [Rule("R", ("R",) * len(found.inputs))]
    several = isinstance(facts[found.node], tuple)
    if found.operator in MOVES and len(found.inputs) == 1:
        rules += _moved(found, facts)
    elif not several:
        table = _RULES.get(found.operator) or _FAMILIES.get(found.family)
        rules += table(found) if table is not None else []
    return list({(rule.output, rule.inputs, tuple(rule.parameters.items())): rule for rule in rules}.values())


def _pointwise(found: Call, free: Sequence[int] | None = None) -> Iterator[Rule]:
    """Along every dimension of the result; inputs are aligned at the right, and those of size one are whole."""
    for dim in range(found.rank) if free is None else free:
        places: dict[int, Place] = {}
        for index, tensor in enumerate(found.types):
            own = dim - found.rank + len(tensor.shape)
            if own >= 0 and (tensor.shape[own] != 1 or found.result.shape[dim] == 1):
                places[index] = own
        yield found.rule(dim, places)


def _rounding(found: Call) -> Iterator[Rule]:
    """Formats that round every number by itself."""
    format = parse(str(found.node.args[1] if len(found.node.args) > 1 else found.node.kwargs["format"]))
    if format.range is not None and not hasattr(format, "block_size"):
        yield from _pointwise(found)


def _softmax(found: Call) -> Iterator[Rule]:
    """Along every dimension but its own."""
    own = found.arguments.get("dim") if found.layer is None else found.layer.dim
    if isinstance(own, int):
        yield from _pointwise(found, [dim for dim in range(found.rank) if dim != own % found.rank])


def _norm(found: Call) -> Iterator[Rule]:
    """Along the dimensions before those that are normalised; parameters are whole."""
    shape = getattr(found.layer, "normalized_shape", found.arguments.get("normalized_shape", ()))
    data = max(found.place("data_in_0"), 0)
    for dim in range(found.rank - len(shape)) if shape else ():
        yield found.rule(dim, {data: dim})


def _linear(found: Call) -> Iterator[Rule]:
    """x @ weight.T + bias: by rows of x, by output features, by input features: the results are then parts of a sum, to
    which each device adds its part of the bias."""
    data, last = max(found.place("data_in_0"), 0), found.rank - 1
    weight, bias = found.place("weight"), found.place("bias")
    has_bias = bias >= 0 or getattr(found.layer, "bias", None) is not None
    for dim in range(last):
        yield found.rule(dim, {data: dim})
    if found.layer is not None:
        yield found.rule(last, {data: "R"}, weight=0, **({"bias": 0} if has_bias else {}))
        yield found.rule("P", {data: last}, weight=1)
    elif weight >= 0:
        yield found.rule(last, {weight: 0, bias: 0})
        yield found.rule("P", {data: last, weight: 1})


def _addmm(found: Call) -> Iterator[Rule]:
    """bias + x @ weight, both of two dimensions."""
    bias, data, weight = (found.place(f"data_in_{index}") for index in range(3))
    if min(bias, data, weight) >= 0:
        shape = found.types[bias].shape
        columns = len(shape) - 1 if shape and shape[-1] != 1 else "R"
        yield found.rule(1, {bias: columns, weight: 1})
        rows: Place = 0 if len(shape) == 2 and shape[0] != 1 else "R"
        yield found.rule(0, {bias: rows, data: 0})


def _matmul(found: Call) -> Iterator[Rule]:
    """By leading dimensions, rows, columns, and by what is summed over."""
    if len(found.types) != 2 or min(len(each.shape) for each in found.types) < 2:
        return
    first, second = (len(each.shape) for each in found.types)
    yield from _pointwise(found, range(found.rank - 2))
    yield found.rule(found.rank - 2, {0: first - 2})
    yield found.rule(found.rank - 1, {1: second - 1})
    yield found.rule("P", {0: first - 1, 1: second - 2})


def _convolution(found: Call) -> Iterator[Rule]:
    """By batch and by output channels; of a grouped one, by groups."""
    data = max(found.place("data_in_0"), 0)
    layer: Any = found.layer
    if found.rank != len(found.types[data].shape) or layer is None or found.rank != len(layer.weight.shape):
        return
    yield found.rule(0, {data: 0})
    bias: dict[str, Place] = {} if layer.bias is None else {"bias": 0}
    if layer.groups == 1:
        yield found.rule(1, {data: "R"}, weight=0, **bias)


def _embedding(found: Call) -> Iterator[Rule]:
    """By ids, and by features."""
    ids, weight, last = max(found.place("data_in_0"), 0), found.place("weight"), found.rank - 1
    for dim in range(last):
        yield found.rule(dim, {ids: dim})
    yield found.rule(last, {}, weight=1) if found.layer is not None else found.rule(last, {weight: 1})


def _attention(found: Call) -> Iterator[Rule]:
    """By batch and by heads, which are independent of each other."""
    names = ("query", "key", "value")
    places = [found.place(name) if found.place(name) >= 0 else index for index, name in enumerate(names)]
    if len({found.types[place].shape[:-2] for place in places}) != 1:
        return
    yield from _pointwise(found, range(found.rank - 2))


def _joined(found: Call) -> Iterator[Rule]:
    """cat: along every dimension but the one in which tensors are joined."""
    own = found.arguments.get("dim", 0)
    if isinstance(own, int) and len({len(each.shape) for each in found.types}) == 1:
        yield from _pointwise(found, [dim for dim in range(found.rank) if dim != own % found.rank])


def _moved(found: Call, facts: Facts) -> Iterator[Rule]:
    """Views: a dimension stays split where the same blocks of memory are still together.

    A dimension's blocks are told by its extent, stride times size: those of the outermost of the dimensions that a view
    splits one into, and those of one that it joins several into, are the same.
    """
    given = torch.empty(found.types[0].shape, device="meta")
    result = _viewed(found, given, facts)
    if result is None:
        return
    before = {stride * size: dim for dim, (stride, size) in _extents(given) if size > 1}
    takes_all = result.numel() == given.numel()
    for dim, (stride, size) in _extents(result):
        source = before.get(stride * size)
        # Every second element of a dimension has its extent too.
        if size > 1 and stride and source is not None and (takes_all or size == given.shape[source]):
            yield found.rule(dim, {0: source})


def _viewed(found: Call, given: torch.Tensor, facts: Facts) -> torch.Tensor | None:
    """What the node makes of a tensor; None where that is no view of it."""
    node = found.node
    args, kwargs = (
        map_nodes(part, lambda source: given if source is found.inputs[0] else facts.get(source))
        for part in (node.args, node.kwargs)
    )
    if isinstance(facts[found.inputs[0]], tuple):
        return given
    try:
        function: Any = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        result = (found.layer or function)(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever a view does not take, it is then done on whole tensors
        return None
    first = result[0] if isinstance(result, tuple | list) and result else result
    is_view = isinstance(first, torch.Tensor) and (first is given or first._base is given)
    return first if is_view else None


def _extents(tensor: torch.Tensor) -> Iterator[tuple[int, tuple[int, int]]]:
    return enumerate(zip(tensor.stride(), tensor.shape, strict=True))


Rules = Callable[[Call], Iterator[Rule]]

_RULES: Mapping[str, Rules] = {
    "linear": _linear, "addmm": _addmm, "matmul": _matmul, "bmm": _matmul, "conv1d": _convolution,
    "conv2d": _convolution, "conv3d": _convolution, "embedding": _embedding, "softmax": _softmax,
    "log_softmax": _softmax, "layer_norm": _norm, "rms_norm": _norm, "cat": _joined,
    "scaled_dot_product_attention": _attention, "dropout": _pointwise, "masked_fill": _pointwise, "where": _pointwise,
    "to": _pointwise, "quantise": _rounding,
}  # fmt: skip
_FAMILIES: Mapping[str, Rules] = {"elementwise": _pointwise, "activation": _pointwise}
