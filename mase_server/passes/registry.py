"""Every pass by its name: functions of this package's modules are declared with `@transform` or `@analysis`."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.declaration import Pass, Result, declared_pass
from mase_server.passes.workspace import workspace_passes
from mase_server.protocol.arguments import ArgumentError
from mase_server.suggestions import suggest


@cache
def built_in() -> Mapping[str, Pass]:
    """Name -> pass, in the order of their names."""
    folder, prefix = str(Path(__file__).parent), f"{__package__}."
    modules = [importlib.import_module(file.name) for file in pkgutil.walk_packages([folder], prefix)]
    found = [declared_pass(value) for module in modules for value in vars(module).values()]
    return dict(sorted((each.name, each) for each in found if each is not None))


def passes_for(folder: str, path: str) -> Mapping[str, Pass]:
    """Name -> pass: the built-in ones, and those of the workspace `folder`, with the file `path` first.

    Call it only for trusted folders: calling one of these passes runs the folder's code.
    """
    return {**built_in(), **workspace_passes(folder, path, built_in())}


def find_registered_pass(name: str, known: Mapping[str, Pass]) -> Pass:
    """The pass with this name, or with MASE's name for its function. ValueError, with the nearest one, if there is
    none."""
    by_function = {each.function.__name__: each for each in known.values()}
    found = known.get(name) or by_function.get(name)
    if found is None:
        short = name.removesuffix("_transform_pass").removesuffix("_analysis_pass")
        raise ValueError(f"there is no pass {name!r}{suggest(short, known)}")
    return found


# Applying a declared pass: it checks the arguments before, and the result after.


class PassFailedError(Exception):
    """A pass of the workspace failed. The text says how; file, line: the place in the user's own file."""

    def __init__(self, text: str, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {text}")
        self.file, self.line = file, line


def apply_declared_pass(graph: MaseGraph, declared: Pass, arguments: Mapping[str, Any]) -> Result:
    """Run a pass; return the graph that it makes, and its findings.

    arguments: values or texts, see `Pass.checked`.  Raises ArgumentError for those that do not fit, PassFailedError
    for an error in a pass of the workspace, and whatever a built-in pass raises.
    """
    given = declared.checked(arguments)
    if "metadata" in declared.needs and not _is_annotated(graph):
        graph.annotate(add_value=False)
    if not declared.source:
        return declared.function(graph, given)
    return _apply_workspace_pass(graph, declared, given)


def _is_annotated(graph: MaseGraph) -> bool:
    return all("mase" in node.meta and "mase_op" in node.meta["mase"]["common"] for node in graph.fx_graph.nodes)


def _apply_workspace_pass(graph: MaseGraph, declared: Pass, given: Mapping[str, Any]) -> Result:
    """Run a pass of the workspace: errors, wrong results and broken graphs are reported at its line."""
    line = getattr(declared.function, "line", 1)
    try:
        found: Any = declared.function(graph, given)
    except (Exception, SystemExit) as error:  # the border to the user's code
        raise _locate_failure(error, declared.source, line) from error
    name = declared.function.__name__
    match found:
        case (MaseGraph() as made, dict() as info):
            pass
        case _:
            text = f"{name} gives {_type_name(found)}; a pass gives its graph and a dict: `return graph, {{}}`"
            raise PassFailedError(text, declared.source, line)
    try:
        made.fx_graph.lint()
        made.propagate()
    except Exception as error:
        text = f"after {name} the graph does not run: {_first_line(error)}"
        raise PassFailedError(text, declared.source, line) from error
    return made, info


def _locate_failure(error: BaseException, file: str, line: int) -> PassFailedError:
    """The error at the innermost line of the file in its traceback; a syntax error at its own line."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return PassFailedError(f"{type(error).__name__}: {error.msg}", file, error.lineno or line)
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = next((number for number in reversed(frames) if number is not None), line)
    name = "ArgumentError" if isinstance(error, ArgumentError) else type(error).__name__
    return PassFailedError(f"{name}: {_first_line(error)}".rstrip(": "), file, at)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if len(text) <= 300 else f"{text[:297]}..."


def _type_name(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_type_name(each) for each in value)})"
    return "None" if value is None else type(value).__name__
