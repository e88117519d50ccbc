"""The text of a top module, and the lines of every operation in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mase_server.building import rtl_folder
from mase_server.formats.fixed import FixedPoint
from mase_server.visible import reveal

# SystemVerilog identifiers from names of graph nodes.

#: The most characters of a name: names of files contain it, with a prefix and a suffix.
_LONGEST = 120

_WORDS = Path(__file__).parent / "templates" / "reserved_words.txt"

#: IEEE 1800-2017, annex B.
RESERVED = frozenset(_WORDS.read_text(encoding="utf-8").split())

#: Parts of generated names of wires and instances: a name that contains one could collide with a generated one.
_MADE = re.compile(
    r"(_valid|_ready|_i|_skid|_cast|_fork|_fifo|_engine|_engine_[a-z]+|_in_\d+|_width_\d+|_depth_\d+)$|^data_(in|out)_\d+$|^(clk|rst)$"
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
    parameters = [f".{name}({_verilog_literal(value)})" for name, value in instance.parameters.items()]
    ports = [f".{name}({wire})" for name, wire in instance.ports.items()]
    return [
        f"  {instance.module} #(",
        *_comma_separated_lines(parameters),
        f"  ) {instance.name} (",
        *_comma_separated_lines(ports),
        "  );",
    ]


def _verilog_literal(value: int | str | Wide) -> str:
    if isinstance(value, Wide):
        return f"64'd{value.value}"
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


Parameters = dict[str, int | str | Wide]


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


@dataclass(frozen=True, slots=True)
class Wires:
    """The three wires of a stream, by the name of its data."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One component. operation: the one that it belongs to; "" for one that only joins others."""

    name: str
    module: str
    parameters: Mapping[str, int | str | Wide]
    ports: Mapping[str, str]
    operation: str = ""


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
    dropped: streams that are not read.
    """

    inputs: list[Tap] = field(default_factory=list)
    outputs: list[Tap] = field(default_factory=list)
    wires: list[Wires] = field(default_factory=list)
    handshakes: list[tuple[str, int]] = field(default_factory=list)
    vectors: list[tuple[str, int]] = field(default_factory=list)
    dropped: list[Tap] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)


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
