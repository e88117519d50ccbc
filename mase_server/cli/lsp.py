"""`mase-server lsp`: the language server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from mase_server.directories import why
from mase_server.lsp.process import run
from mase_server.observe.logs import LEVELS
from mase_server.rpc.addresses import NO_TCP, TcpAddress, tcp_address


def lsp(arguments: list[str]) -> NoReturn:
    """Serve one editor. Exit status: 0 after an orderly end, 1 else, 2 for wrong arguments."""
    made = parser()
    options = made.parse_args(arguments)
    if options.token_file is not None and options.tcp is None:
        made.error(NO_TCP)
    try:
        run(trusted=options.trust, log=options.log, address=options.tcp, token_file=options.token_file)
    except (OSError, ValueError) as error:
        made.exit(1, f"error: {why(error) if isinstance(error, OSError) else error}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line of `mase-server lsp`."""
    made = argparse.ArgumentParser("mase-server lsp", description="Serve an editor, over stdio by default.")
    made.add_argument("--stdio", action="store_true", help="speak over standard input and output (the default)")
    made.add_argument("--tcp", metavar="127.0.0.1:PORT", type=_address, help="wait for one editor on loopback instead")
    told = "with --tcp: the file of the token that the editor sends as initializationOptions.token; created if missing"
    made.add_argument("--token-file", metavar="FILE", type=Path, help=told)
    made.add_argument("--trust", action="store_true", help="trust every folder that the editor opens")
    made.add_argument("--log", choices=LEVELS, default="warning", help="the level of the messages on standard error")
    made.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)
    return made


def _address(text: str) -> TcpAddress:
    try:
        return tcp_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
