"""`mase-server check`: what is wrong with the models of some files and folders."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mase_server.cli.terminal import say
from mase_server.reading import exists
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.cli.checked import Checked
    from mase_server.cli.reports import Report

#: How often fixes are applied: one may uncover the next error.
_ROUNDS = 5


class Output(StrEnum):
    """How `check` prints."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class Worst(StrEnum):
    """From which severity on a problem makes the exit status 1."""

    ERROR = "error"
    WARNING = "warning"


def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATHS]...", exists=True, help="Files and folders; the current folder by default."),
    ] = None,
    output: Annotated[
        Output, typer.Option("--format", help="For people, programs, code scanning, or GitHub's annotations.")
    ] = Output.TEXT,
    fail_on: Annotated[Worst, typer.Option(help="The lowest severity that makes the exit status 1.")] = Worst.ERROR,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the fixes with which the file was traced without an error.")
    ] = False,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
) -> None:
    """Find mistakes in models without running them on data: shapes, types, devices, names, configurations.

    In a folder, the command checks only the files that define or build an nn.Module, and follows git's ignore rules. It
    executes the code of these files, on tensors without data: check only files that you trust.

    Examples:

        mase-server check

        mase-server check src/models --format sarif > mase.sarif

        mase-server check net.py --fix

    Exit status: 0 no problems, 1 problems found, 2 wrong usage.
    """
    from mase_server.cli.files import found

    files = found(paths or [Path()])
    checked = _checked(files.models, len(files.others), python, daemon)
    for _ in range(_ROUNDS if fix else 0):
        if not _mended(checked):
            break
        checked = _checked(files.models, len(files.others), python, daemon)
    _print(checked, output)
    sys.stdout.flush()
    raise typer.Exit(1 if checked.fails(fail_on.value) else 0)


def _checked(files: list[Path], others: int, python: str | None, daemon: bool) -> Checked:
    from mase_server.cli.checked import Checked, in_order

    with _progress(len(files)) as advance:
        reports = dict(_reports(files, python, daemon, advance))
    return Checked(in_order(files, reports), others, _root())


def _reports(
    files: list[Path], python: str | None, daemon: bool, advance: Callable[[str], None]
) -> Iterator[tuple[Path, Report]]:
    from mase_server.cli import attached

    done = set()
    for file, report in attached.each(files) if daemon and python is None else ():
        done.add(file)
        advance(report.file)
        yield file, report
    missing = tuple(file for file in files if file not in done)
    if missing:
        yield from asyncio.run(_traced(missing, python, advance)).items()


async def _traced(files: tuple[Path, ...], python: str | None, advance: Callable[[str], None]) -> dict[Path, Report]:
    from mase_server.cli.session import Wanted, trace_each

    found = {}
    async for report in trace_each(Wanted(files, python=python)):
        advance(report.file)
        found[Path(report.file)] = report
    return found


def _mended(checked: Checked) -> bool:
    from mase_server.cli.fixing import mend

    mended = mend(checked)
    for title in mended:
        say(f"fixed {title}", error=True)
    return bool(mended)


def _print(checked: Checked, output: Output) -> None:
    from mase_server.cli import check_data, check_sarif, check_text

    printers = {
        Output.TEXT: check_text.print_text,
        Output.JSON: check_data.print_json,
        Output.SARIF: check_sarif.print_sarif,
        Output.GITHUB: check_data.print_github,
    }
    printers[output](checked)


def _root() -> Path:
    """The root of the repository that one is in, or else this folder."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if exists(folder / ".git")), here)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, on a terminal alone; gives what moves it on."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda file: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("checking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda file: bar.update(task, advance=1, description=reveal(file))
