"""Places of cells and places of a notebook's script: every request is asked of the script, and answered for the cell.

A cell's URI in what a client asks becomes its notebook's, and lines count from the script's first. In what is answered,
places with the notebook's URI go to the cell that they are in; all other places are the asked cell's. What lies in no
cell, or in another one where none is named, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs
from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.lsp.notebooks import Cell, Notebooks

#: Attributes that hold no places for the client to see.
_OPAQUE = frozenset({"data", "command"})


class _ElsewhereError(Exception):
    """A place that is not in the cell."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a cell. lines: the cell's lines of the script."""

    notebook: str
    lines: range


def asked_of(notebooks: Notebooks, params: Any) -> Asked | None:
    """The cell that parameters of a request name; None where they name none."""
    uri = _uri_in(params)
    found = None if uri is None else notebooks.of_cell(uri)
    return None if found is None else Asked(found[0].uri, found[2])


def _uri_in(params: Any) -> str | None:
    if isinstance(params, Mapping):
        document = params.get("textDocument")
        uri = params.get("uri") or (document.get("uri") if isinstance(document, Mapping) else None)
    elif isinstance(params, str):
        uri = params
    else:
        uri = getattr(getattr(params, "text_document", None), "uri", None)
    return uri if isinstance(uri, str) else None


def to_script(params: Any, asked: Asked) -> Any:
    """The same question, asked of the script."""
    match params:
        case lsp.Position():
            return lsp.Position(_line(params.line, asked), params.character)
        case {"line": int(line), "character": character}:
            return {**params, "line": _line(line, asked), "character": character}
        case str():
            return asked.notebook
        case lsp.TextDocumentIdentifier():
            return lsp.TextDocumentIdentifier(asked.notebook)
        case Mapping():
            return {
                key: to_script(value, asked) if _holds_place(key, value) else value for key, value in params.items()
            }
        case list() | tuple():
            return [to_script(each, asked) for each in params]
    if not attrs.has(type(params)):
        return params
    values = {name: getattr(params, name) for name in attrs.fields_dict(type(params)) if name not in _OPAQUE}
    return attrs.evolve(
        params, **{name: to_script(each, asked) for name, each in values.items() if _is_structure(each)}
    )


def _line(line: int, asked: Asked) -> int:
    """What a client asks for below the cell's end is not the next cell's."""
    return min(line + asked.lines.start, asked.lines.stop - 1)


def _holds_place(key: Any, value: Any) -> bool:
    return key == "uri" or (key in ("position", "range", "start", "end", "textDocument") and isinstance(value, Mapping))


def _is_structure(value: Any) -> bool:
    return isinstance(value, list | tuple) or attrs.has(type(value))


class Answers:
    """Turns answers about scripts into answers about cells. asked: of which cell places without a URI are."""

    def __init__(self, notebooks: Notebooks, asked: Asked | None = None) -> None:
        self._notebooks, self._asked = notebooks, asked

    def of(self, answer: Any) -> Any:
        """The answer; None where all of it lies elsewhere."""
        try:
            return self._of(answer)
        except _ElsewhereError:
            return None

    def _of(self, answer: Any) -> Any:
        match answer:
            case lsp.Location() | lsp.ShowDocumentParams() | lsp.TextDocumentEdit() | lsp.WorkspaceEdit():
                return self._named(answer)
            case lsp.Position() if self._asked is not None:
                return _position(answer, self._asked.lines)
            case list() | tuple():
                return [kept for each in answer for kept in self._kept(each)]
            case {"uri": str(uri), "range": lsp.Range() as place} if self._notebooks.get(uri) is not None:
                cell, place = self._in_cell(uri, place)
                return {**answer, "uri": cell.uri, "range": place}
        if not attrs.has(type(answer)) or (self._asked is None and not isinstance(answer, lsp.CodeAction)):
            return answer
        values = {name: getattr(answer, name) for name in attrs.fields_dict(type(answer)) if name not in _OPAQUE}
        return attrs.evolve(answer, **{name: self._of(each) for name, each in values.items() if _is_structure(each)})

    def _kept(self, each: Any) -> list[Any]:
        """What of one entry of a list is to be told."""
        match each:
            case {"uri": str(uri), "ranges": list(ranges)} if self._notebooks.get(uri) is not None:
                return [{**each, "uri": cell, "ranges": places} for cell, places in self._by_cell(uri, ranges).items()]
        try:
            return [self._of(each)]
        except _ElsewhereError:
            return []

    def _named(self, answer: Any) -> Any:
        """What names the documents of its places itself."""
        match answer:
            case lsp.Location(uri=uri, range=place) if self._notebooks.get(uri) is not None:
                cell, place = self._in_cell(uri, place)
                return lsp.Location(cell.uri, place)
            case lsp.ShowDocumentParams(uri=uri, selection=lsp.Range() as place) if (
                self._notebooks.get(uri) is not None
            ):
                cell, place = self._in_cell(uri, place)
                return attrs.evolve(answer, uri=cell.uri, selection=place)
            case lsp.WorkspaceEdit(document_changes=list(changes)):
                return attrs.evolve(answer, document_changes=[kept for each in changes for kept in self._edits(each)])
            case lsp.WorkspaceEdit(changes=dict(changes)):
                split = [self._edits_of(uri, edits) for uri, edits in changes.items()]
                return attrs.evolve(answer, changes={uri: edits for each in split for uri, edits in each.items()})
        return answer

    def _edits(self, change: Any) -> list[Any]:
        if not isinstance(change, lsp.TextDocumentEdit) or self._notebooks.get(change.text_document.uri) is None:
            return [change]
        edits: list[Any] = []
        for uri, each in self._edits_of(change.text_document.uri, change.edits).items():
            found = self._notebooks.of_cell(uri)
            version = None if found is None else found[1].version
            edits.append(lsp.TextDocumentEdit(lsp.OptionalVersionedTextDocumentIdentifier(uri, version), each))
        return edits

    def _edits_of(self, uri: str, edits: Any) -> dict[str, list[Any]]:
        if self._notebooks.get(uri) is None:
            return {uri: list(edits)}
        split: dict[str, list[Any]] = {}
        for edit in edits:
            cell, place = self._in_cell(uri, edit.range)
            split.setdefault(cell.uri, []).append(attrs.evolve(edit, range=place))
        return split

    def _by_cell(self, uri: str, places: list[lsp.Range]) -> dict[str, list[lsp.Range]]:
        found: dict[str, list[lsp.Range]] = {}
        for place in places:
            cell, inside = self._in_cell(uri, place)
            found.setdefault(cell.uri, []).append(inside)
        return found

    def _in_cell(self, uri: str, place: lsp.Range) -> tuple[Cell, lsp.Range]:
        """The cell that a place of a script is in, and where. Raises _ElsewhereError for one in no cell, or in two."""
        notebook = self._notebooks.get(uri)
        for cell, lines in notebook.spans() if notebook is not None else ():
            own = range(lines.start - 1, lines.stop)
            if place.start.line in own and place.end.line in own:
                return cell, lsp.Range(_position(place.start, lines), _position(place.end, lines))
        raise _ElsewhereError


def _position(at: lsp.Position, lines: range) -> lsp.Position:
    """A place of the script in the cell with these lines. What is told of the mark above it is told at its start."""
    if at.line == lines.start - 1:
        return lsp.Position(0, 0)
    if at.line not in lines:
        raise _ElsewhereError
    return lsp.Position(at.line - lines.start, at.character)


def of_cells(notebooks: Notebooks, params: lsp.PublishDiagnosticsParams) -> list[lsp.PublishDiagnosticsParams]:
    """Diagnostics of a script, as those of its cells; of the cells that had some and have none any more, too."""
    notebook = notebooks.get(params.uri)
    if notebook is None:
        return [params]
    told = []
    for cell, lines in notebook.spans():
        items = Answers(notebooks, Asked(notebook.uri, lines)).of(list(params.diagnostics))
        if items or cell.uri in notebook.published:
            told.append(lsp.PublishDiagnosticsParams(cell.uri, items, cell.version))
    notebook.published = {each.uri for each in told if each.diagnostics}
    return told
