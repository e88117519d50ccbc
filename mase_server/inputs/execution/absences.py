"""Packages that cannot be imported, told at the import statements that want them."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from mase_server.inputs import trouble
from mase_server.snapshot import Problem
from mase_server.tracing.errors.problems import describe
from mase_server.tracing.loading.missing import MissingImport
from mase_server.tracing.loading.packages import install_advice
from mase_server.tracing.loading.placeholders import Base
from mase_server.tracing.loading.source import Places, Span, decode, read_source
from mase_server.tracing.loading.standins import assumed
from mase_server.tracing.positions import Position

_SHOWN = "What does without it is shown."
#: Ends of names of files that an installation compiles.
_SOURCES = frozenset({".pyx", ".cpp", ".cu", ".cc", ".rs"})
#: Names of modules that are compiled, or written by the build.
_BUILT = re.compile(r"^_C$|^_C_|cuda|cpp|cython|triton|_pb2|version$|_?ext$|^ext_|kernels?$|^lib")


def problems_of(missing: Iterable[MissingImport], path: str, folder: str) -> Iterator[Problem]:
    """One problem for each import statement of the edited file, and one for each package in the other files."""
    by_place: dict[Position, list[MissingImport]] = defaultdict(list)
    elsewhere: set[str] = set()
    for each in missing:
        mine = next((at for at in each.at if at.file == path), None)
        if mine is not None:
            by_place[mine].append(each)
        # A package may be wanted in every file that a big workspace's own packages import.
        if each.at[0].file != path and (top := each.name if each.own else each.name.partition(".")[0]) not in elsewhere:
            elsewhere.add(top)
            by_place[each.at[0]].append(each)
    for at, found in by_place.items():
        yield _problem(at, found, folder)


def unknown_bases(
    path: str, folder: str, names: Mapping[str, Any], nodes: Mapping[str, ast.ClassDef]
) -> Iterator[Problem]:
    """An error at every class that has a forward, and that may be a model if its base were installed."""
    for name, node in nodes.items():
        kind = names.get(name)
        if not (isinstance(kind, type) and issubclass(kind, Base)) or issubclass(kind, nn.Module):
            continue
        if callable(vars(kind).get("forward")):
            error = kind.missing()
            code = "missing-package" if error.name else "import-error"
            step = install_advice(error.name, [folder]) if error.name else ""
            yield trouble.at_class(path, node, "error", code, f"The base of {name}: {error}.{step}")


def _problem(at: Position, found: list[MissingImport], folder: str) -> Problem:
    mine = any(each.own and not _is_built(each) for each in found)
    severity, code = ("error", "import-error") if mine else ("warning", "missing-package")
    related = [_place(each) for each in found if each.at[0] != at]
    message = " ".join(dict.fromkeys(_sentence(each, folder) for each in found))
    return Problem(at.file, *_span(at), severity, code, message, related)


def _is_built(missing: MissingImport) -> bool:
    """Is it likely to be made by an installation: by its name, or by sources of compiled code beside its importer?"""
    beside = Path(missing.at[0].file).parent
    return is_built(missing.name) or any(file.suffix in _SOURCES for file in beside.glob("*.*"))


def is_built(name: str) -> bool:
    """Does the name of a workspace's own module look like one that its installation makes?"""
    return _BUILT.search(name.rpartition(".")[2]) is not None


def _sentence(missing: MissingImport, folder: str) -> str:
    name, error = missing.name, missing.error
    if missing.own:
        built = " It looks like one that the package's installation builds." if _is_built(missing) else ""
        return f"No module named '{name}' in this workspace.{built} {_SHOWN}"
    if not isinstance(error, ModuleNotFoundError) or error.name != name:
        return f"{name} cannot be imported in {sys.executable}: {describe(error).rstrip('.')}. {_SHOWN}"
    if name.partition(".")[0] in sys.modules:
        version = f"the version of {name.partition('.')[0]} that is installed there has none"
        return f"No module named '{name}' in {sys.executable}: {version}. {_SHOWN}"
    return f"No module named '{name}' in {sys.executable}. {_SHOWN}{assumed(name)}{install_advice(name, [folder])}"


def _place(missing: MissingImport) -> dict[str, Any]:
    line, column, end_line, end_column = _span(missing.at[0])
    place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"file": missing.at[0].file, **place, "message": f"{missing.name} is imported here"}


def _span(at: Position) -> Span:
    """Columns in code points."""
    try:
        places = Places(decode(read_source(at.file)))
        return at.line, places.column(at.line, at.column), at.end_line, places.column(at.end_line, at.end_column)
    except (OSError, SyntaxError, UnicodeDecodeError, IndexError):
        return at.line, 0, at.line, 0
