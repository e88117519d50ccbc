"""Ends processes of a session with SIGKILL, or stops them with SIGSTOP, at moments that a seed draws.

It looks at what is left, and how it goes on.
The editor is a process of its own between the test and the server, so that it can be killed like everything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from editing import END_STATES
from family import Process, is_stopped, until
from faulting import SERVER, Stand
from good_net import good, seen

#: What is ended or stopped, and how often of a hundred times. The last four cost a new server, which imports torch.
#: A child is whatever hangs below a warm parent: what traces, the forks that run passes, the holder of real models.
WEIGHTS = {
    **{"child": 36, "stopped child": 22, "warm parent": 14, "stopped warm parent": 8},
    **{"server": 5, "server of stopped ones": 5, "editor": 5, "input": 5},
}
#: Seconds between a save and the kill, at most: from before the fork to after the hints.
_LATEST = 0.25
#: Starts the server and hands on what either side says; SIGUSR1 closes the server's input and goes on.
_EDITOR = """
import os, signal, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
signal.signal(signal.SIGUSR1, lambda *_: os.dup2(os.open(os.devnull, os.O_WRONLY), server.stdin.fileno()))

def hand_on(source, sink):
    while data := os.read(source, 65536):
        while data:
            data = data[os.write(sink, data):]

threading.Thread(target=hand_on, args=(0, server.stdin.fileno()), daemon=True).start()
try:
    hand_on(server.stdout.fileno(), 1)
finally:
    os._exit(server.wait() & 255)
"""


class Session(Stand):
    """A stand whose editor is a process: `editor_pid`, with the server below it."""

    def __init__(self, folder: Path, **options):
        super().__init__(folder, command=(sys.executable, "-c", _EDITOR, *SERVER), **options)

    @property
    def editor_pid(self) -> int:
        """The process between the test and the server."""
        return self.editor.process.pid

    @property
    def server(self) -> int:
        """The server, whoever else hangs below the editor."""
        return next(each.pid for each in self.processes() if each.parent == self.editor_pid)

    def processes(self) -> frozenset[Process]:
        """All, the editor too."""
        return self.family(self.editor_pid)

    def children(self) -> frozenset[Process]:
        """Without the editor."""
        return frozenset(each for each in super().children() if each.pid != self.editor_pid)


@dataclass(frozen=True)
class Kill:
    """One kill, or stop. recovery: seconds from the next save, or the next server's start, to fresh hints."""

    what: str
    recovery: float
    #: Seconds until everything below a server or an editor that was killed had ended; 0 for others.
    ending: float = 0.0


class Killer:
    """Kills, in sessions that it makes below a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._sessions = 0
        self._files = 0
        self.session: Session | None = None

    async def kills(self, count: int, weights=None):
        """So many, one after the other."""
        weights = weights or WEIGHTS
        for what in self._random.choices(list(weights), list(weights.values()), k=count):
            yield await self.kill(what)

    async def kill(self, what: str) -> Kill:
        """End or stop one process of this kind, and see everything work again."""
        session = self.session or await self._start()
        return await (self._worker if what.endswith(("child", "warm parent")) else self._end)(session, what)

    async def stop(self) -> None:
        """End the session that is left, in order."""
        if self.session is not None:
            await self.session.stop()
            self.session = None

    async def _start(self) -> Session:
        self._sessions += 1
        folder = self._folder / f"session{self._sessions}"
        folder.mkdir()
        self.session = Session(folder)
        await self.session.start()
        return self.session

    async def _worker(self, session: Session, what: str) -> Kill:
        """A child or a warm parent, while a file is being traced, or a pass applied, or nothing done."""
        self._files += 1
        name = f"file{self._files}.py"
        assert await session.open(name, good()) == "ready"
        work = await self._busy(session, name)
        groups = {"child": session.children, "warm parent": session.warm_parents}
        _, stops, kind = what.rpartition("stopped ")
        if victims := sorted(groups[kind](), key=lambda each: each.pid):
            self._random.choice(victims).signal(signal.SIGSTOP if stops else signal.SIGKILL)
        await work
        started = time.monotonic()
        state = await self._saved(session, name, good(48))
        assert state == "ready", f"after {what}: {state}"
        recovery = time.monotonic() - started
        await self._right(session, name)
        assert not await session.problems(name)
        await session.others_answer()
        (session.folder / name).unlink()
        session.close(name)
        await self._nothing_orphaned(session)
        await until(lambda: not [each for each in session.processes() if is_stopped(each)])
        return Kill(what, recovery)

    async def _right(self, session: Session, name: str) -> None:
        """Are the shapes those of the last text? (A pass that was applied says its formats beside them.)"""
        shown = await session.shown(name)
        for label, told in seen(48).items():
            assert told[told.index("[") :] in shown[label], shown

    async def _busy(self, session: Session, name: str):
        """Begin something, and wait for a moment that is drawn; what then still has to be waited for."""
        work = self._random.choice(("save", "pass", "nothing"))
        waiting: list[asyncio.Future] = []
        if work == "save":
            session.send(name, good(32))
            waiting.append(asyncio.ensure_future(session.editor.end_state(session.folder / name)))
        elif work == "pass":
            params = {"path": str(session.folder / name), "model": "Net", "pass": "quantize"}
            waiting.append(asyncio.ensure_future(session.editor.request("mase/applyPass", params)))
        await asyncio.sleep(self._random.uniform(0, _LATEST))
        return asyncio.gather(*waiting, return_exceptions=True)

    async def _saved(self, session: Session, name: str, text: str) -> str:
        """The end of the trace of exactly this text; what is still told of the text before is none."""
        path, digest = session.folder / name, hashlib.sha256(text.encode()).hexdigest()
        session.send(name, text)
        while True:
            told = await session.editor.expect(
                "mase/status", lambda s: s.uri == path.as_uri() and s.state in END_STATES and s.sha256 == digest
            )
            if told.state != "superseded":
                return "ready" if told.state == "ready" else f"{told.state}: {told.message}"

    async def _nothing_orphaned(self, session: Session) -> None:
        """Wait until every process is the editor, the server, a warm parent, or below a child that the server knows."""
        server = session.server
        told = {each["pid"] for each in await session.editor.request("mase/workers", {})}

        def strays() -> list[Process]:
            processes = {each.pid: each for each in session.processes()}
            parents = {each.pid for each in processes.values() if each.parent == server}
            known = {session.editor_pid, server} | parents | told
            others = (each for each in processes.values() if not each.waits)
            return [each for each in others if each.pid not in known and each.parent not in told]

        await until(lambda: not strays())

    async def _end(self, session: Session, what: str) -> Kill:
        """The server, the editor, or only its input: everything ends with it, and the next server works."""
        self._files += 1
        name = f"file{self._files}.py"
        assert await session.open(name, good()) == "ready"
        work = await self._busy(session, name)
        if what == "input":
            os.kill(session.editor_pid, signal.SIGUSR1)
        else:
            if what == "server of stopped ones":
                for each in (*session.warm_parents(), *session.children()):
                    each.signal(signal.SIGSTOP)
            os.kill(session.editor_pid if what == "editor" else session.server, signal.SIGKILL)
        started = time.monotonic()
        await until(lambda: not session.processes(), every=0.05)
        ending = time.monotonic() - started
        work.cancel()
        await asyncio.wait((work,))
        _ = work.cancelled() or work.exception()
        started = time.monotonic()
        await self._start()
        return Kill(what, time.monotonic() - started, ending)
