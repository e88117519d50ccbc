"""`mase-server serve`: a daemon without an editor, for tools that connect."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mase_server.cli.terminal import say

if TYPE_CHECKING:
    from mase_server.rpc.registry import Registration

_Workspace = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder to serve.")]


class Level(StrEnum):
    """The level of the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    workspace: _Workspace = Path(),
    socket: Annotated[Path | None, typer.Option(help="Listen at this Unix socket.")] = None,
    tcp: Annotated[str | None, typer.Option(metavar="127.0.0.1:PORT", help="Listen on loopback instead.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --tcp: the file of the token that clients send first; created if missing.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Trust the folder of every file that a client names.")] = False,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input ends, with the program that started this one.")
    ] = False,
    log: Annotated[Level, typer.Option(help="The level of the messages on standard error.")] = Level.WARNING,
) -> None:
    """Serve tools over MessagePack-RPC until interrupted. Prints the address, as `mase-server rpc --where` does later.

    Model files run only in trusted folders: see `mase-server trust`. Exit status: 0 ended by a signal, 1 cannot
    listen, 2 wrong usage.
    """
    from mase_server.directories import state_dir
    from mase_server.observe.logs import logged
    from mase_server.rpc import addresses

    try:
        if socket is not None and tcp is not None:
            raise ValueError("--socket and --tcp exclude each other")
        if token_file is not None and tcp is None:
            raise ValueError(addresses.NO_TCP)
        address = (
            addresses.unix_address(str(socket.absolute())) if socket else addresses.tcp_address(tcp) if tcp else None
        )
    except ValueError as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    try:
        with logged("serve", log.value, state_dir()):
            asyncio.run(_serve(workspace.resolve(), address, token_file, python, trust, until_eof))
    except (OSError, ValueError) as error:
        say(f"error: {_in_words(error)}", error=True)
        raise typer.Exit(1) from None


def _note(other: Registration | None, workspace: str) -> None:
    """Say on standard error that another server has the same workspace, and which one is found."""
    if other is not None and other.workspace == workspace:
        found = "that one" if other.kind == "editor" else "this one"
        also = f"{other.kind} (process {other.pid}) serves {workspace} too, at {other.address}"
        say(f"note: {also}; tools that look for a server find {found}", error=True)


def _in_words(error: OSError | ValueError) -> str:
    """Our own texts are whole; the system's name the file."""
    own = isinstance(error, OSError) and error.filename is None and error.strerror
    return str(own or error)


async def _serve(
    workspace: Path, address: object, token_file: Path | None, python: str | None, trusted: bool, until_eof: bool
) -> None:
    from mase_server.cli.session import project_of
    from mase_server.daemon.daemon import Daemon
    from mase_server.daemon.garbage import collect_when_quiet, give_back_memory
    from mase_server.daemon.quiet import Quiet
    from mase_server.daemon.status import FolderSettings
    from mase_server.daemon.trust import is_trusted
    from mase_server.directories import cache_dir, state_dir
    from mase_server.rpc.addresses import TcpAddress, UnixAddress
    from mase_server.rpc.front import Front
    from mase_server.rpc.listening import Listening
    from mase_server.rpc.registry import find, runtime_dir

    give_back_memory()
    state = state_dir()

    def settings_of(folder: str) -> FolderSettings:
        return FolderSettings(trusted=trusted or is_trusted(state, folder), interpreter=python)

    def folder_of(path: str) -> str:
        return str(workspace) if Path(path).is_relative_to(workspace) else project_of(path)

    assert address is None or isinstance(address, UnixAddress | TcpAddress)
    daemon = Daemon(Quiet(), cache_dir=cache_dir(), state_dir=state, settings_of=settings_of, folder_of=folder_of)
    listening = Listening(Front(daemon), address, token_file)
    try:
        where = await listening.start()
        await daemon.start()
        before = await asyncio.to_thread(lambda: find(runtime_dir(), str(workspace)))
        await listening.register([str(workspace)], "serve")
        gc.freeze()  # what is imported by now stays, and need not be looked through again
        collecting = asyncio.create_task(collect_when_quiet())
        say(str(where))
        _note(before, str(workspace))
        await _ended(until_eof)
        collecting.cancel()
    finally:
        await listening.close()
        await daemon.shutdown()


async def _ended(until_eof: bool) -> None:
    """Wait for a signal. until_eof: or for the end of standard input."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if until_eof:
        # A thread of its own, which the end of the process does not wait for: any kind of input can be read in it.
        threading.Thread(target=_read_to_the_end, args=(loop, ended), daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    await ended.wait()


def _read_to_the_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # it has ended otherwise
        loop.call_soon_threadsafe(ended.set)
