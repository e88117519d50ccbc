"""One MLP as hardware by ours, da4ml and NNgen: seconds, lines, what Yosys makes of it, and cycles.

The same weights, in fresh processes, asked in turn; seconds are of the processor. Peers are installed into a virtual
environment that is made for them, and are left out with a reason where they cannot be. da4ml unrolls everything: a
vector each cycle, nothing multiplied, many tables. NNgen makes an accelerator with a bus of its own and keeps weights
outside; its cycles depend on that memory, and are not told. Ours is asked for 52 multipliers. None of the three is the
others' answer, and the table says what each costs.

Usage: python benchmarks/peers.py [--runs 3] [--environment FOLDER] [--limit 600]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from figures import tell
from rich.console import Console
from rich.table import Table
from torch import nn
from verilog import mlp

from mase_server.simulation.building import SimulationError, synthesise

ROOT = Path(__file__).resolve().parents[1]
OURS = "mase-server"
PEERS = ("da4ml", "nngen")
#: Of each: the figure, its key, how it is written.
COLUMNS = {
    "seconds": "{:.2f}",
    "lines": "{:,}",
    "luts": "{:,}",
    "multipliers": "{:,}",
    "interval": "{:,}",
    "latency": "{:,}",
}


def weights(file: Path) -> Path:
    """Weights and biases of the MLP that fixed(8,4) holds."""
    torch.manual_seed(0)
    layers = [layer for layer in mlp() if isinstance(layer, nn.Linear)]
    rounded = {
        f"{kind}{number}": np.rint(values.detach().numpy() * 16) / 16
        for number, layer in enumerate(layers)
        for kind, values in (("w", layer.weight), ("b", layer.bias))
    }
    np.savez(file, **rounded)
    return file


def environment(folder: Path) -> Path:
    """An interpreter with the peers that can be installed; what cannot will say so when it is run."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for peer in PEERS:
            subprocess.run([python, "-m", "pip", "install", "--quiet", peer], capture_output=True, check=False)
    return python


def told(command: list[str]) -> dict[str, Any]:
    """What a process says of its emission, or why it failed."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if isinstance(answer["seconds"], dict):
        answer["seconds"] = answer["seconds"]["folder"][0]
    return answer


def synthesised(folder: Path, limit: float) -> dict[str, Any]:
    """What Yosys makes of a folder's Verilog for ECP5, top module `mlp`; a note where it does not."""
    if not (folder / "files.f").exists():
        files = [path for pattern in ("*.v", "*.sv") for path in sorted(folder.rglob(pattern)) if "tb" not in path.stem]
        (folder / "files.f").write_text("\n".join(str(path.relative_to(folder)) for path in files) + "\n")
    try:
        found = asyncio.run(synthesise(folder, "mlp", lambda message, fraction: None, limit))
    except SimulationError as error:
        return {"note": str(error).strip().splitlines()[0][:100]}
    return {"luts": found.luts, "multipliers": found.multipliers}


def measured(runs: int, python: Path, place: Path, limit: float) -> dict[str, dict[str, Any]]:
    """All figures of each tool; the runs take turns."""
    given = weights(place / "weights.npz")
    ours = [sys.executable, str(ROOT / "benchmarks" / "verilog.py"), "--one", "mlp", "--runs", "1"]
    commands = {OURS: [*ours, "--folder", str(place / OURS)]}
    for peer in PEERS:
        script = ROOT / "benchmarks" / f"verilog_{peer}.py"
        commands[peer] = [str(python), str(script), str(given), str(place / peer)]
    answers = [{name: told(command) for name, command in commands.items()} for _ in range(runs)]
    found: dict[str, dict[str, Any]] = {}
    for name in commands:
        each = [answer[name] for answer in answers]
        found[name] = dict(each[0])
        if "failed" not in each[0]:
            found[name]["seconds"] = median(one["seconds"] for one in each)
            found[name] |= synthesised(place / name, limit)
    return found


def keep(found: Mapping[str, Mapping[str, Any]]) -> None:
    """For `bench.py`: ours, with what the others have of it."""
    for key in COLUMNS:
        if key in found[OURS]:
            tell(f"peers/{key}", found[OURS][key], **{peer: found[peer][key] for peer in PEERS if key in found[peer]})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--environment", type=Path, help="a virtual environment to keep the peers in")
    parser.add_argument("--limit", type=float, default=600, help="seconds of a synthesis")
    options = parser.parse_args()
    table = Table("MLP 16-64-32-32-5", *COLUMNS, "", title=f"median of {options.runs}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        python = environment(options.environment or place / "environment")
        found = measured(options.runs, python, place, options.limit)
    for tool, each in found.items():
        cells = [text.format(each[key]) if key in each else "" for key, text in COLUMNS.items()]
        table.add_row(tool, *cells, each.get("failed") or each.get("note", ""))
    Console(width=150).print(table)
    keep(found)


if __name__ == "__main__":
    main()
