"""GRU and LSTM: `fixed_recurrent`, behind a linear layer of the input.

Gates of the input are sums of products of a linear layer of their own, for all steps. What the last result adds, the
gates and the state are in one component; each layer of several has both. An engine can make the products with the last
result: `shared_recurrent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from mase_server.formats import with_parameters
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, Recurrent
from mase_server.hardware.arithmetic.linear import GATES
from mase_server.hardware.design import MOST_SERIAL, Constant, Design, Dots, Fold, Operation, Stream, find_divisors
from mase_server.hardware.functional import integer_recurrent
from mase_server.hardware.held import Held, Layout, NoHardware, Whole
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.kinds.linear import constant_parameters
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.memories import words_of_bias
from mase_server.hardware.verilog import Parameters, Tap, precision_parameters, stream_ports
from mase_server.ir.build import attribute
from mase_server.ir.number_formats import operator_of
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker

#: Operators that give the results of all steps, and the last states.
RECURRENT = frozenset({"gru", "lstm"})


def lower_layers(lowering: Lowering, node: fx.Node) -> None:
    """Note the operations that give the results of each layer, [steps, units]. NoHardware for what is not served."""
    module, parameters, (source, *states) = _layer_of_call(lowering, node)
    _check_settings(module)
    if not all(_is_zero(lowering, state) for state in states):
        raise NoHardware("its first state is given; hardware begins each sequence with zeros: leave the state out")
    name, steps = lowering.whole(source), _check_layout(lowering, source, module)
    name, width = in_order(lowering, name, torch.arange(lowering.stream(name).size)), lowering.stream(name).format.width
    found: list[str] = []
    for level in range(module.num_layers):
        constants = {
            key.removesuffix(f"_l{level}"): _by_units(lowering.constant(each), module)
            for key, each in parameters.items()
            if key.endswith(f"_l{level}")
        }
        if found:
            hidden, shape = FixedPoint(width, width - 1), lowering.stream(found[-1]).shape
            name = _insert(lowering, node, "requantise", (found[-1],), hidden, shape, relu=False)
        found.append(_add_layer(lowering, node, name, constants, (steps, module.hidden_size, width)))
    lowering.layers[node], lowering.parts[node] = tuple(found), source


def _layer_of_call(lowering: Lowering, node: fx.Node) -> tuple[Any, Mapping[str, Any], list[Any]]:
    """The layer of a node, its rounded parameters and the arguments of the call."""
    if node.target is not with_parameters:
        raise NoHardware("its weights are not rounded to fixed point; quantise it first, e.g. to fixed(8,4)")
    layer, parameters, *given = node.args
    assert isinstance(layer, fx.Node)
    assert isinstance(parameters, Mapping)
    return attribute(lowering.model, str(layer.target)), parameters, [*given, *node.kwargs.values()]


def _check_settings(module: nn.RNNBase) -> None:
    if module.bidirectional:
        raise NoHardware("it goes both ways, and the way back begins with the last step; one direction has hardware")
    if module.proj_size:
        raise NoHardware("it projects its results (proj_size); a linear layer behind it has hardware")
    if module.dropout and module.training and module.num_layers > 1:
        raise NoHardware("its dropout draws random numbers in training, and hardware is deterministic; call eval()")


def _is_zero(lowering: Lowering, state: Any) -> bool:
    """Is a first state nothing, or zeros?"""
    if isinstance(state, tuple | list):
        return all(_is_zero(lowering, each) for each in state)
    values = lowering.values(state) if isinstance(state, fx.Node) and state in lowering.held else None
    return state is None or (values is not None and not bool(values.any()))


def _check_layout(lowering: Lowering, source: fx.Node, module: nn.RNNBase) -> int:
    """The steps of a sequence; NoHardware if its samples are elsewhere than the layer expects them."""
    shape, layout, batch = lowering.facts[source].shape, lowering.layout(source), 0 if module.batch_first else 1
    if len(shape) != 3:
        raise NoHardware("its input has no batch; give [batch, steps, features], and batch_first=True")
    if layout.dim != batch or not layout.alone(shape):
        raise NoHardware(
            f"the batch is dimension {layout.dim} of its input, but not of its layer; set batch_first=True"
        )
    return int(shape[1 - batch])


def _by_units(constant: Constant, module: nn.RNNBase) -> Constant:
    """Rows of weights and biases with the gates of a unit side by side."""
    return constant.moved(
        lambda rows: rows.reshape(-1, module.hidden_size, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)
    )


def _add_layer(
    lowering: Lowering, node: fx.Node, source: str, constants: Mapping[str, Constant], sizes: tuple[int, int, int]
) -> str:
    """One layer. sizes: steps, units, and the bits of a last result."""
    (steps, units, width), is_lstm = sizes, operator_of(node, lowering.model) == "lstm"
    given, kept = (_of_way(constants, way) for way in ("ih", "hh"))
    formats = _formats(is_lstm, width, kept)
    shape = steps, units * formats.gates
    parts = _insert(lowering, node, "linear", (source,), formats.parts, shape, given, relu=False)
    options = {"lstm": is_lstm, "width": width}
    return _insert(lowering, node, "recurrent", (parts,), GATES, (steps, units), kept, **options)


def _of_way(constants: Mapping[str, Constant], way: str) -> dict[str, Constant]:
    """Weight and bias of the input (ih) or of the last result (hh)."""
    return {key.removesuffix(f"_{way}"): each for key, each in constants.items() if key.endswith(way)}


def _insert(
    lowering: Lowering,
    node: fx.Node,
    kind: str,
    inputs: tuple[str, ...],
    format: FixedPoint,
    shape: tuple[int, ...],
    constants: Mapping[str, Constant] | None = None,
    **options: Any,
) -> str:
    name = f"{node.name}_{kind}" if kind in ("linear", "requantise") else node.name
    operation = Operation(name, kind, inputs, Stream(format, shape), (node.name,), constants or {}, options)
    return lowering.insert(operation)


# The results of a call: of all steps, and of the last one.


def path_of_result(lowering: Lowering, node: fx.Node) -> tuple[fx.Node, tuple[Any, ...]] | None:
    """The call of a recurrent layer, and the places of a node's result in its tuples; None for any other node."""
    path: list[Any] = []
    while node not in lowering.layers:
        picked = node.args[0] if operator_of(node, lowering.model) == "getitem" else None
        if not isinstance(picked, fx.Node) or isinstance(lowering.facts.get(picked), TensorType):
            return None
        path.insert(0, node.args[1])
        node = picked
    return node, tuple(path)


def lower_result(lowering: Lowering, node: fx.Node, call: fx.Node, path: tuple[Any, ...]) -> Held:
    """A result of a call: of all steps, or of the last one."""
    names, module = lowering.layers[call], _layer_of_call(lowering, call)[0]
    if path == (1, 1):
        raise NoHardware("it is the last cell of an LSTM, which stays in its component; the last result has hardware")
    batch = 0 if path == (0,) and module.batch_first else 1
    lowering.stand(node, Layout(lowering.facts[node].shape[batch], batch))
    if path == (0,):
        return Whole(names[-1])
    steps, units = lowering.stream(names[-1]).shape
    options: dict[str, Any] = {"places": torch.arange(units) + (steps - 1) * units, "first": (steps - 1) * units}
    shape = (1, units) if len(names) == 1 else (units,)
    last = [_insert(lowering, node, "take", (name,), GATES, shape, **options) for name in names]
    if len(names) > 1:
        shape = len(names), units
        last = [_insert(lowering, node, "concat", tuple(last), GATES, shape, dim=0, stacked=True, rounds=1)]
    return Whole(last[0])


# Their arithmetic, foldings and instances.


def _formats(is_lstm: bool, width: int, constants: Mapping[str, Constant]) -> Recurrent:
    bias = constants.get("bias")
    return Recurrent.fitting(is_lstm, width, constants["weight"].format, None if bias is None else bias.format)


def _formats_of(operation: Operation) -> Recurrent:
    return _formats(operation.options["lstm"], operation.options["width"], operation.constants)


def _recurrent_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,), options = maker.inputs(operation), operation.options
    (weight, of_weight), (bias, of_bias) = maker.constant(operation, "weight"), maker.constant(operation, "bias")
    formats = options["width"], of_weight, of_bias
    return maker.call(operation, integer_recurrent, source, weight, bias, formats, options["lstm"])


def _recurrent_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """Whole units at a time, or their gates one after the other; a step begins when the one before is whole."""
    steps, units = operation.out.shape
    formats = _formats_of(operation)
    for lanes in find_divisors(units):
        for outs in find_divisors(formats.gates) if lanes == 1 else [formats.gates * lanes]:
            for ins in find_divisors(units):
                for serial in (False, True) if lanes <= MOST_SERIAL else (False,):
                    yield _fold(formats, steps, units, (ins, outs, lanes), serial)


def _fold(formats: Recurrent, steps: int, units: int, lanes: tuple[int, int, int], serial: bool) -> Fold:
    """lanes: of the last result, of gates, and of units."""
    (ins, outs, results), gates = lanes, formats.gates
    beats, passes, common = units // ins, units * gates // outs, gcd(ins, results)
    # The gates of a unit that come one after the other are collected, and then take turns at the tables.
    collected = gates // outs if outs < gates else 0
    beat = _serial_cycles(formats) if serial else gates + max(0, collected - 1)
    turns = (units // results - 1) * beat + (max(1, collected) - 1) * beats + (collected > 0)
    converted = results // common - (ins == common) - (results == common)
    step = (
        max((passes - 1) * beats + (collected > 0), turns) + gates + (ins - 1).bit_length() + converted - (passes == 1)
    )
    own, products = _products(formats, units, serial)
    cycles = steps * (step + _LATENCY + (_serial_cycles(formats) - _CELL if serial else 0))
    return Fold(
        gates * results,
        results,
        cycles,
        ins * outs + own * results,
        (ins, outs),
        serial=serial,
        multiplied=steps * products,
    )


def _products(formats: Recurrent, units: int, serial: bool) -> tuple[int, int]:
    """Multipliers for the gates and the state of a unit, and multiplications of a step."""
    own = 0 if serial else 3 if formats.is_lstm else 2
    return own, units * (units * formats.gates + own)


def _serial_cycles(formats: Recurrent) -> int:
    """Cycles from the last gates of a unit to its result if two products, one after the other, are made bit by bit."""
    return _CELL + 2 * (formats.unit.width + 1)


#: Cycles from the last gates of a unit to its result; and these and the ones from the last result of a step to the
#: first gates of the next one.
_CELL, _LATENCY = 14, 24


@dataclass(frozen=True, slots=True)
class _Steps(Dots):
    """Dot products with a last result, which a shared engine computes: a step's begin when the one before is whole.
    Other layers use the engine meanwhile. Gates and state multiply bit by bit unless that is too slow."""

    recurrent: Recurrent

    def fold(self, par_in: int, par_out: int, interval: int, waits: bool) -> Fold:
        """The fold with an engine of so many lanes; waits: no operation waits for its streams."""
        found = self._with_engine(par_in, par_out, serial=True)
        return found if found.cycles <= interval else self._with_engine(par_in, par_out, serial=False)

    def fastest(self, par_in: int, par_out: int) -> int:
        """Cycles of a sample's steps with an engine to itself."""
        return self._with_engine(par_in, par_out, serial=True).cycles

    def helped(self, par_in: int, par_out: int) -> tuple[int, int]:
        """The same with multipliers for gates and state, and their number."""
        found = self._with_engine(par_in, par_out, serial=False)
        return found.cycles, found.multipliers

    @property
    def chained(self) -> bool:
        """A step waits for the one before."""
        return True

    def held(self, par_in: int, par_out: int) -> int:
        """Those of the engine: the input of the next step waits in a fifo, so that others need not wait."""
        return self.cycles(par_in, par_out)

    def _with_engine(self, par_in: int, par_out: int, serial: bool) -> Fold:
        """With the fewest units at once that keep up with the engine."""
        gates, held, engine = self.recurrent.gates, self.cycles(par_in, par_out), (par_in, par_out)
        beats, passes = -(-self.length // par_in), -(-self.results // par_out)
        turn, cell = (_serial_cycles(self.recurrent),) * 2 if serial else (gates, _CELL)
        few = [each for each in find_divisors(self.length) if not serial or each <= MOST_SERIAL]
        lanes = next((each for each in few if self.length // each * turn <= passes * beats), few[-1])
        ins, together = gcd(lanes, par_in), gates * lanes
        outs = gcd(together, par_out)
        # The engine's results leave in narrow beats, and units are gathered from these.
        pace, left = max(beats, par_out // outs), ((self.results - 1) % par_out + 1) // outs
        first = (together - 1) // par_out * pace + ((together - 1) % par_out + 1) // outs
        turn += 0 if serial else together // outs - 1
        last = max((passes - 1) * pace + left, first + (self.length // lanes - 1) * turn)
        converted = (lanes // ins if lanes > ins else 0) + (together > outs)
        step = converted + beats + (par_in - 1).bit_length() + last + _OF_ENGINE + gates - 1 + cell
        cycles = self.vectors * step
        own, products = _products(self.recurrent, self.length, serial)
        return Fold(
            together,
            lanes,
            cycles,
            own * lanes,
            (ins, outs),
            engine,
            held,
            serial,
            multiplied=self.vectors * products,
        )


#: Cycles from a last result to the engine and back, without those of a burst and of its sums.
_OF_ENGINE = 12


def _recurrent_dots(design: Design, operation: Operation) -> Dots:
    (steps, units), formats = operation.out.shape, _formats_of(operation)
    products = Affine(formats.hidden, formats.weight, formats.bias, formats.parts)
    return _Steps(products, steps, units, formats.gates * units, units, steps * units, formats)


def _recurrent_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs all gates of its unit."""
    return ((torch.arange(operation.out.size) + 1) * _formats_of(operation).gates - 1,)


def _build_recurrent(builder: Builder, operation: Operation) -> Tap:
    fold, formats = builder.folding.folds[operation.name], _formats_of(operation)
    (steps, units), (ins, outs) = operation.out.shape, fold.taps
    source = _wait(builder, operation, builder.read(operation, fold.par_in), units // fold.par_out)
    to = builder.wires(f"{operation.name}_cast", fold.par_out, formats.unit.width)
    parameters: Parameters = {
        "LSTM": int(formats.is_lstm),
        "SERIAL": int(fold.serial),
        **precision_parameters("DATA_IN_0", formats.parts),
        **precision_parameters("HIDDEN", formats.hidden),
        "HIDDEN_PARALLELISM_DIM_0": ins,
        "GATES_PARALLELISM_DIM_0": outs,
        **constant_parameters(builder, operation, fold.engine or fold.taps),
        "ARGUMENT_WIDTH": formats.argument,
        **precision_parameters("CELL", formats.cell),
        **precision_parameters("DATA_OUT_0", formats.unit),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": units,
        "DATA_OUT_0_TENSOR_SIZE_DIM_1": steps,
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
    }
    for name, table in (("sigmoid", formats.sigmoid_words), ("tanh", formats.tanh_words)):
        file = builder.file(operation, name, formats.unit.width, words_of_bias(table, formats.unit.width, 1))
        parameters[f"{name.upper()}_FILE"] = file
    engine = builder.engine_of(operation, parameters)
    module, ports = "shared_recurrent" if engine else "fixed_recurrent", {**stream_ports(source, to), **engine}
    builder.instance(f"{operation.name}_i", module, parameters, ports, operation.name)
    return builder.skid(operation, to)


def _wait(builder: Builder, operation: Operation, source: Tap, beats: int) -> Tap:
    """The input behind a fifo of a step, so that it comes while the component waits for its last result."""
    to = builder.wires(f"{operation.name}_fifo_0", source.lanes, source.bits)
    parameters = {"DATA_WIDTH": source.width, "DEPTH": beats + 1}
    builder.instance(f"{operation.name}_depth_0", "fifo", parameters, stream_ports(source, to), operation.name)
    return to


RECURRENT_KIND = Kind(
    "recurrent",
    _recurrent_node,
    _build_recurrent,
    {},
    row_major,
    _recurrent_folds,
    _recurrent_reach,
    dots=_recurrent_dots,
)
