"""`simulate`: run the simulation of an emitted folder, compare the results, and read and write its files."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.simulation.building import Progress, SimulationError, Sources, build_program, find_tools, run_program
from mase_server.simulation.waves import Wave, Window, choose_window, describe_wave

if TYPE_CHECKING:
    from mase_server.protocol.records import FirstMismatch, SimulationRecord, WaveRecord


def ignore_progress(message: str, fraction: float | None) -> None:
    """Ignore a progress report."""


async def simulate(
    folder: Path,
    *,
    cache: Path,
    stall: int = 0,
    late: bool = False,
    reset: int | None = None,
    seed: int = 1,
    limit: float | None = 600.0,
    progress: Progress = ignore_progress,
    wave: Wave | None = None,
) -> SimulationRecord:
    """Build and run an emitted folder, and compare every integer: a map of SIMULATION_KEYS.

    cache: the folder of programs, keyed by the content of the sources; new weights or vectors need no new program.
    stall: both sides pause in this percentage of the cycles.  late: sinks wait for valid.  reset: at this cycle, in
    flight.  limit: seconds in all, None for no limit.  progress: receives reports.  wave: a waveform to write, and a
    picture beside it, by a second run; if it cannot be written, "log" says why.  Other errors are in "log", with status
    "failed"; cancelling ends all programs.
    """
    # The second tells the memory with weights, where there is one.
    options = ["--stall", str(stall), f"+stall={stall}", "--seed", str(seed)]
    options += ["--late"] if late else []
    options += [] if reset is None else ["--reset", str(reset)]
    try:
        async with asyncio.timeout(limit):
            return await _simulate_folder(folder, cache, options, progress, wave)
    except SimulationError as error:
        return _failed_simulation(folder, str(error))
    except TimeoutError:
        return _failed_simulation(folder, f"the simulation did not end within {limit} s; use fewer vectors")


async def _simulate_folder(
    folder: Path, cache: Path, options: list[str], progress: Progress, wave: Wave | None
) -> SimulationRecord:
    begin = time.perf_counter()
    known = await asyncio.to_thread(read_streams, folder)
    sources, tools = _find_sources(folder), await find_tools()
    made = await build_program(sources, tools, cache, progress)
    built = time.perf_counter()
    progress("running", None)
    told = await drive_program(made, folder, options, lambda share: progress("running", share))
    if "--reset" in options and told.reset is None:
        raise SimulationError(f"the simulation ended after {told.cycles} cycles, before the reset: reset earlier")
    ran = time.perf_counter()
    outputs = [stream for stream in known if stream.kind == "out"]
    record = await asyncio.to_thread(
        _describe_simulation, folder, outputs, told, {"build": built - begin, "run": ran - built}
    )
    if wave is None:
        return record
    window = choose_window(wave, told.marks, record["cycles_per_vector"])
    try:
        made = await build_program(replace(sources, wave=True), tools, cache, progress)
        found = await _record_wave(made, folder, options, progress, wave.file.absolute(), window)
    except SimulationError as error:
        # The comparison has succeeded without it.
        return {**record, "log": "\n".join(filter(None, (record["log"], f"no waveform: {error}")))}
    return {**record, "wave": found}


async def _record_wave(
    made: Path, folder: Path, options: list[str], progress: Progress, file: Path, window: Window
) -> WaveRecord:
    """Write the waveform of these cycles and its picture. The same options give the same run again."""
    progress("recording the waveform", None)
    asked = ["--wave", str(file), "--wave-from", str(window.begin), "--wave-cycles", str(window.cycles)]
    await drive_program(made, folder, [*options, *asked], lambda share: progress("recording the waveform", share))
    return await asyncio.to_thread(describe_wave, folder, file, window)


def _find_sources(folder: Path) -> Sources:
    try:
        listed = (folder / "files.f").read_text(encoding="utf-8").split()
    except OSError as error:
        raise SimulationError(f"{folder} was not emitted by mase-server: {error}") from None
    return Sources([*(folder / name for name in listed), folder / "sim" / "bench.sv"], folder / "sim")


def _describe_simulation(
    folder: Path, outputs: list[Stream], told: Told, seconds: dict[str, float]
) -> SimulationRecord:
    vectors = min(each.total // stream.beats for each, stream in zip(told.outputs, outputs, strict=True))
    wrong = find_differences(folder, outputs)
    return {
        "status": told.status,
        "vectors": vectors,
        "mismatches": wrong.count,
        "cycles_per_vector": told.cycles_per_vector(vectors),
        "latency": told.latency,
        "cycles": told.cycles,
        "first": None if wrong.first is None else wrong.first.to_wire(),
        "folder": str(folder.absolute()),
        "seconds": seconds,
        "log": _describe_complaints(told),
        "wave": None,
    }


def _describe_complaints(told: Told) -> str:
    """The faults other than wrong integers."""
    found = []
    for each in told.outputs:
        if each.moved < each.total:
            found.append(f"{each.name}: {each.moved} of {each.total} beats came")
        if each.changed:
            found.append(f"{each.name}: {each.changed} beats were withdrawn or altered while they waited")
        if each.surplus:
            found.append(f"{each.name}: {each.surplus} beats too many")
    return "\n".join(found)


def _failed_simulation(folder: Path, log: str) -> SimulationRecord:
    return {
        "status": "failed", "vectors": 0, "mismatches": 0, "cycles": 0,
        "cycles_per_vector": None, "latency": None, "first": None,
        "folder": str(folder.absolute()), "seconds": {"build": 0.0, "run": 0.0}, "log": log, "wave": None,
    }  # fmt: skip


# Differences between the produced and the expected integers.


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element. vector: the number of its sample, from 0.  element: its row-major index in the sample."""

    output: str
    vector: int
    element: int
    expected: int
    got: int

    def to_wire(self) -> FirstMismatch:
        """As a map."""
        return {
            "output": self.output, "vector": self.vector, "element": self.element,
            "expected": self.expected, "got": self.got,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences. count: elements that arrived and are wrong.  first: None if all are right."""

    count: int
    first: Mismatch | None


def find_differences(folder: Path, outputs: Iterable[Stream]) -> Differences:
    """Compare all elements of the last run with the expected ones."""
    count, first = 0, None
    for stream in outputs:
        wanted, came = stream.expected(folder), stream.got(folder)
        if came == wanted[: len(came)]:
            continue
        pairs = zip(stream.elements(wanted), stream.elements(came), strict=False)
        for index, (expected, got) in enumerate(pairs):
            if expected != got:
                count += 1
                vector, place = divmod(index, stream.size)
                first = first or Mismatch(stream.name, vector, stream.place(place), expected, got)
    return Differences(count, first)


# One run of a program that simulates a design: the driver's report on every stream.

_PLAN = Path("sim") / "plan"
#: The beginning of the driver's lines about progress.
_SHARE = "progress"
#: The meaning of the driver's exit status; any other is a failure.
STATUSES = {0: "equal", 1: "different", 2: "stood still"}


@dataclass(frozen=True, slots=True)
class Given:
    """The traffic of one input: accepted beats, beats in all, cycles of the first and the last one (-1: none)."""

    name: str
    moved: int
    total: int
    first_cycle: int
    last_cycle: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The traffic of one output.

    moved: beats that arrived, of `total`.  mismatches: beats that differ.  changed: beats withdrawn or altered while
    waiting.  surplus: beats too many.  sample_cycle: of the first sample's last beat.  mismatch_cycle: of the first
    beat that differs.  -1: none.
    """

    name: str
    moved: int
    total: int
    mismatches: int
    first_mismatch: int
    changed: int
    surplus: int
    first_cycle: int
    last_cycle: int
    sample_cycle: int
    mismatch_cycle: int


@dataclass(frozen=True, slots=True)
class Told:
    """The report of a run. status: as in SIMULATION_KEYS.  reset: beats in and out before it; None without a reset."""

    status: str
    inputs: tuple[Given, ...]
    outputs: tuple[Taken, ...]
    reset: tuple[int, int] | None = None

    @property
    def cycles(self) -> int:
        """Cycles from the end of reset to the last beat."""
        ends = [each.last_cycle for each in self.inputs] + [each.last_cycle for each in self.outputs]
        return 1 + max(ends, default=-1)

    @property
    def latency(self) -> int | None:
        """Cycles from the first beat in to the last beat of the first result; None if it did not arrive."""
        ends = [each.sample_cycle for each in self.outputs]
        begins = [each.first_cycle for each in self.inputs if each.first_cycle >= 0]
        return max(ends) - min(begins, default=0) if ends and min(ends) >= 0 else None

    @property
    def marks(self) -> Mapping[str, int | None]:
        """The cycles that a waveform may be about, see `waves.choose_window`."""
        wrong = [each.mismatch_cycle for each in self.outputs if each.mismatch_cycle >= 0]
        results = [each.sample_cycle for each in self.outputs]
        return {
            "mismatch": min(wrong, default=None),
            "stop": self.cycles if self.status == "stood still" else None,
            "result": max(results) if min(results) >= 0 else None,
        }

    def cycles_per_vector(self, vectors: int) -> float | None:
        """Cycles between results after the first one; None if there are none, or some are missing."""
        if vectors < 2 or any(each.moved < each.total for each in self.outputs):
            return None
        return max((each.last_cycle - each.sample_cycle) / (vectors - 1) for each in self.outputs)


async def drive_program(program: Path, folder: Path, options: Sequence[str], on_share: Callable[[float], None]) -> Told:
    """Run a program in its emitted folder. SimulationError if it could not compare anything.

    on_share: receives the share of the results that have arrived, now and then.
    """

    def heard(line: str) -> None:
        word, _, share = line.partition(" ")
        if word == _SHARE:
            on_share(float(share))

    done = await run_program([program, _PLAN, "--progress", *options], folder, heard)
    errors = "".join(f"{line}\n" for line in done.errors.splitlines() if not line.startswith(_SHARE))
    if done.status not in STATUSES:
        raise SimulationError(f"the simulation ended with {done.status}:\n{done.output}{errors}")
    lines = [line.split() for line in done.output.splitlines()]
    inputs = tuple(Given(words[1], *map(int, words[2:])) for words in lines if words[:1] == ["in"])
    outputs = tuple(Taken(words[1], *map(int, words[2:])) for words in lines if words[:1] == ["out"])
    if not outputs:
        raise SimulationError(f"the simulation reported no output:\n{done.output}{errors}")
    resets = [(int(words[2]), int(words[3])) for words in lines if words[:1] == ["reset"]]
    return Told(STATUSES[done.status], inputs, outputs, resets[0] if resets else None)


# The hardware's results of the last run, as arrays of integers in numpy's file format, written without numpy.

_MAGIC = b"\x93NUMPY\x01\x00"
#: Alignment of the header, so that the data can be mapped.
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class Integers:
    """An array of int64, row-major. ValueError if values and shape do not agree."""

    shape: tuple[int, ...]
    values: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.values) != prod(self.shape):
            raise ValueError(f"{len(self.values)} values are no array of shape {self.shape}")


def encode_npy(integers: Integers) -> bytes:
    """The bytes of a .npy file, version 1.0."""
    about = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {integers.shape!r}, }}"
    padding = -(len(_MAGIC) + 2 + len(about) + 1) % _ALIGNED
    header = f"{about}{' ' * padding}\n".encode("ascii")
    data = array("q", integers.values)
    if sys.byteorder == "big":
        data.byteswap()
    return _MAGIC + struct.pack("<H", len(header)) + header + data.tobytes()


def write_npz(path: Path, arrays: Mapping[str, Integers]) -> None:
    """Write a .npz file; equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, integers in arrays.items():
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), encode_npy(integers), zipfile.ZIP_DEFLATED)


def results(folder: Path) -> dict[str, Integers]:
    """The integers of each output's samples, [samples, *shape], and its format: value = integer / 2**fraction.

    Keys: `data_out_0`, `data_out_0_width`, `data_out_0_fraction_width`, and so on.
    SimulationError if the folder was not emitted by mase-server; OSError if it was not simulated.
    """
    found: dict[str, Integers] = {}
    for stream in read_streams(folder):
        if stream.kind == "out":
            found[stream.name] = _samples_of_stream(stream, folder)
            found[f"{stream.name}_width"] = Integers((), [stream.width])
            found[f"{stream.name}_fraction_width"] = Integers((), [stream.fraction_width])
    return found


def write_results(folder: Path, file: Path) -> None:
    """Write `results` as a .npz file."""
    write_npz(file, results(folder))


def _samples_of_stream(stream: Stream, folder: Path) -> Integers:
    samples = list(stream.samples(stream.got(folder)))
    return Integers((len(samples), *stream.shape), [value for sample in samples for value in sample])


# The streams of an emitted folder, from `sim/streams.json`, and the integers in their files of beats.

_ABOUT = Path("sim") / "streams.json"


@dataclass(frozen=True, slots=True)
class Stream:
    """A port of the top module. kind: "in" or "out".  lanes: elements per beat.  width: bits per element.

    spacing: bits from one element to the next in a beat.  shape: of a sample.  order: the row-major index of
    each element in stream order; None for row-major order.
    """

    name: str
    kind: str
    lanes: int
    width: int
    spacing: int
    fraction_width: int
    shape: tuple[int, ...]
    order: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Elements of a sample."""
        return prod(self.shape)

    @property
    def beats(self) -> int:
        """Beats of a sample; on a bus the last one may have fewer elements."""
        return -(-self.size // self.lanes)

    def place(self, flowing: int) -> int:
        """The row-major index of the element at this position of a sample's stream."""
        return flowing if self.order is None else self.order[flowing]

    def elements(self, beats: Sequence[str]) -> Iterator[int]:
        """The signed integers of hexadecimal beats, in stream order."""
        mask, half = (1 << self.width) - 1, 1 << (self.width - 1)
        last = self.size - (self.beats - 1) * self.lanes
        for index, beat in enumerate(beats, 1):
            word = int(beat, 16)
            for lane in range(last if index % self.beats == 0 else self.lanes):
                yield (((word >> (lane * self.spacing)) & mask) ^ half) - half

    def samples(self, beats: Sequence[str]) -> Iterator[list[int]]:
        """The complete samples of hexadecimal beats, row-major."""
        sample = [0] * self.size
        for index, value in enumerate(self.elements(beats)):
            sample[self.place(index % self.size)] = value
            if (index + 1) % self.size == 0:
                yield list(sample)

    def expected(self, folder: Path) -> list[str]:
        """The input beats, or the expected output beats."""
        return (folder / "sim" / f"{self.name}.hex").read_text(encoding="ascii").split()

    def got(self, folder: Path) -> list[str]:
        """The output beats of the last run."""
        return (folder / "sim" / f"{self.name}.hex.got").read_text(encoding="ascii").split()


def read_streams(folder: Path) -> tuple[Stream, ...]:
    """All streams, inputs first. SimulationError if the folder was not emitted by mase-server."""
    try:
        found = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return tuple(_parse_stream(name, about) for name, about in found.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SimulationError(f"{folder} was not emitted by mase-server: {_ABOUT}: {error}") from None


def _parse_stream(name: str, about: dict[str, object]) -> Stream:
    # A folder of an older version has no bus, and so no spacing.
    about = {"spacing": about["width"], **about}
    numbers = {key: int(str(about[key])) for key in ("lanes", "width", "spacing", "fraction_width")}
    shape, order = about["shape"], about["order"]
    if not isinstance(shape, list) or not (order is None or isinstance(order, list)):
        raise ValueError(f"{name} has no shape")
    return Stream(
        name, str(about["kind"]), **numbers, shape=tuple(shape), order=None if order is None else tuple(order)
    )
