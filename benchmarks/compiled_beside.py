"""What PyTorch's compilers make of models, beside what PyTorch logs in processes without mase-server.

The examples, the corpus and the small Hugging Face models: graphs, operations, breaks with their reasons, and why they
are compiled again at other sizes; whether they export, and equal the model at its own and at other sizes.
Usage: python benchmarks/compiled.py --compare [--out FILE] [NAME ...]
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from saves import EXAMPLES
from small_models import names

from mase_server.cli.session import Wanted, call, daemon_for
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.status import Listener

#: Runs a file, or builds a Hugging Face model; prints the graphs and the messages of its first model's run at its own
#: inputs and then at others, whose tensors have new sizes in place of the named ones.
LOGS = """
import inspect, json, logging, os, runpy, sys, warnings
import torch, torch._dynamo
from torch import nn
from torch._logging._internal import set_logs

file, title, dims, points = sys.argv[1:]
dims, points = json.loads(dims), json.loads(points)
sys.path[:0] = [os.path.dirname(file)]
warnings.simplefilter("ignore")
set_logs(graph_breaks=True, recompiles=True)
breaks, again, graphs, whole = [], [], [], []
class Keeper(logging.Handler):
    def emit(self, record):
        self.messages.append(record.getMessage())
for name, messages in {"symbolic_convert.__graph_breaks": breaks, "guards.__recompiles": again}.items():
    logger, keeper = logging.getLogger(f"torch._dynamo.{name}"), Keeper()
    keeper.messages = messages
    logger.handlers, logger.propagate = [keeper], False
def keep(graph, inputs):
    if not whole:
        graphs.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
    return graph.forward
def resize(name, value, told, sizes):
    if isinstance(told, dict) and isinstance(value, dict):
        return {key: resize(key, each, told["dict"].get(key), sizes) for key, each in value.items()}
    if not isinstance(value, torch.Tensor) or not isinstance(told, list):
        return value
    shape = [sizes.get(dim, size) for dim, size in zip(told[2], value.shape)]
    with torch.inference_mode(False):
        if value.is_floating_point():
            return torch.rand(shape, dtype=value.dtype)
        return torch.full(shape, int("mask" in name), dtype=value.dtype)
found = {}
plain = nn.Module.__call__
def call(self, *args, **kwargs):
    if title != (type(self).__name__ if not found else "model"):
        return plain(self, *args, **kwargs)
    nn.Module.__call__ = plain
    given = inspect.signature(self.forward).bind(*args, **kwargs)
    named = dict(given.arguments)
    with torch.no_grad():
        compiled = torch.compile(self.eval(), backend=keep)
        compiled(*given.args, **given.kwargs)
        whole.append(True)
        for sizes in points:
            given.arguments.update({name: resize(name, value, dims.get(name), sizes) for name, value in named.items()})
            try:
                compiled(*given.args, **given.kwargs)
            except Exception:
                break
    print(json.dumps([graphs, breaks, again]), file=sys.stderr)
    os._exit(0)
nn.Module.__call__ = call
found = runpy.run_path(file, run_name="__main__")
if "found_inputs" in found:
    nn.Module.__call__ = plain
    given = found["found_inputs"]()
    nn.Module.__call__ = call
    found["model"](**given)
"""
#: A file that has one Hugging Face model; a process without mase-server needs the inputs that are found for it.
HUGGING_FACE = """
import sys
sys.path.insert(0, {benchmarks!r})
import torch
from small_models import configuration
from transformers import AutoModel

torch.manual_seed(0)
model = AutoModel.from_config(configuration({name!r})).eval()


def found_inputs():
    from mase_server import MaseGraph

    return MaseGraph(model).arguments
"""
_ATTEMPT = re.compile(r"Encountered graph break when attempting to trace .*?\n+")
_HERE = Path(__file__).parent
_REASON = re.compile(r"(?:Graph Break )?Reason: (.*?)(?:\n+\s*(?:Explanation|Hint|Developer|User code)|\Z)", re.DOTALL)


def list_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of the examples, the corpus, and one file for each Hugging Face model."""
    for place in (EXAMPLES, _HERE.parent / "tests" / "inputs" / "corpus"):
        yield from ((file.stem, file) for file in sorted(place.glob("*.py")) if file.stem != "needs_download")
    for _, name in names():
        file = folder / f"{name.replace('-', '_')}.py"
        file.write_text(HUGGING_FACE.format(benchmarks=str(_HERE), name=name))
        yield name, file


def read_breaks(messages: list[str]) -> list[str]:
    """The reasons that PyTorch logs, without what is for its developers, each once."""
    found = (_REASON.search(_ATTEMPT.sub("", message)) for message in messages)
    return sorted({" ".join(each[1].split()).partition(" Explanation:")[0] for each in found if each})


def read_recompiles(messages: list[str]) -> list[str]:
    """The guards that PyTorch logs for each recompilation, without the lines that it notes beside them."""
    guards = [re.findall(r"^ *- \d+/[\d_]+: (.*)$", message, re.MULTILINE) for message in messages]
    return ["; ".join(re.sub(r"\s{2,}# .*?(?= \(HINT|$)", "", each).strip() for each in found) for found in guards]


async def compare(chosen: list[str], folder: Path, out: Path) -> None:
    """Print a line for each model, and write what was found to a file."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    rows = []
    out.parent.mkdir(parents=True, exist_ok=True)
    async with daemon_for(Wanted((), python=sys.executable), Listener()) as daemon:
        for name, file in list_files(folder):
            if not chosen or name in chosen:
                rows.append(await compare_one(daemon, name, file))
                print(json.dumps(rows[-1]), flush=True)
                out.write_text("\n".join(map(json.dumps, rows)))
    for line in sum_up(rows):
        print(line)


def sum_up(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The sums of the table."""
    told = [row for row in rows if row["same"] is not None]
    again = [row for row in told if row["again"] is not None]
    tried = [row for row in rows if row["export"] is not None]
    programs = [row for row in tried if row["export"]]
    yield f"{sum(row['same'] for row in told)} of {len(told)} models with the same graphs, operations and reasons"
    yield f"{sum(row['again'] for row in again)} of {len(again)} compiled again for the same reasons"
    three = sum(row["sizes"] == 3 for row in programs)
    yield f"{len(programs)} of {len(tried)} models exported, {three} of them at three sizes"
    yield f"{sum(not row['rounded'] for row in programs)} of them equal the model bit for bit"
    yield "but for rounding: " + ", ".join(row["name"] for row in programs if row["rounded"])
    yield f"{sum(row['place'] is not None for row in tried if not row['export'])} of the others refused at a line"


async def compare_one(daemon: Daemon, name: str, file: Path) -> dict[str, Any]:
    """What is found in a file's first model, and what a plain process logs."""
    row: dict[str, Any] = {"name": name, "export": None, "same": None, "again": None}
    path = str(file)
    daemon.opened(path)
    try:
        await daemon.wait(path)
        model = (await call(daemon, "mase/models", {"path": path}))[0]
        title = row["title"] = model["title"]
        made = await daemon.compile(path, title, "dynamo", True)
        row["ours"] = [made["graphs"], made["operations"], sorted({one["reason"] for one in made["breaks"]})]
        row["places"] = [[one["file"], one["line"]] for one in made["breaks"]]
        row["recompiles"] = [one["reason"] for one in made["recompiles"]]
        exported = await daemon.compile(path, title, "export", True)
        row |= {"export": not exported["problem"], "problem": exported["problem"][:1500], "place": exported["place"]}
        row["rounded"] = re.findall(r"# equal to the model but for rounding, (.*)", exported["text"])
        row["sizes"] = exported["text"].count("# equal to the model at ") + len(row["rounded"])
    except Exception as error:  # noqa: BLE001 - told as a row
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        daemon.closed(path)
    if "recompiles" in row:
        kind = title.partition("[")[0]
        command = [sys.executable, "-c", LOGS, path, kind, json.dumps(model["inputs"]), json.dumps(made["sizes"])]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stderr.strip().endswith("]]"):
            graphs, breaks, again = json.loads(done.stderr.strip().splitlines()[-1])
            row["theirs"] = [len(graphs), sum(graphs), read_breaks(breaks)]
            row["same"] = row["ours"] == row["theirs"]
            row["logged"] = read_recompiles(again)
            row["again"] = row["recompiles"] == row["logged"]
        else:
            row["plain"] = done.stderr[-300:]
    return row
