"""The rules of operators on split tensors: for one axis of the mesh, what each can compute without a transfer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from mase_server.formats import parse
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.facts import SIMPLE, Facts, call_of, map_nodes
from mase_server.ir.number_formats import MOVES, operator_of
from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import TensorType


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to work along one axis of the mesh.

    output: of the result, or of each of several.  inputs: for each tensor that the node takes, in the order of
    `Call.inputs`.  parameters: of the called layer, by name; those that are not named are whole.
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
    """A node with the facts that rules use.  inputs: the nodes that give it tensors.  result: its first tensor's
    type."""

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
        """The index of the input for MASE's argument; -1 if none is given."""
        source = getattr(self.arguments.get(name), "node", None)
        return self.inputs.index(source) if source in self.inputs else -1

    def rule(self, output: Place, places: Mapping[int, Place], **parameters: Place) -> Rule:
        """A rule whose inputs are whole except for some, by their places; places of -1 are ignored."""
        return Rule(output, tuple(places.get(index, "R") for index in range(len(self.inputs))), parameters)


def tensor_of(fact: Any) -> TensorType | None:
    """The type of a result's first tensor; None for numbers and for several tensors of different kinds."""
    if isinstance(fact, tuple) and fact and len({type(item) for item in fact}) == 1:
        ranks = {len(item.shape) for item in fact if isinstance(item, TensorType)}
        fact = fact[0] if len(ranks) == 1 else None
    return fact if isinstance(fact, TensorType) else None


def needs_whole(node: fx.Node, facts: Facts) -> bool:
    """Does a node give several tensors of different kinds or an object, which no rule covers?"""
    return node.op.startswith("call_") and tensor_of(facts.get(node)) is None and not _is_number(facts.get(node))


def _is_number(fact: Any) -> bool:
    return all(map(_is_number, fact)) if isinstance(fact, tuple) else isinstance(fact, SIMPLE)


def describe_call(node: fx.Node, facts: Facts, model: nn.Module) -> Call | None:
    """The facts that rules use; None for a node that gives no tensor."""
    result = tensor_of(facts.get(node))
    if result is None:
        return None
    inputs = tuple(source for source in node.all_input_nodes if tensor_of(facts.get(source)) is not None)
    types = tuple(fact for source in inputs if (fact := tensor_of(facts[source])) is not None)
    layer = attribute(model, str(node.target)) if node.op == "call_module" else None
    info = op_info(node.op, layer if layer is not None else underlying_callable(node.target), layer)
    called = node.op.startswith("call_")
    arguments = named_arguments(call_of(node, facts, model)) if called else {}
    operator = operator_of(node, model) if called else node.op
    return Call(node, operator, info.family, inputs, types, result, arguments, layer)


def rules_of(found: Call, facts: Facts) -> list[Rule]:
    """All rules of an operator; the first is to work on whole tensors."""
    rules = [Rule("R", ("R",) * len(found.inputs))]
    several = isinstance(facts[found.node], tuple)
    if found.operator in MOVES and len(found.inputs) == 1:
        rules += _view_rules(found, facts)
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


def _rounding_rules(found: Call) -> Iterator[Rule]:
    """The rules of formats that round every number by itself."""
    format = parse(str(found.node.args[1] if len(found.node.args) > 1 else found.node.kwargs["format"]))
    if format.range is not None and not hasattr(format, "block_size"):
        yield from _pointwise(found)


def _softmax(found: Call) -> Iterator[Rule]:
    """Along every dimension but its own."""
    own = found.arguments.get("dim") if found.layer is None else found.layer.dim
    if isinstance(own, int):
        yield from _pointwise(found, [dim for dim in range(found.rank) if dim != own % found.rank])


def _norm(found: Call) -> Iterator[Rule]:
    """Along the dimensions before the normalised ones; parameters are whole."""
    shape = getattr(found.layer, "normalized_shape", found.arguments.get("normalized_shape", ()))
    data = max(found.place("data_in_0"), 0)
    for dim in range(found.rank - len(shape)) if shape else ():
        yield found.rule(dim, {data: dim})


def _linear(found: Call) -> Iterator[Rule]:
    """x @ weight.T + bias: by rows of x, by output features, or by input features: the results are then parts of a sum,
    to which each device adds its part of the bias."""
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
    """By leading dimensions, rows, columns, and by the summed dimension."""
    if len(found.types) != 2 or min(len(each.shape) for each in found.types) < 2:
        return
    first, second = (len(each.shape) for each in found.types)
    yield from _pointwise(found, range(found.rank - 2))
    yield found.rule(found.rank - 2, {0: first - 2})
    yield found.rule(found.rank - 1, {1: second - 1})
    yield found.rule("P", {0: first - 1, 1: second - 2})


def _convolution(found: Call) -> Iterator[Rule]:
    """By batch and by output channels; a grouped one also by groups."""
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
    """cat: along every dimension except the one in which tensors are joined."""
    own = found.arguments.get("dim", 0)
    if isinstance(own, int) and len({len(each.shape) for each in found.types}) == 1:
        yield from _pointwise(found, [dim for dim in range(found.rank) if dim != own % found.rank])


def _view_rules(found: Call, facts: Facts) -> Iterator[Rule]:
    """Views: a dimension stays split if the same blocks of memory stay together.

    The extent of a dimension, stride times size, identifies its blocks: the outermost of the dimensions that a view
    splits one into has the same extent, and so has one that it joins several into.
    """
    given = torch.empty(found.types[0].shape, device="meta")
    result = _view_of_node(found, given, facts)
    if result is None:
        return
    before = {stride * size: dim for dim, (stride, size) in _dimension_extents(given) if size > 1}
    takes_all = result.numel() == given.numel()
    for dim, (stride, size) in _dimension_extents(result):
        source = before.get(stride * size)
        # A dimension of every second element has the same extent too.
        if size > 1 and stride and source is not None and (takes_all or size == given.shape[source]):
            yield found.rule(dim, {0: source})


def _view_of_node(found: Call, given: torch.Tensor, facts: Facts) -> torch.Tensor | None:
    """The view that the node makes of a tensor; None if it makes no view."""
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


def _dimension_extents(tensor: torch.Tensor) -> Iterator[tuple[int, tuple[int, int]]]:
    return enumerate(zip(tensor.stride(), tensor.shape, strict=True))


Rules = Callable[[Call], Iterator[Rule]]

_RULES: Mapping[str, Rules] = {
    "linear": _linear, "addmm": _addmm, "matmul": _matmul, "bmm": _matmul, "conv1d": _convolution,
    "conv2d": _convolution, "conv3d": _convolution, "embedding": _embedding, "softmax": _softmax,
    "log_softmax": _softmax, "layer_norm": _norm, "rms_norm": _norm, "cat": _joined,
    "scaled_dot_product_attention": _attention, "dropout": _pointwise, "masked_fill": _pointwise, "where": _pointwise,
    "to": _pointwise, "quantise": _rounding_rules,
}  # fmt: skip
_FAMILIES: Mapping[str, Rules] = {"elementwise": _pointwise, "activation": _pointwise}


# The layout of a tensor on a mesh of devices: for each axis of the mesh, whole, split along a dimension, or as parts of
# a sum.

#: R: whole on every device.  P: every device has a part of a sum.  A number: split along that dimension.
Place = int | str
Layout = tuple[Place, ...]

_SPLIT = re.compile(r"S\((\d+)\)")


def text_of(layout: Layout) -> str:
    """As `S(1),R`: split along dimension 1 over the first axis of the mesh, whole along the second."""
    return ",".join(place if isinstance(place, str) else f"S({place})" for place in layout)


def parse_layout(text: str) -> Layout:
    """The inverse of `text_of`; ValueError, which quotes it, for a text that is no layout."""
    return tuple(_parse_placement(part.strip(), text) for part in text.split(","))


def _parse_placement(part: str, text: str) -> Place:
    if part == "R" or part == "P":
        return part
    found = _SPLIT.fullmatch(part)
    if found is None:
        raise ValueError(f"{text!r} is no layout: {part!r} is none of R, P and S(dimension)")
    return int(found[1])


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices in a grid.

    shape: devices along each axis.  bandwidths: bytes a second between them along each axis.  flops: operations a
    second of a device.  latency: seconds before a transfer begins.
    """

    shape: tuple[int, ...]
    bandwidths: tuple[float, ...]
    flops: float
    latency: float = 1e-6

    def whole(self) -> Layout:
        """The layout of a tensor that is whole everywhere."""
        return ("R",) * len(self.shape)

    def fits(self, layout: Layout, sizes: Sequence[int]) -> bool:
        """Can every split dimension be divided evenly?"""
        split: dict[int, int] = {}
        for place, devices in zip(layout, self.shape, strict=True):
            if isinstance(place, int):
                split[place] = split.get(place, 1) * devices
        return all(sizes[dim] % parts == 0 and sizes[dim] >= parts for dim, parts in split.items())

    def parts(self, layout: Layout) -> int:
        """The number of parts of a split tensor."""
        return _multiply_all(n for place, n in zip(layout, self.shape, strict=True) if isinstance(place, int))

    def seconds(self, tensor: TensorType, source: Layout, target: Layout) -> float:
        """Seconds to convert a tensor from one layout to another, axis after axis."""
        total = 0.0
        for axis, (before, after) in enumerate(zip(source, target, strict=True)):
            share = _SHARES.get((_placement_kind(before), _placement_kind(after)), 0.0) if before != after else 0.0
            if share:
                others = tuple("R" if index == axis else place for index, place in enumerate(source))
                devices = self.shape[axis]
                size = tensor.nbytes / self.parts(others)
                divided = devices if _placement_kind(before) == _placement_kind(after) == "S" else 1
                moved = share * size * (devices - 1) / devices / divided
                total += self.latency + moved / self.bandwidths[axis]
        return total


#: The share of a device's result that it sends, in units of (devices - 1) / devices. Splitting a whole tensor sends
#: nothing. For sums, a ring adds and distributes.
_SHARES = {("S", "R"): 1.0, ("S", "S"): 1.0, ("P", "S"): 1.0, ("P", "R"): 2.0}


def _placement_kind(place: Place) -> str:
    return place if isinstance(place, str) else "S"


def _multiply_all(values: Any) -> int:
    total = 1
    for value in values:
        total *= value
    return total
