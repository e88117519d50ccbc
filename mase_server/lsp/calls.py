"""The daemon's API functions, called for the editor: which model is meant, and errors as the protocol has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from mase_server.daemon.api import API, Api
from mase_server.daemon.pipelines import PassError
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.server import Server

_METHODS = {method.name: method for method in API}


async def call(ls: Server, method: str, **params: Any) -> Any:
    """What an API function answers; JsonRpcException with its text where it refuses."""
    return await called(ls, method, params)


async def called(ls: Server, method: str, params: Mapping[str, Any]) -> Any:
    """`call` with a map of parameters."""
    try:
        return await _METHODS[method].call(Api(ls.daemon), params)
    except ValueError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    except PassError as error:
        cancelled = error.kind == "cancelled"
        code = lsp.LSPErrorCodes.RequestCancelled if cancelled else lsp.LSPErrorCodes.RequestFailed
        raise JsonRpcException(str(error), code.value) from error


def models_of(ls: Server, path: str) -> list[ModelView]:
    """The models that a person may mean in a file: its own, those whose class it has, those that run code of it."""
    view, shown = ls.daemon.store.view(path), ls.daemon.store.snapshot(path)
    own = shown.all_models() if shown is not None else []
    found = [*own, *(view.models() if view is not None else []), *(view.roots() if view is not None else [])]
    return list({(model.snapshot.path, model.title): model for model in found}.values())


def model_of(ls: Server, given: Any) -> dict[str, str]:
    """{"path", "model"} of what a command was given: a map with `path` or `uri`, and `model` where there are several.

    path: of the model file, also where the map names a file that only runs in it.  JsonRpcException where nothing fits.
    """
    asked = given if isinstance(given, Mapping) else {"uri": given}
    uri = str(asked.get("uri") or "")
    if (shown := ls.graphs.graph(uri) or ls.verilog.sheet(uri)) is not None:
        return {"path": shown.path, "model": shown.model}
    named = str(asked.get("path") or uri)
    if not named:
        raise JsonRpcInvalidParams("name a file: {'uri': 'file:///...'}, and with several models {'model': its title}")
    path = ls.path_of(named)
    known = {model.title: model.snapshot.path for model in reversed(models_of(ls, path))}
    if not known:
        raise JsonRpcInvalidParams(f"no model is known of {path}: open it, and wait until its shapes are there")
    view = ls.daemon.store.view(path)
    first = view.picked if view is not None and view.picked in known else list(known)[-1]
    title = reveal(str(asked.get("model") or first))
    if title not in known:
        raise JsonRpcInvalidParams(f"no model {title!r} is known of {path}; there is {', '.join(reversed(known))}")
    return {"path": known[title], "model": title}


async def choices(ls: Server, params: Any) -> list[dict[str, Any]]:
    """mase/choices {uri}: the models that may be meant in a file, {"path", "model", "found", "picked"} each."""
    path = ls.path_of(str(params["uri"]))
    view = ls.daemon.store.view(path)
    picked = None if view is None else view.picked
    return [
        {"path": each.snapshot.path, "model": each.title, "found": each.found, "picked": each.title == picked}
        for each in models_of(ls, path)
    ]
