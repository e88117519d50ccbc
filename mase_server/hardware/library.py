"""The components of `rtl/`: which ones a design needs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from mase_server.components import rtl_folder


def components(*roots: str) -> list[Path]:
    """The files of some components and of all that they instantiate, sorted. ValueError for one that there is not."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = rtl_folder() / f"{waiting.pop()}.sv"
        if not path.exists():
            raise ValueError(f"there is no component {path.stem}; rtl/README.md lists them")
        if path not in found:
            found.add(path)
            waiting += _instantiated(path)
    return sorted(found)


@cache
def _instantiated(path: Path) -> tuple[str, ...]:
    text = path.read_text(encoding="utf-8")
    names = (each.stem for each in rtl_folder().glob("*.sv"))
    return tuple(name for name in names if re.search(rf"^\s*{name} (#\(|\w+ \()", text, re.MULTILINE))
