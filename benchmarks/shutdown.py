"""From `shutdown` to the end of everything: twenty traced files, a trace and a simulation that run, two other tools.

The simulation is one that never ends: a `verilator` of our own stands first on the path.
Usage: python benchmarks/shutdown.py [--runs 3]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from editor import SERVER, Editor, family
from figures import tell
from load import PARTS
from rich.console import Console
from soak import EXAMPLES, Soak
from soaked import files

from mase_server.client import AsyncClient
from mase_server.rpc.registry import find_registration, runtime_dir

_POLL, _PATIENCE = 0.002, 100.0
ENDLESS = """import torch
from torch import nn


class Endless(nn.Module):
    def forward(self, x):
        while True:
            pass


if __name__ == "__main__":
    Endless()(torch.randn(2, 3))
"""
#: Says its version, and builds for ever, with a child of its own.
VERILATOR = """#!/bin/sh
case "$*" in *--version*) echo "Verilator 5.020 2024-01-01"; exit 0;; esac
touch {mark}
sleep 100000 &
wait
"""
SIMULATED = "mlp.py"


class Busy:
    """A server that has everything to end. `processes`: /proc's name and start of each that there is of it."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.processes: set[tuple[int, str]] = set()

    def look(self) -> list[str]:
        """See which processes there are; returns their commands."""
        self.processes = {(pid, _began(pid)) for pid in family(self.editor.process.pid)}
        return [_command(pid) for pid, _ in self.processes]

    def left(self) -> set[tuple[int, str]]:
        """Those that still run."""
        return {(pid, began) for pid, began in self.processes if began and _began(pid) == began}


def _command(pid: int) -> str:
    """The words of a process; "" for one that has ended, or is about to become another program."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _began(pid: int) -> str:
    """When a process started, in ticks; "" for one that does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@asynccontextmanager
async def busy(scratch: Path, names: frozenset[str] | None = None) -> AsyncIterator[Busy]:
    """A server in the middle of all that it does; leaving the context says `shutdown` and `exit`.

    scratch: where it and its files are.  names: of the traced files, None for all twenty of `soaked`.
    """
    shutil.copytree(EXAMPLES, folder := scratch / "project", ignore=shutil.ignore_patterns("__pycache__"))
    (programs := scratch / "programs").mkdir()
    (program := programs / "verilator").write_text(VERILATOR.format(mark=scratch / "building"))
    program.chmod(0o700)
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    try:
        async with AsyncExitStack() as clients, Editor(folder, SERVER) as editor:
            await Soak(editor, [save for save in files() if names is None or save.file in names]).begin()
            first, _ = [await clients.enter_async_context(_client(folder)) for _ in range(2)]
            simulating = asyncio.ensure_future(first.simulate(str(folder / SIMULATED)))
            clients.callback(_drop, simulating)
            async with asyncio.timeout(_PATIENCE):
                while not (scratch / "building").exists():
                    await asyncio.sleep(_POLL)
            (endless := folder / "endless.py").write_text(ENDLESS)
            editor.open(endless)
            async with asyncio.timeout(_PATIENCE):
                while not any(each.uri == endless.as_uri() and each.state == "tracing" for each in editor.statuses):
                    await asyncio.sleep(_POLL)
            found = Busy(editor)
            async with asyncio.timeout(_PATIENCE):
                while not any(command.startswith("sleep ") for command in found.look()):
                    await asyncio.sleep(_POLL)  # the program is there a moment before its child
            yield found
    finally:
        os.environ["PATH"] = os.environ["PATH"].removeprefix(f"{programs}:")


def _drop(answer: asyncio.Future[Any]) -> None:
    answer.cancel()


def _client(folder: Path) -> AsyncClient:
    registered = find_registration(runtime_dir(), str(folder))
    assert registered is not None, f"no server is registered for {folder}"
    return AsyncClient(registered.address)


async def ending(scratch: Path) -> tuple[float, int]:
    """Seconds from `shutdown` until nothing of it runs, and how many processes that were."""
    async with busy(scratch) as found:
        started = perf_counter()
    while found.left():
        await asyncio.sleep(_POLL)
    return perf_counter() - started, len(found.processes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    seconds, count = [], 0
    for _ in range(parser.parse_args().runs):
        with tempfile.TemporaryDirectory(prefix="mase-shutdown-") as name:
            scratch = Path(name).resolve()
            os.environ |= {variable: str(scratch / part) for variable, part in PARTS.items()}
            one, count = asyncio.run(ending(scratch))
            seconds.append(one)
    tell("shutdown/seconds", median(seconds))
    Console().print(
        f"{count} processes had ended {median(seconds):.2f} s after `shutdown`, at most {max(seconds):.2f} s"
    )


if __name__ == "__main__":
    main()
