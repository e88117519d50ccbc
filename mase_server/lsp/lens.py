"""Code lens on a model's class: what it is made of, what it costs, and how its inputs were found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.wording import lens_text, roots_text

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The command of a lens: trace the file again.
RETRACE = "mase.retrace"
#: The command of a lens on a class that several models use: show one of them.
PICK_ROOT = "mase.pickRoot"


async def code_lens(ls: Server, params: lsp.CodeLensParams) -> list[lsp.CodeLens] | None:
    """textDocument/codeLens."""
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    lenses = []
    for model in page.view.models():
        place = page.range(model)
        if place is not None:
            title = lens_text(model, page.view.stale)
            lenses.append(lsp.CodeLens(place, lsp.Command(title, RETRACE, None, [params.text_document.uri])))
    for part in page.view.parts():
        place = page.range(part)
        if place is not None:
            title = roots_text(part.roots, page.view.picked)
            lenses.append(lsp.CodeLens(place, lsp.Command(title, PICK_ROOT, None, [params.text_document.uri])))
    return lenses
