"""Inlay hints: the shape of every bound name and returned value, beside the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from mase_server.daemon.slots import Slices
from mase_server.dtypes import tensor_bytes
from mase_server.lsp.calls import wait_until_traced
from mase_server.lsp.card import UNSAVED, card_markup, describe_site, find_doubt
from mase_server.lsp.labels import label_values
from mase_server.lsp.links import definition_of_site, site_links
from mase_server.lsp.text import from_units, to_units
from mase_server.lsp.wording import EXPRESSIONS, NAMES, format_with_prefix, has_hint, hint_text, in_bytes
from mase_server.protocol.snapshot import iterate_tensor_values

if TYPE_CHECKING:
    from mase_server.daemon.store import FileView, SiteView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.lsp.workspace import Settings


#: Lines whose hints are made before other requests get a turn.
_LINES_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class _Data:
    """The data that a hint carries for its resolution: its site in the traced text."""

    path: str
    sha256: str
    line: int
    column: int
    kind: str


async def inlay_hints(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint] | None:
    """textDocument/inlayHint from the present results: it waits for nothing; long files give other requests turns."""
    await wait_until_traced(ls, params.text_document.uri, "inlay_hint", ranged=True)
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    settings = ls.settings_of(page.document.path)
    kinds = EXPRESSIONS if settings.expressions else NAMES
    lines = range(params.range.start.line, min(params.range.end.line + 1, len(page.document.text.lines)))
    version, hints, slices = page.document.version, [], Slices()
    for start in range(lines.start, lines.stop, _LINES_AT_ONCE):
        await slices.pause()
        if page.document.version != version:
            raise JsonRpcException("the document was edited meanwhile", lsp.LSPErrorCodes.ContentModified.value)
        part = range(start, min(start + _LINES_AT_ONCE, lines.stop))
        sites = ((page.view.as_picked(site), place) for site, place in page.sites(part, kinds))
        hints += [
            _build_hint(page, site, place, settings, parts=ls.resolves_locations)
            for site, place in sites
            if has_hint(site)
        ]
    return hints


def _build_hint(page: Page, site: SiteView, place: lsp.Range, settings: Settings, *, parts: bool) -> lsp.InlayHint:
    """Build one hint. parts: make a label with one part, which can carry a link; its text is the same."""
    line = page.document.text.line(place.end.line)
    follows = line[from_units(line, place.end.character, page.encoding) :]
    fresh = page.is_fresh(site)
    text = hint_text(site, follows, dtypes=settings.hint_detail != "shape", fresh=fresh)
    position = place.end
    if settings.hint_detail == "everything":
        text += _size_and_cost(site)
    if settings.hint_position == "line" and site.kind != "expression":
        text = f"  {site.name}: {text.removeprefix(':').lstrip()}" if site.name else f" {text}"
        position = lsp.Position(position.line, to_units(line, len(line), page.encoding))
    return lsp.InlayHint(
        position=position,
        label=[lsp.InlayHintLabelPart(text)] if parts else text,
        kind=lsp.InlayHintKind.Type,
        tooltip=_describe_label(site, fresh=fresh) if "…" in text or " shapes" in text or not fresh else None,
        padding_left=False,
        data={
            "path": page.document.path, "sha256": page.view.sha256, "line": site.line, "column": site.column,
            "kind": site.kind,
        },
    )  # fmt: skip


def _describe_label(site: SiteView, *, fresh: bool) -> str:
    text = label_values([value.value for value in site.values])
    return text if fresh else f"{text}\n{UNSAVED}"


def _size_and_cost(site: SiteView) -> str:
    """` · 512 B · 8.19 kFLOPs` of the first value at a place."""
    value = site.values[0]
    size = sum(tensor_bytes(tensor) for tensor in iterate_tensor_values(value.original or value.value))
    flops = 0 if value.node is None or site.kind == "parameter" else value.node[0].node(value.node[1]).flops
    return f" · {in_bytes(size)}" + (f" · {format_with_prefix(flops, 'FLOPs')}" if flops else "")


async def resolve_hint(ls: Server, hint: lsp.InlayHint) -> lsp.InlayHint:
    """inlayHint/resolve: add the card as tooltip, and the label's link; a hint of an older trace stays as it is."""
    if not isinstance(hint.data, dict):
        return hint
    data = _Data(**hint.data)
    view = ls.daemon.store.view(data.path)
    if view is None or view.sha256 != data.sha256:
        return hint
    for site in view.sites(data.line, data.line, frozenset({data.kind})):
        if site.column == data.column:
            _complete_hint(ls, hint, site, data.path, view)
            break
    return hint


def _complete_hint(ls: Server, hint: lsp.InlayHint, site: SiteView, path: str, view: FileView) -> None:
    """Add the card, and the link of the label's one part: the module behind the value."""
    page = ls.page(ls.uri_of(path))
    doubt = find_doubt(view, page, site)
    hint.tooltip = card_markup(ls, describe_site(site, ls.models_of(path), doubt, site_links(ls, page, site)))
    if isinstance(hint.label, Sequence) and not isinstance(hint.label, str) and len(hint.label) == 1:
        hint.label[0].location = definition_of_site(ls, page, site)
