"""Where the SystemVerilog components are. Standard library only: both halves read them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_HERE = Path(__file__).resolve()

#: Beside the package in a checkout; where it is installed, in its environment's folder for data: four levels above are
#: `lib/python3.x/site-packages/mase_server`.
_PLACES = (_HERE.parents[1] / "rtl", _HERE.parents[min(4, len(_HERE.parents) - 1)] / "share" / "mase-server" / "rtl")


@cache
def rtl_folder() -> Path:
    """The folder of the components. FileNotFoundError where it was not installed."""
    for place in _PLACES:
        if (place / "fixed_cast.sv").exists():
            return place
    raise FileNotFoundError(f"the components are missing: {_PLACES[0]} is no folder with fixed_cast.sv")
