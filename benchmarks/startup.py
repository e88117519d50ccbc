"""Start to `initialize` answered, open to first hints with nothing warm, and what the server holds in memory.

A fresh `python FILE` with one forward is timed after each server, so that both see the same machine.

Usage: python benchmarks/startup.py [--runs 5] [--file gpt.py]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from editor import Editor, maps, memory
from figures import tell
from latency import fresh_python
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, SAVES


async def run(path: Path) -> tuple[float, float, float, bool]:
    """One server: seconds to initialize, seconds to the first hints, MiB of the server, has it mapped torch."""
    async with Editor(path.parent) as editor:
        opened = perf_counter()
        editor.open(path)
        while not await editor.hints(path):
            await editor.refreshed_again()
        first = perf_counter() - opened
        await editor.settled(path)
        return editor.start_seconds, first, memory(editor.process.pid), maps(editor.process.pid, "libtorch")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--file", default="gpt.py")
    options = parser.parse_args()
    save = next(save for save in SAVES if save.file == options.file)
    runs, plain = list[tuple[float, float, float, bool]](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.runs):
            runs.append(asyncio.run(run(EXAMPLES / options.file)))
            plain.append(fresh_python(save, Path(folder)))
    starts, firsts, sizes, torch = zip(*runs, strict=True)
    ratio = median(firsts) / median(plain)
    tell("startup/initialize", median(starts))
    tell("startup/first", median(firsts), **{"fresh python": median(plain)})
    tell("startup/ratio", ratio)
    tell("startup/memory", median(sizes))
    tell("startup/torch", sum(torch))
    table = Table("figure", "median", "worst", "target", title=f"{options.runs} servers, {options.file}")
    table.add_row("start to initialize answered", f"{median(starts):.2f} s", f"{max(starts):.2f} s", "1 s")
    table.add_row("open to first hints, cold", f"{median(firsts):.2f} s", f"{max(firsts):.2f} s", "4 s")
    table.add_row("fresh python", f"{median(plain):.2f} s", f"{max(plain):.2f} s", "")
    table.add_row("open over fresh python", f"{ratio:.2f}", "", "1.3")
    table.add_row("server RSS", f"{median(sizes):.0f} MiB", f"{max(sizes):.0f} MiB", "80 MiB")
    table.add_row("torch in the server", "yes" if any(torch) else "no", "", "no")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
