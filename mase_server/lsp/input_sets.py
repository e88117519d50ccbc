"""Named sets of inputs for editors: the comment that a set is written as, and the commands that write and pick."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.daemon.input_fields import one_line
from mase_server.daemon.store import ModelView
from mase_server.lsp import actions
from mase_server.lsp.asking import as_map, ask
from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.calls import call, model_of
from mase_server.worker.request import owner_of

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: The commands of the lenses: pick a named set; see and change inputs in a form, where the client has one.
PICK, CHANGE = "mase.pickInputs", "mase.changeInputs"
#: What a person picks to have none of the sets.
_NONE = "None of them"
_NAME = re.compile(r"\w[\w .+-]*")


async def pick_inputs(ls: Server, given: Any = None) -> Any:
    """mase.pickInputs {set?}: trace a model with a named set of inputs; asks which where none is named."""
    target, asked = model_of(ls, given), as_map(given)
    name = asked.get("set")
    if name is None:
        sets = _model(ls, target).sets
        answer = await ask(ls, f"Which inputs for {target['model']}?", [*sets, _NONE] if sets else [])
        if answer is None:
            return None
        name = answer if answer in sets else ""
    return await call(ls, "mase/pickInputs", **target, set=str(name))


async def write_inputs(ls: Server, given: Any = None) -> bool:
    """mase.writeInputs {set, text}: write what a set says as a comment above the model, or in place of its comment.

    text: what stands behind `mase:`, "" to take the comments of the set away.  set: "" for comments without a name.
    Was it done?  The edit is applied by the client, which can undo it; the set is used from the next save on.
    """
    target, asked = model_of(ls, given), as_map(given)
    name, text = str(asked.get("set") or ""), one_line(str(asked.get("text") or ""))
    if name and not _NAME.fullmatch(name):
        raise JsonRpcInvalidParams(f"{name!r} is no name for inputs: use letters, digits, blanks and `_ . + -`")
    model = _model(ls, target)
    page = ls.page_at(model.path, model.snapshot.sha256)
    fix = None if page is None else {"edits": list(edits(page, model, name, text))}
    edit = None if page is None or fix is None else actions.workspace_edit(ls, fix, page)
    if edit is None:
        raise JsonRpcInvalidParams(
            f"The lines around {target['model']} were edited since they were traced: save first."
        )
    what = f"{'Write' if text else 'Remove'} the inputs of {target['model']}"
    answer = await ls.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(edit, label=what))
    if answer.applied:
        used = name if text and (name or model.sets) else None
        ls.daemon.pick_inputs(target["path"], owner_of(model.name), used, at_once=False)
    return bool(answer.applied)


def set_actions(ls: Server, page: Page, place: lsp.Range) -> Iterator[lsp.CodeAction]:
    """For each model whose line the range touches: use another of its sets of inputs."""
    for model in page.view.models():
        at = page.range(model)
        if at is None or not on_lines(at, place):
            continue
        for name in model.sets:
            if name != model.set:
                title = f"MASE: Use the inputs {name} for {model.title}"
                given = {"path": model.snapshot.path, "model": model.title, "set": name}
                command = lsp.Command(title, PICK, None, [given])
                yield lsp.CodeAction(title, kind=lsp.CodeActionKind.RefactorRewrite, command=command)


def sets_text(model: ModelView) -> str:
    """`inputs: small, of 2 sets · pick another`, of a model that has named sets."""
    counted = "the only set" if len(model.sets) == 1 else f"of {len(model.sets)} sets"
    return (
        f"inputs: {model.set}, {counted} · pick another"
        if model.set
        else f"inputs: none of {len(model.sets)} sets · pick one"
    )


def _model(ls: Server, target: dict[str, str]) -> ModelView:
    snapshot = ls.daemon.store.snapshot(target["path"])
    found = [] if snapshot is None else [each for each in snapshot.all_models() if each.title == target["model"]]
    if not found:
        raise JsonRpcInvalidParams(f"{target['model']} is not shown any more: wait until it is traced")
    return found[0]


def edits(page: Page, model: ModelView, name: str, text: str) -> Iterator[dict[str, Any]]:
    """The edits, by places of the traced text, that make the comments of a set say just `text`."""
    written = [each for each in model.comment.get("written", ()) if each["set"] == name and not each["skip"]]
    alone = len(model.snapshot.titles) == 1
    mine = [each for each in written if each["own"] or alone]
    if text and not mine:
        yield _inserted(page, model, f"# mase{_bracketed(name)}: {_owned(page, model, text)}")
    for number, each in enumerate(mine):
        if text and number == 0:
            named = "" if each["own"] and not _names(each["text"], model) else owner_of(model.name)
            whole = f"# mase{_bracketed(name)}: {_prefixed(named, text)}"
            yield {**_on_line(model, each["line"], each["column"], each["end_column"]), "new_text": whole}
        else:
            yield _removed(page, model, each)


def _bracketed(name: str) -> str:
    return f"[{name}]" if name else ""


def _owned(page: Page, model: ModelView, text: str) -> str:
    """A text that names its model where it does not stand above a class."""
    statement = _traced_line(page, model.line)
    return text if statement.lstrip().startswith("class ") else _prefixed(model.name, text)


def _prefixed(owner: str, text: str) -> str:
    """A call names its model itself."""
    calls = re.match(r"\w+\s*\(", text)
    return text if calls or not owner else f"{owner}: {text}"


def _names(text: str, model: ModelView) -> bool:
    return text.startswith(f"{model.name.partition('[')[0]}:")


def _inserted(page: Page, model: ModelView, comment: str) -> dict[str, Any]:
    line = model.comment["line"]
    indent = " " * model.comment["column"]
    own = _traced_line(page, line)
    indent = own[: len(own) - len(own.lstrip())] or indent
    return {**_on_line(model, line, 0, 0), "new_text": f"{indent}{comment}{_line_end(page)}"}


def _removed(page: Page, model: ModelView, comment: dict[str, Any]) -> dict[str, Any]:
    """A comment alone on its line goes with the line, one behind code with the blanks before it."""
    line, end = comment["line"], comment["end_column"]
    code = _traced_line(page, line)[: comment["column"]]
    if code.strip() or line == 1:
        return {**_on_line(model, line, len(code.rstrip()), end), "new_text": ""}
    # Its line end goes with it, which is that of the line above.
    above = len(_traced_line(page, line - 1))
    return {"file": model.path, "line": line - 1, "column": above, "end_line": line, "end_column": end, "new_text": ""}


def _on_line(model: ModelView, line: int, start: int, end: int) -> dict[str, Any]:
    return {"file": model.path, "line": line, "column": start, "end_line": line, "end_column": end}


def _traced_line(page: Page, line: int) -> str:
    """A line of the traced text as it stands now; "" where it was edited."""
    now = page.alignment.current_span(line - 1, line - 1)
    return "" if now is None else page.document.text.line(now)


def _line_end(page: Page) -> str:
    lines = page.document.text.lines
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
