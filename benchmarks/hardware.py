"""The figures of hardware: networks emitted from their graphs, simulated, and compared integer by integer.

Every network runs four times: without stalls, with 40 % of them on both sides, with sinks that wait for valid, and with
a reset in flight. Cycles are those from one sample to the next, beside those of the slowest layer.

Usage: python benchmarks/hardware.py [mlp lenet resnet8 resnet20 resnet18] [--vectors N] [--multipliers N ...]
"""

from __future__ import annotations

import argparse
import asyncio
import runpy
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware.design import Design
from mase_server.hardware.emission import emit, random_inputs
from mase_server.hardware.folding import Folding, fold
from mase_server.hardware.lowering import lower
from mase_server.passes.verilog.preparation import prepare
from mase_server.simulation import simulate

EXAMPLES = Path(__file__).parent.parent / "examples"
KEPT = Path(__file__).parent.parent / "tests" / "output" / "simulations"
TRIALS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "40 % stalls": {"stall": 40},
    "late": {"late": True},
    "reset": {"stall": 40, "reset": 501},
}
COLUMNS = (
    "network", "multipliers", "operations", "vectors", *(f"wrong: {name}" for name in TRIALS), "cycles", "slowest",
    "ratio", "latency", "emit s", "build s", "run s",
)  # fmt: skip


class Block(nn.Module):
    """Two convolutions beside none, or beside one of a pixel where the image becomes smaller."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _conv(before, after, 3, stride), _conv(after, after, 3, 1)
        self.short = _conv(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Images [N, C, H, W]."""
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


class ResNet(nn.Module):
    """The residual networks for images of 32 x 32 by He et al., 2015: 6 * blocks + 2 layers."""

    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        sizes = [width] * blocks + [2 * width] * blocks + [4 * width] * blocks
        stages = (Block(before, after, after // before) for before, after in pairwise([width, *sizes]))
        self.stem, self.blocks, self.head = _conv(3, width, 3, 1), nn.Sequential(*stages), nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images [N, 3, H, W]."""
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]


def _conv(before: int, after: int, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


@dataclass(frozen=True, slots=True)
class Network:
    """A model, the shape of a sample, and what it is tried with."""

    model: nn.Module
    shape: tuple[int, ...]
    vectors: int
    multipliers: tuple[int, ...]


def _networks(names: list[str]) -> dict[str, Network]:
    def example(name: str, builder: str) -> nn.Module:
        model: nn.Module = runpy.run_path(str(EXAMPLES / f"{name}.py"))[builder]()
        return model

    layers = [layer for sizes in pairwise((16, 64, 32, 32, 5)) for layer in (nn.Linear(*sizes), nn.ReLU())]
    made = {
        "mlp": lambda: Network(nn.Sequential(*layers[:-1]), (16,), 10000, (4, 52, 488, 4256)),
        "lenet": lambda: Network(example("lenet", "LeNet"), (1, 28, 28), 200, (8, 60, 300)),
        "resnet8": lambda: Network(ResNet(1), (3, 32, 32), 10, (200, 800)),
        "resnet20": lambda: Network(ResNet(3), (3, 32, 32), 10, (300,)),
        "resnet18": lambda: Network(example("resnet", "resnet18"), (3, 32, 32), 10, (400,)),
    }
    return {name: made[name]() for name in names or made}


def _lowered(network: Network) -> Design:
    """The design, with batch norms that do something."""
    for layer in network.model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.3)  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    name = "input" if isinstance(network.model, nn.Sequential) else "x"
    graph, _ = prepare(MaseGraph(network.model.eval(), {name: torch.randn(2, *network.shape)}), Build())
    return lower(graph)


def _row(name: str, design: Design, folding: Folding, vectors: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        emit(design, folding, name, random_inputs(design, vectors)).write(Path(folder))
        emitted = time.perf_counter() - begin
        told = [asyncio.run(simulate(Path(folder), cache=KEPT, limit=3600, **options)) for options in TRIALS.values()]
    plain, seconds = told[0], told[0]["seconds"]
    cycles = plain["cycles_per_vector"] or 0
    wrong = [str(each["mismatches"]) if each["status"] in ("equal", "different") else each["status"] for each in told]
    figures = f"{cycles:.1f}", str(folding.interval), f"{cycles / folding.interval:.3f}", str(plain["latency"])
    took = (f"{value:.1f}" for value in (emitted, seconds["build"], seconds["run"]))
    return name, str(folding.multipliers), str(len(design.operations)), str(plain["vectors"]), *wrong, *figures, *took


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="mlp, lenet, resnet8, resnet20, resnet18; all of them by default")
    parser.add_argument("--vectors", type=int, help="samples")
    parser.add_argument("--multipliers", type=int, nargs="*", help="budgets")
    given = parser.parse_args()
    torch.manual_seed(0)
    table, console = Table(*COLUMNS), Console(width=220)
    for name, network in _networks(given.networks).items():
        design = _lowered(network)
        for budget in given.multipliers or network.multipliers:
            row = _row(name, design, fold(design, multipliers=budget), given.vectors or network.vectors)
            console.print(*row)
            table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
