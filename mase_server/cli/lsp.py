"""`mase-server lsp`: the language server. It loads no command line library, because an editor waits for it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mase_server.lsp.process import serve_editor
from mase_server.private import describe_os_error
from mase_server.rpc.registry import NO_TCP, TcpAddress, tcp_address
from mase_server.telemetry.logs import LEVELS

if TYPE_CHECKING:
    pass


def run_lsp(arguments: list[str]) -> NoReturn:
    """Serve one editor. Exit status: 0 after an orderly end, 1 otherwise, 2 for wrong arguments."""
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
    try:
        return tcp_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
