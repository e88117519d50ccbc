"""Offer assumptions about a model as a `# mase:` comment above it, to keep them or to change them there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.protocol.records import Edit, Fix
    from mase_server.protocol.snapshot import Problem

#: Sources of inputs and arguments that the user did not specify: these are assumed.
ASSUMED = frozenset({"search", "usage"})
WRITE = "Write the assumed {what} as a `# mase:` comment"
CHANGE = "Change the inputs of {name} in a `# mase:` comment..."
ADD = "Add other inputs of {name} as a named set in a comment..."
#: Names for new sets; the first free one is taken.
_NAMES = ("other", "another", *(f"other {number}" for number in range(2, 100)))


@dataclass(frozen=True, slots=True)
class Offer:
    """A possible action, before the protocol's form of it is made.

    fix: title, preferred and edits, like a problem's fix.  key: identifies it.  disabled: why it is impossible.
    """

    fix: Fix
    kind: lsp.CodeActionKind
    key: list[int]
    disabled: str = ""
    diagnostics: list[lsp.Diagnostic] = field(default_factory=list)


def offer_comments(ls: Server, page: Page, place: lsp.Range | None) -> Iterator[Offer]:
    """Offer two comments for each model whose line the range touches: one keeps the assumptions, one changes inputs."""
    for model in page.view.models():
        at = page.range(model)
        if at is None or not on_lines(at, place) or not model.comment:
            continue
        text, inputs, why = model.comment["text"], model.comment["inputs"], model.comment["why"]
        if what := describe_assumed_parts(model):
            title = WRITE.format(what=what)
            reason = "" if text else f"{why[:1].upper()}{why[1:]}."
            yield Offer(_comment_edit(model, title, text), lsp.CodeActionKind.QuickFix, [model.index, 0], reason)
        if model.inputs_from != "comment" and (change := text or inputs):
            title = CHANGE.format(name=model.name)
            yield Offer(_comment_edit(model, title, change), lsp.CodeActionKind.RefactorRewrite, [model.index, 1])
        if model.inputs_from == "comment" and (said := _text_of_used_comment(model)):
            title = ADD.format(name=model.name)
            other = next(name for name in _NAMES if name not in model.sets)
            yield Offer(
                _comment_edit(model, title, f"mase[{other}]: {said}"),
                lsp.CodeActionKind.RefactorRewrite,
                [model.index, 2],
            )


def _text_of_used_comment(model: ModelView) -> str:
    """The text of the comment in use; a comment for another set may begin with it."""
    written = (each["text"] for each in model.comment.get("written", ()) if each["set"] == model.set and each["own"])
    return next(written, "")


def describe_assumed_parts(model: ModelView) -> str:
    """The parts of a model that are assumed: "inputs", "constructor arguments", both joined by "and", or ""."""
    parts = {"constructor arguments": model.arguments_from, "inputs": model.inputs_from}
    return " and ".join(what for what, source in parts.items() if source in ASSUMED)


def _comment_edit(model: ModelView, title: str, comment: str | None) -> Fix:
    place = model.comment
    edit: Edit = {
        "file": model.path, "line": place["line"], "column": 0, "end_line": place["line"], "end_column": 0,
        "new_text": f"{' ' * place['column']}# {comment}\n",
    }  # fmt: skip
    edits = [edit] if comment else []
    return {"title": title, "preferred": False, "edits": edits}


def on_lines(one: lsp.Range, other: lsp.Range | None) -> bool:
    """Do two ranges share a line? None shares every line."""
    return other is None or (one.start.line <= other.end.line and other.start.line <= one.end.line)


def problems_at(page: Page, place: lsp.Range | None) -> Iterator[tuple[int, Problem, lsp.Range]]:
    """The problems of a page that the range touches, with their numbers and their present places."""
    for number, problem in enumerate(page.view.problems()):
        at = page.range(problem)
        if at is not None and do_ranges_touch(at, place):
            yield number, problem, at


def do_ranges_touch(one: lsp.Range, other: lsp.Range | None) -> bool:
    """Do two ranges share a position? None touches everything."""
    return other is None or (
        _position_pair(one.start) <= _position_pair(other.end)
        and _position_pair(other.start) <= _position_pair(one.end)
    )


def _position_pair(position: lsp.Position) -> tuple[int, int]:
    return position.line, position.character


def workspace_edit(ls: Server, fix: Fix, own: Page) -> lsp.WorkspaceEdit | None:
    """The edits of a fix offered by `own`, moved to where their lines are now; None if any of them was edited."""
    by_uri: dict[str, list[lsp.TextEdit]] = {}
    for edit in fix["edits"]:
        page = own if edit["file"] == own.document.path else ls.problem_page(edit["file"])
        place = None if page is None else page.place_of(edit)
        if place is None:
            return None
        by_uri.setdefault(ls.uri_of(edit["file"]), []).append(lsp.TextEdit(place, edit["new_text"]))
    if not ls.can("workspace", "workspace_edit", "document_changes"):
        return lsp.WorkspaceEdit(changes=by_uri)
    return lsp.WorkspaceEdit(document_changes=[_versioned_edit(ls, uri, edits) for uri, edits in by_uri.items()])


def _versioned_edit(ls: Server, uri: str, edits: list[lsp.TextEdit]) -> lsp.TextDocumentEdit:
    document = ls.document(uri)
    version = document.version if document else None
    return lsp.TextDocumentEdit(lsp.OptionalVersionedTextDocumentIdentifier(uri, version), edits)
