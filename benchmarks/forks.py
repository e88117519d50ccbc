"""A fork server: jobs in children that share what their parent imported, bounded in time and memory."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

GIBIBYTE = 1 << 30
NICENESS = 10
#: A child that got no processor is stopped after so many times its processor seconds; one may wait for two others.
PATIENCE = 16

Job = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may take: processor seconds, GiB of its own memory."""

    seconds: int = 90
    memory: int = 8


@dataclass(slots=True)
class _Child:
    name: str
    pid: int
    pipe: int
    end: float
    data: bytearray = field(default_factory=bytearray)


@contextmanager
def busy_processors() -> Iterator[None]:
    """Something else for every processor to do."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def forked(names: Iterable[str], job: Job, limits: Limits, at_once: int = 2) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, what `job(name)` gave) as the children end; `{"died": why}` for one that gave nothing."""
    waiting, running = iter(names), dict[int, _Child]()
    while True:
        while len(running) < at_once and (name := next(waiting, None)) is not None:
            child = _start(name, job, limits)
            running[child.pipe] = child
        if not running:
            return
        for child in _ended(running):
            del running[child.pipe]
            yield child.name, _reaped(child, limits)


def _start(name: str, job: Job, limits: Limits) -> _Child:
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _run(name, job, limits, write)
    os.close(write)
    return _Child(name, pid, read, time.monotonic() + PATIENCE * limits.seconds)


def _run(name: str, job: Job, limits: Limits, pipe: int) -> None:
    """The child: one job, its result down the pipe, and no way back into the parent's code."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory * GIBIBYTE, limits.memory * GIBIBYTE))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        with os.fdopen(pipe, "wb") as stream:
            stream.write(json.dumps(job(name)).encode())
    finally:
        os._exit(0)


def _ended(running: dict[int, _Child]) -> list[_Child]:
    """Wait until a child says or takes too much; those that are done."""
    soonest = min(child.end for child in running.values())
    ready, _, _ = select.select(list(running), [], [], max(0.0, soonest - time.monotonic()))
    ended = [child for child in running.values() if child.end <= time.monotonic()]
    for pipe in ready:
        data = os.read(pipe, 1 << 16)
        running[pipe].data += data
        if not data and running[pipe] not in ended:
            ended.append(running[pipe])
    return ended


def _reaped(child: _Child, limits: Limits) -> dict[str, Any]:
    if child.end <= time.monotonic():
        os.kill(child.pid, signal.SIGKILL)
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    try:
        found: dict[str, Any] = json.loads(bytes(child.data))
        return found
    except ValueError:
        return {"died": _cause(status, limits)}


def _cause(status: int, limits: Limits) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return f"took more than {limits.seconds} s"
        return f"ended by {signal.Signals(number).name}"
    return f"ended with status {os.waitstatus_to_exitcode(status)}"
