"""Commands and custom requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.daemon.api import API
from mase_server.lsp.asking import ask
from mase_server.lsp.calls import called
from mase_server.lsp.encoding import from_units
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The answer that shows every model again.
ALL_ROOTS = "All of them"

Handler = Callable[..., Awaitable[Any]]


async def retrace(ls: Server, *uris: Any) -> None:
    """mase.retrace: trace the files of these URIs again, all open ones where none is named."""
    for path in [ls.path_of(str(uri)) for uri in uris] or ls.documents.paths():
        ls.daemon.retrace(path)


async def restart(ls: Server, *folders: Any) -> None:
    """mase.restart: start the workers of these folders anew, of all where none is named."""
    for folder in tuple(ls.path_of(str(uri)) for uri in folders) or (None,):
        ls.daemon.environment_changed(folder)


async def pick_root(ls: Server, uri: Any, root: Any = None) -> None:
    """mase.pickRoot: show one model alone in the file of a URI: the one named, all for "", else ask which."""
    path = ls.path_of(str(uri))
    if root is None:
        ls.spawn(_ask_for_root(ls, path))
    else:
        ls.daemon.pick(path, str(root) or None)


async def _ask_for_root(ls: Server, path: str) -> None:
    view = ls.daemon.store.view(path)
    roots = [model.title for model in view.roots()] if view is not None else []
    question = f"Several models show shapes in {reveal(Path(path).name)}. Show which?"
    answer = await ask(ls, question, [*roots, ALL_ROOTS])
    if answer is not None:
        ls.daemon.pick(path, answer if answer in roots else None)


def custom_requests() -> list[tuple[str, Handler]]:
    """Every API method as a request of the editor's protocol."""
    return [(method.name, _served(method.name)) for method in API]


def _served(method: str) -> Handler:
    async def handler(ls: Server, params: Any) -> Any:
        return await called(ls, method, _translated(ls, params))

    return handler


def _translated(ls: Server, params: Any) -> dict[str, Any]:
    """The protocol's `uri` and `position` as the API's `path`, `line` and `column` in the traced text."""
    given = dict(params) if isinstance(params, dict) else {}
    document = given.pop("textDocument", None)
    uri = given.pop("uri", None) or (document or {}).get("uri")
    if uri is not None:
        given["path"] = ls.path_of(str(uri))
    position = given.pop("position", None)
    page = None if uri is None else ls.page(str(uri))
    if position is not None:
        traced = page.alignment.traced_line(position["line"]) if page else None
        text = page.document.text.line(position["line"]) if page else ""
        given["line"] = 0 if traced is None else traced + 1
        given["column"] = from_units(text, position["character"], ls.encoding)
    return given
