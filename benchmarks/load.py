"""A server under load: how long a hover takes, how often one content is traced, and the turns of its event loop.

Fifty models are opened; two hundred saves come at once; a formatter saves, changes and saves again within milliseconds;
a model of 20,000 operations is opened, and traced again, while it and others are hovered; everything is asked of it.
Turns are those of `turns.py`, which the server runs under. A hover is asked every five milliseconds.
Usage: python benchmarks/load.py [--models 50] [--nodes 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

from big import node_file
from editor import Editor, label
from figures import tell
from lsprotocol import types as lsp
from rich.console import Console
from rich.table import Table

TURNS = Path(__file__).with_name("turns.py")
#: Where the server may write, beside its folder.
PARTS = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
#: On a busy machine twenty thousand operations take longer than a person would wait.
LIMITS = {"seconds": 180}
_BETWEEN_HOVERS = 0.005
_LINE = "        y = self.fc(x)"

MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, {width})

    def forward(self, x):
        y = self.fc(x)
        return torch.relu(y)


if __name__ == "__main__":
    print(Net()(torch.randn(4, 16)).shape)
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One situation. hovers: milliseconds of each.  cpu, wall: milliseconds of the longest turn, and what it was.

    traces: the most that any content was traced, 0 where nothing was.
    """

    hovers: tuple[float, ...]
    cpu: tuple[float, str]
    wall: tuple[float, str]
    traces: int

    def percentile(self, percent: int) -> float:
        """Of the hovers; 0.0 where there were too few."""
        return quantiles(self.hovers, n=100)[percent - 1] if len(self.hovers) > 1 else 0.0


class Load:
    """An editor with many models and a big one, on a server whose turns are written down."""

    def __init__(self, editor: Editor, report: Path, models: int, nodes: int) -> None:
        self.editor, self._report, self._nodes = editor, report, nodes
        self.paths = [editor.folder / f"model{number}.py" for number in range(models)]
        self.big = editor.folder / "big.py"
        self._told = 0

    def turns(self) -> list[Mapping[str, Any]]:
        """The long turns that ended since this was asked last, as `turns.py` tells of them."""
        rows = [json.loads(line) for line in self._report.read_text().splitlines()]
        since, self._told = self._told, len(rows)
        return rows[since:]

    async def during(self, situation: Callable[[Load], Awaitable[None]]) -> Found:
        """What is found while a situation lasts."""
        self.turns()
        since, work, hovers = len(self.editor.statuses), asyncio.ensure_future(situation(self)), []
        hovered = situation in HOVERED
        while hovered and not work.done():
            hovers.append(await self._hover(len(hovers)))
            await asyncio.sleep(_BETWEEN_HOVERS)
        await work
        turns = self.turns()
        longest = {
            key: max(((turn[key], turn["what"]) for turn in turns), default=(0.0, "")) for key in ("cpu", "wall")
        }
        traced = Counter((each.uri, each.sha256) for each in self.editor.statuses[since:] if each.state == "tracing")
        return Found(tuple(hovers), longest["cpu"], longest["wall"], max(traced.values(), default=0))

    async def _hover(self, number: int) -> float:
        """Milliseconds of one: of the models in turn, every other time of the big one, where it is there."""
        of_big = number % 2 and self.big.exists()
        path = self.big if of_big else self.paths[number // 2 % len(self.paths)]
        line = 400 + number if of_big else 10
        started = perf_counter()
        await self.editor.hover(path, line, 9)
        return 1000 * (perf_counter() - started)

    async def expect(self, width: int) -> None:
        """Wait until every model is traced as it is now. RuntimeError where its hints are of another width."""
        for path in self.paths:
            status = await self.editor.settled(path, 200)
            labels = list(map(label, await self.editor.hints(path)))
            if status.state != "ready" or not any(f", {width}]" in each for each in labels):
                raise RuntimeError(f"{path.name} is {status.state} with {labels}, expected the width {width}")

    def text(self, width: int) -> str:
        """The big model's."""
        return node_file(width, self._nodes)


async def warm(load: Load) -> None:
    """One model is asked everything: what the protocol makes once for each kind of message is made now."""
    path = load.editor.folder / "warm.py"
    path.write_text(MODEL.format(width=20))
    load.editor.open(path)
    await load.editor.settled(path, 200)
    await ask_everything(load, path, "Net")


async def opened(load: Load) -> None:
    """Every model is opened."""
    for path in load.paths:
        path.write_text(MODEL.format(width=20))
        load.editor.open(path)
    await load.expect(20)


async def burst(load: Load) -> None:
    """Every model is saved four times, as fast as a client can say it."""
    for width in (21, 22, 23, 24):
        for path in load.paths:
            load.editor.save(path, MODEL.format(width=width))
    await load.expect(24)


async def formatters(load: Load) -> None:
    """Every model is saved, changed and saved again, four times, with a moment between."""
    for width in (31, 32, 33, 34):
        for path in load.paths:
            text = MODEL.format(width=width)
            load.editor.save(path, text.replace(", ", " ,  "))
            load.editor.change(path, text)
            load.editor.save(path, text)
            await asyncio.sleep(0.002)
    await load.expect(34)


async def big_opened(load: Load) -> None:
    """The big model is opened, closed first if it was open."""
    text = _new_text(load)
    if load.big.exists():
        load.editor.close(load.big)
    load.big.write_text(text)
    load.editor.open(load.big)
    await _ready(load)


async def big_saved(load: Load) -> None:
    """The big model is traced again."""
    load.editor.save(load.big, _new_text(load))
    await _ready(load)


def _new_text(load: Load) -> str:
    """The big model in a width that it has not now, so that it is traced."""
    narrow = load.text(16)
    return load.text(24) if load.big.exists() and load.big.read_text() == narrow else narrow


async def _ready(load: Load) -> None:
    status = await load.editor.settled(load.big, 200)
    if status.state != "ready":
        raise RuntimeError(f"the big model is {status.state}: {status.message}")


async def big_asked(load: Load) -> None:
    """All hints of the big model, its lenses, code actions of its whole text, and what pages ask."""
    await ask_everything(load, load.big, "Deep")


async def ask_everything(load: Load, path: Path, model: str) -> None:
    """What an editor and its pages can ask of a file, one after another."""
    client = load.editor.client
    written = path.read_text().splitlines()
    position = {"line": len(written) // 2, "character": 4}
    document = lsp.TextDocumentIdentifier(path.as_uri())
    everything = lsp.Range(lsp.Position(0, 0), lsp.Position(len(written), 0))
    await load.editor.hints(path)
    await load.editor.lenses(path)
    asked = lsp.CodeActionParams(document, everything, lsp.CodeActionContext([]))
    await client.text_document_code_action_async(asked)
    of_file, cursor = {"path": str(path)}, {"uri": path.as_uri(), "position": position, "path": str(path)}
    for method in ("mase/graph", "mase/costTable", "mase/costs", "mase/tensors", "mase/traced"):
        await client.protocol.send_request_async(method, of_file)
    await client.protocol.send_request_async("mase/compare", {**of_file, "other": of_file})
    for method in ("mase/nodesAt", "mase/costRowsAt"):
        await client.protocol.send_request_async(method, {**cursor, "model": model})


async def big_changed(load: Load) -> None:
    """The big model's whole text is replaced: a line above it, half of its lines others, as it was."""
    text = load.big.read_text()
    for changed in (f"# a line above\n{text}", text.replace("0.5", "0.25"), text):
        load.editor.change(load.big, changed)
        await load.editor.hover(load.big, 100, 4)


SITUATIONS: Mapping[str, Callable[[Load], Awaitable[None]]] = {
    "opened": opened,
    "burst": burst,
    "formatters": formatters,
    "big/opened": big_opened,
    "big/saved": big_saved,
    "big/asked": big_asked,
    "big/changed": big_changed,
}
#: While these last hovers are asked. A client that reads twenty thousand hints would measure itself.
HOVERED = (opened, burst, formatters, big_opened, big_saved)


@asynccontextmanager
async def loaded(folder: Path, models: int, nodes: int) -> AsyncIterator[Load]:
    """A server on a folder that is made, with everything that it writes beside it."""
    (project := folder / "project").mkdir()
    (report := folder / "turns").touch()
    async with Editor(project, (sys.executable, str(TURNS), str(report), "lsp"), limits=LIMITS) as editor:
        yield Load(editor, report, models, nodes)


async def measure(folder: Path, models: int, nodes: int) -> Table:
    """Every situation in one server, a row for each."""
    heads = ("hovers", "p50", "p95", "p99", "traces of one content", "longest turn, CPU", "by the clock")
    table = Table("situation", *heads, title=f"{models} models, one of {nodes} operations; milliseconds")
    async with loaded(folder, models, nodes) as load:
        await warm(load)
        for name, situation in SITUATIONS.items():
            found = await load.during(situation)
            row = [f"{found.percentile(each):.1f}" if found.hovers else "" for each in (50, 95, 99)]
            turns = [f"{spent:.1f} {what}" for spent, what in (found.cpu, found.wall)]
            table.add_row(name, str(len(found.hovers)), *row, str(found.traces), *turns)
            tell(f"load/{name}/turn", found.cpu[0])
            if found.hovers:
                tell(f"load/{name}/hover", found.percentile(95))
                tell(f"load/{name}/traces", found.traces)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mase-load-") as name:
        scratch = Path(name).resolve()
        os.environ |= {variable: str(scratch / part) for variable, part in PARTS.items()}
        Console(width=180).print(asyncio.run(measure(scratch, options.models, options.nodes)))


if __name__ == "__main__":
    main()
