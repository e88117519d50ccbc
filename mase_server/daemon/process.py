"""Starting a worker in a user's interpreter, and ending processes with all that they started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from mase_server.daemon.channel import Channel
from mase_server.daemon.heartbeat import Heartbeat
from mase_server.daemon.log import OutputLog
from mase_server.daemon.refused import is_of_the_system
from mase_server.priority import waited
from mase_server.programs import person_script
from mase_server.wire import PROTOCOL, Message

BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
HANDSHAKE_SECONDS = 60.0
TERM_SECONDS = 0.7
DEFAULT_JOB = "mase_server.worker.job:trace"

#: A process that forks must not have made threads. (A child that wants more raises torch's own count.)
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
#: Threads that a child makes later wait for each other asleep: where others work too, spinning takes many times longer.
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
#: A hub's client reads this when it is imported, which may be ahead of the file; it would try again and again.
OFFLINE = {"HF_HUB_OFFLINE": "1"}
#: These name the folder of the server's socket and token (`rpc.registry`), which are no business of a person's code.
_OURS = ("MASE_RUNTIME_DIR", "XDG_RUNTIME_DIR")


class NoEnvironment(Exception):
    """An interpreter that cannot trace; `code` is from its handshake, or `no-interpreter` where it did not start."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LaunchFailed(Exception):
    """The launcher's process is gone; start another."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a worker said of its interpreter."""

    python: str
    executable: str
    torch: str
    pid: int
    codec: str


@dataclass(slots=True)
class BootedProcess:
    """A worker that shook hands: its process, its wire and what it prints."""

    process: asyncio.subprocess.Process
    channel: Channel
    log: OutputLog
    handshake: Handshake


def wire_and_log() -> tuple[Channel, socket.socket, OutputLog]:
    """Both ends of a worker's wire and what it prints to. OSError where no descriptor is left; then none stays open."""
    log = OutputLog()
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        log.close()
        raise
    return Channel(ours), theirs, log


async def boot(interpreter: str, role: str, folder: str, job: str) -> BootedProcess:
    """Start `interpreter` on the boot file and wait for its handshake; NoEnvironment says why it cannot be used.

    LaunchFailed where the process had to be ended, which says nothing of the interpreter.
    """
    channel, theirs, log = wire_and_log()
    try:
        with theirs:
            process = await _spawn(interpreter, role, folder, job, theirs.fileno(), log.write_fd)
    except OSError as error:
        channel.close()
        log.close()
        if is_of_the_system(error):
            raise
        raise NoEnvironment("no-interpreter", f"{interpreter} does not start: {error.strerror or error}.") from error
    log.handed_over()
    try:
        greeting = await _first_message(process.pid, channel)
        return BootedProcess(process, channel, log, _handshake(greeting, interpreter, log))
    except BaseException as error:
        await end_groups([process.pid], process.wait())
        channel.close()
        log.close()
        if isinstance(error, TimeoutError):
            text = f"{interpreter} did not finish importing torch within {HANDSHAKE_SECONDS:.0f} s."
            raise NoEnvironment("import-failed", text) from error
        raise


async def _first_message(pid: int, channel: Channel) -> Message | None:
    """TimeoutError after `HANDSHAKE_SECONDS`, without what the process waited for a processor meanwhile."""
    started = time.monotonic()
    message = asyncio.ensure_future(channel.read())
    missed = asyncio.ensure_future(Heartbeat(pid).missed("handshake"))
    try:
        while not (message.done() or missed.done()):
            left = HANDSHAKE_SECONDS + waited(pid) - (time.monotonic() - started)
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((message, missed), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if message.done():
            return message.result()
        raise LaunchFailed(f"the process {missed.result()} while it was starting")
    finally:
        message.cancel()
        missed.cancel()


async def _spawn(
    interpreter: str, role: str, folder: str, job: str, wire_fd: int, log_fd: int
) -> asyncio.subprocess.Process:
    codec = str(Path(msgpack.__file__).parent)
    command = person_script(
        interpreter, BOOT, folder, "--wire", str(wire_fd), "--role", role, "--msgpack", codec, "--folder", folder,
        "--job", job,
    ).without(_OURS)  # fmt: skip
    return await command.start_async(
        stdin=asyncio.subprocess.DEVNULL, stdout=log_fd, stderr=log_fd, pass_fds=(wire_fd,),
        start_new_session=True, more=SINGLE_THREAD | ASLEEP | OFFLINE,
    )  # fmt: skip


def _handshake(message: dict[str, object] | None, interpreter: str, log: OutputLog) -> Handshake:
    if message is None:
        text = log.text(400).strip()
        raise NoEnvironment("import-failed", f"{interpreter} ended before it could trace. Its last words: {text}")
    if isinstance(refused := message.get("handshake_failed"), dict):
        raise NoEnvironment(str(refused["code"]), str(refused["message"]))
    facts = message.get("handshake")
    if not isinstance(facts, dict) or facts.get("protocol") != PROTOCOL:
        raise NoEnvironment("import-failed", f"{interpreter} answered with {message!r}, not protocol {PROTOCOL}.")
    return Handshake(facts["python"], facts["executable"], facts["torch"], facts["pid"], facts["codec"])


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal every process of the group that `pid` leads; nothing where it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def end_groups(pids: list[int], gone: Awaitable[object]) -> None:
    """TERM, 0.7 s at most until `gone` is done, then KILL, to whole process groups."""
    for pid in pids:
        signal_group(pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gone, TERM_SECONDS)
    for pid in pids:
        signal_group(pid, signal.SIGKILL)
