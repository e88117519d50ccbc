"""How fast points are measured: one sweep against a loop of `mase-server apply` and `mase-server verilog`.

    python benchmarks/sweep.py [POINTS OF THE LOOP]

Both measure the same points of one file one after the other; the loop is timed on some of them. Seconds are the
processor's, of all processes, so that what else the machine does counts for little.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import tell

EXAMPLE = Path(__file__).parents[1] / "examples" / "mlp.py"
WIDTHS = (4, 5, 6, 7, 8)
MULTIPLIERS = (266, 532, 1064, 2128)


def mase(*words: object) -> dict:
    """What a command says as JSON."""
    command = [sys.executable, "-m", "mase_server", *map(str, words), "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def spent() -> float:
    """Seconds of a processor that the commands so far took, with all that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def swept(results: Path) -> tuple[float, list[dict]]:
    """Seconds of a sweep over all points, and the points."""
    started = spent()
    told = mase(
        "sweep", EXAMPLE, "--pipeline", "quantize default='fixed({w},auto)'",
        "--vary", f"w={','.join(map(str, WIDTHS))}", "--multipliers", ",".join(map(str, MULTIPLIERS)),
        "--results", results, "--jobs", 1,
    )  # fmt: skip
    return spent() - started, told["points"]


def looped(points: list[dict]) -> float:
    """Seconds of two commands for each point; what they say has to be what the sweep said."""
    started = spent()
    for point in points:
        step, multipliers = point["pipeline"][0], point["build"]["multipliers"]
        hardware = mase("verilog", EXAMPLE, "--pass", step, "--multipliers", multipliers)
        applied = mase("apply", EXAMPLE, *hardware["steps"])
        assert (applied["summary"]["sqnr"], hardware["totals"]["luts"]) == (point["sqnr"], point["luts"])
    return spent() - started


def main() -> None:
    """Print both, and how many times as fast the sweep is."""
    count = int(sys.argv[1]) if sys.argv[1:] else 4
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.sqlite")
        seconds, points = swept(results)
        again, _ = swept(results)
    loop = looped(points[:: max(1, len(points) // count)][:count]) / count
    each = seconds / len(points)
    tell("sweep/ratio", loop / each)
    print(f"processor: sweep: {len(points)} points in {seconds:.1f} s, {each:.2f} s each; all known: {again:.2f} s")
    print(f"loop of verilog and apply: {loop:.2f} s each; the sweep is {loop / each:.1f} times as fast")


if __name__ == "__main__":
    main()
