"""The corpus: model files written in the manner of public repositories, with nothing configured.

Usage: python benchmarks/corpus.py [FOLDER::FILE ...] [--at-once N] [--json]

Each folder of `tests/inputs/projects` is a workspace, and so is `tests/inputs/corpus`. Prints a line for each file as
it is judged (file, outcome, classes covered, seconds to the first shapes and to the last), what is wrong with it, and
the totals.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from figures import tell
from forks import Limits
from judge import Verdict, classes, judge, wholes
from observed import File
from public import WARM, details, row, summary
from rich.console import Console
from rich.markup import escape

ROOT = Path(__file__).resolve().parents[1] / "tests" / "inputs"


def corpus(root: Path = ROOT) -> Iterator[File]:
    """Every file of `root`/corpus, and of `root`/projects those that define a forward; with their workspaces."""
    yield from (File(str(path.parent), str(path)) for path in sorted((root / "corpus").glob("*.py")))
    for path in sorted((root / "projects").rglob("*.py")):
        if classes(path.read_text(encoding="utf-8")):
            project = path.relative_to(root / "projects").parts[0]
            yield File(str(root / "projects" / project), str(path))


def is_shown(verdict: Verdict) -> bool:
    """Has a whole model of the file shapes up to its end, with inputs that eager takes too?"""
    doubtful = {line.partition(":")[0] for line in verdict.unjudged}
    certain = {line.partition(" ")[0] for line in verdict.models} - doubtful
    whole = wholes(verdict.file.source)
    return bool(certain) and verdict.whole and (not whole or not doubtful.issuperset(whole))


def in_full(verdict: Verdict) -> str:
    """A verdict as JSON."""
    return json.dumps({**asdict(verdict), "file": str(verdict.file), "is_shown": is_shown(verdict)})


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=File.parse, metavar="FOLDER::FILE", help="instead of the whole corpus")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one verdict a line, nothing else")
    options = parser.parse_args()
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    console, verdicts = Console(highlight=False, soft_wrap=True), list[Verdict]()
    for verdict in judge(options.files or list(corpus()), Limits(60), options.at_once):
        verdicts.append(verdict)
        if options.json:
            print(in_full(verdict), flush=True)
            continue
        console.print(escape(" | ".join((*row(verdict), f"{verdict.seconds:.1f} s"))))
        for line in details(verdict):
            console.print(escape(line))
    if not options.json:
        console.print(summary(verdicts))
        tell("corpus/shown", 100 * sum(map(is_shown, verdicts)) / len(verdicts))
        console.print(f"a whole model, confirmed by eager: {sum(map(is_shown, verdicts))} of {len(verdicts)}")


if __name__ == "__main__":
    main()
