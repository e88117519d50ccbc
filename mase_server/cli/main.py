"""`mase-server`: the entry point.

`lsp` runs before typer is imported, because an editor waits for it. So does `shapes` for files that a running daemon
has, and `report`, because the server in the extension has no typer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mase_server.programs import isolate_libraries
from mase_server.reading import is_file


def main() -> None:
    """Run the command given by the arguments."""
    isolate_libraries()
    arguments = sys.argv[1:]
    if arguments[:1] == ["lsp"]:
        from mase_server.cli.lsp import run_lsp

        run_lsp(arguments[1:])
    elif arguments[:1] == ["report"]:
        from mase_server.cli.collecting import run_report as report

        report(arguments[1:])
    elif (status := _run_quick_command(arguments)) is not None:
        sys.exit(status)
    else:
        from mase_server.cli.commands import app

        app(prog_name="mase-server")


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
    return 1 if any(report.has_errors for report in told) else 0
