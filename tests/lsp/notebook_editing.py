"""A notebook in the tests' editor: cells are opened, typed in, moved and removed, and all is saved as editors do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types as lsp


@dataclass(eq=False)
class Cell:
    """One cell. It stands for its document wherever the editor takes a path."""

    uri: str
    text: str
    language: str = "python"
    version: int = 1

    def as_uri(self) -> str:
        return self.uri

    def item(self) -> lsp.TextDocumentItem:
        return lsp.TextDocumentItem(self.uri, self.language, self.version, self.text)

    def told(self) -> lsp.NotebookCell:
        return lsp.NotebookCell(lsp.NotebookCellKind.Code, self.uri)


def as_json(cells, *, language="python") -> str:
    """An .ipynb, with a text cell above every code cell, and each code cell with an output that is no code."""
    told = []
    for cell in cells:
        told.append({"cell_type": "markdown", "metadata": {}, "source": ["# About\n", "this cell"]})
        source = cell.text.splitlines(keepends=True)
        output = {"name": "stdout", "output_type": "stream", "text": ["x = 1\n"]}
        metadata = {} if cell.language == "python" else {"vscode": {"languageId": cell.language}}
        kept = {"cell_type": "code", "execution_count": 1, "metadata": metadata, "outputs": [output]}
        told.append({**kept, "source": source})
    return json.dumps({"cells": told, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4}, indent=1)


class Notebook:
    """A notebook of a test's editor. cells: those that the editor shows, in order."""

    def __init__(self, editor, path: Path, *texts: str) -> None:
        self.editor, self.path, self.version, self._number = editor, path, 1, 0
        self.cells = [self.cell(text) for text in texts]
        path.write_text(as_json(self.cells))

    def cell(self, text: str, language: str = "python") -> Cell:
        self._number += 1
        return Cell(f"vscode-notebook-cell:{self.path}#W{self._number}", text, language)

    def as_uri(self) -> str:
        return self.path.as_uri()

    def open(self) -> None:
        document = lsp.NotebookDocument(self.as_uri(), "jupyter-notebook", 1, [cell.told() for cell in self.cells])
        params = lsp.DidOpenNotebookDocumentParams(document, [cell.item() for cell in self.cells])
        self.editor.client.notebook_document_did_open(params)

    def type(self, cell: Cell, line: int, column: int, end_line: int, end_column: int, text: str) -> None:
        """Put `text` in place of a range of a cell."""
        lines = cell.text.split("\n")
        before, after = [*lines[:line], lines[line][:column]], [lines[end_line][end_column:], *lines[end_line + 1 :]]
        cell.text, cell.version = "\n".join(before) + text + "\n".join(after), cell.version + 1
        place = lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))
        document = lsp.VersionedTextDocumentIdentifier(cell.version, cell.uri)
        content = lsp.NotebookDocumentCellContentChanges(document, [lsp.TextDocumentContentChangePartial(place, text)])
        self._change(lsp.NotebookDocumentCellChanges(text_content=[content]))

    def retype(self, cell: Cell, old: str, new: str) -> None:
        """Turn the first `old` of a cell into `new`."""
        line = next(number for number, line in enumerate(cell.text.split("\n")) if old in line)
        column = cell.text.split("\n")[line].index(old)
        self.type(cell, line, column, line, column + len(old), new)

    def insert(self, at: int, cell: Cell) -> Cell:
        self.cells.insert(at, cell)
        array = lsp.NotebookCellArrayChange(at, 0, [cell.told()])
        self._restructure(array, did_open=[cell.item()])
        return cell

    def remove(self, at: int) -> None:
        gone = self.cells.pop(at)
        self._restructure(lsp.NotebookCellArrayChange(at, 1, []), did_close=[lsp.TextDocumentIdentifier(gone.uri)])

    def move(self, at: int, to: int) -> None:
        """As VS Code tells it: the span of cells between the two places, in their new order."""
        self.cells.insert(to, self.cells.pop(at))
        low, high = min(at, to), max(at, to) + 1
        self._restructure(lsp.NotebookCellArrayChange(low, high - low, [cell.told() for cell in self.cells[low:high]]))

    def save(self) -> None:
        self.path.with_suffix(".saving").write_text(as_json(self.cells))
        self.path.with_suffix(".saving").replace(self.path)
        self.editor.client.notebook_document_did_save(
            lsp.DidSaveNotebookDocumentParams(lsp.NotebookDocumentIdentifier(self.as_uri()))
        )

    def close(self) -> None:
        cells = [lsp.TextDocumentIdentifier(cell.uri) for cell in self.cells]
        params = lsp.DidCloseNotebookDocumentParams(lsp.NotebookDocumentIdentifier(self.as_uri()), cells)
        self.editor.client.notebook_document_did_close(params)

    def _restructure(self, array, **documents) -> None:
        self._change(
            lsp.NotebookDocumentCellChanges(structure=lsp.NotebookDocumentCellChangeStructure(array, **documents))
        )

    def _change(self, cells: lsp.NotebookDocumentCellChanges) -> None:
        self.version += 1
        document = lsp.VersionedNotebookDocumentIdentifier(self.version, self.as_uri())
        change = lsp.NotebookDocumentChangeEvent(cells=cells)
        self.editor.client.notebook_document_did_change(lsp.DidChangeNotebookDocumentParams(document, change))
