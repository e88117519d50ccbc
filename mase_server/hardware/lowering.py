"""From a quantised graph to a design: every rounding to fixed point, and all nodes between two of them.

All nodes between two roundings become one operation with one rounding. Nodes that depend on no input are computed,
and a node without hardware is listed with a reason while the rest is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed import RULES
from mase_server.hardware.design import Constant, Design, Operation, Stream, describe_failure
from mase_server.hardware.effects import (
    LIKE_ANOTHER,
    OF_SIZES,
    FollowsGap,
    Gaps,
    changes_in_place,
    check_alone,
    fields_of,
    find_needed_nodes,
    holds_tensors,
)
from mase_server.hardware.held import (
    Barred,
    Floating,
    Held,
    Known,
    Later,
    Layout,
    Masked,
    Moved,
    NoHardware,
    Unrounded,
    Whole,
    is_given,
    moved_samples,
    node_of,
    run_node,
    stream_format,
)
from mase_server.hardware.indices import fewest_rows, finish_count
from mase_server.hardware.kinds import KINDS, MIXED
from mase_server.hardware.kinds.blocks import WithExponents, round_data
from mase_server.hardware.kinds.norm import LARGEST
from mase_server.hardware.kinds.recurrent import RECURRENT, lower_layers, path_of_result
from mase_server.hardware.verilog import make_identifier
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.facts import call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType


def lower_graph(graph: MaseGraph, failed: Mapping[str, str] = MappingProxyType({})) -> Design:
    """The design of a graph whose values are rounded to signed fixed point (see quantize_transform_pass).

    Sizes are those of the recorded inputs; their first dimension is the batch, and hardware takes one sample at a
    time. Nodes without hardware are left out and listed; streams from and to the outside replace their results and
    operands. Parameters must have values.  failed: nodes for which making hardware failed before, and why; they are
    left out.
    """
    return Lowering(graph, failed).run()


#: Operators that return parts of a tensor.
_PARTING = frozenset({"unbind", "chunk", "split", "split_with_sizes", "tensor_split"})


class Lowering:
    """A graph that is being lowered to a design, as the rules of kinds see it."""

    def __init__(self, graph: MaseGraph, failed: Mapping[str, str] = MappingProxyType({})) -> None:
        self.graph, self.model, self.facts = graph.fx_graph, graph.module, graph.facts
        self.failed = failed
        self.operations: dict[str, Operation] = {}
        self.held: dict[fx.Node, Held] = {}
        self.inputs: dict[fx.Node, str] = {}
        self.gaps = Gaps(self)
        #: A node that gives a tuple of parts of a tensor -> the node of that tensor.
        self.parts: dict[fx.Node, fx.Node] = {}
        #: A node that calls a recurrent layer -> the operations of its results, one for each layer of several.
        self.layers: dict[fx.Node, tuple[str, ...]] = {}
        #: The layouts of samples in nodes that do not have them in the first dimension.
        self.layouts: dict[fx.Node, Layout] = {}
        self.needed = find_needed_nodes(self.graph)
        #: Is anything changed in place? The model's constants then have to be copied first.
        self.changes = any(changes_in_place(node) for node in self.graph.nodes)
        self.outputs: tuple[str, ...] = ()
        #: The design that `run` returned.
        self.design = Design({}, ())

    def run(self) -> Design:
        """Lower all nodes that have hardware."""
        for node in self.graph.nodes:
            if node not in self.needed:
                continue
            try:
                held = self._lower_node(node)
            except NoHardware as why:
                held = self.gaps.left_out(node, why)
            except Exception as error:  # noqa: BLE001 - the border to operators, which are run on constants and indices
                held = self.gaps.left_out(node, NoHardware(describe_failure(error)))
            if held is not None:
                self.held[node] = held
        self.design = self.gaps.closed(self.outputs)
        return self.design

    def _lower_node(self, node: fx.Node) -> Held | None:
        """Lower a node; None if it gives no tensor of data."""
        self.gaps.check(node)
        if node.name in self.failed:
            raise NoHardware(self.failed[node.name])
        if node.op == "output":
            self._lower_output(node)
            return None
        if not isinstance(self.facts.get(node), TensorType):
            self._no_tensor(node)
            return None
        if is_given(node, self.facts):
            return Floating(node)
        if 0 in (fact := self.facts[node]).shape:
            return Known(torch.empty(fact.shape, dtype=getattr(torch, fact.dtype)))
        if node.op == "get_attr":
            given = attribute(self.model, str(node.target)).detach()
            return Known(given.clone() if self.changes else given)
        if (text := format_text(node)) is not None:
            return self._lower_rounding(node, text)
        if (known := self._known_result(node)) is not None:
            return known
        name = operator_of(node, self.model)
        if name in OF_SIZES:
            return Known(self.evaluated(node, {}))
        if name not in RULES:
            raise NoHardware(reason_of_missing(name))
        if changes_in_place(node):
            check_alone(node)
        self._follow_batch(node, name)
        given = named_arguments(call_of(node, self.facts, self.model))
        return finish_count(self, node, RULES[name](self, node, given))

    def _lower_output(self, node: fx.Node) -> None:
        """Collect those results of the model that have hardware."""
        there = [each for each in self._result_tensors(node) if not self.gaps.lacks(each)]
        self.outputs = tuple(held.operation for each in there if isinstance(held := self.held[each], Whole))
        for each in there:
            self.whole(each)

    def _result_tensors(self, node: fx.Node) -> Iterator[fx.Node]:
        """The tensors that a node collects, also in objects of other types."""
        for each in node.all_input_nodes:
            if isinstance(self.facts.get(each), TensorType):
                yield each
            elif _is_packing(each):
                yield from (field for field in fields_of(each) if isinstance(self.facts.get(field), TensorType))

    def _no_tensor(self, node: fx.Node) -> None:
        """Handle a node that gives no tensor: it returns parts of one, or a size, or changes a part in place."""
        name = operator_of(node, self.model)
        if name in _PARTING or (name in LARGEST and len(node.all_input_nodes) == 1):
            self.parts[node] = node.all_input_nodes[0]
        elif name in RECURRENT:
            lower_layers(self, node)
        elif changes_in_place(node):
            held = [self.held[each] for each in node.all_input_nodes if each in self.held]
            if not all(isinstance(each, Known) for each in held):
                raise NoHardware("it changes a part of a tensor in place; use torch.cat or torch.where")
            self._known_result(node)
        elif (found := path_of_result(self, node)) is not None:
            self.parts[node] = self.parts[found[0]]
        elif holds_tensors(self.facts.get(node)) and not (_is_packing(node) or is_given(node, self.facts)):
            raise NoHardware(reason_of_missing(name))

    def _follow_batch(self, node: fx.Node, operator: str) -> None:
        """Keep the samples in their dimension, unless an operator moves them. NoHardware if an operator needs them
        first."""
        if any(operator in KINDS[kind].rules for kind in ("move", "take", "gather", "concat", "reduce")):
            return
        sources = [
            each for each in node.all_input_nodes if not isinstance(self.held.get(each), Known | Constant | None)
        ]
        found = {self.layout(each) for each in sources if each in self.layouts}
        if not found:
            return
        if {self.layout(each) for each in sources} != found or len(found) > 1:
            raise NoHardware("its operands have their samples in different dimensions")
        (layout,) = found
        mixed = MIXED.get(operator)
        shape = self.facts[node].shape
        if mixed is None or layout.dim >= len(shape) - mixed:
            raise NoHardware(f"the batch is dimension {layout.dim} of its input; only the first one has hardware")
        if any(self.facts[each].shape[: layout.dim + 1] != shape[: layout.dim + 1] for each in sources):
            raise NoHardware(f"the batch is dimension {layout.dim} of its input, but not of its result")
        self.layouts[node] = layout

    def _known_result(self, node: fx.Node) -> Known | None:
        """The result of a node that depends on no input; None for any other."""
        sources = node.all_input_nodes
        sources = sources[:1] if operator_of(node, self.model) in LIKE_ANOTHER else sources
        inputs = [self.parts.get(each, each) for each in sources]
        tensors = [each for each in inputs if isinstance(self.facts.get(each), TensorType)]
        held = {each: self.held[each] for each in tensors}
        if not all(isinstance(each, Known | Constant) for each in held.values()):
            return None
        given = {each: _values_of_held(value) for each, value in held.items()}
        if any(each.is_meta for each in given.values()):
            raise NoHardware("what it computes has no values; build the model with its weights")
        return Known(self.evaluated(node, given))

    # For the rules of kinds.

    def whole(self, node: fx.Node) -> str:
        """The operation that gives a node's value; NoHardware if that is not rounded."""
        held = self.held[node]
        if isinstance(held, Whole):
            return held.operation
        if self.gaps.lacks(node):
            raise FollowsGap(f"{node.name} has no hardware")
        if not (dtype := self.facts[node].dtype).startswith(("float", "bfloat")):
            raise NoHardware(f"{node.name} has values of {dtype}, which depend on the inputs; convert them to floats")
        raise NoHardware(f"{node.name} is not rounded to fixed point; quantise it first, e.g. to fixed(8,4)")

    def weights(self, given: Mapping[str, Any], *needed: str) -> dict[str, Constant]:
        """The weight and the bias of a layer, those that it has; zeros are no bias. needed: NoHardware without it."""
        if lacking := [name for name in needed if given.get(name) is None]:
            step = "put the model in eval mode and apply fold_weights before quantize"
            raise NoHardware(f"its {lacking[0]} is computed at each call; {step}")
        names = [name for name in ("weight", "bias") if given.get(name) is not None]
        constants = {name: self.constant(node_of(given[name])) for name in names}
        return {name: each for name, each in constants.items() if name != "bias" or each.integers.any()}

    def constant(self, node: fx.Node) -> Constant:
        """A rounded parameter; NoHardware for anything else."""
        held = self.held[node]
        if isinstance(held, Constant):
            return held
        raise NoHardware(f"{node.name} has to be a parameter that is rounded to fixed point")

    def stream(self, name: str) -> Stream:
        """The stream of an operation's results."""
        return self.operations[name].out

    def insert(self, operation: Operation) -> str:
        """Insert an operation that implements no node; return its name."""
        name = make_identifier(operation.name, self.operations)
        self.operations[name] = replace(operation, name=name)
        return name

    def evaluated(self, node: fx.Node, values: Mapping[fx.Node, Tensor]) -> Tensor:
        """The result of a node for other values of some tensors before it."""

        def value(each: fx.Node) -> Any:
            if each in values:
                return values[each]
            if each in self.parts:
                return run_node(each, self.model, value)
            fact = self.facts[each]
            return self._operand_values(node, each, fact) if isinstance(fact, TensorType) else fact

        return run_node(node, self.model, value)

    def _operand_values(self, node: fx.Node, source: fx.Node, fact: TensorType) -> Tensor:
        """The values of an operand; zeros if only its size matters. NoHardware if they depend on inputs."""
        held = self.held.get(source)
        if isinstance(held, Known | Constant):
            return _values_of_held(held)
        if operator_of(node, self.model) in OF_SIZES | LIKE_ANOTHER:
            return torch.zeros(fact.shape, dtype=getattr(torch, fact.dtype))
        raise NoHardware(f"it depends on the values of {source.name}, which depend on the inputs")

    def layout(self, node: fx.Node) -> Layout:
        """The layout of a node's samples; NoHardware for a tensor without a batch."""
        if not (shape := self.facts[node].shape):
            raise NoHardware("it is a single number for the whole batch")
        return self.layouts.get(node) or Layout(shape[0])

    def sample(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of one sample of a node; NoHardware for a tensor without a batch."""
        return self.layout(node).sample(self.facts[node].shape)

    def values(self, node: fx.Node) -> Tensor | None:
        """The result of a node that depends on no input, rounded or not; None for any other."""
        held = self.held[node]
        return _values_of_held(held) if isinstance(held, Known | Constant) else None

    def rounded(self, node: fx.Node, format: FixedPoint) -> str:
        """The operation that gives a node's value in a format, also if the value is not rounded yet."""
        held = self._round_held(self.held[node], format, node)
        if not isinstance(held, Whole):
            raise NoHardware(f"{node.name} is a constant where a stream is needed")
        return held.operation

    def same_for_all(self, values: Tensor, node: fx.Node) -> Tensor:
        """A constant, as it is beside each sample of a node to whose shape it is broadcast.

        NoHardware if it differs from sample to sample.
        """
        samples = self.layout(node).split(values.broadcast_to(self.facts[node].shape))
        if not torch.equal(samples, samples[:1].expand_as(samples)):
            raise NoHardware("one of its constants differs from sample to sample; it must be one for all")
        return samples[0]

    def places(self, node: fx.Node, source: fx.Node, dtype: torch.dtype = torch.int64) -> Tensor:
        """For each element of a sample of a moving node, its row-major index in the source's sample.

        dtype: the type of the indices that the node is run on, if it takes no integers.
        """
        before, layout = self.facts[source].shape, self.layout(source)
        samples, size = layout.samples, prod(layout.sample(before))
        indices = layout.joined(torch.arange(samples * size, dtype=dtype), before)
        found = moved_samples(self.evaluated(node, {source: indices}).to(torch.int64), samples, size)
        if found is None:
            after = list(self.facts[node].shape)
            raise NoHardware(f"it mixes samples: {list(before)} becomes {after}, dimension {layout.dim} is the batch")
        self.stand(node, found[0])
        return found[1]

    def stand(self, node: fx.Node, layout: Layout) -> None:
        """Note the layout of a node's samples."""
        shape = self.facts[node].shape
        if layout.dim or not layout.alone(shape):
            self.layouts[node] = layout

    def same_places(self, node: fx.Node, source: fx.Node) -> None:
        """Note that a node's samples are laid out as another one's."""
        if source in self.layouts:
            self.layouts[node] = self.layouts[source]

    def add(self, unrounded: Unrounded, format: FixedPoint, *rounded: str) -> Whole:
        """Add an operation, named after the node that computes it. rounded: the nodes that round it."""
        node = unrounded.node
        nodes = (node.name, *unrounded.also, *rounded)
        out = KINDS[unrounded.kind].order(self, unrounded, Stream(format, self.sample(node)))
        if any(size == 0 for size in out.shape):
            raise NoHardware("it has no elements")
        given = unrounded.inputs, out, nodes, unrounded.constants, unrounded.options
        name = make_identifier(node.name, self.operations)
        self.operations[name] = Operation(name, unrounded.kind, *given)
        if unrounded.kind == "input":
            self.inputs[node] = name
        return Whole(name)

    def _lower_rounding(self, node: fx.Node, text: str) -> Held:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        self.same_places(node, source)
        held, format = self.held[source], parse(text)
        if isinstance(format, FixedPoint):
            return self._round_held(held, stream_format(text), node)
        if isinstance(held, Known | Constant):
            values = held.values if isinstance(held, Known) else held.format.decode(held.integers)
            return _hold_exactly(format, values, node)
        if isinstance(format, WithExponents):
            return round_data(self, node, self.whole(source), format)
        told = "signed fixed point, mxint and minifloats have, e.g. fixed(8,4)"
        raise NoHardware(f"{text} has no hardware for data; {told}")

    def _round_held(self, held: Held, format: FixedPoint, node: fx.Node) -> Held:
        match held:
            case Moved(before, move):
                rounded = self._round_held(before, format, node)
                assert isinstance(rounded, Whole)
                return self.add(replace(move, inputs=(rounded.operation,)), format, node.name)
            case Known(values):
                return Constant(_check_encodable(values, format, node), format)
            case Floating(given):
                return self._input_stream(given, format, node.name)
            case Later(finish):
                return finish(format)
            case Masked() | Barred():
                raise NoHardware(f"{node.name} rounds minus infinity to a moderate number; leave masked scores alone")
            case Unrounded() as unrounded:
                return self.add(unrounded, format, node.name)
            case Whole(name) as whole if self.stream(name).format == format:
                return whole
            case Whole(name):
                return self.add(Unrounded("requantise", (name,), node, options={"relu": False}), format)
            case Constant() as constant:
                return Constant(constant.format.decode(constant.integers), format)

    def _input_stream(self, given: fx.Node, format: FixedPoint, rounded: str) -> Whole:
        if given not in self.inputs or (self.gaps.lacks(given) and self.stream(self.inputs[given]).format != format):
            count = None if format.is_signed else fewest_rows(self, given)
            options = {} if count is None else {"below": count}
            return self.add(Unrounded("input", (), given, options=options), format, rounded)
        known = self.inputs[given]
        if (other := self.stream(known).format) != format:
            raise NoHardware(f"the input {given.name} is rounded to {other} and to {format}; use one format")
        return Whole(known)


def _is_packing(node: fx.Node) -> bool:
    """Does a node only put tensors into an object?"""
    return node.op == "call_function" and getattr(underlying_callable(node.target), "__name__", "") == "rebuild"


def _values_of_held(held: Held) -> Tensor:
    assert isinstance(held, Known | Constant)
    return held.values if isinstance(held, Known) else held.format.decode(held.integers).float()


def _check_encodable(values: Tensor, format: FixedPoint, node: fx.Node) -> Tensor:
    if values.is_meta:
        raise NoHardware(f"what {node.name} rounds has no values; build the model with its weights")
    if bool(values.isnan().any()):
        raise NoHardware(f"what {node.name} rounds holds NaN, which no integer of {format} is")
    return values.detach() if values.is_floating_point() else values.double()


def _hold_exactly(format: NumberFormat, values: Tensor, node: fx.Node) -> Constant:
    """A constant rounded to any format, as the integers of the fewest bits that hold it exactly.

    NoHardware if these need more than _WIDEST_CONSTANT bits.
    """
    rounded = format.round(_check_encodable(values, FixedPoint(2, 0), node))
    if not bool(rounded.isfinite().all()):
        raise NoHardware(f"{node.name} holds infinity in {format}, which is no integer")
    fractions, exponents = torch.frexp(rounded.double())
    integers = (fractions * 2.0**53).long()
    steps = exponents + torch.frexp((integers & -integers).double()).exponent - 54
    lowest = int(steps[integers != 0].min()) if bool(integers.any()) else 0
    width = max(2, int(rounded.double().abs().max() * 2.0**-lowest).bit_length() + 1) if rounded.numel() else 2
    if width > _WIDEST_CONSTANT or not -64 <= lowest <= 64:
        told = f"{node.name} in {format} spans {width} bits, and more than {_WIDEST_CONSTANT} have no hardware"
        raise NoHardware(f"{told}; quantise it to nearer numbers, e.g. to mxint(8) or fixed(8,4)")
    return Constant(rounded, FixedPoint(width, -lowest))


#: The most bits of a constant that is in no format of fixed point.
_WIDEST_CONSTANT = 32


# Operators without hardware for a reason that the user can work around.

_LOOPS = (
    "it reads its own last result; nn.GRU and nn.LSTM have hardware, or write its steps out, as a loop over time in "
    "forward, and each step is hardware of its own"
)
_RANDOM = "it draws random numbers, and hardware is deterministic; give them as an input of the model"
_PLACES = "it returns indices of values, and no component compares all with all; compute it outside of the hardware"
_LENGTHS = "the size of its result depends on the values, and a stream has one length; mask unwanted values instead"
_AFTER = "each of its results needs the one before, and streams have no feedback; compute it outside of the hardware"
_SCATTERED = "the places that it writes depend on values; torch.where with a comparison has hardware"

_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("rnn", "rnn_tanh", "rnn_relu"), _LOOPS),
    **dict.fromkeys(
        ("randn_like", "rand_like", "randn", "rand", "bernoulli", "normal", "multinomial", "poisson", "randint"),
        _RANDOM,
    ),
    **dict.fromkeys(("argmin", "sort", "argsort", "kthvalue", "median", "mode"), _PLACES),
    **dict.fromkeys(("nonzero", "masked_select", "unique", "_pack_padded_sequence", "_pad_packed_sequence"), _LENGTHS),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), _AFTER),
    **dict.fromkeys(("scatter", "scatter_add", "index_add", "index_put", "index_copy", "scatter_reduce"), _SCATTERED),
}


def reason_of_missing(operator: str) -> str:
    """The message for an operator that has no hardware."""
    reason = _REASONS.get(operator)
    return f"there is no component for {operator}" + (
        "; docs/hardware.md lists what there is" if reason is None else f": {reason}"
    )
