"""Hover: what the traced graph knows about the name or expression under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.card import card
from mase_server.lsp.wording import shown

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


async def hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    """textDocument/hover."""
    page = ls.page(params.text_document.uri)
    at = None if page is None else page.at(params.position)
    if page is None or at is None or not shown(at[0]):
        return None
    site, place = at
    return lsp.Hover(
        lsp.MarkupContent(lsp.MarkupKind.Markdown, card(site, ls.models_of(page.document.path), page.view.stale)), place
    )
