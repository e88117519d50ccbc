"""Code actions: the mends that problems bring along, as quick fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.diagnostics import of_problem

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.snapshot import Problem


async def code_actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction] | None:
    """textDocument/codeAction: the fixes of the problems that the range touches, while their lines are untouched."""
    only = params.context.only
    if only and not any(lsp.CodeActionKind.QuickFix.startswith(str(getattr(kind, "value", kind))) for kind in only):
        return []
    page = ls.problem_page(ls.path_of(params.text_document.uri))
    if page is None:
        return None
    lazy = ls.resolves_edits
    actions = []
    for number, problem in enumerate(page.view.problems()):
        place = page.range(problem)
        if place is None or not _touch(place, params.range):
            continue
        diagnostics = [of_problem(ls, problem, place)]
        for index, fix in enumerate(problem.fixes):
            edit = workspace_edit(ls, fix)
            if edit is not None:
                data = {"path": page.document.path, "sha256": page.traced, "problem": number, "fix": index}
                actions.append(_action(fix, diagnostics, None if lazy else edit, data))
    return actions


async def resolve(ls: Server, action: lsp.CodeAction) -> lsp.CodeAction:
    """codeAction/resolve: the edit for the text of now; none if the fix is gone or its lines were edited since."""
    data: dict[str, Any] = action.data if isinstance(action.data, dict) else {}
    page = ls.problem_page(str(data.get("path")))
    if page is not None and page.traced == data.get("sha256"):
        problem = _nth(page, data["problem"])
        if problem is not None and data["fix"] < len(problem.fixes):
            action.edit = workspace_edit(ls, problem.fixes[data["fix"]])
    return action


def workspace_edit(ls: Server, fix: dict[str, Any]) -> lsp.WorkspaceEdit | None:
    """The edits of a fix where their lines stand now; None if any of those lines was edited."""
    by_uri: dict[str, list[lsp.TextEdit]] = {}
    for edit in fix["edits"]:
        page = ls.problem_page(edit["file"])
        place = None if page is None else page.place_of(edit)
        if place is None:
            return None
        by_uri.setdefault(ls.uri_of(edit["file"]), []).append(lsp.TextEdit(place, edit["new_text"]))
    if not ls.can("workspace", "workspace_edit", "document_changes"):
        return lsp.WorkspaceEdit(changes=by_uri)
    return lsp.WorkspaceEdit(document_changes=[_versioned(ls, uri, edits) for uri, edits in by_uri.items()])


def _versioned(ls: Server, uri: str, edits: list[lsp.TextEdit]) -> lsp.TextDocumentEdit:
    document = ls.documents.get(ls.path_of(uri))
    version = document.version if document else None
    return lsp.TextDocumentEdit(lsp.OptionalVersionedTextDocumentIdentifier(uri, version), edits)


def _action(
    fix: dict[str, Any], diagnostics: list[lsp.Diagnostic], edit: lsp.WorkspaceEdit | None, data: dict[str, Any]
) -> lsp.CodeAction:
    return lsp.CodeAction(
        title=fix["title"],
        kind=lsp.CodeActionKind.QuickFix,
        diagnostics=diagnostics,
        is_preferred=bool(fix.get("preferred")),
        edit=edit,
        data=data,
    )


def _nth(page: Page, number: int) -> Problem | None:
    problems = page.view.problems()
    return problems[number] if number < len(problems) else None


def _touch(one: lsp.Range, other: lsp.Range) -> bool:
    return _point(one.start) <= _point(other.end) and _point(other.start) <= _point(one.end)


def _point(position: lsp.Position) -> tuple[int, int]:
    return position.line, position.character
