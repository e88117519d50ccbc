"""How far a sweep is: a bar with the time that is left, on standard error and only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mase_server.cli.lines import print_styled
from mase_server.sweep.points import Point, Result


@contextmanager
def progress(total: int, known: int) -> Iterator[Callable[[Point, Result], None]]:
    """Gives what is told of each point. On a terminal errors stay above the bar; the report has them in any case."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("starting", total=total, completed=known)

        def tell(point: Point, result: Result) -> None:
            bar.update(task, advance=1, description=str(point))
            if result.error and console.is_terminal:
                print_styled(f"error: {point}: {result.error}", "red", error=True)

        yield tell
