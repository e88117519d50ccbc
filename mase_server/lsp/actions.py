"""Code actions: the mends that problems bring along, and comments for what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp import input_sets
from mase_server.lsp.assumptions import Offer, comments, touches
from mase_server.lsp.diagnostics import of_problem
from mase_server.lsp.hardware_fixes import hardware_fixes
from mase_server.lsp.pass_actions import KIND, pass_actions
from mase_server.lsp.patience import settled

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


async def code_actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction] | None:
    """textDocument/codeAction: what the range offers: mends of problems, and comments for what was assumed."""
    path = ls.path_of(params.text_document.uri)
    if (known := ls.problem_page(path)) is not None and _has_problem(known, params.range):
        await settled(ls, params.text_document.uri, "code_action", ranged=True)  # fixes are tried out at a trace's end
    pages = {"fix": ls.problem_page(path), "comment": ls.page(params.text_document.uri)}
    if not any(pages.values()):
        return None
    only = params.context.only
    actions = []
    for source, page in pages.items():
        if page is None:
            continue
        for offer in _SOURCES[source](ls, page, params.range):
            edit = workspace_edit(ls, offer.fix, page)
            if edit is None or not _wanted(offer.kind, only):
                continue
            if not offer.disabled or ls.can("text_document", "code_action", "disabled_support"):
                data = {"path": path, "sha256": page.traced, "source": source, "key": offer.key}
                actions.append(_action(offer, None if ls.resolves_edits else edit, data))
    if (problems := pages["fix"]) is not None and _wanted(lsp.CodeActionKind.QuickFix, only):
        actions += hardware_fixes(ls, problems, params.range)
    if (shown := pages["comment"]) is not None and _wanted(lsp.CodeActionKind.RefactorRewrite, only):
        actions += input_sets.set_actions(ls, shown, params.range)
    if (shown := pages["comment"]) is not None and _wanted(KIND, only):
        actions += await pass_actions(ls, shown, params.range)
    return actions


async def resolve(ls: Server, action: lsp.CodeAction) -> lsp.CodeAction:
    """codeAction/resolve: the edit for the text of now; none if the fix is gone or its lines were edited since."""
    data: dict[str, Any] = action.data if isinstance(action.data, dict) else {}
    path, source = str(data.get("path")), data.get("source")
    page = ls.page(ls.uri_of(path)) if source == "comment" else ls.problem_page(path)
    if page is None or page.traced != data.get("sha256") or source not in _SOURCES:
        return action
    for offer in _SOURCES[source](ls, page, None):
        if offer.key == data["key"]:
            action.edit = workspace_edit(ls, offer.fix, page)
    return action


def _has_problem(page: Page, place: lsp.Range) -> bool:
    """Does a problem stand in the range?"""
    ranges = (page.range(problem) for problem in page.view.problems())
    return any(at is not None and touches(at, place) for at in ranges)


def _mends(ls: Server, page: Page, place: lsp.Range | None) -> Iterator[Offer]:
    """The fixes of the problems that the range touches, while their lines are untouched."""
    for number, problem in enumerate(page.view.problems()):
        at = page.range(problem)
        if at is None or not touches(at, place):
            continue
        diagnostics = [of_problem(ls, problem, at)]
        for index, fix in enumerate(problem.fixes):
            yield Offer(fix, lsp.CodeActionKind.QuickFix, [number, index], diagnostics=diagnostics)


#: What an action may come from -> what that offers in a range, everywhere where it is None.
_SOURCES: dict[str, Callable[[Server, Page, lsp.Range | None], Iterator[Offer]]] = {
    "fix": _mends,
    "comment": comments,
}


def _wanted(kind: lsp.CodeActionKind | str, only: Sequence[lsp.CodeActionKind | str] | None) -> bool:
    """Does the client ask for this kind, by its name or one above it?"""
    text = str(getattr(kind, "value", kind))
    names = [str(getattr(each, "value", each)) for each in only or [kind]]
    return any(f"{text}.".startswith(f"{name}." if name else "") for name in names)


def workspace_edit(ls: Server, fix: dict[str, Any], own: Page) -> lsp.WorkspaceEdit | None:
    """The edits of a fix that `own` offers where their lines stand now; None if any of those lines was edited."""
    by_uri: dict[str, list[lsp.TextEdit]] = {}
    for edit in fix["edits"]:
        page = own if edit["file"] == own.document.path else ls.problem_page(edit["file"])
        place = None if page is None else page.place_of(edit)
        if place is None:
            return None
        by_uri.setdefault(ls.uri_of(edit["file"]), []).append(lsp.TextEdit(place, edit["new_text"]))
    if not ls.can("workspace", "workspace_edit", "document_changes"):
        return lsp.WorkspaceEdit(changes=by_uri)
    return lsp.WorkspaceEdit(document_changes=[_versioned(ls, uri, edits) for uri, edits in by_uri.items()])


def _versioned(ls: Server, uri: str, edits: list[lsp.TextEdit]) -> lsp.TextDocumentEdit:
    document = ls.document(uri)
    version = document.version if document else None
    return lsp.TextDocumentEdit(lsp.OptionalVersionedTextDocumentIdentifier(uri, version), edits)


def _action(offer: Offer, edit: lsp.WorkspaceEdit | None, data: dict[str, Any]) -> lsp.CodeAction:
    return lsp.CodeAction(
        title=offer.fix["title"],
        kind=offer.kind,
        diagnostics=offer.diagnostics or None,
        is_preferred=bool(offer.fix.get("preferred")),
        disabled=lsp.CodeActionDisabled(offer.disabled) if offer.disabled else None,
        edit=None if offer.disabled else edit,
        data=data,
    )
