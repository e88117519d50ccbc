"""What PyTorch's compilers make of a model: the time from the command to the text, beside a fresh `python`.

The file is saved with another size and traced, then the view is asked for, so nothing is known of it. The fresh process
imports the same file and compiles the same model at its own inputs alone, logging breaks, or Inductor's code, whose
kernels neither of them builds.
With --compare: the examples, the corpus and the small Hugging Face models. Their graphs, breaks and reasons beside
those that PyTorch logs in a process without mase-server, and whether they export and equal the model at other sizes.
Usage: python benchmarks/compiled.py [--saves 7] [--compare] [NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from editor import Editor
from figures import tell
from lsprotocol import types as lsp
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, SAVES, Save
from small_models import names

from mase_server.cli.session import Wanted, call, daemon_for
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.status import Listener

#: The views, the setting of TORCH_LOGS that tells the same, and the saves after which what they import is loaded.
VIEWS = {"dynamo": "graph_breaks,recompiles", "inductor": "output_code"}
#: Runs a file; the first call of a model is compiled.
PLAIN = """
import os, runpy, sys
import torch, torch._dynamo
from torch import nn
from torch._inductor.codecache import PyCodeCache
from torch._inductor.cpu_vec_isa import VecISA

file, view = sys.argv[1:]
def refuse(*args, **kwargs):
    os._exit(0)
PyCodeCache.load_by_key_path = refuse
VecISA.check_build = lambda isa, code: True
plain = nn.Module.__call__
def call(self, *args, **kwargs):
    nn.Module.__call__ = plain
    with torch.no_grad():
        torch.compile(self.eval(), backend="inductor" if view == "inductor" else "eager")(*args, **kwargs)
    os._exit(0)
nn.Module.__call__ = call
runpy.run_path(file, run_name="__main__")
"""


#: Runs a file, or builds a Hugging Face model; prints the graphs and the messages about breaks of its first model.
LOGS = """
import json, logging, os, runpy, sys, warnings
import torch, torch._dynamo
from torch import nn
from torch._logging._internal import set_logs

file, title = sys.argv[1:]
sys.path[:0] = [os.path.dirname(file)]
warnings.simplefilter("ignore")
set_logs(graph_breaks=True)
logged, graphs = [], []
class Keeper(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())
logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
logger.handlers, logger.propagate = [Keeper()], False
def keep(graph, inputs):
    graphs.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
    return graph.forward
found = {}
plain = nn.Module.__call__
def call(self, *args, **kwargs):
    if title != (type(self).__name__ if not found else "model"):
        return plain(self, *args, **kwargs)
    nn.Module.__call__ = plain
    with torch.no_grad():
        torch.compile(self.eval(), backend=keep)(*args, **kwargs)
    print(json.dumps([graphs, logged]), file=sys.stderr)
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


async def compare(chosen: list[str], folder: Path, out: Path) -> None:
    """Print a line for each model, and write what was found to a file."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    rows = []
    async with daemon_for(Wanted((), python=sys.executable), Listener()) as daemon:
        for name, file in list_files(folder):
            if not chosen or name in chosen:
                rows.append(await compare_one(daemon, name, file))
                print(json.dumps(rows[-1]), flush=True)
                out.write_text("\n".join(map(json.dumps, rows)))
    told = [row for row in rows if row["same"] is not None]
    exported = [row for row in rows if row["export"] is not None]
    print(f"{sum(row['same'] for row in told)} of {len(told)} models with the same graphs, operations and reasons")
    print(f"{sum(row['export'] for row in exported)} of {len(exported)} models exported")


async def compare_one(daemon: Daemon, name: str, file: Path) -> dict[str, Any]:
    """What is found in a file's first model, and what a plain process logs."""
    row: dict[str, Any] = {"name": name, "export": None, "same": None}
    path = str(file)
    daemon.opened(path)
    try:
        await daemon.wait(path)
        title = row["title"] = (await call(daemon, "mase/models", {"path": path}))[0]["title"]
        made = await daemon.compile(path, title, "dynamo", False)
        row["ours"] = [made["graphs"], made["operations"], sorted({one["reason"] for one in made["breaks"]})]
        row["places"] = [[one["file"], one["line"]] for one in made["breaks"]]
        exported = await daemon.compile(path, title, "export", True)
        row |= {"export": not exported["problem"], "problem": exported["problem"][:1500]}
        row["sizes"] = exported["text"].count("# equal to the model at ")
    except Exception as error:  # noqa: BLE001 - told as a row
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        daemon.closed(path)
    if "ours" in row:
        command = [sys.executable, "-c", LOGS, path, title.partition("[")[0]]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stderr.strip().endswith("]]"):
            graphs, logged = json.loads(done.stderr.strip().splitlines()[-1])
            row["theirs"] = [len(graphs), sum(graphs), read_breaks(logged)]
            row["same"] = row["ours"] == row["theirs"]
        else:
            row["plain"] = done.stderr[-300:]
    return row


async def ask(editor: Editor, path: Path, view: str) -> float:
    """Seconds from the command to the text."""
    started = perf_counter()
    arguments = [{"uri": path.as_uri(), "view": view, "show": False}]
    told = await editor.client.workspace_execute_command_async(lsp.ExecuteCommandParams("mase.showCompiled", arguments))
    uri = told["uri"] if isinstance(told, dict) else told.uri
    text = (await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams(uri))).text
    if "There is no such view" in text:
        raise RuntimeError(text)
    return perf_counter() - started


def fresh_python(path: Path, view: str, cache: Path) -> float:
    """Seconds of a new interpreter that compiles the same."""
    started = perf_counter()
    environment = {**os.environ, "TORCH_LOGS": VIEWS[view], "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", PLAIN, path, view], check=True, capture_output=True, env=environment)
    return perf_counter() - started


async def measure(folder: Path, save: Save, saves: int) -> Table:
    """The table of medians. The first save and the first request are not counted."""
    table = Table("view", "first", "median", "slowest", "fresh python", "ratio", title=f"load {os.getloadavg()[0]:.1f}")
    path = folder / save.file
    path.write_text(save.text(0), encoding="utf-8")
    number = 0
    async with Editor(folder) as editor:
        editor.open(path)
        await editor.settled(path)
        for view in VIEWS:
            first = await ask(editor, path, view)
            await asyncio.sleep(8)  # a process is prepared that has imported what the view needs
            ours, plain = list[float](), list[float]()
            for turn in range(saves + 1):
                number += 1
                await editor.save_and_settle(path, save.text(number), save.fresh(number))
                seconds = await ask(editor, path, view)
                if turn:
                    ours.append(seconds)
                if turn % 3 == 0:
                    plain.append(await asyncio.to_thread(fresh_python, path, view, folder / "cache"))
            tell(f"compiled/{view}", median(ours), **{"fresh python": median(plain)})
            tell(f"compiled/{view}/ratio", median(plain) / median(ours))
            table.add_row(
                view, f"{first:.2f} s", f"{median(ours):.2f} s", f"{max(ours):.2f} s", f"{median(plain):.2f} s",
                f"{median(plain) / median(ours):.1f}x",
            )  # fmt: skip
    return table


def main() -> None:
    """Copy the example, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=7)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/compiled.jsonl"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.compare:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as kept:
            asyncio.run(compare(options.names, Path(kept).resolve(), options.out))
        return
    [save] = [each for each in SAVES if each.file == "gpt.py"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        Console(width=120).print(asyncio.run(measure(Path(folder).resolve(), save, options.saves)))


if __name__ == "__main__":
    main()
