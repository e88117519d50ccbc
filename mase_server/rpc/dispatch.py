"""One request: the function of the API that it names is called, and what goes wrong becomes an error map."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

from mase_server.daemon.api import API, Api, ApiMethod, Params
from mase_server.daemon.api_files import is_open, not_open
from mase_server.daemon.calls import CallFailed, WorkerGone
from mase_server.daemon.methods import ApiError
from mase_server.daemon.pipelines import PassError
from mase_server.observe.records import within
from mase_server.suggestions import suggest

METHODS: dict[str, ApiMethod] = {method.name: method for method in API}
#: What PassError calls its kinds, where an error map has another code.
_CODES = {"argument": "invalid-params", "pass": "pass-failed", "internal": "internal-error"}
#: Methods that may name a file which nobody looks at yet.
_OPENING = frozenset({"mase/open", "mase/retrace"})
_LOG = logging.getLogger(__name__)

ErrorMap = dict[str, Any]


def error_map(code: str, message: str, data: Mapping[str, Any] | None = None) -> ErrorMap:
    """The error as a map: {"code", "message"}, and "data" if there is any."""
    return {"code": code, "message": message} | ({"data": dict(data)} if data else {})


async def answer(api: Api, method: Any, params: Any) -> dict[str, Any]:
    """The result of one request, always a map. ApiError says what was wrong with it."""
    found, given = _asked(api, method, params)
    return found.as_map(await found.function(api, given))


def waits(method: Any) -> bool:
    """Can an answer take more than one turn of the event loop?"""
    return isinstance(method, str) and method in METHODS and METHODS[method].waits


def answer_at_once(api: Api, method: Any, params: Any) -> dict[str, Any]:
    """The result of a request that waits for nothing; ApiError. A task would take three turns of the event loop."""
    found, given = _asked(api, method, params)
    return found.as_map(found.run_at_once(api, given))


def named(method: Any) -> str:
    """The method as it is counted and logged: one that there is not has no name of ours."""
    return method if isinstance(method, str) and method in METHODS else "unknown"


def about(api: Api, params: Any) -> str:
    """The file that a request is about, as the log has it; "" for none."""
    given = params[0] if isinstance(params, list) and len(params) == 1 else params
    path = given.get("path") if isinstance(given, dict) else None
    found = api.daemon.file(os.path.normpath(path)) if isinstance(path, str) else None
    return "" if found is None else within(found.path, found.folder)


def _asked(api: Api, method: Any, params: Any) -> tuple[ApiMethod, Params]:
    """The request, if it is allowed."""
    found = METHODS.get(method) if isinstance(method, str) else None
    if found is None:
        raise _unknown(method)
    given = found.checked(api, _given(found, params))
    if found.executes and "path" in given and not api.daemon.trusts(given["path"]):
        told = "grant trust with `mase-server trust` or in the editor; nothing was executed"
        raise ApiError("untrusted", f"{method}: the folder of {given['path']} is not trusted: {told}")
    if "path" in found.params and "path" in given and method not in _OPENING and not is_open(api, given["path"]):
        raise not_open(given["path"])
    return found, given


def _unknown(method: Any) -> ApiError:
    name = str(method)[:80]
    return ApiError(
        "unknown-method",
        f"there is no method {name!r}{suggest(name, METHODS, elsewhere='mase/info lists all methods')}",
    )


def _given(method: ApiMethod, params: Any) -> dict[str, Any]:
    """The one map of the parameters. Clients whose language has one empty table for both send an empty array."""
    given = params[0] if isinstance(params, list) and len(params) == 1 else params
    if given in ([], None):
        given = {}
    if not isinstance(given, dict):
        raise ApiError("invalid-params", f"{method.name} takes one map, as the one element of an array of parameters")
    return given


def told_of(error: BaseException) -> ErrorMap:
    """The error map of whatever a function raised; what is our own fault is logged, too."""
    if isinstance(error, ApiError):
        return error_map(error.code, str(error), error.data)
    if isinstance(error, PassError | CallFailed):
        return error_map(_CODES.get(error.kind, error.kind), str(error))
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
