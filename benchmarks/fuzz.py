"""Many steps of the editor fuzzer: `python benchmarks/fuzz.py 100000` prints what was asked, and each failure in full.

What a step is, and what has to hold, is in tests/fuzz. A failure ends with the steps that it takes; play them again by
`MASE_FUZZ_REPLAY='...' python -m pytest tests/fuzz -k failure`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from figures import tell

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))

from fuzz_driver import Servers, many

#: Runs between two lines about how far it is.
_OFTEN = 10


def line(servers: Servers, failures: int, seconds: float) -> str:
    """How far it is."""
    return (
        f"{servers.runs} runs, {servers.steps} steps, {servers.requests} requests all answered once, "
        f"{failures} failures, {seconds:.0f} s"
    )


def main(steps: int, seed: int) -> int:
    """Take the steps; the exit status."""
    begun, failures, servers = time.monotonic(), 0, Servers()
    for number, (servers, failed) in enumerate(many(steps, seed)):
        if failed:
            failures += 1
            print(f"{failed}\n", flush=True)
        if number % _OFTEN == 0:
            print(line(servers, failures, time.monotonic() - begun), flush=True)
    tell("fuzz/failures", failures)
    print(line(servers, failures, time.monotonic() - begun))
    print(", ".join(f"{name} {count}" for name, count in servers.done.most_common()))
    return failures > 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
