"""Hugging Face base models of all kinds: traced, annotated, equal to eager bit for bit, also from a checkpoint.

Usage: python benchmarks/huggingface.py [NAME ...] [--kind encoder]
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

from figures import tell
from rich.console import Console
from rich.table import Table
from small_models import Outcome, check, names


def main() -> int:
    """Check and print; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=150)
    outcomes: list[Outcome] = []
    for kind, name in names():
        if (options.names and name not in options.names) or options.kind not in (None, kind):
            continue
        outcomes.append(check(kind, name))
        if not outcomes[-1].good:
            console.print(f"{name}: {outcomes[-1].reason or 'differs from eager'}", markup=False)
    console.print(table(outcomes))
    tell("huggingface/good", sum(outcome.good for outcome in outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


def table(outcomes: list[Outcome]) -> Table:
    """One row a model, the sums below."""
    found = Table("kind", "model", "inputs", "nodes", "trace s", "traced", "annotated", "equal", "reloaded", "reason")
    for one in outcomes:
        marks = ["yes" if mark else "no" for mark in (one.traced, one.annotated, one.equal, one.reloaded)]
        found.add_row(
            one.kind, one.name, ", ".join(one.inputs), str(one.nodes), f"{one.seconds:.2f}", *marks, one.reason
        )
    found.add_section()
    sums = [str(sum(getattr(one, mark) for one in outcomes)) for mark in ("traced", "annotated", "equal", "reloaded")]
    found.add_row("", f"{sum(one.good for one in outcomes)} of {len(outcomes)} good", "", "", "", *sums, "")
    return found


if __name__ == "__main__":
    sys.exit(main())
