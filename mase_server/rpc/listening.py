"""A server's sockets: where it listens, how clients find it, and how other users are kept out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from mase_server import __version__
from mase_server.private import token_of
from mase_server.rpc.connection import Connection
from mase_server.rpc.dispatch import Front
from mase_server.rpc.registry import (
    Address,
    Registration,
    TcpAddress,
    UnixAddress,
    is_listening,
    runtime_dir,
    unix_address,
    write_registration,
)
from mase_server.system import HAS_UNIX_SOCKETS, start_of, unix_socket, user_id

_BACKLOG = 512


class Listening:
    """One front at one address; `close` ends every connection and removes the files that `start` made.

    address: None for a new socket in the user's runtime directory.  token_file: the file of the token that clients on
    TCP must send first; by default, it is in the runtime directory.
    """

    def __init__(self, front: Front, address: Address | None = None, token_file: Path | None = None) -> None:
        self.front = front
        self.address: Address | None = address
        self.token_file = token_file
        self._server: asyncio.Server | None = None
        self._folder: Path | None = None
        self._files: list[Path] = []
        self._registered: set[Path] = set()
        self._token = ""
        self._registering = threading.Lock()
        self._closed = False

    async def start(self) -> Address:
        """Listen; returns the address. OSError or ValueError says why that is impossible."""
        loop = asyncio.get_running_loop()
        self._folder = await asyncio.to_thread(runtime_dir)
        if self.address is None:
            self.address = self._own_address()
        if isinstance(self.address, UnixAddress):
            made = bind_unix_socket(self.address)
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
        if not HAS_UNIX_SOCKETS:
            return TcpAddress("127.0.0.1", 0)
        return unix_address(str(name_file(self._folder, ".sock")))

    def _read_token(self) -> str:
        assert self._folder is not None
        if self.token_file is None:
            self.token_file = name_file(self._folder, ".token")
            self._files.append(self.token_file)
        return token_of(self.token_file)

    async def register(self, workspaces: Sequence[str], kind: str) -> None:
        """Register the server for these workspaces, and only these, so that their clients find it."""
        await asyncio.to_thread(self._register, workspaces, kind)

    def _register(self, workspaces: Sequence[str], kind: str) -> None:
        assert self._folder is not None
        pid, address = os.getpid(), str(self.address)
        token_file = str(self.token_file.absolute()) if self._token and self.token_file else ""
        with self._registering:
            if self._closed:
                return  # the files were removed while this waited for its thread
            made = set[Path]()
            for each in workspaces:
                told = Registration(each, address, pid, start_of(pid), kind, __version__, token_file)
                made.add(write_registration(self._folder, told))
                self._registered |= made
            for file in self._registered - made:
                file.unlink(missing_ok=True)
            self._registered = made

    async def close(self) -> None:
        """End all connections and remove the files."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.front.connections):
            connection.drop("the server ends")
        with self._registering:
            self._closed = True
            for file in (*self._registered, *self._files):
                with contextlib.suppress(OSError):
                    file.unlink()
        self._files.clear()
        self._registered.clear()
        await asyncio.sleep(0)

    def _accept(self) -> asyncio.BaseProtocol:
        return Connection(self.front, self._token)


def name_file(folder: Path, suffix: str) -> Path:
    """An unguessable path in the runtime folder for a socket or a token of this process."""
    return folder / f"{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def bind_unix_socket(address: UnixAddress) -> socket.socket:
    """A bound Unix socket of mode 0600. It replaces a dead socket of this user, but nothing else."""
    path = Path(address.path)
    with contextlib.suppress(FileNotFoundError):
        if (
            path.is_socket()
            and not path.is_symlink()
            and path.lstat().st_uid == user_id()
            and not is_listening(address)
        ):
            path.unlink()
    made = unix_socket()
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
