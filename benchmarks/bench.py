"""`make bench`: the benchmarks one after another, each figure kept with its goal and the load, and one table.

Usage: python benchmarks/bench.py [--only NAME ...] [--all] [--list] [--table] [--page] [--folder .benchmarks]

FOLDER gets `figures.json`, rewritten after every benchmark (a run that was stopped keeps what it has; a benchmark that
runs again replaces its figures), and what each printed as NAME.txt. `--all` adds long ones and those that go on at
random, `--table` prints what is kept and runs nothing, `--page` writes it into benchmarks/README.md. One that fails is
told, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figures import FIGURES, KEPT, Figure, told
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "README.md"
#: The table stands between these lines of the page.
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
console = Console(width=170)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A script. minutes: when idle.  needs: programs without which it is left out.  is_long: only with --all."""

    words: tuple[str, ...]
    minutes: float
    needs: tuple[str, ...] = ()
    is_long: bool = False


HARDWARE = ("verilator", "yosys")
#: What waits for a person comes first, while the machine is as it was found; then what takes processors.
BENCHMARKS: Mapping[str, Benchmark] = {
    "startup": Benchmark(("startup.py",), 0.5),
    "latency": Benchmark(("latency.py",), 2),
    "compiled": Benchmark(("compiled.py",), 4),
    "live": Benchmark(("live.py",), 1),
    "big": Benchmark(("big.py",), 1),
    "passes_editor": Benchmark(("passes_editor.py",), 1),
    "rpc": Benchmark(("-m", "benchmarks.rpc", "--seconds", "4", "--runs", "3"), 2),
    "cli": Benchmark(("cli.py",), 2),
    "faults": Benchmark(("faults.py",), 1),
    "load": Benchmark(("load.py",), 3),
    "shutdown": Benchmark(("shutdown.py",), 1),
    "graph": Benchmark(("graph.py",), 1, ("chromium",)),
    "library": Benchmark(("library.py",), 1),
    "answer": Benchmark(("same_answer.py",), 4),
    "compare": Benchmark(("comparison.py",), 15),
    "verilog": Benchmark(("verilog.py", "models"), 2),
    "peers": Benchmark(("peers.py", "--environment", str(ROOT / ".benchmarks" / "emission")), 6, HARDWARE),
    "bert": Benchmark(("passes.py", "bert"), 1),
    "forward": Benchmark(("passes.py", "forward"), 1),
    "huggingface": Benchmark(("huggingface.py",), 2),
    "bugs": Benchmark(("bugs.py",), 3),
    "corpus": Benchmark(("corpus.py",), 3),
    "sweep": Benchmark(("sweep.py",), 2),
    "estimates": Benchmark(("estimates.py",), 10, HARDWARE),
    "exact": Benchmark(("exact.py",), 15, HARDWARE),
    "zoo": Benchmark(("zoo.py", "--again"), 10),
    "kills": Benchmark(("kills.py", "--kills", "100"), 5, is_long=True),
    "fuzz": Benchmark(("fuzz.py", "5000"), 5, is_long=True),
    "races": Benchmark(("races.py", "100"), 10, is_long=True),
    "typed": Benchmark(("typed.py",), 20, is_long=True),
    "formats": Benchmark(("passes.py", "formats"), 40, is_long=True),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that was measured: by which benchmark, when, at what load when it began."""

    name: str
    value: float
    beside: Mapping[str, float]
    benchmark: str
    load: float
    date: str

    @property
    def figure(self) -> Figure:
        """What it is."""
        return FIGURES[self.name]


def words_of(benchmark: Benchmark) -> list[str]:
    """The command."""
    first, *rest = benchmark.words
    script = first if first.startswith("-") else str(ROOT / "benchmarks" / first)
    return [sys.executable, script, *rest]


def measured(name: str, folder: Path) -> tuple[list[Row], str]:
    """The figures of one benchmark, and why it failed, "" where it did not. What it prints goes to NAME.txt."""
    file, log = folder / f"{name}.jsonl", folder / f"{name}.txt"
    file.unlink(missing_ok=True)
    load, date = os.getloadavg()[0], f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    words = words_of(BENCHMARKS[name])
    with log.open("w", encoding="utf-8") as out:
        out.write(f"$ {' '.join(words)}\n{date} UTC, load {load:.1f} on {os.cpu_count()} processors\n")
        out.flush()
        settings = {**os.environ, KEPT: str(file)}
        done = subprocess.run(words, cwd=ROOT, env=settings, stdout=out, stderr=subprocess.STDOUT, check=False)
    rows = [Row(each.name, each.value, each.beside, name, round(load, 1), date) for each in told(file)]
    return rows, "" if done.returncode == 0 else f"exit status {done.returncode}, see {log}"


def lacking(benchmark: Benchmark) -> str:
    """Programs that it needs and that are not here."""
    return ", ".join(each for each in benchmark.needs if shutil.which(each) is None)


def run(names: Sequence[str], folder: Path) -> bool:
    """Run them in order, with progress; whether all went well."""
    fine = True
    columns = (TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            benchmark = BENCHMARKS[name]
            progress.update(task, description=f"{name} ({benchmark.minutes:g} min, load {os.getloadavg()[0]:.1f})")
            if missing := lacking(benchmark):
                progress.print(f"{name}: left out, {missing} not found")
            else:
                started = time.perf_counter()
                rows, failure = measured(name, folder)
                keep(folder, name, rows)
                fine &= not failure
                spent = time.perf_counter() - started
                progress.print(f"{name}: {len(rows)} figures in {spent:.0f} s {failure}", markup=False)
            progress.advance(task)
    return fine


def keep(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Put these figures in place of those that the benchmark told before."""
    others = [row for row in kept(folder) if row.benchmark != name]
    (folder / "figures.json").write_text(json.dumps([asdict(row) for row in (*others, *rows)], indent=1) + "\n")


def kept(folder: Path) -> list[Row]:
    """All figures, in the order of FIGURES."""
    file = folder / "figures.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    order = list(FIGURES)
    return sorted((Row(**row) for row in rows if row["name"] in FIGURES), key=lambda row: order.index(row.name))


# Tables


def number(value: float, unit: str = "") -> str:
    """A value as a person reads it: three digits that count."""
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".strip() if unit not in ("%", "x") else f"{text}{'' if unit == 'x' else ' '}{unit}"


def cells(row: Row) -> tuple[str, ...]:
    """What it is, goal, value, whether it holds, the others with their ratio to ours, load, benchmark."""
    figure = row.figure
    goal = "" if figure.goal is None else f"{'at least' if figure.is_least else 'at most'} {number(figure.goal)}"
    verdict = "" if figure.goal is None else "yes" if figure.holds(row.value) else "missed"
    return (
        figure.what, goal, number(row.value, figure.unit), verdict,
        "; ".join(beside(row)), f"{row.load:.1f}", row.benchmark,
    )  # fmt: skip


def beside(row: Row) -> Iterator[str]:
    """Each of the others: its number, and how many of ours that is."""
    for name, value in row.beside.items():
        ratio = f" ({number(value / row.value)}x)" if row.value else ""
        yield f"{name.replace('_', ' ')} {number(value, row.figure.unit)}{ratio}"


HEAD = ("figure", "goal", "measured", "holds", "beside it, in the same run (times ours)", "load", "benchmark")


def shown(rows: Sequence[Row]) -> Table:
    """One table for the terminal."""
    table = Table(*HEAD, title=f"{len(rows)} figures, {os.cpu_count()} processors")
    for row in rows:
        what, goal, value, verdict, *rest = cells(row)
        style = "red" if verdict == "missed" else ""
        table.add_row(what, goal, value, f"[{style}]{verdict}[/]" if style else verdict, *rest)
    return table


def page(text: str, rows: Sequence[Row]) -> str:
    """The page with these figures between its marks."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Run what is asked for and print the table; 1 where a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--folder", type=Path, default=ROOT / ".benchmarks")
    for flag in ("--all", "--list", "--table", "--page"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    if given.list:
        console.print("\n".join(f"{name}: {each.minutes:g} min" for name, each in BENCHMARKS.items()))
        return 0
    given.folder.mkdir(exist_ok=True)
    names = given.only or [name for name, each in BENCHMARKS.items() if given.all or not each.is_long]
    fine = given.table or given.page or run(names, given.folder)
    console.print(shown(kept(given.folder)))
    if given.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept(given.folder)), encoding="utf-8")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
