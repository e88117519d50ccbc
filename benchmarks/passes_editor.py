"""From choosing a pass to new hints, warm, through a real language server: apply, errors, undo, redo, replay at a save.

Fresh means: the hints request was answered with the number format, or with the floating-point type again.
Usage: python benchmarks/passes_editor.py [--rounds 5] [--step "quantize(default='fixed(8,4)')"] [FILE of examples/ ...]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from editor import Editor, label
from figures import FIGURES, tell
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES

from mase_server.protocol.arguments import Step

FILES = ("gpt.py",)
STEP = "quantize(default='fixed(8,4)')"
#: What is measured -> its target in milliseconds, None where there is none.
TARGETS = {"formats": 1000, "errors": 1000, "undo": 100, "redo": 100, "save": None}


async def seconds_of(editor: Editor, path: Path, step: Step, rounds: int) -> dict[str, list[float]]:
    """Seconds of everything that is measured, by its name; one round before them, so that all is warm."""
    editor.open(path)
    await editor.settled(path)
    await passes_known(editor, path)
    found: dict[str, list[float]] = {name: [] for name in TARGETS}
    for turn in range(rounds + 1):
        times = await one_round(editor, path, step, turn)
        for name, seconds in times.items() if turn else ():
            found[name].append(seconds)
    return found


async def one_round(editor: Editor, path: Path, step: Step, turn: int) -> dict[str, float]:
    """Apply, wait for the errors, undo, redo, save, and take all passes back."""
    times: dict[str, float] = {}
    given = {"pass": step.name, "arguments": dict(step.arguments)}
    started = perf_counter()
    applying = asyncio.create_task(editor.execute(path, "mase.applyPass", **given))
    times["formats"] = await shown(editor, path, is_format, started)
    await applying
    times["errors"] = perf_counter() - started
    for name, command, fresh in (("undo", "mase.undoPass", is_float), ("redo", "mase.redoPass", is_format)):
        started = perf_counter()
        await editor.execute(path, command)
        times[name] = await shown(editor, path, fresh, started)
    times["save"] = await saved(editor, path, turn)
    await editor.execute(path, "mase.resetPasses")
    return times


async def saved(editor: Editor, path: Path, turn: int) -> float:
    """Seconds from a save until its hints have the formats again."""
    text = path.read_text(encoding="utf-8").rpartition("\n# turn")[0] or path.read_text(encoding="utf-8")
    started = perf_counter()
    editor.save(path, f"{text}\n# turn {turn}\n")
    await editor.settled(path)
    return await shown(editor, path, is_format, started)


async def shown(editor: Editor, path: Path, fresh: Callable[[list[str]], bool], started: float) -> float:
    """Seconds since `started` when the hints are fresh; they are read again whenever the server asks for it."""
    while not fresh([label(hint) for hint in await editor.hints(path)]):
        await editor.refreshed_again()
    return perf_counter() - started


def is_format(labels: list[str]) -> bool:
    """Is a number format among the hints, such as `fixed(8,4)[B, T, 128]`?"""
    return any(")[" in text for text in labels)


def is_float(labels: list[str]) -> bool:
    """Are the hints those of the model as it was traced?"""
    return not is_format(labels)


async def passes_known(editor: Editor, path: Path) -> None:
    """Wait for the list of passes, which comes shortly after the first trace and sends no event."""
    while not await editor.client.protocol.send_request_async("mase/passes", {"path": str(path)}):
        await asyncio.sleep(0.1)


async def measure(file: str, step: Step, rounds: int) -> dict[str, list[float]]:
    """The times of one example, in a session of its own."""
    with tempfile.TemporaryDirectory(prefix="mase-passes-") as name:
        path = Path(shutil.copy(EXAMPLES / file, name))
        async with Editor(path.parent) as editor:
            return await seconds_of(editor, path, step, rounds)


def main() -> int:
    """Print the table; 1 where a median misses its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", default=STEP)
    arguments = parser.parse_args()
    step = Step.parse(arguments.step)
    table = Table("file", "what", "target ms", "median ms", "worst ms", title=str(step))
    missed = False
    for file in arguments.files:
        for name, seconds in asyncio.run(measure(file, step, arguments.rounds)).items():
            target, middle = TARGETS[name], 1000 * median(seconds)
            if f"passes_editor/{name}" in FIGURES and file == FILES[0]:
                tell(f"passes_editor/{name}", middle)
            missed |= target is not None and middle > target
            table.add_row(file, name, str(target or ""), f"{middle:.0f}", f"{1000 * max(seconds):.0f}")
    Console().print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
