"""`mase-server`: the entry point.

`lsp` is taken before typer is imported: an editor waits for it.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["lsp"]:
        from mase_server.cli.lsp import lsp

        lsp(arguments[1:])
    else:
        from mase_server.cli.commands import app

        app()
