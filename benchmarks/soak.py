"""A day's saves in minutes: 2,000 of them over 20 files, each with an edit that changes shapes, and what grows by it.

Between the saves hints and hovers are read, and in the middle an RPC client is there, too. After every hundred it is
told how much memory, how many processes, threads and descriptors there are, what the folders hold, and how long a save
took to its fresh hints: by the clock (median), and in CPU seconds of the server and of all it started.
Usage: python benchmarks/soak.py [--saves 2000] [--every 100] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from editor import SERVER, Editor, family, memory
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, Save
from soaked import HELPER, files, fresh, text

from mase_server.client import AsyncClient
from mase_server.rpc.registry import find_registration, runtime_dir

_TICKS = os.sysconf("SC_CLK_TCK")
_BATCHES_WITH_CLIENT = (0.25, 0.6)


@dataclass(frozen=True, slots=True)
class Mark:
    """What was found after a number of saves. Memory in MiB, `seconds` the median of a save, CPU seconds a save."""

    saves: int
    rss: float
    pss: float
    processes: int
    threads: int
    descriptors: int
    folder_mib: float
    folder_files: int
    scratch: int
    seconds: float
    server_cpu: float
    all_cpu: float
    load: float


class Growth:
    """Reads from /proc what a server and all that it started use (Linux). folders: what it may write to."""

    def __init__(self, server: int, folders: Iterable[Path], scratch: Path) -> None:
        self._server, self._folders, self._scratch = server, tuple(folders), scratch
        self._own, self._all = self._worked()

    def mark(self, saves: int, times: list[float]) -> Mark:
        """What there is now; CPU time since the last one."""
        own, every = self._worked()
        spent = (own - self._own) / max(1, len(times)), (every - self._all) / max(1, len(times))
        self._own, self._all = own, every
        pids = list(family(self._server))
        kept = [path for folder in self._folders for path in folder.rglob("*") if path.is_file()]
        return Mark(
            saves=saves,
            rss=memory(self._server),
            pss=sum(map(_shared, pids)),
            processes=len(pids),
            threads=_count(self._server, "task"),
            descriptors=_count(self._server, "fd"),
            folder_mib=sum(path.stat().st_size for path in kept) / 2**20,
            folder_files=len(kept),
            scratch=len(list(self._scratch.glob("mase-scratch-*"))),
            seconds=median(times) if times else 0.0,
            server_cpu=spent[0],
            all_cpu=spent[1],
            load=os.getloadavg()[0],
        )

    def _worked(self) -> tuple[float, float]:
        """CPU seconds of the server, and of it with all others, those that ended among them."""
        times = {pid: _times(pid) for pid in family(self._server)}
        own = sum(times.get(self._server, (0.0,) * 4)[:2])
        return own, sum(sum(each) for each in times.values())


def _times(pid: int) -> tuple[float, ...]:
    """(user, system, user and system of children that ended), in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (0.0,) * 4
    return tuple(int(each) / _TICKS for each in fields[11:15])


def _shared(pid: int) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith("Pss:")), 0.0)


def _count(pid: int, what: str) -> int:
    return len(list(Path(f"/proc/{pid}/{what}").iterdir()))


class Soak:
    """Saves, and looks between them, in one editor. `begin` opens the files, `saves` goes on from the last number."""

    def __init__(self, editor: Editor, chosen: list[Save]) -> None:
        self._editor, self._chosen, self._number = editor, chosen, 0

    async def begin(self) -> None:
        """Write and open every file, and wait for its shapes."""
        (self._editor.folder / "helping.py").write_text(HELPER)
        for save in self._chosen:
            path = self._editor.folder / save.file
            path.write_text(text(save, 0))
            self._editor.open(path)
        for save in self._chosen:
            await self._editor.settled(self._editor.folder / save.file, 120)

    async def saves(self, count: int, client: AsyncClient | None = None) -> list[float]:
        """Save `count` times; seconds of each, to hints that name the new size. RuntimeError where none does."""
        times = []
        for _ in range(count):
            self._number += 1
            save = self._chosen[self._number % len(self._chosen)]
            number = self._number // len(self._chosen) + 1
            path = self._editor.folder / save.file

            def is_fresh(label: str, save: Save = save, number: int = number) -> bool:
                return fresh(save, number, label)

            times.append(await self._editor.save_and_settle(path, text(save, number), is_fresh))
            await self._look(path, client)
        return times

    async def _look(self, path: Path, client: AsyncClient | None) -> None:
        lines = path.read_text().splitlines()
        for line in range(self._number % 7, len(lines), 7):
            await self._editor.hover(path, line, len(lines[line]) // 2)
        await self._editor.hints(path, 0, 20)
        await self._editor.lenses(path)
        if client is not None:
            await client.tensors(str(path))
            await client.graph(str(path))


async def soak(folder: Path, scratch: Path, total: int, every: int) -> list[Mark]:
    """All of it; a mark after each `every` saves."""
    marks: list[Mark] = []
    async with Editor(folder, SERVER) as editor, AsyncExitStack() as stack:
        work = Soak(editor, files())
        await work.begin()
        growth = Growth(editor.process.pid, (scratch / "cache", scratch / "state", scratch / "run"), scratch)
        client: AsyncClient | None = None
        for done in range(every, total + 1, every):
            attached = _BATCHES_WITH_CLIENT[0] <= (done - every) / total < _BATCHES_WITH_CLIENT[1]
            if attached and client is None:
                client = await stack.enter_async_context(_client(folder))
            elif not attached and client is not None:
                await stack.aclose()
                client = None
            marks.append(growth.mark(done, await work.saves(every, client)))
            print(json.dumps(asdict(marks[-1])), file=sys.stderr, flush=True)
    return marks


def _client(folder: Path) -> AsyncClient:
    registered = find_registration(runtime_dir(), str(folder))
    assert registered is not None, f"no server is registered for {folder}"
    return AsyncClient(registered.address)


def table_of(marks: list[Mark]) -> Table:
    """Every mark a row."""
    names = [name for name in Mark.__slots__ if name != "saves"]
    table = Table("saves", *names, title=f"{marks[-1].saves} saves over 20 files")
    for mark in marks:
        told = [getattr(mark, name) for name in names]
        table.add_row(str(mark.saves), *(f"{each:.3g}" if each < 1 else f"{each:.5g}" for each in told))
    return table


def main() -> None:
    """Soak, and print what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=2000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mase-soak-") as name:
        scratch = Path(name).resolve()
        for variable, part in (("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state"), ("MASE_RUNTIME_DIR", "run")):
            os.environ[variable] = str(scratch / part)
        os.environ["TMPDIR"] = str(scratch)
        shutil.copytree(EXAMPLES, folder := scratch / "project", ignore=shutil.ignore_patterns("__pycache__"))
        marks = asyncio.run(soak(folder, scratch, options.saves, options.every))
    if options.json:
        options.json.write_text(json.dumps([asdict(mark) for mark in marks], indent=1))
    Console(width=160).print(table_of(marks))


if __name__ == "__main__":
    main()
