"""Applying a declared pass: its arguments are checked before, and what it gives after."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from mase_server.arguments import ArgumentError
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.declaration import Pass


class PassFailedError(Exception):
    """A pass of the workspace that failed. The text says how; file, line: where, in the person's own file."""

    def __init__(self, text: str, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {text}")
        self.file, self.line = file, line


def apply(graph: MaseGraph, declared: Pass, arguments: Mapping[str, Any]) -> Result:
    """What the pass makes of the graph, and what it found.

    arguments: values or texts, see `Pass.checked`.  Raises ArgumentError for those that do not fit, PassFailedError for
    what goes wrong in a pass of the workspace, and whatever a built-in pass raises.
    """
    given = declared.checked(arguments)
    if "metadata" in declared.needs and not _is_annotated(graph):
        graph.annotate(add_value=False)
    if not declared.source:
        return declared.function(graph, given)
    return _own(graph, declared, given)


def _is_annotated(graph: MaseGraph) -> bool:
    return all("mase" in node.meta and "mase_op" in node.meta["mase"]["common"] for node in graph.fx_graph.nodes)


def _own(graph: MaseGraph, declared: Pass, given: Mapping[str, Any]) -> Result:
    """A pass of the workspace: what it raises, gives and leaves behind is told at its line."""
    line = getattr(declared.function, "line", 1)
    try:
        found: Any = declared.function(graph, given)
    except (Exception, SystemExit) as error:  # the border to the person's code
        raise _told(error, declared.source, line) from error
    name = declared.function.__name__
    match found:
        case (MaseGraph() as made, dict() as info):
            pass
        case _:
            text = f"{name} gives {_kind(found)}; a pass gives its graph and a dict: `return graph, {{}}`"
            raise PassFailedError(text, declared.source, line)
    try:
        made.fx_graph.lint()
        made.propagate()
    except Exception as error:
        text = f"after {name} the graph does not run: {_first_line(error)}"
        raise PassFailedError(text, declared.source, line) from error
    return made, info


def _told(error: BaseException, file: str, line: int) -> PassFailedError:
    """The error at the innermost line of the file that it came through; a syntax error at its own."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return PassFailedError(f"{type(error).__name__}: {error.msg}", file, error.lineno or line)
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = next((number for number in reversed(frames) if number is not None), line)
    name = "ArgumentError" if isinstance(error, ArgumentError) else type(error).__name__
    return PassFailedError(f"{name}: {_first_line(error)}".rstrip(": "), file, at)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if len(text) <= 300 else f"{text[:297]}..."


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_kind(each) for each in value)})"
    return "None" if value is None else type(value).__name__
