"""Notebooks that a client has open: their cells, and the one document that everything else here sees of each.

That document is the notebook's script (`mase_server.notebooks`), edited as its cells are. `cells` turns places of cells
into places of the script and back, at the border of every request, so nothing else knows of cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.documents import Document
from mase_server.lsp.encoding import from_units
from mase_server.lsp.sync import follow
from mase_server.lsp.text import Text
from mase_server.notebooks import plain, read_ahead, script

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: What is told of notebooks: those of Jupyter, and of their cells those in Python.
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
    #: Cells with diagnostics that were pushed.
    published: set[str] = field(default_factory=set)

    def first(self, index: int) -> int:
        """The script's line of the first line of cell `index`; of a cell behind the last, where it would be."""
        return index + 1 + sum(len(cell.text.lines) for cell in self.cells[:index])

    def spans(self) -> Iterator[tuple[Cell, range]]:
        """The cells, each with its lines of the script."""
        first = 0
        for cell in self.cells:
            yield cell, range(first + 1, first + 1 + len(cell.text.lines))
            first += 1 + len(cell.text.lines)

    def splice(self, start: int, removed: int, added: Sequence[Cell]) -> None:
        """Put cells in place of others."""
        begin, end = self.first(start) - 1, self.first(start + removed) - 1
        self.cells[start : start + removed] = added
        text = script(str(cell.text) for cell in added)
        self.document.apply(self.document.text.replace((begin, 0), (end, 0), text))

    def edit(self, cell: Cell, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        """Put `text` in place of what stands from `start` to `end` of a cell."""
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
        """A notebook has other cells now."""
        self._of_cell = {uri: each for uri, each in self._of_cell.items() if each is not notebook}
        self._of_cell |= {cell.uri: notebook for cell in notebook.cells}

    def close(self, uri: str) -> Notebook | None:
        """A notebook was closed; the one it was."""
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
    """notebookDocument/didOpen: what is saved of it is traced, as of a file."""
    told, path = params.notebook_document, ls.path_of(params.notebook_document.uri)
    cells = _cells(told.cells, params.cell_text_documents)
    text = script(str(cell.text) for cell in cells)
    document = ls.documents.open(told.uri, path, told.version, text)
    ls.notebooks.open(Notebook(told.uri, document, cells))
    await asyncio.to_thread(read_ahead, path)
    await follow(ls, document)


async def did_change(ls: Server, params: lsp.DidChangeNotebookDocumentParams) -> None:
    """notebookDocument/didChange: cells that come, go and move, then what was typed in them."""
    notebook = ls.notebooks.get(params.notebook_document.uri)
    if notebook is None:
        return
    changes = params.change.cells
    if changes is not None and changes.structure is not None:
        _restructure(ls, notebook, changes.structure)
    for content in (changes.text_content if changes is not None else None) or ():
        found = ls.notebooks.of_cell(content.document.uri)
        if found is not None:
            for change in content.changes:
                _type(ls, notebook, found[1], change)
            found[1].version = content.document.version
    notebook.document.version = params.notebook_document.version


def _restructure(ls: Server, notebook: Notebook, told: lsp.NotebookDocumentCellChangeStructure) -> None:
    """A cell that moves goes and comes again, with the text that it has."""
    known = {cell.uri: cell for cell in notebook.cells}
    opened = {item.uri: _cell(item) for item in told.did_open or ()}
    cells = {**known, **opened}
    added = [cells[cell.document] for cell in told.array.cells or () if cell.document in cells]
    notebook.splice(told.array.start, told.array.delete_count, added)
    ls.notebooks.changed(notebook)
    for item in told.did_close or ():
        if item.uri in notebook.published:
            notebook.published.discard(item.uri)
            ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(item.uri, []))


def _type(ls: Server, notebook: Notebook, cell: Cell, change: lsp.TextDocumentContentChangeEvent) -> None:
    text = plain(change.text)
    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = (
            (at.line, from_units(cell.text.line(at.line), at.character, ls.encoding))
            for at in (change.range.start, change.range.end)
        )
        notebook.edit(cell, start, end, text)
    else:
        notebook.edit(cell, (0, 0), (len(cell.text.lines), 0), text)


async def did_save(ls: Server, params: lsp.DidSaveNotebookDocumentParams) -> None:
    """notebookDocument/didSave: the cells of now are what will be traced."""
    notebook = ls.notebooks.get(params.notebook_document.uri)
    if notebook is not None:
        view = ls.daemon.store.view(notebook.document.path)
        notebook.document.remember(view.sha256 if view else "")
        await asyncio.to_thread(read_ahead, notebook.document.path)
        ls.daemon.saved(notebook.document.path)


async def did_close(ls: Server, params: lsp.DidCloseNotebookDocumentParams) -> None:
    """notebookDocument/didClose: forget it, and clear what was pushed for its cells."""
    notebook = ls.notebooks.close(params.notebook_document.uri)
    if notebook is None:
        return
    if ls.documents.close(notebook.uri) is not None and ls.documents.get(notebook.document.path) is None:
        ls.daemon.closed(notebook.document.path)
    for uri in notebook.published:
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
    ls.published.pop(notebook.uri, None)


def _cells(told: Iterable[lsp.NotebookCell], texts: Iterable[lsp.TextDocumentItem]) -> list[Cell]:
    """The cells whose texts are told, in the order of the notebook."""
    known = {item.uri: _cell(item) for item in texts}
    return [known[cell.document] for cell in told if cell.document in known]


def _cell(item: lsp.TextDocumentItem) -> Cell:
    return Cell(item.uri, item.version, Text(plain(item.text)))
