"""`mase-server`: the entry point.

`lsp` is taken before typer is imported: an editor waits for it. So is `shapes` of files that a running daemon has, and
`report`, which the server that an extension brings can make without typer.
"""

from __future__ import annotations

import sys

from mase_server.programs import isolate_libraries


def main() -> None:
    """Run the command that the arguments name."""
    isolate_libraries()
    arguments = sys.argv[1:]
    if arguments[:1] == ["lsp"]:
        from mase_server.cli.lsp import lsp

        lsp(arguments[1:])
    elif arguments[:1] == ["report"]:
        from mase_server.cli.collecting import main as report

        report(arguments[1:])
    elif (status := _quick(arguments)) is not None:
        sys.exit(status)
    else:
        from mase_server.cli.commands import app

        app(prog_name="mase-server")


def _quick(arguments: list[str]) -> int | None:
    """The exit status of what could be done at once, see `quick`; None for all else."""
    if arguments == ["--version"]:
        from mase_server import __version__
        from mase_server.cli.terminal import say

        say(f"mase-server {__version__}")
        return 0
    if arguments[:1] != ["shapes"]:
        return None
    from mase_server.cli.quick import shapes

    return shapes(arguments[1:])
