"""Calls of a model's class anywhere in the workspace: tests, scripts, notebooks, code blocks of README and docstrings.

Files are read as text, and parsed only if they call the class. None of them is imported or run: `evaluation` finds the
values that a call uses.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from mase_server.tracing.importing.lookups import note_read, without_recording
from mase_server.tracing.importing.source import decode_source, files_below, read_source

# The limit of a file's search for models: one count of steps for all its classes, constructors and inputs.

#: Steps for all searches of a file; a torch call on meta is one, and takes about 0.1 ms.
FILE_STEPS = 50_000
#: Steps that each try of a constructor or a forward counts besides its torch calls.
TRY_STEPS = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of steps after which nothing more is tried; earlier results count.

    Steps are what the search did (`Shadows.steps`), not seconds: the same file gets the same models whatever the load.
    end: the count of `counter` at which it is spent.  late: has the time limit of the whole trace ended? That ends
    every budget, and is told.
    """

    end: float
    counter: Callable[[], float] = field(repr=False)
    late: Callable[[], bool] = field(default=lambda: False, repr=False)

    @classmethod
    def of(cls, steps: float, counter: Callable[[], float], late: Callable[[], bool] = lambda: False) -> Budget:
        """A budget of so many steps from now on."""
        return cls(counter() + steps, counter, late)

    def left(self) -> float:
        """Steps that are left, 0 once there are none."""
        return 0.0 if self.late() else max(0.0, self.end - self.counter())

    def is_spent(self) -> bool:
        """Is nothing left?"""
        return self.left() == 0.0

    def part(self, share: float = 1.0, most: float = float("inf")) -> Budget:
        """A budget inside this one: a share of the rest, and at most `most` steps."""
        return Budget.of(min(self.left() * share, most), self.counter, self.late)


UNLIMITED = Budget(float("inf"), lambda: 0.0)

#: Bounds of reading for one file's models: files, bytes of one file, and of all.
MAX_FILES = 2000
MAX_BYTES = 400_000
MAX_TOTAL = 20_000_000
#: The least number of arguments by which a call is known that does not name its class.
MIN_KEYWORDS = 3
_SUFFIXES = (".py", ".ipynb", ".md", ".rst")
CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_BLOCK = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_MAGIC = re.compile(r"^\s*[!%].*$", re.MULTILINE)


Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, the code around it, and its file."""

    node: ast.Call
    tree: ast.Module
    file: str


class Workspace:
    """The texts below a folder, the least nested first; each is read once for all searches.

    folder: "" for no texts.  but: a file that is left out.
    """

    def __init__(self, folder: str, but: str = "") -> None:
        self.folder, self.but = folder, but
        self._read: list[tuple[Path, bytes]] = []
        self._unread: Iterator[tuple[Path, bytes]] | None = None
        self._kept: dict[Any, Any] = {}

    def kept(self, key: Any, make: Callable[[], Kept]) -> Kept:
        """The cached value of a key, made by `make` at first."""
        if key not in self._kept:
            self._kept[key] = make()
        found: Kept = self._kept[key]
        return found

    def texts(self, suffixes: tuple[str, ...] = _SUFFIXES) -> Iterator[tuple[Path, bytes]]:
        """Files of these kinds, as far as the bounds of reading go."""
        at = 0
        while True:
            for path, text in self._read[at:]:
                at += 1
                if path.name.endswith(suffixes):
                    yield path, text
            if at == len(self._read) and not self._read_next():
                return

    def calls(self, name: str, home: str = "") -> Iterator[Call]:
        """Calls of the class or function `name`, which is defined in the file `home`, by default the one left out."""
        wanted = re.compile(rf"\b{re.escape(name)}((\.\w+)?\s*\(| as \w)".encode())
        # A class is known by its file's name or by those of the packages around it.
        defined = Path(home or self.but)
        known = {defined.stem, *defined.parent.parts[-3:]}
        plain = name.encode()
        for path, text in self.texts():
            if plain not in text or not wanted.search(text):
                continue
            note_read(path)
            for tree in _iterate_code_pieces(path, text.decode("utf-8", "replace"), name):
                if _is_meant_class(tree, name, known, defined, path.parent):
                    yield from (Call(call, tree, str(path)) for call in _find_class_calls(tree, name, known))

    def calls_by_keywords(self, name: str, known: Set[str], required: Set[str]) -> Iterator[Call]:
        """Calls that give what the class `name` takes, through a function or a table of classes: they name all that it
        requires, several of what it knows, and nothing else. They are written with the name of the class."""
        for path, text in self.texts((".py",)):
            if sum(word.encode() in text for word in known) < MIN_KEYWORDS or not all(
                word.encode() in text for word in required
            ):
                continue
            tree = parse_code(text.decode("utf-8", "replace"))
            for node in ast.walk(tree) if tree is not None else ():
                if isinstance(node, ast.Call) and len(node.args) < 2 and _makes_by_name(node.func):
                    given = {str(each.arg) for each in node.keywords}
                    if len(given) >= MIN_KEYWORDS and required <= given <= known:
                        note_read(path)
                        func = ast.copy_location(ast.Name(name, ast.Load()), node.func)
                        call = ast.copy_location(ast.Call(func, [], node.keywords), node)
                        yield Call(call, cast(ast.Module, tree), str(path))

    def _read_next(self) -> bool:
        if self._unread is None:
            self._unread = self._iterate_readable_files()
        with without_recording():  # files that were only searched are no dependencies, but those that are used are
            found = next(self._unread, None)
        if found is not None:
            self._read.append(found)
        return found is not None

    def _iterate_readable_files(self) -> Iterator[tuple[Path, bytes]]:
        total = 0
        files = files_below(self.folder, (*_SUFFIXES, *CONFIGURATIONS), self.but) if self.folder else ()
        for path in (Path(file.path) for file in itertools.islice(files, MAX_FILES)):
            text = _read_small_file(path)
            total += len(text or b"")
            if total > MAX_TOTAL:
                return
            if text is not None:
                yield path, text


def _makes_by_name(func: ast.expr) -> bool:
    """Does a call make what a name or a key says: `blocks.create(...)`, `MODELS[config.model](...)`?"""
    match func:
        case ast.Subscript():
            return True
        case ast.Name(id=called) | ast.Attribute(attr=called):
            return re.match(r"create|build|make|get|instantiate|init|load", called) is not None
    return False


def _is_meant_class(tree: ast.Module, name: str, known: set[str], defined: Path, folder: Path) -> bool:
    """Is the class of this name in some code the one of the file `defined`, in a `known` module, as far as its imports
    show? folder: of the code."""
    around = {defined.stem, *defined.parts}
    beside = folder / defined.name
    named, starred = list[bool](), list[bool]()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=own) if own == name:
                return False
            case ast.ImportFrom(module=str(module), names=names):
                parts = set(module.split("."))
                # A module of the same name in another package is another one.
                meant = bool(parts & known) and not (module.rpartition(".")[2] == defined.stem and parts - around)
                meant = meant and not (module == defined.stem and beside != defined and beside.is_file())
                meant = meant or (folder == defined.parent and _is_lost_sibling(module, folder, defined))
                named += [meant for each in names if each.name == name]
                starred += [meant for each in names if each.name == "*"]
    return any(named) or (not named and (any(starred) or not starred))


def _is_lost_sibling(module: str, folder: Path, defined: Path) -> bool:
    """Is a module that is not there likely a version of the file `defined` beside it: `model1` of `model_b`?"""
    stem = re.match(r"[a-z]{4,}", module)
    is_like = stem is not None and defined.stem.startswith(stem[0])
    return is_like and not (folder / f"{module}.py").is_file() and not (folder / module).is_dir()


def _read_small_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError:
        return None


def _iterate_code_pieces(path: Path, text: str, name: str) -> Iterator[ast.Module]:
    """The pieces of a file that are code and that mention the class."""
    pieces = (
        [text]
        if path.suffix == ".py"
        else _read_notebook_code(text)
        if path.suffix == ".ipynb"
        else _BLOCK.findall(text)
    )
    for piece in pieces:
        if name in piece and (tree := parse_code(piece)) is not None:
            yield tree
            if path.suffix == ".py":
                yield from _iterate_docstring_code(tree, name)


def _read_notebook_code(text: str) -> list[str]:
    """The code of a notebook, as one program."""
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return []
    return [_MAGIC.sub("", "\n".join(sources))]


@functools.lru_cache(maxsize=512)
def parse_code(code: str) -> ast.Module | None:
    """The syntax tree of code, also of that of a console; None if it has none."""
    code = textwrap.dedent(code)
    if re.search(r"^\s*>>> ", code, re.MULTILINE):
        lines = (re.match(r"\s*(?:>>>|\.\.\.) ?(.*)", line) for line in code.splitlines())
        code = "\n".join(line[1] for line in lines if line)
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def _iterate_docstring_code(tree: ast.Module, name: str) -> Iterator[ast.Module]:
    """The code in docstrings that mentions the class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            if name in text and ">>>" in text and (code := parse_code(text)) is not None:
                yield code


def examples_of(tree: ast.Module, name: str) -> Iterator[Call]:
    """Calls of the class in the docstrings of its own file."""
    for code in _iterate_docstring_code(tree, name):
        yield from (Call(call, code, "") for call in _find_class_calls(code, name))


def commented_calls(tree: ast.Module, path: str, name: str) -> Iterator[Call]:
    """Calls of the class in the comments of its own file, with the names of that file."""
    try:
        lines = decode_source(read_source(path)).splitlines() if path else []
    except (OSError, SyntaxError, ValueError):
        return
    for at, line in enumerate(lines):
        match = re.search(rf"#.*?(?<!class )(?<!def )\b({re.escape(name)}\(.*\))", line)
        node = _parse_call(match[1]) if match is not None else None
        if node is not None:
            yield Call(ast.increment_lineno(node, at), tree, path)


def _parse_call(text: str) -> ast.Call | None:
    """The call at the beginning of a text, up to the bracket that closes it."""
    for end in (at for at, letter in enumerate(text, 1) if letter == ")"):
        try:
            node = ast.parse(text[:end], mode="eval").body
        except (SyntaxError, ValueError):
            continue
        return node if isinstance(node, ast.Call) else None
    return None


def _find_class_calls(tree: ast.Module, name: str, known: Set[str] = frozenset()) -> Iterator[ast.Call]:
    """Calls of the class by its name; also as a member of a `known` module, which is then left out."""
    aliases = {
        alias.asname: alias.name.split(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    renamed = {given for given, parts in aliases.items() if parts == [name]}
    # A module that is chosen by its name may be any: `module = import_module("models." + name)`.
    loaded = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and loads_module(node.value)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called == name:
                yield node
            case ast.Call(func=ast.Name(id=called) as func) if called in renamed:
                yield _call_by_name(name, func, node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=called), attr=made)) if called == name != made:
                if re.match(r"from_|build|create|make", made):
                    yield node
            case ast.Call(func=ast.Attribute(value=holder, attr=called) as func):
                parts = [part for word in ast.unparse(holder).split(".") for part in aliases.get(word, [word])]
                if called == name and not (known.isdisjoint(parts) and loaded.isdisjoint(parts)):
                    yield _call_by_name(name, func, node)


def _call_by_name(name: str, func: ast.expr, node: ast.Call) -> ast.Call:
    """The same call with the class's own name."""
    if ast.unparse(func) == f"{name}.{name}":  # `unet.unet(unet.Block)`: a module of the same name has others too
        whole = ast.parse(re.sub(rf"\b{name}\.", "", ast.unparse(node)), mode="eval")
        return cast(ast.Call, ast.increment_lineno(whole, node.lineno - 1).body)
    plain = ast.copy_location(ast.Name(name, ast.Load()), func)
    return ast.copy_location(ast.Call(plain, node.args, node.keywords), node)


def loads_module(node: ast.expr) -> bool:
    """Is this `import_module("models." + name)`: a module of a computed name?"""
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    return name in ("import_module", "__import__")
