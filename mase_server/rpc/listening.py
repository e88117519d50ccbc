"""A server's sockets: where it listens, how clients find it, and that nobody else can get at it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from mase_server import __version__
from mase_server.private import token_of
from mase_server.rpc.addresses import Address, TcpAddress, UnixAddress, unix_address
from mase_server.rpc.connection import Connection
from mase_server.rpc.front import Front
from mase_server.rpc.registry import Registration, probe, register, runtime_dir, start_of

_BACKLOG = 512


class Listening:
    """One front at one address; `close` ends every connection and takes back what `start` left in the file system.

    address: None for a socket of its own in the user's runtime directory.  token_file: what clients on TCP have to say
    first stands there; without it, in a file of the runtime directory.
    """

    def __init__(self, front: Front, address: Address | None = None, token_file: Path | None = None) -> None:
        self.front = front
        self.address: Address | None = address
        self.token_file = token_file
        self._server: asyncio.Server | None = None
        self._folder: Path | None = None
        self._files: list[Path] = []
        self._registered: list[Path] = []
        self._token = ""

    async def start(self) -> Address:
        """Listen; where. OSError or ValueError says why that cannot be."""
        loop = asyncio.get_running_loop()
        self._folder = await asyncio.to_thread(runtime_dir)
        if self.address is None:
            self.address = self._own_address()
        if isinstance(self.address, UnixAddress):
            made = bound(self.address)
            self._files.append(Path(self.address.path))
            self._server = await asyncio.get_running_loop().create_unix_server(
                self._accept, sock=made, backlog=_BACKLOG
            )
        else:
            self._token = await asyncio.to_thread(self._read_token)
            made = bind_tcp(self.address)
            self.address = TcpAddress(self.address.host, made.getsockname()[1])
            self._server = await loop.create_server(self._accept, sock=made, backlog=_BACKLOG)
        return self.address

    def _own_address(self) -> Address:
        assert self._folder is not None
        if not hasattr(socket, "AF_UNIX"):
            return TcpAddress("127.0.0.1", 0)
        return unix_address(str(name_file(self._folder, ".sock")))

    def _read_token(self) -> str:
        assert self._folder is not None
        if self.token_file is None:
            self.token_file = name_file(self._folder, ".token")
            self._files.append(self.token_file)
        return token_of(self.token_file)

    async def register(self, workspaces: Sequence[str], kind: str) -> None:
        """Have clients of these workspaces find this server, and those of no others."""
        await asyncio.to_thread(self._register, workspaces, kind)

    def _register(self, workspaces: Sequence[str], kind: str) -> None:
        assert self._folder is not None
        pid, address = os.getpid(), str(self.address)
        token_file = str(self.token_file.absolute()) if self._token and self.token_file else ""
        made = [
            register(self._folder, Registration(each, address, pid, start_of(pid), kind, __version__, token_file))
            for each in workspaces
        ]
        for file in set(self._registered) - set(made):
            file.unlink(missing_ok=True)
        self._registered = made

    async def close(self) -> None:
        """End it all."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.front.connections):
            connection.drop("the server ends")
        for file in (*self._registered, *self._files):
            with contextlib.suppress(OSError):
                file.unlink()
        self._files.clear()
        self._registered.clear()
        await asyncio.sleep(0)

    def _accept(self) -> asyncio.BaseProtocol:
        return Connection(self.front, self._token)


def name_file(folder: Path, suffix: str) -> Path:
    """A path in the runtime folder for a socket or a token of this process; nobody can guess it."""
    return folder / f"{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def bound(address: UnixAddress) -> socket.socket:
    """A bound Unix socket of mode 0600. A socket of this user that nobody listens at is taken over; nothing else is."""
    path = Path(address.path)
    with contextlib.suppress(FileNotFoundError):
        if path.is_socket() and not path.is_symlink() and path.lstat().st_uid == os.getuid() and not probe(address):
            path.unlink()
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(address.path)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen at {path}: {error.strerror}") from error
    finally:
        os.umask(before)
    return made


def bind_tcp(address: TcpAddress) -> socket.socket:
    """A bound TCP socket; OSError names the address."""
    made = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
    return made
