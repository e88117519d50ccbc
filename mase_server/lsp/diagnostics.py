"""Diagnostics of open files: pulled by clients that can; pushed, with the document's version, to those that cannot.

Files that were never opened get none: an error there is told at the line of the open file that led to it. Clients that
can be told to pull again pull. Neovim 0.10 and 0.11 pull only when a text changes, which is before the trace, so the
server pushes to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.documents import Document
from mase_server.lsp.page import Page
from mase_server.lsp.wording import describe_break, describe_recompile, describe_unrun
from mase_server.protocol.records import Related
from mase_server.protocol.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.lsp.server import Server
    from mase_server.protocol.answers import GraphBreak, Recompile

SOURCE = "mase"
_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
    "hint": lsp.DiagnosticSeverity.Hint,
}


async def pull_diagnostics(ls: Server, params: lsp.DocumentDiagnosticParams) -> lsp.DocumentDiagnosticReport:
    """textDocument/diagnostic: `unchanged` if the client has the present result already."""
    uri = params.text_document.uri
    items = of_page(ls, ls.problem_page(ls.path_of(uri), ls.document(uri)))
    result_id = hashlib.sha256(repr(items).encode()).hexdigest()[:16]
    if params.previous_result_id == result_id:
        return lsp.RelatedUnchangedDocumentDiagnosticReport(result_id)
    return lsp.RelatedFullDocumentDiagnosticReport(items, result_id=result_id)


def publish_diagnostics(ls: Server, paths: Iterable[str]) -> None:
    """Push the diagnostics of open files to a client that does not pull them."""
    for path in paths:
        for document in ls.documents.of(path):
            if ls.pulls_diagnostics:
                clear_diagnostics(ls, document.uri)
            else:
                _push_diagnostics(ls, document, of_page(ls, ls.problem_page(path, document)))


def clear_diagnostics(ls: Server, uri: str) -> None:
    """Clear the pushed diagnostics of a document, if there are any."""
    if uri in ls.published:
        ls.published.discard(uri)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _push_diagnostics(ls: Server, document: Document, items: list[lsp.Diagnostic]) -> None:
    if not items:
        clear_diagnostics(ls, document.uri)
        return
    ls.published.add(document.uri)
    ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, items, document.version))


def of_page(ls: Server, page: Page | None) -> list[lsp.Diagnostic]:
    """The problems of a file at their present places, without those on edited lines."""
    if page is None:
        return []
    problems = ls.live.choose_problems(page.document.path, page.view.problems(), unsaved=page.view.unsaved)
    placed = ((problem, page.range(problem)) for problem in problems)
    items = [of_problem(ls, problem, place) for problem, place in placed if place is not None]
    items += [of_break(found, place) for found, place in ls.compiled.list_breaks(page)]
    items += [_of_recompile(found, place) for found, place in ls.compiled.list_recompiles(page)]
    return [*items, *_dim_unrun(page)] if ls.settings_of(page.document.path).dim_not_run else items


def _dim_unrun(page: Page) -> Iterator[lsp.Diagnostic]:
    """The code that did not run, so that editors show it faded."""
    for unrun in page.view.unrun():
        if (place := page.place_of(unrun)) is not None:
            yield lsp.Diagnostic(
                range=place,
                message=describe_unrun(unrun, page.decider(unrun), lambda code: f"`{code}`"),
                severity=lsp.DiagnosticSeverity.Hint,
                code="not-run",
                source=SOURCE,
                tags=[lsp.DiagnosticTag.Unnecessary],
            )


def of_break(found: GraphBreak, place: lsp.Range) -> lsp.Diagnostic:
    """A graph break as a diagnostic."""
    return _inform(place, describe_break(found), "graph-break")


def _of_recompile(found: Recompile, place: lsp.Range) -> lsp.Diagnostic:
    return _inform(place, describe_recompile(found), "recompilation")


def _inform(place: lsp.Range, message: str, code: str) -> lsp.Diagnostic:
    return lsp.Diagnostic(
        range=place, message=message, severity=lsp.DiagnosticSeverity.Information, code=code, source=SOURCE
    )


def of_problem(ls: Server, problem: Problem, place: lsp.Range) -> lsp.Diagnostic:
    """One problem as a diagnostic at `place`."""
    related = [_related_information(ls, entry) for entry in problem.related]
    return lsp.Diagnostic(
        range=place,
        message=problem.message,
        severity=_SEVERITY[problem.severity],
        code=problem.code,
        source=SOURCE,
        related_information=[entry for entry in related if entry is not None] or None,
    )


def _related_information(ls: Server, entry: Related) -> lsp.DiagnosticRelatedInformation | None:
    place = ls.place_in(entry)
    if place is None:
        return None
    return lsp.DiagnosticRelatedInformation(lsp.Location(ls.uri_of(entry["file"]), place), entry["message"])
