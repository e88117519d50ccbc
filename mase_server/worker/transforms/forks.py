"""Forks of a process that report over a socket what they find, and how they ended."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Self

from mase_server import system
from mase_server.protocol import wire

#: The function with which a fork sends a message to its parent.
Send = Callable[[wire.Message], None]
Work = Callable[[socket.socket], object]

_RECEIVE = 1 << 20
_exit = os._exit


class Fork:
    """A running fork, as its parent sees it. ended: all its messages have been read."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid, self.sock, self.ended = pid, sock, False
        self._decoder = wire.Decoder()
        sock.setblocking(False)

    @classmethod
    def of(cls, work: Work, close: Iterable[socket.socket] = (), fault: str = "") -> Self:
        """Fork this process. close: sockets that the fork must close.  fault: file for the line of a crash."""
        ours, theirs = socket.socketpair()
        pid = fork_with_socket(theirs, work, (ours, *close), fault)
        theirs.close()
        return cls(pid, ours)

    def fileno(self) -> int:
        """The descriptor of the socket, for a selector."""
        return self.sock.fileno()

    def messages(self) -> list[wire.Message]:
        """The messages that have arrived; sets `ended` at the end of the stream."""
        found = []
        try:
            data = self.sock.recv(_RECEIVE)
            self.ended = not data
            self._decoder.feed(data)
            while (message := self._decoder.next()) is not None:
                found.append(message)
        except BlockingIOError:
            pass
        except (OSError, wire.WireError):
            self.ended = True
        return found

    def kill(self) -> None:
        """End the fork at once; not to be called after `reap`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, system.KILL)

    def reap(self) -> int:
        """End the fork, unless it has ended by itself; return its status as waitpid gives it."""
        self.kill()
        self.sock.close()
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, 0)[1]
        return 0


def fork_with_socket(sock: socket.socket, work: Work, close: Iterable[socket.socket], fault: str = "") -> int:
    """Fork this process; the fork does its work with one end of a socket pair. Return the fork's process id."""
    _flush_streams()
    pid = system.fork_process()
    if pid == 0:
        _run_fork(sock, work, close, fault)
    return pid


def make_sender(sock: socket.socket) -> Send:
    """A function that sends messages over a socket."""
    return lambda message: sock.sendall(wire.encode(message))


def _run_fork(sock: socket.socket, work: Work, close: Iterable[socket.socket], fault: str) -> NoReturn:
    """In a fork: do the work and end, whatever happens. The fork dies with its parent."""
    status = 1
    try:
        parent = os.getppid()
        for other in close:
            other.close()
        _as_new(fault)
        system.die_with_parent(parent)
        sock.setblocking(True)
        work(sock)
        status = 0
    except BaseException:  # noqa: BLE001 - the process's border: nothing may climb into the parent's loop
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            _flush_streams()
        _exit(status)


def _as_new(fault: str) -> None:
    """Handle signals, crashes and garbage as a new process would."""
    signal.set_wakeup_fd(-1)
    system.set_alarm(0)
    for number in system.signals_named("SIGALRM", "SIGTERM", "SIGCHLD"):
        signal.signal(number, signal.SIG_DFL)
    for number in system.signals_named("SIGUSR1", "SIGUSR2"):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.disable()
    if fault:
        faulthandler.enable(Path(fault).open("w"), all_threads=False)  # noqa: SIM115 - open as long as the process
    # Existing objects stay shared with the parent, untouched by collections.
    gc.freeze()
    gc.enable()


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):
            stream.flush()


def how_it_ended(status: int) -> str:
    """A status of waitpid in words: "was ended by SIGSEGV", "ended with status 3"."""
    if (code := os.waitstatus_to_exitcode(status)) < 0:
        number = -code
        names: dict[int, Any] = {each.value: each.name for each in signal.Signals}
        return f"was ended by {names.get(number, f'signal {number}')}"
    return f"ended with status {code}"
