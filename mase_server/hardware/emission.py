"""The emitted folder: top module, components, memories, vectors, README, a simulation and a Makefile."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from string import Template
from typing import Any

import torch
from torch import Tensor

from mase_server.building import BUSES, RESET_STYLES, SHELL_SUFFIX, Build, rtl_folder
from mase_server.hardware.attaching import (
    attach_to_bus,
    attach_to_part,
    bus_page,
    describe_reset,
    make_row,
    read_template,
)
from mase_server.hardware.chip import chip_page, flow_texts, ram_texts, rom_text
from mase_server.hardware.copies import COPIES_SUFFIX, join_netlists, surround_copies
from mase_server.hardware.design import Design, Folding, Operation, Stream, round_interval
from mase_server.hardware.estimates import Estimates, estimate, list_rams
from mase_server.hardware.kinds.kind import image_order
from mase_server.hardware.memories import (
    beats_to_hexadecimal,
    make_image,
    pack_rows,
    place_regions,
    words_to_hexadecimal,
)
from mase_server.hardware.netlist import build_netlist
from mase_server.hardware.networks import network_text
from mase_server.hardware.twin import integer_graph
from mase_server.hardware.verilog import (
    LITE_PORTS,
    SHELL_COMPONENTS,
    Channel,
    Netlist,
    Outside,
    Tap,
    Text,
    component_text,
    element_bytes,
    find_components,
    make_identifier,
    outside_ports,
    shell_text,
    top_text,
)
from mase_server.protocol.records import Accuracy, Totals
from mase_server.visible import escape_markdown

# The samples that a simulation compares: their usual number, and the expected outputs.

#: The number of samples for a small model, and for any model: two show the time between results.
_MOST, _VECTORS_LEAST = 100, 2
#: Products that all samples together may take: about a second.
_PRODUCTS = 1_000_000_000
#: Numbers of one operation that are computed at once.
_AT_ONCE = 1 << 22


def usual_count(folding: Folding) -> int:
    """The default number of samples of a simulation: fewer for large models."""
    products = sum(fold.products for fold in folding.folds.values())
    return count_rounds(folding, min(_MOST, max(_VECTORS_LEAST, _PRODUCTS // max(products, 1))))


def count_rounds(folding: Folding, samples: int) -> int:
    """Samples, at most so many where that is possible, of which the last comes from the copy that gave the first:
    results of several copies need not come at even times."""
    return max(samples - (samples - 1) % folding.copies, folding.copies + 1)


def expected_outputs(design: Design, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The integers of each output for those of each input, [samples, ...]; computed a few samples at a time."""
    model = integer_graph(design).model
    largest = max(_count_held_numbers(operation) for operation in design.operations.values())
    count = max(1, _AT_ONCE // largest)
    starts = range(0, len(inputs[0]), count)
    found = [_as_tuple(model(*(values[start : start + count] for values in inputs))) for start in starts]
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _count_held_numbers(operation: Operation) -> int:
    """Numbers that are held for one sample: windows are laid out side by side."""
    windows = operation.options.get("windows")
    return operation.out.size * (1 if windows is None else prod(windows.kernel))


#: The file of the weights that are read from outside.
IMAGE = "weights.bin"


@dataclass(frozen=True, slots=True)
class Emitted:
    """The emitted files. name: of the outermost module.  files: text by relative path.

    top: the top module of a copy, with the lines of each operation.  image: the weights that are read from outside, as
    IMAGE.
    """

    name: str
    files: Mapping[str, str]
    top: Text
    image: bytes = b""

    @property
    def contents(self) -> Mapping[str, bytes]:
        """The bytes of every file."""
        found = {path: text.encode() for path, text in self.files.items()}
        return found | ({IMAGE: self.image} if self.image else {})

    def write(self, folder: Path) -> None:
        """Write every file; other files in the folder stay. OSError names the first that cannot be written."""
        for path, content in self.contents.items():
            place = folder / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except OSError as error:
                told = f"cannot write {place}: {error.strerror}. The folder is incomplete: emit again later"
                raise OSError(error.errno, told) from error


@dataclass(frozen=True, slots=True)
class Top:
    """The top module of a design, without the content of its memories. name, made, text: of the module of a copy, which
    is the top module if there is one.  around: the netlist of the module around several copies; None for one."""

    name: str
    title: str
    folding: Folding
    made: Netlist
    text: Text
    around: Netlist | None = None

    @property
    def module(self) -> str:
        """The name of the top module."""
        return self.name if self.around is None else self.name + COPIES_SUFFIX

    @property
    def outermost(self) -> Netlist:
        """The netlist of the top module."""
        return self.made if self.around is None else self.around

    def component(self, operation: str) -> str:
        """The component of an operation; "" for one that only renames or widens streams."""
        own = [each for each in self.made.instances if each.operation == operation]
        return next((each.module for each in own if each.name == f"{operation}_i"), own[0].module if own else "")


def build_top(design: Design, folding: Folding, name: str, weights: str = "") -> Top:
    """Build the top module. name: of the model; the module gets it in snake case.  weights: their source, in words."""
    made = build_netlist(design, folding)
    components = (path.stem for path in rtl_folder().glob("**/*.sv"))
    module = module_name(name, {*design.operations, *(each.made for each in made.instances), *components, "bench"})
    text = top_text(module, made, _describe_top(name, design, folding, weights))
    around = surround_copies(design, folding, made, module) if folding.copies > 1 else None
    return Top(module, name, folding, made, text, around)


def emit_folder(
    design: Design, folding: Folding, name: str, inputs: list[Tensor], build: Build | None = None
) -> Emitted:
    """The folder of a design: `build_folder` of its `build_top`."""
    return build_folder(design, build_top(design, folding, name), inputs, build=build)


def build_folder(
    design: Design,
    made: Top,
    inputs: list[Tensor],
    figures: Estimates | None = None,
    build: Build | None = None,
) -> Emitted:
    """The folder around a top module. figures: its estimates, if they exist already.  build: for its bus and its part.

    inputs: integers for each input, [vectors, ...]; the simulation's results are checked against `expected_outputs`.
    An incomplete design has streams in place of its missing nodes.  The same design gives the same bytes.
    """
    build = build or Build()
    outputs = expected_outputs(design, inputs)
    channels = _channels(made.outermost, design, BUSES[build.bus]) if build.bus else []
    top = made.module + (SHELL_SUFFIX if channels else "")
    whole = join_netlists(design, made.folding, made.made)
    roots = dict.fromkeys(instance.module for instance in whole.instances)
    needed = find_components(*roots, *(SHELL_COMPONENTS if channels else ()))
    files = {f"{made.name}.sv": made.text.text}
    if made.around is not None:
        files[f"{made.module}.sv"] = top_text(made.module, made.around, _describe_copies(made)).text
    files |= {f"rtl/{path.name}": component_text(path, build.reset_style) for path in needed}
    networks = {f"{each.made}.sv": each for each in made.made.instances if each.network}
    files |= {path: network_text(each) for path, each in networks.items()}
    memories = {memory.file: words_to_hexadecimal(memory.words, memory.width) for memory in made.made.memories}
    files |= memories
    checksum = zlib.crc32("".join(memories[name] for name in sorted(memories)).encode())
    image = make_image(made.made.regions, made.made.port)
    outside = Outside(made.made.port, len(image), zlib.crc32(image))
    if channels:
        files[f"{top}.sv"] = shell_text(made.module, channels, checksum, outside)
    if build.reset_style != RESET_STYLES[0] and (channels or made.made.port):
        # The shell and the reader of weights take the reset as a signal, too: it is soft, or waits for bursts.
        for path in {f"{made.name}.sv", f"{top}.sv"}:
            files[path] = re.sub(r"^(?=module )", "/* verilator lint_off SYNCASYNCNET */ ", files[path], flags=re.M)
    bench = bench_files(top, made, design, inputs, outputs, channels, image)
    files |= {f"sim/{path}": content for path, content in bench.items()}
    files |= {"weights.json": _describe_image(made.made, image)} if image else {}
    chip = build.part if build.part and build.part.process else None
    rams = list_rams(whole) if chip else []
    files |= ram_texts(rams) if rams else {}
    files |= {"rtl/rom.sv": rom_text(made.made.memories)} if chip and made.made.memories else {}
    components = [path for path in files if path.startswith(("rams/", "rtl/"))]
    sources = [*components, *networks, *dict.fromkeys((f"{made.name}.sv", f"{made.module}.sv", f"{top}.sv"))]
    files["files.f"] = "".join(f"{path}\n" for path in sources)
    if channels:
        files |= attach_to_bus(top, channels, checksum, outside, sources, sorted(memories))
    synthesis = "synth -flatten" if chip else "synth_ecp5"
    files["Makefile"] = read_template("Makefile").replace("@TOP@", top).replace("@SYNTHESIS@", synthesis)
    clock = "aclk" if channels else "clk"
    if chip:
        files |= flow_texts(top, chip, clock, sources, rams)
    elif build.part:
        files |= attach_to_part(top, build.part, clock, sources, sorted(memories))
    figures = estimate(design, made.folding, made.made) if figures is None else figures
    page = readme_text(made, design, figures, build.reset_style)
    page += bus_page(top, channels, build.reset_style) + _image_page(made.made, image)
    files["README.md"] = page + (chip_page(chip, rams) if chip else "")
    return Emitted(top, files, made.text, image)


def random_inputs(design: Design, vectors: int, seed: int = 0) -> list[Tensor]:
    """Integers over the whole range of every input's format, so that saturation happens too."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for operation in design.inputs:
        low, high = operation.out.format.integers
        high = operation.options.get("below", high + 1) - 1
        found.append(torch.randint(low, high + 1, (vectors, *operation.out.shape), generator=generator))
    return found


def module_name(name: str, taken: Container[str] = ()) -> str:
    """A model's name as an unused name of a module: `JetMLP` is jet_mlp."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return make_identifier(re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_").lower() or "model", taken)


def _describe_top(name: str, design: Design, folding: Folding, weights: str) -> list[str]:
    single = folding.single
    about = [
        f"{name}: {len(design.operations)} operations, {single.multipliers} multipliers.",
        f"A sample takes {single.interval} cycles; the slowest: {_list_first(folding.bottlenecks) or 'its streams'}.",
        *([f"Its memories hold {weights}."] if weights else []),
    ]
    return about + (_describe_missing(design) if design.unsupported else [])


def _describe_copies(made: Top) -> list[str]:
    folding = made.folding
    return [
        f"{folding.copies} copies of {made.name}, which take samples in turn: {folding.multipliers} multipliers.",
        f"A sample comes every {round_interval(folding.interval)} cycles.",
    ]


def _list_first(names: Sequence[str], most: int = 3) -> str:
    """Some names, and the number of further ones."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _describe_missing(design: Design) -> list[str]:
    """The missing nodes, and the ports that replace them."""
    told = ["It is incomplete. Without hardware:"]
    told += [f"- {each.node} ({each.operator}): {' '.join(each.why.split())}" for each in design.unsupported]
    for index, operation in enumerate(design.inputs):
        if operation.name in design.cut:
            told.append(f"data_in_{index} takes the missing result of {operation.nodes[0]}.")
    for index, output in enumerate(design.outputs):
        if output in design.cut:
            told.append(f"data_out_{index} gives the part of {output} that a missing node would read.")
    return told


# The README of an emitted folder: its ports, its pace, the cost of each operation, and the commands to run.

_FIGURES = ("multipliers", "luts", "memory_bits", "cycles", "latency")


def readme_text(made: Top, design: Design, told: Estimates, reset_style: str = RESET_STYLES[0]) -> str:
    """The README's text."""
    totals = told.totals
    costs = "{multipliers:,} multipliers, {luts:,} LUTs of four inputs, {memory_bits:,} bits of memory"
    return Template(read_template("README.md")).substitute(
        name=escape_markdown(made.title),
        module=made.module,
        ports="\n".join(_port_rows(design, made.outermost)),
        costs=costs.format_map(totals),
        pace=_pace_sentence(totals) + _copies_sentence(made),
        reset=describe_reset("rst", reset_style),
        operations="\n".join(_operation_rows(design, made.made, told)),
        missing="".join(_missing_lines(design)),
    )


def describe_losses(accuracy: Accuracy, weights: str) -> str:
    """The last section of the README: the error that the formats cause. accuracy: a map of `building.ACCURACY_KEYS`."""
    said = []
    if accuracy["sqnr"] is not None:
        exact = accuracy["sqnr"] == "inf"
        said.append(
            "The outputs equal the model's." if exact else f"The outputs have an SQNR of {accuracy['sqnr']:.1f} dB."
        )
    if accuracy["saturated"] is not None:
        said.append(f"{accuracy['saturated']:.2%} of the rounded values do not fit their format and saturate.")
    if said:
        said.append(f"Measured on {accuracy['inputs']}{f', with {weights}' if weights else ''}.")
    if accuracy["calibrated"]:
        said.append(f"The formats are calibrated on {accuracy['calibrated']}.")
    if accuracy["problem"]:
        said.append(f"The loss is not known: {accuracy['problem']}.")
    return f"\n## What it loses\n\n{escape_markdown(' '.join(said))}\n" if said else ""


def _pace_sentence(totals: Totals) -> str:
    interval, latency = totals["interval"], totals["latency"]
    known = f", and comes out {latency} cycles after its first beat" if latency else ""
    reads = f". Its weights are read from outside in {totals['reads']} of them" if totals["reads"] else ""
    return f"A sample takes {interval} cycles once the pipeline is full{known}{reads}"


def _copies_sentence(made: Top) -> str:
    if made.around is None:
        return ""
    told = (
        f"{made.folding.copies} copies of `{made.name}.sv` take samples in turn, `{made.module}.sv` stands around them"
    )
    return f". {told}: the figures of operations below are of all copies together, and a latency is that of one"


def _port_rows(design: Design, made: Netlist) -> Iterator[str]:
    outputs = [design.operations[name] for name in design.outputs]
    for kind, operations, taps in (("in", design.inputs, made.inputs), ("out", outputs, made.outputs)):
        for index, (operation, tap) in enumerate(zip(operations, taps, strict=True)):
            yield make_row(
                f"`data_{kind}_{index}`", _port_meaning(kind, operation, design), *_stream_cells(operation.out, tap)
            )


def _port_meaning(kind: str, operation: Operation, design: Design) -> str:
    """The meaning of a port: an input or a result of the model, or a replacement for a missing node."""
    if operation.name not in design.cut:
        return operation.name
    return f"the missing result of {operation.nodes[0]}" if kind == "in" else f"{operation.name}, for a missing node"


def _stream_cells(stream: Stream, tap: Tap) -> tuple[str, str, str, str]:
    """Shape and order, format, content of a beat, beats of a sample."""
    shape = f"{'x'.join(map(str, stream.shape))}, {_order_in_words(stream)}" if stream.shape else "one number"
    beat = f"{tap.lanes} element{'s' * (tap.lanes > 1)} of {tap.bits} bits"
    return shape, f"`{stream.format}`", beat, str(stream.size // tap.lanes)


def _order_in_words(stream: Stream) -> str:
    """The order in which the elements of a sample flow, in words."""
    if stream.order is None:
        return "row-major"
    pixels = len(stream.shape) in (2, 3) and torch.equal(stream.order, image_order(stream.shape))
    return "rows, columns, channels" if pixels else "in the order of `sim/streams.json`"


def _operation_rows(design: Design, made: Netlist, told: Estimates) -> Iterator[str]:
    modules: dict[str, list[str]] = {}
    for instance in made.instances:
        modules.setdefault(instance.operation, []).append(instance.module)
    for name, operation in design.operations.items():
        used = ", ".join(f"`{module}`" for module in dict.fromkeys(modules.get(name, ())))
        sizes: Mapping[str, Any] = told.operations[name]
        figures = (_figure_text(key, sizes[key]) for key in _FIGURES)
        yield make_row(name, used, f"`{operation.out.format}`", *figures)


def _figure_text(key: str, value: int) -> str:
    """A figure as text; "" for a time that is unknown or zero."""
    return str(value) if value or key not in ("cycles", "latency") else ""


def _missing_lines(design: Design) -> Iterable[str]:
    if not design.unsupported:
        return []
    rows: Sequence[str] = [
        f"- {escape_markdown(f'{each.node} ({each.operator}): {each.why}')}\n" for each in design.unsupported
    ]
    return ["\n**Not the whole model.** Without hardware, and so cut off:\n\n", *rows]


# The shell on a bus: what a driver, a page and a clock need to know of it.


def _channels(made: Netlist, design: Design, width: int) -> list[Channel]:
    """The streams of a top module on a bus. width: bits of a beat; more if an element needs more."""
    found = list(_streams(made, design))
    width = max(width, *(8 * element_bytes(stream.format) for _, _, stream, _ in found))
    return [
        Channel(f"data_{kind}_{index}", stream.format, stream.size, tap.lanes, width)
        for kind, index, stream, tap in found
    ]


def _streams(made: Netlist, design: Design) -> Iterator[tuple[str, int, Stream, Tap]]:
    """The streams of a top module, inputs first: "in" or "out", its number among those, what flows, its port."""
    results = [design.operations[name] for name in design.outputs]
    for kind, operations, taps in (("in", design.inputs, made.inputs), ("out", results, made.outputs)):
        for index, (operation, tap) in enumerate(zip(operations, taps, strict=True)):
            yield kind, index, operation.out, tap


# The image of weights outside.


def _describe_image(made: Netlist, image: bytes) -> str:
    """The layout, one layer a line. offset, words: the first byte, and how many words there are.  bits: of a word."""
    regions = zip(made.regions, place_regions(made.regions, made.port), strict=True)
    layers = {
        each.operation: {"offset": offset, "beats": beats, "words": len(each.words), "bits": each.width}
        for each, (offset, beats) in regions
    }
    whole = {"file": IMAGE, "bytes": len(image), "crc32": f"{zlib.crc32(image):#010x}", "beat_bits": made.port}
    return _json_by_lines({**whole, **layers})


def _image_page(made: Netlist, image: bytes) -> str:
    """The part of the README about weights outside; "" without any."""
    if not image:
        return ""
    rows = [
        make_row(each.operation, f"0x{offset:x}", str(beats), str(len(each.words)), str(each.width))
        for each, (offset, beats) in zip(made.regions, place_regions(made.regions, made.port), strict=True)
    ]
    return Template(_IMAGE_PAGE).substitute(
        file=IMAGE, size=f"{len(image):,}", checksum=f"{zlib.crc32(image):#010x}", port=made.port,
        rows="\n".join(rows),
    )  # fmt: skip


_IMAGE_PAGE = """
## Weights outside

`$file` holds the weights of the layers below: $size bytes, CRC-32 $checksum. Copy it to a memory behind
`m_axi`, an AXI4 port of $port bits that only reads. Its address, `weights_base`, is a multiple of 4096, and is looked
at in the first cycle with `weights_enable`; on a bus, write it to `WEIGHTS_LOW` and `WEIGHTS_HIGH` before `CONTROL`.
`weights_aresetn` is the reset of the memory's side: without it, `rst` waits for the bursts that are under way.
`weights_error` stays high after an answer that was no OKAY. Bursts are INCR, of at most 16 beats, with the ID 0.

Each layer begins at a multiple of 4096. A word is the weights that its multipliers take in a cycle, as in a `.mem`
file: a block of weight[result, element], elements fastest, the first one lowest; first all blocks of the first results.
A beat holds as many whole words as fit, the first one lowest, or a word takes as many beats as it needs; the rest is
zero. Bytes are little-endian. `weights.json` tells the same to programs.

| layer | first byte | beats | words | bits of a word |
|---|---|---|---|---|
$rows
"""


# The simulation in an emitted folder: all streams are driven from files and compared with files.

_WORD = 32
#: The least width of a vector: Verilator uses another type up to 64 bits.
_LEAST = 96
_SOURCES = ("driver.cpp", "driver.h", "glue.cpp")
_MEMORY = "axi_memory.sv"
_COCOTB, _COCOTB_BUS = "cocotb_bench.py", "cocotb_axi.py"
#: Cycles that any design may go without a beat.
_PATIENCE = 100_000


@dataclass(frozen=True, slots=True)
class _Port:
    """A stream of the top module. word, bit: the positions of its data and of its handshake in the bench.

    channel: what it is on a bus; a beat is then TDATA, and above it TKEEP and TLAST.
    """

    kind: str
    name: str
    tap: Tap
    stream: Stream
    channel: Channel | None
    word: int
    bit: int

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return self.tap.width if self.channel is None else self.channel.width + self.channel.width // 8 + 1

    @property
    def plan(self) -> str:
        """The line that tells the driver about it."""
        beats = self.stream.size // self.tap.lanes if self.channel is None else self.channel.beats
        return f"{self.kind} {self.name} {self.word} {self.width} sim/{self.name}.hex {beats}\n"

    def beats(self, values: Tensor) -> list[int]:
        """The beats of some samples, [samples, ...]."""
        flowing = self.stream.flowing(values)
        return pack_beats(flowing, self.tap) if self.channel is None else pack_packets(flowing, self.channel)

    def connections(self) -> list[str]:
        """Its ports in the bench."""
        wires = {wire: f"{self.kind}_{wire}[{self.bit}]" for wire in ("valid", "ready")}
        if self.channel is None:
            data = {self.name: f"{self.kind}_data[{_WORD * self.word}+:{self.width}]"}
            return [f"      .{port}({wire})" for port, wire in (data | _named(self.name + "_", wires)).items()]
        at, bits, kept = _WORD * self.word, self.channel.width, self.channel.width // 8
        parts = {"data": (at, bits), "keep": (at + bits, kept), "last": (at + bits + kept, 1)}
        wires |= {part: f"{self.kind}_data[{start}+:{length}]" for part, (start, length) in parts.items()}
        return [f"      .{port}({wire})" for port, wire in _named(f"{self.channel.port}_t", wires).items()]

    @property
    def about(self) -> Mapping[str, object]:
        """The properties that turn beats into values. order: as `Stream.order`."""
        format, order = self.stream.format, self.stream.order
        return {
            "kind": self.kind,
            "lanes": self.tap.lanes if self.channel is None else self.channel.bus_lanes,
            "width": format.width,
            "spacing": format.width if self.channel is None else 8 * self.channel.element_bytes,
            "fraction_width": format.fraction_width,
            "shape": list(self.stream.shape),
            "order": None if order is None else order.tolist(),
        }


def _named(begin: str, wires: Mapping[str, str]) -> dict[str, str]:
    return {begin + name: wire for name, wire in wires.items()}


def bench_files(
    name: str,
    top: Top,
    design: Design,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    channels: Sequence[Channel] = (),
    image: bytes = b"",
) -> Mapping[str, str]:
    """The files under `sim/`: the driver, the module `bench` around the module `name`, the plan and the vectors.

    inputs, outputs: integers for each input, and the expected ones of each output, [samples, ...].  channels: the
    streams, if the module has them on a bus.  image: the weights outside.
    """
    made, folding = top.outermost, top.folding
    files = {source: _read_bench_source(source) for source in (*_SOURCES, *([_COCOTB] if channels else []))}
    files[f"test_{name}.py"] = _read_bench_source(_COCOTB_BUS if channels else _COCOTB)
    ports = list(_bench_ports(made, design, channels))
    files["bench.sv"] = _bench_module(name, ports, made, 8 * len(image) // max(made.port, 1))
    if image:
        files["bench.sv"] += "\n" + _read_bench_source(_MEMORY)
        files["weights.hex"] = beats_to_hexadecimal(image, made.port)
    for port, values in zip(ports, (*inputs, *outputs), strict=True):
        files[f"{port.name}.hex"] = words_to_hexadecimal(port.beats(values), port.width)
    patience = _PATIENCE + 2 * (folding.reads + sum(fold.cycles for fold in folding.folds.values()))
    files["plan"] = f"patience {patience}\n" + "".join(port.plan for port in ports)
    files["streams.json"] = _json_by_lines({port.name: port.about for port in ports})
    names = [each.operation for each in top.made.instances if each.name == f"{each.operation}_i"]
    files["operations.json"] = json.dumps(names) + "\n"  # of which a waveform tells what they do
    return files


def _read_bench_source(name: str) -> str:
    return (rtl_folder() / "simulation" / name).read_text(encoding="utf-8")


def _json_by_lines(entries: Mapping[str, object]) -> str:
    """JSON with one line for each entry."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()) + "\n}\n"


def pack_beats(values: Tensor, tap: Tap) -> list[int]:
    """The beats of some samples, in the order in which they flow."""
    return pack_rows(values.reshape(-1, tap.lanes), tap.bits)


def pack_packets(values: Tensor, channel: Channel) -> list[int]:
    """The beats of a packet for each sample: TDATA, and above it TKEEP and TLAST."""
    lanes, count, kept = channel.bus_lanes, channel.beats, channel.width // 8
    padded = torch.nn.functional.pad(values.reshape(-1, channel.size), (0, count * lanes - channel.size))
    words = pack_rows(padded.reshape(-1, lanes), 8 * channel.element_bytes)
    whole, rest = (1 << kept) - 1, (channel.size - (count - 1) * lanes) * channel.element_bytes
    ends = [whole] * (count - 1) + [1 << kept | (1 << rest) - 1]
    return [word | ends[index % count] << channel.width for index, word in enumerate(words)]


def _bench_ports(made: Netlist, design: Design, channels: Sequence[Channel]) -> Iterator[_Port]:
    on_bus = {channel.name: channel for channel in channels}
    word = 0
    for kind, index, stream, tap in _streams(made, design):
        word = word if index else 0  # inputs and outputs have a vector each
        name = f"data_{kind}_{index}"
        port = _Port(kind, name, tap, stream, on_bus.get(name), word, index)
        yield port
        word += (port.width + _WORD - 1) // _WORD


def _bench_module(name: str, ports: Sequence[_Port], made: Netlist, beats: int) -> str:
    """The module. beats: of the memory with weights, if there is one."""
    port = made.port
    on_bus = ports[0].channel is not None
    wires = ["      .aclk(clk)", "      .aresetn(!rst)"] if on_bus else ["      .clk(clk)", "      .rst(rst)"]
    if on_bus:
        wires += [f"      .s_axi_{wire}({'0' if way == 'input' else ''})" for way, wire, _ in LITE_PORTS]
    given = {"weights_aresetn": "started", "weights_enable": "1'b1", "weights_base": _BASE}
    outside = [wire for _, wire, _ in (outside_ports(port) if port else [])]
    wires += [f"      .{wire}({given.get(wire, wire)})" for wire in outside if not on_bus or wire.startswith("m_axi")]
    listed = ",\n".join([*wires, *(line for port in ports for line in port.connections())])
    return f"""/// All streams of {name} side by side, as 32-bit words; made for simulation/driver.cpp.
module bench (
    input  logic clk,
    input  logic rst,
    input  logic [{_count_data_bits(ports, "in") - 1}:0] in_data,
    input  logic [{_count_flags(ports, "in") - 1}:0] in_valid,
    output logic [{_count_flags(ports, "in") - 1}:0] in_ready,
    output logic [{_count_data_bits(ports, "out") - 1}:0] out_data,
    output logic [{_count_flags(ports, "out") - 1}:0] out_valid,
    input  logic [{_count_flags(ports, "out") - 1}:0] out_ready
);
{_memory_instance(made, beats, "!rst" if on_bus else "started")}  {name} {_bench_parameters(on_bus, port)}dut (
{listed}
  );
endmodule
"""


#: Where the image stands in a simulation.
_BASE = "64'h12345000"


def _bench_parameters(on_bus: bool, port: int) -> str:
    if not on_bus:
        return ""
    return f"#(.ENABLED(1'b1), .WEIGHTS_BASE({_BASE})) " if port else "#(.ENABLED(1'b1)) "


def _memory_instance(made: Netlist, beats: int, reset: str) -> str:
    """The memory with weights, and its wires; "" without one. reset: `started` lets bursts be under way in a reset."""
    port = made.port
    if not port:
        return ""
    declared = "".join(
        f"  logic [{bits - 1}:0] {wire};\n" for _, wire, bits in outside_ports(port) if wire.startswith("m_axi")
    )
    inner = (
        "araddr",
        "arlen",
        "arsize",
        "arburst",
        "arvalid",
        "arready",
        "rdata",
        "rresp",
        "rlast",
        "rvalid",
        "rready",
    )
    connected = "".join(f",\n      .{wire}(m_axi_{wire})" for wire in inner)
    return f"""{declared}  logic started, weights_error;
  initial started = 1'b0;
  always @(posedge clk) if (!rst) started <= 1'b1;
  assign m_axi_rid = '0;
  axi_memory #(.BUS_WIDTH({port}), .WORDS({beats}), .BASE({_BASE}), .PACE({round(1024 * made.pace)})) outside (
      .clk(clk),
      .aresetn({reset}){connected}
  );
"""


def _count_data_bits(ports: Sequence[_Port], kind: str) -> int:
    return max(_LEAST, sum((port.width + _WORD - 1) // _WORD * _WORD for port in ports if port.kind == kind))


def _count_flags(ports: Sequence[_Port], kind: str) -> int:
    return max(_LEAST, sum(port.kind == kind for port in ports))
