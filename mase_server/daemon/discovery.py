"""Does a file define or build an nn.Module? Decided from its syntax tree alone; nothing of it runs."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import os
import re
import tokenize
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from mase_server import notebooks
from mase_server.daemon.elsewhere import WORTH, ElsewhereError, elsewhere
from mase_server.snapshot import Problem

_BIG = 8 << 10
_CACHED = 256
_COMMENT = re.compile(rb"#\s*mase\s*(\[[^\]]*\])?:")
_MODULE_BASES = frozenset({"Module", "LightningModule", "PreTrainedModel", "GraphModule"})
_BUILDERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "create_model"})
_HUGGING_FACE = re.compile(r"^(AutoModel\w*|[A-Z]\w*(Model|For[A-Z]\w*|LMHeadModel))$")
_AGAIN = "The file is traced again as soon as it can be read."
_NO_NOTEBOOK = f"This is no notebook of format 4: it has no cells that can be read. {_AGAIN}"
_LIBRARIES = ("torch", "transformers", "torchvision", "timm", "diffusers", "lightning", "pytorch_lightning")


@dataclass(frozen=True, slots=True)
class Discovery:
    """What the syntax tree says: is there a model, or is it no Python (`problem`)?"""

    has_model: bool
    problem: Problem | None = None


class Discoverer:
    """Answers by content hash; big files are parsed off the event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Discovery] = OrderedDict()

    async def discover(self, path: str, source: bytes, sha256: str) -> Discovery:
        """The discovery of `source`, whose hash is `sha256`."""
        key = (path, sha256)
        if key not in self._known:
            self._known[key] = await _discovered(path, source)
        self._known.move_to_end(key)
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return self._known[key]


async def _discovered(path: str, source: bytes) -> Discovery:
    if len(source) < _BIG:
        return discover(path, source)
    if len(source) >= WORTH:
        with contextlib.suppress(ElsewhereError):
            asked = os.fsencode(path) + b"\0" + source
            told = json.loads(await elsewhere(__name__, "discovered", asked))
            return Discovery(told["has_model"], Problem(**told["problem"]) if told["problem"] else None)
    return await asyncio.to_thread(discover, path, source)


def discovered(asked: bytes) -> bytes:
    """`discover` as JSON, of a path, a zero byte, and the source."""
    path, _, source = asked.partition(b"\0")
    return json.dumps(asdict(discover(os.fsdecode(path), source))).encode()


def discover(path: str, source: bytes) -> Discovery:
    """Parse `source`; a syntax error is a Problem at its place, but in a notebook, whose other cells run without it."""
    if notebooks.is_notebook(path):
        if not notebooks.is_script(source):
            return Discovery(False, Problem(path, 1, 0, 2, 0, "error", "not-text", _NO_NOTEBOOK))
        source = notebooks.runnable(source.decode()).encode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Parsed as text, because of bytes Python tells the columns of errors in bytes.
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            tree = ast.parse(source.decode(encoding), path)
    except SyntaxError as error:
        return Discovery(False, _unreadable(path, source) or _syntax_problem(path, error))
    except (ValueError, RecursionError, MemoryError) as error:
        text = f"This file cannot be parsed: {str(error).rstrip('.')}. {_AGAIN}"
        return Discovery(False, _unreadable(path, source) or Problem(path, 1, 0, 2, 0, "error", "syntax-error", text))
    return Discovery(_marked(source) or _File(tree).has_model())


def _unreadable(path: str, source: bytes) -> Problem | None:
    """Why these bytes are no Python text, at the first that is not; None if they are."""
    if b"\0" in source:
        return Problem(path, 1, 0, 2, 0, "error", "not-text", f"This is no text but a binary file. {_AGAIN}")
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
        return _undecodable(path, source, error)
    return None


def _undecodable(path: str, source: bytes, error: UnicodeDecodeError) -> Problem:
    line = source.count(b"\n", 0, error.start) + 1
    before = source[source.rfind(b"\n", 0, error.start) + 1 : error.start].decode(error.encoding, "replace")
    text = (
        f"The byte 0x{source[error.start]:02x} here is no {error.encoding.upper()}. "
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


def _marked(source: bytes) -> bool:
    if not _COMMENT.search(source):
        return False
    try:
        tokens = tokenize.tokenize(io.BytesIO(source).readline)
        return any(one.type == tokenize.COMMENT and _COMMENT.match(one.string.encode()) for one in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


class _File:
    """One syntax tree, and where its imported names come from."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._origins = dict(self._imports())

    def has_model(self) -> bool:
        """Does any class or call in it make a module?"""
        if not self._origins:
            return False
        return any(
            self._defines(node) if isinstance(node, ast.ClassDef) else self._builds(node)
            for node in self._nodes
            if isinstance(node, ast.ClassDef | ast.Call)
        )

    def _imports(self) -> Iterator[tuple[str, str]]:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    yield name, alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"

    def _origin(self, expression: ast.expr) -> str:
        """The dotted origin of a name such as `nn.Module`: "torch.nn.Module"; "" where it is not imported."""
        parts: list[str] = []
        while isinstance(expression, ast.Attribute):
            parts.append(expression.attr)
            expression = expression.value
        if isinstance(expression, ast.Subscript):
            return self._origin(expression.value)
        if not isinstance(expression, ast.Name) or expression.id not in self._origins:
            return ""
        return ".".join([self._origins[expression.id], *reversed(parts)])

    def _defines(self, node: ast.ClassDef) -> bool:
        origins = [self._origin(base) for base in node.bases]
        if any(_is_module_class(origin) for origin in origins):
            return True
        # A base from another file of the workspace may be anything; a `forward` beside it tells.
        methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        return "forward" in methods and any(origins)

    def _builds(self, call: ast.Call) -> bool:
        origin = self._origin(call.func)
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
