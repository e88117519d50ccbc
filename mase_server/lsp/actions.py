"""Code actions: the fixes that problems bring along, and comments that write down assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from lsprotocol import types as lsp

from mase_server.lsp import input_sets
from mase_server.lsp.assumptions import Offer, offer_comments, problems_at, workspace_edit
from mase_server.lsp.calls import wait_until_traced
from mase_server.lsp.compiled import offer_break_fixes
from mase_server.lsp.diagnostics import of_problem
from mase_server.lsp.pass_actions import KIND, hardware_fixes, pass_actions

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.protocol.records import Plain


#: A client's own command: it runs a program in a terminal, where a user sees it. Arguments: title, [program, ...].
RUN_IN_TERMINAL = "mase.runInTerminal"


class ActionData(TypedDict):
    """The key that finds an action again when its edit is asked for. source: in _SOURCES.  key: see `Offer`."""

    path: str
    sha256: str
    source: str
    key: list[int]


async def code_actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction] | None:
    """textDocument/codeAction: the offers for a range: fixes of problems, and comments for assumptions."""
    path = ls.path_of(params.text_document.uri)
    if (known := ls.problem_page(path)) is not None and any(problems_at(known, params.range)):
        await wait_until_traced(
            ls, params.text_document.uri, "code_action", ranged=True
        )  # fixes are tried out at a trace's end
    pages = {"fix": ls.problem_page(path), "comment": (shown := ls.page(params.text_document.uri)), "break": shown}
    if not any(pages.values()):
        return None
    only = params.context.only
    actions = []
    for source, page in pages.items():
        if page is None:
            continue
        for offer in _SOURCES[source](ls, page, params.range):
            edit = workspace_edit(ls, offer.fix, page)
            if edit is None or not _is_kind_wanted(offer.kind, only):
                continue
            if not offer.disabled or ls.can("text_document", "code_action", "disabled_support"):
                data: ActionData = {"path": path, "sha256": page.traced, "source": source, "key": offer.key}
                actions.append(_build_action(offer, None if ls.resolves_edits else edit, data))
    if (problems := pages["fix"]) is not None and _is_kind_wanted(lsp.CodeActionKind.QuickFix, only):
        actions += [*_offer_commands(ls, problems, params.range), *hardware_fixes(ls, problems, params.range)]
    if (shown := pages["comment"]) is not None and _is_kind_wanted(lsp.CodeActionKind.RefactorRewrite, only):
        actions += input_sets.set_actions(ls, shown, params.range)
    if (shown := pages["comment"]) is not None and _is_kind_wanted(KIND, only):
        actions += await pass_actions(ls, shown, params.range)
    return actions


async def resolve_action(ls: Server, action: lsp.CodeAction) -> lsp.CodeAction:
    """codeAction/resolve: the edit for the present text; none if the fix is gone or its lines were edited since."""
    data: Mapping[str, Plain] = action.data if isinstance(action.data, dict) else {}
    path, source = str(data.get("path")), data.get("source")
    page = ls.page(ls.uri_of(path)) if source != "fix" else ls.problem_page(path)
    if page is None or page.traced != data.get("sha256") or source not in _SOURCES:
        return action
    for offer in _SOURCES[source](ls, page, None):
        if offer.key == data["key"]:
            action.edit = workspace_edit(ls, offer.fix, page)
    return action


def _offer_fixes(ls: Server, page: Page, place: lsp.Range | None) -> Iterator[Offer]:
    """The fixes of problems that the range touches, as long as their lines are unedited."""
    for number, problem, at in problems_at(page, place):
        diagnostics = [of_problem(ls, problem, at)]
        for index, fix in enumerate(problem.fixes):
            yield Offer(fix, lsp.CodeActionKind.QuickFix, [number, index], diagnostics=diagnostics)


def _offer_commands(ls: Server, page: Page, place: lsp.Range) -> Iterator[lsp.CodeAction]:
    """The programs that mend problems, for a client that can run one in its terminal."""
    for _, problem, at in problems_at(page, place) if ls.knows(RUN_IN_TERMINAL) else ():
        if problem.command is not None:
            title, told = problem.command["title"], [of_problem(ls, problem, at)]
            command = lsp.Command(title, RUN_IN_TERMINAL, arguments=[title, problem.command["arguments"]])
            yield lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, told, is_preferred=True, command=command)


#: Origin of an action -> the offers of that origin in a range, or everywhere if the range is None.
_SOURCES: dict[str, Callable[[Server, Page, lsp.Range | None], Iterator[Offer]]] = {
    "fix": _offer_fixes,
    "comment": offer_comments,
    "break": offer_break_fixes,
}


def _is_kind_wanted(kind: lsp.CodeActionKind | str, only: Sequence[lsp.CodeActionKind | str] | None) -> bool:
    """Does the client ask for this kind, by its name or that of a kind above it?"""
    text = str(getattr(kind, "value", kind))
    names = [str(getattr(each, "value", each)) for each in only or [kind]]
    return any(f"{text}.".startswith(f"{name}." if name else "") for name in names)


def _build_action(offer: Offer, edit: lsp.WorkspaceEdit | None, data: ActionData) -> lsp.CodeAction:
    return lsp.CodeAction(
        title=offer.fix["title"],
        kind=offer.kind,
        diagnostics=offer.diagnostics or None,
        is_preferred=bool(offer.fix.get("preferred")),
        disabled=lsp.CodeActionDisabled(offer.disabled) if offer.disabled else None,
        edit=None if offer.disabled else edit,
        data=data,
    )
