"""Problems of the search, each with its place and its next step."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from mase_server.inputs.comments import BadComment, Wish
from mase_server.inputs.execution.guard import RefusedError
from mase_server.inputs.execution.watch import TimeUp
from mase_server.notebooks import is_notebook
from mase_server.snapshot import Problem
from mase_server.tracing.errors.complaints import Complaint
from mase_server.tracing.errors.problems import Context, explain
from mase_server.tracing.loading.placeholders import MissingPackageError, behind

_UNDER_MAIN = 'under `if __name__ == "__main__":`'


def at_comment(path: str, bad: BadComment) -> Problem:
    """A `# mase:` comment that could not be read, or whose blanks are not filled in."""
    if bad.blank_of is not None:
        message = f"This comment is a template: {bad.message}."
        return Problem(path, bad.line, bad.column, bad.line, bad.end_column, "information", "bad-comment", message)
    message = f"This comment could not be read: {bad.message}"
    place = {"file": path, "line": bad.line, "column": bad.start, "end_line": bad.line, "end_column": bad.end_column}
    fix = {"title": f"Write `{bad.fix}`", "preferred": True, "edits": [{**place, "new_text": bad.fix}]}
    fixes = [fix] if bad.fix else []
    return Problem(
        path, bad.line, bad.column, bad.line, bad.end_column, "error", "bad-comment", message, fixes=fixes
    )  # fmt: skip


def at_call(path: str, said: Wish, error: str) -> Problem:
    """A constructor call of a comment that cannot be made: a name that the file does not have, an argument too many."""
    start, end = said.column, said.column + len(said.call or "")
    message = f"The call `{said.call}` of this comment failed: {error}"
    return Problem(path, said.line, start, said.line, end, "error", "bad-comment", message)


def at_class(path: str, node: ast.ClassDef | None, severity: str, code: str, message: str) -> Problem:
    """A problem at a class's name; at the top of the file where there is no class."""
    if node is None:
        return Problem(path, 1, 0, 1, 0, severity, code, message)
    column = node.col_offset + len("class ")
    return Problem(path, node.lineno, column, node.lineno, column + len(node.name), severity, code, message)


def template_above(path: str, node: ast.ClassDef | None, text: str) -> list[dict[str, Any]]:
    """The fix that writes a comment above a class, with blanks to be filled in there; none where there is no class."""
    if node is None or not text:
        return []
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    place = {"file": path, "line": line, "column": 0, "end_line": line, "end_column": 0}
    edit = {**place, "new_text": f"{' ' * node.col_offset}# mase: {text}\n"}
    return [{"title": f"Write `# mase: {text}` above the class, to be filled in", "preferred": False, "edits": [edit]}]


def in_run(path: str, folder: str, error: BaseException) -> Problem:
    """The file could not be imported, or its run ended before it called a model."""
    name = constructing(error)
    if name is not None:
        return in_constructor(path, folder, error, name)
    in_cell = is_notebook(path)
    context = Context(path, [folder], phase="cell" if in_cell else "import")
    if (refused := refusal(error)) is not None:
        step = "The cells below are traced without it" if in_cell else f"If no model needs it, put it {_UNDER_MAIN}"
        text = f"{str(refused)[:1].upper()}{str(refused)[1:]}. {step}."
        return replace(explain(error, None, context, Complaint("refused", text)), severity="warning")
    problem = explain(error, None, context)
    if is_offline(error):
        return replace(problem, severity="warning")
    # A notebook's kernel may hold what a run from the top does not find.
    doubtful = isinstance(error, SystemExit) or (in_cell and problem.code in ("import-error", "missing-package"))
    return replace(problem, severity="warning") if doubtful else problem


def refusal(error: BaseException) -> RefusedError | None:
    """What was refused to the program, also where a library made an error of its own of it."""
    while not isinstance(error, RefusedError):
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            return None
        error = inner
    return error


def is_offline(error: BaseException | None) -> bool:
    """Did it only want to fetch something over the network, which nothing is given here?"""
    # The Hub's client says so by errors of its own, one of which is that of a file that is not there.
    while error is not None and not (
        isinstance(error, ConnectionError)
        or type(error).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled")
    ):
        error = error.__cause__ or error.__context__
    return error is not None


def says_nothing(error: BaseException) -> bool:
    """Does the end of a run say nothing against what was defined before?"""
    return isinstance(error, SystemExit) or refusal(error) is not None or lacks_package(error) or is_offline(error)


def lacks_package(error: BaseException) -> bool:
    """Did it only want something of a package that is not installed?"""
    return isinstance(behind(error), MissingPackageError)


def in_constructor(path: str, folder: str, error: BaseException, model: str) -> Problem:
    """The constructor of a model raised."""
    problem = explain(error, None, Context(path, [folder], phase="construct", model=model))
    return replace(problem, severity="warning") if is_offline(error) else problem


def out_of_time(path: str, folder: str, error: TimeUp, seconds: float, tree: ast.Module) -> Problem:
    """The file ran for so many seconds without calling a model."""
    longer = "if it only needs longer, raise the setting mase.limits.seconds."
    step, severity = "If it never ends, mend it", "error"
    if constructing(error) is None and guarded(path, error, tree):
        step, severity = "To leave this part out, turn the setting mase.runMain off", "warning"
    elif constructing(error) is None:
        step = f"{step}; if no model needs it, put it {_UNDER_MAIN} and turn the setting mase.runMain off"
    text = f"This file had run for {seconds:.3g} s without calling a model when it was stopped here. {step}; {longer}"
    context = Context(path, [folder], phase="import")
    return replace(explain(error, None, context, Complaint("time-limit", text)), severity=severity)


def guarded(path: str, error: BaseException, tree: ast.Module) -> bool:
    """Did the module's own code raise from inside an `if` that asks for `__name__`?"""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    guards = [node for node in tree.body if isinstance(node, ast.If) and has_guard(node.test)]
    return any(node.lineno <= (line or 0) <= (node.end_lineno or 0) for node in guards for line in lines[:1])


def has_guard(tree: ast.AST) -> bool:
    """Does the code behave differently when it is imported?"""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(tree))


def constructing(error: BaseException) -> str | None:
    """The class out of whose constructor the exception came, the outermost one; None if it came from elsewhere."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        made = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        if isinstance(made, nn.Module):
            return type(made).__name__
    return None


def is_of_constructor(error: BaseException) -> bool:
    """Did a model's own constructor raise, rather than what a package that is missing should have given it?"""
    return constructing(error) is not None and not lacks_package(error)


#: Characters of one reason among others: some errors say all values of a tensor.
_MOST = 200


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def tried(attempts: Iterable[str], limit: int = 3) -> str:
    """What was tried, for the end of a message."""
    shown = [_shortened(each) for each in dict.fromkeys(attempts)]
    return "; ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
