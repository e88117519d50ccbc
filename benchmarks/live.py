"""From the last key to fresh hints, without a save: a size that changes in a forward, and one in a constructor.

The pause after a key (`mase.updateDelay`) is left out: it is set to nothing here. A save of the same kind of edit is
timed beside it, in turn, a second later. Fresh means: the hints request was answered with the new size.
Usage: python benchmarks/live.py [--edits 20] [--typing 30] [--rival PYREFLY] [--memory 2000] [FILE ...], files being
names of `examples/`, or `many.py`, which imports 300 modules of its folder. --rival: the command `pyrefly`; it gets an
edit of the same place after each of ours, and its time is that until its new inlay hint. --memory: type so many edits
into the LeNet example, and tell how memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from editor import END_STATES, Editor, family, label, memory
from figures import FIGURES, tell
from latency import write_modules
from plain_lsp import Server
from rich.console import Console
from rich.table import Table
from saves import EXAMPLES, Save

#: Edits of a forward, then of a constructor: all are inside functions, so that they follow typing.
EDITS = (
    Save("lenet.py", "return self.fc3(x)", "return self.fc3(x).repeat(1, 8)[:, :{n}]", 11),
    Save("mlp.py", "logits = self.head(x)", "logits = self.head(x).repeat(1, 20)[:, :{n}]", 11),
    Save("gpt.py", "logits = self.lm_head(x)", "logits = self.lm_head(x).repeat(1, 1, 2)[..., :{n}]", 601),
    Save("resnet.py", "return self.fc(x)", "return self.fc(x)[:, :{n}]", 601),
    Save(
        "bert_hf.py", "hidden = self.dropout(outputs",
        "seen = outputs.last_hidden_state[..., :{n}]\n        hidden = self.dropout(outputs", 601,
    ),
    Save("many.py", "return scale_0(y)", "return scale_0(y).repeat(1, 30)[:, :{n}]", 601),
)  # fmt: skip
CONSTRUCTORS = (Save("lenet.py", "self.fc3 = nn.Linear(84, num_classes)", "self.fc3 = nn.Linear(84, {n})", 11),)

#: A second, of somebody who types fast.
KEYS = 8
#: Seconds after which the other tool is given up.
SECONDS = 10.0
#: Seconds in which somebody looks at what an edit did, before the next one.
PAUSE = 1.0


#: Edits after which memory is looked at for the first time, before it is compared with that after the last.
SETTLED = 200
#: So many different sizes are typed in turn: the example has no more columns.
SIZES = 50


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of edits of one kind: typed, saved, and typed into the other tool."""

    typed: list[float]
    saved: list[float]
    rival: list[float]


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


@contextlib.contextmanager
def opened_by_rival(command: str, save: Save) -> Iterator[Callable[[int], float]]:
    """The other tool with a file open: a function that types edit number n there, and returns the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(EXAMPLES / save.file, folder)).resolve()
        (path.parent / "pyrefly.toml").write_text(f'python-interpreter-path = "{sys.executable}"\n')
        source = path.read_text(encoding="utf-8")
        start = source.index(save.old)
        indent = " " * (start - source.rindex("\n", 0, start) - 1)
        row = source.count("\n", 0, start) + 1
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": source.count("\n") + 9, "character": 0}}
        asked = {"textDocument": {"uri": path.as_uri()}, "range": whole}
        with Server((command, "lsp"), path.parent) as server:
            server.open(path)
            server.published(path)

            def edit(number: int) -> float:
                name = f"made{number}"
                text = f"{source[:start]}seen = str({number})\n{indent}{name} = [seen]\n{indent}{source[start:]}"
                place = {"line": row, "character": len(indent) + len(name)}
                started = perf_counter()
                server.change(path, text)
                while all(hint["position"] != place for hint in server.ask("textDocument/inlayHint", asked) or ()):
                    if perf_counter() - started > SECONDS:
                        raise RuntimeError(f"{command} showed no hint for {name} in {path.name}")
                return perf_counter() - started

            yield edit


async def measure(editor: Editor, folder: Path, save: Save, edits: int, rival: str) -> Times:
    """Type and save in turn, after one of each to be warm. rival: the other tool's command, "" for none."""
    path, times = folder / save.file, Times([], [], [])
    if save.file == "many.py":
        save = replace(save, source=write_modules(folder).source)
        rival = ""  # it gets the examples alone
    else:
        shutil.copy(EXAMPLES / save.file, path)
    editor.open(path)
    await editor.settled(path)
    with opened_by_rival(rival, save) if rival else contextlib.nullcontext() as edit:
        for number in range(edits + 1):
            await asyncio.sleep(PAUSE)
            times.typed.append(await type_and_settle(editor, path, save, 2 * number))
            if edit is not None:
                times.rival.append(await asyncio.to_thread(edit, number))
            await asyncio.sleep(PAUSE)
            odd = 2 * number + 1
            times.saved.append(await editor.save_and_settle(path, save.text(odd), save.fresh(odd)))
    editor.close(path)
    return Times(times.typed[1:], times.saved[1:], times.rival[1:])  # the first of each warms all up


async def growth(editor: Editor, folder: Path, edits: int) -> tuple[float, float]:
    """By how much the memory of the server, and of all below it, grew over so many typed edits, as a share."""
    save = EDITS[0]
    path = folder / save.file
    shutil.copy(EXAMPLES / save.file, path)
    editor.open(path)
    await editor.settled(path)
    for number in range(edits):
        if number == min(SETTLED, edits // 2):
            before = await hold_still(editor)
        await type_and_settle(editor, path, save, number % SIZES)
    after = await hold_still(editor)
    editor.close(path)
    return after[0] / before[0] - 1, after[1] / before[1] - 1


async def hold_still(editor: Editor) -> tuple[float, float]:
    """MiB of the server, and of it and all below it, once the next child waits."""
    await asyncio.sleep(3 * PAUSE)
    return memory(editor.process.pid), sum(memory(each) for each in family(editor.process.pid))


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


async def tabulate(folder: Path, files: Sequence[str], edits: int, seconds: float, rival: str, many: int) -> Table:
    """The table of p50 and p95; then somebody types for so many seconds, at the usual pause after a key."""
    title = f"{edits} edits each, load {os.getloadavg()[0]:.1f}"
    columns = "file", "edit of", "typed, p50", "p95", "saved, p50", "p95", "wanted, p50", "pyrefly, p50", "ratio"
    table = Table(*columns[: None if rival else -2], title=title)
    async with Editor(folder, updateDelay=0.001) as editor:
        for kind, saves in (("forward", EDITS), ("constructor", CONSTRUCTORS)):
            for save in saves:
                if files and save.file not in files:
                    continue
                times = await measure(editor, folder, save, edits, rival)
                typed, saved = percentiles(times.typed), percentiles(times.saved)
                name = f"{Path(save.file).stem}/{kind}"
                others, beside = {}, []
                if times.rival:
                    others["pyrefly"] = percentiles(times.rival)[0]
                    if f"live/{name}/ratio" in FIGURES:
                        tell(f"live/{name}/ratio", typed[0] / others["pyrefly"])
                    beside = [f"{others['pyrefly']:.0f} ms", f"{typed[0] / others['pyrefly']:.2f}"]
                tell(f"live/{name}", typed[0], **{"typed, p95": typed[1], "saved, p50": saved[0]}, **others)
                goal = FIGURES[f"live/{name}"].goal
                wanted = "" if goal is None else f"{goal:.0f} ms"
                table.add_row(save.file, kind, *(f"{each:.0f} ms" for each in (*typed, *saved)), wanted, *beside)
    captions = []
    if seconds:
        async with Editor(folder) as editor:
            share = await load_of_typist(editor, folder, seconds)
        tell("live/typist", 100 * share)
        captions.append(f"8 keys a second for {seconds:g} s in gpt.py: {100 * share:.0f} % of a processor, all in all")
    if many:
        async with Editor(folder, updateDelay=0.001) as editor:
            server, everything = await growth(editor, folder, many)
        tell("live/memory", 100 * everything)
        captions.append(f"memory over {many} edits: server {100 * server:+.1f} %, all {100 * everything:+.1f} %")
    table.caption = "; ".join(captions)
    return table


def main() -> None:
    """Copy the examples, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--typing", type=float, default=30, help="seconds of typing")
    parser.add_argument("--rival", default="", help="the command pyrefly")
    parser.add_argument("--memory", type=int, default=0, help="edits over which memory is watched")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = tabulate(Path(folder), told.files, told.edits, told.typing, told.rival, told.memory)
        Console(width=140).print(asyncio.run(work))


if __name__ == "__main__":
    main()
