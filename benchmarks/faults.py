"""Recovery after a crash: from the save that mends a file whose process ended to fresh hints; beside it, no crash.

Usage: python benchmarks/faults.py [--runs 5] [--file gpt.py]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median

from editor import Editor
from figures import tell
from rich.console import Console
from rich.table import Table
from saves import SAVES, Save

LIBC = "import ctypes, os; libc = ctypes.CDLL(None); "
#: What is put in front of the file.
FAULTS = {
    "no fault": "",
    "segmentation fault": "import ctypes; ctypes.string_at(0)\n",
    "os._exit": "import os; os._exit(3)\n",
    "kill -9": f"{LIBC}libc.kill(os.getpid(), 9)\n",
    "nonsense on every descriptor": "import os\nfor n in range(3, 65):\n"
    "    try: os.write(n, b'x' * 9)\n    except OSError: pass\n",
    "kill -9 of the warm parent": f"{LIBC}libc.kill(os.getppid(), 9)\n",
}


#: What is measured beside: a new warm parent imports torch.
OTHERS = ("no fault", "kill -9 of the warm parent")


async def recovery(save: Save, code: str, runs: int) -> list[float]:
    """Seconds of each run from the good save to its hints, each after a save of the fault. A server for each fault."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / save.file
        path.write_text(save.text(0), encoding="utf-8")
        async with Editor(path.parent) as editor:
            editor.open(path)
            await editor.settled(path)
            for number in range(1, runs + 1):
                editor.save(path, code + save.text(number - 1) if code else save.text(number - 1) + "\n")
                await editor.settled(path)
                seconds.append(await editor.save_and_settle(path, save.text(number), save.fresh(number)))
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    # A file that crashed five times in three minutes is not traced again.
    parser.add_argument("--runs", type=int, default=4, choices=range(1, 5))
    parser.add_argument("--file", default="gpt.py", choices=[save.file for save in SAVES])
    options = parser.parse_args()
    save = next(save for save in SAVES if save.file == options.file)
    table = Table("after", "median", "worst", "target", title=f"{save.file}: the next good save to fresh hints")
    slowest = 0.0
    for name, code in FAULTS.items():
        seconds = asyncio.run(recovery(save, code, options.runs))
        target = "" if name in OTHERS else "0.5 s"
        slowest = max(slowest, median(seconds) if target else 0.0)
        table.add_row(name, f"{median(seconds):.2f} s", f"{max(seconds):.2f} s", target)
    tell("faults/recovery", slowest)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
