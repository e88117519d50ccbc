"""Big models: hover and hints on a 10,000-node graph, also while it is traced; Llama of 405B size from its config.

Usage: python benchmarks/big.py [nodes] [llama]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from editor import Editor, family, memory
from figures import tell
from rich.console import Console
from rich.table import Table

NODES = 10_000
REQUESTS = 300
FUNCTIONS = 50

LLAMA = """import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=16384,
    intermediate_size=53248,
    num_hidden_layers=126,
    num_attention_heads=128,
    num_key_value_heads=8,
    max_position_embeddings=8192,
)

if __name__ == "__main__":
    model = LlamaForCausalLM(config)
    ids = torch.randint(0, config.vocab_size, (2, 128))
    output = model(input_ids=ids, use_cache=False)
    logits = output.logits
"""


def node_file(width: int, nodes: int = NODES) -> str:
    """A model whose forward runs `nodes` operations, each on a line of its own."""
    each = nodes // FUNCTIONS
    parts = ["import torch\nfrom torch import nn\n\n"]
    for function in range(FUNCTIONS):
        lines = "    x = torch.relu(x)\n    x = x * 0.5\n" * (each // 2)
        parts.append(f"\ndef stage_{function}(x):\n{lines}    return x\n\n")
    calls = "".join(f"        x = stage_{function}(x)\n" for function in range(FUNCTIONS))
    parts.append(
        "\nclass Deep(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(8, {width})\n\n    def forward(self, x):\n        x = self.fc(x)\n{calls}"
        "        return x\n\n\nif __name__ == '__main__':\n    Deep()(torch.randn(4, 8))\n"
    )
    return "".join(parts)


async def one_request(editor: Editor, path: Path, lines: int, chance: random.Random) -> tuple[str, float]:
    """A hint request for a screen of 60 lines, or a hover, somewhere; its seconds."""
    line = chance.randrange(lines)
    started = perf_counter()
    if chance.random() < 0.5:
        await editor.hints(path, line, line + 60)
        return "hints of 60 lines", perf_counter() - started
    await editor.hover(path, line, 4)
    return "hover", perf_counter() - started


async def answer_times(folder: Path) -> Table:
    """p95 of hover and hint requests, with the trace at rest and while one runs."""
    path = folder / "deep.py"
    path.write_text(node_file(16))
    table = Table("request", "state", "median", "p95", "worst", "requests", title=f"{NODES} nodes, target p95 10 ms")
    async with Editor(folder) as editor:
        editor.open(path)
        await editor.settled(path)
        lines, chance = path.read_text().count("\n"), random.Random(0)
        at_rest = [await one_request(editor, path, lines, chance) for _ in range(REQUESTS)]
        editor.save(path, node_file(24))
        tracing = asyncio.create_task(editor.settled(path))
        busy = []
        while not tracing.done():
            busy.append(await one_request(editor, path, lines, chance))
        await tracing
    for state, answers in (("at rest", at_rest), ("while tracing", busy)):
        for kind in ("hover", "hints of 60 lines"):
            seconds = [1000 * spent for what, spent in answers if what == kind]
            cuts = quantiles(seconds, n=20)
            tell(f"big/{kind.split()[0]}{'' if state == 'at rest' else '/tracing'}", cuts[18])
            table.add_row(
                kind, state, f"{cuts[9]:.1f} ms", f"{cuts[18]:.1f} ms", f"{max(seconds):.1f} ms", str(len(seconds))
            )
    return table


async def llama_times(folder: Path) -> Table:
    """First hints, symbols, and the peak memory of the child that traces."""
    path = folder / "llama405b.py"
    path.write_text(LLAMA)
    async with Editor(folder) as editor:
        peaks: dict[int, float] = {}
        watching = asyncio.create_task(watch(editor.process.pid, peaks))
        started = perf_counter()
        editor.open(path)
        while not await editor.hints(path):
            await editor.refreshed_again()
        first = perf_counter() - started
        status = await editor.settled(path)
        symbols = perf_counter() - started
        watching.cancel()
        server = memory(editor.process.pid)
    tell("big/llama/first", first)
    tell("big/llama/symbols", symbols)
    tell("big/llama/memory", max(peaks.values(), default=0))
    table = Table("figure", "measured", "target", title=f"Llama 405B from its config: {status.state}")
    table.add_row("open to first hints, cold", f"{first:.2f} s", "4 s")
    table.add_row("open to symbols", f"{symbols:.2f} s", "8 s")
    table.add_row("largest child, peak", f"{max(peaks.values(), default=0):.0f} MiB", "700 MiB")
    table.add_row("server", f"{server:.0f} MiB", "80 MiB")
    return table


async def watch(server: int, peaks: dict[int, float]) -> None:
    """Keep the peak memory of every descendant of the server."""
    while True:
        for pid in family(server):
            if pid != server:
                peaks[pid] = max(peaks.get(pid, 0.0), memory(pid, "VmHWM"))
        await asyncio.sleep(0.05)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["nodes", "llama"])
    options = parser.parse_args()
    for part, measure in (("nodes", answer_times), ("llama", llama_times)):
        if part in options.parts:
            with tempfile.TemporaryDirectory(prefix="mase-big-") as scratch:
                Console(width=110).print(asyncio.run(measure(Path(scratch).resolve())))


if __name__ == "__main__":
    main()
