"""What PyTorch's compilers make of a model: the time from the command to the text, beside a fresh `python`.

The file is saved with another size and traced, then the view is asked for, so nothing is known of it. The fresh process
imports the same file and compiles the same model at its own inputs alone, logging breaks, or Inductor's code, whose
kernels neither of them builds.
With --compare: the table of compiled_beside.py.
Usage: python benchmarks/compiled.py [--saves 7] [--compare] [NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from compiled_beside import compare
from editor import Editor
from figures import tell
from lsprotocol import types as lsp
from rich.console import Console
from rich.table import Table
from saves import SAVES, Save

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


async def ask(editor: Editor, path: Path, view: str) -> float:
    """Seconds from the command to the text."""
    started = perf_counter()
    uri = (await editor.execute(path, "mase.showCompiled", view=view, show=False))["uri"]
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
    for view in VIEWS:
        async with Editor(folder) as editor:  # of its own, since views that were asked for follow saves
            editor.open(path)
            await editor.settled(path)
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
