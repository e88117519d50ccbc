"""The figures of emission: seconds to the text and to the whole folder, and its lines (`peers.py`: beside other tools).

Each model has a fresh process: the first emission is "cold", the median of the next ones "warm". The graph is there
already, with its weights; everything after it counts: preparing, quantising, lowering, folding, estimates, and for the
folder memories, one vector, and what has to come out. Seconds are of the processor, with one thread.

Twins: seconds of the model, of the quantised graph, and of that graph as its hardware computes, in turn in one process.

Saves: seconds of wall time in an editor from a save of the MLP example, with another width, to its text, and on to the
end of a simulation of 100 vectors.

Usage: python benchmarks/verilog.py [models] [twins] [saves] [--runs 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from editor import Editor
from figures import FIGURES, tell
from rich.console import Console
from rich.table import Table
from saves import SAVES
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.passes.verilog.as_hardware import as_hardware_transform_pass
from mase_server.passes.verilog.told import build, prepare_graph

ROOT = Path(__file__).parents[1]
SIZES = (16, 64, 32, 32, 5)
#: Seconds that an emission may take.
TARGETS = {"mlp": 0.3, "vit-tiny": 3.0}
_VECTORS = 1


class LeNet(nn.Module):
    """Two convolutions, three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.pool = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of 28 x 28."""
        x = self.pool(self.conv2(self.pool(self.conv1(x).relu())).relu()).flatten(1)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


def mlp() -> nn.Module:
    """The jet-tagging MLP."""
    layers = [layer for ins, outs in pairwise(SIZES) for layer in (nn.Linear(ins, outs), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def vit() -> nn.Module:
    """ViT-tiny: 12 blocks of 192 features, three heads, 224 x 224 images."""
    shape = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768}
    return ViTForImageClassification(ViTConfig(**shape))


#: Name -> model, inputs, what is asked for.
MODELS: Mapping[str, tuple[Callable[[], nn.Module], dict[str, tuple[int, ...]], Build]] = {
    "mlp": (mlp, {"input": (2, 16)}, Build(multipliers=52)),
    "lenet": (LeNet, {"x": (2, 1, 28, 28)}, Build(multipliers=64)),
    "vit-tiny": (vit, {"pixel_values": (2, 3, 224, 224)}, Build(multipliers=1024)),
}


def one(name: str, runs: int, kept: Path | None = None) -> dict[str, Any]:
    """Seconds of every emission of a model in this process, text and folder, its lines and cycles; kept: a folder."""
    make, shapes, asked = MODELS[name]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make().eval()
    seconds: dict[str, list[float]] = {"text": [], "folder": []}
    told: dict[str, Any] = {}
    for _ in range(runs + 1):
        for what, times in seconds.items():
            graph = MaseGraph(model, {key: torch.randn(shape) for key, shape in shapes.items()})
            with tempfile.TemporaryDirectory() as folder:
                begin = process_time()
                told = build(
                    graph, asked, name, folder=str(kept or folder) if what == "folder" else "", vectors=_VECTORS
                )
                times.append(process_time() - begin)
    lines = told["text"].count("\n")
    missing = sorted({each["operator"] for each in told["unsupported"]})
    cycles = {key: told["totals"][key] for key in ("interval", "latency")}
    return {"seconds": seconds, "lines": lines, "missing": missing, "refusal": told["refusal"], **cycles}


def models(options: argparse.Namespace) -> Table:
    """Every model in a process of its own."""
    head = ("model", "text, cold", "text, warm", "folder, cold", "folder, warm", "target", "lines", "")
    table = Table(*head, title=f"emission, CPU seconds; median of {options.runs}, load {os.getloadavg()[0]:.1f}")
    for name in MODELS:
        command = [sys.executable, __file__, "--one", name, "--runs", str(options.runs)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            table.add_row(name, *[""] * 6, done.stderr.strip().splitlines()[-1])
            continue
        told = json.loads(done.stdout.splitlines()[-1])
        if f"verilog/{name}" in FIGURES:
            tell(f"verilog/{name}", told["seconds"]["folder"][0])
        times = [f"{number:.3f}" for which in told["seconds"].values() for number in (which[0], median(which[1:]))]
        lacks = told["refusal"] or (f"without {', '.join(told['missing'])}" if told["missing"] else "whole")
        table.add_row(name, *times, f"{TARGETS[name]:.1f}" if name in TARGETS else "", str(told["lines"]), lacks)
    return table


def twins(options: argparse.Namespace) -> Table:
    """The time of a batch of two: floats, rounded floats, and what the hardware computes."""
    torch.set_num_threads(1)
    title = f"a batch of two, CPU seconds, one thread; median of {options.runs}, load {os.getloadavg()[0]:.1f}"
    table = Table("model", "float", "quantised", "as hardware", "x quantised", "nodes replaced", title=title)
    for name, (make, shapes, asked) in MODELS.items():
        torch.manual_seed(0)
        model, inputs = make().eval(), {key: torch.randn(shape) for key, shape in shapes.items()}
        quantised, hardware = (prepare_graph(MaseGraph(model, inputs), asked)[0] for _ in range(2))
        hardware, found = as_hardware_transform_pass(hardware)
        times: dict[str, list[float]] = {"float": [], "quantised": [], "hardware": []}
        with torch.inference_mode():
            for _ in range(options.runs + 1):
                for (_, seconds), each in zip(times.items(), (model, quantised.model, hardware.model), strict=True):
                    begin = process_time()
                    each(*inputs.values())
                    seconds.append(process_time() - begin)
        middle = {which: median(seconds[1:]) for which, seconds in times.items()}
        ratio = middle["hardware"] / middle["quantised"]
        cells = (f"{seconds:.4f}" for seconds in middle.values())
        table.add_row(name, *cells, f"{ratio:.1f}", str(len(found["replaced"])))
    return table


async def time_saves(folder: Path, runs: int) -> tuple[list[float], list[float]]:
    """Seconds from each save to the text, and to "equal"; the first save is not counted."""
    [save] = [each for each in SAVES if each.file == "mlp.py"]
    path = folder / save.file
    path.write_text(save.text(0), encoding="utf-8")
    texts, equals = list[float](), list[float]()
    async with Editor(folder) as editor:
        editor.open(path)
        await editor.settled(path)
        for number in range(1, runs + 2):
            started = perf_counter()
            await editor.save_and_settle(path, save.text(number), save.fresh(number))
            await editor.execute(path, "mase.emitVerilog", build={"multipliers": 52}, show=False)
            texts.append(perf_counter() - started)
            told = await editor.execute(path, "mase.simulateVerilog", vectors=100, show=False)
            equals.append(perf_counter() - started)
            if told["status"] != "equal":
                raise RuntimeError(f"{path.name} with {save.text(number)}: {told}")
    return texts[1:], equals[1:]


def saves(options: argparse.Namespace) -> Table:
    """From a save in an editor to the hardware's text and its simulation."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"  # without the simulations of other runs
        (work := Path(folder).resolve() / "work").mkdir()
        texts, equals = asyncio.run(time_saves(work, options.runs))
    title = f"the MLP example, seconds from a save; median and slowest of {options.runs}, load {os.getloadavg()[0]:.1f}"
    table = Table("to", "median", "slowest", "target", title=title)
    for what, seconds, target in (("text", texts, 0.3), ("100 vectors equal", equals, 2.0)):
        table.add_row(what, f"{median(seconds):.2f}", f"{max(seconds):.2f}", f"{target:.1f}")
    return table


PARTS: dict[str, Callable[[argparse.Namespace], Table]] = {"models": models, "twins": twins, "saves": saves}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.runs, options.folder)))
        return
    for part in options.parts or PARTS:
        Console(width=150).print(PARTS[part](options))


if __name__ == "__main__":
    main()
