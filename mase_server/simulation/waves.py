"""Waveforms of a simulation: which cycles they show, and from them what each operation does in every cycle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.simulation.building import SimulationError

if TYPE_CHECKING:
    from mase_server.protocol.records import ActivityRecord, WaveRecord

#: The operations of an emitted folder, in the order of the data.
_OPERATIONS = Path("sim") / "operations.json"
#: The file of a waveform in an emitted folder, also of `make wave`.
WAVE = Path("sim") / "wave.vcd"
#: Cycles of a waveform if nobody asked for a number, and at most for one whole sample: a large design writes ten
#: kilobytes a cycle.
_CYCLES, _MOST_CYCLES = 1000, 10_000
#: What an operation does in a cycle, in the order of the counts in a record. It works if its multipliers take factors,
#: or without multipliers if a beat moves. Inside, results are on their way, or something else than multipliers counts.
STATES = ("works", "waits for multipliers", "waits for room", "waits for data", "goes on inside")
#: Parts of the time in a record, and so columns of a picture.
_COLUMNS = 100
#: The instance of `fixed_mac` wherever there is one: its `valid` is high in the cycles in which factors arrive.
_MULTIPLIERS = "mac"
#: The instances of copies but the first, in a design that has several.
_OTHER_COPY = re.compile(r"copy_[1-9]\d*_i")


@dataclass(frozen=True, slots=True)
class Wave:
    """A waveform to write. file: a .vcd.  begin: its first cycle; None for the first mismatch, the place where the
    design stands still, else the first result.  cycles: its length; None for whole samples, if that is not too long."""

    file: Path
    begin: int | None = None
    cycles: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Cycles of a simulation, from the end of reset."""

    begin: int
    cycles: int


@dataclass(slots=True)
class _Handshake:
    """A stream of an operation. The codes of its wires in the file."""

    is_input: bool
    valid: str = ""
    ready: str = ""


@dataclass(slots=True)
class _Wires:
    """The wires that tell what an operation does. multiplies: high when its own multipliers take factors.

    request, grant: of the multipliers that it uses in turn with others.
    """

    streams: dict[str, _Handshake]
    multiplies: list[str]
    request: str = ""
    grant: str = ""

    @property
    def codes(self) -> set[str]:
        """All of them."""
        own = {code for each in self.streams.values() for code in (each.valid, each.ready)}
        return (own | {self.request, self.grant, *self.multiplies}) - {""}

    def state(self, high: Mapping[str, bool]) -> int:
        """The index in STATES of what it does in a cycle with these wires."""
        if self.request and high[self.request] and not high[self.grant]:
            return 1
        streams = self.streams.values()
        ends = [(each.is_input, high.get(each.valid, False), high.get(each.ready, False)) for each in streams]
        if self.request:
            works = high[self.request]
        elif self.multiplies:
            works = any(high[code] for code in self.multiplies)
        else:
            works = any(valid and ready for _, valid, ready in ends)
        if works:
            return 0
        if any(valid and not ready for is_input, valid, ready in ends if not is_input):
            return 2
        # A join of several streams is ready for none of them before all are there.
        given = [(valid, ready) for is_input, valid, ready in ends if is_input]
        return 3 if any(not valid and (ready or len(given) > 1) for valid, ready in given) else 4


def describe_wave(folder: Path, file: Path, window: Window) -> WaveRecord:
    """The activity of an emitted folder's operations in the cycles of a waveform: a `WaveRecord`, and its picture.

    SimulationError if the folder is of an older version, or the waveform has no such design.
    """
    try:
        names: list[str] = json.loads((folder / _OPERATIONS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SimulationError(f"{folder} has no {_OPERATIONS} ({error}): emit it again for a waveform") from None
    with file.open(encoding="utf-8", errors="replace") as lines:
        wires = _find_wires(lines, names)
        length = -(-max(window.cycles, 1) // _COLUMNS)
        counts: dict[str, list[list[int]]] = {name: [] for name in wires}
        cycles = 0
        for high in _iterate_cycles(lines, {code for each in wires.values() for code in each.codes}):
            for name, each in wires.items():
                if cycles % length == 0:
                    counts[name].append([0] * len(STATES))
                counts[name][-1][each.state(high)] += 1
            cycles += 1
    operations = [_record_activity(name, columns) for name, columns in counts.items()]
    picture = file.with_name(f"{file.stem}.activity.svg")  # a person may have a drawing under the shorter name
    told: WaveRecord = {
        "file": str(file), "picture": str(picture), "begin": window.begin, "cycles": cycles, "column": length,
        "operations": operations,
    }  # fmt: skip
    top = Path((folder / "files.f").read_text(encoding="utf-8").split()[-1]).stem
    picture.write_text(draw_activity(told, top), encoding="utf-8")
    return told


def _record_activity(name: str, columns: list[list[int]]) -> ActivityRecord:
    total = [sum(each) for each in zip(*columns, strict=True)] or [0] * len(STATES)
    return {
        "name": name, "works": total[0], "waits_for_multipliers": total[1], "waits_for_room": total[2],
        "waits_for_data": total[3], "inside": total[4], "columns": columns,
    }  # fmt: skip


def _find_wires(lines: Iterable[str], names: Sequence[str]) -> dict[str, _Wires]:
    """The wires of each operation, from the head of a file (IEEE 1800, 21.7); the rest of it is left to be read."""
    found = {name: _Wires({}, []) for name in names}
    own = {f"{name}_i": name for name in names}
    scopes: list[str] = []
    for line in lines:
        match line.split():
            case ["$scope", _, scope, *_]:
                scopes.append(scope)
            case ["$upscope", *_]:
                scopes.pop()
            case ["$enddefinitions", *_]:
                return {name: wires for name, wires in found.items() if wires.streams}
            case ["$var", _, "1", code, wire, *_]:
                place = next((index for index, scope in enumerate(scopes) if scope in own), None)
                # Copies of a design do the same in turn: the first one stands for all.
                if place is not None and not any(map(_OTHER_COPY.fullmatch, scopes[:place])):
                    _note_wire(found[own[scopes[place]]], scopes[place + 1 :], wire, code)
    raise SimulationError("the waveform ends in its head; is the disk full?")


def _note_wire(wires: _Wires, inside: Sequence[str], wire: str, code: str) -> None:
    """Note a wire of one bit, of the instance itself or inside of it."""
    if inside:
        if inside[-1] == _MULTIPLIERS and wire == "valid":
            wires.multiplies.append(code)
        return
    stream, _, half = wire.rpartition("_")
    if wire == "engine_request":
        wires.request = code
    elif wire == "engine_grant":
        wires.grant = code
    elif half in ("valid", "ready") and stream.startswith("data_"):
        setattr(wires.streams.setdefault(stream, _Handshake(stream.startswith("data_in"))), half, code)


def _iterate_cycles(lines: Iterable[str], codes: set[str]) -> Iterator[Mapping[str, bool]]:
    """The wires in every cycle, as they are before the clock rises: at the even times of `rtl/simulation/driver.h`."""
    high = dict.fromkeys(codes, False)
    settles = False
    for line in lines:
        first, code = line[:1], line[1:].rstrip()
        if first in "01" and code in high:
            high[code] = first == "1"
        elif first == "#":
            if settles:
                yield high
            settles = int(code) % 2 == 0
    if settles:
        yield high


# The picture: a row for each operation, the time from left to right.

_COLOURS = ("#2f7d4f", "#c9853a", "#b5485d", "#d5d9df", "#a9cdb6")
_ROW, _LEFT, _WIDTH, _TOP = 26, 180, 760, 58


def draw_activity(wave: WaveRecord, title: str) -> str:
    """An SVG picture of what each operation does over time."""
    height = _TOP + _ROW * len(wave["operations"]) + 34
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 80}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#30363d" shape-rendering="crispEdges">',
        f'<rect width="100%" height="100%" fill="#ffffff"/><text x="12" y="22" font-size="15">{escape(title)}</text>',
    ]
    for index, (state, colour) in enumerate(zip(STATES, _COLOURS, strict=True)):
        x = _LEFT + index * 150
        text.append(
            f'<rect x="{x}" y="32" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="42">{state}</text>'
        )
    for row, operation in enumerate(wave["operations"]):
        text += _draw_row(operation, wave["column"], wave["cycles"], _TOP + row * _ROW)
    end = wave["begin"] + wave["cycles"]
    for x, anchor, cycle in ((_LEFT, "start", wave["begin"]), (_LEFT + _WIDTH, "end", end)):
        text.append(f'<text x="{x}" y="{height - 12}" text-anchor="{anchor}">cycle {cycle:,}</text>')
    return "\n".join([*text, "</svg>\n"])


def _draw_row(operation: ActivityRecord, column: int, cycles: int, y: int) -> Iterator[str]:
    """The name of an operation, its columns, and the share of the cycles in which it works."""
    yield f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(operation["name"][-24:])}</text>'
    scale = _WIDTH / max(cycles, 1)
    for index, counts in enumerate(operation["columns"]):
        x, width, bottom = _LEFT + index * column * scale, sum(counts) * scale, y + _ROW - 6.0
        for count, colour in zip(counts, _COLOURS, strict=True):
            height = (_ROW - 6) * count / sum(counts)
            bottom -= height
            if count:
                yield f'<rect x="{x:.2f}" y="{bottom:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"/>'
    yield f'<text x="{_LEFT + _WIDTH + 8}" y="{y + 16}">{100 * operation["works"] / max(cycles, 1):.0f} %</text>'


def choose_window(wave: Wave, marks: Mapping[str, int | None], pace: float | None) -> Window:
    """The cycles of a waveform. marks: "mismatch" and "stop", the cycles of the first of them, and "result", that of
    the first result's last beat; None for what did not happen.  pace: cycles of a sample."""
    cycles = wave.cycles or _CYCLES
    if wave.begin is not None:
        return Window(wave.begin, cycles)
    for mark in ("mismatch", "stop"):
        if (cycle := marks[mark]) is not None:
            return Window(max(0, cycle - cycles * 3 // 4), cycles)
    if pace is None or (begin := marks["result"]) is None:
        return Window(0, cycles)
    samples = int(cycles // pace) or (1 if wave.cycles is None and pace <= _MOST_CYCLES else 0)
    return Window(begin + 1, round(samples * pace) if samples else cycles)
