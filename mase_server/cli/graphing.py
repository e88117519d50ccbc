"""`mase-server graph` and `mase-server draw`: the graph of one model."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mase_server.cli.completing import models
from mase_server.cli.terminal import say

_File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")]
_Model = Annotated[str | None, typer.Option(help="The model, if the file has several.", autocompletion=models)]
_Inputs = Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")]
_Python = Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")]
_Daemon = Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")]


class Output(StrEnum):
    """How `graph` prints."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"


class Colours(StrEnum):
    """The meaning of the colours in a drawing."""

    FAMILY = "family"
    FORMAT = "format"


def graph(
    file: _File,
    output: Annotated[
        Output, typer.Option("--format", help="A table by modules, JSON, Graphviz, or Mermaid.")
    ] = Output.TEXT,
    model: _Model = None,
    scope: Annotated[str | None, typer.Option(help="One module with everything below it, by its path.")] = None,
    inputs: _Inputs = None,
    python: _Python = None,
    daemon: _Daemon = True,
) -> None:
    """Show the graph of a model: its operators by modules, with shapes, where they come from, and costs.

    Examples:

        mase-server graph net.py --scope encoder.layers.0

        mase-server graph net.py --format dot | dot -Tpdf -o net.pdf

        mase-server graph net.py --format json | jq '.nodes[].mase_op'

    Exit status: 0 shown, 1 there is no graph, 2 wrong usage.
    """
    from mase_server.cli import graph_diagrams, graph_text
    from mase_server.cli.asking import Subject
    from mase_server.cli.graph_data import fetch

    with _told():
        found = fetch(Subject(file, tuple(inputs or ()), python, daemon), model, scope)
    printers = {
        Output.TEXT: graph_text.print_text,
        Output.JSON: graph_text.print_json,
        Output.DOT: graph_diagrams.print_dot,
        Output.MERMAID: graph_diagrams.print_mermaid,
    }
    printers[output](found)
    sys.stdout.flush()


def draw(
    file: _File,
    target: Annotated[Path, typer.Option("-o", "--output", help="The SVG file; - is standard output.")],
    model: _Model = None,
    colours: Annotated[Colours, typer.Option(help="Colours by family of operators, or number format.")] = (
        Colours.FAMILY
    ),
    original: Annotated[bool, typer.Option("--original", help="Leave out the passes of a running daemon.")] = False,
    inputs: _Inputs = None,
    python: _Python = None,
    daemon: _Daemon = True,
) -> None:
    """Draw the graph of a model as SVG: nested by modules, shapes on the edges; modules fold by a click.

    The interpreter of the model needs igraph: pip install igraph.

    Examples:

        mase-server draw net.py -o net.svg

        mase-server draw net.py -o - --model Encoder | rsvg-convert > net.png

    Exit status: 0 drawn, 1 there is no graph or it cannot be drawn, 2 wrong usage.
    """
    from mase_server.cli.asking import Subject
    from mase_server.cli.graph_data import drawing

    place = {"model": model, "original": original or None, "colours": colours.value}
    with _told():
        svg = drawing(Subject(file, tuple(inputs or ()), python, daemon), place)
    if str(target) == "-":
        say(svg)
        return
    try:
        target.write_text(svg, "utf-8")
    except OSError as error:
        say(f"error: cannot write {target}: {error.strerror}", error=True)
        raise typer.Exit(2) from None


class _told:
    """A refusal ends the program with status 1."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from mase_server.cli.asking import Refused

        if isinstance(error, Refused):
            say(f"error: {error}", error=True)
            raise typer.Exit(1) from None
