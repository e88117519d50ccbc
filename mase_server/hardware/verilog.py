"""The text of a top module with the lines of every operation in it, and of the shell that puts it on a bus."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mase_server.building import RESET_STYLES, SHELL_SUFFIX, rtl_folder
from mase_server.formats.fixed import FixedPoint
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.hardware.networks import Network

# SystemVerilog identifiers from names of graph nodes.

#: The most characters of a name: names of files contain it, with a prefix and a suffix.
_LONGEST = 120

_WORDS = Path(__file__).parent / "templates" / "reserved_words.txt"

#: IEEE 1800-2017, annex B.
RESERVED = frozenset(_WORDS.read_text(encoding="utf-8").split())

#: Parts of generated names of wires and instances: a name that contains one could collide with a generated one.
_MADE = re.compile(
    r"(_valid|_ready|_i|_skid|_cast|_fork|_fifo|_engine|_engine_[a-z]+|_constants|_in_\d+|_width_\d+|_depth_\d+)$|^data_(in|out)_\d+$|^(clk|rst)$|^copy_\d+|^ram_\d+x\d+$|^(weights|m_axi)_"
)


def make_identifier(name: str, taken: Container[str] = ()) -> str:
    """A name as an unused identifier that is no reserved word and cannot be mistaken for a generated one."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    if text in RESERVED or _MADE.search(text) or text[:1].isdigit():
        text = f"op_{text}_op"
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 11]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}_op"
    number, found = 1, text
    while found in taken:
        number += 1
        found = f"{text}_{number}_op"
    return found


# The components of `rtl/` that a design needs.


def find_components(*roots: str) -> list[Path]:
    """The files of components and of all that they instantiate, sorted. ValueError for an unknown component."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = rtl_folder() / f"{waiting.pop()}.sv"
        if not path.exists():
            raise ValueError(f"there is no component {path.stem}; rtl/README.md lists them")
        if path not in found:
            found.add(path)
            waiting += _instantiated_names(path)
    return sorted(found)


@cache
def _instantiated_names(path: Path) -> tuple[str, ...]:
    text = path.read_text(encoding="utf-8")
    names = (each.stem for each in rtl_folder().glob("*.sv"))
    return tuple(name for name in names if re.search(rf"^\s*{name} (#\(|\w+ \()", text, re.MULTILINE))


#: A block of registers with a reset begins with it, and has no other registers: tests/rtl/test_resets.py.
_WITH_RESET = re.compile(r"always_ff @\(posedge clk\)(?=\s+(?:begin\s+)?if \((!?)(rst|resets|aresetn|forgets)\))")


def component_text(path: Path, reset_style: str) -> str:
    """The text of a component. reset_style: one of RESET_STYLES; components are written with synchronous resets."""
    text = path.read_text(encoding="utf-8")
    if reset_style == RESET_STYLES[0]:
        return text
    return _WITH_RESET.sub(
        lambda found: f"always_ff @(posedge clk or {'negedge' if found[1] else 'posedge'} {found[2]})", text
    )


@dataclass(frozen=True, slots=True)
class Text:
    """SystemVerilog, and the lines (from 1, both included) of each operation's instances."""

    text: str
    lines: Mapping[str, tuple[tuple[int, int], ...]]


def top_text(name: str, made: Netlist, about: Iterable[str] = ()) -> Text:
    """The module `name`. about: lines of the comment above it."""
    # A name may contain a line break, and the text behind that would be outside of the comment.
    lines = [f"/// {reveal(each)}" for each in about]
    lines += [f"module {name} (", *_port_lines(made), ");"]
    lines += _declaration_lines(made)
    found: dict[str, list[tuple[int, int]]] = {}
    for instance in made.instances:
        lines.append("")
        first = len(lines) + 1
        lines += _instance_lines(instance)
        found.setdefault(instance.operation, []).append((first, len(lines)))
    lines += ["", *_output_lines(made), "endmodule"]
    return Text("\n".join(lines) + "\n", {operation: tuple(places) for operation, places in found.items()})


def _port_lines(made: Netlist) -> list[str]:
    ports = [("input ", "clk", 1), ("input ", "rst", 1)]
    if made.port:
        ports += [(f"{way:6}", name, bits) for way, name, bits in outside_ports(made.port)]
    for index, tap in enumerate(made.inputs):
        ports += _stream_ports(f"data_in_{index}", tap, "input ", "output")
    for index, tap in enumerate(made.outputs):
        ports += _stream_ports(f"data_out_{index}", tap, "output", "input ")
    ranges = [_bit_range(width) for _, _, width in ports]
    column = max(map(len, ranges))
    texts = [f"    {way} logic {bits:>{column}} {name}" for (way, name, _), bits in zip(ports, ranges, strict=True)]
    return [f"{text}," for text in texts[:-1]] + texts[-1:]


def _stream_ports(name: str, tap: Tap, forth: str, back: str) -> list[tuple[str, str, int]]:
    return [(forth, name, tap.width), (forth, f"{name}_valid", 1), (back, f"{name}_ready", 1)]


def _bit_range(width: int) -> str:
    return f"[{width - 1}:0]" if width > 1 else ""


def _declaration_lines(made: Netlist) -> Iterator[str]:
    dropped = {tap.data for tap in made.dropped}
    for wires in made.wires:
        bits = _bit_range(wires.width)
        yield f"  logic {bits}{' ' if bits else ''}{wires.name};"
        yield f"  logic {wires.name}_valid{'' if wires.name in dropped else f', {wires.name}_ready'};"
    for name, length in made.handshakes:
        yield f"  logic {_bit_range(length)} {name}_valid, {name}_ready;"
    for name, width in made.vectors:
        yield f"  logic [{width - 1}:0] {name};"


def _instance_lines(instance: Instance) -> list[str]:
    parameters = {name: _verilog_literal(value) for name, value in instance.parameters.items()}
    if instance.made:
        return _connected_lines(instance.made, instance.name, {}, instance.ports)
    return _connected_lines(instance.module, instance.name, parameters, instance.ports)


def _connected_lines(module: str, name: str, parameters: Mapping[str, str], ports: Mapping[str, str]) -> list[str]:
    """An instance, with each parameter and each port on a line."""
    return [
        f"  {module} {'#(' if parameters else f'{name} ('}",
        *_comma_separated_lines([f".{key}({value})" for key, value in parameters.items()]),
        *([f"  ) {name} ("] if parameters else []),
        *_comma_separated_lines([f".{key}({wire})" for key, wire in ports.items()]),
        "  );",
    ]


def _verilog_literal(value: int | str | Wide | Joined) -> str:
    if isinstance(value, Wide):
        return f"64'd{value.value}"
    if isinstance(value, Joined):
        return _words(value.values)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _comma_separated_lines(items: list[str]) -> list[str]:
    return [f"      {item}," for item in items[:-1]] + [f"      {item}" for item in items[-1:]]


def _output_lines(made: Netlist) -> Iterator[str]:
    for tap in made.dropped:
        yield f"  logic unused_{tap.data};"
        yield f"  assign unused_{tap.data} = &{{1'b0, {tap.data}, {tap.valid}}};"
    for index, tap in enumerate(made.outputs):
        yield f"  assign data_out_{index} = {tap.data};"
        yield f"  assign data_out_{index}_valid = {tap.valid};"
        yield f"  assign {tap.ready} = data_out_{index}_ready;"


# Instances and wires of a top module.


@dataclass(frozen=True, slots=True)
class Wide:
    """A parameter of 64 bits."""

    value: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A parameter of several words of 32 bits, the first one lowest."""

    values: tuple[int, ...]


Parameters = dict[str, int | str | Wide | Joined]


@dataclass(frozen=True, slots=True)
class Tap:
    """The expressions of the wires at which a stream is read or written. lanes: elements of a beat.  bits: of an
    element."""

    data: str
    valid: str
    ready: str
    lanes: int
    bits: int

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return self.lanes * self.bits


def name_tap(name: str, lanes: int, bits: int) -> Tap:
    """The wires of a stream that are called after its data."""
    return Tap(name, f"{name}_valid", f"{name}_ready", lanes, bits)


@dataclass(frozen=True, slots=True)
class Wires:
    """The three wires of a stream, by the name of its data."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One component. operation: the one that it belongs to; "" for one that only joins others.

    network: the additions that stand beside it, in a module that is made for them; None for other components.
    """

    name: str
    module: str
    parameters: Mapping[str, int | str | Wide | Joined]
    ports: Mapping[str, str]
    operation: str = ""
    network: Network | None = None

    @property
    def made(self) -> str:
        """The module that is made for it, with its parameters; "" for none."""
        return f"{self.operation}_constants" if self.network else ""


def read_parameters(instance: Instance) -> dict[str, int]:
    """All parameters but names of files."""
    numbers: dict[str, int] = {}
    for name, value in instance.parameters.items():
        if isinstance(value, Wide):
            numbers[name] = value.value
        elif isinstance(value, int):
            numbers[name] = int(value)
    return numbers


@dataclass(frozen=True, slots=True)
class Memory:
    """The words of a memory file, each as one number, made when they are read. width: bits of a word.

    operation: the one that it belongs to.
    """

    file: str
    width: int
    words: Sequence[int]
    operation: str = ""


@dataclass(slots=True)
class Netlist:
    """A top module. inputs, outputs: the streams of its ports, `data_in_0` and so on, with the tap inside.

    handshakes: pairs of vectors for forks, by name and length.  vectors: other wires, by name and width.
    dropped: streams that are not read.  regions: words that are read from a memory outside; port: bits of a beat of it.
    pace: beats of a cycle.
    """

    inputs: list[Tap] = field(default_factory=list)
    outputs: list[Tap] = field(default_factory=list)
    wires: list[Wires] = field(default_factory=list)
    handshakes: list[tuple[str, int]] = field(default_factory=list)
    vectors: list[tuple[str, int]] = field(default_factory=list)
    dropped: list[Tap] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    regions: list[Memory] = field(default_factory=list)
    port: int = 0
    pace: float = 1.0

    def add_wires(self, name: str, lanes: int, bits: int) -> Tap:
        """Add the wires of a stream."""
        self.wires.append(Wires(name, lanes * bits))
        return name_tap(name, lanes, bits)

    def add_instance(
        self,
        name: str,
        module: str,
        parameters: Parameters | dict[str, int],
        ports: Mapping[str, str],
        operation: str = "",
        network: Network | None = None,
    ) -> None:
        """Add an instance, with clock and reset."""
        clocked = {"clk": "clk", "rst": "rst", **ports}
        self.instances.append(Instance(name, module, parameters, clocked, operation, network))

    def add_converter(self, name: str, source: Tap, to: Tap, operation: str) -> None:
        """Add what changes the elements of a beat from those of a stream to those of another."""
        parameters = {
            "DATA_IN_0_PRECISION_0": source.bits,
            "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
            "DATA_OUT_0_PARALLELISM_DIM_0": to.lanes,
        }
        self.add_instance(name, "width_converter", parameters, stream_ports(source, to), operation)


def stream_ports(source: Tap, to: Tap) -> dict[str, str]:
    """The ports of a component with one input and one output."""
    return {
        "data_in_0": source.data,
        "data_in_0_valid": source.valid,
        "data_in_0_ready": source.ready,
        "data_out_0": to.data,
        "data_out_0_valid": to.valid,
        "data_out_0_ready": to.ready,
    }


def precision_parameters(prefix: str, format: FixedPoint) -> Parameters:
    """MASE's two parameters of a format."""
    return {f"{prefix}_PRECISION_0": format.width, f"{prefix}_PRECISION_1": format.fraction_width}


# The port of a memory outside: rtl/axi_reader.sv reads weights through it.

#: What tells the reader its reset, when to begin, where the image is; and its word of an answer that was no OKAY.
_OUTSIDE = (("input", "aresetn", 1), ("input", "enable", 1), ("input", "base", 64), ("output", "error", 1))


def memory_ports(width: int) -> tuple[tuple[str, str, int], ...]:
    """The read channels of AXI4 from the master's side, without their prefix: direction, name, bits."""
    return (
        ("output", "arid", 1), ("output", "araddr", 64), ("output", "arlen", 8), ("output", "arsize", 3),
        ("output", "arburst", 2), ("output", "arcache", 4), ("output", "arprot", 3), ("output", "arvalid", 1),
        ("input", "arready", 1), ("input", "rid", 1), ("input", "rdata", width), ("input", "rresp", 2),
        ("input", "rlast", 1), ("input", "rvalid", 1), ("output", "rready", 1),
    )  # fmt: skip


def outside_ports(width: int) -> list[tuple[str, str, int]]:
    """The ports of a top module whose weights are outside, as `memory_ports`."""
    own = [(way, f"weights_{name}", bits) for way, name, bits in _OUTSIDE]
    return own + [(way, f"m_axi_{name}", bits) for way, name, bits in memory_ports(width)]


# The shell that puts a top module on AXI: rtl/axi_stream.sv at each of its streams, and rtl/axi_registers.sv.

#: The components that the shell has.
SHELL_COMPONENTS = ("axi_registers", "axi_stream")


class Register(NamedTuple):
    """A register of 32 bits. offset: in bytes.  access: "r" or "rw"."""

    offset: int
    name: str
    access: str
    meaning: str


#: The registers of rtl/axi_registers.sv: the pages and the example are made of them, the tests read each in hardware.
REGISTERS = (
    Register(0x00, "IDENTIFIER", "r", "0x4d415345: `MASE` in ASCII"),
    Register(0x04, "VERSION", "r", "of this map: 0x00010001"),
    Register(0x08, "CONTROL", "rw", "bit 0: packets may begin; bit 1, written as 1: soft reset (reads 0)"),
    Register(
        0x0C,
        "STATUS",
        "r",
        "bit 0: busy, bit 1: idle, bit 2: a packet was wrong, bit 3: so was an answer of the memory",
    ),
    Register(0x10, "CHECKSUM", "r", "CRC-32 of the `.mem` files one after the other, sorted by name"),
    Register(0x14, "STREAMS", "r", "bits 7..0: inputs, 15..8: outputs, 31..16: bits of a beat of the bus"),
    Register(0x18, "CYCLES", "r", "cycles in which it was busy"),
    Register(0x1C, "WEIGHTS_CHECKSUM", "r", "CRC-32 of `weights.bin`, the weights outside; 0 without any"),
    Register(0x20, "WEIGHTS_LOW", "rw", "address of `weights.bin`, bits 31..0, a multiple of 4096"),
    Register(0x24, "WEIGHTS_HIGH", "rw", "bits 63..32 of it"),
    Register(0x28, "WEIGHTS_BYTES", "r", "of `weights.bin`"),
)
#: Those of each stream, from its own offset: the first input's is FIRST_STREAM, outputs follow the inputs.
STREAM_REGISTERS = (
    Register(0x00, "SAMPLES", "r", "of an input: samples that have begun; of an output: that are complete"),
    Register(
        0x04, "STALLS", "r", "cycles, while busy, in which an input waited for its source, an output for its sink"
    ),
    Register(0x08, "ERRORS", "r", "packets with TLAST or TKEEP in the wrong place; 0 for an output"),
    Register(0x0C, "BYTES", "r", "of a packet"),
    Register(0x10, "FORMAT", "r", "bits 7..0: bytes of an element, 15..8: its width, 23..16: its fraction, 24: signed"),
)
FIRST_STREAM, STREAM_STEP = 0x40, 0x20

#: The ports of AXI4-Lite, from the slave's side: direction, name, bits.
LITE_PORTS = (
    ("input", "awaddr", 12), ("input", "awprot", 3), ("input", "awvalid", 1), ("output", "awready", 1),
    ("input", "wdata", 32), ("input", "wstrb", 4), ("input", "wvalid", 1), ("output", "wready", 1),
    ("output", "bresp", 2), ("output", "bvalid", 1), ("input", "bready", 1),
    ("input", "araddr", 12), ("input", "arprot", 3), ("input", "arvalid", 1), ("output", "arready", 1),
    ("output", "rdata", 32), ("output", "rresp", 2), ("output", "rvalid", 1), ("input", "rready", 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Channel:
    """A stream of a top module on a bus, a packet for each sample.

    name: of the port of the top module.  size: elements of a sample.  lanes: elements of a beat of the top module.
    width: bits of a beat of the bus.
    """

    name: str
    format: FixedPoint
    size: int
    lanes: int
    width: int

    @property
    def is_input(self) -> bool:
        """Does the top module read it?"""
        return self.name.startswith("data_in_")

    @property
    def port(self) -> str:
        """Its name on the bus."""
        return f"{'s' if self.is_input else 'm'}_axis_{self.name.rpartition('_')[2]}"

    @property
    def element_bytes(self) -> int:
        """Bytes of an element on the bus."""
        return element_bytes(self.format)

    @property
    def bus_lanes(self) -> int:
        """Elements of a beat of the bus."""
        return self.width // (8 * self.element_bytes)

    @property
    def beats(self) -> int:
        """Beats of a packet."""
        return -(-self.size // self.bus_lanes)

    @property
    def ports(self) -> tuple[tuple[str, str, int], ...]:
        """The ports of the shell, as in LITE_PORTS."""
        forth, back = ("input", "output") if self.is_input else ("output", "input")
        wires = (("tdata", self.width), ("tkeep", self.width // 8), ("tlast", 1), ("tvalid", 1))
        return (*((forth, wire, bits) for wire, bits in wires), (back, "tready", 1))

    @property
    def format_word(self) -> int:
        """The register FORMAT."""
        form = self.format
        return self.element_bytes | form.width << 8 | (form.fraction_width & 255) << 16 | form.is_signed << 24


def element_bytes(format: FixedPoint) -> int:
    """Bytes of a number on a bus: 1, 2, 4 or 8."""
    return 1 << ((format.width - 1) // 8).bit_length()


@dataclass(frozen=True, slots=True)
class Outside:
    """Weights that are read from a memory outside. port: bits of a beat, 0 for none.  size, checksum: of the image."""

    port: int
    size: int
    checksum: int


def shell_ports(channels: Sequence[Channel], outside: Outside) -> list[tuple[str, str, int]]:
    """The ports of the shell around these streams: direction, name, bits."""
    ports = [("input", "aclk", 1), ("input", "aresetn", 1)]
    ports += [(way, f"s_axi_{wire}", bits) for way, wire, bits in LITE_PORTS]
    ports += [(way, f"{each.port}_{wire}", bits) for each in channels for way, wire, bits in each.ports]
    memory = memory_ports(outside.port) if outside.port else ()
    return ports + [(way, f"m_axi_{wire}", bits) for way, wire, bits in memory]


def shell_text(name: str, channels: Sequence[Channel], checksum: int, outside: Outside) -> str:
    """The module around the top module `name`. channels: its streams, inputs first.  checksum: of its memories."""
    count, width = len(channels), channels[0].width
    inputs = sum(each.is_input for each in channels)
    memory = [wire for _, wire, _ in memory_ports(outside.port)] if outside.port else []
    declared = [f"{way:6} logic {_bit_range(bits):>6} {port}" for way, port, bits in shell_ports(channels, outside)]
    numbers = {
        "INPUTS": str(inputs), "OUTPUTS": str(count - inputs), "BUS_WIDTH": str(width), "ENABLED": "ENABLED",
        "CHECKSUM": f"32'h{checksum:08x}",
        "SIZES": _words([each.size * each.element_bytes for each in channels]),
        "FORMATS": _words([each.format_word for each in channels]),
        "WEIGHTS_BASE": "WEIGHTS_BASE" if outside.port else "64'd0",
        "WEIGHTS_BYTES": f"32'd{outside.size}",
        "WEIGHTS_CHECKSUM": f"32'h{outside.checksum:08x}",
    }  # fmt: skip
    told = ("samples", "stalls", "errors", "active")
    wires = {"clk": "aclk", "aresetn": "aresetn", "rst": "rst", "enable": "enable"} | {each: each for each in told}
    wires |= {"weights_base": "weights_base", "weights_error": "weights_error"}
    lines = [
        f"/// {name} on AXI4: a packet of its streams is a sample, s_axi has its registers.",
        "/// ENABLED: 1 for packets that may begin without a word from a processor.",
        *(["/// WEIGHTS_BASE: where weights.bin is, until a processor tells it."] if memory else []),
        f"module {name}{SHELL_SUFFIX} #(",
        "    parameter bit ENABLED = 1'b0" + ("," if memory else ""),
        *(["    parameter logic [63:0] WEIGHTS_BASE = 64'd0"] if memory else []),
        ") (",
        *(line[2:] for line in _comma_separated_lines(declared)),
        ");",
        "  logic rst, enable, weights_error;",
        "  logic [63:0] weights_base;",
        *([] if memory else ["  logic unused_base;", "  assign weights_error = 1'b0;"]),
        *([] if memory else ["  assign unused_base = &{1'b0, weights_base};"]),
        *(f"  logic [{count - 1}:0] {each};" for each in told),
        *(line for each in channels for line in _channel_wires(each)),
        "",
        *_connected_lines(
            "axi_registers",
            "registers_i",
            numbers,
            wires | {f"s_axi_{wire}": f"s_axi_{wire}" for _, wire, _ in LITE_PORTS},
        ),
    ]
    for number, each in enumerate(channels):
        lines += ["", *_channel_lines(each, number)]
    core = {"clk": "aclk", "rst": "rst"}
    if memory:
        core |= {"weights_aresetn": "aresetn", "weights_enable": "enable"}
        core |= {wire: wire for wire in ("weights_base", "weights_error", *(f"m_axi_{wire}" for wire in memory))}
    core |= {f"{each.name}{end}": f"{each.name}{end}" for each in channels for end in ("", "_valid", "_ready")}
    return "\n".join([*lines, "", *_connected_lines(name, "core_i", {}, core), "endmodule"]) + "\n"


def _words(values: Sequence[int]) -> str:
    """Words of 32 bits side by side, the first one lowest."""
    return "{" + ", ".join(f"32'h{value:08x}" for value in reversed(values)) + "}"


def _channel_wires(channel: Channel) -> Iterator[str]:
    bits = _bit_range(channel.lanes * channel.format.width)
    yield f"  logic {bits}{' ' if bits else ''}{channel.name};"
    yield f"  logic {channel.name}_valid, {channel.name}_ready;"
    if channel.is_input:
        yield f"  logic [{channel.width // 8 - 1}:0] unused_{channel.name}_keep;"
        yield f"  logic unused_{channel.name}_last;"


def _channel_lines(channel: Channel, number: int) -> list[str]:
    bus, core = ("in", "out") if channel.is_input else ("out", "in")
    parameters = {
        "FROM_BUS": f"1'b{channel.is_input:d}", "BUS_WIDTH": str(channel.width),
        "ELEMENT_BYTES": str(channel.element_bytes), "SIGNED": f"1'b{channel.format.is_signed:d}",
        "DATA_IN_0_PRECISION_0": str(channel.format.width), "DATA_IN_0_TENSOR_SIZE_DIM_0": str(channel.size),
        "DATA_IN_0_PARALLELISM_DIM_0": str(channel.lanes),
    }  # fmt: skip
    ends = {"": "tdata", "_keep": "tkeep", "_last": "tlast", "_valid": "tvalid", "_ready": "tready"}
    ports = {"clk": "aclk", "aresetn": "aresetn", "rst": "rst", "enable": "enable" if channel.is_input else "1'b1"}
    told = (("sample", "samples"), ("stalls", "stalls"), ("error", "errors"), ("active", "active"))
    ports |= {port: f"{wire}[{number}]" for port, wire in told}
    ports |= {f"data_{bus}_0{end}": f"{channel.port}_{wire}" for end, wire in ends.items()}
    ports |= {f"data_{core}_0{end}": f"{channel.name}{end}" for end in ("", "_valid", "_ready")}
    ports |= {f"data_{core}_0{end}": f"unused_{channel.name}{end}" for end in ("_keep", "_last") if channel.is_input}
    ports |= {} if channel.is_input else {"data_in_0_keep": "'1", "data_in_0_last": "1'b0"}
    return _connected_lines("axi_stream", f"{channel.port}_i", parameters, ports)
