"""API functions on news: for connections; the editor is told by notifications of its own protocol."""

from __future__ import annotations

from typing import Any

from mase_server import answers
from mase_server.daemon.events import TOPICS
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params, Session

_ERRORS = ("map", "pair")


def session_of(api: Api) -> Session:
    """The connection that asks; ApiError for the editor."""
    if api.session is None:
        raise ApiError("unavailable", "subscriptions are for tools that connect; the editor is told without asking")
    return api.session


async def subscribe(api: Api, params: Params) -> dict[str, Any]:
    """Be sent `mase/event` notifications: {"subscription": number, "topics"}.

    topics: of graph, problems, worker, progress and verilog; all without it.  path: of one file; of all without it.
    An event is a map with "topic", "path" and "subscriptions", and what the topic tells; of several of one kind that
    were not read in time only the newest comes, with "coalesced".  Who never reads is dropped.
    """
    topics = params.get("topics", list(TOPICS))
    number = session_of(api).subscribe(frozenset(topics), params.get("path"))
    return {"subscription": number, "topics": topics}


async def unsubscribe(api: Api, params: Params) -> dict[str, Any]:
    """Be sent no more of them: {"ended": was there such a subscription?}."""
    return {"ended": session_of(api).unsubscribe(params["subscription"])}


async def session(api: Api, params: Params) -> dict[str, Any]:
    """How this connection is spoken to: {"errors"}. errors: "map", or "pair" for clients that know [0, text] alone.

    Neovim and its client libraries are such clients; the text is then "code: message".
    """
    asking = session_of(api)
    wanted = params.get("errors", asking.errors)
    if wanted not in _ERRORS:
        raise ApiError("invalid-params", f"errors is {wanted[:80]!r}, expected one of {', '.join(_ERRORS)}")
    asking.errors = wanted
    return {"errors": wanted}


EVENTS = (
    ApiMethod("mase/session", {"errors?": str}, session, answers.Session),
    ApiMethod("mase/subscribe", {"topics?": list[str], "path?": str}, subscribe, answers.Subscription),
    ApiMethod("mase/unsubscribe", {"subscription": int}, unsubscribe, answers.Unsubscribed),
)
