"""Questions that wait for the trace, since nobody can ask the editor to ask again: hints and lenses in editors without
refresh, and everywhere the fixes of problems, which are offered only after they were tried out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

if TYPE_CHECKING:
    from mase_server.lsp.documents import Document
    from mase_server.lsp.server import Server

#: Longest that a question waits, in seconds: Helix gives up on one after 20, and Emacs after 10, which then asks again
#: by the documented configuration.
PATIENCE = 18.0


async def settled(ls: Server, uri: str, feature: str, *, ranged: bool = False) -> None:
    """Return at once where the client takes `workspace/<feature>/refresh`, else once the file's trace has ended.

    feature: its name in the client's workspace capabilities, e.g. "inlay_hint".  ranged: the question was about a
    range, which is gone where the document was edited or closed meanwhile: JsonRpcException (ContentModified) says so.
    """
    document = ls.document(uri)
    if document is None or ls.can("workspace", feature, "refresh_support"):
        return
    version = document.version
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_traced(ls, document), PATIENCE)
    if ranged and (document.version != version or ls.documents.at(document.uri) is not document):
        raise JsonRpcException("the document was edited meanwhile", lsp.LSPErrorCodes.ContentModified.value)


async def _traced(ls: Server, document: Document) -> None:
    await document.asked.wait()
    await ls.daemon.wait(document.path)
