"""Where the output goes, and whether colours are welcome there."""

from __future__ import annotations

import os
from typing import TextIO


def is_coloured(stream: TextIO) -> bool:
    """Colours: on a terminal, unless NO_COLOR is set or it is a dumb one; and wherever FORCE_COLOR asks for them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
