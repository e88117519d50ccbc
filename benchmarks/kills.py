"""Ends processes at random moments, many times: is anything left of them, and how soon does all work again?

`python benchmarks/kills.py [--kills N] [--seed S]`. Children, warm parents, servers and editors get SIGKILL, or
children and warm parents SIGSTOP, one of them, or all just before their server is killed; or the server's input ends.
Meanwhile a file is traced, a pass is applied, or nothing is done. After each, both other files answer, the next save
shows the right shapes, and no process is left that nobody knows or that is still stopped. It stops where that does not
hold.

Recovery: from the next save to fresh hints; after a server's or an editor's end, from the start of the next server to
the hints of its first two files. Ending: until the last process below a killed server or editor has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from figures import tell

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "faults"), str(TESTS / "lsp")]

from killing import WEIGHTS, Killer  # noqa: E402


def share(values: list[float], part: float) -> float:
    """The value that this part of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


async def measure(kills: int, seed: int) -> None:
    """Print figures as they come, and all of them at the end."""
    found: dict[str, list[float]] = defaultdict(list)
    endings: list[float] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        killer = Killer(Path(name), seed)
        try:
            async for kill in killer.kills(kills):
                found[kill.what].append(kill.recovery)
                endings += [kill.ending] if kill.what in ("server", "editor", "input") else []
                done = sum(map(len, found.values()))
                if done % 50 == 0:
                    print(f"{done} kills, seed {seed}, load {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            await killer.stop()
    # It would have stopped at the first.
    print(f"{kills} kills, seed {seed}: 0 orphans, 0 files that did not recover")
    tell("kills/orphans", 0)
    for what in WEIGHTS:
        if values := found[what]:
            middle, late = share(values, 0.5), share(values, 0.95)
            if what == "child":
                tell("kills/child", middle)
            print(f"{what:12} {len(values):4} kills   recovery p50 {middle:.2f} s   p95 {late:.2f} s")
    if endings:
        tell("kills/ending", share(endings, 0.95))
        print(f"all processes below had ended after p50 {share(endings, 0.5):.2f} s, p95 {share(endings, 0.95):.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(measure(given.kills, given.seed))
