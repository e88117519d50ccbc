"""Problems of the search, each with its place and its next step."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from torch import nn

from mase_server.notebooks import is_notebook
from mase_server.protocol.records import Edit, Fix, SourcePlace
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis.failure import Complaint
from mase_server.tracing.diagnosis.problems import Context, explain_error
from mase_server.tracing.execution.guard import SlowImportError, find_refusal
from mase_server.tracing.execution.watch import TimeUp
from mase_server.tracing.importing.datasets import AbsentDataError
from mase_server.tracing.importing.placeholders import MissingPackageError, find_placeholder_error
from mase_server.tracing.importing.source import walk_tree
from mase_server.tracing.inputs.comments import BadComment, Wish
from mase_server.tracing.models.guesses import NoArgumentsError
from mase_server.tracing.recording.positions import iterate_unmade

_UNDER_MAIN = 'under `if __name__ == "__main__":`'


def at_comment(path: str, bad: BadComment) -> Problem:
    """A `# mase:` comment that could not be read, or has unfilled blanks."""
    if bad.blank_of is not None:
        message = f"This comment is a template: {bad.message}."
        return Problem(path, bad.line, bad.column, bad.line, bad.end_column, "information", "bad-comment", message)
    message = f"This comment could not be read: {bad.message}"
    place: SourcePlace = {
        "file": path, "line": bad.line, "column": bad.start, "end_line": bad.line, "end_column": bad.end_column,
    }  # fmt: skip
    fix: Fix = {"title": f"Write `{bad.fix}`", "preferred": True, "edits": [{**place, "new_text": bad.fix}]}
    fixes = [fix] if bad.fix else []
    return Problem(
        path, bad.line, bad.column, bad.line, bad.end_column, "error", "bad-comment", message, fixes=fixes
    )  # fmt: skip


def at_call(path: str, said: Wish, error: str) -> Problem:
    """A constructor call of a comment that cannot be made: a name that the file does not have, an argument too many."""
    start, end = said.column, said.column + len(said.call or "")
    message = f"The call `{said.call}` of this comment failed: {error}"
    return Problem(path, said.line, start, said.line, end, "error", "bad-comment", message)


def at_class(path: str, node: ast.ClassDef | ast.FunctionDef | None, severity: str, code: str, message: str) -> Problem:
    """A problem at the name of a class or function; at the top of the file if there is none."""
    if node is None:
        return Problem(path, 1, 0, 1, 0, severity, code, message)
    column = node.col_offset + len("class " if isinstance(node, ast.ClassDef) else "def ")
    return Problem(path, node.lineno, column, node.lineno, column + len(node.name), severity, code, message)


def template_above(path: str, node: ast.ClassDef | None, text: str) -> list[Fix]:
    """The fix that writes a comment above a class, with blanks to fill in; none if there is no class."""
    if node is None or not text:
        return []
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    place: SourcePlace = {"file": path, "line": line, "column": 0, "end_line": line, "end_column": 0}
    edit: Edit = {**place, "new_text": f"{' ' * node.col_offset}# mase: {text}\n"}
    return [{"title": f"Write `# mase: {text}` above the class, to be filled in", "preferred": False, "edits": [edit]}]


def in_run(path: str, folder: str, error: BaseException) -> Problem:
    """The file could not be imported, or its run ended before it called a model."""
    name = find_failed_constructor(error)
    if name is not None:
        return in_constructor(path, folder, error, name)
    in_cell = is_notebook(path)
    context = Context(path, [folder], phase="cell" if in_cell else "import")
    if (refused := find_refusal(error)) is not None:
        step = "The cells below are traced without it" if in_cell else f"If no model needs it, put it {_UNDER_MAIN}"
        text = f"{str(refused)[:1].upper()}{str(refused)[1:]}. {step}."
        return replace(explain_error(error, None, context, Complaint("refused", text)), severity="warning")
    if isinstance(error, SlowImportError):
        at = [each for each in traceback.extract_tb(error.__traceback__) if each.name == "<module>"][-1]
        text = (
            f"Line {at.lineno} of {Path(at.filename).name} {error}, so the names that it makes are unknown. Code that "
            "does not need them is still analysed."
        )
        return replace(explain_error(error, None, context, Complaint("time-limit", text)), severity="warning")
    problem = explain_error(error, None, context)
    problem = replace(problem, message=" ".join([problem.message, *getattr(error, "__notes__", ())]))
    # A notebook's kernel may hold names that a run from the top does not define.
    doubtful = isinstance(error, SystemExit) or (in_cell and problem.code in ("import-error", "missing-package"))
    return replace(problem, severity="warning") if doubtful else problem


def of_absent_data(path: str, folder: str, error: AbsentDataError) -> Problem:
    """A data set was not there, and something takes its place."""
    context = Context(path, [folder], phase="cell" if is_notebook(path) else "import")
    told = explain_error(error, None, context, Complaint("missing-resource", f"{error}."))
    return replace(told, severity="information")


def find_lack(error: BaseException) -> MissingPackageError | None:
    """The error of a package that is not installed, if the code only needed something from it."""
    if isinstance(error, NoArgumentsError) and error.__cause__ is not None:
        error = error.__cause__
    found = find_placeholder_error(error)
    return found if isinstance(found, MissingPackageError) else None


def in_constructor(path: str, folder: str, error: BaseException, model: str) -> Problem:
    """The constructor of a model raised."""
    return explain_error(error, None, Context(path, [folder], phase="construct", model=model))


def out_of_time(path: str, folder: str, error: TimeUp, seconds: float, limit: float, tree: ast.Module) -> Problem:
    """The file ran for `seconds` seconds without calling a model. limit: seconds of the whole trace."""
    longer = f"if it only needs longer, raise the setting mase.limits.seconds ({limit:g} s now)."
    step, severity = "If it never ends, fix it", "error"
    if find_failed_constructor(error) is None and is_under_main_guard(path, error, tree):
        step, severity = "To leave this part out, turn the setting mase.runMain off", "warning"
    elif find_failed_constructor(error) is None:
        step = f"{step}; if no model needs it, put it {_UNDER_MAIN} and turn the setting mase.runMain off"
    text = f"This file had run for {seconds:.3g} s without calling a model when it was stopped here. {step}; {longer}"
    context = Context(path, [folder], phase="import")
    return replace(explain_error(error, None, context, Complaint("time-limit", text)), severity=severity)


def is_under_main_guard(path: str, error: BaseException, tree: ast.Module) -> bool:
    """Did the module's own code raise inside an `if` that tests `__name__`?"""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    guards = [node for node in tree.body if isinstance(node, ast.If) and has_guard(node.test)]
    return any(node.lineno <= (line or 0) <= (node.end_lineno or 0) for node in guards for line in lines[:1])


def has_guard(tree: ast.AST) -> bool:
    """Does the code behave differently when it is imported?"""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in walk_tree(tree))


def find_failed_constructor(error: BaseException) -> str | None:
    """The outermost class whose constructor raised the exception; None if none did."""
    return next((type(made).__name__ for made in iterate_unmade(error) if isinstance(made, nn.Module)), None)


def is_of_constructor(error: BaseException) -> bool:
    """Did a model's own constructor raise, rather than a placeholder for a missing package?"""
    return find_failed_constructor(error) is not None and find_lack(error) is None


#: Characters of one reason among others: some errors list all values of a tensor.
_MOST = 200


def _shorten_attempt(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def list_attempts(attempts: Iterable[str], limit: int = 3) -> str:
    """The errors of the tries, for the end of a message."""
    shown = [_shorten_attempt(each) for each in dict.fromkeys(attempts)]
    return "; ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
