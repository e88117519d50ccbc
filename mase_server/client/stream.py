"""The wire protocol that both clients share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.private import read_private
from mase_server.protocol.records import PROTOCOL, Answer, Event, Params, Plain
from mase_server.rpc.frames import MAX_RESPONSE, Reader, Request
from mase_server.rpc.registry import Address, find_registration, parse_address, runtime_dir

if TYPE_CHECKING:
    from mase_server.client.asynchronous import AsyncClient
    from mase_server.client.blocking import Client


AUTHENTICATE, SESSION, _EVENT, _DROPPED = "mase/authenticate", "mase/session", "mase/event", "mase/dropped"
#: Maximum elements of one array from a daemon.
MAX_ELEMENTS = 1 << 26
#: Maximum number of unread events; then the oldest are dropped.
NEWS = 4096
#: What a client says first of all, after the token: the versions of the API that it speaks.
SPEAKS: Params = {"protocols": [PROTOCOL]}
#: Seconds before each attempt to reach a daemon; who waits for events repeats the last one for as long as they wait.
RETRY = (0.0, 0.1, 0.3, 1.0)
GREETING_SECONDS = 10.0


def make_reader() -> Reader:
    """A reader for the daemon's messages."""
    return Reader(MAX_RESPONSE, MAX_ELEMENTS)


def read_notification(message: Request) -> tuple[Event | None, str]:
    """The event that a notification brings, None for none; and why the daemon ends the connection, "" if it goes on."""
    params = message.params[0] if isinstance(message.params, list) and message.params else {}
    ended = f"the daemon ended it: {params.get('message')}" if message.method == _DROPPED else ""
    return (params if message.method == _EVENT else None), ended


# The errors of requests to a daemon.


class ClientError(Exception):
    """The daemon cannot be found or reached, or the connection was lost; the text says which, and what to do."""


class RpcError(ClientError):
    """The daemon's refusal. code: stable, e.g. "not-open".  data: plain values that explain it.

    map: the whole error.
    """

    def __init__(self, told: Any) -> None:
        self.map: dict[str, Plain] = told if isinstance(told, dict) else {"code": "error", "message": str(told)}
        self.code: str = str(self.map.get("code", "error"))
        self.data: dict[str, Plain] = self.map.get("data") or {}
        super().__init__(str(self.map.get("message", self.code)))


# The requests that a client repeats after a lost connection.

#: Methods that change nothing, so that they may be repeated.
REPEATABLE = frozenset(
    ("mase/info", "mase/models", "mase/nodeAt", "mase/roots", "mase/passes", "mase/pipeline", "mase/pipelineSettings",
     "mase/transformed", "mase/verilog", "mase/files", "mase/fileStatus", "mase/inputs", "mase/graph", "mase/tensors",
     "mase/problems", "mase/costs", "mase/costTable", "mase/compare", "mase/traced", "mase/weights",
     "mase/weightStatistics", "mase/workers", "mase/statistics")
)  # fmt: skip
#: Methods that tell of every open file where they have no `path`.
ABOUT_ALL = frozenset(("mase/models", "mase/problems"))


@dataclass(slots=True)
class Kept:
    """The files that a connection has open, and its subscriptions. A new connection asks for them again.

    untraced: the files that a new connection opened without waiting for their traces. A daemon that was started anew
    knows nothing of them until then, so the next call about a file waits.
    """

    untraced: dict[str, Params] = field(default_factory=dict)
    _asked: dict[tuple[str, str], Params] = field(default_factory=dict)

    def note(self, method: str, params: Params, result: Answer) -> None:
        """Note a successful call."""
        if method == "mase/open":
            self._asked[method, params["path"]] = {**params, "wait": False}
        elif method == "mase/close":
            self._asked.pop(("mase/open", params["path"]), None)
        elif method == "mase/subscribe":
            self._asked[method, str(result["subscription"])] = params
        elif method == "mase/unsubscribe":
            self._asked.pop(("mase/subscribe", str(params["subscription"])), None)

    def calls(self) -> Iterator[tuple[str, Params]]:
        """The requests that a new connection has to repeat, in order."""
        self.untraced = {path: params for (method, path), params in self._asked.items() if method == "mase/open"}
        for (method, _), params in list(self._asked.items()):
            yield method, params

    def traces(self, method: str, params: Params) -> Iterator[Params]:
        """The parameters of each `mase/open` that a call has to wait for first; taking the next settles one."""
        if "path" in params or method in ABOUT_ALL:
            for path, opened in list(self.untraced.items()):
                yield {**opened, "wait": True}
                self.untraced.pop(path, None)


# The address of the daemon that a client connects to.


@dataclass(frozen=True, slots=True)
class Target:
    """The chosen target: an address, or a file or folder, which stands for the daemon of its workspace.

    token_file: for a TCP address; the registry knows the token file of a daemon found by folder.
    """

    address: str | None = None
    workspace: Path = Path()
    token_file: Path | None = None

    def resolve(self) -> tuple[Address, str]:
        """Its present address, and the token, "" for none; ClientError."""
        try:
            if self.address is not None:
                token = read_private(self.token_file).strip() if self.token_file else ""
                return parse_address(self.address), token
            where = self.workspace.resolve()
            if (found := find_registration(runtime_dir(), str(where))) is not None:
                return parse_address(found.address), found.token
        except (OSError, ValueError) as error:
            raise ClientError(str(error)) from error
        raise ClientError(
            f"no daemon serves {where}: open it in an editor, or run `mase-server serve {self.workspace}`"
        )


# Arrays from the daemon: bytes with a type and a shape, reassembled from pages.


@dataclass(frozen=True, slots=True)
class Array:
    """One array. dtype: torch's name, e.g. "float32".  data: row-major, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray

    def numpy(self) -> Any:
        """A numpy array over the same memory; bfloat16, which numpy lacks, becomes float32.

        ImportError without numpy; TypeError for the eight-bit floats, whose bytes are in `data`.
        """
        import numpy

        if self.dtype == "bfloat16":
            wide = numpy.frombuffer(self.data, "<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(self.shape)
        kind = numpy.dtype(self.dtype).newbyteorder("<")
        return numpy.frombuffer(self.data, kind).reshape(self.shape)


_FIRST: int | None = 0


class _Pages:
    """The pages that have arrived so far."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def add(self, page: Mapping[str, Any]) -> int | None:
        """Take a page; returns the start of the next one."""
        for told in page["arrays"]:
            if told["name"] not in self.arrays:
                made = Array(told["dtype"], tuple(told["shape"]), bytearray(told["size"]))
                self.arrays[told["name"]] = made
            array, offset = self.arrays[told["name"]], told["offset"]
            assert isinstance(array.data, bytearray)
            array.data[offset : offset + len(told["data"])] = told["data"]
        following: int | None = page["next"]
        return following


def fetch(
    client: Client, path: str, model: str | None = None, names: Sequence[str] | None = None, original: bool = False
) -> dict[str, Array]:
    """The parameters and buffers of a model by name, whole; see `Client.weights`."""
    pages, start = _Pages(), _FIRST
    wanted = None if names is None else list(names)
    while start is not None:
        start = pages.add(client.weights(path, model, names=wanted, original=original, start=start))
    return pages.arrays


async def fetch_async(
    client: AsyncClient, path: str, model: str | None = None, names: Sequence[str] | None = None, original: bool = False
) -> dict[str, Array]:
    """The same as `fetch`, awaited."""
    pages, start = _Pages(), _FIRST
    wanted = None if names is None else list(names)
    while start is not None:
        start = pages.add(await client.weights(path, model, names=wanted, original=original, start=start))
    return pages.arrays
