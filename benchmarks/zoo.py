"""Every model type of transformers, from its default configuration: traced, run again from its graph, timed.

Usage: python benchmarks/zoo.py [TYPE ...] [--results FILE] [--failed] [--again] [--all]

Results go to a file of JSON lines, one a type, as they come; a type that is there already is not run again, unless it
is named, `--again` runs all, or `--failed` those that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")

import torch
from figures import tell
from forks import Limits, forked
from hf_check import Outcome, check
from hf_explained import EXPLAINED
from hf_types import CUTS, model_types
from rich.console import Console
from rich.table import Table

RESULTS = Path(tempfile.gettempdir()) / "mase-zoo.jsonl"
#: Shares and the ratio that are promised.
TRACED, SAME, RATIO = 0.97, 0.98, 1.7


def main() -> int:
    """Run what is missing and print the table; the exit status says whether the figures hold."""
    options = _options()
    warnings.simplefilter("ignore")
    console = Console(width=170, highlight=False)
    if not hasattr(os, "fork"):
        console.print("this needs os.fork, which this system does not have")
        return 2
    known = {} if options.again else read(options.results)
    wanted = [name for name in model_types() if _is_wanted(name, known.get(name), options)]
    limits = Limits(options.seconds, options.memory)
    with options.results.open("w" if options.again else "a") as stream:
        for name, found in forked(wanted, check, limits, options.at_once):
            known[name] = outcome_of(name, found)
            stream.write(json.dumps({"name": name, **found}) + "\n")
            stream.flush()
            if options.progress:
                console.print(_progress(known[name]), markup=False)
    outcomes = [known[name] for name in model_types() if name in known and (not options.types or name in options.types)]
    console.print(table(outcomes, everything=options.all))
    console.print("\n".join(summary(outcomes)), markup=False)
    tell_figures(outcomes)
    return 0 if holds(outcomes) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types; all of them if none is named")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of JSON lines (%(default)s)")
    parser.add_argument("--failed", action="store_true", help="run those again that failed")
    parser.add_argument("--again", action="store_true", help="forget the results")
    parser.add_argument("--all", action="store_true", help="print a row for every type, not only for those that failed")
    parser.add_argument("--progress", action="store_true", help="print a line for every type as it ends")
    parser.add_argument("--seconds", type=int, default=Limits().seconds, help="processor seconds of a type")
    parser.add_argument("--memory", type=int, default=Limits().memory, help="GiB of a type")
    parser.add_argument("--at-once", type=int, default=2, help="children at a time")
    return parser.parse_args()


def _is_wanted(name: str, known: Outcome | None, options: argparse.Namespace) -> bool:
    if options.types:
        return name in options.types
    return known is None or (options.failed and not known.not_built and not known.same)


def read(path: Path) -> dict[str, Outcome]:
    """Kept results; the last line of a type counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    maps: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {found["name"]: outcome_of(found["name"], found) for found in maps}


def outcome_of(name: str, found: dict[str, Any]) -> Outcome:
    """What a child gave; a child that died is a type that failed."""
    return Outcome(name, why=str(found["died"])) if "died" in found else Outcome(**found)


def _progress(one: Outcome) -> str:
    return f"{one.name}: {reason(one) or f'{one.nodes} nodes'}"


def reason(one: Outcome) -> str:
    """Why a type is not traced, or its graph not the same; empty where all is well."""
    if one.not_built:
        return f"not built: {one.not_built}"
    said = f"eager too: {one.eager}" if one.eager else one.why
    return f"{EXPLAINED[one.name]} ({said})" if said and one.name in EXPLAINED else said


def table(outcomes: list[Outcome], *, everything: bool) -> Table:
    """A row for each type that failed (or each type), with the reason."""
    found = Table("type", "model", "inputs", "nodes", "rung", "traced", "same", "trace ms", "plain ms", "why not")
    for one in outcomes:
        if everything or not (one.not_built or one.same):
            times = [f"{1000 * each:.0f}" if each else "" for each in (one.trace, one.plain)]
            marks = ["yes" if mark else "no" for mark in (one.traced, one.same)]
            found.add_row(one.name, one.model, one.inputs, str(one.nodes or ""), one.rung, *marks, *times, reason(one))
    return found


def summary(outcomes: list[Outcome]) -> Iterator[str]:
    """The figures, and why types could not be built."""
    built, traced, same = _counts(outcomes)
    yield f"{len(outcomes)} types of transformers, torch {torch.__version__}"
    cut = sum(one.layers == CUTS[0].layers for one in outcomes)
    yield f"{built} could be built here, {cut} of them cut to two layers"
    narrow = sum(one.narrow and one.same for one in outcomes)
    yield f"{narrow} of them were made narrow as well, because their path depends on values"
    mended = [one.name for one in outcomes if one.mended and one.same]
    yield f"{len(mended)} with other defaults, because the library cannot run its own: {', '.join(mended)}"
    yield f"{traced} of {built} traced ({_share(traced, built)}; promised {TRACED:.0%})"
    yield f"{same} of {traced} graphs give the same types again ({_share(same, traced)}; promised {SAME:.0%})"
    eager = sum(bool(one.eager) for one in outcomes)
    yield f"{eager} of the {built - traced} others fail in eager PyTorch too, on the same inputs"
    ratios = _ratios(outcomes)
    if ratios:
        ninth = statistics.quantiles(ratios, n=10)[-1] if len(ratios) > 1 else ratios[0]
        yield (
            f"recording takes {statistics.median(ratios):.2f} times the plain forward on meta (median of {len(ratios)} "
            f"types that meta alone runs; nine in ten below {ninth:.2f}; promised {RATIO})"
        )
    yield "not built:"
    for why, count in Counter(one.not_built for one in outcomes if one.not_built).most_common():
        names = [one.name for one in outcomes if one.not_built == why]
        yield f"  {count:4} {why}: {', '.join(names)}"


def tell_figures(outcomes: list[Outcome]) -> None:
    """For `bench.py`."""
    built, traced, same = _counts(outcomes)
    tell("zoo/traced", 100 * traced / max(1, built))
    tell("zoo/same", 100 * same / max(1, traced))
    tell("zoo/ratio", statistics.median(_ratios(outcomes) or [0.0]))


def holds(outcomes: list[Outcome]) -> bool:
    """Are the promises kept?"""
    built, traced, same = _counts(outcomes)
    ratios = _ratios(outcomes) or [0.0]
    return traced >= TRACED * built and same >= SAME * traced and statistics.median(ratios) <= RATIO


def _counts(outcomes: list[Outcome]) -> tuple[int, int, int]:
    """How many were built, traced, and gave the same again."""
    built = sum(not one.not_built for one in outcomes)
    return built, sum(one.traced for one in outcomes), sum(one.same for one in outcomes)


def _ratios(outcomes: list[Outcome]) -> list[float]:
    return [one.trace / one.plain for one in outcomes if one.trace and one.plain]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


if __name__ == "__main__":
    sys.exit(main())
