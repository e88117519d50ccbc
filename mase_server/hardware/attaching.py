"""Files that attach a design on a bus to a system: its page, a driver, constraints, IP-XACT, LiteX, projects."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from mase_server.building import RESET_STYLES, Part
from mase_server.hardware.verilog import (
    FIRST_STREAM,
    REGISTERS,
    STREAM_REGISTERS,
    STREAM_STEP,
    Channel,
    Outside,
    Register,
    shell_ports,
)

_TEMPLATES = Path(__file__).parent / "templates"


def read_template(name: str) -> str:
    """The text of a file in the folder `templates`."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def make_row(*cells: str) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def attach_to_bus(
    top: str,
    channels: Sequence[Channel],
    checksum: int,
    outside: Outside,
    sources: Sequence[str],
    memories: Iterable[str],
) -> dict[str, str]:
    """The files that attach a shell: a driver for Linux, IP-XACT, and a core for LiteX.

    sources, memories: the files of the design, as paths in its folder.
    """
    return {
        "uio.py": _uio_text(top, channels, checksum, outside),
        "component.xml": _describe_component(top, channels, outside, (*sources, *memories)),
        "litex_core.py": _litex_text(top, channels, outside),
    }


# The map of registers, in words and for a driver.


def register_rows(registers: Iterable[Register]) -> str:
    """The rows of a table of registers, in Markdown."""
    return "".join(
        make_row(f"0x{each.offset:02x}", f"`{each.name}`", each.access, each.meaning) + "\n" for each in registers
    )


def describe_reset(port: str, style: str) -> str:
    """How the reset of a port acts, as a part of a sentence. style: one of RESET_STYLES."""
    if style == RESET_STYLES[0]:
        return f"`{port}` is synchronous"
    return f"`{port}` is asynchronous, and has to end in step with the clock (behind a synchroniser)"


def bus_page(top: str, channels: Sequence[Channel], reset_style: str = RESET_STYLES[0]) -> str:
    """The part of the README about the shell; "" without one."""
    if not channels:
        return ""
    rows = [
        make_row(
            f"`{each.port}`", f"`{each.name}`", f"0x{FIRST_STREAM + STREAM_STEP * number:02x}",
            str(each.size * each.element_bytes), f"{each.size} of {each.element_bytes}", str(each.beats),
        )
        for number, each in enumerate(channels)
    ]  # fmt: skip
    return Template(read_template("BUS.md")).substitute(
        top=top,
        reset=describe_reset("aresetn", reset_style),
        width=channels[0].width,
        streams="\n".join(rows),
        registers=register_rows(REGISTERS),
        stream_registers=register_rows(STREAM_REGISTERS),
    )


def _uio_text(top: str, channels: Sequence[Channel], checksum: int, outside: Outside) -> str:
    """A program that reads the registers of the shell."""
    streams = {each.port: FIRST_STREAM + STREAM_STEP * number for number, each in enumerate(channels)}
    return Template(read_template("uio.txt")).substitute(
        top=top,
        registers=_register_entries(REGISTERS),
        stream_registers=_register_entries(STREAM_REGISTERS),
        streams="".join(f"    {port!r}: 0x{offset:02x},\n" for port, offset in streams.items()),
        checksum=f"0x{checksum:08x}",
        image=f"0x{outside.checksum:08x}",
    )


def _register_entries(registers: Iterable[Register]) -> str:
    """Registers as entries of a dictionary in Python."""
    return "".join(f"    {each.name!r}: 0x{each.offset:02x},  # {each.meaning}\n" for each in registers)


# IP-XACT of 2009 (IEEE 1685), which Vivado reads; the names of buses are those of its libraries.

_SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
_ACCESS = {"r": "read-only", "rw": "read-write"}


def _describe_component(top: str, channels: Sequence[Channel], outside: Outside, files: Sequence[str]) -> str:
    """The shell as a component: its buses, registers, ports and files."""
    masters = ["m_axi"] if outside.port else []
    clocked = ":".join(["s_axi", *(each.port for each in channels), *masters])
    associated = {"ASSOCIATED_BUSIF": clocked, "ASSOCIATED_RESET": "aresetn"}
    view: _Content = [
        ("name", "sources"), ("envIdentifier", "verilogSource::"), ("language", "systemVerilog"), ("modelName", top),
        ("fileSetRef", [("localName", "sources")]),
    ]  # fmt: skip
    ports = shell_ports(channels, outside)
    buses: list[_Content] = [
        _describe_bus("s_axi", "aximm", _wires("s_axi", ports), {"PROTOCOL": "AXI4LITE"}, memory="s_axi"),
        *(_describe_bus(each.port, "axis", _wires(each.port, ports), is_slave=each.is_input) for each in channels),
        *(_describe_bus(each, "aximm", _wires(each, ports), {"PROTOCOL": "AXI4"}, is_slave=False) for each in masters),
        _describe_bus("aclk", "clock", {"CLK": "aclk"}, associated),
        _describe_bus("aresetn", "reset", {"RST": "aresetn"}, {"POLARITY": "ACTIVE_LOW"}),
    ]
    component: _Content = [
        *{"vendor": "mase", "library": "mase", "name": top, "version": "1.0"}.items(),
        ("busInterfaces", [("busInterface", bus) for bus in buses]),
        ("memoryMaps", [("memoryMap", [("name", "s_axi"), ("addressBlock", _describe_registers(channels))])]),
        ("model", [
            ("views", [("view", view)]),
            ("ports", [("port", _describe_port(*each)) for each in ports]),
            ("modelParameters", [("modelParameter", [("name", "ENABLED"), ("value", "0")])]),
        ]),
        ("fileSets", [("fileSet", [("name", "sources"), *(("file", _describe_file(path)) for path in files)])]),
        ("description", "A model in hardware: a packet of an input is a sample, one of an output its result."),
    ]  # fmt: skip
    ElementTree.register_namespace("spirit", _SPIRIT)
    root = _make_element("component", component)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


#: The content of an element: a text, its attributes, or elements with their names.
_Content = str | Mapping[str, str] | Sequence[tuple[str, "_Content"]]


def _make_element(name: str, content: _Content) -> ElementTree.Element:
    made = ElementTree.Element(f"{{{_SPIRIT}}}{name}")
    if isinstance(content, str):
        made.text = content
    elif isinstance(content, Mapping):
        made.attrib.update({f"{{{_SPIRIT}}}{key}": value for key, value in content.items()})
    else:
        made.extend(_make_element(*each) for each in content)
    return made


def _wires(bus: str, ports: Sequence[tuple[str, str, int]]) -> dict[str, str]:
    """The wires of a bus, by its own names for them -> the ports."""
    names = [name for _, name, _ in ports if name.startswith(f"{bus}_")]
    return {name.removeprefix(f"{bus}_").upper(): name for name in names}


def _describe_bus(
    name: str,
    kind: str,
    wires: Mapping[str, str],
    parameters: Mapping[str, str] | None = None,
    *,
    is_slave: bool = True,
    memory: str = "",
) -> _Content:
    """A bus. kind: `aximm`, `axis`, `clock` or `reset`.  wires: its name for each -> the port."""
    library = "interface" if kind.startswith("axi") else "signal"
    types = {"vendor": "xilinx.com", "library": library, "name": kind, "version": "1.0"}
    maps: _Content = [
        ("portMap", [("logicalPort", [("name", wire)]), ("physicalPort", [("name", port)])])
        for wire, port in wires.items()
    ]
    told: _Content = [
        ("parameter", [("name", key), ("value", value)]) for key, value in (parameters or {}).items()
    ]  # fmt: skip
    return [
        ("name", name),
        ("busType", types),
        ("abstractionType", {**types, "name": f"{kind}_rtl"}),
        ("slave" if is_slave else "master", [("memoryMapRef", {"memoryMapRef": memory})] if memory else []),
        ("portMaps", maps),
        *([("parameters", told)] if told else []),
    ]


def _describe_port(way: str, name: str, bits: int) -> _Content:
    vector = [("vector", [("left", str(bits - 1)), ("right", "0")])] if bits > 1 else []
    return [("name", name), ("wire", [("direction", way.removesuffix("put")), *vector])]


def _describe_file(path: str) -> _Content:
    kind = ("fileType", "systemVerilogSource") if path.endswith(".sv") else ("userFileType", "mem")
    return [("name", path), kind]


def _describe_registers(channels: Sequence[Channel]) -> _Content:
    registers: list[_Content] = [
        [("name", name), ("description", each.meaning), ("addressOffset", f"0x{offset:x}"), ("size", "32"),
         ("volatile", "true"), ("access", _ACCESS[each.access])]
        for name, offset, each in _iterate_registers(channels)
    ]  # fmt: skip
    return [
        *{"name": "registers", "baseAddress": "0", "range": "4096", "width": "32", "usage": "register"}.items(),
        *(("register", each) for each in registers),
    ]


def _iterate_registers(channels: Sequence[Channel]) -> Iterator[tuple[str, int, Register]]:
    """Every register with its name and its offset."""
    yield from ((each.name, each.offset, each) for each in REGISTERS)
    for number, channel in enumerate(channels):
        start = FIRST_STREAM + STREAM_STEP * number
        yield from ((f"{channel.port}_{each.name}".upper(), start + each.offset, each) for each in STREAM_REGISTERS)


# LiteX, and the projects of vendors.


def _litex_text(top: str, channels: Sequence[Channel], outside: Outside) -> str:
    """A core for LiteX with the streams and registers of the shell."""
    streams = "".join(
        f"        self.{each.port} = AXIStreamInterface(data_width={each.width}, keep_width={each.width // 8})\n"
        for each in channels
    )
    if outside.port:
        streams += f"        self.m_axi = AXIInterface(data_width={outside.port}, address_width=64, id_width=1)\n"
    ports = [
        f"            {way[0]}_{name}={_litex_signal(name)},\n"
        for way, name, _ in shell_ports(channels, outside)
        if name not in ("aclk", "aresetn")
    ]
    return Template(read_template("litex.txt")).substitute(top=top, streams=streams, ports="".join(ports))


def _litex_signal(port: str) -> str:
    """`self.s_axi.aw.addr` for s_axi_awaddr, `self.s_axis_0.data` for s_axis_0_tdata."""
    bus, _, wire = port.rpartition("_")
    if not bus.endswith("_axi"):
        return f"self.{bus}.{wire[1:]}"
    channel = next(each for each in ("aw", "ar", "w", "b", "r") if wire.startswith(each))
    wide = "[:12]" if bus == "s_axi" and wire.endswith("addr") else ""
    return f"self.{bus}.{channel}.{wire.removeprefix(channel)}{wide}"


#: The beginning of a part's name -> what its tools call a file of constraints.
_CONSTRAINTS = {"ecp5": "lpf", "ice40": "pcf", "xc": "xdc", "zu": "xdc"}
#: The same -> the script that makes a project of its vendor.
_PROJECTS = {"xc": "vivado", "zu": "vivado", "5c": "quartus"}
#: Parts of usual boards, as their vendor orders them: in a package, with a grade of speed.
_ORDERED = {
    "xc7z020": "xc7z020clg400-1", "xc7a100t": "xc7a100tcsg324-1", "zu7ev": "xczu7ev-ffvc1156-2-e",
    "5csea5": "5CSEMA5F31C6",
}  # fmt: skip


def attach_to_part(top: str, part: Part, clock: str, sources: Sequence[str], memories: Iterable[str]) -> dict[str, str]:
    """The constraints that tell the tools of a part the clock, and the script of a project where its vendor has one.

    The constraints are SDC for a part of a project's own.  sources, memories: as for `attach_to_bus`.
    """
    kind = _find_by_beginning(part, _CONSTRAINTS) or "sdc"
    megahertz = f"{part.clock / 1e6:g}"
    lines = {"lpf": f'FREQUENCY PORT "{clock}" {megahertz} MHZ;', "pcf": f"set_frequency {clock} {megahertz}"}
    period = f"create_clock -name {clock} -period {1e9 / part.clock:.3f} [get_ports {clock}]"
    told = f"# The clock that estimates for {part.name} are made at; pins belong to the board.\n"
    files = {f"{top}.{kind}": f"{told}{lines.get(kind, period)}\n"}
    if vendor := _find_by_beginning(part, _PROJECTS):
        files[f"{vendor}.tcl"] = Template(read_template(f"{vendor}.txt")).substitute(
            top=top, clock=clock, part=part.name, device=_ORDERED.get(part.name, ""), constraints=f"{top}.{kind}",
            sources="".join(f"    {path}\n" for path in sources),
            memories="".join(f"    {path}\n" for path in memories),
        )  # fmt: skip
    return files


def _find_by_beginning(part: Part, table: Mapping[str, str]) -> str:
    return next((value for begin, value in table.items() if part.name.startswith(begin)), "")
