"""Code that expects a package or a name to be missing: `try: import x`, `contextlib.suppress(ImportError)`.

Such code gets the real error; elsewhere a replacement takes its place.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeGuard

from mase_server.tracing.importing.source import remember
from mase_server.tracing.recording.positions import Position, is_hidden, resolve_mark

#: Packages that call user code by themselves: an import below their frames is not the user's.
_SEARCHING = tuple(f"mase_server.tracing.{name}" for name in ("execution", "inputs", "models"))
_PREPARED = {"ImportError", "ModuleNotFoundError"}
_CATCHING_ALL = {"Exception", "BaseException", ""}
_PREPARED_FOR_ALL = _PREPARED | _CATCHING_ALL


def is_import_handled(frame: FrameType | None) -> bool:
    """Does any code around an import, from a frame outwards, catch the error of a missing package?"""
    return any(_is_prepared(*each) for each in _iterate_importers(frame))


def iterate_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and the frames around it, outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _iterate_importers(frame: FrameType | None) -> Iterator[tuple[Position, bool]]:
    """Yield the positions of the code outside, from the import statement outwards, and whether each imports by
    itself."""
    imports = True
    for each in iterate_frames(frame):
        name = each.f_code.co_filename
        if each.f_globals.get("__name__", "").startswith(_SEARCHING):
            return
        if name.startswith("<frozen importlib") or name == importlib.__file__:
            imports = True
        elif not is_hidden(each.f_code):
            yield resolve_mark((each.f_code, each.f_lasti)), imports
            imports = False


def find_given_up_import(file: str, name: str, package: str = "") -> tuple[str, str] | None:
    """The module from which a file imports a name, and where, if it goes on without: `except ImportError: Op = None`.

    package: that of the file, to follow the name through the module of the workspace from which it comes.
    """
    for node in walk_file(file):
        match node:
            case ast.Try(body=body, handlers=handlers):
                held = [each for handler in handlers for each in ast.walk(handler) if _is_given_up(each, name)]
                imports = (each for part in body for each in ast.walk(part) if _binds_by_import(each, name))
                if held and (found := next(imports, None)) is not None:
                    module = found.module if isinstance(found, ast.ImportFrom) else name
                    return (
                        f"{'.' * getattr(found, 'level', 0)}{module or ''}",
                        f"line {found.lineno} of {Path(file).name}",
                    )
            case ast.ImportFrom(module=str(module), level=level) if package and _binds_by_import(node, name):
                origin = f"{package.rsplit('.', level - 1)[0]}.{module}" if level else module
                beside = str(getattr(sys.modules.get(origin), "__file__", None) or "")
                if beside != file and (further := find_given_up_import(beside, name)) is not None:
                    return further
    return None


def _is_given_up(node: ast.AST, name: str) -> bool:
    """Is it `name = None` or `name = object`?"""
    match node:
        case ast.Assign(targets=[*targets], value=ast.Constant(value=None) | ast.Name(id="object")):
            return any(isinstance(each, ast.Name) and each.id == name for each in targets)
    return False


def _binds_by_import(node: ast.AST, name: str) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, ast.Import | ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names)


def is_plain_read(frame: FrameType, name: str) -> bool:
    """Does the code that runs in a frame read an attribute by writing its name, without expecting it to be missing?"""
    at = resolve_mark((frame.f_code, frame.f_lasti))
    written = linecache.getline(at.file, at.end_line).encode()[: at.end_column].decode(errors="replace")
    guarded = (names for first, last, names in _find_import_guards(at.file) if first <= at.line <= last)
    return written.endswith(f".{name}") and not any(names & {"AttributeError", *_CATCHING_ALL} for names in guarded)


@remember(1024)
def _is_prepared(at: Position, imports: bool) -> bool:
    """Does the code around a place catch the error of a missing package?"""
    enough = _PREPARED_FOR_ALL if imports else _PREPARED
    return any(first <= at.line <= last and names & enough for first, last, names in _find_import_guards(at.file))


@remember(1024)
def _find_import_guards(file: str) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """The lines inside `try` and `suppress` in a file, with the names of what they catch ("" for everything)."""
    return tuple(guard for node in walk_file(file) for guard in _read_import_guard(node))


@remember(8)
def walk_file(file: str) -> list[ast.AST]:
    """The nodes of a file as Python runs it; none if it cannot be parsed."""
    try:
        return list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError):
        return []


def _read_import_guard(node: ast.AST) -> Iterator[tuple[int, int, frozenset[str]]]:
    match node:
        case ast.Try(body=body, handlers=handlers):
            # A handler that raises again only words the error in another way.
            going_on = (handler for handler in handlers if not isinstance(handler.body[-1], ast.Raise))
            caught = (handler.type or ast.Name("") for handler in going_on)
            yield _make_import_guard(body, frozenset(name for each in caught for name in _iterate_caught_names(each)))
        case ast.With(body=body, items=items):
            for item in items:
                match item.context_expr:
                    case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
                        yield _make_import_guard(
                            body, frozenset(name for each in args for name in _iterate_caught_names(each))
                        )


def _make_import_guard(body: Sequence[ast.stmt], names: frozenset[str]) -> tuple[int, int, frozenset[str]]:
    return body[0].lineno, body[-1].end_lineno or body[-1].lineno, names


def _iterate_caught_names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Tuple(elts=elements):
            yield from (name for each in elements for name in _iterate_caught_names(each))
        case ast.Attribute(attr=name) | ast.Name(id=name):
            yield name
