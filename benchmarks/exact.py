"""Whole networks, from a file as a person writes it to integers: `mase-server verilog` emits each and simulates it.

Each design runs four times over the same vectors: plain; with 40 % of random pauses on both sides; with sinks that wait
for valid; and with pauses and a reset while the second sample is in flight. Every integer of every output is compared.
Cycles a vector and latency are those of the plain run, beside the estimates before synthesis.

Usage: python benchmarks/exact.py [NAME ...] [--vectors N] [--multipliers N] [--weights BUS] [--small] [--list]

Without names the networks run that `make hardware-nightly` runs; `--list` names those that take hours, too. `--small`
takes the first folding of each, over few vectors. With `--weights axi64` weights come from a memory outside; it
pauses in the runs that do. The exit status is 1 if anything differs, lacks hardware, or fails, or if the first result
comes more than two percent from the cycle that is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import tell
from rich.console import Console
from rich.table import Table

from mase_server.private import cache_dir
from mase_server.simulation import simulate

NETWORKS, EXAMPLES = Path(__file__).parent / "networks", Path(__file__).parents[1] / "examples"
STALLS = 40
#: How far the estimate of the first result's cycle may be from it.
TOLERANCE = 0.02
#: What every design is tried with beside the plain run.
TRIALS = ("stalls", "late", "reset")
COLUMNS = (
    "network", "budget", "multipliers", "vectors", "wrong", *(f"wrong, {name}" for name in TRIALS), "cycles per vector",
    "estimate", "latency", "estimate", "build s", "run s",
)  # fmt: skip
_FEW = 5


@dataclass(frozen=True, slots=True)
class Network:
    """A model file. budgets: of multipliers, None for none given.  is_large: it takes hours, and runs where named.
    options: further ones of the command."""

    file: Path
    vectors: int
    budgets: tuple[int | None, ...]
    is_large: bool = False
    options: tuple[str, ...] = ()


#: Linear layers of mantissas of 8 bits, between streams of 16 bits, and of 24, which no multiplier takes whole.
_WIDTHS = {"name": "mxint", "data_in_width": 8, "weight_width": 8, "bias_width": 8}
_IN_BLOCKS = ("--pass", f"quantize(linear={{'config': {_WIDTHS}}})", "--precision")
#: Numbers of 8 bits with an exponent each, or whose blocks share a bias.
_FLOATS = {
    f"{part}_{key}": bits
    for part in ("data_in", "weight", "bias")
    for key, bits in (("width", 8), ("exponent_width", 4))
}


def _in_floats(name: str) -> tuple[str, ...]:
    """The options for linear layers in minifloats, between streams of 16 bits."""
    return "--pass", f"quantize(linear={{'config': {dict(_FLOATS, name=name)}}})", "--precision", "fixed(16,auto)"


CASES: Mapping[str, Network] = {
    "jet_mlp": Network(NETWORKS / "jet_mlp.py", 10_000, (52, None, 488, 4256, 0)),
    "jet_halves": Network(NETWORKS / "jet_mlp.py", 10_000, (0,), options=("--interval", "2")),
    "jet_mxint": Network(NETWORKS / "jet_mlp.py", 10_000, (52, None), options=(*_IN_BLOCKS, "fixed(16,auto)")),
    "jet_mantissas": Network(NETWORKS / "jet_mlp.py", 10_000, (488, None), options=(*_IN_BLOCKS, "fixed(24,auto)")),
    "jet_minifloat": Network(NETWORKS / "jet_mlp.py", 10_000, (52, None), options=_in_floats("minifloat_ieee")),
    "jet_block_minifloat": Network(NETWORKS / "jet_mlp.py", 10_000, (52, None), options=_in_floats("block_minifloat")),
    "lenet": Network(EXAMPLES / "lenet.py", 200, (60, None, 300)),
    "small_resnet": Network(NETWORKS / "small_resnet.py", 100, (60, 300)),
    "resnet8": Network(NETWORKS / "resnet8.py", 20, (200, 800)),
    "encoder_block": Network(NETWORKS / "encoder_block.py", 20, (64, 1, 4, None, 256)),
    "keyword_gru": Network(NETWORKS / "keyword_gru.py", 100, (64, None, 8, 256)),
    "forecast_lstm": Network(NETWORKS / "forecast_lstm.py", 100, (64, None, 400)),
    "vit_tiny": Network(NETWORKS / "vit_tiny.py", 20, (256,)),
    "gpt": Network(EXAMPLES / "gpt.py", 3, (256,), is_large=True),
    "llama": Network(EXAMPLES / "llama.py", 3, (256,), is_large=True),
    "transformer_encoder": Network(EXAMPLES / "transformer_encoder.py", 3, (256,), is_large=True),
    "vit": Network(EXAMPLES / "vit.py", 2, (512,), is_large=True),
    "resnet": Network(EXAMPLES / "resnet.py", 2, (512,), is_large=True),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Of one design. told: what the command printed as JSON.  trials: name -> map of SIMULATION_KEYS."""

    told: Mapping[str, Any]
    trials: Mapping[str, Mapping[str, Any]]

    @property
    def is_fine(self) -> bool:
        """Is it whole, every integer right, and the first result there when it is told, within `TOLERANCE`?"""
        whole = bool(self.told["text"]) and not self.told["unsupported"]
        latency, estimated = self.trials["plain"]["latency"], self.told["totals"]["latency"]
        on_time = latency is not None and abs(estimated - latency) <= TOLERANCE * latency
        return whole and on_time and all(each["status"] == "equal" for each in self.trials.values())

    def row(self) -> Iterator[str]:
        """From the multipliers on."""
        plain, totals = self.trials["plain"], self.told["totals"]
        yield from (f"{totals['multipliers']:,}", f"{plain['vectors']:,}")
        yield from (_wrong(self.trials[name]) for name in ("plain", *TRIALS))
        yield from (_number(plain["cycles_per_vector"]), _number(totals["interval"]))
        yield from (_number(plain["latency"]), _number(totals["latency"]))
        yield from (f"{plain['seconds'][key]:.1f}" for key in ("build", "run"))


def _wrong(told: Mapping[str, Any]) -> str:
    return f"{told['mismatches']:,}" if told["status"] in ("equal", "different") else told["status"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def measure(network: Network, budget: int | None, vectors: int, folder: Path, more: Sequence[str] = ()) -> Result | str:
    """Emit to a folder and simulate; why it is not, where it is not."""
    words = ["-m", "mase_server", "verilog", str(network.file), "-o", str(folder), "--format", "json"]
    words += ["--simulate", str(vectors), *more, *(() if budget is None else ("--multipliers", str(budget)))]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if not done.stdout:
        return done.stderr.strip() or f"mase-server ended with {done.returncode}"
    told = json.loads(done.stdout)
    if (plain := told["simulation"]) is None:
        return told["failure"] or told.get("refusal") or "nothing of it has hardware"
    return Result(told, {"plain": plain} | {name: _tried(folder, plain, name) for name in TRIALS})


def _tried(folder: Path, plain: Mapping[str, Any], trial: str) -> dict[str, Any]:
    """One more run of the program that is there already."""
    # When the first result is out, the second is on its way, and so is what follows it.
    cycle = int(plain["latency"] + (plain["cycles_per_vector"] or 0) / 2) if plain["latency"] else 1
    options: dict[str, dict[str, Any]] = {
        "stalls": {"stall": STALLS, "seed": 2},
        "late": {"late": True},
        "reset": {"stall": STALLS, "seed": 3, "reset": cycle},
    }
    return asyncio.run(simulate(folder, cache=cache_dir() / "simulations", limit=None, **options[trial]))


def main() -> int:
    """Print a row for each design as it comes, then the table."""
    given = _options()
    if given.list:
        print("\n".join(f"{name}: {network.file}" for name, network in CASES.items()))
        return 0
    console, fine, wrong = Console(width=200, highlight=False), True, 0
    table = Table(*COLUMNS, title=f"load {os.getloadavg()[0]:.1f} at the start")
    for name, network, budget in _designs(given):
        label = "one a layer" if budget is None else f"{budget:,}"
        with tempfile.TemporaryDirectory(prefix="mase-exact-") as folder:
            vectors = given.vectors or (_FEW if given.small else network.vectors)
            more = (*network.options, *(("--weights", given.weights) if given.weights else ()))
            found = measure(network, budget, vectors, Path(folder), more)
        if isinstance(found, str):
            console.print(f"{name}, {label}: {found}", markup=False)
            table.add_row(name, label, "", "", "failed")
            fine = False
            continue
        row = (name, label, *found.row())
        console.print("  ".join(row), *(each["log"] for each in found.trials.values() if each["log"]), markup=False)
        table.add_row(*row)
        for each in found.told["unsupported"]:
            console.print(f"  without hardware: {each['node']} ({each['operator']}): {each['why']}", markup=False)
        fine &= found.is_fine
        wrong += sum(each["mismatches"] or 0 for each in found.trials.values())
    console.print(table)
    tell("exact/wrong", wrong)
    return 0 if fine else 1


def _designs(given: argparse.Namespace) -> Iterator[tuple[str, Network, int | None]]:
    for name in given.names or CASES:
        network = CASES[name]
        if network.is_large and not given.names:
            continue
        shown = network.budgets[:1] if given.small else network.budgets
        budgets = shown if given.multipliers is None else (given.multipliers,)
        yield from ((name, network, budget) for budget in budgets)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; all of them by default (--list)")
    parser.add_argument("--vectors", type=int, help="samples of each")
    parser.add_argument("--multipliers", type=int, help="one budget in place of those of the table")
    parser.add_argument("--weights", metavar="BUS", help="read weights from a memory outside, as the command's option")
    parser.add_argument("--small", action="store_true", help="few vectors, one folding")
    parser.add_argument("--list", action="store_true", help="the networks and their files")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CASES]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(CASES)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
