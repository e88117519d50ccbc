"""A program that simulates a design: verilated, compiled in a few pieces side by side, linked with what all share."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mase_server.simulation.kept import digest, kept
from mase_server.simulation.processes import demand
from mase_server.simulation.tools import Tools

T = TypeVar("T")
Progress = Callable[[str, float | None], None]

PROGRAM = "simulate"
_DRIVER = ("driver.cpp", "driver.h")
_GLUE = "glue.cpp"
_HEADER = "headers.h"
_COMPILE = ("-std=gnu++17", "-pthread", "-faligned-new", "-fcf-protection=none", "-w")
_DEFINES = ("-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=0")
#: An emitted design is linted by itself; its simulation is not the place for it.
QUIET = ("-Wno-fatal", "-Wno-lint", "-Wno-style")
_VERILATE = ("--cc", "--top-module", "bench", "--prefix", "Vbench", "--x-initial", "unique")
#: Bytes of generated C++ in a piece: what takes a compiler about a second.
_PIECE = 300_000


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a program. verilog: all files, module `bench` among them.  driver: the folder of the C++ part.

    optimise: -O0 builds faster, -O1 runs five to ten times faster.  wishes: Verilator's options.
    """

    verilog: Sequence[Path]
    driver: Path
    optimise: str = "-O1"
    wishes: Sequence[str] = QUIET

    @property
    def key(self) -> str:
        """The key of the program, without the tools and without memories, which the program reads when it runs."""
        files = [*self.verilog, *(self.driver / name for name in (*_DRIVER, _GLUE))]
        return digest(
            [self.optimise, *self.wishes, *(part for path in files for part in (path.name, path.read_bytes()))]
        )


async def program(sources: Sources, tools: Tools, cache: Path, progress: Progress) -> Path:
    """The program of a design. SimulationError with the tool's words where it cannot be made."""

    async def make(folder: Path) -> None:
        build = _Build(sources, tools, folder, progress)
        shared = _runtime(sources.driver, tools, cache, progress)
        files = [path for found in await _side_by_side(shared, build.objects(cache)) for path in found]
        await demand([tools.compiler, "-pthread", *files, "-latomic", "-o", folder / PROGRAM], folder)
        shutil.rmtree(build.made)

    key = digest([await asyncio.to_thread(lambda: sources.key), tools.version, *_VERILATE, *_COMPILE])
    return await kept(cache, key, make) / PROGRAM


@dataclass(frozen=True, slots=True)
class _Build:
    """One program in the making, in a folder of its own."""

    sources: Sources
    tools: Tools
    folder: Path
    progress: Progress

    @property
    def made(self) -> Path:
        """Where everything is on the way."""
        return self.folder / "made"

    async def objects(self, cache: Path) -> list[Path]:
        """The design itself."""
        headers = await _headers(self.sources.optimise, self.tools, cache)
        self.progress("verilating", None)
        files = (path.resolve() for path in self.sources.verilog)
        await demand(
            [self.tools.verilator, *_VERILATE, *self.sources.wishes, "--Mdir", str(self.made), *files], self.folder
        )
        glue = (self.sources.driver / _GLUE).resolve()
        return await self._compiled(_pieces([*sorted(self.made.glob("*.cpp")), glue], self.made), headers)

    async def _compiled(self, pieces: Sequence[Path], headers: Path) -> list[Path]:
        turn, done = asyncio.Semaphore(os.cpu_count() or 1), 0
        folders = (f"-I{self.made}", f"-I{self.sources.driver.resolve()}", *self.tools.includes)
        options = [self.sources.optimise, "-include", str(headers), *folders]

        async def one(piece: Path) -> Path:
            nonlocal done
            out = piece.with_suffix(".o")
            async with turn:
                await compiled(self.tools, options, piece, out)
            done += 1
            self.progress(f"building {done} of {len(pieces)}", done / len(pieces))
            return out

        self.progress(f"building 0 of {len(pieces)}", 0.0)
        return await _side_by_side(*map(one, pieces))


async def _side_by_side(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all; the first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _pieces(files: Sequence[Path], folder: Path) -> list[Path]:
    """Files that include the generated ones, so that their headers are read a few times, not many."""
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


async def compiled(tools: Tools, options: Sequence[str | Path], source: Path, out: Path) -> None:
    """Compile one file."""
    await demand([tools.compiler, *_COMPILE, *_DEFINES, *options, "-c", source, "-o", out], out.parent)


async def _headers(optimise: str, tools: Tools, cache: Path) -> Path:
    """A header with all that generated files include, already read: half of what compiling a small design takes."""

    async def make(folder: Path) -> None:
        source = folder / _HEADER
        source.write_text('#include "verilated.h"\n', encoding="utf-8")
        await compiled(tools, [optimise, *tools.includes, "-x", "c++-header"], source, folder / f"{_HEADER}.gch")

    key = digest([tools.version, *_COMPILE, *_DEFINES, optimise])
    return await kept(cache, f"headers-{key}", make) / _HEADER


async def _runtime(driver: Path, tools: Tools, cache: Path, progress: Progress) -> list[Path]:
    """The object files that every program is linked with: Verilator's own and the driver."""
    library = tools.root / "include"
    sources = [library / "verilated.cpp", library / "verilated_threads.cpp", (driver / _DRIVER[0]).resolve()]

    async def make(folder: Path) -> None:
        progress("building what all simulations share", None)
        options = ["-O2", f"-I{driver.resolve()}", *tools.includes]
        await _side_by_side(*(compiled(tools, options, path, folder / f"{path.stem}.o") for path in sources))

    key = digest([tools.version, *_COMPILE, *((driver / name).read_bytes() for name in _DRIVER)])
    folder = await kept(cache, f"shared-{key}", make)
    return sorted(folder.glob("*.o"))
