"""The warm parent: has imported everything, runs no op and no thread, and forks a trace child for each request.

It is single-threaded on purpose: a child of a process that had run one large matmul or one backward hung.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import deque

from mase_server import wire
from mase_server.descendants import end_descendants
from mase_server.worker import child, processes
from mase_server.worker.preload import Preloader

_MAX_FDS = 8
_RECEIVE = 64 << 10
_TERM_SECONDS = 0.25
#: Seconds between two hunts of what outlived the first.
_STRAY_SECONDS = 0.1


class WarmParent:
    """Serves the control socket: `fork`, `preload`, `exit`; ends, with every child's group, when the server is gone."""

    def __init__(self, connection: wire.Connection, job: str, folder: str) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._job = job
        self._decoder = wire.Decoder()
        self._fds: deque[int] = deque()
        self._children: dict[int, int] = {}
        self._preloader = Preloader(folder)
        self._report_due = False
        self._strays_left = False
        self._pid, self._server = os.getpid(), os.getppid()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> int:
        """Serve until the server closes the control socket; the exit status."""
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        processes.adopt_orphans()
        # Between two requests it may import for seconds, and would not see that the wire has ended.
        signal.signal(signal.SIGTERM, self._on_end)
        # SIGCONT reaches it where it was stopped, too: SIGTERM would only wait there.
        signal.signal(signal.SIGCONT, self._on_continue)
        processes.hear_of_parents_end(signal.SIGCONT, self._server)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        with self._selector as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            try:
                while self._turn(selector):
                    pass
            except (OSError, wire.WireError):
                pass  # the server is gone, or speaks no sense: both end here
            finally:
                self._end_all()
        return 0

    def _on_end(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid:  # and no child that does not lead its own life yet
            self._end_all()
        os._exit(128 + number)

    def _on_continue(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid and os.getppid() != self._server:
            self._on_end(signal.SIGTERM, frame)

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        # A wanted preload is imported between requests, one module at a time, so that no fork waits for a list.
        ready = selector.select(0 if self._preloader.pending else _STRAY_SECONDS if self._strays_left else None)
        for key, _ in ready:
            if key.fileobj is self._wake_read:
                self._wake_read.recv(4096)
                self._reap()
            elif not self._receive():
                return False
        if not ready and self._preloader.pending:
            self._preloader.step()
        elif self._strays_left:
            self._end_strays()
        if self._report_due and not self._preloader.pending:
            self._report_due = False
            self._connection.send(self._preloader.report())
        return True

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._sock, _RECEIVE, _MAX_FDS)
        self._fds.extend(fds)
        if not data:
            return False
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if message["op"] == "exit":
                return False
            self._handle(message)
        return True

    def _handle(self, message: wire.Message) -> None:
        if message["op"] == "preload":
            self._preloader.want(message["modules"])
            self._report_due = True
        elif message["op"] == "fork":
            self._preloader.import_now(message.get("needs", ()))
            self._fork(message["id"], self._fds.popleft(), self._fds.popleft())

    def _fork(self, ident: int, wire_fd: int, log_fd: int) -> None:
        if self._preloader.harmful:
            os.close(wire_fd)
            os.close(log_fd)
            self._connection.send(self._preloader.report())
            self._connection.send({"refused": ident})
            return
        pid = os.fork()
        if pid == 0:
            self._become_child(wire_fd, log_fd)
        os.close(wire_fd)
        os.close(log_fd)
        self._children[pid] = ident
        self._connection.send({"forked": ident, "pid": pid})

    def _become_child(self, wire_fd: int, log_fd: int) -> None:
        signal.set_wakeup_fd(-1)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        # Held open here, these would hide the parent's end from the server, and lead a person's code to the parent.
        for held in (self._sock, self._wake_read, self._wake_write, self._selector):
            held.close()
        os.set_inheritable(wire_fd, False)
        child.wait_and_run(wire.Connection(socket.socket(fileno=wire_fd)), self._job)

    def _reap(self) -> None:
        ended = []
        while (found := _ended_child()) is not None:
            # Its group is killed before its id is given back, so that the id cannot be another process's yet.
            processes.kill_group(found)
            _, status = os.waitpid(found, 0)
            if (ident := self._children.pop(found, None)) is not None:
                ended.append({"exited": ident, "status": status})
        self._end_strays()
        for message in ended:
            self._connection.send(message)

    def _end_strays(self) -> None:
        """End orphans that left their group, and were adopted; `_turn` goes on where that takes long."""
        self._strays_left = not end_descendants(self._pid, self._children)

    def _end_all(self) -> None:
        for pid in self._children:
            processes.signal_group(pid, signal.SIGTERM)
        self._wait_for_children(_TERM_SECONDS)
        for pid in self._children:
            processes.kill_group(pid)
        self._wait_for_children(_TERM_SECONDS)
        end_descendants(self._pid)

    def _wait_for_children(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._children and time.monotonic() < deadline:
            found = _ended_child()
            if found is None:
                time.sleep(0.005)
                continue
            processes.kill_group(found)
            os.waitpid(found, 0)
            self._children.pop(found, None)


def _ended_child() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None
