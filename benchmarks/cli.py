"""`mase-server shapes FILE` as whole processes: of a file that a running daemon has, and alone.

Python's own start is in every figure, and is told beside them. CPU is of the command alone, what the daemon does for it
is not: that is told by the difference of the wall times.
Usage: python benchmarks/cli.py [--runs 15] [FILE ...], files being names of `examples/`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from figures import tell
from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).parent.parent / "examples"
_COMMAND = Path(sys.executable).with_name("mase-server")
#: What is asked of each file: name -> options.
_ASKED = {"hints": (), "JSON": ("--format=json",), "hints in colour": ()}


class Measured:
    """Wall and CPU milliseconds of a command, each the median of its runs."""

    def __init__(self, words: Sequence[str], runs: int, environment: dict[str, str], folder: Path) -> None:
        walls, processors = [], []
        for _ in range(runs):
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
            subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
            walls.append(perf_counter() - started)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.wall, self.processor = 1000 * median(walls), 1000 * median(processors)

    @property
    def cells(self) -> tuple[str, str]:
        """For a table."""
        return f"{self.wall:.0f}", f"{self.processor:.0f}"


def served(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A daemon of the folder, which is trusted."""
    subprocess.run([str(_COMMAND), "trust", str(folder)], env=environment, check=True, stdout=subprocess.DEVNULL)
    words = [str(_COMMAND), "serve", str(folder), "--python", sys.executable]
    daemon = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    daemon.stdout.readline()
    return daemon


def measure(files: Sequence[str], runs: int, home: Path) -> Table:
    """A row for each file and question."""
    folder = home / "models"
    folder.mkdir()
    places = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
    environment = {**os.environ, **{key: str(home / name) for key, name in places.items()}}
    table = Table("file", "what", "attached, ms", "CPU", "alone, ms", "CPU", title="mase-server shapes FILE")
    bare = Measured([sys.executable, "-c", "pass"], runs, environment, folder)
    table.add_row("", "python -c pass", *bare.cells)
    daemon = served(folder, environment)
    try:
        for name in files:
            shutil.copy(EXAMPLES / name, folder)
            for what, options in _ASKED.items():
                words = [str(_COMMAND), "shapes", *options, name]
                own = environment | ({"FORCE_COLOR": "1"} if "colour" in what else {})
                Measured(words, 1, own, folder)  # the daemon traces it
                attached = Measured(words, runs, own, folder)
                if (name, what) == ("lenet.py", "hints"):
                    tell("cli/attached", attached.wall, **{"python -c pass": bare.wall})
                alone = Measured([*words, "--no-daemon"], 3, own, folder) if what == "hints" else None
                table.add_row(name, what, *attached.cells, *(alone.cells if alone else ()))
    finally:
        daemon.send_signal(signal.SIGINT)
        daemon.wait()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=["lenet.py", "gpt.py"])
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        Console().print(measure(options.files, options.runs, Path(home)))
        print(f"load average: {', '.join(f'{each:.1f}' for each in os.getloadavg())}")


if __name__ == "__main__":
    main()
