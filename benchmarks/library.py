"""The library's figures: importing it, annotating models, and whether four hundred graphs add up.

Usage: python benchmarks/library.py [imports] [annotate] [growth] [--runs 15]
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from figures import tell
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

BARE = "import torch, torch.fx"
OURS = "from mase_server import MaseGraph"
#: torch loads a good part of itself when the first tensor on meta is multiplied; both do that here.
USE = "; layer, x = torch.nn.Linear(4, 2), torch.randn(3, 4)"
BARE_USED = BARE + USE + "; layer.to('meta')(x.to('meta'))"
OURS_USED = BARE + "; " + OURS + USE + "; MaseGraph(layer, {'input': x}).model(x)"
#: CPU seconds of a fresh process, and whether it loaded transformers.
PROGRAM = """
{code}
import resource, sys
use = resource.getrusage(resource.RUSAGE_SELF)
print(use.ru_utime + use.ru_stime, use.ru_maxrss / 1024, "transformers" in sys.modules)
"""

Part = Callable[[int], Table]


def fresh(code: str) -> tuple[float, float, bool]:
    """CPU seconds, peak MiB and presence of transformers after `code` in a new process."""
    command = [sys.executable, "-c", PROGRAM.format(code=code)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    return float(out[0]), float(out[1]), out[2] == "True"


def imports(runs: int) -> Table:
    """What the library costs over torch itself; the two alternate, so that both see the same machine."""
    table = Table("", "torch", "MaseGraph", "ratio", "memory", "transformers", title=f"CPU, {runs} processes each")
    for name, bare, ours in (("imported", BARE, OURS), ("a first graph of one layer", BARE_USED, OURS_USED)):
        fresh(bare), fresh(ours)
        pairs = [(fresh(bare), fresh(ours)) for _ in range(runs)]
        seconds = [median(pair[which][0] for pair in pairs) for which in (0, 1)]
        ratio = median(ours[0] / bare[0] for bare, ours in pairs)
        memory = median(ours[1] / bare[1] for bare, ours in pairs)
        if name != "imported":
            tell("library/import", ratio)
        loaded = "yes" if any(ours[2] for _, ours in pairs) else "no"
        times = (f"{seconds[0]:.2f} s", f"{seconds[1]:.2f} s")
        table.add_row(name, *times, f"{ratio:.2f}x (target 1.3x)", f"{memory:.2f}x", f"{loaded} (target no)")
    return table


def models() -> dict[str, tuple[Any, dict[str, Any], str]]:
    """name -> (model, inputs, target)."""
    import torch
    from transformers import BertConfig, BertModel

    sys.path.insert(0, str(EXAMPLES))
    import resnet

    ids = torch.randint(0, 1000, (2, 16))
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    build = next(value for name, value in vars(resnet).items() if name.lower() == "resnet18")
    image = {"x": torch.randn(2, 3, 224, 224)}
    return {
        "BERT-base": (BertModel(BertConfig()).eval(), text, "0.15 s"),
        "ResNet-18": (build().eval(), image, "0.06 s"),
    }


def annotated(model: Any, inputs: dict[str, Any]) -> Any:
    """MaseGraph, init and add_common, as tutorial 1 calls them."""
    from mase_server import MaseGraph, passes

    graph, _ = passes.init_metadata_analysis_pass(MaseGraph(model))
    return passes.add_common_metadata_analysis_pass(graph, {"dummy_in": inputs})[0]


def annotate(runs: int) -> Table:
    """From a model to metadata on every node, in one warm process."""
    table = Table(
        "model", "nodes", "CPU, median", "worst", "target", title=f"MaseGraph + init + add_common, {runs} runs"
    )
    for name, (model, inputs, target) in models().items():
        nodes = len(annotated(model, inputs).nodes)
        seconds = []
        for _ in range(runs):
            started = process_time()
            annotated(model, inputs)
            seconds.append(process_time() - started)
        tell(f"library/{name.partition('-')[0].lower()}", median(seconds))
        table.add_row(name, str(nodes), f"{median(seconds):.3f} s", f"{max(seconds):.3f} s", target)
    return table


def growth(runs: int) -> Table:
    """Objects and time of the first and the last of four hundred graphs in one process."""
    import torch
    from torch import nn

    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), {"input": torch.randn(4, 8)}
    found = []
    for _ in range(9):
        seconds = []
        for _ in range(50):
            started = process_time()
            annotated(model, inputs)
            seconds.append(process_time() - started)
        gc.collect()
        found.append((median(seconds), len(gc.get_objects())))
    (early, before), (late, after) = found[1], found[-1]
    tell("library/growth", after / before)
    table = Table("figure", "graphs 51-100", "graphs 401-450", "ratio", title="400 graphs in one process")
    table.add_row("CPU, median", f"{early * 1000:.1f} ms", f"{late * 1000:.1f} ms", f"{late / early:.2f}x")
    table.add_row("objects", f"{before:,}", f"{after:,}", f"{after / before:.4f}x")
    return table


PARTS: dict[str, Part] = {"imports": imports, "annotate": annotate, "growth": growth}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        Console(width=110).print(PARTS[part](options.runs))


if __name__ == "__main__":
    main()
