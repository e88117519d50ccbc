"""The `mase-server` commands with their options and help texts; the work is done in other modules."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mase_server.cli.steps import complete_models, pass_names
from mase_server.cli.terminal import say
from mase_server.daemon.trust import grant_trust, revoke_trust, warn_of_folder
from mase_server.private import state_dir
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.cli.reports import Report


# `mase-server trust`: the user's permission to run the files of a folder.


def keep_trust(folder: Path, taken_back: bool) -> str:
    """Grant or revoke trust; returns a sentence about it. OSError if that cannot be stored."""
    path = str(folder.resolve())
    name = reveal(path)
    if taken_back:
        return f"{name} is no longer trusted." if revoke_trust(state_dir(), path) else f"{name} was not trusted."
    grant_trust(state_dir(), path)
    for warning in warn_of_folder(path):
        say(f"warning: {warning} `--revoke` revokes the trust.", error=True)
    return f"{name} is trusted: its model files run when an editor opens them."


_HELP = """A live compiler explorer for PyTorch models.

Begin with `mase-server shapes FILE`: it shows every tensor's shape beside the code and needs no preparation.
`mase-server doctor` finds problems of your environment.

Exit status of every command: 0 for success, 1 for a failure or for problems that it found, 2 for wrong usage.
"""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=_HELP,
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Options before the command."""
    if version:
        from mase_server import __version__

        say(f"mase-server {__version__}")
        raise typer.Exit(0)


_Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True, help="Model files.")]


#: Stands for standard input among the files.
_STDIN = Path("-")


class Format(StrEnum):
    """The output format of `shapes`."""

    TEXT = "text"
    JSON = "json"


@app.command()
def shapes(
    files: Annotated[
        list[Path],
        # A path type of text, because typer looks for a file `-` otherwise.
        typer.Argument(
            exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=str, help="Model files; - is stdin."
        ),
    ],
    output: Annotated[
        Format, typer.Option("--format", help="Source with hints, or one line of JSON per file.")
    ] = Format.TEXT,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    model: Annotated[str | None, typer.Option(help="The class to trace.", autocompletion=complete_models)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show calls and sub-expressions, too.")] = False,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
    watching: Annotated[bool, typer.Option("--watch", help="Show again at every save, until interrupted.")] = False,
    named: Annotated[
        str | None, typer.Option("--set", help="A named set of inputs, as in `# mase[small]: ...`.")
    ] = None,
    stdin_path: Annotated[
        Path, typer.Option(help="The file that the text from stdin stands in for; it need not exist.")
    ] = Path("stdin.py"),
) -> None:
    """Show every tensor's shape beside the code that makes it.

    A daemon that serves the folder (an editor's, or `mase-server serve`) answers at once. Without a daemon, and with
    --input, --set, --model or --python, the command traces the files itself.

    Examples:

        mase-server shapes net.py

        mase-server shapes --watch net.py

        mase-server shapes - --stdin-path net.py < unsaved.py

        mase-server shapes --format json models/*.py | jq '.models[].parameters'

    Exit status: 0 shown, 1 errors found, 2 wrong usage.
    """
    from mase_server.cli.showing import Asked, show_reports

    named_files = [Path(each) for each in files]
    texts = {stdin_path: sys.stdin.buffer.read()} if _STDIN in named_files and not watching else {}
    shown = tuple(stdin_path if file == _STDIN else file for file in named_files)
    asked = Asked(shown, everything, output is Format.JSON, model, tuple(inputs or ()), python, daemon, named, texts)
    if watching and _STDIN in named_files:
        say("error: --watch shows files again when they are saved, and standard input is read once", error=True)
        raise typer.Exit(2)
    if texts and not stdin_path.parent.is_dir():
        say(f"error: there is no folder {reveal(str(stdin_path.parent))}", error=True)
        raise typer.Exit(2)
    if watching:
        from mase_server.cli.watching import watch_files

        raise typer.Exit(watch_files(asked))
    raise typer.Exit(show_reports(asked))


@app.command()
def passes(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE] [PASS]...", help="A model file, and passes to describe.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="A table, or a JSON list.")] = Format.TEXT,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
) -> None:
    """List the passes, including those of the workspace, or describe the named ones.

    Examples:

        mase-server passes

        mase-server passes net.py quantize

    Exit status: 0 listed, 1 they cannot be listed, 2 wrong usage.
    """
    from mase_server.cli.applying import list_passes, print_passes, print_passes_json
    from mase_server.reading import is_file

    wanted = what or []
    with _told_mistakes(), _command_progress() as tell:
        found = list_passes(wanted, python, tell)
    if output is Format.JSON:
        print_passes_json(found)
    else:
        print_passes(found, whole=any(not word.endswith(".py") and not is_file(word) for word in wanted))


class Show(StrEnum):
    """The additional output of `apply`."""

    CODE = "code"
    SHAPES = "shapes"


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")],
    steps: Annotated[
        list[str],
        typer.Argument(
            metavar="PASS [KEY=VALUE]...", help="Passes, each with its arguments after it.", autocompletion=pass_names
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="The model to apply them to, if the file has several.", autocompletion=complete_models),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="A table, or a JSON object.")] = Format.TEXT,
    show: Annotated[Show | None, typer.Option(help="Show the resulting code or shapes, too.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List operators that only move values, too.")] = False,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
) -> None:
    """Apply passes to a model and report their effect. The command writes no file.

    Examples:

        mase-server apply net.py remove_dropout quantize default='fixed(8,4)'

        mase-server apply net.py prune weight.sparsity=0.5 --show shapes

    Exit status: 0 applied, 1 a pass failed or there is no model, 2 wrong usage.
    """
    from mase_server.cli import applying
    from mase_server.cli.applying import Request
    from mase_server.cli.applying import apply_passes as run
    from mase_server.cli.session import Wanted
    from mase_server.cli.steps import parse_steps

    with _told_mistakes(), _command_progress() as tell:
        wanted = Wanted((file,), inputs=tuple(inputs or ()), python=python)
        done = asyncio.run(run(Request(wanted, tuple(parse_steps(steps)), model, show is Show.CODE), tell))
    if output is Format.JSON:
        applying.print_json(done)
    else:
        applying.print_text(done, everything)
        _show_more(done.code, done.report if show is Show.SHAPES else None)
    sys.stdout.flush()
    raise typer.Exit(0 if done.was_applied else 1)


def _show_more(code: str | None, report: Report | None) -> None:
    if code is not None:
        say(f"\n{code.rstrip()}")
    if report is not None:
        from mase_server.cli.showing import print_text

        say()
        print_text([report], False)


@contextmanager
def _told_mistakes() -> Iterator[None]:
    """Turn usage errors into exit status 2 and failures into exit status 1."""
    from mase_server.cli.steps import UsageError
    from mase_server.daemon.pipelines import PassError

    try:
        yield
    except UsageError as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    except PassError as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None


@contextmanager
def _command_progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: on standard error, and only on a terminal."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda told: status.update(Text(reveal(told)))


@app.command()
def verilog(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", file_okay=False, help="Write everything to this folder.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model, if the file has several.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Format of a model that no pass has quantised, e.g. 'fixed(8,4)'.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Calibrate formats on this file of tensors, or on file.py:function; see docs/hardware.md."),
    ] = None,
    multipliers: Annotated[
        int | None, typer.Option(min=0, help="Use at most so many, as fast as they allow; with 0, additions.")
    ] = None,
    interval: Annotated[int | None, typer.Option(min=1, help="Take at most so many cycles for a sample.")] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, help="Have at most so many copies take samples in turn; 1: the least memory.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="One module or operation alone, by its path or name.")] = None,
    passes: Annotated[
        list[str] | None, typer.Option("--pass", help="A pass to apply first, e.g. \"prune(scope='local')\".")
    ] = None,
    simulate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run N random samples, and compare every integer.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Run the samples of this .npz; write the results beside it."),
    ] = None,
    stall: Annotated[int, typer.Option(min=0, max=99, help="Pause both sides in so many percent of the cycles.")] = 0,
    reset: Annotated[
        int | None, typer.Option(min=1, metavar="CYCLE", help="Reset at this cycle, in flight, and begin again.")
    ] = None,
    wave: Annotated[
        Path | None,
        typer.Option(
            metavar="VCD",
            dir_okay=False,
            help="Write a waveform of the simulation, and a picture of who waits for whom.",
        ),
    ] = None,
    wave_from: Annotated[
        int | None,
        typer.Option(min=0, metavar="CYCLE", help="Its first cycle; else the first mismatch or result decides."),
    ] = None,
    wave_cycles: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Its length; else about 1,000 cycles of whole samples.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="PART", help="The part that it has to fit, e.g. ecp5-85k; sky130 for a chip."),
    ] = None,
    bus: Annotated[
        str | None, typer.Option(metavar="BUS", help="Put it on a bus: axi (32 bits a beat), or axi64 to axi512.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="BUS",
            help="Read weights from a memory outside, through a port as of --bus: with --target those that do not fit, "
            "else all.",
        ),
    ] = None,
    reset_style: Annotated[
        str | None, typer.Option(metavar="STYLE", help="How the reset acts on registers: synchronous or asynchronous.")
    ] = None,
    max_multipliers: Annotated[int | None, typer.Option(min=1, help="Refuse a design with more.")] = None,
    max_memory_bits: Annotated[int | None, typer.Option(min=1, help="Refuse a design with more.")] = None,
    synthesize: Annotated[bool, typer.Option("--synthesize", help="Count its resources on ECP5, with Yosys.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a folder that holds other files.")] = False,
    output: Annotated[Format, typer.Option("--format", help="A report, or a JSON object.")] = Format.TEXT,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")] = None,
) -> None:
    """Make SystemVerilog from a model: the top module on standard output, or with -o a folder that stands alone.

    The model needs no preparation: the command quantises what has no fixed-point format to --precision, by default
    to fixed(8,auto), whose points it calibrates on --data. Without --multipliers and --interval every layer has one
    multiplier.

    Examples:

        mase-server verilog net.py -o out --multipliers 64 --simulate 1000

        mase-server verilog net.py --vectors samples.npz --format json

    Exit status: 0 made and, if simulated, equal; 1 the hardware gives other integers or stands still; 2 wrong usage,
    no hardware for a part, a design over the limits, or a missing tool.
    """
    from mase_server.cli import verilog as verilog_report
    from mase_server.cli.session import Wanted
    from mase_server.cli.verilog import Request, emit_hardware
    from mase_server.simulation.waves import Wave

    asked = {"precision": precision, "data": data, "multipliers": multipliers, "interval": interval, "scope": scope}
    asked |= {
        "copies": copies,
        "target": target,
        "bus": bus,
        "weights": weights,
        "reset_style": reset_style,
        "max_multipliers": max_multipliers,
        "max_memory_bits": max_memory_bits,
    }
    with _told_mistakes(), _command_progress() as tell:
        request = Request(
            Wanted((file,), inputs=tuple(inputs or ()), python=python),
            {key: value for key, value in asked.items() if value is not None},
            tuple(passes or ()), model, folder, overwrite, simulate, vectors, stall, reset, synthesize,
            None if wave is None else Wave(wave, wave_from, wave_cycles),
        )  # fmt: skip
        made = asyncio.run(emit_hardware(request, tell))
    if output is Format.JSON:
        verilog_report.print_json(made)
    else:
        verilog_report.print_text(made)
    sys.stdout.flush()
    raise typer.Exit(made.status)


@app.command()
def trust(
    folder: Annotated[Path, typer.Argument(metavar="PATH", exists=True, file_okay=False)],
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the trust.")] = False,
) -> None:
    """Let daemons run the model files in and below a folder, in every editor and for every tool.

    Examples:

        mase-server trust ~/project

        mase-server trust --revoke ~/project

    Exit status: 0 saved, 1 it cannot be saved, 2 wrong usage.
    """
    from mase_server.private import describe_os_error

    try:
        say(keep_trust(folder, revoke))
    except OSError as error:
        say(f"error: {describe_os_error(error)}", error=True)
        raise typer.Exit(1) from None


def report() -> None:
    """Collect facts for a bug report, without source code: see `mase-server report --help`."""
    from mase_server.cli.collecting import run_report

    run_report(sys.argv[2:])


def lsp() -> None:
    """Serve an editor: see `mase-server lsp --help`."""
    from mase_server.cli.main import run_lsp as serve

    serve(sys.argv[2:])


#: The commands of other modules, and the modules; each starts faster without the imports of the others.
_ELSEWHERE = {
    "check": "checking", "graph": "graphing", "draw": "graphing", "inputs": "inputs", "workers": "serving",
    "doctor": "doctor", "serve": "serving", "view": "viewing", "sweep": "sweep", "compile": "graphing",
    "rpc": "serving", "costs": "costing",
}  # fmt: skip


@cache
def build_app(only: str | None = None) -> typer.Typer:
    """The command line. If `only` is a command of another module, the other modules' commands are left out."""
    for name in [only] if only in _ELSEWHERE else _ELSEWHERE:
        module = import_module(f"mase_server.cli.{_ELSEWHERE[name]}")
        settings = {"ignore_unknown_options": True} if name == "rpc" else None
        function = module.compile_model if name == "compile" else getattr(module, name)
        app.command(name, context_settings=settings)(function)
    app.command()(report)
    app.command()(lsp)
    return app
