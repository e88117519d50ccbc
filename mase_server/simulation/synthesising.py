"""An emitted folder synthesised for ECP5 with Yosys: what it really takes."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mase_server.programs import find_program
from mase_server.simulation.building import Progress
from mase_server.simulation.processes import SimulationError, demand

_INSTALL = "On Debian or Ubuntu: sudo apt-get install yosys."
#: What is told -> the cells of ECP5 that it counts, and how many each stands for.
CELLS: Mapping[str, Mapping[str, int]] = {
    "luts": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    "flip_flops": {"TRELLIS_FF": 1},
    "multipliers": {"MULT18X18D": 1},
    "memories": {"DP16KD": 1},
}


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The resources of a design on ECP5. luts: four-input tables, including those of carries and of small memories.

    memories: blocks of 16 kbit.  cells: all of them by kind.
    """

    luts: int
    flip_flops: int
    multipliers: int
    memories: int
    cells: Mapping[str, int]

    def to_wire(self) -> dict[str, Any]:
        """As a map."""
        return asdict(self)


async def synthesise(folder: Path, module: str, progress: Progress, limit: float = 1800.0) -> Synthesis:
    """Synthesise the top module of a folder. SimulationError where Yosys is missing, fails, or takes too long."""
    yosys = find_program(os.environ.get("YOSYS", "yosys"))
    if yosys is None:
        raise SimulationError(f"Yosys is not installed. {_INSTALL}")
    progress("synthesising", None)
    files = (folder / "files.f").read_text(encoding="utf-8").split()
    with tempfile.TemporaryDirectory() as name:
        told = Path(name) / "stat.json"
        steps = (
            f"read_verilog -sv -defer {' '.join(files)}",
            f"synth_ecp5 -top {module}",
            f"tee -q -o {told} stat -json",
        )
        try:
            async with asyncio.timeout(limit):
                await demand([yosys, "-q", "-p", "; ".join(steps)], folder)
        except TimeoutError:
            raise SimulationError(f"Yosys did not finish within {limit:g} s") from None
        return counted(json.loads(told.read_text(encoding="utf-8"))["design"]["num_cells_by_type"])


def counted(cells: Mapping[str, int]) -> Synthesis:
    """The figures of some cells."""
    figures = {key: sum(cells.get(cell, 0) * times for cell, times in row.items()) for key, row in CELLS.items()}
    return Synthesis(**figures, cells=dict(sorted(cells.items())))
