"""Named sets of inputs in editors: the comments of a set, and the commands that write and pick sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.daemon.api_inputs import one_line
from mase_server.daemon.store import ModelView
from mase_server.lsp.assumptions import on_lines, workspace_edit
from mase_server.lsp.calls import CommandArgument, as_map, ask_person, call_api, model_of
from mase_server.protocol.request import owner_of

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.protocol.records import Edit, SourcePlace, WrittenComment

#: The lens commands: pick a named set; show and change inputs in a form, if the client has one.
PICK, CHANGE = "mase.pickInputs", "mase.changeInputs"
#: The choice of no set.
_NONE = "None of them"
_NAME = re.compile(r"\w[\w .+-]*")


async def pick_inputs(ls: Server, given: Any = None) -> Any:
    """mase.pickInputs {set?}: trace a model with a named set of inputs, or built by another function of its file.

    Asks the user if none is given.
    """
    target, asked = model_of(ls, given), as_map(given)
    name = asked.get("set")
    if name is None:
        model = _find_model_view(ls, target)
        offered = [*model.sets, *model.builders]
        answer = await ask_person(ls, f"Which inputs for {target['model']}?", [*offered, _NONE] if offered else [])
        if answer is None:
            return None
        name = answer if answer in offered else ""
    return await call_api(ls, "mase/pickInputs", **target, set=str(name))


async def write_inputs(ls: Server, given: Any = None) -> bool:
    """mase.writeInputs {set, text}: write a set as a comment above the model, or in place of its comment.

    text: the text after `mase:`, "" to remove the comments of the set.  set: "" for comments without a name.
    Returns whether it was done.  The client applies the edit, and can undo it; the set is used from the next save on.
    """
    target, asked = model_of(ls, given), as_map(given)
    name, text = str(asked.get("set") or ""), one_line(str(asked.get("text") or ""))
    if name and not _NAME.fullmatch(name):
        raise JsonRpcInvalidParams(f"{name!r} cannot name a set of inputs: use letters, digits, blanks and `_ . + -`")
    model = _find_model_view(ls, target)
    page = ls.page_at(model.path, model.snapshot.sha256)
    what = f"{'Write' if text else 'Remove'} the inputs of {target['model']}"
    edit = None
    if page is not None:
        edits = list(edits_for_input_set(page, model, name, text))
        edit = workspace_edit(ls, {"title": what, "preferred": False, "edits": edits}, page)
    if edit is None:
        raise JsonRpcInvalidParams(f"The lines around {target['model']} have changed since the trace: save first.")
    answer = await ls.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(edit, label=what))
    if answer.applied:
        used = name if text and (name or model.sets) else None
        ls.daemon.pick_inputs(target["path"], owner_of(model.name), used, at_once=False)
    return bool(answer.applied)


def set_actions(ls: Server, page: Page, place: lsp.Range) -> Iterator[lsp.CodeAction]:
    """For each model whose line the range touches: actions that use another of its sets of inputs or its builders."""
    for model in page.view.models():
        at = page.range(model)
        if at is None or not on_lines(at, place):
            continue
        for name in [*model.sets, *model.builders]:
            if name not in (model.set, model.builder):
                built = name in model.builders
                title = (
                    f"MASE: Build {model.title} with {name}"
                    if built
                    else f"MASE: Use the inputs {name} for {model.title}"
                )
                given: CommandArgument = {"path": model.snapshot.path, "model": model.title, "set": name}
                command = lsp.Command(title, PICK, None, [given])
                yield lsp.CodeAction(title, kind=lsp.CodeActionKind.RefactorRewrite, command=command)


def sets_texts(model: ModelView) -> tuple[str, ...]:
    """`inputs: small, of 2 sets`, or `resnet18(), 1 of 5 builders`, and shorter forms."""
    if not model.sets:
        counted = f"{len(model.builders)} builders"
        return (f"{model.builder}, 1 of {counted}", f"1 of {counted}", "") if model.builder else (counted, "")
    counted = "the only set" if len(model.sets) == 1 else f"of {len(model.sets)} sets"
    if not model.set:
        return (f"inputs: none of {len(model.sets)} sets",)
    return f"inputs: {model.set}, {counted}", f"inputs: {counted}"


def _find_model_view(ls: Server, target: dict[str, str]) -> ModelView:
    snapshot = ls.daemon.store.snapshot(target["path"])
    found = [] if snapshot is None else [each for each in snapshot.all_models() if each.title == target["model"]]
    if not found:
        raise JsonRpcInvalidParams(f"{target['model']} is no longer shown: wait until it is traced")
    return found[0]


def edits_for_input_set(page: Page, model: ModelView, name: str, text: str) -> Iterator[Edit]:
    """The edits, at places of the traced text, that change the comments of a set to just `text`."""
    written = [each for each in model.comment.get("written", ()) if each["set"] == name and not each["skip"]]
    alone = len(model.snapshot.titles) == 1
    mine = [each for each in written if each["own"] or alone]
    if text and not mine:
        yield _insert_comment_edit(
            page, model, f"# mase{_set_in_brackets(name)}: {_text_with_owner(page, model, text)}"
        )
    for number, each in enumerate(mine):
        if text and number == 0:
            named = "" if each["own"] and not _does_text_name_model(each["text"], model) else owner_of(model.name)
            whole = f"# mase{_set_in_brackets(name)}: {_prefix_with_owner(named, text)}"
            yield {**_on_line(model, each["line"], each["column"], each["end_column"]), "new_text": whole}
        else:
            yield _remove_comment_edit(page, model, each)


def _set_in_brackets(name: str) -> str:
    return f"[{name}]" if name else ""


def _text_with_owner(page: Page, model: ModelView, text: str) -> str:
    """The text, with the name of its model if it is not above a class."""
    statement = _traced_line(page, model.line)
    return text if statement.lstrip().startswith("class ") else _prefix_with_owner(model.name, text)


def _prefix_with_owner(owner: str, text: str) -> str:
    """The text, with its owner's name unless it is a call, which names the model itself."""
    calls = re.match(r"\w+\s*\(", text)
    return text if calls or not owner else f"{owner}: {text}"


def _does_text_name_model(text: str, model: ModelView) -> bool:
    return text.startswith(f"{model.name.partition('[')[0]}:")


def _insert_comment_edit(page: Page, model: ModelView, comment: str) -> Edit:
    line = model.comment["line"]
    indent = " " * model.comment["column"]
    own = _traced_line(page, line)
    indent = own[: len(own) - len(own.lstrip())] or indent
    return {**_on_line(model, line, 0, 0), "new_text": f"{indent}{comment}{_line_end(page)}"}


def _remove_comment_edit(page: Page, model: ModelView, comment: WrittenComment) -> Edit:
    """The edit that removes a comment: with its whole line if it is alone there, else with the blanks before it."""
    line, end = comment["line"], comment["end_column"]
    code = _traced_line(page, line)[: comment["column"]]
    if code.strip() or line == 1:
        return {**_on_line(model, line, len(code.rstrip()), end), "new_text": ""}
    # Remove a line end too, namely that of the line above.
    above = len(_traced_line(page, line - 1))
    return {"file": model.path, "line": line - 1, "column": above, "end_line": line, "end_column": end, "new_text": ""}


def _on_line(model: ModelView, line: int, start: int, end: int) -> SourcePlace:
    return {"file": model.path, "line": line, "column": start, "end_line": line, "end_column": end}


def _traced_line(page: Page, line: int) -> str:
    """The present text of a traced line; "" if it was edited."""
    now = page.alignment.current_span(line - 1, line - 1)
    return "" if now is None else page.document.text.line(now)


def _line_end(page: Page) -> str:
    lines = page.document.text.lines
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
