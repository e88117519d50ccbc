"""The figures of quantisation: every number format on small Hugging Face models, BERT-base in fixed point and in mxfp.

A model counts for a format if it is quantised, annotated and verified, runs, gives finite outputs, and if the error
that is told is the one computed here from the model's and the graph's outputs.

Usage: python benchmarks/passes.py [formats] [bert] [forward] [--models bert gpt2 ...] [--formats "fixed(8,auto)" ...]
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from figures import tell
from rich.console import Console
from rich.table import Table
from small_models import build, names
from torch import Tensor, nn

from mase_server import MaseGraph, passes

FORMATS = (
    "fixed(8,auto)", "scale_integer(8)", "binary", "binary_residual(2)", "ternary", "log(8,exponent_bias=auto)",
    "minifloat_ieee(8,4,exponent_bias=auto)", "minifloat_denorm(8,4,exponent_bias=auto)", "block_fp(8)",
    "block_minifloat(8,4)", "block_log(8)", "mxint(8)", "mxfp(8,4)",
)  # fmt: skip

#: Pairs of forwards, after one that is not counted.
ROUNDS = 9

Part = Callable[[argparse.Namespace], Table]

#: CPU seconds and memory of quantising a model in a fresh process, and what the model alone needs.
BERT = """
import resource, sys, time
import torch
from transformers import BertConfig, BertModel
from mase_server import MaseGraph, passes
model = BertModel(BertConfig()).eval()
size = sum(each.nbytes for each in model.parameters())
ids = torch.randint(0, 1000, (2, 16))
inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
with torch.no_grad():
    model(**inputs)
graph = MaseGraph(model, inputs)
use = resource.getrusage(resource.RUSAGE_SELF)
before, started = use.ru_maxrss, use.ru_utime + use.ru_stime
graph, found = passes.quantize_transform_pass(graph, {"default": sys.argv[1]})
use = resource.getrusage(resource.RUSAGE_SELF)
quantised, after = use.ru_utime + use.ru_stime - started, use.ru_maxrss
with torch.no_grad():
    graph.model(*graph.knowledge.feed(graph.arguments))
run = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(quantised, size / 2**20, (after - before) / 1024, (run - before) / 1024, len(found["quantised"]))
"""


def outputs(value: Any) -> list[Tensor]:
    """The floating-point tensors of a result; caches and other objects are not looked into."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in outputs(item)]


def ratio(references: Sequence[Tensor], values: Sequence[Tensor]) -> float | None:
    """The signal to noise ratio in dB, computed apart from the library; None where it is not known."""
    pairs = [(x.double(), y.double()) for x, y in zip(references, values, strict=True)]
    signal = sum(float((x**2).sum()) for x, _ in pairs)
    noise = sum(float(((x - y) ** 2).sum()) for x, y in pairs)
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(signal + noise) else None


def quantised(model: nn.Module, arguments: Mapping[str, Any], text: str) -> str:
    """The ratio that is told, or why the model does not count."""
    graph, found = passes.quantize_transform_pass(MaseGraph(model, dict(arguments)), {"default": text})
    if not found["quantised"]:
        return "nothing quantised"
    graph, _ = passes.add_common_metadata_analysis_pass(graph, {"add_value": False})
    graph, _ = passes.add_software_metadata_analysis_pass(graph)
    graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    for verify in (
        passes.verify_common_metadata_analysis_pass,
        passes.verify_software_metadata_analysis_pass,
        passes.verify_hardware_metadata_analysis_pass,
    ):
        graph, _ = verify(graph)
    graph, told = passes.measure_error_analysis_pass(graph)
    with torch.no_grad():
        mine = outputs(graph.model(*graph.knowledge.feed(graph.arguments)))
        theirs = outputs(model(**arguments))
    if not all(bool(tensor.isfinite().all()) for tensor in mine):
        return "not finite"
    expected, sqnr = ratio(theirs, mine), told["output"].sqnr
    if expected is None or sqnr is None or not math.isclose(expected, sqnr, rel_tol=1e-6, abs_tol=1e-6):
        return f"told {sqnr}, computed {expected}"
    return f"{sqnr:.0f}"


def formats(options: argparse.Namespace) -> Table:
    """Models by formats: dB of the outputs where everything holds, else an error."""
    table = Table("model", *(text.partition("(")[0] for text in options.formats), title="output SQNR in dB")
    good, complaints = dict.fromkeys(options.formats, 0), []
    for name in options.models or [name for _, name in names()]:
        row = []
        for text in options.formats:
            cell = _cell(name, text)
            fine = cell.removeprefix("-").isdigit()
            good[text] += fine
            complaints += [] if fine else [f"{name} {text}: {cell}"]
            row.append(cell if fine else "-")
        table.add_row(name, *row)
        print(name, *row, flush=True)
    table.add_row("models", *(str(good[text]) for text in options.formats))
    table.caption = "\n".join(complaints)
    return table


_BUILT: dict[str, tuple[nn.Module, dict[str, Any]]] = {}


def _cell(name: str, text: str) -> str:
    try:
        if name not in _BUILT:
            _BUILT.clear()
            model = build(name)
            _BUILT[name] = model, dict(MaseGraph(model).arguments)
        return quantised(*_BUILT[name], text)
    except Exception as error:  # noqa: BLE001 - one model's fault is a cell of the table
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:150]}"


def bert(options: argparse.Namespace) -> Table:
    """BERT-base with random weights, in a fresh process for each format."""
    load = os.getloadavg()[0]
    table = Table(
        "format", "CPU", "model", "more at peak", "more when run", "nodes", title=f"BERT-base, load {load:.1f}"
    )
    for text in ("fixed(8,4)", "fixed(8,auto)"):
        command = [sys.executable, "-c", BERT, text]
        out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout
        seconds, size, after, run, count = map(float, out.split())
        if text == "fixed(8,4)":
            tell("passes/bert", seconds)
            tell("passes/bert/memory", (size + after) / size)
        cells = (f"{seconds:.2f} s (target 3)", f"{size:.0f} MiB", f"{after:.0f} MiB", f"{run:.0f} MiB", f"{count:.0f}")
        table.add_row(text, *cells)
    return table


def forward(options: argparse.Namespace) -> Table:
    """What a rounded forward of BERT-base costs over a plain one: CPU seconds, in turn, and the median ratio."""
    from transformers import BertConfig, BertModel

    title = f"BERT-base, a forward in mxfp(8,4) beside a plain one, load {os.getloadavg()[0]:.1f}"
    table = Table("batch x tokens", "plain", "rounded", "ratios", "median", title=title)
    model = BertModel(BertConfig()).eval()
    for batch, tokens in ((1, 128), (2, 16)):
        ids = torch.randint(0, 1000, (batch, tokens))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        graph, _ = passes.quantize_transform_pass(MaseGraph(model, inputs), {"default": "mxfp(8,4)"})
        arguments = graph.knowledge.feed(graph.arguments)
        pairs = []
        with torch.no_grad():
            for _ in range(ROUNDS + 1):
                pairs.append((_cpu(model, **inputs), _cpu(graph.model, *arguments)))
        plain, rounded = (sorted(column)[ROUNDS // 2] for column in zip(*pairs[1:], strict=True))
        ratios = sorted(after / before for before, after in pairs[1:])
        tell(f"passes/mxfp/{batch}x{tokens}", ratios[ROUNDS // 2])
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        cells = (f"{plain:.3f} s", f"{rounded:.3f} s", spread, f"{ratios[ROUNDS // 2]:.2f} (target 3)")
        table.add_row(f"{batch} x {tokens}", *cells)
    return table


def _cpu(call: Callable[..., object], *args: Any, **kwargs: Any) -> float:
    before = time.process_time()
    call(*args, **kwargs)
    return time.process_time() - before


PARTS: dict[str, Part] = {"formats": formats, "bert": bert, "forward": forward}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        Console(width=180).print(PARTS[part](options))


if __name__ == "__main__":
    main()
