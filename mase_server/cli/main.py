"""`mase-server`: the entry point.

`lsp` runs before typer is imported, because an editor waits for it. So does `shapes` for files that a running daemon
has, and `report`, because the server in the extension has no typer.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mase_server.programs import isolate_libraries
from mase_server.reading import is_file

if TYPE_CHECKING:
    from mase_server.rpc.registry import TcpAddress


def main() -> None:
    """Run the command given by the arguments."""
    isolate_libraries()
    arguments = sys.argv[1:]
    if arguments[:1] == ["lsp"]:
        run_lsp(arguments[1:])
    elif arguments[:1] == ["report"]:
        from mase_server.cli.collecting import run_report as report

        report(arguments[1:])
    elif (status := _run_quick_command(arguments)) is not None:
        sys.exit(status)
    else:
        from mase_server.cli.commands import build_app

        build_app(next(iter(arguments), None))(prog_name="mase-server")


def _run_quick_command(arguments: list[str]) -> int | None:
    """The exit status of a command that could run without typer; None for all others."""
    if arguments == ["--version"]:
        from mase_server import __version__
        from mase_server.cli.terminal import say

        say(f"mase-server {__version__}")
        return 0
    if arguments[:1] != ["shapes"]:
        return None
    return print_attached_shapes(arguments[1:])


# `mase-server lsp`: the language server, without a command line library.


def run_lsp(arguments: list[str]) -> NoReturn:
    """Serve one editor. Exit status: 0 after an orderly end, 1 otherwise, 2 for wrong arguments."""
    gc.disable()  # all that is imported stays, and an editor waits
    try:
        from mase_server.lsp.process import serve_editor
        from mase_server.private import describe_os_error
        from mase_server.rpc.registry import NO_TCP
    finally:
        gc.enable()

    made = lsp_parser()
    options = made.parse_args(arguments)
    if options.token_file is not None and options.tcp is None:
        made.error(NO_TCP)
    try:
        serve_editor(trusted=options.trust, log=options.log, address=options.tcp, token_file=options.token_file)
    except (OSError, ValueError) as error:
        made.exit(1, f"error: {describe_os_error(error) if isinstance(error, OSError) else error}\n")


def lsp_parser() -> argparse.ArgumentParser:
    """The parser of the command line of `mase-server lsp`."""
    from mase_server.telemetry.logs import LEVELS

    made = argparse.ArgumentParser("mase-server lsp", description="Serve an editor, over stdio by default.")
    made.add_argument("--stdio", action="store_true", help="speak over standard input and output (the default)")
    made.add_argument(
        "--tcp", metavar="127.0.0.1:PORT", type=_parse_tcp_argument, help="wait for one editor on loopback instead"
    )
    told = "with --tcp: the file of the token that the editor sends as initializationOptions.token; created if missing"
    made.add_argument("--token-file", metavar="FILE", type=Path, help=told)
    made.add_argument("--trust", action="store_true", help="trust every folder that the editor opens")
    made.add_argument("--log", choices=LEVELS, default="warning", help="the level of the messages on standard error")
    made.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)
    return made


def _parse_tcp_argument(text: str) -> TcpAddress:
    from mase_server.rpc.registry import tcp_address

    try:
        return tcp_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# `mase-server shapes FILE...` for files that a running daemon has, before any slow import.
#
# Only the plainest form is handled here. For every other form, and if a new process is needed, the command itself does
# the same work.

_FORMATS = {"--format=json": True, "--format=text": False}


def print_attached_shapes(arguments: list[str]) -> int | None:
    """Print the shapes and return the exit status; None, with nothing printed, if the command itself must run."""
    everything = "--all" in arguments
    formats = [each for each in arguments if each in _FORMATS]
    files = tuple(Path(each) for each in arguments if each not in ("--all", *_FORMATS))
    known = all(not str(file).startswith("-") and is_file(file) for file in files)
    if not files or not known or len(formats) > 1:
        return None
    from mase_server.cli.attached import cached_reports

    found = cached_reports(files, everything)
    if len(found) < len(set(files)):
        return None
    told = [found[file] for file in files]
    if formats and _FORMATS[formats[0]]:
        from mase_server.cli.showing import print_json

        print_json(told, everything)
    else:
        from mase_server.cli.showing import print_text

        print_text(told, everything)
    sys.stdout.flush()
    return max(report.status for report in told)
