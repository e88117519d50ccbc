"""Decide from syntax trees alone whether a file defines or builds an nn.Module. No code of the file runs.

A script may import its model's class, or the function that builds it, from another file of the workspace: the names
that it calls are followed there. The same look tells which code would run if the file were imported, so that a text
that somebody is typing runs no statement that was not saved, see `tell_module_code`.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tokenize
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from mase_server import notebooks
from mase_server.daemon.environment import project_of
from mase_server.daemon.tracked import read_source
from mase_server.programs import own_code
from mase_server.protocol.snapshot import Problem

# Process big texts in a short-lived process of our own, because Python's parser blocks all threads until it is done.
#
# Ten thousand lines take the parser a tenth of a second. That process only parses; it runs no user code.

#: Texts of at least so many characters or bytes are parsed in another process.
WORTH = 64 << 10
_ROOT = str(Path(__file__).parents[2])
_CODE = (
    "import sys; sys.path.insert(0, {root!r}); from {module} import {function}; "
    "sys.stdout.buffer.write({function}(sys.stdin.buffer.read()))"
)


class ElsewhereError(Exception):
    """The process could not be started or failed; the caller may do the same work in this process."""


async def run_elsewhere(module: str, function: str, data: bytes) -> bytes:
    """Run `function`, which takes and returns bytes, from a module of this project on `data`. ElsewhereError."""
    code = _CODE.format(root=_ROOT, module=module, function=function)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await own_code(code).start_async(stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    except OSError as error:
        raise ElsewhereError(str(error)) from error
    try:
        found, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise ElsewhereError(f"{module}.{function} ended with {process.returncode}")
    return found


#: Texts of at least so many bytes are looked at in a thread: a few milliseconds would be a long turn of the loop.
_BIG = 2 << 10
_CACHED = 256
_COMMENT = re.compile(rb"#\s*mase\s*(\[[^\]]*\])?:")
_MODULE_BASES = frozenset({"Module", "LightningModule", "PreTrainedModel", "GraphModule"})
_BUILDERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "create_model"})
_HUGGING_FACE = re.compile(r"^(AutoModel\w*|[A-Z]\w*(Model|For[A-Z]\w*|LMHeadModel))$")
_AGAIN = "The file is traced again as soon as it can be read."
_NO_NOTEBOOK = f"This is not a notebook of format 4: it has no readable cells. {_AGAIN}"
#: A statement that imports a library of models.
NAMES_LIBRARY = re.compile(
    rb"^\s*(import|from)\s+(torch|transformers|lightning|pytorch_lightning|timm)\b", re.MULTILINE
)
_LIBRARIES = ("torch", "transformers", "torchvision", "timm", "diffusers", "lightning", "pytorch_lightning")
_OF_NO_WORKSPACE = frozenset({*_LIBRARIES, *sys.stdlib_module_names})
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | _Function


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of looking at the syntax tree: is there a model? `problem`: why it is not valid Python, or None.

    broken: the number of cells of a notebook that are not valid Python.  module_code: a hash of `tell_module_code`.
    calls: if there is no model, the dotted names that the file imports and calls when it runs, see `follow_calls`.
    """

    has_model: bool
    problem: Problem | None = None
    broken: int = 0
    module_code: str = ""
    calls: tuple[str, ...] = ()


class Discoverer:
    """Answers by content hash; big files are parsed off the event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Discovery] = OrderedDict()

    async def discover(self, path: str, source: bytes, sha256: str) -> Discovery:
        """The discovery of `source`, whose hash is `sha256`."""
        key = (path, sha256)
        if key not in self._known:
            self._known[key] = await _discover_without_blocking(path, source)
        self._known.move_to_end(key)
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)
        found = self._known[key]
        builds_imported = bool(found.calls) and await asyncio.to_thread(follow_calls, path, found.calls)
        return replace(found, has_model=True) if builds_imported else found


async def _discover_without_blocking(path: str, source: bytes) -> Discovery:
    if len(source) < _BIG:
        return discover_model(path, source)
    if len(source) >= WORTH:
        with contextlib.suppress(ElsewhereError):
            asked = os.fsencode(path) + b"\0" + source
            told = json.loads(await run_elsewhere(__name__, "discovered", asked))
            problem = Problem(**told["problem"]) if told["problem"] else None
            return Discovery(**told | {"problem": problem, "calls": tuple(told["calls"])})
    return await asyncio.to_thread(discover_model, path, source)


def discovered(asked: bytes) -> bytes:
    """`discover` for another process: takes a path, a zero byte and the source, returns JSON."""
    path, _, source = asked.partition(b"\0")
    return json.dumps(asdict(discover_model(os.fsdecode(path), source))).encode()


def discover_model(path: str, source: bytes) -> Discovery:
    """Parse `source`. A syntax error is a Problem at its place, except in a notebook, whose other cells still run.

    No other file is read: `follow_calls` looks for models that `source` imports.
    """
    broken = 0
    if notebooks.is_notebook(path):
        if not notebooks.is_script(source):
            return Discovery(False, Problem(path, 1, 0, 2, 0, "error", "not-text", _NO_NOTEBOOK))
        broken = sum(1 for _ in notebooks.cell_errors(source.decode()))
        source = notebooks.runnable_python(source.decode()).encode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Parse decoded text: from bytes, Python reports the columns of errors in bytes.
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            tree = ast.parse(source.decode(encoding), path)
    except SyntaxError as error:
        return Discovery(False, _find_text_problem(path, source) or _syntax_problem(path, error))
    except (ValueError, RecursionError, MemoryError) as error:
        text = f"This file cannot be parsed: {str(error).rstrip('.')}. {_AGAIN}"
        return Discovery(
            False, _find_text_problem(path, source) or Problem(path, 1, 0, 2, 0, "error", "syntax-error", text)
        )
    file, module_code = _File(tree), hashlib.sha256(tell_module_code(tree).encode()).hexdigest()
    if _has_mase_comment(source) or file.has_model():
        return Discovery(True, None, broken, module_code)
    return Discovery(False, None, broken, module_code, tuple(file.find_origins(_iterate_running_calls(tree)) or ()))


def _find_text_problem(path: str, source: bytes) -> Problem | None:
    """The problem at the first byte that is not valid text; None if all are."""
    if b"\0" in source:
        return Problem(path, 1, 0, 2, 0, "error", "not-text", f"This is a binary file, not text. {_AGAIN}")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except SyntaxError as error:
        unknown = str(error.msg).partition("unknown encoding: ")[2]
        if unknown:
            text = f"Python knows no encoding {unknown!r}. Name another one in this line, or save the file as UTF-8."
            return Problem(path, 1, 0, 2, 0, "error", "unknown-encoding", text)
        encoding = "utf-8"
    try:
        source.decode(encoding)
    except UnicodeDecodeError as error:
        return _make_encoding_problem(path, source, error)
    return None


def _make_encoding_problem(path: str, source: bytes, error: UnicodeDecodeError) -> Problem:
    line = source.count(b"\n", 0, error.start) + 1
    before = source[source.rfind(b"\n", 0, error.start) + 1 : error.start].decode(error.encoding, "replace")
    text = (
        f"The byte 0x{source[error.start]:02x} here is not valid {error.encoding.upper()}. "
        "Save the file as UTF-8, or name its encoding in the first line: `# -*- coding: latin-1 -*-`."
    )
    return Problem(path, line, len(before), line, len(before) + 1, "error", "unknown-encoding", text)


def _syntax_problem(path: str, error: SyntaxError) -> Problem:
    line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
    end_line = max(error.end_lineno or line, line)
    end_column = (error.end_offset or 0) - 1
    if (end_line, end_column) <= (line, column):
        end_line, end_column = line, column + 1
    text = f"{type(error).__name__}: {error.msg.rstrip('.')}. {_AGAIN}"
    return Problem(path, line, column, end_line, end_column, "error", "syntax-error", text)


def _has_mase_comment(source: bytes) -> bool:
    if not _COMMENT.search(source):
        return False
    try:
        tokens = tokenize.tokenize(io.BytesIO(source).readline)
        return any(one.type == tokenize.COMMENT and _COMMENT.match(one.string.encode()) for one in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


class _File:
    """One syntax tree, and the origins of its imported names."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._origins = dict(self._iterate_imports())
        self._defined = {each.name: each for each in self._nodes if isinstance(each, _Definition)}
        self._own = {*dir(builtins), *self._defined}

    def has_model(self) -> bool:
        """Does any class or call in it create a module?"""
        if not self._origins:
            return False
        return any(
            self._is_module_definition(node) if isinstance(node, ast.ClassDef) else self._is_module_call(node)
            for node in self._nodes
            if isinstance(node, ast.ClassDef | ast.Call)
        )

    def find_origins(self, expressions: Iterable[ast.expr]) -> list[str] | None:
        """The dotted names outside this file that decide whether one of some classes or functions makes a module.

        None: one of them does so here. Classes are followed to their bases, functions to what they call.
        """
        waiting, found, seen = list(expressions), dict[str, None](), set[str]()
        while waiting:
            expression = waiting.pop(0)
            origin = self._resolve_origin(expression)
            if origin:
                if origin.partition(".")[0] not in _OF_NO_WORKSPACE:
                    found[origin] = None
                continue
            while isinstance(expression, ast.Attribute):
                expression = expression.value
            name = expression.id if isinstance(expression, ast.Name) else ""
            node = self._defined.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            if isinstance(node, ast.ClassDef):
                if self._is_module_definition(node):
                    return None
                waiting += node.bases
            else:
                calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
                if any(map(self._is_module_call, calls)):
                    return None
                waiting += [call.func for call in calls]
        return list(found)

    def _iterate_imports(self) -> Iterator[tuple[str, str]]:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    yield name, alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"

    def _resolve_origin(self, expression: ast.expr) -> str:
        """The dotted origin of a name such as `nn.Module`: "torch.nn.Module"; "" if it is not imported."""
        parts: list[str] = []
        while isinstance(expression, ast.Attribute):
            parts.append(expression.attr)
            expression = expression.value
        if isinstance(expression, ast.Subscript):
            return self._resolve_origin(expression.value)
        if not isinstance(expression, ast.Name):
            return ""
        # `from .parts import *` may bring any name that the file uses and does not define.
        star = "" if expression.id in self._own else self._origins.get("*", "").replace("*", expression.id)
        origin = self._origins.get(expression.id, star)
        return ".".join([origin, *reversed(parts)]) if origin else ""

    def _is_module_definition(self, node: ast.ClassDef) -> bool:
        origins = [self._resolve_origin(base) for base in node.bases]
        if any(_is_module_class(origin) for origin in origins):
            return True
        # A base class from another file of the workspace may be anything; a `forward` method decides.
        methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        return "forward" in methods and any(origins)

    def _is_module_call(self, call: ast.Call) -> bool:
        origin = self._resolve_origin(call.func)
        if origin.partition(".")[0] not in _LIBRARIES:
            return False
        names = origin.split(".")
        made = names[-2] if names[-1] in ("from_config", "from_pretrained") and len(names) > 1 else names[-1]
        if origin.startswith("torch.nn.") and not origin.startswith(("torch.nn.functional", "torch.nn.init")):
            return made in _BUILDERS or (made[:1].isupper() and made not in ("Parameter", "Buffer"))
        return bool(made in _BUILDERS or _HUGGING_FACE.match(made) or ".models." in origin)


def _is_module_class(origin: str) -> bool:
    names = origin.split(".")
    if names[-1] in _MODULE_BASES:
        return True
    return names[0] in _LIBRARIES and (origin.startswith("torch.nn.") or _HUGGING_FACE.match(names[-1]) is not None)


# Following the names that a script imports and calls to the files of the workspace that define them.

#: The most names that are looked up for one text.
_MOST_NAMES = 60


def follow_calls(path: str, calls: Iterable[str]) -> bool:
    """Does one of the dotted names that a file imports and calls make a module, as other files of the workspace say?

    A file that is no valid Python at the moment may define what is asked of it, and the trace tells its error. So may
    a big one, which is not parsed here: its trace finds out.
    """
    try:
        return _leads_to_module([(Path(path), origin) for origin in calls])
    finally:
        _parse_file.cache_clear()  # trees are large, and each name's answer is kept


def _leads_to_module(waiting: list[tuple[Path, str]]) -> bool:
    """Does one of these names, each in the file that imports it, make a module?"""
    seen = set[tuple[Path, str]]()
    while waiting and len(seen) < _MOST_NAMES:
        importing, origin = waiting.pop(0)
        for file, name in _locate_name(importing, origin):
            if (file, name) in seen:
                continue
            seen.add((file, name))
            with contextlib.suppress(OSError):
                status = file.stat()
                further = _look_up_name(str(file), (status.st_mtime_ns, status.st_size, status.st_ino), name)
                if further is None:
                    return True
                waiting += [(file, each) for each in further]
    return False


@lru_cache(maxsize=1024)
def _look_up_name(path: str, signature: tuple[int, ...], name: str) -> list[str] | None:
    """The names outside a file that decide whether `name` in it makes a module; None: it does, or may.

    signature: what changes when the file does.
    """
    file = _parse_file(path, signature)
    if isinstance(file, bytes):
        return None if re.search(rf"^(class|def) {name}\b".encode(), file, re.MULTILINE) else []
    return file.find_origins([ast.Name(name)])


@lru_cache(maxsize=16)
def _parse_file(path: str, signature: tuple[int, ...]) -> _File | bytes:
    """A file's syntax tree; the text of one that is too big or no valid Python, if it imports a library of models."""
    source = read_source(path)
    if source is None or source.unreadable:
        return b""
    if len(source.data) < WORTH:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _File(ast.parse(source.data, path))
    return source.data if NAMES_LIBRARY.search(source.data) else b""


def _locate_name(path: Path, origin: str) -> Iterator[tuple[Path, str]]:
    """The files that may define the dotted name `origin` of the file `path`, each with the name that it has there."""
    dotted = origin.lstrip(".")
    level, parts = len(origin) - len(dotted), dotted.split(".")
    for root in _list_roots(path) if level == 0 else path.parents[level - 1 : level]:
        here = root
        for number, part in enumerate(parts):
            inside, module = here / part, here / f"{part}.py"
            if module.is_file() and not (inside / "__init__.py").is_file():
                yield (module, parts[number + 1]) if parts[number + 1 :] else (here / "__init__.py", part)
                break
            if not inside.is_dir():
                if number > 0 or level:
                    yield here / "__init__.py", part
                break
            here = inside


def _list_roots(path: Path) -> list[Path]:
    """The folders in which a file's imports look for modules of the workspace."""
    package = path.parent
    while (package / "__init__.py").is_file() and package != package.parent:
        package = package.parent
    project = Path(project_of(str(path)))
    return list(dict.fromkeys([path.parent, package, project, project / "src"]))


def _iterate_running_calls(tree: ast.Module) -> Iterator[ast.expr]:
    """The callees of the calls that run when the file is run as a program."""
    nodes = list(ast.walk(tree))
    tests = (inner for each in nodes if isinstance(each, ast.If) for inner in ast.walk(each.test))
    if not any(isinstance(each, ast.Name) and each.id == "__name__" for each in tests):
        nodes, waiting = [], list[ast.AST](tree.body)
        while waiting:
            node = waiting.pop()
            if not isinstance(node, _Definition):
                nodes.append(node)
                waiting += ast.iter_child_nodes(node)
    yield from (node.func for node in nodes if isinstance(node, ast.Call))


# The code of a file that runs when it is imported, or started: what no text runs while it is being typed.
#
# A function's body does not run then, and neither does what cannot do anything: a class or a function without
# decorators whose bases, default values and annotations are made of names and constants, and an assignment of such a
# value in a class. So these can be typed, renamed and moved. All other statements can do something, and count.

_INERT = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp,
    ast.BinOp, ast.Starred, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.arguments, ast.arg,
)  # fmt: skip


def tell_module_code(tree: ast.Module) -> str:
    """The code of a file that runs when it is imported, as a text that is the same for the same code."""
    return "\n".join(_iterate_running_code(tree.body, in_class=False))


def _iterate_running_code(body: list[ast.stmt], *, in_class: bool) -> Iterator[str]:
    for node in body:
        if isinstance(node, _Function):
            if node.decorator_list or not _is_inert(node.args) or not (node.returns is None or _is_inert(node.returns)):
                yield f"def {node.name}: {_dump(*node.decorator_list, node.args, node.returns)}"
        elif isinstance(node, ast.ClassDef):
            if node.decorator_list or not all(map(_is_inert, (*node.bases, *node.keywords))):
                yield f"class {node.name}: {_dump(*node.decorator_list, *node.bases, *node.keywords)}"
            yield from _iterate_running_code(node.body, in_class=True)
        elif not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            inner = [(name, part) for name, part in ast.iter_fields(node) if _holds_statements(part)]
            if inner:
                kept = {name for name, _ in inner}
                yield type(node).__name__ + _dump(*(part for name, part in ast.iter_fields(node) if name not in kept))
                for name, part in inner:
                    yield name
                    yield from _iterate_parts(part, in_class=in_class)
            elif not (in_class and isinstance(node, ast.Assign | ast.AnnAssign) and _is_inert_assignment(node)):
                yield _dump(node)


def _iterate_parts(parts: list[ast.AST], *, in_class: bool) -> Iterator[str]:
    """The running code of a compound statement's block, or of its handlers or cases."""
    for part in parts:
        if isinstance(part, ast.stmt):
            yield from _iterate_running_code([part], in_class=in_class)
            continue
        yield _dump(*(field for name, field in ast.iter_fields(part) if name != "body"))
        yield from _iterate_running_code(part.body, in_class=in_class)  # type: ignore[attr-defined]


def _holds_statements(part: object) -> bool:
    return isinstance(part, list) and any(
        isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case) for each in part
    )


def _is_inert_assignment(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    annotation = [node.annotation] if isinstance(node, ast.AnnAssign) else []
    values = [] if node.value is None else [node.value]
    return all(isinstance(each, ast.Name) for each in targets) and all(map(_is_inert, (*annotation, *values)))


def _is_inert(node: ast.AST) -> bool:
    """Is an expression made of names and constants only, so that computing it does nothing else?"""
    return all(isinstance(each, _INERT) for each in ast.walk(node))


def _dump(*parts: object) -> str:
    return " ".join(
        ast.dump(each) if isinstance(each, ast.AST) else repr(each) for part in parts for each in _listed(part)
    )


def _listed(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]
