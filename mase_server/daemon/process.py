"""Start a worker in a user's interpreter, keep the end of its output, and end processes with their descendants."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from mase_server.daemon.channel import Channel
from mase_server.daemon.death import is_of_the_system
from mase_server.daemon.limits import Heartbeat
from mase_server.programs import person_script
from mase_server.protocol.wire import PROTOCOL, Message
from mase_server.system import PASSES_DESCRIPTORS, seconds_waited, signal_group

# Output of workers: read as fast as it comes; only its end is kept.

_KEEP = 64 << 10
_READ = 64 << 10
#: Maximum reads before the event loop gets a turn: the writer may go on for ever.
_AT_ONCE = 16
#: Seconds that a thread may take to read what a process that has ended wrote last.
_LATE_SECONDS = 0.1


class OutputLog:
    """The last 64 KiB written to one pipe. Reading never stops, so that a flood cannot block the writer."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.total = 0
        self._thread: threading.Thread | None = None
        try:
            if sys.platform == "win32":
                raise NotImplementedError
            asyncio.get_running_loop().add_reader(self._read_fd, self._drain_pipe)
            os.set_blocking(self._read_fd, False)
        except NotImplementedError:  # Windows' loop watches no pipes
            self._thread = threading.Thread(target=self._read_to_the_end, args=(self._read_fd,), daemon=True)
            self._thread.start()

    @property
    def write_fd(self) -> int:
        """The end that a worker inherits; call `handed_over` once the worker has it."""
        return self._write_fd

    def handed_over(self) -> None:
        """Close the server's copy of the writing end, so that the end of the stream can be seen."""
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    def _drain_pipe(self) -> bool:
        """Read what has arrived; returns whether there was anything."""
        try:
            data = os.read(self._read_fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._keep(data)
        return True

    def _read_to_the_end(self, descriptor: int) -> None:
        """The same in a thread of its own, which closes the reading end."""
        with open(descriptor, "rb", buffering=0) as pipe, contextlib.suppress(OSError):
            while data := pipe.read(_READ):
                self._keep(data)

    def _keep(self, data: bytes) -> None:
        self.total += len(data)
        self._size += len(data)
        self._chunks.append(data)
        while self._size - len(self._chunks[0]) >= _KEEP:
            self._size -= len(self._chunks.popleft())

    def text(self, limit: int = 4000) -> str:
        """The last `limit` bytes as text, with the newest ones: a worker's end may be seen before its output."""
        if self._thread is not None:
            self._thread.join(_LATE_SECONDS)
        for _ in range(_AT_ONCE if self._thread is None else 0):
            if self._read_fd < 0 or not self._drain_pipe():
                break
        return b"".join(self._chunks)[-limit:].decode("utf-8", "replace")

    def close(self) -> None:
        """Stop reading; the kept output can still be read."""
        if self._thread is None and self._read_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1
        self.handed_over()


BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
HANDSHAKE_SECONDS = 60.0
TERM_SECONDS = 0.7
DEFAULT_JOB = "mase_server.worker.job:trace"

#: A process that forks must not have created threads. (A child that wants more raises torch's own count.)
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
#: A child's later threads sleep while they wait: if other programs run too, spinning is many times slower.
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
#: The Hugging Face hub client reads this when imported, possibly before the file runs; else it retries for long.
OFFLINE = {"HF_HUB_OFFLINE": "1"}
#: The variable with the secret of a worker's connection, see `worker.boot`, and the seconds that sending it may take.
WIRE_SECRET, _GREETING_SECONDS = "MASE_WIRE_SECRET", 5.0
#: These name the folder of the server's socket and token (`rpc.registry`), which user code must not see.
_OURS = ("MASE_RUNTIME_DIR", "XDG_RUNTIME_DIR")


class NoEnvironment(Exception):
    """An interpreter that cannot trace. `code` is from its handshake, or `no-interpreter` if it did not start."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LaunchFailed(Exception):
    """The launcher's process is gone; start another."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A worker's report about its interpreter."""

    python: str
    executable: str
    torch: str
    pid: int
    codec: str


@dataclass(slots=True)
class BootedProcess:
    """A worker after its handshake: its process, its wire and its output."""

    process: asyncio.subprocess.Process
    channel: Channel
    log: OutputLog
    handshake: Handshake


def wire_and_log() -> tuple[Channel, socket.socket, OutputLog]:
    """Both ends of a worker's wire, and its output log. OSError if no descriptor is left; then none stays open."""
    log = OutputLog()
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        log.close()
        raise
    return Channel(ours), theirs, log


async def boot_worker(interpreter: str, role: str, folder: str, job: str) -> BootedProcess:
    """Start `interpreter` on the boot file and wait for its handshake; NoEnvironment says why it cannot be used.

    LaunchFailed if the process had to be ended, which says nothing about the interpreter.
    """
    codec = str(Path(msgpack.__file__).parent)
    words = ("--role", role, "--msgpack", codec, "--folder", folder, "--job", job)
    log = OutputLog()
    try:
        spawn = _spawn_with_pair if PASSES_DESCRIPTORS else _spawn_with_door
        process, sock = await spawn(interpreter, folder, words, log.write_fd)
    except OSError as error:
        log.close()
        if is_of_the_system(error):
            raise
        raise NoEnvironment("no-interpreter", f"{interpreter} does not start: {error.strerror or error}.") from error
    channel = Channel(sock)
    log.handed_over()
    try:
        greeting = await _first_message(process.pid, channel)
        return BootedProcess(process, channel, log, _read_handshake(greeting, interpreter, log))
    except BaseException as error:
        await end_groups([process.pid], process.wait())
        channel.close()
        log.close()
        if isinstance(error, TimeoutError):
            text = f"{interpreter} did not finish importing torch within {HANDSHAKE_SECONDS:.0f} s."
            raise NoEnvironment("import-failed", text) from error
        raise


async def _first_message(pid: int, channel: Channel) -> Message | None:
    """The first message; TimeoutError after `HANDSHAKE_SECONDS`, not counting the time waited for a processor."""
    started = time.monotonic()
    message = asyncio.ensure_future(channel.read())
    missed = asyncio.ensure_future(Heartbeat(pid).missed("handshake"))
    try:
        while not (message.done() or missed.done()):
            left = HANDSHAKE_SECONDS + seconds_waited(pid) - (time.monotonic() - started)
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((message, missed), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if message.done():
            return message.result()
        raise LaunchFailed(f"the process {missed.result()} while it was starting")
    finally:
        message.cancel()
        missed.cancel()


async def _spawn_with_pair(
    interpreter: str, folder: str, words: Sequence[str], log_fd: int
) -> tuple[asyncio.subprocess.Process, socket.socket]:
    """Start a worker that inherits one end of a pair of sockets; the other end is ours."""
    ours, theirs = socket.socketpair()
    with theirs:
        wire = theirs.fileno()
        try:
            return await _spawn_worker(interpreter, folder, (*words, "--wire", str(wire)), log_fd, {}, [wire]), ours
        except BaseException:
            ours.close()
            raise


async def _spawn_with_door(
    interpreter: str, folder: str, words: Sequence[str], log_fd: int
) -> tuple[asyncio.subprocess.Process, socket.socket]:
    """Start a worker that connects to a port of this machine, where no program inherits sockets.

    Any program here can connect, so it first sends a secret that only its environment held.
    """
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        secret = secrets.token_hex(16)
        wire = f"127.0.0.1:{door.getsockname()[1]}"
        process = await _spawn_worker(interpreter, folder, (*words, "--wire", wire), log_fd, {WIRE_SECRET: secret}, [])
        ended = asyncio.ensure_future(process.wait())
        coming = asyncio.ensure_future(_accept_worker(door, secret.encode()))
        try:
            await asyncio.wait((ended, coming), timeout=HANDSHAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return process, coming.result()
            signal_group(process.pid)
            return process, socket.socket()  # a closed end: its last words say why
        finally:
            ended.cancel()
            coming.cancel()


async def _accept_worker(door: socket.socket, secret: bytes) -> socket.socket:
    """The first connection that knows the secret; all others are closed."""
    loop = asyncio.get_running_loop()
    while True:
        made, _ = await loop.sock_accept(door)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_GREETING_SECONDS):
                said = b""
                while len(said) < len(secret) and (more := await loop.sock_recv(made, len(secret) - len(said))):
                    said += more
            if hmac.compare_digest(said, secret):
                return made
        made.close()


async def _spawn_worker(
    interpreter: str, folder: str, words: Sequence[str], log_fd: int, more: dict[str, str], descriptors: Sequence[int]
) -> asyncio.subprocess.Process:
    return await person_script(interpreter, BOOT, folder, *words).without(_OURS).start_async(
        stdin=asyncio.subprocess.DEVNULL, stdout=log_fd, stderr=log_fd, pass_fds=descriptors,
        start_new_session=True, more=SINGLE_THREAD | ASLEEP | OFFLINE | more,
    )  # fmt: skip


def _read_handshake(message: dict[str, object] | None, interpreter: str, log: OutputLog) -> Handshake:
    if message is None:
        text = log.text(400).strip()
        raise NoEnvironment("import-failed", f"{interpreter} ended before it could trace. Its last words: {text}")
    if isinstance(refused := message.get("handshake_failed"), dict):
        raise NoEnvironment(str(refused["code"]), str(refused["message"]))
    facts = message.get("handshake")
    if not isinstance(facts, dict) or facts.get("protocol") != PROTOCOL:
        raise NoEnvironment("import-failed", f"{interpreter} answered with {message!r}, not protocol {PROTOCOL}.")
    return Handshake(facts["python"], facts["executable"], facts["torch"], facts["pid"], facts["codec"])


async def end_groups(pids: list[int], gone: Awaitable[object]) -> None:
    """Send TERM to whole process groups, wait at most 0.7 s until `gone` is done, then send KILL."""
    for pid in pids:
        signal_group(pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gone, TERM_SECONDS)
    for pid in pids:
        signal_group(pid)
