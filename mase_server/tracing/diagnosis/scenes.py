"""The place of an exception in the user's code: the frames of its traceback, their files, the operands of the failed
call, and the edits of these files that quick fixes consist of.

`refits` follows a constructor's argument to where its number is written: a parent's call, a default, or another
argument that has the right value.
"""

from __future__ import annotations

import ast
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from traceback import walk_tb
from types import FrameType
from typing import Any

from torch import nn

from mase_server.protocol.records import Edit, Extent, Fix
from mase_server.reading import is_file
from mase_server.tracing.diagnosis.failure import Failure
from mase_server.tracing.importing.source import Places, Span, decode_source, read_source
from mase_server.tracing.recording.positions import Position, is_hidden, iterate_traceback, resolve_mark

#: Pattern of an exception's text -> what is missing.
_TEXTS = [
    (re.compile(pattern, re.IGNORECASE), need)
    for pattern, need in (
        (r"not compiled with|no .{0,20}gpus? |nvidia driver|(cuda|hip|xpu|mps)\b.* (error|(un|not )available)|"
         r"requires? (an? )?(cuda|gpu)|process group|deserialize object on a", "a device that is not here"),
        (r"num_samples=0|not found or corrupted|no such file|open file failed|can ?not (open|find|read) file",
         "a file that is not here"),
        (r"couldn't connect to|could not resolve host|(internet )?connection|name resolution|offline mode",
         "a download, which a trace does not make"),
    )
]  # fmt: skip
#: Name in the condition that the code itself refuses -> what is missing.
_ASKED = {
    **dict.fromkeys(("exists", "isfile", "isdir", "is_file", "is_dir", "lexists"), "a file that is not here"),
    **dict.fromkeys(("glob", "iglob", "rglob", "listdir", "scandir"), "files that are not here"),
    **dict.fromkeys(("is_available", "device_count", "is_initialized"), "a device that is not here"),
    **dict.fromkeys(("environ", "getenv"), "an environment variable that is not set"),
    "argv": "an argument of the command line",
    "which": "a program that is not here",
}
#: The longest text of an operand that counts as a name.
_MAX_NAME = 40


class Scene:
    """The frames of an exception outside of torch and this package, innermost first, and their code."""

    def __init__(self, error: BaseException, failure: Failure | None) -> None:
        self.error, self.failure = error, failure
        found = list(_iterate_visible_frames(error))
        #: The innermost visible frame, whose local variables still have their values.
        self.frame: FrameType | None = found[0][0] if found else None
        self.frames = [position for _, position in found]
        self._files: dict[str, File] = {}

    def file(self, path: str) -> File:
        """The text and tree of a file."""
        if path not in self._files:
            self._files[path] = File(path, _read_file_text(path))
        return self._files[path]

    def here(self) -> tuple[File, ast.expr | None] | None:
        """The innermost frame's file and the expression that failed there; None if there is no such file."""
        if not self.frames or not is_file(self.frames[0].file):
            return None
        file = self.file(self.frames[0].file)
        return file, file.at(get_raw_position(self.frames[0]))

    def file_read(self, owns: Callable[[str], bool]) -> str:
        """The file that a library was reading for the user's code, by the name it used; "" if unknown.

        owns: is a file the user's? Libraries report errors in the bytes, but rarely the name of the file.
        """
        if not self.frames:  # the project's own code was reading
            return ""
        called: list[FrameType] = []
        for frame, _ in walk_tb(self.error.__traceback__):
            called = [] if owns(frame.f_code.co_filename) else [*called, frame]
        for frame in called:
            values, code = frame.f_locals, frame.f_code
            for name in (*code.co_varnames[: code.co_argcount], *values):
                value = values.get(name)
                if isinstance(value, io.IOBase):
                    value = getattr(value, "name", None)
                elif name not in code.co_varnames[: code.co_argcount]:
                    continue
                if isinstance(value, str | os.PathLike) and is_file(value):
                    return str(value)
        return ""

    def function(self) -> Function | None:
        """The innermost user function around the failed expression."""
        here = self.here()
        return None if here is None else function_at(here[0].tree, self.frames[0].line)

    def span(self, frame: Position) -> Span:
        """A frame's place with columns in code points."""
        if frame.column < 0:
            return frame.line, 0, frame.line, 0
        places = self.file(frame.file).places
        start, end = places.column(frame.line, frame.column), places.column(frame.end_line, frame.end_column)
        return frame.line, start, frame.end_line, end

    def operands(self) -> dict[Any, ast.expr]:
        """The source of the failed torch call's operands by position, (0, 1) being the second of a list in front."""
        here = self.here()
        if here is None or self.failure is None or self._is_called_by_container(self.failure):
            return {}
        found: Sequence[ast.expr] = ()
        match here[1]:
            case ast.BinOp(left=left, right=right):
                reverse = getattr(self.failure.func, "__name__", "").startswith("__r")
                found = (right, left) if reverse else (left, right)
            case ast.Call(func=ast.Attribute(value=value), args=args) if _is_method(self.failure, value):
                found = (value, *args)
            case ast.Call(args=args):
                found = args
            case None:
                found = self._find_augmented_operands(here[0])
        return dict(_iterate_operand_parts(found))

    def _find_augmented_operands(self, file: File) -> Sequence[ast.expr]:
        """The operands of `x += y`, which is a statement."""
        place = get_raw_position(self.frames[0])
        for node in ast.walk(file.tree):
            if isinstance(node, ast.AugAssign) and raw_of(node) == place:
                return node.target, node.value
        return ()

    def _is_called_by_container(self, failure: Failure) -> bool:
        """Did a container of torch's (nn.Sequential) call the leaf? Its input then has no name in the source."""
        between = False
        for frame, _ in walk_tb(self.error.__traceback__):
            if not is_hidden(frame.f_code):
                between = False
            elif frame.f_code.co_name == "forward":
                receiver = frame.f_locals.get("self")
                between |= isinstance(receiver, nn.Module) and receiver is not failure.module
        return between

    def names(self) -> dict[Any, str]:
        """The short texts among the operands."""
        texts = {at: ast.unparse(node) for at, node in self.operands().items() if not isinstance(node, ast.Starred)}
        return {at: text for at, text in texts.items() if len(text) <= _MAX_NAME}


def get_raw_position(frame: Position) -> Raw:
    """A frame's place as the syntax tree counts it."""
    return frame.line, frame.end_line, frame.column, frame.end_column


def _iterate_visible_frames(error: BaseException) -> Iterator[tuple[FrameType, Position]]:
    for trace in reversed(list(iterate_traceback(error))):
        if not is_hidden(trace.tb_frame.f_code):
            yield trace.tb_frame, resolve_mark((trace.tb_frame.f_code, trace.tb_lasti))


def _iterate_operand_parts(operands: Sequence[ast.expr]) -> Iterator[tuple[Any, ast.expr]]:
    for index, operand in enumerate(operands):
        yield index, operand
        if isinstance(operand, ast.List | ast.Tuple):
            yield from (((index, i), part) for i, part in enumerate(operand.elts))


def _is_method(failure: Failure, receiver: ast.expr) -> bool:
    """Is `a.f(b)` a tensor's method, and not a layer or a function of a module?"""
    is_module = isinstance(receiver, ast.Name) and receiver.id in ("torch", "F", "nn", "functional")
    is_module |= ast.unparse(receiver) in ("nn.functional", "torch.nn.functional", "torch.special")
    return failure.module is None and not is_module


def _read_file_text(path: str) -> str:
    try:
        return decode_source(read_source(path))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""


# Quick fixes: the characters of a file to replace. They use its syntax tree; if that is unclear, there is no fix.


#: line, end_line, column, end_column as `co_positions` gives them: columns in UTF-8 bytes.
Raw = tuple[int, int, int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_LINE_END = re.compile(r"\r\n|\r|\n")

#: Expressions to which `.method()` can be appended directly.
_PRIMARIES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


class File:
    """The text and tree of one file, with the searches that fixes need. `tree` is empty if it cannot be parsed."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.places = Places(text)
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            self.tree = ast.Module([], [])

    def at(self, raw: Raw) -> ast.expr | None:
        """The outermost expression that is exactly there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and raw_of(node) == raw:
                return node
        return None

    def edit(self, node: ast.expr, new_text: str) -> Edit:
        """Replace an expression."""
        line, column, end_line, end_column = self.places.span(node)
        span: Extent = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return {"file": self.path, **span, "new_text": new_text}

    def source(self, node: ast.expr) -> str:
        """The source text of an expression."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def change(self, edit: Edit) -> Fix:
        """The fix that makes an edit of this file, called ``Change `4 * n` to `3 * n` (line 84)``."""
        lines = _LINE_END.split(self.text)[edit["line"] - 1 : edit["end_line"]]
        lines[-1] = lines[-1][: edit["end_column"]]
        old, new = (" ".join(text.split()) for text in ("\n".join(lines)[edit["column"] :], edit["new_text"]))
        # The lines of a notebook's cells are not those of its file.
        where = "" if self.path.endswith(".ipynb") else f" (line {edit['line']})"
        return make_fix(f"Change `{_shorten_text(old)}` to `{_shorten_text(new)}`{where}", edit)

    def insert(self, line: int, column: int, new_text: str) -> Edit:
        """Insert a text before a place."""
        span: Extent = {"line": line, "column": column, "end_line": line, "end_column": column}
        return {"file": self.path, **span, "new_text": new_text}


def make_fix(title: str, *edits: Edit, preferred: bool = True) -> Fix:
    """A quick fix as it crosses the wire."""
    return {"title": title, "preferred": preferred, "edits": list(edits)}


def rename_attribute(file: File, raw: Raw, old: str, new: str) -> Fix | None:
    """Change the attribute or keyword `old` in the expression at `raw` to `new`."""
    found = [node for node in nodes_in(file.tree, raw) if isinstance(node, ast.Attribute) and node.attr == old]
    if len(found) != 1:
        return None
    line, end = found[0].end_lineno or 1, found[0].end_col_offset or 0
    # An attribute's name alone, without the expression before the dot, has no node of its own.
    name = ast.Name(old, lineno=line, end_lineno=line, col_offset=end - len(old.encode()), end_col_offset=end)
    return file.change(file.edit(name, new))


def convert_operand(file: File, operand: ast.expr, method: str) -> Fix:
    """Let an operand pass through a method."""
    text = file.source(operand)
    new = f"{text}.{method}" if isinstance(operand, _PRIMARIES) else f"({text}).{method}"
    return file.change(file.edit(operand, new))


def set_option(file: File, call: ast.expr | None, parameter: str, index: int, value: Any) -> Fix | None:
    """Change the value of a call's existing argument. index: among the arguments in the source."""
    argument = argument_of(call, parameter, index) if isinstance(call, ast.Call) else None
    if argument is None:
        return None
    return file.change(file.edit(argument, str(value)))


def swap_operands(file: File, first: ast.expr, second: ast.expr) -> Fix:
    """Exchange two expressions."""
    a, b = file.source(first), file.source(second)
    return make_fix(f"Swap `{_shorten_text(a)}` and `{_shorten_text(b)}`", file.edit(first, b), file.edit(second, a))


def nodes_in(tree: ast.Module, raw: Raw) -> Iterator[ast.expr]:
    """Yield every expression inside a place."""
    line, end_line, column, end_column = raw
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            start_line, stop_line, start, stop = raw_of(node)
            if (line, column) <= (start_line, start) and (stop_line, stop) <= (end_line, end_column):
                yield node


def raw_of(node: ast.expr | ast.stmt) -> Raw:
    """A node's place as `co_positions` gives it."""
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def last_name(node: ast.expr) -> str:
    """`Linear` for `nn.Linear`; "" for an expression without a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def argument_of(call: ast.Call, parameter: str, index: int) -> ast.expr | None:
    """The argument that a call gives to a parameter; None if it gives none, or after a star."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    before = call.args[: index + 1]
    if len(before) <= index or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[index]


def function_at(tree: ast.Module, line: int) -> Function | None:
    """The innermost function that holds a line."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def find_assignments(scope: ast.AST, name: str, before: int) -> list[ast.Assign]:
    """The plain assignments of a name before a line, in order."""
    return [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and node.lineno < before
        and [target.id for target in node.targets if isinstance(target, ast.Name)] == [name]
    ]


def _shorten_text(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:45]}..."


# Needs of code that a trace does not meet: a file, a download, a device, a program, an argument. None of them
# is a mistake of the code, so the diagnostic is a warning, and `mase-server check` says "not checked".


def describe_need(scene: Scene) -> str:
    """The thing that is missing from outside, as the end of a sentence; "" if the exception has another reason."""
    for error in _iterate_causes(scene.error):
        match error:
            case FileNotFoundError() | NotADirectoryError() if error.filename is not None:
                return f"the file {os.fsdecode(error.filename)!r}, which is not here"
            case ConnectionError():
                return "a download, which a trace does not make"
            case KeyError() if _is_raised_in(error, "os"):
                return f"the environment variable {error}, which is not set"
            case SystemExit() if _is_raised_in(error, "argparse"):
                return "arguments of the command line"
        # The Hub's client reports a refused download by errors of its own, one of which also means a missing file.
        if type(error).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled"):
            return "a download, which a trace does not make"
    if isinstance(scene.error, OSError | RuntimeError | AssertionError | ValueError):
        for pattern, need in _TEXTS:
            if pattern.search(str(scene.error)):
                return need
    return next((_ASKED[name] for name in _iterate_asked_names(scene) if name in _ASKED), "")


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_raised_in(error: BaseException, module: str) -> bool:
    return any(frame.f_globals.get("__name__") == module for frame, _ in walk_tb(error.__traceback__))


def _iterate_asked_names(scene: Scene) -> Iterator[str]:
    """The names in the condition of the code's own refusal, or in an index into a list that is too short."""
    if not scene.frames:
        return
    file, line = scene.file(scene.frames[0].file), scene.frames[0].line
    around = [
        node for node in ast.walk(file.tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    condition: ast.AST | None = None
    match around[-1:], scene.error:
        case [ast.Assert(test=test)], AssertionError():
            condition = test
        case [ast.Raise()], _:
            condition = next((node.test for node in reversed(around) if isinstance(node, ast.If)), None)
        case [statement], IndexError():
            condition = statement
    for node in ast.walk(condition) if condition is not None else ():
        if isinstance(node, ast.Attribute | ast.Name):
            yield node.attr if isinstance(node, ast.Attribute) else node.id
