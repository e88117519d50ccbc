"""From a design and its folding to instances and wires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Design, Operation
from mase_server.hardware.folding import Folding
from mase_server.hardware.memories import words_of_bias, words_of_weight


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a stream is read or written: expressions of its wires. lanes: elements of a beat.  bits: of an element."""

    data: str
    valid: str
    ready: str
    lanes: int
    bits: int

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return self.lanes * self.bits


@dataclass(frozen=True, slots=True)
class Wires:
    """The three wires of a stream, by the name of its data."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One component. operation: whose it is; "" for what merely joins others."""

    name: str
    module: str
    parameters: Mapping[str, int | str]
    ports: Mapping[str, str]
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The words of a memory file, each as one number. width: bits of a word."""

    file: str
    width: int
    words: tuple[int, ...]


@dataclass(slots=True)
class Netlist:
    """A top module. inputs, outputs: the streams of its ports, `data_in_0` and so on, with the tap inside.

    handshakes: pairs of vectors for forks, by name and length.
    """

    inputs: list[Tap] = field(default_factory=list)
    outputs: list[Tap] = field(default_factory=list)
    wires: list[Wires] = field(default_factory=list)
    handshakes: list[tuple[str, int]] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)


def netlist(design: Design, folding: Folding) -> Netlist:
    """The instances of every operation, width converters between foldings that differ, forks where a value has several
    users."""
    return _Builder(design, folding).run()


class _Builder:
    def __init__(self, design: Design, folding: Folding) -> None:
        self.design, self.folding = design, folding
        self.made = Netlist()
        #: operation -> one tap for each of its users, in their order.
        self.taps: dict[str, list[Tap]] = {}

    def run(self) -> Netlist:
        for operation in self.design.operations.values():
            tap = BUILDERS[operation.kind](self, operation)
            readers = len(self.design.users(operation.name)) + self.design.outputs.count(operation.name)
            self.taps[operation.name] = [tap] if readers < 2 else self._forked(operation, tap, readers)
        self.made.outputs += [self.taps[name].pop(0) for name in self.design.outputs]
        return self.made

    def _forked(self, operation: Operation, tap: Tap, count: int) -> list[Tap]:
        name = f"{operation.name}_fork"
        self.made.handshakes.append((name, count))
        ports = {
            "data_in_0_valid": tap.valid,
            "data_in_0_ready": tap.ready,
            "data_out_0_valid": f"{name}_valid",
            "data_out_0_ready": f"{name}_ready",
        }
        self.instance(f"{name}_i", "stream_fork", {"COUNT": count}, ports, operation.name)
        each = ((f"{name}_valid[{index}]", f"{name}_ready[{index}]") for index in range(count))
        return [Tap(tap.data, valid, ready, tap.lanes, tap.bits) for valid, ready in each]

    # What the builders of operations use

    def read(self, operation: Operation, lanes: int | None = None, index: int = 0) -> Tap:
        """The stream of an operand, with so many elements per beat."""
        tap = self.taps[operation.inputs[index]].pop(0)
        if lanes is None or tap.lanes == lanes:
            return tap
        made = self.wires(f"{operation.name}_in_{index}", lanes, tap.bits)
        parameters = {
            "DATA_IN_0_PRECISION_0": tap.bits,
            "DATA_IN_0_PARALLELISM_DIM_0": tap.lanes,
            "DATA_OUT_0_PARALLELISM_DIM_0": lanes,
        }
        ports = streams(tap, made)
        self.instance(f"{operation.name}_width_{index}", "width_converter", parameters, ports, operation.name)
        return made

    def wires(self, name: str, lanes: int, bits: int) -> Tap:
        """New wires for a stream."""
        self.made.wires.append(Wires(name, lanes * bits))
        return Tap(name, f"{name}_valid", f"{name}_ready", lanes, bits)

    def instance(
        self, name: str, module: str, parameters: Mapping[str, int | str], ports: Mapping[str, str], operation: str
    ) -> None:
        """A new instance, with clock and reset."""
        clocked = {"clk": "clk", "rst": "rst"} if module != "stream_join" else {}
        self.made.instances.append(Instance(name, module, parameters, {**clocked, **ports}, operation))

    def memory(self, operation: Operation, name: str, constant: Constant, lanes: int, words: list[int]) -> str:
        """A memory file with the words of a constant; its name."""
        file = f"{operation.name}_{name}.mem"
        self.made.memories.append(Memory(file, lanes * constant.format.width, tuple(words)))
        return file


def streams(source: Tap, to: Tap) -> dict[str, str]:
    """The ports of a component with one input and one output."""
    return {
        "data_in_0": source.data,
        "data_in_0_valid": source.valid,
        "data_in_0_ready": source.ready,
        "data_out_0": to.data,
        "data_out_0_valid": to.valid,
        "data_out_0_ready": to.ready,
    }


def precision(prefix: str, format: FixedPoint) -> dict[str, int | str]:
    """MASE's two parameters of a format."""
    return {f"{prefix}_PRECISION_0": format.width, f"{prefix}_PRECISION_1": format.fraction_width}


def _input(builder: _Builder, operation: Operation) -> Tap:
    """A port of the top module, as wide as its first reader wants it."""
    name = f"data_in_{len(builder.made.inputs)}"
    tap = Tap(name, f"{name}_valid", f"{name}_ready", _lanes_wanted(builder, operation), operation.out.format.width)
    builder.made.inputs.append(tap)
    return tap


def _lanes_wanted(builder: _Builder, operation: Operation) -> int:
    for user in builder.design.users(operation.name):
        if user.name in builder.folding.folds:
            return builder.folding.folds[user.name].par_in
        return _lanes_wanted(builder, user)
    return 1


def _linear(builder: _Builder, operation: Operation) -> Tap:
    fold, weight, bias = (
        builder.folding.folds[operation.name],
        operation.constants["weight"],
        operation.constants.get("bias"),
    )
    source = builder.read(operation, fold.par_in)
    before = builder.design.operations[operation.inputs[0]].out
    # The columns of the weight stand in the order in which their elements come.
    columns = before.indices[: weight.integers.shape[1]]
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    words = words_of_weight(weight.integers[:, columns], weight.format.width, fold.par_in, fold.par_out)
    parameters: dict[str, int | str] = {
        **precision("DATA_IN_0", before.format),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": weight.integers.shape[1],
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        **precision("WEIGHT", weight.format),
        **precision("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": weight.integers.shape[0],
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "HAS_BIAS": int(bias is not None),
        "RELU": int(operation.options["relu"]),
        "WEIGHT_FILE": builder.memory(operation, "weight", weight, fold.par_in * fold.par_out, words),
    }
    if bias is not None:
        words = words_of_bias(bias.integers, bias.format.width, fold.par_out)
        parameters |= precision("BIAS", bias.format)
        parameters["BIAS_FILE"] = builder.memory(operation, "bias", bias, fold.par_out, words)
    builder.instance(f"{operation.name}_i", "fixed_linear", parameters, streams(source, to), operation.name)
    return to


def _requantise(builder: _Builder, operation: Operation) -> Tap:
    source = builder.read(operation)
    cast = builder.wires(f"{operation.name}_cast", source.lanes, operation.out.format.width)
    parameters = {
        **precision("DATA_IN_0", builder.design.operations[operation.inputs[0]].out.format),
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        **precision("DATA_OUT_0", operation.out.format),
        "RELU": int(operation.options["relu"]),
    }
    builder.instance(f"{operation.name}_i", "fixed_cast", parameters, streams(source, cast), operation.name)
    to = builder.wires(operation.name, source.lanes, cast.bits)
    width = {"DATA_WIDTH": cast.width}
    builder.instance(f"{operation.name}_skid", "skid_buffer", width, streams(cast, to), operation.name)
    return to


def _as_it_is(builder: _Builder, operation: Operation) -> Tap:
    return builder.read(operation)


Build = Callable[[_Builder, Operation], Tap]

#: Kind of an operation -> what builds it.
BUILDERS: Mapping[str, Build] = {
    "input": _input,
    "linear": _linear,
    "requantise": _requantise,
    "move": _as_it_is,
}
