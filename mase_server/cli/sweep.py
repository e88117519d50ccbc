"""`mase-server sweep`: a grid of models, pipelines and budgets, measured and compared."""

from __future__ import annotations

import asyncio
import csv
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mase_server.cli.steps import UsageError, parse_steps
from mase_server.cli.terminal import from_here, print_styled, say, say_json
from mase_server.lsp.wording import format_count
from mase_server.paths import canonical_path
from mase_server.protocol.arguments import split_texts
from mase_server.protocol.records import Plain
from mase_server.sweep.grid import Grid, models_of, read_grid
from mase_server.sweep.points import FIGURES, Figure, Point, Result
from mase_server.sweep.running import Row, Sweep
from mase_server.visible import align_table_columns, reveal

if TYPE_CHECKING:
    from mase_server.protocol.answers import Pass
    from mase_server.sweep.grid import Grid
    from mase_server.sweep.points import Point
    from mase_server.sweep.running import Engine, Sweep


#: The default file of results, if neither a grid's name nor an option gives one.
_RESULTS = "sweep.sqlite"
#: The exit status after an interruption by the user.
_INTERRUPTED = 130


class Format(StrEnum):
    """The output format of the points."""

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

    with _told_mistakes():
        options = Options(pipelines, vary, multipliers, interval, precision, objectives, model, inputs)
        grid = grid_of(what, options)
        done, stopped = _run_sweep(grid, _results_path(what, results), _Way(on, jobs, python, retry, again))
    rows = done.rows(grid.compared)
    if output is Format.TEXT:
        print_text(done, rows, grid.compared, everything)
    else:
        print_as = print_json if output is Format.JSON else print_csv
        print_as(rows, grid.compared, len(done.pending))
    sys.stdout.flush()
    if stopped:
        told = f"interrupted: {len(done.results)} of {len(done.keys)} points are kept in {done.store.path}"
        say(f"{told}; the same command goes on from there", error=True)
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(1 if any(row.result.error for row in rows) else 0)


def _results_path(what: Sequence[Path], given: Path | None) -> Path:
    named = what[0].with_suffix(".sqlite") if what[0].suffix == ".toml" else Path(_RESULTS)
    return given or named


@dataclass(frozen=True, slots=True)
class _Way:
    """How to measure the points, as given on the command line."""

    on: str
    jobs: int | None
    python: str | None
    retry: bool
    again: bool


def _run_sweep(grid: Grid, results: Path, way: _Way) -> tuple[Sweep, bool]:
    """Run the sweep; returns it, and whether it was interrupted."""
    from mase_server.sweep.running import Store, Sweep, plan_sweep

    around, keys = plan_sweep(grid.points(), results, way.python, grid.depends)
    found = Sweep(Store(results, around), keys, way.retry, way.again)
    if not found.pending:
        return found, False
    engine = _make_engine(way, found)
    try:
        with sweep_progress_bar(len(found.keys), len(found.results)) as tell:
            asyncio.run(found.run(engine, tell))
    except KeyboardInterrupt:
        return found, True
    return found, False


def _make_engine(way: _Way, found: Sweep) -> Engine:
    """The engine that measures the points; BadParameter for an unknown one."""
    from mase_server.sweep.running import Dask, Local, usual_jobs

    jobs = way.jobs or usual_jobs()
    if way.on == "local":
        return Local(jobs, way.python, found.wants, _check_point)
    if way.on == "dask":
        return Dask("", jobs, way.python)
    if way.on.startswith("dask://"):
        return Dask(f"tcp://{way.on.removeprefix('dask://')}", jobs, way.python)
    raise typer.BadParameter(f"{way.on!r} is none of local, dask and dask://HOST:PORT", param_hint="--on")


def _check_point(point: Point, passes: list[Pass]) -> Point:
    """The point with resolved names of passes; UsageError for an unknown pass or argument."""
    from mase_server.cli.steps import resolve_steps
    from mase_server.protocol.arguments import Step

    if not passes:
        return point
    steps = resolve_steps(map(Step.parse, point.pipeline), passes)
    return replace(point, pipeline=tuple(map(str, steps)))


@contextmanager
def _told_mistakes() -> Iterator[None]:
    """Turn usage errors into exit status 2 and failures into exit status 1."""
    from mase_server.cli.steps import UsageError
    from mase_server.sweep.grid import GridError
    from mase_server.sweep.running import EngineError, StoreError

    try:
        yield
    except (UsageError, GridError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    except (StoreError, EngineError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None


# The grid of `mase-server sweep`, from a file or from equivalent options.


@dataclass(frozen=True, slots=True)
class Options:
    """The options as typed, None for the others. An option overrides the entry of the grid file."""

    pipelines: Sequence[str] | None = None
    vary: Sequence[str] | None = None
    multipliers: str | None = None
    interval: str | None = None
    precision: str | None = None
    objectives: str | None = None
    model: str | None = None
    inputs: Sequence[str] | None = None


def grid_of(what: Sequence[Path], options: Options) -> Grid:
    """The grid from a file, or from models and options. UsageError, GridError."""
    grids = [path for path in what if path.suffix == ".toml"]
    if grids and len(what) > 1:
        raise UsageError(f"{grids[0]} is a grid: it names its models itself, so no other file may stand beside it")
    given: dict[str, Any] = {}
    if options.pipelines is not None:
        given["pipelines"] = tuple(tuple(map(str, parse_steps(shlex.split(text)))) for text in options.pipelines)
    if options.vary is not None:
        given["vary"] = dict(map(_parse_vary_option, options.vary))
    if options.objectives is not None:
        given["objectives"] = tuple(split_texts(options.objectives))
    budgets = _parse_budgets(options)
    if grids:
        found = read_grid(grids[0])
        hardware = {**(found.hardware or {}), **budgets} if budgets else found.hardware
        return replace(found, hardware=hardware, **given)
    given["hardware"] = budgets or None
    models = models_of([canonical_path(path) for path in what], Path.cwd())
    named = (replace(each, model=options.model or "", inputs=tuple(options.inputs or ())) for each in models)
    return Grid(tuple(named), **given)


def _parse_vary_option(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not values:
        raise UsageError(f"{text!r} says no values; an example: --vary width=4,6,8")
    return name, tuple(split_texts(values))


def _parse_budgets(options: Options) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("multipliers", "interval"):
        if (text := getattr(options, name)) is not None:
            found[name] = tuple(_parse_whole_number(name, each) for each in split_texts(text))
    if options.precision is not None:
        found["precision"] = tuple(split_texts(options.precision))
    return found


def _parse_whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{name} has {text!r}; it takes whole numbers, e.g. --{name} 16,64") from None


# The progress of a sweep: a bar with the remaining time, on standard error and only on a terminal.


@contextmanager
def sweep_progress_bar(total: int, known: int) -> Iterator[Callable[[Point, Result], None]]:
    """Yield the function to call with each result. On a terminal, errors are printed above the bar.

    The report has them, too.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("starting", total=total, completed=known)

        def tell(point: Point, result: Result) -> None:
            bar.update(task, advance=1, description=str(point))
            if result.error and console.is_terminal:
                print_styled(f"error: {point}: {result.error}", "red", error=True)

        yield tell


# The output of `mase-server sweep`: for each model the points that no other point beats, or all points.

#: Figures that are shown although they are not compared.
_TOLD = ("max_error", "multipliers", "latency")


def print_text(sweep: Sweep, rows: Sequence[Row], objectives: Sequence[Figure], everything: bool) -> None:
    """Print for people: a table for each model; colours only on a terminal."""
    for line in _report_lines(rows, objectives, everything):
        print_styled(line, "bold" if line.startswith("*") else "")
    failed = [row for row in rows if row.result.error]
    if failed:
        again = "; --retry tries again" if any(row.result.kind in ("died", "limit") for row in failed) else ""
        print_styled(f"{format_count(len(failed), 'point')} failed{again}", "red")
        for row in failed:
            print_styled(f"  {row.point}: {row.result.error}")
    print_styled(f"{format_count(len(rows), 'point')} of {len(sweep.keys):,} in {sweep.store.path}")


def _report_lines(rows: Sequence[Row], objectives: Sequence[Figure], everything: bool) -> Iterator[str]:
    names = " and ".join(f"{'high' if each.more_is_better else 'low'} {each.name}" for each in objectives)
    for file, model in dict.fromkeys((row.point.file, row.result.model) for row in rows):
        mine = [row for row in rows if (row.point.file, row.result.model) == (file, model) and row.result.figures]
        best = [row for row in mine if row.best]
        if not mine:
            continue
        yield reveal(f"{from_here(file)}: {model}")
        yield f"{format_count(len(best), 'point')} of {len(mine):,} that no other point beats in {names}"
        yield from _sweep_table(_sort_by_objectives(mine if everything else best, objectives), objectives)
        facts = mine[0].result.facts
        if facts.get("inputs"):
            yield f"measured with {facts.get('weights')} on {facts['inputs']}"
        yield ""


def _sort_by_objectives(rows: Sequence[Row], objectives: Sequence[Figure]) -> list[Row]:
    def place(row: Row) -> list[float]:
        values = ((each, row.result.figures.get(each.name)) for each in objectives)
        return [math.inf if value is None else -value if each.more_is_better else value for each, value in values]

    return sorted(rows, key=place)


def _sweep_table(rows: Sequence[Row], objectives: Sequence[Figure]) -> Iterator[str]:
    names = [each.name for each in objectives] + [name for name in _TOLD if FIGURES[name] not in objectives]
    shown = [name for name in names if any(row.result.figures.get(name) is not None for row in rows)]
    budgets = ["budget"] if any(row.point.budget for row in rows) else []
    head = ("", "pipeline", *budgets, *(name.replace("_", " ") for name in shown))
    cells = [
        ["*" if row.best else "", row.point.passes, *([row.point.budget] if budgets else [])]
        + [_figure_cell(row.result.figures.get(name)) for name in shown]
        for row in rows
    ]
    return align_table_columns(head, cells, range(2 + len(budgets), len(head)))


def _figure_cell(value: float | None) -> str:
    if value is None or math.isinf(value):
        return "" if value is None else "exact"
    return f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:.4g}"


#: A point with its figures by their names, see `sweep.points.FIGURES`.
PointRow = dict[str, Plain]


def row_map(row: Row) -> PointRow:
    """A point in the form of the JSON. sqnr is "inf" if nothing differs; a missing figure is None."""
    figures = {name: row.result.figures.get(name) for name in FIGURES}
    return {
        "file": from_here(row.point.file),
        "model": row.result.model,
        "inputs": list(row.point.inputs),
        "pipeline": list(row.point.pipeline),
        "name": row.point.name,
        "build": None if row.point.build is None else dict(row.point.build),
        "best": row.best,
        **{name: "inf" if value is not None and math.isinf(value) else value for name, value in figures.items()},
        "error": row.result.error,
        "kind": row.result.kind,
        "facts": dict(row.result.facts),
        "seconds": row.result.seconds,
    }


def print_json(rows: Sequence[Row], objectives: Sequence[Figure], pending: int) -> None:
    """Print one JSON object. pending: the number of points not yet measured."""
    told = {"objectives": [each.name for each in objectives], "pending": pending, "points": list(map(row_map, rows))}
    say_json(told)


def print_csv(rows: Sequence[Row], objectives: Sequence[Figure], pending: int) -> None:
    """Print CSV: a line with the names, then a line for each point."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("file", "model", "pipeline", "budget", "best", *FIGURES, "name", "error"))
    for row in rows:
        told = row_map(row)
        figures = ["" if told[name] is None else told[name] for name in FIGURES]
        pipeline = "; ".join(row.point.pipeline)
        start = (told["file"], row.result.model, pipeline, row.point.budget, int(row.best))
        cells = (*start, *figures, row.point.name, row.result.error)
        writer.writerow([reveal(each) if isinstance(each, str) else each for each in cells])
