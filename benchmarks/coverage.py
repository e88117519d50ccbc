"""How much of a model becomes hardware: model files emitted with nothing configured, and what of each lacks.

Usage: python benchmarks/coverage.py FOLDER|FILE ... [--precision fixed(8,4) ...] [--simulate N] [--python PATH]
       [--multipliers N] [--all] [--verbose]

Every model of a file is emitted as an editor would emit it, with the ceilings lifted. It is "whole" if every operator
of it has hardware, "partial" if some have, "none" if none has. The share counts operations of the design, beside the
nodes that were named as missing. --simulate: what is there is linted (Verilator, -Wall) and run over N random samples,
and every integer is compared; a mismatch makes the exit status 1. --all: also models that are part of no other's values
(see `tracing/models/find`); else the first of a file alone. --python: the interpreter that has what the files import.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mase_server.cli.applying import call
from mase_server.cli.session import Wanted, daemon_for
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.status import Listener
from mase_server.simulation import simulate

PRECISIONS = ("fixed(8,4)", "fixed(8,auto)")
KEPT = Path(__file__).parents[1] / "tests" / "output" / "simulations"
CEILING = 1 << 40
#: Kinds of operations that compute nothing.
PLUMBING = frozenset({"input", "constant", "swap", "move"})
#: Seconds for one build and one run.
LIMIT = 1800.0


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one model in one format.

    status: "whole", "partial", "none", or "failed" (`why` says how).  there, lacks: operations, and (operator, reason).
    simulation: of SIMULATION_KEYS, None where nothing was run.  warnings: of lint.
    """

    file: str
    model: str
    precision: str
    status: str
    why: str = ""
    there: int = 0
    lacks: Sequence[Mapping[str, Any]] = ()
    multipliers: int = 0
    simulation: Mapping[str, Any] | None = None
    warnings: int = 0
    steps: Sequence[str] = ()

    @property
    def share(self) -> float:
        """Operations that have hardware."""
        return self.there / max(1, self.there + len(self.lacks))

    @property
    def is_wrong(self) -> bool:
        """Does the hardware give other integers, or no tool take it?"""
        ran = "equal" if self.simulation is None else self.simulation["status"]
        return ran != "equal" or self.warnings > 0


async def rows(files: Sequence[Path], options: argparse.Namespace) -> list[Row]:
    """A row for each model and format, file after file, each in a daemon of its own."""
    found: list[Row] = []
    for file in files:
        async with daemon_for(Wanted((file,), python=options.python), Listener()) as daemon:
            for row in await _of_file(daemon, file, options):
                found.append(row)
                options.console.print(escape(line(row)))
                for told in details(row) if options.verbose else ():
                    options.console.print(escape(told))
    return found


async def _of_file(daemon: Daemon, file: Path, options: argparse.Namespace) -> list[Row]:
    path = str(file.absolute())
    status = await daemon.wait(path)
    shown = daemon.store.entry(path).shown
    titles = list(shown.titles) if shown is not None else []
    if not titles:
        return [Row(file.name, "", "", "failed", status.message or status.state)]
    wanted = titles if options.all else titles[:1]
    return [await _row(daemon, file, title, each, options) for title in wanted for each in options.precision]


async def _row(daemon: Daemon, file: Path, title: str, precision: str, options: argparse.Namespace) -> Row:
    build = {"precision": precision, "max_multipliers": CEILING, "max_memory_bits": CEILING}
    if options.multipliers:
        build["multipliers"] = options.multipliers
    with tempfile.TemporaryDirectory(prefix="mase-coverage-") as folder:
        order = {"path": str(file.absolute()), "model": title, "build": build, "overwrite": True}
        order |= {"folder": folder, "vectors": options.simulate} if options.simulate else {}
        try:
            told = await call(daemon, "mase/emitVerilog", order)
        except (PassError, ValueError) as error:
            return Row(file.name, title, precision, "failed", str(error))
        row = _emitted(file, title, precision, told)
        if not options.simulate or told["folder"] is None:
            return row
        warnings = await _warnings(Path(folder), told["module"])
        ran = await simulate(Path(folder), cache=KEPT, limit=LIMIT)
        return replace(row, simulation=ran, warnings=warnings)


def _emitted(file: Path, title: str, precision: str, told: Mapping[str, Any]) -> Row:
    there = sum(each["kind"] not in PLUMBING for each in told["operations"])
    lacks = told["unsupported"]
    status = "none" if not there else "partial" if lacks else "whole"
    figures = {"multipliers": told["totals"]["multipliers"], "steps": told["steps"]}
    return Row(file.name, title, precision, status, told["refusal"] or "", there, lacks, **figures)


async def _warnings(folder: Path, top: str) -> int:
    """Lines that Verilator says of a folder."""
    command = ("verilator", "--lint-only", "-Wall", "--top-module", top, "-f", "files.f")
    pipe = asyncio.subprocess.PIPE
    done = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
    _, told = await done.communicate()
    return sum(each.startswith((b"%Warning", b"%Error")) for each in told.splitlines())


def line(row: Row) -> str:
    """One model in one line."""
    counts = Counter(each["operator"] for each in row.lacks)
    lacks = ", ".join(f"{operator} x{count}" if count > 1 else operator for operator, count in counts.most_common())
    share = f"{row.share:.0%} of {row.there + len(row.lacks)}" if row.there or row.lacks else ""
    return " | ".join((row.file, row.model, row.precision, row.status, share, ran(row), lacks or row.why))


def ran(row: Row) -> str:
    """What the simulation says, in words."""
    if row.simulation is None:
        return ""
    told, lint = row.simulation, "" if not row.warnings else f", {row.warnings} warnings"
    if told["status"] == "failed":
        return f"failed: {' '.join(told['log'].split())[:200]}{lint}"
    return f"{told['status']}: {told['mismatches']} mismatches in {told['vectors']} vectors{lint}"


def details(row: Row) -> Iterator[str]:
    """Every node that lacks, with its reason."""
    yield from (f"   {each['node']} ({each['operator']}): {each['why']}" for each in row.lacks)


def summary(found: Sequence[Row]) -> Table:
    """The totals of each format."""
    table = Table("precision", "models", "whole", "partial", "none", "failed", "operations", "bit-exact", "wrong")
    for precision in dict.fromkeys(row.precision for row in found if row.precision):
        of = [row for row in found if row.precision == precision]
        counts = Counter(row.status for row in of)
        there, lacks = sum(row.there for row in of), sum(len(row.lacks) for row in of)
        simulated = [row for row in of if row.simulation is not None]
        wrong = sum(row.is_wrong for row in simulated)
        states = (str(counts[status]) for status in ("whole", "partial", "none", "failed"))
        share = f"{there / max(1, there + lacks):.1%} of {there + lacks}"
        table.add_row(precision, str(len(of)), *states, share, str(len(simulated) - wrong), str(wrong))
    return table


def lacking(found: Sequence[Row]) -> Table:
    """What lacks most often, in the first format."""
    table = Table("operator", "nodes", "models", "why, of the first", title="without hardware")
    first = found[0].precision if found else ""
    told = [(row, each) for row in found if row.precision in (first, "") for each in row.lacks]
    for operator, count in Counter(each["operator"] for _, each in told).most_common():
        of = [(row, each) for row, each in told if each["operator"] == operator]
        table.add_row(operator, str(count), str(len({row.file for row, _ in of})), escape(of[0][1]["why"]))
    return table


def model_files(sources: Sequence[Path]) -> list[Path]:
    """The files that are meant, those of a folder sorted."""
    return [file for each in sources for file in (sorted(each.glob("*.py")) if each.is_dir() else [each])]


def main() -> int:
    """Emit and print; the exit status says whether all that was simulated is exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--precision", nargs="+", default=list(PRECISIONS))
    parser.add_argument("--simulate", type=int, default=0, metavar="N", help="samples; none by default")
    parser.add_argument("--multipliers", type=int, help="a budget, which makes simulations shorter")
    parser.add_argument("--python")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.console = Console(highlight=False, soft_wrap=True)
    found = asyncio.run(rows(model_files(options.sources), options))
    options.console.print(summary(found))
    options.console.print(lacking(found))
    return int(any(row.is_wrong for row in found))


if __name__ == "__main__":
    sys.exit(main())
