"""Hover: what the traced graph knows about the name or expression under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.assumptions import touches
from mase_server.lsp.card import card
from mase_server.lsp.links import model_links, site_links
from mase_server.lsp.markup import markup
from mase_server.lsp.model_card import model_card
from mase_server.lsp.wording import shown

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


async def hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    """textDocument/hover."""
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    at = page.at(params.position)
    if at is not None and shown(at[0]):
        site, place = at
        models = ls.models_of(page.document.path)
        return _hover(ls, card(site, models, page.view.stale, site_links(ls, page, site)), place)
    return _of_class(ls, page, params.position)


def _of_class(ls: Server, page: Page, position: lsp.Position) -> lsp.Hover | None:
    """At the name of a class: the models that it stands for."""
    point = lsp.Range(position, position)
    found = ((model, page.range(model)) for model in page.view.models())
    here = [(model, place) for model, place in found if place is not None and touches(place, point)]
    if not here:
        return None
    models = [model for model, _ in here]
    return _hover(ls, model_card(models, page.view.stale, [model_links(ls, model) for model in models]), here[0][1])


def _hover(ls: Server, text: str, place: lsp.Range) -> lsp.Hover:
    return lsp.Hover(markup(ls, text), place)
