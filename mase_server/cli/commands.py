"""The commands that a person types."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mase_server.cli.session import Wanted, trace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A live compiler explorer for PyTorch models.",
)
_Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True, help="Model files.")]


class Format(StrEnum):
    """How `shapes` prints."""

    TEXT = "text"
    JSON = "json"


@app.command()
def shapes(
    files: _Files,
    output: Annotated[
        Format, typer.Option("--format", help="Source with hints, or JSON, a file a line.")
    ] = Format.TEXT,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    model: Annotated[str | None, typer.Option(help="The class to trace.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Calls and sub-expressions too.")] = False,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
) -> None:
    """Show every tensor's shape. Exit status: 0 shown, 1 errors found, 2 wrong usage."""
    wanted = Wanted(files=tuple(files), model=model, inputs=tuple(inputs or ()), python=python)
    outcomes = asyncio.run(trace(wanted))
    if output is Format.JSON:
        from mase_server.cli.report import print_json

        print_json(outcomes, everything)
    else:
        from mase_server.cli.listing import print_text

        print_text(outcomes, everything)
    sys.stdout.flush()
    if any(outcome.was_misused for outcome in outcomes):
        raise typer.Exit(2)
    raise typer.Exit(1 if any(outcome.has_errors for outcome in outcomes) else 0)


@app.command()
def trust(
    folder: Annotated[Path, typer.Argument(metavar="PATH", exists=True, file_okay=False)],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the trust back.")] = False,
) -> None:
    """Let the server run the model files of a folder, in every editor."""
    from mase_server.cli.trusting import keep

    print(keep(folder, revoke))


@app.command()
def lsp() -> None:
    """Serve an editor: see `mase-server lsp --help`."""
    from mase_server.cli.lsp import lsp as serve

    serve(sys.argv[2:])
