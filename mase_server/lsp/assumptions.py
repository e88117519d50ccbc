"""What was assumed of a model, offered as a `# mase:` comment above it: to keep it as it is, or to change it there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: Where inputs and arguments come from that nobody has said: they are assumed.
ASSUMED = frozenset({"search", "usage"})
WRITE = "Write the assumed {what} as a `# mase:` comment"
CHANGE = "Change the inputs of {name} in a `# mase:` comment..."
ADD = "Add other inputs of {name} as a named set in a comment..."
#: Names of new sets, the first that is free.
_NAMES = ("other", "another", *(f"other {number}" for number in range(2, 100)))


@dataclass(frozen=True, slots=True)
class Offer:
    """One action before it is one.

    fix: title, preferred and edits, as a problem's fix.  key: finds it again.  disabled: why it cannot be done.
    """

    fix: dict[str, Any]
    kind: lsp.CodeActionKind
    key: list[int]
    disabled: str = ""
    diagnostics: list[lsp.Diagnostic] = field(default_factory=list)


def comments(ls: Server, page: Page, place: lsp.Range | None) -> Iterator[Offer]:
    """For each model whose line the range touches: the comment that keeps what was assumed, and one to change it."""
    for model in page.view.models():
        at = page.range(model)
        if at is None or not on_lines(at, place) or not model.comment:
            continue
        text, inputs, why = (model.comment[key] for key in ("text", "inputs", "why"))
        if what := assumed(model):
            title = WRITE.format(what=what)
            reason = "" if text else f"{why[:1].upper()}{why[1:]}."
            yield Offer(_inserted(model, title, text), lsp.CodeActionKind.QuickFix, [model.index, 0], reason)
        if model.inputs_from != "comment" and (change := text or inputs):
            title = CHANGE.format(name=model.name)
            yield Offer(_inserted(model, title, change), lsp.CodeActionKind.RefactorRewrite, [model.index, 1])
        if model.inputs_from == "comment" and (said := _said(model)):
            title = ADD.format(name=model.name)
            other = next(name for name in _NAMES if name not in model.sets)
            yield Offer(
                _inserted(model, title, f"mase[{other}]: {said}"), lsp.CodeActionKind.RefactorRewrite, [model.index, 2]
            )


def _said(model: ModelView) -> str:
    """What the comment says that is used now, as another may begin."""
    written = (each["text"] for each in model.comment.get("written", ()) if each["set"] == model.set and each["own"])
    return next(written, "")


def assumed(model: ModelView) -> str:
    """What nobody has said of a model: `inputs`, `constructor arguments`, both, or nothing."""
    parts = {"constructor arguments": model.arguments_from, "inputs": model.inputs_from}
    return " and ".join(what for what, source in parts.items() if source in ASSUMED)


def _inserted(model: ModelView, title: str, comment: str | None) -> dict[str, Any]:
    place = model.comment
    at = {"file": model.path, "line": place["line"], "column": 0, "end_line": place["line"], "end_column": 0}
    edits = [{**at, "new_text": f"{' ' * place['column']}# {comment}\n"}] if comment else []
    return {"title": title, "preferred": False, "edits": edits}


def on_lines(one: lsp.Range, other: lsp.Range | None) -> bool:
    """Do two ranges share a line? Nothing asked for shares every line."""
    return other is None or (one.start.line <= other.end.line and other.start.line <= one.end.line)


def touches(one: lsp.Range, other: lsp.Range | None) -> bool:
    """Do two ranges share a position? Nothing asked for touches everything."""
    return other is None or (_point(one.start) <= _point(other.end) and _point(other.start) <= _point(one.end))


def _point(position: lsp.Position) -> tuple[int, int]:
    return position.line, position.character
