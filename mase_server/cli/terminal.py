"""Where the output goes, and whether colours are welcome there. The only place that prints: all of it is visible."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from mase_server.visible import dump_json, reveal_lines


def say(text: str = "", *, error: bool = False) -> None:
    """Print a text and the end of its line; on standard error, if it is no answer."""
    print(reveal_lines(text), file=sys.stderr if error else sys.stdout, flush=True)


def say_json(value: Any, *, indent: int | None = None, default: Any = None, error: bool = False) -> None:
    """Print plain data for programs: visible too, since a person may look at it, and read back it is what it was."""
    print(dump_json(value, indent, default), file=sys.stderr if error else sys.stdout, flush=True)


def is_coloured(stream: TextIO) -> bool:
    """Colours: on a terminal, unless NO_COLOR is set or it is a dumb one; and wherever FORCE_COLOR asks for them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
