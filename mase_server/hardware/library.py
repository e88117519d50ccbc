"""The components of `rtl/`: where their files are, and which ones a design needs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).resolve()

#: Beside the package in a checkout; where it is installed, in its environment's folder for data: five levels above are
#: `lib/python3.x/site-packages/mase_server/hardware`.
_PLACES = (_HERE.parents[2] / "rtl", _HERE.parents[min(5, len(_HERE.parents) - 1)] / "share" / "mase-server" / "rtl")


@cache
def rtl_folder() -> Path:
    """The folder of the components. FileNotFoundError where it was not installed."""
    for place in _PLACES:
        if (place / "fixed_cast.sv").exists():
            return place
    raise FileNotFoundError(f"the components are missing: {_PLACES[0]} is no folder with fixed_cast.sv")


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
