"""The text of a Python file: the positions of its syntax nodes, in code points and not in the bytes that `ast` counts,
and the names that can never be tensors.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import io
import linecache
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from mase_server import notebooks
from mase_server.protocol.snapshot import Problem

_IDENTIFIER = re.compile(r"\w+")
_LAST_IDENTIFIER = re.compile(r"\w+$")
_MAPPING_REST = re.compile(r"\*\*\s*(\w+)[\s,]*\}$")

#: Characters of a node's text.
_MOST_TEXT = 60
#: The names of a module that is executed, or of code that is evaluated among its names, with their values.
Namespace = dict[str, Any]
#: line, column, end_line, end_column: lines from 1, columns from 0 in code points, ends exclusive.
Span = tuple[int, int, int, int]


#: Texts of files that are not (yet) on disk, by path: the versions that a process trying an edit sees instead.
EDITED: dict[str, bytes] = {}
#: Bytes of files that are not read again, by path.
_PINNED: dict[str, bytes] = {}
_TYPED: set[str] = set()
#: The last syntax trees, by text and path.
_TREES: dict[tuple[str, str], ast.Module] = {}
_MOST_TREES = 8
#: The functions that remember what they read in a text or a tree.
_REMEMBERING: list[functools._lru_cache_wrapper[Any]] = []
#: Files that were parsed for what they say, or whose lines were looked at.
_READ: set[str] = set()
_Reading = TypeVar("_Reading", bound=Callable[..., Any])


@contextmanager
def pin_sources(path: str, texts: Mapping[str, bytes]) -> Iterator[None]:
    """Inside, every read of a file returns its content at the start, even if it is saved meanwhile.

    Otherwise a trace could be identified by one text and show the results of another. An unreadable file is not
    pinned.  texts: what is read in place of files from now on, because an editor holds it unsaved.
    """
    if path in texts:
        _TYPED.add(path)
    else:
        with suppress(OSError, ValueError):
            _PINNED[path] = notebooks.read_traced_bytes(path)
    for other, text in texts.items():
        _PINNED[other] = text
        with suppress(SyntaxError, ValueError):
            show_lines(other, decode_source(python_of(other, text)))
    try:
        yield
    finally:
        if path not in texts:
            _PINNED.pop(path, None)


@contextmanager
def noting_readers() -> Iterator[set[str]]:
    """Give a set that has, from now on, the files of which something was read beside the code that was executed."""
    get_lines = linecache.getlines

    def note_lines(filename: str, module_globals: Namespace | None = None) -> list[str]:
        _READ.add(filename)
        return get_lines(filename, module_globals)

    _READ.clear()
    linecache.getlines = note_lines
    try:
        yield _READ
    finally:
        linecache.getlines = get_lines


def exchange_text(path: str, text: str, tree: ast.Module, source: bytes) -> None:
    """From now on, let a typed text stand in for a file, in place of the `text` that did.

    tree: the syntax tree that is given for the new text; whatever was remembered of it before is forgotten.
    """
    _PINNED[path] = source
    now = decode_source(python_of(path, source))
    show_lines(path, now)
    _TREES.pop((text, path), None)
    _TREES[now, path] = tree
    for cached in _REMEMBERING:
        cached.cache_clear()


def is_pinned(path: str) -> bool:
    """Is a file's text fixed, so that the one on disk may be another?"""
    return path in _PINNED


def find_fixed_text(path: str) -> bytes | None:
    """The text that a program reads in place of a file; None where it reads the file itself."""
    return None if notebooks.is_notebook(path) else EDITED.get(path, _PINNED.get(path))


def is_typed(path: str) -> bool:
    """Is it the traced file, with a text that is not saved?"""
    return path in _TYPED


def read_source(path: str) -> bytes:
    """A file's Python, or that of its edited text. Raises OSError as `open` does."""
    return python_of(path, read_saved(path)) if path not in EDITED else EDITED[path]


def read_saved(path: str) -> bytes:
    """A file's bytes, or the script of a notebook's cells, which identify a trace."""
    return _PINNED[path] if path in _PINNED else notebooks.read_traced_bytes(path)


def python_of(path: str, saved: bytes) -> bytes:
    """The Python code of a saved file that runs: for a notebook, its script without cells that are no Python."""
    if path in EDITED:
        return EDITED[path]
    return notebooks.runnable_python(saved.decode()).encode() if notebooks.is_notebook(path) else saved


def show_lines(path: str, text: str) -> None:
    """Have tracebacks and `inspect` see this text of a file."""
    # An entry without a modification time is never compared with the disk.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def parse_text(text: str, path: str) -> ast.Module:
    """The syntax tree of a text, one for all who only read it. Raises as `ast.parse`."""
    tree = _TREES.pop((text, path), None) or ast.parse(text, path)
    if len(_TREES) >= _MOST_TREES:
        del _TREES[next(iter(_TREES))]
    _TREES[text, path] = tree
    return tree


def remember(most: int) -> Callable[[_Reading], _Reading]:
    """Have a function that reads a text, or its tree, remember its last results, until the text is exchanged."""

    def decorate(function: _Reading) -> _Reading:
        _REMEMBERING.append(functools.lru_cache(most)(function))
        return cast("_Reading", _REMEMBERING[-1])

    return decorate


def parse_file(path: str) -> ast.Module:
    """The syntax tree of a file as a trace reads it, for those who only read it. OSError, SyntaxError, ValueError."""
    _READ.add(path)
    return parse_text(decode_source(read_source(path)), path)


@remember(64)
def list_nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree that nobody changes: many look for something."""
    return walk_tree(tree)


def walk_tree(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree in the order of `ast.walk`, in half of its time."""
    nodes = [tree]
    for node in nodes:
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                nodes.append(part)
            elif isinstance(part, list):
                nodes += [each for each in part if isinstance(each, ast.AST)]
    return nodes


def decode_source(source: bytes | str) -> str:
    """The text of a source file as the compiler reads it: decoded by cookie or BOM, every line end a plain newline.

    Raises SyntaxError for an unknown encoding and UnicodeDecodeError for bytes that do not match it.
    """
    if isinstance(source, bytes):
        # The cookie is searched line by line, and a lone carriage return ends a line too.
        return importlib.util.decode_source(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    return io.IncrementalNewlineDecoder(None, translate=True).decode(source.removeprefix("\ufeff"), final=True)


class Places:
    """Turns the byte columns of syntax nodes of one text into columns in code points."""

    def __init__(self, text: str) -> None:
        # Not str.splitlines: a form feed or a line separator inside a string ends no line for the compiler.
        self._lines = text.split("\n")
        self._ascii = text.isascii()

    def column(self, line: int, byte: int) -> int:
        """The code-point column of a UTF-8 byte offset in a line (from 1)."""
        text = self._lines[line - 1]
        if self._ascii or text.isascii():
            return byte
        return len(text.encode()[:byte].decode(errors="replace"))

    def span(self, node: ast.expr | ast.pattern | ast.arg | ast.stmt) -> Span:
        """The span of a node; a node without an end ends where it starts."""
        line, end_line = node.lineno, node.end_lineno or node.lineno
        end = node.col_offset if node.end_col_offset is None else node.end_col_offset
        return line, self.column(line, node.col_offset), end_line, self.column(end_line, end)

    def text(self, node: ast.expr | ast.pattern | ast.stmt) -> str:
        """The text of a node on one line; its start if it is long."""
        line, column, end_line, end_column = self.span(node)
        lines = self._lines[line - 1 : end_line]
        lines[-1] = lines[-1][:end_column]
        lines[0] = lines[0][column:]
        text = " ".join(" ".join(lines).split())
        return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"

    def starts_line(self, node: ast.stmt) -> bool:
        """Is there nothing before a statement on its line?"""
        return not self._lines[node.lineno - 1].encode()[: node.col_offset].strip()

    def argument(self, node: ast.arg) -> Span:
        """The span of a parameter's name, without its annotation."""
        line, column, _, _ = self.span(node)
        found = _IDENTIFIER.match(self._lines[line - 1], column)
        return line, column, line, found.end() if found else column + len(node.arg)

    def capture(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> Span:
        """The span of the name that a pattern binds: always its last word."""
        line, column, end_line, end_column = self.span(node)
        tail = self._lines[end_line - 1][column if line == end_line else 0 : end_column]
        pattern = _MAPPING_REST if isinstance(node, ast.MatchMapping) else _LAST_IDENTIFIER
        found = pattern.search(tail)
        if found is None:
            return line, column, end_line, end_column
        group = found.lastindex or 0
        shift = end_column - len(tail)
        return end_line, shift + found.start(group), end_line, shift + found.end(group)


# The files of a workspace, without hidden, installed or built ones.

#: Folders that hold none of the user's own files.
SKIPPED = frozenset({"node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist", "venv", "env"})


def files_below(folder: str, suffixes: tuple[str, ...], but: str = "") -> Iterator[os.DirEntry[str]]:
    """Files with these name endings, the least nested first, then by name; links to folders are not followed.

    but: the path of a file to leave out.
    """
    waiting = [folder]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop(0)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in SKIPPED:
                    waiting.append(entry.path)
            elif entry.name.endswith(suffixes) and entry.path != but:
                yield entry


# Names that a notebook's code has only in a kernel, and cells that are left out.

#: Names that IPython gives every cell.
KERNEL = ("get_ipython", "display")
_REASON = "only the notebook's kernel knows it"


def kernel_names(path: str) -> Namespace:
    """Placeholders for the names of IPython: they can be called, and their results are unknown."""
    from mase_server.tracing.importing.placeholders import Absent, Placeholder  # they need torch

    absent = Absent("", lambda thing: None, lambda file: file == path, _REASON)
    return {name: Placeholder(absent, name, made=True) for name in KERNEL}


def broken_cells(path: str, saved: bytes) -> Iterator[Problem]:
    """A problem for each cell of a notebook that is no Python; the other cells run without it."""
    if not notebooks.is_notebook(path):
        return
    for error in notebooks.cell_errors(saved.decode()):
        line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
        end = error.end_lineno or line, (error.end_offset or 0) - 1
        end_line, end_column = max(end, (line, column + 1))
        text = f"{type(error).__name__}: {error.msg.rstrip('.')}. The other cells are traced without this one."
        yield Problem(path, line, column, end_line, end_column, "error", "syntax-error", text)


# The meaning of a file's names, as far as its text shows: which of them can never be tensors.


#: Packages that compile the bodies of decorated functions themselves and would fail on a rewritten one.
COMPILERS = frozenset({"numba", "triton", "taichi", "warp", "cupy", "tilelang"})

#: Builtins whose result is never a tensor nor holds one.
_SCALAR_BUILTINS = frozenset({
    "all", "any", "ascii", "bin", "bool", "bytes", "callable", "chr", "classmethod", "compile", "delattr", "dir",
    "float", "format", "frozenset", "globals", "hasattr", "hash", "hex", "id", "input", "int", "isinstance",
    "issubclass", "len", "locals", "memoryview", "object", "oct", "open", "ord", "print", "property", "range", "repr",
    "setattr", "slice", "staticmethod", "str", "super", "type", "vars",
})  # fmt: skip
_ALWAYS_BOOL = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one file.

    fixed: names that are never tensors: modules, functions, classes, builtins, with no other binding.
    imported: names that only `from ... import` binds; calls and look-ups on them give no tensor.
    packages: imported name -> top-level package it came from.  scalars: builtins that never return a tensor.
    """

    fixed: frozenset[str]
    imported: frozenset[str]
    packages: dict[str, str]
    scalars: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """Read off a syntax tree."""
        collector = _Collector.of(tree)
        variables = collector.variables
        return cls(
            fixed=frozenset((collector.defined | set(dir(builtins))) - variables - collector.imported),
            imported=frozenset(collector.imported - variables - collector.defined),
            packages=collector.packages,
            scalars=_SCALAR_BUILTINS - variables - collector.defined - collector.imported,
        )

    def rooted_outside(self, node: ast.expr) -> bool:
        """Is this `torch`, `nn.functional`, `F` ...: a module, class or function, or a dotted name under one?"""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and (node.id in self.fixed or node.id in self.imported)

    def compiled_elsewhere(self, node: _Function) -> bool:
        """Is the function decorated by a package that compiles Python code itself?"""
        return any(self._find_package(decorator) in COMPILERS for decorator in node.decorator_list)

    def _find_package(self, node: ast.expr) -> str:
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Call):
                node = node.func
            elif isinstance(node, ast.Attribute):
                node = node.value
            else:
                return ""
        return self.packages.get(node.id, "")

    def may_be_tensor(self, node: ast.expr) -> bool:
        """Could this Load expression give a tensor, as far as its own form tells?"""
        match node:
            case ast.Name(id=name):
                return name not in self.fixed and not (name.startswith("__") and name.endswith("__"))
            case ast.Call(func=ast.Name(id=name)):
                return name not in self.scalars
            case ast.Compare(ops=ops):
                return not all(isinstance(op, _ALWAYS_BOOL) for op in ops) and not _compares_text(node)
            case ast.UnaryOp(op=ast.Not()):
                return False
        return not is_plain(node)


def bind_alike(one: ast.AST, other: ast.AST) -> bool:
    """Do two pieces of code bind the same names in the same ways, so that `Names` are the same with either?"""
    return _Collector.of(one) == _Collector.of(other)


@dataclass(slots=True)
class _Collector:
    variables: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    packages: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.AST) -> _Collector:
        collector = cls()
        for node in walk_tree(tree):
            collector.take(node)
        return collector

    def take(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                self.variables.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self.variables.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.defined.add(name)
            case ast.Import(names=aliases):
                self._take_modules(aliases)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                for alias in aliases:
                    bound = alias.asname or alias.name
                    self.imported.add(bound)
                    self.packages[bound] = "" if level or module is None else module.partition(".")[0]

    def _take_modules(self, aliases: list[ast.alias]) -> None:
        for alias in aliases:
            top = alias.name.partition(".")[0]
            self.defined.add(alias.asname or top)
            self.packages[alias.asname or top] = top


def is_plain(node: ast.expr) -> bool:
    """Is the value made of constants only, so that it holds no tensor?"""
    match node:
        case ast.Constant() | ast.JoinedStr():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(is_plain, parts))
        case ast.UnaryOp(operand=operand):
            return is_plain(operand)
        case ast.BinOp(left=left, right=right):
            return is_plain(left) and is_plain(right)
    return False


def _compares_text(node: ast.Compare) -> bool:
    parts = (node.left, *node.comparators)
    return any(isinstance(part, ast.Constant) and (part.value is None or isinstance(part.value, str)) for part in parts)
