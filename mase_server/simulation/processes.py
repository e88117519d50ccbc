"""Programs that are run and waited for, in process groups of their own; whoever stops waiting ends them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mase_server.priority import lower
from mase_server.programs import find_program, program

#: What is kept of what a program wrote.
_KEPT = 20_000
_PART = 1 << 16


class SimulationError(Exception):
    """Why there is no simulation: what was run, what it said, and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended. status: negative for a signal.  output, errors: the last of what it wrote."""

    status: int
    output: str
    errors: str


async def run(command: Sequence[str | Path], folder: Path, on_line: Callable[[str], None] | None = None) -> Done:
    """Run a program in a folder, gently: others on the machine go first.

    on_line: gets every line that it writes to its standard error, when it does.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await program(*_manners(), *command).start_async(
        cwd=folder, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
    )
    lower(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(_heard(process.stdout))
            errors = group.create_task(_heard(process.stderr, on_line))
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Done(status, output.result(), errors.result())


async def _heard(stream: asyncio.StreamReader, on_line: Callable[[str], None] | None = None) -> str:
    """The last of what a stream gives."""
    kept = b""
    while part := await (stream.read(_PART) if on_line is None else stream.readline()):
        kept = (kept + part)[-_KEPT:]
        if on_line is not None:
            on_line(part.decode(errors="replace").rstrip())
    return kept.decode(errors="replace")


async def demand(command: Sequence[str | Path], folder: Path) -> str:
    """Run a program that has to succeed, and give what it wrote; SimulationError with its own words otherwise."""
    done = await run(command, folder)
    if done.status != 0:
        raise SimulationError(
            f"{' '.join(map(str, command[:3]))} ... ended with {done.status}:\n{done.output}{done.errors}"
        )
    return done.output


@cache
def _manners() -> tuple[str, ...]:
    """In front of a command: an end with this process, where the system has words for it."""
    path = find_program("setpriv")
    return (path, "--pdeathsig", "KILL", "--") if path else ()
