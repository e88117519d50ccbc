"""Call the daemon's API functions for the editor, find the model a request refers to, and translate errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from mase_server.daemon.api import API, Api
from mase_server.daemon.pipelines import PassError
from mase_server.protocol.arguments import Argument
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.documents import Document
    from mase_server.lsp.server import Server


_METHODS = {method.name: method for method in API}


async def call_api(ls: Server, method: str, **params: Any) -> Any:
    """The answer of an API function; JsonRpcException with its text if it refuses."""
    return await call_api_with(ls, method, params)


async def call_api_with(ls: Server, method: str, params: Mapping[str, Any]) -> Any:
    """`call_api` with a map of parameters."""
    try:
        return await _METHODS[method].call(Api(ls.daemon), params)
    except ValueError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    except PassError as error:
        cancelled = error.kind == "cancelled"
        code = lsp.LSPErrorCodes.RequestCancelled if cancelled else lsp.LSPErrorCodes.RequestFailed
        raise JsonRpcException(str(error), code.value) from error


def models_of(ls: Server, path: str) -> list[ModelView]:
    """The models that a file's request may refer to: its own, those whose class it has, those that run its code."""
    view, shown = ls.daemon.store.view(path), ls.daemon.store.snapshot(path)
    own = shown.all_models() if shown is not None else []
    found = [*own, *(view.models() if view is not None else []), *(view.roots() if view is not None else [])]
    return list({(model.snapshot.path, model.title): model for model in found}.values())


def model_of(ls: Server, given: Any) -> dict[str, str]:
    """{"path", "model"} for a command's parameters: a map with `path` or `uri`, and `model` if there are several.

    path: the model file, even if the map names a file that only runs in it.  JsonRpcException if no model fits.
    """
    asked = given if isinstance(given, Mapping) else {"uri": given}
    uri = str(asked.get("uri") or "")
    if (shown := ls.graphs.graph(uri) or ls.verilog.sheet(uri) or ls.compiled.sheet(uri)) is not None:
        return {"path": shown.path, "model": shown.model}
    named = str(asked.get("path") or uri)
    if not named:
        raise JsonRpcInvalidParams("name a file: {'uri': 'file:///...'}, and with several models {'model': its title}")
    path = ls.path_of(named)
    known = {model.title: model.snapshot.path for model in reversed(models_of(ls, path))}
    if not known:
        raise JsonRpcInvalidParams(f"{path} has no model yet: open it, and wait until its shapes are shown")
    view = ls.daemon.store.view(path)
    first = view.picked if view is not None and view.picked in known else list(known)[-1]
    title = reveal(str(asked.get("model") or first))
    if title not in known:
        raise JsonRpcInvalidParams(f"{path} has no model {title!r}; it has {', '.join(reversed(known))}")
    return {"path": known[title], "model": title}


#: What a lens or an action gives to the command that it runs. line: of `path`, from 1.  only: the nodes that are
#: meant, as passes take them.  name: of what they are, in words.
CommandArgument = TypedDict(
    "CommandArgument",
    {"path": str, "model": str, "line": int, "scope": str, "only": list[str], "name": str, "pass": str, "set": str},
    total=False,
)


class ModelChoice(TypedDict):
    """A model that a person may mean. picked: does it alone show shapes in the file?"""

    path: str
    model: str
    found: str
    picked: bool


async def list_model_choices(ls: Server, params: Any) -> list[ModelChoice]:
    """mase/choices {uri}: the models that a file's requests may refer to: {"path", "model", "found", "picked"} each."""
    path = ls.path_of(str(params["uri"]))
    view = ls.daemon.store.view(path)
    picked = None if view is None else view.picked
    return [
        {"path": each.snapshot.path, "model": each.title, "found": each.found, "picked": each.title == picked}
        for each in models_of(ls, path)
    ]


# Helpers for commands: read their parameters, and ask the user for missing ones.


def as_map(given: Any) -> Mapping[str, Any]:
    """The parameters of a command; empty if they are not a map."""
    return given if isinstance(given, Mapping) else {}


async def ask_person(
    ls: Server, question: str, answers: Sequence[str], kind: lsp.MessageType = lsp.MessageType.Info
) -> str | None:
    """The user's choice; None without one.

    An empty list of answers is an error, because users cannot type text here.
    """
    if not answers:
        raise JsonRpcInvalidParams(f"{question} Answer it in the command: {{'arguments': {{...}}}}")
    titles = {reveal(answer): answer for answer in answers}
    params = lsp.ShowMessageRequestParams(kind, question, [lsp.MessageActionItem(title) for title in titles])
    answer = await ls.window_show_message_request_async(params)
    return None if answer is None else titles.get(answer.title)


def answers_for_argument(argument: Argument) -> list[str]:
    """The suggested answers to a question for an argument."""
    return ["true", "false"] if argument.kind == "boolean" else list(argument.choices)


# Requests that wait for the trace, because the server cannot make the editor ask again: hints and lenses in editors
# without refresh, and in all editors the fixes of problems, which are offered only after they were tried.

#: Maximum wait in seconds: Helix gives up on a request after 20, and Emacs after 10, but Emacs asks again with the
#: documented configuration.
PATIENCE = 18.0


async def wait_until_traced(ls: Server, uri: str, feature: str, *, ranged: bool = False) -> None:
    """Return at once if the client supports `workspace/<feature>/refresh`, else once the file's trace has ended.

    feature: its name in the client's workspace capabilities, e.g. "inlay_hint".  ranged: the request names a range,
    which is invalid if the document was edited or closed meanwhile: then JsonRpcException (ContentModified).
    """
    document = ls.document(uri)
    if document is None or ls.can("workspace", feature, "refresh_support"):
        return
    version = document.version
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_wait_for_trace(ls, document), PATIENCE)
    if ranged and (document.version != version or ls.documents.at(document.uri) is not document):
        raise JsonRpcException("the document was edited meanwhile", lsp.LSPErrorCodes.ContentModified.value)


async def _wait_for_trace(ls: Server, document: Document) -> None:
    await document.asked.wait()
    await ls.live.settled(document)
    await ls.daemon.wait(document.path)
