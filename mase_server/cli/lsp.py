"""`mase-server lsp`: the language server."""

from __future__ import annotations

import argparse
from typing import NoReturn

from mase_server.lsp.process import run
from mase_server.observe.logs import LEVELS


def lsp(arguments: list[str]) -> NoReturn:
    """Serve one editor. Exit status: 0 after an orderly end, 1 else, 2 for wrong arguments."""
    options = parser().parse_args(arguments)
    run(trusted=options.trust, log=options.log, address=options.tcp)


def parser() -> argparse.ArgumentParser:
    """What the command line of `mase-server lsp` takes."""
    made = argparse.ArgumentParser("mase-server lsp", description="Serve an editor, over stdio unless told otherwise.")
    made.add_argument("--stdio", action="store_true", help="speak over standard input and output (the default)")
    made.add_argument("--tcp", metavar="HOST:PORT", type=_address, help="wait for one editor there instead")
    made.add_argument("--trust", action="store_true", help="trust every folder that the editor opens")
    made.add_argument("--log", choices=LEVELS, default="warning", help="what goes to standard error")
    made.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)
    return made


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT, e.g. 127.0.0.1:8765")
    return host.strip("[]"), int(port)
