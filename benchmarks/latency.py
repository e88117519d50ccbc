"""From a save to fresh hints, warm, against a fresh `python FILE` that does one forward in the same run.

Fresh means: `mase/status` said ready for this content, and the hints request was answered with the new size.
Usage: python benchmarks/latency.py [--saves 9] [FILE ...], files being names of `examples/`, or `modules`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from editor import Editor
from figures import FIGURES, tell
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, SAVES, Save

MODULES = 300


#: After so many saves, the file is run once by a fresh interpreter, so that both see the same machine.
EVERY = 3


async def times(editor: Editor, folder: Path, save: Save, saves: int) -> tuple[list[float], list[float]]:
    """Seconds of each save of one open file, and of fresh interpreters in between; one save before them, to be warm."""
    path = folder / save.file
    editor.open(path)
    await editor.settled(path)
    await editor.save_and_settle(path, save.text(0), save.fresh(0))
    ours, plain = list[float](), list[float]()
    for number in range(1, saves + 1):
        ours.append(await editor.save_and_settle(path, save.text(number), save.fresh(number)))
        if number % EVERY == 0 or number == saves:
            plain.append(await asyncio.to_thread(fresh_python, save, folder))
    return ours, plain


def fresh_python(save: Save, folder: Path) -> float:
    """Seconds of a new interpreter that runs the file with one forward."""
    path = folder / f"plain_{save.file}"
    path.write_text(save.text(0) + save.forward, encoding="utf-8")
    started = perf_counter()
    subprocess.run([sys.executable, str(path)], check=True, stdout=subprocess.DEVNULL)
    path.unlink()
    return perf_counter() - started


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
    title = f"{saves} saves each, load {os.getloadavg()[0]:.1f}"
    table = Table("file", "save to fresh hints", "slowest", "target", "fresh python", "ratio", title=title)
    async with Editor(folder) as editor:
        for save in chosen:
            seconds, fresh = await times(editor, folder, save, saves)
            plain, name = median(fresh), f"latency/{Path(save.file).stem}"
            tell(name, 1000 * median(seconds), **{"fresh python": 1000 * plain})
            tell(f"{name}/ratio", plain / median(seconds))
            table.add_row(
                save.file, f"{median(seconds) * 1000:.0f} ms", f"{max(seconds) * 1000:.0f} ms",
                f"{FIGURES[name].goal} ms", f"{plain:.2f} s", f"{plain / median(seconds):.1f}x",
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
