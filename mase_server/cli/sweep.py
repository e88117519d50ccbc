"""`mase-server sweep`: a grid of models, pipelines and budgets, measured and compared."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mase_server.cli.terminal import say

if TYPE_CHECKING:
    from mase_server.sweep.engines import Engine
    from mase_server.sweep.grid import Grid
    from mase_server.sweep.points import Point
    from mase_server.sweep.running import Sweep

#: Where results are kept if neither a grid's name nor an option says it.
_RESULTS = "sweep.sqlite"
#: The exit status of what a person stopped.
_INTERRUPTED = 130


class Format(StrEnum):
    """How the points are printed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def sweep(
    what: Annotated[
        list[Path],
        typer.Argument(metavar="GRID.toml | FILE...", exists=True, dir_okay=False, help="A grid, or models."),
    ],
    pipelines: Annotated[
        list[str] | None, typer.Option("--pipeline", help="Passes as for `apply`; --vary fills in {name}.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE,...", help="The values of {name} in a pipeline.")
    ] = None,
    multipliers: Annotated[str | None, typer.Option(metavar="N,...", help="Hardware budgets.")] = None,
    interval: Annotated[str | None, typer.Option(metavar="N,...", help="Limits on the cycles of a sample.")] = None,
    precision: Annotated[str | None, typer.Option(help="Formats of models that no pass has quantised.")] = None,
    objectives: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="The figures to compare, e.g. sqnr,luts,cycles.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model, if the files have several.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="The SQLite file of results; by default the grid's name, or sweep.sqlite."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Points at once; by default one for each processor.")] = None,
    on: Annotated[
        str,
        typer.Option(
            help="local for this machine, dask://HOST:PORT for a cluster, dask for a cluster on this machine."
        ),
    ] = "local",
    retry: Annotated[bool, typer.Option("--retry", help="Measure failed points again.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure all points again.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print every point, not only the best.")] = False,
    output: Annotated[Format, typer.Option("--format", help="A table, or a JSON object or CSV with every point.")] = (
        Format.TEXT
    ),
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
) -> None:
    """Measure every model with every pipeline at every budget, and print the points that no other point beats.

    The command keeps its results: after an interruption, the same command measures only the missing points.

    Examples:

        mase-server sweep mlp.py --pipeline "quantize default='fixed({w},4)'" --vary w=6,8 --multipliers 16,64

        mase-server sweep grid.toml --jobs 4 --objectives sqnr,luts,cycles

    Exit status: 0 if all points were measured, 1 if a point or the engine failed, 2 for wrong usage,
    130 if interrupted.
    """
    from mase_server.cli import sweep_report
    from mase_server.cli.sweep_grid import Options, grid_of

    with _told_mistakes():
        options = Options(pipelines, vary, multipliers, interval, precision, objectives, model, inputs)
        grid = grid_of(what, options)
        done, stopped = _swept(grid, _results(what, results), _Way(on, jobs, python, retry, again))
    rows = done.rows(grid.compared)
    if output is Format.TEXT:
        sweep_report.print_text(done, rows, grid.compared, everything)
    else:
        print_as = sweep_report.print_json if output is Format.JSON else sweep_report.print_csv
        print_as(rows, grid.compared, len(done.pending))
    sys.stdout.flush()
    if stopped:
        told = f"interrupted: {len(done.results)} of {len(done.keys)} points are kept in {done.store.path}"
        say(f"{told}; the same command goes on from there", error=True)
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(1 if any(row.result.error for row in rows) else 0)


def _results(what: Sequence[Path], given: Path | None) -> Path:
    named = what[0].with_suffix(".sqlite") if what[0].suffix == ".toml" else Path(_RESULTS)
    return given or named


@dataclass(frozen=True, slots=True)
class _Way:
    """How the points are measured, as it was typed."""

    on: str
    jobs: int | None
    python: str | None
    retry: bool
    again: bool


def _swept(grid: Grid, results: Path, way: _Way) -> tuple[Sweep, bool]:
    """The sweep after its run, and was it interrupted?"""
    from mase_server.cli.sweep_progress import progress
    from mase_server.sweep.running import Sweep, planned
    from mase_server.sweep.store import Store

    around, keys = planned(grid.points(), results, way.python, grid.depends)
    found = Sweep(Store(results, around), keys, way.retry, way.again)
    if not found.pending:
        return found, False
    engine = _engine(way, found)
    try:
        with progress(len(found.keys), len(found.results)) as tell:
            asyncio.run(found.run(engine, tell))
    except KeyboardInterrupt:
        return found, True
    return found, False


def _engine(way: _Way, found: Sweep) -> Engine:
    """Where the points are measured; BadParameter for what is none."""
    from mase_server.sweep.dask import Dask
    from mase_server.sweep.engines import Local, usual_jobs

    jobs = way.jobs or usual_jobs()
    if way.on == "local":
        return Local(jobs, way.python, found.wants, _checked)
    if way.on == "dask":
        return Dask("", jobs, way.python)
    if way.on.startswith("dask://"):
        return Dask(f"tcp://{way.on.removeprefix('dask://')}", jobs, way.python)
    raise typer.BadParameter(f"{way.on!r} is none of local, dask and dask://HOST:PORT", param_hint="--on")


def _checked(point: Point, passes: list[dict[str, Any]]) -> Point:
    """The point with its passes' proper names; UsageError for a pass or an argument that there is not."""
    from mase_server.cli.steps import meant
    from mase_server.steps import Step

    if not passes:
        return point
    steps = meant(map(Step.parse, point.pipeline), passes)
    return replace(point, pipeline=tuple(map(str, steps)))


@contextmanager
def _told_mistakes() -> Iterator[None]:
    """Mistakes in what was typed end the program with status 2, what cannot be done with status 1."""
    from mase_server.cli.steps import UsageError
    from mase_server.sweep.dask import EngineError
    from mase_server.sweep.grid import GridError
    from mase_server.sweep.store import StoreError

    try:
        yield
    except (UsageError, GridError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    except (StoreError, EngineError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None
