"""What the benchmarks measure, as data: each figure with its goal, and `tell`, by which a benchmark says one.

`bench.py` names a file in MASE_FIGURES before it runs a benchmark, and reads there what was told. Without it nothing is
kept: every benchmark prints its own tables and runs by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The variable that names the file.
KEPT = "MASE_FIGURES"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. goal: None where there is none.  is_least: the goal is the least it may be, not the most."""

    what: str
    unit: str = ""
    goal: float | None = None
    is_least: bool = False

    def holds(self, value: float) -> bool:
        """Is the goal met?"""
        return self.goal is None or (value >= self.goal if self.is_least else value <= self.goal)


@dataclass(frozen=True, slots=True)
class Told:
    """A figure as it was measured. beside: what others needed or found in the same run, by their names."""

    name: str
    value: float
    beside: Mapping[str, float] = field(default_factory=dict)


def tell(name: str, value: float, **beside: float) -> None:
    """Keep a figure of FIGURES for `bench.py`, if it runs this. KeyError where there is no such figure."""
    FIGURES[name]
    if path := os.environ.get(KEPT):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "value": value, "beside": beside}) + "\n")


def told(path: Path) -> Iterator[Told]:
    """What a file holds."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row: dict[str, Any] = json.loads(line)
        yield Told(row["name"], row["value"], row["beside"])


def _saves() -> Iterator[tuple[str, Figure]]:
    goals = {
        "mlp": 150, "lenet": 150, "gpt": 300, "resnet": 300, "llama": 300, "bert_hf": 500, "many": 600,
    }  # fmt: skip
    for name, goal in goals.items():
        yield f"latency/{name}", Figure(f"save to fresh hints, {name}", "ms", goal)
        yield f"latency/{name}/ratio", Figure(f"that against a fresh `python FILE`, {name}", "x", 8, is_least=True)


def _load() -> Iterator[tuple[str, Figure]]:
    hovered = {
        "opened": "50 models are opened", "burst": "200 saves come at once", "formatters": "formatters save 200 times",
        "big/opened": "20,000 operations are traced", "big/saved": "they are traced again",
    }  # fmt: skip
    for name, what in hovered.items():
        yield f"load/{name}/hover", Figure(f"hover while {what}, p95", "ms", 20)
        yield f"load/{name}/traces", Figure(f"most traces of one content while {what}", "", 1)
    asked = {"big/asked": "all is asked of 20,000 operations", "big/changed": "their whole text is replaced"}
    for name, what in (hovered | asked).items():
        yield f"load/{name}/turn", Figure(f"longest turn of the loop while {what}, CPU", "ms", 5)


#: Every figure, by its name: the benchmark's, and what of it.
FIGURES: Mapping[str, Figure] = {
    "startup/initialize": Figure("start to `initialize` answered", "s", 1),
    "startup/first": Figure("open to first hints, nothing warm", "s", 4),
    "startup/ratio": Figure("open to first hints, nothing warm, over a fresh `python FILE`", "", 1.3),
    "startup/memory": Figure("memory of the server", "MiB", 80),
    "startup/torch": Figure("torch in the server", "", 0),
    **dict(_saves()),
    "live/lenet/forward": Figure("a key in a forward to fresh hints, without the pause, lenet", "ms", 40),
    "live/mlp/forward": Figure("the same, mlp", "ms", 40),
    "live/gpt/forward": Figure("the same, gpt", "ms", 60),
    "live/resnet/forward": Figure("the same, resnet", "ms", 60),
    "live/bert_hf/forward": Figure("the same, BERT-base from its configuration", "ms", 120),
    "live/many/forward": Figure("the same, a file that imports 300 modules of its folder", "ms", 60),
    "live/lenet/constructor": Figure("a key in a constructor to fresh hints, without the pause, lenet", "ms"),
    "live/lenet/forward/ratio": Figure("the same time over pyrefly's for its new hint, lenet", "x", 0.35),
    "live/gpt/forward/ratio": Figure("the same, gpt", "x", 0.35),
    "live/memory": Figure("growth of all memory over 2,000 typed edits", "%", 5),
    "live/typist": Figure("processor of all while somebody types 8 keys a second in the GPT example", "%", 35),
    "compiled/dynamo": Figure("the command to the breaks of the GPT example, warm", "s", 1),
    "compiled/dynamo/ratio": Figure("that against a fresh `python` that compiles it", "x", 4, is_least=True),
    "compiled/inductor": Figure("the command to Inductor's code of the GPT example, warm", "s", 3),
    "compiled/inductor/ratio": Figure("that against a fresh `python` that compiles it", "x"),
    "big/hover": Figure("hover on 10,000 nodes, p95", "ms", 10),
    "big/hints": Figure("hints of 60 lines on 10,000 nodes, p95", "ms", 10),
    "big/hover/tracing": Figure("hover while that file is traced, p95", "ms", 10),
    "big/hints/tracing": Figure("hints while that file is traced, p95", "ms", 10),
    "big/llama/first": Figure("Llama 405B from its config, first hints", "s", 4),
    "big/llama/symbols": Figure("Llama 405B, symbols", "s", 8),
    "big/llama/memory": Figure("Llama 405B, memory of its process", "MiB", 700),
    **dict(_load()),
    "faults/recovery": Figure("save to fresh hints after a crash, the slowest kind", "s", 0.5),
    "kills/child": Figure("save to fresh hints after a child was killed at a random moment, median", "s", 0.5),
    "kills/orphans": Figure("processes left of a hundred random kills", "", 0),
    "kills/ending": Figure("all below a killed server or editor has ended, p95", "s", 1.5),
    "fuzz/failures": Figure("failures in thousands of random steps of an editor", "", 0),
    "races/failures": Figure("rounds of random typing, saving, closing that end other than a new server shows", "", 0),
    "typed/differ": Figure("random edits that are traced otherwise while they are typed than when opened", "", 0),
    "typed/answered": Figure("edits within functions that are traced while they are typed", "%", 90, is_least=True),
    "shutdown/seconds": Figure("`shutdown` until nothing of 20 files, a trace and a simulation runs", "s", 1.5),
    "library/import": Figure("MaseGraph imported and used, over torch alone", "x", 1.3),
    "library/bert": Figure("MaseGraph, init and add_common on BERT-base, CPU", "s", 0.15),
    "library/resnet": Figure("the same on ResNet-18, CPU", "s", 0.06),
    "library/growth": Figure("objects after 400 graphs, over those after 50", "x", 1.01),
    "passes_editor/formats": Figure("choosing quantise on the GPT to new hints", "ms", 1000),
    "passes_editor/errors": Figure("the same, to errors", "ms", 1000),
    "passes_editor/undo": Figure("undo", "ms", 100),
    "passes_editor/save": Figure("a save with its passes replayed", "ms"),
    "passes/bert": Figure("BERT-base quantised to fixed(8,4), CPU", "s", 3),
    "passes/bert/memory": Figure("its peak memory over the model's own", "x", 2),
    "passes/mxfp/1x128": Figure("BERT-base in mxfp(8,4) over a plain forward, 1 x 128 tokens, CPU", "x", 3),
    "passes/mxfp/2x16": Figure("the same at 2 x 16 tokens, where weights are most of the work", "x", 3),
    "huggingface/good": Figure("small Hugging Face models traced, annotated, equal to eager, of 88", "", 60, True),
    "bugs/line": Figure("seeded mistakes told at the right line", "%", 95, True),
    "bugs/fixed": Figure("seeded mistakes mended by a fix", "%", 50, True),
    "corpus/shown": Figure("model files of the corpus shown, nothing configured", "%", 90, True),
    "zoo/traced": Figure("types of transformers that can be built here: traced", "%", 97, True),
    "zoo/same": Figure("their graphs run again to the same types", "%", 98, True),
    "zoo/ratio": Figure("recording over the plain meta forward, median", "x", 1.7),
    "verilog/mlp": Figure("emission of the jet MLP, CPU, with what the process imports", "s", 0.3),
    "verilog/vit-tiny": Figure("emission of ViT-tiny, CPU", "s", 3),
    "peers/seconds": Figure("the MLP as a folder of Verilog, CPU", "s", 0.3),
    "peers/lines": Figure("its lines of Verilog", "lines"),
    "peers/luts": Figure("its four-input tables by Yosys, ECP5", ""),
    "peers/multipliers": Figure("its 18-bit multipliers by Yosys", ""),
    "peers/interval": Figure("cycles per vector", "cycles", 135),
    "peers/latency": Figure("cycles to the first result", "cycles"),
    "exact/wrong": Figure("numbers of whole networks that differ, all trials", "", 0),
    "rpc/rest/p50": Figure("nodeAt, 16 clients, 200 a second, editor at rest, p50", "ms", 0.5),
    "rpc/rest/p99": Figure("nodeAt, editor at rest, p99", "ms", 5),
    "rpc/busy/p50": Figure("nodeAt while the editor hovers and saves, p50", "ms", 0.5),
    "rpc/busy/p99": Figure("nodeAt while the editor hovers and saves, p99", "ms", 5),
    "rpc/pipelined": Figure("nodeAt pipelined, a second", "", 10_000, True),
    "rpc/graph": Figure("20,000-node graph fetched and decoded", "ms", 150),
    "cli/attached": Figure("`mase-server shapes FILE` of a live file, LeNet", "ms", 150),
    "graph/first": Figure("graph view of 10,000 nodes, first picture", "ms", 2000),
    "sweep/ratio": Figure("a sweep against a loop of commands", "x", 1, True),
    "compare/bindings": Figure("bindings of the examples shown with all sizes", "%", 100, True),
    "compare/bugs": Figure("seeded mistakes at their line, by commands", "%", 95, True),
    "compare/check": Figure("check of gpt.py, a fresh process, CPU", "s"),
    "compare/check/all": Figure("check of the twelve examples, CPU", "s"),
    "compare/edit": Figure("edit to answer, gpt.py", "ms", 300),
    "answer/bert/cpu": Figure("a table of BERT-base, fresh process, CPU", "s"),
    "answer/bert/memory": Figure("a table of BERT-base, largest process", "MiB"),
    "answer/resnet/cpu": Figure("a table of ResNet-18, fresh process, CPU", "s"),
    "answer/resnet/memory": Figure("a table of ResNet-18, largest process", "MiB"),
    "answer/warm/bert": Figure("BERT-base, in a warm process, CPU", "ms"),
    "answer/warm/resnet": Figure("ResNet-18, in a warm process, CPU", "ms"),
}  # fmt: skip
