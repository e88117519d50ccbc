"""The output of `mase-server sweep`: for each model the points that no other point beats, or all of them."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mase_server.cli.lines import print_styled
from mase_server.cli.tables import columns
from mase_server.cli.terminal import say_json
from mase_server.lsp.figures import counted
from mase_server.sweep.figures import FIGURES, Figure
from mase_server.sweep.running import Row, Sweep
from mase_server.visible import reveal

#: Figures that are shown though nobody compares them.
_TOLD = ("max_error", "multipliers", "latency")


def print_text(sweep: Sweep, rows: Sequence[Row], objectives: Sequence[Figure], everything: bool) -> None:
    """For people: a table for each model; colours only on a terminal."""
    for line in _lines(rows, objectives, everything):
        print_styled(line, "bold" if line.startswith("*") else "")
    failed = [row for row in rows if row.result.error]
    if failed:
        again = "; --retry tries again" if any(row.result.kind in ("died", "limit") for row in failed) else ""
        print_styled(f"{counted(len(failed), 'point')} failed{again}", "red")
        for row in failed:
            print_styled(f"  {row.point}: {row.result.error}")
    print_styled(f"{counted(len(rows), 'point')} of {len(sweep.keys):,} in {sweep.store.path}")


def _lines(rows: Sequence[Row], objectives: Sequence[Figure], everything: bool) -> Iterator[str]:
    names = " and ".join(f"{'high' if each.more_is_better else 'low'} {each.name}" for each in objectives)
    for file, model in dict.fromkeys((row.point.file, row.result.model) for row in rows):
        mine = [row for row in rows if (row.point.file, row.result.model) == (file, model) and row.result.figures]
        best = [row for row in mine if row.best]
        if not mine:
            continue
        yield reveal(f"{file}: {model}")
        yield f"{counted(len(best), 'point')} of {len(mine):,} that no other point beats in {names}"
        yield from _table(_sorted(mine if everything else best, objectives), objectives)
        facts = mine[0].result.facts
        if facts.get("inputs"):
            yield f"measured with {facts.get('weights')} on {facts['inputs']}"
        yield ""


def _sorted(rows: Sequence[Row], objectives: Sequence[Figure]) -> list[Row]:
    def place(row: Row) -> list[float]:
        values = ((each, row.result.figures.get(each.name)) for each in objectives)
        return [math.inf if value is None else -value if each.more_is_better else value for each, value in values]

    return sorted(rows, key=place)


def _table(rows: Sequence[Row], objectives: Sequence[Figure]) -> Iterator[str]:
    names = [each.name for each in objectives] + [name for name in _TOLD if FIGURES[name] not in objectives]
    shown = [name for name in names if any(row.result.figures.get(name) is not None for row in rows)]
    budgets = ["budget"] if any(row.point.budget for row in rows) else []
    head = ("", "pipeline", *budgets, *(name.replace("_", " ") for name in shown))
    cells = [
        ["*" if row.best else "", "; ".join(row.point.pipeline) or "as it is", *([row.point.budget] if budgets else [])]
        + [_cell(row.result.figures.get(name)) for name in shown]
        for row in rows
    ]
    return columns(head, cells, range(2 + len(budgets), len(head)))


def _cell(value: float | None) -> str:
    if value is None or math.isinf(value):
        return "" if value is None else "exact"
    return f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:.4g}"


def row_map(row: Row) -> dict[str, Any]:
    """A point as JSON has it. sqnr is "inf" where nothing differs; a figure is None where there is none."""
    figures = {name: row.result.figures.get(name) for name in FIGURES}
    return {
        "file": row.point.file,
        "model": row.result.model,
        "inputs": list(row.point.inputs),
        "pipeline": list(row.point.pipeline),
        "build": None if row.point.build is None else dict(row.point.build),
        "best": row.best,
        **{name: "inf" if value is not None and math.isinf(value) else value for name, value in figures.items()},
        "error": row.result.error,
        "kind": row.result.kind,
        "facts": dict(row.result.facts),
        "seconds": row.result.seconds,
    }


def print_json(rows: Sequence[Row], objectives: Sequence[Figure], pending: int) -> None:
    """One object. pending: points that were not measured."""
    told = {"objectives": [each.name for each in objectives], "pending": pending, "points": list(map(row_map, rows))}
    say_json(told)


def print_csv(rows: Sequence[Row], objectives: Sequence[Figure], pending: int) -> None:
    """A line each, under one of names."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("file", "model", "pipeline", "budget", "best", *FIGURES, "error"))
    for row in rows:
        told = row_map(row)
        figures = ["" if told[name] is None else told[name] for name in FIGURES]
        start = (row.point.file, row.result.model, "; ".join(row.point.pipeline), row.point.budget, int(row.best))
        writer.writerow(
            [reveal(each) if isinstance(each, str) else each for each in (*start, *figures, row.result.error)]
        )
