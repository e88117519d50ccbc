"""Exchanging a text that was loaded for one that differs only inside functions that have not run yet.

Everything that such functions do not decide is then as if the new text had been loaded: what the file's statements did,
the objects that they made, the marks of what ran. That the texts are equal elsewhere is proved: they have equally many
lines, only lines inside such functions differ, and every statement outside them stands in the same place. A class, a
statement, a comment for MASE or a name that the rest of the file reads in another way is no such difference.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType

from mase_server.notebooks import is_notebook
from mase_server.tracing.importing.importer import WorkspaceImporter, find_functions
from mase_server.tracing.importing.rewrite import end_of, start_of
from mase_server.tracing.importing.source import (
    Names,
    Places,
    bind_alike,
    decode_source,
    exchange_text,
    parse_text,
    walk_tree,
)

#: Decorators that do not look into a function.
_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "no_grad", "inference_mode"})
#: Texts that others read in the whole file: comments, and the names that decide which parts of torch are simulated.
_READ_ANYWHERE = re.compile(r"mase|type:|noqa|mesh|fsdp|FullySharded|__name__|coding", re.IGNORECASE)


class NotExchangeableError(Exception):
    """Another text of a file does not only differ inside functions that have not run."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function that has not run. lines: those of its body, and the empty ones below it.  live: its objects."""

    node: ast.FunctionDef
    lines: range
    live: tuple[FunctionType, ...]


class Exchange:
    """The functions of a loaded file that may still be exchanged. text: of the file, as it was loaded.

    whole: has something read the text beside the code that was executed? Then there are none.
    """

    def __init__(self, importer: WorkspaceImporter, path: str, text: str, *, whole: bool) -> None:
        self._importer, self._path, self._text = importer, path, text
        self._lines = text.split("\n")
        self._tree = parse_text(text, path)
        self._names = Names.of(self._tree)
        self._functions = [] if whole or is_notebook(path) else list(self._list_functions())

    @property
    def lines(self) -> list[tuple[int, int]]:
        """The lines, from 1, that may differ in the next text: the first and the last of each stretch."""
        return [(each.lines.start, each.lines.stop - 1) for each in self._functions]

    def _list_functions(self) -> Iterator[_Function]:
        segments, ran = self._importer.segments.get(self._path, ()), self._importer.ran.get(self._path, b"")
        entered = {each.first_line: ran[index] for index, each in enumerate(segments) if each.first_line}
        live: dict[tuple[str, int], list[FunctionType]] = {}
        for function in find_functions(self._path, ()):
            live.setdefault((function.__code__.co_qualname, function.__code__.co_firstlineno), []).append(function)
        starts = sorted({start_of(each)[0] for each in _iterate_statements(self._tree.body)})
        places = Places(self._text)
        for name, node in _iterate_functions(self._tree.body):
            first, body = start_of(node)[0], node.body[ast.get_docstring(node) is not None :]
            found = live.get((name, first), [])
            if entered.get(first) != 0 or not found or not body or not places.starts_line(body[0]):
                continue
            if set(_list_decorators(node)) <= _DECORATORS and not _defines_class(node):
                next_start = next((each for each in starts if each > (node.end_lineno or 0)), len(self._lines) + 1)
                yield _Function(node, range(start_of(body[0])[0], next_start), tuple(found))

    def apply(self, source: bytes) -> None:
        """Exchange the text. NotExchangeableError if that is not possible; nothing has changed then."""
        text = decode_source(source)
        try:
            tree = parse_text(text, self._path)
            changed = self._find_changed(text, tree)
        except SyntaxError as error:
            raise NotExchangeableError("it is no Python") from error
        if changed:
            nodes = {start_of(node)[0]: node for _, node in _iterate_functions(tree.body)}
            pairs = [(each, nodes[start_of(each.node)[0]]) for each in changed]
            if not all(bind_alike(each.node, now) for each, now in pairs) and self._names != Names.of(tree):
                raise NotExchangeableError("names of the file have another meaning")
            for each, now in pairs:
                if _defines_class(now) or (ast.get_docstring(each.node) is None) != (ast.get_docstring(now) is None):
                    raise NotExchangeableError("a function defines a class, or has a docstring")
            ranges = {range(start_of(each.node)[0], (each.node.end_lineno or 0) + 1): each.live for each in changed}
            try:
                self._importer.exchange(self._path, text, self._names, ranges)
            except (ValueError, SyntaxError, RecursionError) as error:
                raise NotExchangeableError(str(error)) from error
            _adopt_nodes(self._tree, tree, {start_of(each.node)[0] for each in changed})
        exchange_text(self._path, self._text, self._tree, source)

    def _find_changed(self, text: str, tree: ast.Module) -> list[_Function]:
        """The functions with other lines in another text, which has the same lines everywhere else."""
        lines = text.split("\n")
        if len(lines) != len(self._lines):
            raise NotExchangeableError("it has another number of lines")
        pairs = enumerate(zip(self._lines, lines, strict=True), 1)
        numbers = {number: pair for number, pair in pairs if pair[0] != pair[1]}
        changed = [each for each in self._functions if any(number in each.lines for number in numbers)]
        if not all(any(number in each.lines for each in changed) for number in numbers):
            raise NotExchangeableError("it differs outside of functions that have not run")
        if any(_READ_ANYWHERE.search(line) for pair in numbers.values() for line in pair):
            raise NotExchangeableError("a line differs that is read wherever it stands")
        first = {start_of(each.node)[0] for each in changed}
        if list(_outline(self._tree.body, first)) != list(_outline(tree.body, first)):
            raise NotExchangeableError("statements stand in other places")
        return changed


def _iterate_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module and of its classes."""
    for each in body:
        yield each
        if isinstance(each, ast.ClassDef):
            yield from _iterate_statements(each.body)


def _iterate_functions(body: Iterable[ast.stmt], around: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and of its classes, with their qualified names."""
    for each in body:
        if isinstance(each, ast.FunctionDef):
            yield around + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from _iterate_functions(each.body, f"{around}{each.name}.")


def _outline(body: Sequence[ast.stmt], changed: set[int]) -> Iterator[tuple[type[ast.stmt], object, object]]:
    """The statements of a module and of its classes: their kinds and places, without the ends of some functions.

    changed: the first lines of these functions, at most one of which is the end of a class.
    """
    for each in body:
        inside = isinstance(each, ast.ClassDef)
        open_ended = inside or (isinstance(each, ast.FunctionDef) and start_of(each)[0] in changed)
        yield type(each), (start_of(each), each.lineno), None if open_ended else end_of(each)
        if isinstance(each, ast.ClassDef):
            yield from _outline(each.body, changed)


def _list_decorators(node: ast.FunctionDef) -> list[str]:
    """The last names of a function's decorators."""
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return [getattr(each, "attr", "") or getattr(each, "id", "") for each in called]


def _defines_class(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.ClassDef) for each in walk_tree(node))


def _adopt_nodes(tree: ast.Module, other: ast.Module, changed: set[int]) -> None:
    """Let some functions of a tree, and the ends of the classes around them, be those of another tree."""
    pairs = zip(_iterate_statements(tree.body), _iterate_statements(other.body), strict=True)
    for one, now in list(pairs):
        if isinstance(one, ast.FunctionDef) and start_of(one)[0] in changed:
            vars(one).clear()
            vars(one).update(vars(now))
        elif isinstance(one, ast.ClassDef):
            one.end_lineno, one.end_col_offset = now.end_lineno, now.end_col_offset
