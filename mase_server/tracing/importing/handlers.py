"""Code that expects a package or a name to be missing: `try: import x`, `contextlib.suppress(ImportError)`.

Such code gets the real error; elsewhere a replacement takes its place.
"""

from __future__ import annotations

import ast
import functools
import importlib
import linecache
from collections.abc import Iterator, Sequence
from types import FrameType

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


def is_plain_read(frame: FrameType, name: str) -> bool:
    """Does the code that runs in a frame read an attribute by writing its name, without expecting it to be missing?"""
    at = resolve_mark((frame.f_code, frame.f_lasti))
    written = linecache.getline(at.file, at.end_line).encode()[: at.end_column].decode(errors="replace")
    guarded = (names for first, last, names in _find_import_guards(at.file) if first <= at.line <= last)
    return written.endswith(f".{name}") and not any(names & {"AttributeError", *_CATCHING_ALL} for names in guarded)


@functools.cache
def _is_prepared(at: Position, imports: bool) -> bool:
    """Does the code around a place catch the error of a missing package?"""
    enough = _PREPARED_FOR_ALL if imports else _PREPARED
    return any(first <= at.line <= last and names & enough for first, last, names in _find_import_guards(at.file))


@functools.cache
def _find_import_guards(file: str) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """The lines inside `try` and `suppress` in a file, with the names of what they catch ("" for everything)."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(guard for node in ast.walk(tree) for guard in _read_import_guard(node))


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
