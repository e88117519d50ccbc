"""Dispatch one request to the API function that it names, and turn failures into error maps."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mase_server.daemon.api import API, Api, ApiMethod, Params
from mase_server.daemon.api_files import is_open, not_open
from mase_server.daemon.channel import CallFailed, WorkerGone
from mase_server.daemon.methods import ApiError
from mase_server.daemon.pipelines import PassError
from mase_server.protocol.answers.files import ErrorMap
from mase_server.protocol.codes import ErrorCode
from mase_server.protocol.records import Answer, Plain
from mase_server.rpc.frames import MAX_REQUEST
from mase_server.suggestions import suggest
from mase_server.telemetry.records import path_in_log

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon
    from mase_server.rpc.channel import Channel


# The state that all connections of a server share: its limits and counters.


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    pending: requests of one connection in progress; further ones wait unread.  turn: requests started in one turn of
    the event loop.  receive: bytes read in one turn.  frame_seconds: from the first byte of a message to its last.
    greeting_seconds: until a client on TCP must have sent its token.  drain_seconds: how long a client may leave its
    messages unread.  events: different pending events of a subscriber.
    """

    connections: int = 600
    pending: int = 256
    turn: int = 16
    frame: int = MAX_REQUEST
    receive: int = 32 << 10
    frame_seconds: float = 30.0
    greeting_seconds: float = 10.0
    drain_seconds: float = 60.0
    end_seconds: float = 1.0
    events: int = 2048
    subscriptions: int = 64
    send_buffer: int = 1 << 20


@dataclass(slots=True)
class Counts:
    """Counters of all connections. refused: over the limit.  dropped: ended by the server, with a reason."""

    connections: int = 0
    refused: int = 0
    dropped: int = 0
    requests: int = 0
    errors: int = 0
    events: int = 0


@dataclass(slots=True)
class Front:
    """The daemon, and all its clients.

    strangers: the connections that have not sent the token yet, oldest first.  began: time.monotonic().
    """

    daemon: Daemon
    limits: Limits = field(default_factory=Limits)
    counts: Counts = field(default_factory=Counts)
    connections: set[Channel] = field(default_factory=set)
    strangers: dict[Channel, None] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def drop_stranger(self) -> None:
        """End the connection that has been without a token for longest, if there is one."""
        if (oldest := next(iter(self.strangers), None)) is not None:
            self.strangers.pop(oldest)
            self.connections.discard(oldest)
            oldest.drop("more clients came before the token was said")


METHODS: dict[str, ApiMethod] = {method.name: method for method in API}
#: The kinds of PassError and CallFailed -> the code in an error map.
_CODES: dict[str, ErrorCode] = {
    "argument": "invalid-params", "pass": "pass-failed", "internal": "internal-error", "limit": "limit",
    "cancelled": "cancelled", "untrusted": "untrusted", "gone": "gone",
}  # fmt: skip
#: Methods that may name a file which is not open.
_OPENING = frozenset({"mase/open", "mase/retrace"})
_LOG = logging.getLogger(__name__)


def error_map(code: ErrorCode, message: str, data: Mapping[str, Plain] | None = None) -> ErrorMap:
    """The error as a map, with "data" if there is any."""
    if not data:
        return {"code": code, "message": message}
    return {"code": code, "message": message, "data": dict(data)}


async def answer_request(api: Api, method: Any, params: Any) -> Answer:
    """The result of one request, always a map. ApiError says what was wrong with it."""
    found, given = _find_request(api, method, params)
    return found.as_map(await found.function(api, given))


def can_wait(method: Any) -> bool:
    """Can the answer take more than one turn of the event loop?"""
    return isinstance(method, str) and method in METHODS and METHODS[method].waits


def answer_at_once(api: Api, method: Any, params: Any) -> Answer:
    """The result of a request that never waits; ApiError. A task would take three turns of the event loop."""
    found, given = _find_request(api, method, params)
    return found.as_map(found.run_at_once(api, given))


def name_for_metrics(method: Any) -> str:
    """The method's name in counters and logs; an unknown method gets a fixed name."""
    return method if isinstance(method, str) and method in METHODS else "unknown"


def file_of_request(api: Api, params: Any) -> str:
    """The file of a request, for the log; "" for none."""
    given = params[0] if isinstance(params, list) and len(params) == 1 else params
    path = given.get("path") if isinstance(given, dict) else None
    found = api.daemon.file(os.path.normpath(path)) if isinstance(path, str) else None
    return "" if found is None else path_in_log(found.path, found.folder)


def _find_request(api: Api, method: Any, params: Any) -> tuple[ApiMethod, Params]:
    """The method and parameters of a request, if it is allowed."""
    found = METHODS.get(method) if isinstance(method, str) else None
    if found is None:
        raise _unknown_method_error(method)
    given = found.checked(api, _params_map(found, params))
    if found.executes and "path" in given and not api.daemon.trusts(given["path"]):
        told = "grant trust with `mase-server trust` or in the editor; nothing was executed"
        raise ApiError("untrusted", f"{method}: the folder of {given['path']} is not trusted: {told}")
    if "path" in found.params and "path" in given and method not in _OPENING and not is_open(api, given["path"]):
        raise not_open(given["path"])
    return found, given


def _unknown_method_error(method: Any) -> ApiError:
    name = str(method)[:80]
    return ApiError(
        "unknown-method",
        f"there is no method {name!r}{suggest(name, METHODS, elsewhere='mase/info lists all methods')}",
    )


def _params_map(method: ApiMethod, params: Any) -> Params:
    """The single map of the parameters.

    Languages with one type for empty tables send an empty array: it counts as {}.
    """
    given = params[0] if isinstance(params, list) and len(params) == 1 else params
    if given in ([], None):
        given = {}
    if not isinstance(given, dict):
        raise ApiError("invalid-params", f"{method.name} takes one map, as the one element of an array of parameters")
    return given


def told_of(error: BaseException) -> ErrorMap:
    """The error map of any exception; our own errors are logged, too."""
    if isinstance(error, ApiError):
        return error_map(error.code, str(error), error.data)
    if isinstance(error, PassError | CallFailed):
        return error_map(_CODES[error.kind], str(error))
    if isinstance(error, asyncio.CancelledError):
        return error_map("cancelled", "it was cancelled")
    if isinstance(error, WorkerGone):
        return error_map("gone", str(error))
    if isinstance(error, ValueError):
        return error_map("invalid-params", str(error))
    if isinstance(error, RecursionError):
        return error_map("invalid-params", "the parameters are nested too deeply")
    _LOG.error("a request failed", exc_info=error)
    return error_map("internal-error", f"{type(error).__name__}: {error}; the server's log has the details")
