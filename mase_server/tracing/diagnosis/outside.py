"""The things that code needs from outside and a trace lacks: a file, a download, a device, a program, an argument.

None of these is a mistake of the code, so that the diagnostic is a warning, and `mase-server check` says "not checked".
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from traceback import walk_tb

from mase_server.tracing.diagnosis.scenes import Scene

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
