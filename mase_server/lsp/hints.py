"""Inlay hints: the shape of every bound name and returned value, beside the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from mase_server.daemon.slices import Slices
from mase_server.lsp.card import card
from mase_server.lsp.encoding import from_units
from mase_server.lsp.labels import label
from mase_server.lsp.links import definition, site_links
from mase_server.lsp.markup import markup
from mase_server.lsp.patience import settled
from mase_server.lsp.wording import EXPRESSIONS, NAMES, hint_text, shown

if TYPE_CHECKING:
    from mase_server.daemon.store import SiteView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


#: Lines whose hints are made before it is looked whether other requests should get their turn.
_LINES_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class _Data:
    """What a hint carries to be resolved: its site in the traced text."""

    path: str
    sha256: str
    line: int
    column: int
    kind: str


async def inlay_hints(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint] | None:
    """textDocument/inlayHint, from what is known now: nothing is waited for, but long files let others in between."""
    await settled(ls, params.text_document.uri, "inlay_hint", ranged=True)
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    kinds = EXPRESSIONS if ls.settings_of(page.document.path).expressions else NAMES
    lines = range(params.range.start.line, min(params.range.end.line + 1, len(page.document.text.lines)))
    version, hints, slices = page.document.version, [], Slices()
    for start in range(lines.start, lines.stop, _LINES_AT_ONCE):
        await slices.pause()
        if page.document.version != version:
            raise JsonRpcException("the document was edited meanwhile", lsp.LSPErrorCodes.ContentModified.value)
        part = range(start, min(start + _LINES_AT_ONCE, lines.stop))
        sites = ((page.view.as_picked(site), place) for site, place in page.sites(part, kinds))
        hints += [_hint(page, site, place, parts=ls.resolves_locations) for site, place in sites if shown(site)]
    return hints


def _hint(page: Page, site: SiteView, place: lsp.Range, *, parts: bool) -> lsp.InlayHint:
    """parts: a label with one part, which can lead somewhere; its text is the same."""
    line = page.document.text.line(place.end.line)
    text = hint_text(site, line[from_units(line, place.end.character, page.encoding) :])
    return lsp.InlayHint(
        position=place.end,
        label=[lsp.InlayHintLabelPart(text)] if parts else text,
        kind=lsp.InlayHintKind.Type,
        tooltip=label([value.value for value in site.values]) if "…" in text else None,
        padding_left=False,
        data=asdict(_Data(page.document.path, page.view.sha256, site.line, site.column, site.kind)),
    )


async def resolve(ls: Server, hint: lsp.InlayHint) -> lsp.InlayHint:
    """inlayHint/resolve: the card as tooltip, and where the label leads; a hint of an older trace stays as it is."""
    if not isinstance(hint.data, dict):
        return hint
    data = _Data(**hint.data)
    view = ls.daemon.store.view(data.path)
    if view is None or view.sha256 != data.sha256:
        return hint
    for site in view.sites(data.line, data.line, frozenset({data.kind})):
        if site.column == data.column:
            _complete(ls, hint, site, data.path, view.stale)
            break
    return hint


def _complete(ls: Server, hint: lsp.InlayHint, site: SiteView, path: str, stale: bool) -> None:
    """The card, and where the one part of the label leads to: the module behind the value."""
    page = ls.page(ls.uri_of(path))
    hint.tooltip = markup(ls, card(site, ls.models_of(path), stale, site_links(ls, page, site)))
    if isinstance(hint.label, Sequence) and not isinstance(hint.label, str) and len(hint.label) == 1:
        hint.label[0].location = definition(ls, page, site)
