"""Estimates before synthesis beside the truth: cycles of Verilator's simulation, cells of Yosys' synthesis for ECP5.

Every row is one network in one folding, emitted as a person's is. Ratios are estimate through truth. Tables are
four-input ones, with what carries and small memories take the place of; multiplications that Yosys makes of tables
(those by constants) count as tables there and here.

Usage: python benchmarks/estimates.py [mlp lenet residual encoder vit] [--multipliers N ...] [--vectors N]
       python benchmarks/estimates.py --ideal [mlp lenet resnet8 encoder] [--multipliers N ...] [--vectors N]

`--ideal` tells how much of a budget works, without synthesis: the multiplications of a sample over the budget, which is
the shortest interval that there could be, over the simulated one; in brackets, where it is not 1.00, the estimated
interval over the simulated one. Cells in italics have more than a quarter of a sample's multiplications as budget.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from networks.resnet8 import ResNet8
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware.design import Design
from mase_server.hardware.emission import count_rounds, emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import FoldingError, count_multiplications, fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog.told import prepare_graph
from mase_server.simulation import simulate
from mase_server.simulation.building import synthesise

KEPT = Path(__file__).parent.parent / "tests" / "output" / "simulations"
COLUMNS = (
    "network", "budget", "interval", "simulated", "ratio", "latency", "simulated", "ratio",
    "tables", "synthesised", "ratio", "multipliers", "MULT18",
)  # fmt: skip


class LeNet(nn.Module):
    """Two convolutions, three linear layers; images of 28 x 28."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images [N, 1, 28, 28]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))  # type: ignore[no-any-return]


class Digits(nn.Module):
    """Two convolutions and a linear layer; images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images [N, 1, 8, 8]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """A stem, a block that halves the image beside a convolution of a pixel, a mean and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, padding=1)
        self.second, self.short = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(8, 16, 1, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images [N, 3, H, W]."""
        x = F.relu(self.stem(x))
        x = F.relu(self.second(F.relu(self.first(x))) + self.short(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """A small vision transformer: patches of 4 x 4, two blocks of torch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 10)
        self.blocks = nn.ModuleList(encoder(16, 2, 32) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images [N, 3, 16, 16]."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))  # type: ignore[no-any-return]


class Sequences(nn.Module):
    """A recurrent layer, or several, and a head that reads the last result."""

    def __init__(self, layer: nn.RNNBase, results: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size, results)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of sequences [N, steps, features]."""
        return self.head(self.layer(x)[0][:, -1])  # type: ignore[no-any-return]


def gru() -> nn.Module:
    """A recogniser of spoken words."""
    return Sequences(nn.GRU(10, 32, batch_first=True), 12)


def lstm() -> nn.Module:
    """A forecast of a series of measurements."""
    return Sequences(nn.LSTM(4, 24, num_layers=2, batch_first=True), 4)


def mlp() -> nn.Module:
    """The jet-tagging MLP."""
    layers = [layer for sizes in pairwise((16, 64, 32, 32, 5)) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def encoder(features: int = 32, heads: int = 4, hidden: int = 64) -> nn.Module:
    """A block of torch's own encoder."""
    return nn.TransformerEncoderLayer(features, heads, hidden, dropout=0.0, activation="gelu", batch_first=True)


@dataclass(frozen=True, slots=True)
class Network:
    """How a model is made, its input and that one's sample, and the budgets that it is folded for."""

    make: Callable[[], nn.Module]
    input: str
    shape: tuple[int, ...]
    budgets: tuple[int, ...]


def resnet8() -> nn.Module:
    """ResNet-8 for images of 32 x 32."""
    return ResNet8()


NETWORKS: Mapping[str, Network] = {
    "mlp": Network(mlp, "input", (16,), (4, 16, 52, 488)),
    "lenet": Network(LeNet, "x", (1, 28, 28), (8, 60)),
    "digits": Network(Digits, "x", (1, 8, 8), (60,)),
    "residual": Network(Residual, "x", (3, 12, 12), (16, 60)),
    "encoder": Network(encoder, "src", (8, 32), (4, 24, 100)),
    "vit": Network(Patches, "x", (3, 16, 16), (60,)),
    "gru": Network(gru, "x", (25, 10), (2, 16)),
    "lstm": Network(lstm, "x", (24, 4), (2, 16)),
    "resnet8": Network(resnet8, "x", (3, 32, 32), (200,)),
}
#: What `--ideal` shows.
USED, BUDGETS = ("mlp", "lenet", "resnet8", "encoder"), (1, 4, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Compared:
    """What was estimated, what was simulated and what was synthesised of one folding: maps by the names of figures."""

    estimated: Mapping[str, Any]
    simulated: Mapping[str, Any]
    synthesised: Mapping[str, Any]

    def row(self) -> tuple[str, ...]:
        """Estimate, truth and ratio of the interval, the latency and the tables; multipliers."""
        pairs = (
            (self.estimated["interval"], self.simulated["cycles_per_vector"]),
            (self.estimated["latency"], self.simulated["latency"]),
            (self.estimated["luts"], self.synthesised["luts"]),
        )
        figures = [figure for each in pairs for figure in (*map(_number, each), _ratio(*each))]
        return (*figures, str(self.estimated["multipliers"]), str(self.synthesised["multipliers"]))


def compare(name: str, budget: int, vectors: int) -> Compared:
    """Estimate, simulate and synthesise one network in one folding. SimulationError where a tool is missing."""
    design = lower(name)
    folding = fold_design(design, multipliers=budget)
    with tempfile.TemporaryDirectory() as folder:
        emit_folder(design, folding, name, random_inputs(design, count_rounds(folding, vectors))).write(Path(folder))
        simulated = asyncio.run(simulate(Path(folder), cache=KEPT, limit=3600))
        synthesised = asyncio.run(synthesise(Path(folder), name, lambda message, fraction: None, limit=3600))
    if simulated["status"] != "equal":
        raise SystemExit(f"{name} at {budget} multipliers: the simulation is not equal, {simulated['status']}")
    return Compared(estimate(design, folding).totals, simulated, synthesised.to_wire())


def lower(name: str) -> Design:
    """The design of a network."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    values = {network.input: torch.randn(2, *network.shape)}
    return lower_graph(prepare_graph(MaseGraph(network.make().eval(), values), Build())[0])


def use(design: Design, name: str, budget: int, vectors: int) -> str:
    """How much of a budget works in simulation."""
    try:
        folding = fold_design(design, multipliers=budget)
    except FoldingError:
        return "refused"
    with tempfile.TemporaryDirectory() as folder:
        emit_folder(design, folding, name, random_inputs(design, count_rounds(folding, vectors))).write(Path(folder))
        simulated = asyncio.run(simulate(Path(folder), cache=KEPT, limit=3600))
    if simulated["status"] != "equal":
        return f"wrong: {simulated['status']}"
    cycles, products = simulated["cycles_per_vector"], count_multiplications(design)
    estimated = f"{estimate(design, folding).totals['interval'] / cycles:.2f}"
    cell = f"{100 * products / budget / cycles:.0f} %{'' if estimated == '1.00' else f' ({estimated})'}"
    return cell if budget * 4 <= products else f"[italic]{cell}[/italic]"


def _number(figure: float) -> str:
    return f"{figure:,.1f}".removesuffix(".0")


def _ratio(estimated: float, true: float) -> str:
    return f"{estimated / true:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"{', '.join(NETWORKS)}; all of them by default")
    parser.add_argument("--multipliers", type=int, nargs="*", help="budgets")
    parser.add_argument("--vectors", type=int, default=20, help="samples that are simulated")
    parser.add_argument("--ideal", action="store_true", help="how much of each budget works")
    given = parser.parse_args()
    table, console = Table(*COLUMNS), Console(width=200)
    if given.ideal:
        table = Table("network", "multiplications", *(f"{each:,}" for each in given.multipliers or BUDGETS))
        for name in given.networks or USED:
            design = lower(name)
            cells = []
            for budget in given.multipliers or BUDGETS:
                cells.append(use(design, name, budget, given.vectors))
                console.print(name, budget, cells[-1])
            table.add_row(name, f"{count_multiplications(design):,}", *cells)
        console.print(table)
        return
    for name in given.networks or NETWORKS:
        for budget in given.multipliers or NETWORKS[name].budgets:
            row = name, str(budget), *compare(name, budget, given.vectors).row()
            console.print(*row)
            table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
