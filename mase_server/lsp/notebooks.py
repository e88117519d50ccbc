"""Notebooks that a client has open: their cells, and the single document that all other modules see of each.

That document is the notebook's script (`mase_server.notebooks`), edited as its cells are. This module turns places of
cells into places of the script and back, at the border of every request, so that no other module knows about cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import attrs
from lsprotocol import types as lsp

from mase_server.lsp.documents import Document
from mase_server.lsp.live import follow_opened_document
from mase_server.lsp.text import Text, from_units
from mase_server.notebooks import normalize_line_ends, read_ahead, script_from_cells

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


#: The notebooks that the client reports: Jupyter's, and of their cells those in Python.
SYNC = lsp.NotebookDocumentSyncOptions(
    [lsp.NotebookDocumentFilterWithCells([lsp.NotebookCellLanguage("python")], "jupyter-notebook")], save=True
)


@dataclass(slots=True)
class Cell:
    """One open cell."""

    uri: str
    version: int
    text: Text


@dataclass(slots=True)
class Notebook:
    """One open notebook. document: its script."""

    uri: str
    document: Document
    cells: list[Cell] = field(default_factory=list)
    #: The URIs of cells with pushed diagnostics.
    published: set[str] = field(default_factory=set)

    def first(self, index: int) -> int:
        """The script's line of the first line of cell `index`.

        Behind the last cell, the line where the next would begin.
        """
        return index + 1 + sum(len(cell.text.lines) for cell in self.cells[:index])

    def spans(self) -> Iterator[tuple[Cell, range]]:
        """Each cell with its lines of the script."""
        first = 0
        for cell in self.cells:
            yield cell, range(first + 1, first + 1 + len(cell.text.lines))
            first += 1 + len(cell.text.lines)

    def replace_cells(self, start: int, removed: int, added: Sequence[Cell]) -> None:
        """Replace some cells by others."""
        begin, end = self.first(start) - 1, self.first(start + removed) - 1
        self.cells[start : start + removed] = added
        text = script_from_cells(str(cell.text) for cell in added)
        self.document.apply(self.document.text.replace((begin, 0), (end, 0), text))

    def edit(self, cell: Cell, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        """Replace the text from `start` to `end` of a cell by `text`."""
        first = self.first(self.cells.index(cell))
        start, end = (cell.text.inside(at) for at in (start, max(start, end)))
        cell.text.replace(start, end, text)
        (line, column), (end_line, end_column) = start, end
        edit = self.document.text.replace((first + line, column), (first + end_line, end_column), text)
        self.document.apply(edit)


class Notebooks:
    """Every notebook that the client has open."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Notebook] = {}
        self._of_cell: dict[str, Notebook] = {}

    def __len__(self) -> int:
        return len(self._by_uri)

    def open(self, notebook: Notebook) -> None:
        """A notebook was opened."""
        self._by_uri[notebook.uri] = notebook
        self.changed(notebook)

    def changed(self, notebook: Notebook) -> None:
        """The cells of a notebook have changed."""
        self._of_cell = {uri: each for uri, each in self._of_cell.items() if each is not notebook}
        self._of_cell |= {cell.uri: notebook for cell in notebook.cells}

    def close(self, uri: str) -> Notebook | None:
        """A notebook was closed; returns it."""
        notebook = self._by_uri.pop(uri, None)
        self._of_cell = {cell: each for cell, each in self._of_cell.items() if each is not notebook}
        return notebook

    def get(self, uri: str) -> Notebook | None:
        """The notebook of this URI, if it is open."""
        return self._by_uri.get(uri)

    def of_cell(self, uri: str) -> tuple[Notebook, Cell, range] | None:
        """The notebook of a cell's URI, the cell, and its lines of the script."""
        notebook = self._of_cell.get(uri)
        spans = notebook.spans() if notebook is not None else ()
        return next(((notebook, cell, lines) for cell, lines in spans if notebook and cell.uri == uri), None)


async def did_open(ls: Server, params: lsp.DidOpenNotebookDocumentParams) -> None:
    """notebookDocument/didOpen: its saved text is traced, as for a file."""
    told, path = params.notebook_document, ls.path_of(params.notebook_document.uri)
    cells = _cells_from_items(told.cells, params.cell_text_documents)
    text = script_from_cells(str(cell.text) for cell in cells)
    document = ls.documents.open(told.uri, path, told.version, text)
    ls.notebooks.open(Notebook(told.uri, document, cells))
    await asyncio.to_thread(read_ahead, path)
    await follow_opened_document(ls, document)


async def did_change(ls: Server, params: lsp.DidChangeNotebookDocumentParams) -> None:
    """notebookDocument/didChange: cells that are added, removed and moved, then text typed in them."""
    notebook = ls.notebooks.get(params.notebook_document.uri)
    if notebook is None:
        return
    changes = params.change.cells
    if changes is not None and changes.structure is not None:
        _restructure_cells(ls, notebook, changes.structure)
    for content in (changes.text_content if changes is not None else None) or ():
        found = ls.notebooks.of_cell(content.document.uri)
        if found is not None:
            for change in content.changes:
                _edit_cell_text(ls, notebook, found[1], change)
            found[1].version = content.document.version
    notebook.document.version = params.notebook_document.version
    if changes is not None:
        ls.live.edited(notebook.document)


def _restructure_cells(ls: Server, notebook: Notebook, told: lsp.NotebookDocumentCellChangeStructure) -> None:
    """Add, remove and move cells; a cell that moves is removed and added again, and keeps its text."""
    known = {cell.uri: cell for cell in notebook.cells}
    opened = {item.uri: _cell_from_item(item) for item in told.did_open or ()}
    cells = {**known, **opened}
    added = [cells[cell.document] for cell in told.array.cells or () if cell.document in cells]
    notebook.replace_cells(told.array.start, told.array.delete_count, added)
    ls.notebooks.changed(notebook)
    for item in told.did_close or ():
        if item.uri in notebook.published:
            notebook.published.discard(item.uri)
            ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(item.uri, []))


def _edit_cell_text(ls: Server, notebook: Notebook, cell: Cell, change: lsp.TextDocumentContentChangeEvent) -> None:
    text = normalize_line_ends(change.text)
    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = (
            (at.line, from_units(cell.text.line(at.line), at.character, ls.encoding))
            for at in (change.range.start, change.range.end)
        )
        notebook.edit(cell, start, end, text)
    else:
        notebook.edit(cell, (0, 0), (len(cell.text.lines), 0), text)


async def did_save(ls: Server, params: lsp.DidSaveNotebookDocumentParams) -> None:
    """notebookDocument/didSave: the present cells are traced next."""
    notebook = ls.notebooks.get(params.notebook_document.uri)
    if notebook is not None:
        view = ls.daemon.store.view(notebook.document.path)
        notebook.document.remember_text(view.sha256 if view else "")
        await asyncio.to_thread(read_ahead, notebook.document.path)
        ls.live.saved(notebook.document)
        ls.daemon.saved(notebook.document.path)


async def did_close(ls: Server, params: lsp.DidCloseNotebookDocumentParams) -> None:
    """notebookDocument/didClose: forget the notebook, and clear the diagnostics pushed for its cells."""
    notebook = ls.notebooks.close(params.notebook_document.uri)
    if notebook is None:
        return
    if ls.documents.close(notebook.uri) is not None and ls.documents.get(notebook.document.path) is None:
        ls.daemon.closed(notebook.document.path)
    ls.live.closed(notebook.document)
    for uri in notebook.published:
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
    ls.published.discard(notebook.uri)


def _cells_from_items(told: Iterable[lsp.NotebookCell], texts: Iterable[lsp.TextDocumentItem]) -> list[Cell]:
    """The cells whose texts are sent, in the order of the notebook."""
    known = {item.uri: _cell_from_item(item) for item in texts}
    return [known[cell.document] for cell in told if cell.document in known]


def _cell_from_item(item: lsp.TextDocumentItem) -> Cell:
    return Cell(item.uri, item.version, Text(normalize_line_ends(item.text)))


# Places in cells and in a notebook's script: a request is made of the script, and its answer is for the cell.
#
# In a request, a cell's URI becomes its notebook's URI, and lines count from the beginning of the script. In an answer,
# places with the notebook's URI move to the cell that holds them; all other places belong to the cell of the request.
# Places in no cell, or in another cell than an answer without URIs allows, are left out.

#: Attributes without places for the client.
_OPAQUE = frozenset({"data", "command"})


class _ElsewhereError(Exception):
    """The place is not in the cell."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request about a cell. lines: the cell's lines of the script."""

    notebook: str
    lines: range


def asked_of(notebooks: Notebooks, params: Any) -> Asked | None:
    """The cell that a request's parameters name; None if they name none."""
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
    """The same request, about the script."""
    match params:
        case lsp.Position():
            return lsp.Position(_clamp_line_to_cell(params.line, asked), params.character)
        case {"line": int(line), "character": character}:
            return {**params, "line": _clamp_line_to_cell(line, asked), "character": character}
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


def _clamp_line_to_cell(line: int, asked: Asked) -> int:
    """Keep a line within its cell: a client may ask for lines below its end, which belong to the next cell."""
    return min(line + asked.lines.start, asked.lines.stop - 1)


def _holds_place(key: Any, value: Any) -> bool:
    return key == "uri" or (key in ("position", "range", "start", "end", "textDocument") and isinstance(value, Mapping))


def _is_structure(value: Any) -> bool:
    return isinstance(value, list | tuple) or attrs.has(type(value))


class Answers:
    """Turns answers about scripts into answers about cells. asked: the cell to which places without a URI belong."""

    def __init__(self, notebooks: Notebooks, asked: Asked | None = None) -> None:
        self._notebooks, self._asked = notebooks, asked

    def of(self, answer: Any) -> Any:
        """The answer for the cell; None if all of it lies elsewhere."""
        try:
            return self._convert_answer(answer)
        except _ElsewhereError:
            return None

    def _convert_answer(self, answer: Any) -> Any:
        match answer:
            case lsp.Location() | lsp.ShowDocumentParams() | lsp.TextDocumentEdit() | lsp.WorkspaceEdit():
                return self._convert_with_uri(answer)
            case lsp.Position() if self._asked is not None:
                return _position_in_cell(answer, self._asked.lines)
            case list() | tuple():
                return [kept for each in answer for kept in self._convert_entry(each)]
            case {"uri": str(uri), "range": lsp.Range() as place} if self._notebooks.get(uri) is not None:
                cell, place = self._in_cell(uri, place)
                return {**answer, "uri": cell.uri, "range": place}
        if not attrs.has(type(answer)) or (self._asked is None and not isinstance(answer, lsp.CodeAction)):
            return answer
        values = {name: getattr(answer, name) for name in attrs.fields_dict(type(answer)) if name not in _OPAQUE}
        return attrs.evolve(
            answer, **{name: self._convert_answer(each) for name, each in values.items() if _is_structure(each)}
        )

    def _convert_entry(self, each: Any) -> list[Any]:
        """The converted entry of a list, as a list that is empty if the entry lies elsewhere."""
        match each:
            case {"uri": str(uri), "ranges": list(ranges)} if self._notebooks.get(uri) is not None:
                return [{**each, "uri": cell, "ranges": places} for cell, places in self._by_cell(uri, ranges).items()]
        try:
            return [self._convert_answer(each)]
        except _ElsewhereError:
            return []

    def _convert_with_uri(self, answer: Any) -> Any:
        """Convert an answer whose places have URIs of their own."""
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
                return attrs.evolve(
                    answer, document_changes=[kept for each in changes for kept in self._split_edits_by_cell(each)]
                )
            case lsp.WorkspaceEdit(changes=dict(changes)):
                split = [self._edits_of(uri, edits) for uri, edits in changes.items()]
                return attrs.evolve(answer, changes={uri: edits for each in split for uri, edits in each.items()})
        return answer

    def _split_edits_by_cell(self, change: Any) -> list[Any]:
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
        """The cell of a script's place, and the place in it.

        Raises _ElsewhereError for a place in no cell, or in two.
        """
        notebook = self._notebooks.get(uri)
        for cell, lines in notebook.spans() if notebook is not None else ():
            own = range(lines.start - 1, lines.stop)
            if place.start.line in own and place.end.line in own:
                return cell, lsp.Range(_position_in_cell(place.start, lines), _position_in_cell(place.end, lines))
        raise _ElsewhereError


def _position_in_cell(at: lsp.Position, lines: range) -> lsp.Position:
    """A place of the script within the cell of these lines. The mark line above the cell counts as its start."""
    if at.line == lines.start - 1:
        return lsp.Position(0, 0)
    if at.line not in lines:
        raise _ElsewhereError
    return lsp.Position(at.line - lines.start, at.character)


def of_cells(notebooks: Notebooks, params: lsp.PublishDiagnosticsParams) -> list[lsp.PublishDiagnosticsParams]:
    """The diagnostics of a script, by cell, including empty lists for cells that have none any more."""
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
