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
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from lsprotocol.types import INITIALIZE, LSPErrorCodes

from mase_server import private
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.garbage import collect_when_quiet, give_back_memory
from mase_server.lsp.commands import Tools
from mase_server.lsp.framing import (
    MAX_HEADER,
    ByteReader,
    FrameError,
    RawMessage,
    StandardInput,
    read_message,
    serve_messages,
)
from mase_server.lsp.listener import TOLD_EVENTS
from mase_server.lsp.live import QUIET
from mase_server.lsp.server import DaemonFactory, Server
from mase_server.private import is_token, token_of
from mase_server.rpc.listening import bind_tcp, name_file
from mase_server.rpc.registry import TcpAddress, runtime_dir
from mase_server.telemetry.logs import Logs

#: Seconds for unsent messages at the end.
_FLUSH = 1.0
#: Seconds within which a client on TCP has to send its token, and bytes of the message that holds it.
_GREETING, _MAX_GREETING = 10.0, 1 << 20
#: Maximum clients on TCP without a token so far; one more ends the one that has been silent for longest.
_STRANGERS = 32
_LOG = logging.getLogger(__name__)


class ThreadWriter:
    """Writes from a separate thread, so that an editor that does not read cannot block the event loop."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_queued, name="mase-writer", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queue `data` after everything before it."""
        self._queue.put(data)

    def close(self) -> None:
        """Write what is left, but only for a moment."""
        self._queue.put(None)
        self._thread.join(_FLUSH)

    def _write_queued(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                if self._queue.empty():
                    self._stream.flush()
            self._stream.flush()


def serve_editor(
    *,
    trusted: bool = False,
    log: str = "warning",
    address: TcpAddress | None = None,
    token_file: Path | None = None,
    daemon: DaemonFactory | None = None,
    cache_dir: Path | None = None,
    state_dir: Path | None = None,
    quiet: float = QUIET,
) -> NoReturn:
    """Serve one editor, over stdio or at a TCP address, until it sends exit, closes the stream, or dies.

    token_file: holds the token that an editor on TCP must send as `initializationOptions.token`; it is created if
    missing. By default, it is in the user's runtime folder and removed when the server ends.
    log: the level from which on events are logged to standard error.  quiet: as of `Server`.
    """
    state = state_dir or private.state_dir()
    logs = Logs("editor", log, state, told=TOLD_EVENTS)
    logs.start()
    cache = cache_dir or private.cache_dir()

    give_back_memory()

    async def main() -> int:
        server = Server(daemon=daemon or _real_daemon(), cache_dir=cache, state_dir=state, trusted=trusted, quiet=quiet)
        server.logs = logs
        server.tools = Tools(server) if daemon is None else None
        gc.freeze()  # imported objects stay: scanning them took the event loop 20 ms each time
        return await (_over_stdio(server) if address is None else _over_tcp(server, address, token_file))

    code = asyncio.run(main())
    logs.stop()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # a thread still waits for the editor's next byte, and would delay an orderly exit


def _real_daemon() -> DaemonFactory:

    made: DaemonFactory = Daemon
    return made


async def _over_stdio(server: Server) -> int:
    """Serve over this process's standard streams; everything else that prints goes to stderr."""
    wire_in, wire_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    writer = ThreadWriter(wire_out)
    server.protocol.set_writer(writer)
    return await _serve_stream(server, StandardInput(wire_in, ThreadPoolExecutor(1, "mase-reader")))


async def _over_tcp(server: Server, address: TcpAddress, token_file: Path | None) -> int:
    """Wait at `address` for the editor that knows the token; port 0 takes a free one. Both are logged.

    Any other client gets an error and is disconnected: its further bytes are not read.
    """
    found: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter, RawMessage]] = asyncio.Future()
    path = token_file or name_file(runtime_dir(), ".token")
    token = token_of(path)
    strangers: deque[asyncio.StreamWriter] = deque()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strangers.append(writer)
        if len(strangers) > _STRANGERS:
            strangers.popleft().transport.abort()
        message = await _receive_greeting(reader, writer, token)
        with contextlib.suppress(ValueError):  # it was the one that was silent for longest
            strangers.remove(writer)
        if message is None or found.done():
            writer.close()
        else:
            found.set_result((reader, writer, message))

    try:
        listening = await asyncio.start_server(accept, sock=bind_tcp(address), limit=MAX_HEADER)
        where = TcpAddress(address.host, listening.sockets[0].getsockname()[1])
        _LOG.warning("listening at %s; initializationOptions.token has to be the text of %s", where, path)
        reader, writer, first = await found
        listening.close()
        for stranger in strangers:
            stranger.transport.abort()
    finally:
        if token_file is None:
            path.unlink(missing_ok=True)
    server.protocol.set_writer(writer)
    return await _serve_stream(server, reader, first)


async def _receive_greeting(reader: ByteReader, writer: asyncio.StreamWriter, token: str) -> RawMessage | None:
    """The `initialize` of a client that knows the token, without the token; None for others, which get an error."""
    try:
        async with asyncio.timeout(_GREETING):
            message = await read_message(reader, _MAX_GREETING)
    except FrameError as error:
        writer.write(error.to_frame())
        return None
    except (OSError, TimeoutError):
        return None
    if message is None:
        return None
    params = message.get("params")
    options = params.get("initializationOptions") if isinstance(params, dict) else None
    said = options.pop("token", None) if isinstance(options, dict) else None
    if message.get("method") == INITIALIZE and is_token(said, token):
        return message
    text = "The first message has to be `initialize` with the server's token as `initializationOptions.token`."
    writer.write(FrameError(text, code=LSPErrorCodes.RequestFailed, ident=message.get("id")).to_frame())
    return None


async def _serve_stream(server: Server, reader: ByteReader, first: RawMessage | None = None) -> int:
    """Read messages until the stream ends, the editor sends exit, or its process is gone; then end every worker.

    first: a message that was read before.
    """
    collecting = asyncio.ensure_future(collect_when_quiet())
    protocol = server.protocol

    def take(message: RawMessage) -> None:
        protocol.handle_message(protocol.structure_message(message))

    def send(data: bytes) -> None:
        assert protocol.writer is not None
        protocol.writer.write(data)

    if first is not None:
        take(first)
    reading = asyncio.ensure_future(serve_messages(reader, take, send))
    ending: set[asyncio.Future[Any]] = {reading, server.ended}
    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    code = server.ended.result() if server.ended.done() else 0 if server.stopped else 1
    collecting.cancel()
    await server.stop()
    await server.sent()
    if server.protocol.writer is not None:
        server.protocol.writer.close()
    reading.cancel()
    return code
