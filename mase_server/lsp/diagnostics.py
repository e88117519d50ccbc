"""Diagnostics: pulled where the client can, pushed with the document's version where it cannot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.documents import Document
from mase_server.lsp.page import Page
from mase_server.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

SOURCE = "mase"
_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
    "hint": lsp.DiagnosticSeverity.Hint,
}


async def pull(ls: Server, params: lsp.DocumentDiagnosticParams) -> lsp.DocumentDiagnosticReport:
    """textDocument/diagnostic: `unchanged` while the client's result is the one that it would get."""
    uri = params.text_document.uri
    items = of_page(ls, ls.problem_page(ls.path_of(uri), ls.document(uri)))
    result_id = hashlib.sha256(repr(items).encode()).hexdigest()[:16]
    if params.previous_result_id == result_id:
        return lsp.RelatedUnchangedDocumentDiagnosticReport(result_id)
    return lsp.RelatedFullDocumentDiagnosticReport(items, result_id=result_id)


def publish(ls: Server, paths: Iterable[str]) -> None:
    """Push what nobody pulls: diagnostics of all files where the client cannot pull, and of files that are not open.

    The latter while a file is open whose trace tells them: of what nobody looks at, nobody would take them back.
    """
    for path in paths:
        documents: list[Document | None] = [*ls.documents.of(path)]
        for document in documents or [None]:
            if document is not None and ls.pulls_diagnostics:
                clear(ls, document.uri)
                continue
            page = ls.problem_page(path, document)
            looked_at = page is not None and any(map(ls.documents.get, {path, *page.view.told_by}))
            uri, version = (document.uri, document.version) if document else (ls.uri_of(path), None)
            _push(ls, uri, path, of_page(ls, page) if looked_at else [], version)


def take_back(ls: Server) -> None:
    """Clear what was pushed for files that are not open, and that no open file speaks of any longer."""
    publish(ls, sorted({path for path in ls.published.values() if ls.documents.get(path) is None}))


def clear(ls: Server, uri: str) -> None:
    """Take back what was pushed for a document, if anything was."""
    if ls.published.pop(uri, None) is not None:
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _push(ls: Server, uri: str, path: str, items: list[lsp.Diagnostic], version: int | None) -> None:
    if not items:
        clear(ls, uri)
        return
    ls.published[uri] = path
    ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, items, version))


def of_page(ls: Server, page: Page | None) -> list[lsp.Diagnostic]:
    """The problems of a file where they stand now; those on edited lines are left out."""
    if page is None:
        return []
    placed = ((problem, page.range(problem)) for problem in page.view.problems())
    return [of_problem(ls, problem, place) for problem, place in placed if place is not None]


def of_problem(ls: Server, problem: Problem, place: lsp.Range) -> lsp.Diagnostic:
    """One problem as a diagnostic at `place`."""
    related = [_related(ls, entry) for entry in problem.related]
    return lsp.Diagnostic(
        range=place,
        message=problem.message,
        severity=_SEVERITY[problem.severity],
        code=problem.code,
        source=SOURCE,
        related_information=[entry for entry in related if entry is not None] or None,
    )


def _related(ls: Server, entry: dict[str, Any]) -> lsp.DiagnosticRelatedInformation | None:
    place = ls.place_in(entry)
    if place is None:
        return None
    return lsp.DiagnosticRelatedInformation(lsp.Location(ls.uri_of(entry["file"]), place), entry["message"])
