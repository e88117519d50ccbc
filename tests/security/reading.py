"""A process that reads files of somebody else under limits, one after another, and says how each went.

Argument: a file of lines, a kind (`data`, `checkpoint`) and a path. One line of JSON for each: what was raised (the
names of its classes, "" for nothing), its text, what the most memory in use grew by, in bytes, and the CPU seconds.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mase_server.ir.checkpoint import load_module
from mase_server.ir.graph import MaseGraph
from mase_server.passes.data import load

#: Bytes that may be added to what this process has mapped once it has imported everything, and CPU seconds for all.
ROOM, SECONDS = 2 << 30, 300


def main(listed: str) -> None:
    """Read every file that is named."""
    graph = MaseGraph(nn.Linear(3, 2), {"input": torch.zeros(4, 3)})
    kinds = {"checkpoint": load_module, "data": lambda path: load(graph, path)}
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    for kind, _, path in (line.partition(" ") for line in Path(listed).read_text().splitlines()):
        print(json.dumps(read_one(kinds[kind], path)), flush=True)


def read_one(load: Callable[[str], Any], path: str) -> dict[str, Any]:
    """How one file went."""
    before, started = peak(forget=True), time.process_time()
    raised, text = [], ""
    try:
        load(path)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the test wants to know
        raised, text = [kind.__name__ for kind in type(error).__mro__[:-2]], str(error)
    return {"raised": raised, "text": text, "grew": peak() - before, "seconds": time.process_time() - started}


def peak(forget: bool = False) -> int:
    """The most memory that was resident, in bytes, since it was last forgotten."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


if __name__ == "__main__":
    main(sys.argv[1])
