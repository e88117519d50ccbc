"""Model files of other people, with nothing configured: how many are shown, and whether all of it is right.

Usage: python benchmarks/public.py [FOLDER|LIST ...] [--labels FILE] [--limit N] [--half dev|held-out] [--site FOLDER]
           [--again] [--json FILE] [--verbose]

Of a FOLDER, every .py file counts that defines an nn.Module with a forward, in the order of the SHA-256 of its path in
the folder; the folder is the workspace. The last bit of that hash says which half a file is of: 0 is development. A
LIST has lines FOLDER::FILE, judged as they stand. --site: where the packages are that these files need, put at the end
of the path, as in the environment of somebody who works on them.

--labels: the class that each file is about, and the inputs that it may have, written by hand (see labels.py). A row
then says whether that class is shown whole, and what an expert would reject of the inputs that were assumed for it.
Without a FOLDER or a LIST, the labelled files are judged. --again: trace each file twice more, once beside a busy loop
on each processor, and say whether the same models, inputs and shapes came out. --json: write the rows there, as they
come.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles

from forks import Limits
from judge import Verdict, judge
from labels import read_labels
from observed import File
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mase_server.daemon.process import OFFLINE

#: What a warm parent has imported by the second save of a file that uses it.
WARM = (
    "numpy", "torch._dynamo", "torchvision", "transformers", "einops", "timm", "scipy", "pandas", "sklearn",
    "pytorch_lightning", "lightning", "torchmetrics", "matplotlib.pyplot", "networkx", "PIL.Image", "cv2",
)  # fmt: skip
HALVES = {"dev": 0, "held-out": 1}


def drawn(folder: Path) -> Iterator[tuple[str, Path]]:
    """(hash, file) of every model file of a folder, in the order of the hash."""
    root = folder.resolve()
    hashed = ((hashlib.sha256(str(path.relative_to(root)).encode()).hexdigest(), path) for path in root.rglob("*.py"))
    return ((digest, path) for digest, path in sorted(hashed) if defines_module(path))


def defines_module(path: Path) -> bool:
    """Does the file define a class with nn.Module as a base, and a forward in it?"""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, RecursionError):
        return False
    bases = {"nn.Module", "torch.nn.Module", *_imported(tree)}
    return any(
        any(ast.unparse(base) in bases for base in node.bases)
        and any(isinstance(each, ast.FunctionDef) and each.name == "forward" for each in node.body)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "torch.nn":
            yield from (name.asname or name.name for name in node.names if name.name == "Module")


def chosen(sources: Sequence[Path], half: str | None, limit: int | None) -> list[File]:
    """The files to judge, at most `limit` of each source."""
    files: list[File] = []
    for source in sources:
        if source.is_dir():
            pairs = [pair for pair in drawn(source) if half is None or int(pair[0], 16) & 1 == HALVES[half]]
            found = [File(str(source.resolve()), str(path)) for _, path in pairs]
        else:
            found = [File.parse(line) for line in source.read_text().splitlines() if line.strip()]
        files += found[:limit]
    return files


def row(verdict: Verdict) -> tuple[str, ...]:
    """One file's line of the table."""
    faults = [f"{len(verdict.wrong)} wrong"] * bool(verdict.wrong)
    faults += [f"{len(verdict.errors)} errors"] * bool(verdict.errors)
    faults += [f"{len(verdict.missing)} missing"] * bool(verdict.missing)
    faults += [f"{len(verdict.unjudged)} unjudged"] * bool(verdict.unjudged)
    name = str(Path(verdict.file.path).relative_to(Path(verdict.file.folder).parent))
    first = "" if verdict.first is None else f"{verdict.first:.1f}"
    covered = f"{verdict.covered}/{verdict.classes}"
    outcome = "parts" if verdict.outcome == "part" and not verdict.whole else verdict.outcome
    main = ("main" if verdict.main_shown else "no main",) if verdict.main else ()
    if verdict.main_first is not None:
        main += (f"{verdict.main_first:.1f}",)
    faults += [f"{len(verdict.implausible)} implausible"] * bool(verdict.implausible)
    faults += ["differs"] * (verdict.again is False)
    why = verdict.why or verdict.main_why
    return name, outcome, *main, covered, first, str(verdict.places), ", ".join(faults), why[:160]


def details(verdict: Verdict) -> Iterator[str]:
    """Everything that is to be looked at, a line each."""
    yield from (f"   model {line}" for line in verdict.models)
    yield from [f"   main {verdict.main_why}"] * bool(verdict.main_why)
    for title in ("errors", "wrong", "missing", "unjudged", "implausible"):
        yield from (f"   {title} {line}" for line in getattr(verdict, title)[:8])


def summary(verdicts: Sequence[Verdict]) -> Table:
    """The totals."""
    table = Table("of all files", "", title=f"{len(verdicts)} files, nothing configured")
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    visible = outcomes["shown"] + outcomes["part"]
    for title, count in (
        ("shown: a model that is part of no other", sum(verdict.whole for verdict in verdicts)),
        ("shown: any model", visible),
        ("shown: every class with a forward", outcomes["shown"]),
    ):
        table.add_row(title, f"{count} ({count / max(1, len(verdicts)):.0%})")
    table.add_row("nothing shown", str(outcomes["nothing"]))
    table.add_row("crashed", str(outcomes["crash"]))
    classes = sum(one.classes for one in verdicts if one.outcome != "crash")
    table.add_row("classes with a forward, covered", f"{sum(one.covered for one in verdicts)} of {classes}")
    table.add_row("places compared with eager", str(sum(verdict.places for verdict in verdicts)))
    for title in ("wrong", "errors", "missing", "unjudged"):
        faulty = [len(getattr(verdict, title)) for verdict in verdicts if getattr(verdict, title)]
        table.add_row(f"{title}: files (in all)", f"{len(faulty)} ({sum(faulty)})")
    first = sorted(verdict.first for verdict in verdicts if verdict.first is not None)
    if len(first) > 1:
        table.add_row("seconds to first shapes: median, p90, worst", _spread(first))
    for cells in _of_labelled([verdict for verdict in verdicts if verdict.main]):
        table.add_row(*cells)
    repeated = [verdict.again for verdict in verdicts if verdict.again is not None]
    if repeated:
        table.add_row("the same models three times", f"{sum(repeated)} of {len(repeated)}")
    return table


def _of_labelled(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """The totals of files with a labelled main class."""
    if not verdicts:
        return
    shown = [verdict for verdict in verdicts if verdict.main_shown]
    yield "shown: the main class", f"{len(shown)} of {len(verdicts)} ({len(shown) / len(verdicts):.0%})"
    rejected = sum(bool(verdict.implausible) for verdict in shown)
    yield "of these, with an implausible assumption", f"{rejected} ({rejected / max(1, len(shown)):.0%})"
    first = sorted(verdict.main_first for verdict in shown if verdict.main_first is not None)
    if len(first) > 1:
        yield "processor seconds to the main class: median, p90, worst", _spread(first)


def as_json(verdict: Verdict) -> str:
    """One file's row, whole, as a line of JSON."""
    return json.dumps({**asdict(verdict), "file": str(verdict.file)})


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f}, {quantiles(seconds, n=10)[-1]:.2f}, {seconds[-1]:.2f}"


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, metavar="FOLDER|LIST")
    parser.add_argument("--labels", type=Path, metavar="FILE")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="processor seconds of one child")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    labels = read_labels(options.labels) if options.labels else {}
    files = chosen(options.sources, options.half, options.limit) if options.sources else [*labels][: options.limit]
    if not files:
        parser.error("no files: give a FOLDER, a LIST or --labels")
    # No file that is judged, and no package that it uses, may meet a module of this folder.
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).resolve().parent]
    if options.site:
        sys.path.append(str(options.site.resolve()))
    os.environ.update(OFFLINE)
    for name in WARM:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    console, verdicts = Console(highlight=False, soft_wrap=True), list[Verdict]()
    kept = options.json.open("w", encoding="utf-8") if options.json else None
    for verdict in judge(files, Limits(options.seconds), options.at_once, labels, options.again):
        verdicts.append(verdict)
        if kept is not None:
            print(as_json(verdict), file=kept, flush=True)
        console.print(escape(" | ".join(row(verdict))))
        for line in details(verdict) if options.verbose else ():
            console.print(escape(line))
    console.print(summary(verdicts))


if __name__ == "__main__":
    main()
