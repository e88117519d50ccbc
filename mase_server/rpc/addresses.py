"""Where a server listens: a Unix socket, or TCP on loopback. Standard library only: clients load it, too."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

#: Bytes of the path of a Unix socket, as the smallest systems have it.
MAX_PATH = 103
#: Told where a token is named and no TCP address.
NO_TCP = "--token-file is for --tcp; a socket is protected by its mode"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    def connect(self, timeout: float | None) -> socket.socket:
        """A connected blocking socket; OSError."""
        made = socket.socket(socket.AF_UNIX)
        return _connected(made, self.path, timeout)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host, as a numeric address of this machine itself, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, timeout: float | None) -> socket.socket:
        """A connected blocking socket; OSError."""
        made = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _connected(made, (self.host, self.port), timeout)


Address = UnixAddress | TcpAddress


def _connected(made: socket.socket, where: str | tuple[str, int], timeout: float | None) -> socket.socket:
    try:
        made.settimeout(timeout)
        made.connect(where)
    except BaseException:
        made.close()
        raise
    return made


def parse(text: str) -> Address:
    """The address of "unix:/run/x.sock", of an absolute path, or of "127.0.0.1:8123"; ValueError."""
    if text.startswith(("unix:", "/")):
        return unix_address(text.removeprefix("unix:"))
    return tcp_address(text)


def unix_address(path: str) -> UnixAddress:
    """The address of a socket at an absolute path; ValueError."""
    if not path.startswith("/"):
        raise ValueError(f"the socket's path {path!r} is not absolute")
    if len(path.encode()) > MAX_PATH:
        raise ValueError(f"the socket's path has {len(path.encode())} bytes, {MAX_PATH} are the most: {path}")
    return UnixAddress(path)


def tcp_address(text: str) -> TcpAddress:
    """The address of "HOST:PORT" on loopback; ValueError for any other host: nothing is served to a network."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]").replace("localhost", "127.0.0.1")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is no HOST:PORT, e.g. 127.0.0.1:8123 (port 0 takes a free one)")
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = False
    if not own:
        raise ValueError(f"{host!r} is not this machine's loopback: only 127.0.0.1 and ::1 are served")
    return TcpAddress(host, int(port))
