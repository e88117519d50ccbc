"""The server's process: its streams, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, NoReturn

from pygls.io_ import StdinAsyncReader, run_async

from mase_server import directories
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.garbage import collect_when_quiet, give_back_memory
from mase_server.lsp.server import DaemonFactory, Server
from mase_server.lsp.tools import Tools
from mase_server.observe.logs import Logs

#: Seconds that unsent messages have at the end.
_FLUSH = 1.0
_LOG = logging.getLogger(__name__)


class ThreadWriter:
    """Writes from a thread of its own, so that an editor that does not read cannot hold up the event loop."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="mase-writer", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Have `data` written after everything before it."""
        self._queue.put(data)

    def close(self) -> None:
        """Write what is left, for a moment at most."""
        self._queue.put(None)
        self._thread.join(_FLUSH)

    def _write(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                if self._queue.empty():
                    self._stream.flush()


def run(
    *,
    trusted: bool = False,
    log: str = "warning",
    address: tuple[str, int] | None = None,
    daemon: DaemonFactory | None = None,
    cache_dir: Path | None = None,
    state_dir: Path | None = None,
) -> NoReturn:
    """Serve one editor, over stdio or at a TCP address, until it says exit, closes the stream, or dies.

    log: from which level on it is told on standard error what happens.
    """
    cache, state = cache_dir or directories.cache_dir(), state_dir or directories.state_dir()
    logs = Logs("editor", log, state)
    logs.start()

    give_back_memory()

    async def main() -> int:
        server = Server(daemon=daemon or _real_daemon(), cache_dir=cache, state_dir=state, trusted=trusted)
        server.logs = logs
        server.tools = Tools(server) if daemon is None else None
        gc.freeze()  # what is imported by now stays: looking through it took the event loop 20 ms each time
        return await (_over_stdio(server) if address is None else _over_tcp(server, *address))

    code = asyncio.run(main())
    logs.stop()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # a thread still waits for the editor's next byte, and would hold up an orderly exit


def _real_daemon() -> DaemonFactory:

    made: DaemonFactory = Daemon
    return made


async def _over_stdio(server: Server) -> int:
    """The editor has this process's standard streams; whatever else prints goes to stderr."""
    wire_in, wire_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    writer = ThreadWriter(wire_out)
    server.protocol.set_writer(writer)
    return await _serve(server, StdinAsyncReader(wire_in, ThreadPoolExecutor(1, "mase-reader")))


async def _over_tcp(server: Server, host: str, port: int) -> int:
    """Wait for one editor at `host`:`port`; port 0 takes a free one. The address is logged."""
    connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connected.done():
            writer.close()
        else:
            connected.set_result((reader, writer))

    listening = await asyncio.start_server(accept, host, port)
    _LOG.warning("listening at %s:%s", *listening.sockets[0].getsockname()[:2])
    reader, writer = await connected
    listening.close()
    server.protocol.set_writer(writer)
    return await _serve(server, reader)


async def _serve(server: Server, reader: Any) -> int:
    """Read messages until the stream ends, the editor says exit, or its process is gone; then end every worker."""
    collecting = asyncio.ensure_future(collect_when_quiet())
    reading = asyncio.ensure_future(
        run_async(Event(), reader, server.protocol, logging.getLogger("pygls"), server.report_server_error)
    )
    await asyncio.wait({reading, server.ended}, return_when=asyncio.FIRST_COMPLETED)
    code = server.ended.result() if server.ended.done() else 0 if server.stopped else 1
    collecting.cancel()
    await server.stop()
    await server.sent()
    if server.protocol.writer is not None:
        server.protocol.writer.close()
    reading.cancel()
    return code
