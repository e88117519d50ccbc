"""From a save to fresh hints, warm, against a fresh `python FILE` that does one forward in the same run.

Fresh means: `mase/status` said ready for this content, and the hints request was answered with the new size.
Usage: python benchmarks/latency.py [--saves 9] [FILE ...], files being names of `examples/`, or `modules`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from editor import Editor
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, SAVES, Save

TARGETS = {
    "mlp.py": 150, "lenet.py": 150, "gpt.py": 300, "resnet.py": 300, "llama.py": 300, "bert_hf.py": 500, "many.py": 600,
}  # fmt: skip
MODULES = 300


async def save_times(editor: Editor, folder: Path, save: Save, saves: int) -> list[float]:
    """Seconds of each save of one open file; one save before them, so that it is warm."""
    path = folder / save.file
    editor.open(path)
    await editor.settled(path)
    await editor.save_and_settle(path, save.text(0), save.fresh(0))
    return [await editor.save_and_settle(path, save.text(n), save.fresh(n)) for n in range(1, saves + 1)]


def fresh_python(save: Save, folder: Path, runs: int = 3) -> float:
    """Median seconds of a new interpreter that runs the file with one forward."""
    path = folder / f"plain_{save.file}"
    path.write_text(save.text(0) + save.forward, encoding="utf-8")
    seconds = []
    for _ in range(runs):
        started = perf_counter()
        subprocess.run([sys.executable, str(path)], check=True, stdout=subprocess.DEVNULL)
        seconds.append(perf_counter() - started)
    path.unlink()
    return median(seconds)


PART = """import torch


def scale(x):
    y = x * {number}
    return torch.relu(y)
"""

NET = """import torch
from torch import nn

{imports}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 40)

    def forward(self, x):
        y = self.fc(x)
        return scale_0(y)


if __name__ == "__main__":
    print(Net()(torch.randn(4, 16)).shape)
"""


def write_modules(folder: Path, count: int = MODULES) -> Save:
    """Write a model file that imports `count` modules of its own workspace; the returned edit is of that file."""
    package = folder / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for number in range(count):
        (package / f"part_{number}.py").write_text(PART.format(number=number + 1))
    imports = "".join(f"from parts.part_{number} import scale as scale_{number}\n" for number in range(count))
    source = NET.format(imports=imports)
    (folder / "many.py").write_text(source)
    return Save("many.py", "nn.Linear(16, 40)", "nn.Linear(16, {n})", 41, source=source)


async def measure(folder: Path, chosen: list[Save], saves: int) -> Table:
    """The table of medians, slowest save and ratio."""
    table = Table(
        "file", "save to fresh hints", "slowest", "target", "fresh python", "ratio", title=f"{saves} saves each"
    )
    async with Editor(folder) as editor:
        for save in chosen:
            seconds = await save_times(editor, folder, save, saves)
            plain = fresh_python(save, folder)
            target = TARGETS[save.file]
            table.add_row(
                save.file, f"{median(seconds) * 1000:.0f} ms", f"{max(seconds) * 1000:.0f} ms",
                f"{target} ms", f"{plain:.2f} s", f"{plain / median(seconds):.1f}x",
            )  # fmt: skip
    return table


def main() -> None:
    """Copy the examples, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--saves", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mase-latency-") as scratch:
        folder = Path(scratch).resolve()
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        chosen = [save for save in SAVES if not options.files or save.file in options.files]
        if not options.files or "modules" in options.files:
            chosen.append(write_modules(folder))
        Console(width=110).print(asyncio.run(measure(folder, chosen, options.saves)))


if __name__ == "__main__":
    main()
