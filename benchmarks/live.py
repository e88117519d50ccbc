"""From the last key to fresh hints, without a save: a size that changes in a forward, and one in a constructor.

The pause after a key (`mase.updateDelay`) is left out: it is set to nothing here. A save of the same kind of edit is
timed beside it, in turn, a second later. Fresh means: the hints request was answered with the new size.
Usage: python benchmarks/live.py [--edits 20] [--typing 30] [FILE ...], files being names of `examples/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from editor import END_STATES, Editor, family, label
from figures import FIGURES, tell
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, Save

#: Edits of a forward, then of a constructor: all are inside functions, so that they follow typing.
EDITS = (
    Save("lenet.py", "return self.fc3(x)", "return self.fc3(x).repeat(1, 8)[:, :{n}]", 11),
    Save("mlp.py", "logits = self.head(x)", "logits = self.head(x).repeat(1, 20)[:, :{n}]", 11),
    Save("gpt.py", "logits = self.lm_head(x)", "logits = self.lm_head(x).repeat(1, 1, 2)[..., :{n}]", 601),
    Save("resnet.py", "return self.fc(x)", "return self.fc(x)[:, :{n}]", 601),
)
CONSTRUCTORS = (Save("lenet.py", "self.fc3 = nn.Linear(84, num_classes)", "self.fc3 = nn.Linear(84, {n})", 11),)

#: A second, of somebody who types fast.
KEYS = 8
#: Seconds in which somebody looks at what an edit did, before the next one.
PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of edits of one kind that were typed, and of those that were saved."""

    typed: list[float]
    saved: list[float]


async def type_and_settle(editor: Editor, path: Path, save: Save, number: int) -> float:
    """Seconds from the change of a text until the hints were read that belong to it; nothing is saved."""
    text = save.text(number)
    digest, since = hashlib.sha256(text.encode()).hexdigest(), len(editor.statuses)

    def ended() -> bool:
        ends = (s for s in editor.statuses[since:] if s.uri == path.as_uri() and s.sha256 == digest)
        return any(s.state in END_STATES - {"superseded"} for s in ends)

    started = perf_counter()
    editor.change(path, text)
    async with editor._changed, asyncio.timeout(60):
        await editor._changed.wait_for(ended)
    labels = [label(hint) for hint in await editor.hints(path)]
    seconds = perf_counter() - started
    if not any(map(save.fresh(number), labels)):
        raise RuntimeError(f"{path.name}, typed: no fresh hint among {labels}; {editor.statuses[-1]}")
    return seconds


async def measure(editor: Editor, folder: Path, save: Save, edits: int) -> Times:
    """Type and save in turn, after one of each to be warm."""
    path, times = folder / save.file, Times([], [])
    shutil.copy(EXAMPLES / save.file, path)
    editor.open(path)
    await editor.settled(path)
    for number in range(edits + 1):
        await asyncio.sleep(PAUSE)
        times.typed.append(await type_and_settle(editor, path, save, 2 * number))
        await asyncio.sleep(PAUSE)
        times.saved.append(await editor.save_and_settle(path, save.text(2 * number + 1), save.fresh(2 * number + 1)))
    editor.close(path)
    return Times(times.typed[1:], times.saved[1:])


async def load_of_typist(editor: Editor, folder: Path, seconds: float) -> float:
    """The share of one processor that the server and all below it take while somebody types 8 keys a second."""
    path = folder / "gpt.py"
    source = (EXAMPLES / path.name).read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    editor.open(path)
    await editor.settled(path)
    head, tail = source.split("        logits = self.lm_head(x)")
    before, started = processor_seconds(editor.process.pid), perf_counter()
    line = "        width = x.shape[-1] + len(str(x.shape))  # "
    for number in range(int(seconds * KEYS)):
        # A statement that is typed again and again; most of its beginnings do not parse, as in life.
        typed = line[: 9 + number % (len(line) - 8)]
        editor.change(path, f"{head}{typed}\n        logits = self.lm_head(x){tail}")
        await asyncio.sleep(1 / KEYS)
    used, passed = processor_seconds(editor.process.pid) - before, perf_counter() - started
    editor.close(path)
    return used / passed


def processor_seconds(pid: int) -> float:
    """Seconds of processor that a process, its descendants, and those of them that have ended took (Linux)."""
    ticks = 0
    for each in family(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The p50 and the p95, in milliseconds."""
    cuts = quantiles(seconds, n=20, method="inclusive")
    return 1000 * cuts[9], 1000 * cuts[18]


async def tabulate(folder: Path, files: Sequence[str], edits: int, seconds: float) -> Table:
    """The table of p50 and p95; then somebody types for so many seconds, at the usual pause after a key."""
    title = f"{edits} edits each, load {os.getloadavg()[0]:.1f}"
    table = Table("file", "edit of", "typed, p50", "p95", "saved, p50", "p95", "wanted, p50", title=title)
    async with Editor(folder, updateDelay=0.001) as editor:
        for kind, saves in (("forward", EDITS), ("constructor", CONSTRUCTORS)):
            for save in saves:
                if files and save.file not in files:
                    continue
                times = await measure(editor, folder, save, edits)
                typed, saved = percentiles(times.typed), percentiles(times.saved)
                name = f"{Path(save.file).stem}/{kind}"
                tell(f"live/{name}", typed[0], **{"typed, p95": typed[1], "saved, p50": saved[0]})
                goal = FIGURES[f"live/{name}"].goal
                wanted = "" if goal is None else f"{goal:.0f} ms"
                table.add_row(save.file, kind, *(f"{each:.0f} ms" for each in (*typed, *saved)), wanted)
    if seconds:
        async with Editor(folder) as editor:
            share = await load_of_typist(editor, folder, seconds)
        tell("live/typist", 100 * share)
        table.caption = f"8 keys a second for {seconds:g} s in gpt.py: {100 * share:.0f} % of a processor, all in all"
    return table


def main() -> None:
    """Copy the examples, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--typing", type=float, default=30, help="seconds of typing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Console(width=120).print(asyncio.run(tabulate(Path(folder), options.files, options.edits, options.typing)))


if __name__ == "__main__":
    main()
