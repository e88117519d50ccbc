"""Beside other tools, in one run: bindings shown, seeded bugs found, seconds of a check, seconds and memory of a table.

Usage: python benchmarks/comparison.py [--tools FOLDER] [--only edit,check,table,bindings,bugs] [--bugs REGEX]

The other tools are installed into FOLDER (a scratch folder by default) and asked as their own pages say. The files are
the examples and the seeded bugs of the tests: ordinary code without annotations, which is what this project is made for
and what tools that read annotations are not. `docs/comparison.md` says what these figures leave out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["OMP_NUM_THREADS"] = "1"

import rivals
from editor import Editor
from figures import tell
from rich.console import Console
from rich.table import Table
from rivals import Environment, Found, Place
from saves import SAVES, Save

from tests.bugs.bugs import Bug, clean_text
from tests.bugs.table import BUGS
from tests.examples.cases import CASES
from tests.examples.eager import truth_of

#: What is timed comes first: an idle machine may not stay so.
PARTS = ("edit", "check", "table", "bindings", "bugs")
OURS = "mase-server"
ROUNDS, EDITS = 3, 9
SCRATCH = Path(tempfile.gettempdir()) / "mase-comparison"
Sizes = set[tuple[int, ...]]
#: What stands for a size that a tool does not know.
UNKNOWN = re.compile(r"\?|\b(?:Any|Unknown|int|tuple|_)\b")
console = Console(width=160)


# Bindings


def bindings(tools: Environment) -> None:
    """What a hover tells of every name that holds a tensor in an eager run of the examples."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        seen = {Path(shutil.copy(case.path, folder)): shapes(truth_of(case)) for case in CASES}
        places: rivals.Places = {path: sorted(at) for path, at in seen.items()}
        total = sum(map(len, places.values()))
        (folder / "pyrefly.toml").write_text(f'python-interpreter-path = "{tools.python}"\n')
        table = Table("tool", "all sizes", "some sizes", "none", "wrong", title=f"{total} bindings")
        whole = dict[str, float]()
        for name, ask in rivals.SHOWN.items():
            answers = ask(tools, folder, places)
            verdicts = Counter(
                judged(answers.get((path, at), ""), name, sizes) for path in seen for at, sizes in seen[path].items()
            )
            table.add_row(name, *(str(verdicts[each]) for each in ("full", "partial", "none", "wrong")))
            whole[name] = 100 * verdicts["full"] / total
    console.print(table)
    tell("compare/bindings", whole.pop(OURS), **whole)


def shapes(seen: Mapping[Any, Counter[Any]]) -> dict[Place, Sizes]:
    """The sizes at each place where only plain tensors were seen."""
    plain = {place: set(values) for place, values in seen.items() if place.kind != "return"}
    return {
        (place.line, place.column): {value[1] for value in values}
        for place, values in plain.items()
        if all(isinstance(value, tuple) and value[0] not in ("dict", "tuple", "python") for value in values)
    }


def judged(answer: str, tool: str, seen: Sizes) -> str:
    """Whether an answer tells every size of a tensor ("full"), some ("partial"), none, or one that eager has not."""
    match = rivals.SHAPES[tool].search(answer)
    if match is None:
        return "none"
    dimensions = [each.strip() for each in next(group for group in match.groups() if group is not None).split(",")]
    dimensions = [] if dimensions == [""] else dimensions
    known = [each for each in dimensions if "..." not in each and not UNKNOWN.search(each)]
    if any("..." in each or "*" in each for each in dimensions):
        return "partial" if known else "none"
    if all(len(dimensions) != len(sizes) for sizes in seen):
        return "wrong"
    columns = list(zip(*(sizes for sizes in seen if len(sizes) == len(dimensions)), strict=True))
    if any(not numbers(each) <= set(column) for each, column in zip(dimensions, columns, strict=True)):
        return "wrong"
    return "full" if len(known) == len(dimensions) else "partial"


def numbers(dimension: str) -> set[int]:
    """The sizes that a dimension is said to have, if it is numbers alone: "64|32"."""
    parts = dimension.split("|")
    return {int(part) for part in parts} if all(part.isdecimal() for part in parts) else set()


# Bugs


def bugs(tools: Environment, pattern: str) -> None:
    """At which seeded bugs a tool reports an error at their line, and on how many clean files it reports one."""
    chosen = [bug for bug in BUGS if re.search(pattern, bug.name)]
    finders: dict[str, Callable[[Path], Found]] = {
        "mase-server check": rivals.found_by_us,
        "pyrefly check": partial(rivals.found_by_pyrefly, tools),
        "tsf check": partial(rivals.found_by_torchshapeflow, tools),
        "torchtyc run": partial(rivals.found_by_torchtyc, tools),
    }
    with tempfile.TemporaryDirectory() as scratch:
        seeded, clean = Path(scratch).resolve() / "seeded", Path(scratch).resolve() / "clean"
        write(seeded, {f"bug_{number}.py": bug.seeded() for number, bug in enumerate(chosen)})
        files = sorted({bug.file for bug in chosen})
        write(clean, {f"{file.replace('/', '_')}.py": clean_text(file) for file in files})
        console.print(f"{len(chosen)} bugs: at their line, elsewhere, not told; clean files with an error")
        found_at = dict[str, float]()
        for name, find in finders.items():
            before, found = find(clean), find(seeded)
            told = [placed(bug, found.get(f"bug_{number}.py", set()), before) for number, bug in enumerate(chosen)]
            found_at[name] = 100 * told.count("line") / len(chosen)
            counts = ", ".join(str(told.count(verdict)) for verdict in ("line", "elsewhere", "no"))
            console.print(f"{name}: {counts}; {sum(map(bool, before.values()))} of {len(files)}")
        tell("compare/bugs", found_at.pop("mase-server check"), **found_at)


def placed(bug: Bug, lines: set[int], clean: Found) -> str:
    """Where a bug is told; what is also said of the clean file is none of it."""
    new = lines - clean.get(f"{bug.file.replace('/', '_')}.py", set())
    return "line" if new & set(bug.lines()) else "elsewhere" if new else "no"


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """A folder of files."""
    folder.mkdir()
    for name, source in texts.items():
        (folder / name).write_text(source, encoding="utf-8")


# Seconds


def check(tools: Environment) -> None:
    """The whole command on one file and on all examples, as continuous integration runs it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "examples"
        write(folder, {case.file: case.path.read_text(encoding="utf-8") for case in CASES})
        one, everything = str(folder / "gpt.py"), [str(folder / case.file) for case in CASES]
        torchtyc = [tools.tool("torchtyc"), "run", "--python", tools.python]
        pyrefly = [tools.tool("pyrefly"), "check", "--python-interpreter-path", tools.python]
        ours = [sys.executable, "-m", "mase_server", "check"]
        commands: dict[str, tuple[list[list[str]], list[list[str]]]] = {
            "mase-server check": ([[*ours, one]], [[*ours, *everything]]),
            "pyrefly check": ([[*pyrefly, one]], [[*pyrefly, *everything]]),
            "tsf check": ([[tools.tool("tsf"), "check", one]], [[tools.tool("tsf"), "check", str(folder)]]),
            "torchtyc run": ([[*torchtyc, one]], [[*torchtyc, each] for each in everything]),
        }
        one_file = print_timed("check of gpt.py", {name: small for name, (small, _) in commands.items()})
        tell("compare/check", one_file.pop("mase-server check"), **one_file)
        title = f"check of {len(everything)} files"
        all_files = print_timed(title, {name: large for name, (_, large) in commands.items()})
        tell("compare/check/all", all_files.pop("mase-server check"), **all_files)


def print_timed(title: str, rows: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, float]:
    """A table of what commands take, asked in turn; medians of the processor's seconds."""
    load = os.getloadavg()[0]
    caption = f"fresh processes in turn, median of {ROUNDS}; the largest process; load {load:.1f}"
    table = Table(title, "s", "s of processor", "MiB", title=caption)
    runs = [{name: measured(commands) for name, commands in rows.items()} for _ in range(ROUNDS)]
    processor = dict[str, float]()
    for name in rows:
        seconds, processor[name], memory = map(median, zip(*(run[name] for run in runs), strict=True))
        table.add_row(name, f"{seconds:.2f}", f"{processor[name]:.2f}", f"{memory:.0f}")
    console.print(table)
    return processor


#: Runs commands and tells of all their processes together: the kernel adds them up for the one that waited for them.
MEASURED = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
for one in json.loads(sys.argv[1]):
    subprocess.run(one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
seconds, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def measured(commands: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, and MiB of the largest process."""
    done = rivals.run(sys.executable, "-c", MEASURED, json.dumps([list(one) for one in commands]), limit=600)
    seconds, processor, memory = json.loads(done.stdout)
    return seconds, processor, memory


def edit(tools: Environment) -> None:
    """From an edit to an answer for it: ours to new hints after a save, pyrefly's to a hover while typing."""
    head = (
        "file",
        "mase-server, save to hints, ms",
        "pyrefly, typed to hover, ms",
        "torchtyc, save to diagnostics, ms",
    )
    table = Table(*head, title=f"median of {EDITS} edits each, in turn; load {os.getloadavg()[0]:.1f}")
    for save in SAVES[:4]:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch).resolve() / save.file
            path.write_text(save.text(0), encoding="utf-8")
            (path.parent / "pyrefly.toml").write_text(f'python-interpreter-path = "{tools.python}"\n')
            seconds = asyncio.run(edited(tools, path, save))
        middle = {name: 1000 * median(each) for name, each in seconds.items()}
        table.add_row(save.file, *(f"{each:.0f}" for each in middle.values()))
        if save.file == "gpt.py":
            tell("compare/edit", middle.pop(OURS), **middle)
    console.print(table)


async def edited(tools: Environment, path: Path, save: Save) -> dict[str, list[float]]:
    """Seconds of edits of one open file; each server is asked in turn, and has the file to itself on its disk."""
    seconds: dict[str, list[float]] = {OURS: [], **{name: [] for name in rivals.EDITED}}
    async with Editor(path.parent) as editor:
        editor.open(path)
        await editor.settled(path)
        with ExitStack() as stack:
            others = {name: stack.enter_context(opened(tools, name, path)) for name in rivals.EDITED}
            for number in range(1, EDITS + 1):
                text = save.text(number)
                seconds[OURS].append(await editor.save_and_settle(path, text, save.fresh(number)))
                for name, (server, file) in others.items():
                    ask = rivals.EDITED[name][1]
                    seconds[name].append(await asyncio.to_thread(ask, server, file, text))
    return seconds


@contextmanager
def opened(tools: Environment, name: str, path: Path) -> Iterator[tuple[rivals.Server, Path]]:
    """Another language server, on a copy of the folder, with the file open."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(shutil.copytree(path.parent, Path(scratch).resolve() / "copy")) / path.name
        with rivals.Server((tools.tool(name), "lsp"), file.parent) as server:
            server.open(file)
            for _ in range(rivals.EDITED[name][0]):
                server.published(file)
            yield server, file


# A table of layers

BERT = "import transformers\nmodel = transformers.BertModel(transformers.BertConfig())\n"
TORCHINFO = (
    "import torch\nimport torchinfo\n{build}\n"
    "torchinfo.summary(model, input_data=torch.zeros(2, 64, dtype=torch.long), depth=4, verbose=1)\n"
)
RUN = "import torch\n{build}\nif __name__ == '__main__':\n    model(torch.zeros(2, 64, dtype=torch.long))\n"


def table(tools: Environment) -> None:
    """BERT-base from its configuration: torchinfo runs it with its weights, ours without."""
    with tempfile.TemporaryDirectory() as scratch:
        theirs, ours = Path(scratch).resolve() / "theirs.py", Path(scratch).resolve() / "ours.py"
        theirs.write_text(TORCHINFO.format(build=BERT))
        ours.write_text(RUN.format(build=BERT))
        commands = {
            "torchinfo.summary": [[tools.python, str(theirs)]],
            "mase-server graph": [[sys.executable, "-m", "mase_server", "graph", str(ours)]],
        }
        print_timed("table of BERT-base", commands)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=SCRATCH)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--bugs", default="")
    options = parser.parse_args()
    tools = rivals.environment(options.tools)
    started = perf_counter()
    console.print(", ".join(f"{name} {version}" for name, version in tools.versions().items()))
    console.print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    parts: dict[str, Callable[[], None]] = {
        "bindings": partial(bindings, tools), "bugs": partial(bugs, tools, options.bugs),
        "check": partial(check, tools), "edit": partial(edit, tools), "table": partial(table, tools),
    }  # fmt: skip
    for name in options.only.split(","):
        parts[name]()
    console.print(f"load {os.getloadavg()[0]:.1f}; {perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
