"""Where a file speaks of the layers of a class: the statement that makes `self.fc`, and every use of it."""

from __future__ import annotations

import ast
import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mase_server.daemon.elsewhere import WORTH, ElsewhereError, elsewhere
from mase_server.daemon.slices import sliced

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Calls whose positional arguments are layers `0`, `1`, ... of what they make.
_SEQUENCES = frozenset({"Sequential"})
#: Sources whose outline is kept.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Mention:
    """One place that means the attribute `name` (`fc`, or `fc.0`) of the class `owner`. Lines from 1, code points."""

    owner: str
    name: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The mentions of a file in the order found, and its classes with the names of their bases."""

    mentions: tuple[Mention, ...] = ()
    bases: dict[str, frozenset[str]] = field(default_factory=dict)

    def kin(self, owner: str) -> frozenset[str]:
        """A class and those that inherit from it in this file, by name."""
        found = {owner}
        while more := {name for name, bases in self.bases.items() if bases & found} - found:
            found |= more
        return frozenset(found)


_known: OrderedDict[str, Outline] = OrderedDict()
_underway: dict[str, asyncio.Task[None]] = {}


def outline(text: str) -> Outline:
    """The outline of a source; an empty one of what does not parse."""
    return _known[text] if text in _known else _remember(text, _read(text))


def is_at_hand(text: str) -> bool:
    """Does `outline` answer at once? Not of a big source that `prepare` was not asked for."""
    return len(text) < WORTH or text in _known


async def prepare(text: str) -> None:
    """Have `outline` know the source without holding up anybody."""
    if not is_at_hand(text):
        task = _underway.get(text)
        if task is None:
            task = _underway[text] = asyncio.create_task(_prepare(text))
            task.add_done_callback(lambda _: _underway.pop(text, None))
        await asyncio.shield(task)


async def _prepare(text: str) -> None:
    try:
        told = await elsewhere(__name__, "outlined", text.encode("utf-8", "surrogatepass"))
        found = await asyncio.to_thread(json.loads, told)
    except ElsewhereError:
        _remember(text, await asyncio.to_thread(_read, text))
        return
    mentions = [Mention(*each) async for each in sliced(found["mentions"])]
    _remember(text, Outline(tuple(mentions), {name: frozenset(bases) for name, bases in found["bases"].items()}))


def outlined(source: bytes) -> bytes:
    """`outline` as JSON: {"mentions": [the fields of each], "bases"}."""
    found = _read(source.decode("utf-8", "surrogatepass"))
    mentions = [[getattr(each, name) for name in Mention.__slots__] for each in found.mentions]
    return json.dumps(
        {"mentions": mentions, "bases": {name: list(each) for name, each in found.bases.items()}}
    ).encode()


def _remember(text: str, found: Outline) -> Outline:
    _known[text] = found
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return found


def _read(text: str) -> Outline:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Outline()
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    lines = text.split("\n")
    mentions = [mention for node in classes for mention in _of_class(node, lines)]
    return Outline(tuple(mentions), {node.name: frozenset(map(_last_name, node.bases)) for node in classes})


def _of_class(owner: ast.ClassDef, lines: list[str]) -> Iterator[Mention]:
    for function in owner.body:
        if isinstance(function, _FUNCTIONS) and (given := [*function.args.posonlyargs, *function.args.args]):
            for node, name in _spoken_of(function, given[0].arg):
                yield Mention(owner.name, name, *_extent(node, lines))


def _spoken_of(function: ast.AST, own: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in filter(None, (_attribute(target, own) for target in targets)):
                yield node, name
                yield from _elements(node.value, name)
        elif isinstance(node, ast.Call | ast.Attribute):
            name = _attribute(node.func if isinstance(node, ast.Call) else node, own)
            if name:
                yield node, name


def _elements(value: ast.expr | None, name: str) -> Iterator[tuple[ast.expr, str]]:
    """The layers inside of `nn.Sequential(...)`, however deep."""
    if isinstance(value, ast.Call) and _last_name(value.func) in _SEQUENCES:
        for index, each in enumerate(value.args):
            if isinstance(each, ast.Starred):
                return
            yield each, f"{name}.{index}"
            yield from _elements(each, f"{name}.{index}")


def _attribute(node: ast.expr, own: str) -> str:
    """`fc` of `self.fc`, else nothing."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own
    return node.attr if mine and isinstance(node, ast.Attribute) else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _extent(node: ast.expr | ast.stmt, lines: list[str]) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = _code_points(lines[node.lineno - 1], node.col_offset)
    return node.lineno, start, node.end_lineno, _code_points(lines[node.end_lineno - 1], node.end_col_offset)


def _code_points(line: str, offset: int) -> int:
    """A column of the syntax tree, which counts bytes of UTF-8."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))
