"""The text of a top module, and where in it every operation stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mase_server.hardware.wiring import Instance, Netlist, Tap, Wide
from mase_server.visible import reveal


@dataclass(frozen=True, slots=True)
class Text:
    """SystemVerilog, and the lines (from 1, both included) of each operation's instances."""

    text: str
    lines: Mapping[str, tuple[tuple[int, int], ...]]


def top_text(name: str, made: Netlist, about: Iterable[str] = ()) -> Text:
    """The module `name`. about: lines of the comment above it."""
    # A name may hold anything, also the end of a line, and what stands behind that would be no comment.
    lines = [f"/// {reveal(each)}" for each in about]
    lines += [f"module {name} (", *_ports(made), ");"]
    lines += _declarations(made)
    found: dict[str, list[tuple[int, int]]] = {}
    for instance in made.instances:
        lines.append("")
        first = len(lines) + 1
        lines += _instance(instance)
        found.setdefault(instance.operation, []).append((first, len(lines)))
    lines += ["", *_outputs(made), "endmodule"]
    return Text("\n".join(lines) + "\n", {operation: tuple(places) for operation, places in found.items()})


def _ports(made: Netlist) -> list[str]:
    ports = [("input ", "clk", 1), ("input ", "rst", 1)]
    for index, tap in enumerate(made.inputs):
        ports += _stream_ports(f"data_in_{index}", tap, "input ", "output")
    for index, tap in enumerate(made.outputs):
        ports += _stream_ports(f"data_out_{index}", tap, "output", "input ")
    ranges = [_range(width) for _, _, width in ports]
    column = max(map(len, ranges))
    texts = [f"    {way} logic {bits:>{column}} {name}" for (way, name, _), bits in zip(ports, ranges, strict=True)]
    return [f"{text}," for text in texts[:-1]] + texts[-1:]


def _stream_ports(name: str, tap: Tap, forth: str, back: str) -> list[tuple[str, str, int]]:
    return [(forth, name, tap.width), (forth, f"{name}_valid", 1), (back, f"{name}_ready", 1)]


def _range(width: int) -> str:
    return f"[{width - 1}:0]" if width > 1 else ""


def _declarations(made: Netlist) -> Iterator[str]:
    dropped = {tap.data for tap in made.dropped}
    for wires in made.wires:
        bits = _range(wires.width)
        yield f"  logic {bits}{' ' if bits else ''}{wires.name};"
        yield f"  logic {wires.name}_valid{'' if wires.name in dropped else f', {wires.name}_ready'};"
    for name, length in made.handshakes:
        yield f"  logic {_range(length)} {name}_valid, {name}_ready;"


def _instance(instance: Instance) -> list[str]:
    parameters = [f".{name}({_literal(value)})" for name, value in instance.parameters.items()]
    ports = [f".{name}({wire})" for name, wire in instance.ports.items()]
    return [f"  {instance.module} #(", *_listed(parameters), f"  ) {instance.name} (", *_listed(ports), "  );"]


def _literal(value: int | str | Wide) -> str:
    if isinstance(value, Wide):
        return f"64'd{value.value}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _listed(items: list[str]) -> list[str]:
    return [f"      {item}," for item in items[:-1]] + [f"      {item}" for item in items[-1:]]


def _outputs(made: Netlist) -> Iterator[str]:
    for tap in made.dropped:
        yield f"  logic unused_{tap.data};"
        yield f"  assign unused_{tap.data} = &{{1'b0, {tap.data}, {tap.valid}}};"
    for index, tap in enumerate(made.outputs):
        yield f"  assign data_out_{index} = {tap.data};"
        yield f"  assign data_out_{index}_valid = {tap.valid};"
        yield f"  assign {tap.ready} = data_out_{index}_ready;"
