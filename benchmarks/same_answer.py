"""The same answer by others: what stands in each layer of BERT-base and of ResNet-18, its shape, its parameters.

torchinfo and torchlens run the model with its weights; ours records it without. Beside them stand what no tool can be
faster than on the same footing: a plain eager forward, and a plain forward on meta. "Fresh" is a whole process, from
its start to the printed table; "warm" the call alone, in a process that has the model already. All are asked in turn,
and the medians of the rounds are told. Seconds are of the processor, with one thread.

Usage: python benchmarks/same_answer.py [--tools FOLDER] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from figures import tell
from rich.console import Console
from rich.table import Table
from rivals import environment

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = Path(tempfile.gettempdir()) / "mase-comparison"
OURS = "mase-server"


@dataclass(frozen=True, slots=True)
class Model:
    """Lines that make `model`, lines that make `inputs` (a tuple), on meta where `device` says so."""

    build: str
    inputs: str


MODELS: Mapping[str, Model] = {
    "bert": Model(
        "import transformers\nmodel = transformers.BertModel(transformers.BertConfig())",
        "inputs = (torch.zeros(2, 64, dtype=torch.long, device=device),)",
    ),
    "resnet": Model(
        "import resnet\nmodel = resnet.resnet18()",
        "inputs = (torch.zeros(2, 3, 224, 224, device=device),)",
    ),
}
#: How each gives its answer, as a call of no arguments named `answer`, and what it prints of it.
TOOLS: Mapping[str, str] = {
    OURS: "from mase_server import MaseGraph\n"
    "from mase_server.passes import report_node_shape_analysis_pass as report\n"
    "def answer():\n    return report(MaseGraph(model, dict(zip(names, inputs))))[1]",
    "torchinfo": "import torchinfo\n"
    "def answer():\n    return torchinfo.summary(model, input_data=inputs, depth=4, verbose=0)",
    "torchlens": "import torchlens\ndef answer():\n    return torchlens.trace(model, inputs)",
    "eager forward": "def answer():\n    return model(*inputs)",
    "meta forward": "model.to('meta')\ndef answer():\n    return model(*inputs)",
}
PROGRAM = """
import os, sys
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
sys.path[:0] = {paths!r}
import resource, time, inspect, json, torch
torch.set_num_threads(1)
device = {device!r}
{build}
model.eval()
{inputs}
names = [name for name in inspect.signature(model.forward).parameters]
{tool}
with torch.no_grad():
    found = answer()
    used = resource.getrusage(resource.RUSAGE_SELF)
    fresh, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    warm = []
    for _ in range({warm}):
        begin = time.process_time()
        answer()
        warm.append(time.process_time() - begin)
print(json.dumps([fresh, memory, sorted(warm)[len(warm) // 2]]))
"""
WARM = 3


def program(tool: str, model: Model) -> str:
    """What a fresh process runs."""
    device = "meta" if tool == "meta forward" else "cpu"
    paths = [str(ROOT), str(ROOT / "examples")]
    return PROGRAM.format(
        paths=paths, device=device, build=model.build, inputs=model.inputs, tool=TOOLS[tool], warm=WARM
    )


def asked(python: str, tool: str, model: Model) -> tuple[float, float, float] | str:
    """Fresh seconds, MiB at the peak, warm seconds of one process; or why there are none."""
    command = [python, "-c", program(tool, model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    fresh, memory, warm = json.loads(done.stdout.splitlines()[-1])
    return fresh, memory, warm


def measured(python: str, rounds: int, model: Model) -> dict[str, tuple[float, float, float] | str]:
    """Medians of all tools, asked in turn; or why one has none."""
    runs = [{tool: asked(python, tool, model) for tool in TOOLS} for _ in range(rounds)]
    found: dict[str, tuple[float, float, float] | str] = {}
    for tool in TOOLS:
        answers = [run[tool] for run in runs]
        if failed := [each for each in answers if isinstance(each, str)]:
            found[tool] = failed[0]
        else:
            fresh, memory, warm = (median(column) for column in zip(*answers, strict=True))  # type: ignore[arg-type]
            found[tool] = fresh, memory, warm
    return found


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=SCRATCH)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    tools = environment(given.tools)
    for name, model in MODELS.items():
        head = ("tool", "fresh, CPU s", "MiB", "warm, CPU ms", "")
        table = Table(*head, title=f"{name}: median of {given.rounds} in turn, load {os.getloadavg()[0]:.1f}")
        found = measured(tools.python, given.rounds, model)
        for tool, answer in found.items():
            if isinstance(answer, str):
                table.add_row(tool, "", "", "", answer)
            else:
                table.add_row(tool, f"{answer[0]:.2f}", f"{answer[1]:.0f}", f"{1000 * answer[2]:.0f}")
        Console(width=120).print(table)
        kept(name, {tool: answer for tool, answer in found.items() if not isinstance(answer, str)})


def kept(name: str, found: Mapping[str, tuple[float, float, float]]) -> None:
    """For `bench.py`: ours, and the others beside it."""
    if OURS not in found:
        return
    for place, (figure, factor) in enumerate((("cpu", 1.0), ("memory", 1.0), ("warm", 1000.0))):
        others = {tool: factor * answer[place] for tool, answer in found.items() if tool != OURS}
        key = f"answer/warm/{name}" if figure == "warm" else f"answer/{name}/{figure}"
        tell(key, factor * found[OURS][place], **others)


if __name__ == "__main__":
    sys.exit(main())
