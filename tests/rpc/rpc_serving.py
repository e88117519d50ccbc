"""A daemon with the stub job behind a real socket, and a client that shares no code with the project."""

import asyncio
import contextlib
import sys
from pathlib import Path

import msgpack
from rpc_answers import checked
from rpc_payloads import payload_of

from mase_server.daemon.daemon import Daemon, FolderSettings
from mase_server.daemon.store import Entry, GraphSnapshot
from mase_server.rpc.dispatch import Front, Limits
from mase_server.rpc.listening import Listening

JOB = f"{Path(__file__).parent.parent / 'daemon' / 'stub_job.py'}:trace"
STUB = "import torch.nn as nn\nclass Net(nn.Module): pass\n"


class Deaf:
    """The editor of a daemon that has none."""

    def status_changed(self, status): ...

    def views_changed(self, paths): ...

    def progress(self, path, stage, message): ...

    def pass_progress(self, path, model, message, fraction): ...

    def pass_ended(self, path, model): ...

    def verilog_changed(self, path, model): ...

    def verilog_progress(self, path, model, message, fraction): ...

    def verilog_ended(self, path, model): ...

    def worker_ended(self, path, why): ...

    def warned(self, text): ...


class Served:
    """A daemon, its front, and where it listens."""

    def __init__(self, folder, tmp, monkeypatch, limits=None):
        self.folder = folder
        self.trusted = True
        monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp / "run"))
        self.daemon = Daemon(
            Deaf(),
            cache_dir=tmp / "cache",
            state_dir=tmp / "state",
            settings_of=lambda folder: FolderSettings(trusted=self.trusted, interpreter=sys.executable),
            folder_of=lambda path: str(folder),
            job=JOB,
        )
        self.front = Front(self.daemon, limits or Limits())
        self.listening = Listening(self.front)
        self.path = ""

    async def start(self):
        self.path = (await self.listening.start()).path
        return self

    async def close(self):
        await self.listening.close()
        await self.daemon.shutdown()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(STUB + text)
        return str(path)

    def show(self, name, **payload):
        """Have the daemon hold a graph that was never traced, as of a file that the editor has open."""
        path = str(self.folder / name)
        if self.daemon.file(path) is None:
            Path(path).write_text("pass\n")
            self.daemon.opened(path)
        self.daemon.cancel(path)
        snapshot = GraphSnapshot(payload_of(path, **payload))
        self.daemon._services.listener.views_changed(
            self.daemon.store.put(Entry(path, snapshot.sha256, snapshot, False, snapshot.problems))
        )
        return path

    @contextlib.asynccontextmanager
    async def client(self):
        raw = await Raw.connected(self.path)
        try:
            yield raw
        finally:
            await raw.close()


class Raw:
    """A client of plain msgpack and sockets: it shares no code with the project."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.number = 0

    @classmethod
    async def connected(cls, path):
        return cls(*await asyncio.open_unix_connection(path))

    def send(self, message):
        self.writer.write(message if isinstance(message, bytes) else msgpack.packb(message))

    async def next(self, seconds=60):
        """The next message; None at the end of the stream."""
        while True:
            for message in self.unpacker:
                return message
            data = await asyncio.wait_for(self.reader.read(1 << 16), seconds)
            if not data:
                return None
            self.unpacker.feed(data)

    async def ask(self, method, *params):
        """(error, result); notifications that come before are left out."""
        self.number += 1
        self.send([0, self.number, method, list(params)])
        while True:
            kind, ident, *rest = await self.next()
            if kind == 1:
                assert ident == self.number
                return rest

    async def result(self, method, **params):
        error, result = await self.ask(method, params)
        assert error is None, error
        return checked(method, result)

    async def code(self, method, **params):
        error, result = await self.ask(method, params)
        assert result is None
        return error["code"]

    async def close(self):
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
