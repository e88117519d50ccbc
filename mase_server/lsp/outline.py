"""Find where a file mentions the layers of a class: the statement that creates `self.fc`, and every use of it."""

from __future__ import annotations

import ast
import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mase_server.daemon.discovery import WORTH, ElsewhereError, run_elsewhere
from mase_server.daemon.slots import iterate_in_slices

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Calls whose positional arguments become the layers `0`, `1`, ... of the result.
_SEQUENCES = frozenset({"Sequential"})
#: Maximum number of sources whose outline is kept.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Mention:
    """One place that refers to the attribute `name` (`fc`, or `fc.0`) of the class `owner`.

    Lines from 1, code points.
    """

    owner: str
    name: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The mentions in a file, in order, and its classes with the names of their bases."""

    mentions: tuple[Mention, ...] = ()
    bases: dict[str, frozenset[str]] = field(default_factory=dict)

    def class_and_heirs(self, owner: str) -> frozenset[str]:
        """A class and the classes of this file that inherit from it, by name."""
        found = {owner}
        while more := {name for name, bases in self.bases.items() if bases & found} - found:
            found |= more
        return frozenset(found)


_known: OrderedDict[str, Outline] = OrderedDict()
_underway: dict[str, asyncio.Task[None]] = {}


def get_outline(text: str) -> Outline:
    """The outline of a source; an empty one if it does not parse."""
    return _known[text] if text in _known else _remember_outline(text, _read_outline(text))


def is_at_hand(text: str) -> bool:
    """Is the outline available at once? Not for a big source before `prepare_outline`."""
    return len(text) < WORTH or text in _known


async def prepare_outline(text: str) -> None:
    """Compute the outline of a source without blocking the event loop."""
    if not is_at_hand(text):
        task = _underway.get(text)
        if task is None:
            task = _underway[text] = asyncio.create_task(_prepare_outline_task(text))
            task.add_done_callback(lambda _: _underway.pop(text, None))
        await asyncio.shield(task)


async def _prepare_outline_task(text: str) -> None:
    try:
        told = await run_elsewhere(__name__, "outlined", text.encode("utf-8", "surrogatepass"))
        found = await asyncio.to_thread(json.loads, told)
    except ElsewhereError:
        _remember_outline(text, await asyncio.to_thread(_read_outline, text))
        return
    mentions = [Mention(*each) async for each in iterate_in_slices(found["mentions"])]
    _remember_outline(
        text, Outline(tuple(mentions), {name: frozenset(bases) for name, bases in found["bases"].items()})
    )


def outlined(source: bytes) -> bytes:
    """The outline as JSON: {"mentions": [the fields of each], "bases"}."""
    found = _read_outline(source.decode("utf-8", "surrogatepass"))
    mentions = [[getattr(each, name) for name in Mention.__slots__] for each in found.mentions]
    return json.dumps(
        {"mentions": mentions, "bases": {name: list(each) for name, each in found.bases.items()}}
    ).encode()


def _remember_outline(text: str, found: Outline) -> Outline:
    _known[text] = found
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return found


def _read_outline(text: str) -> Outline:
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
                yield Mention(owner.name, name, *_node_extent(node, lines))


def _spoken_of(function: ast.AST, own: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in filter(None, (_own_attribute_name(target, own) for target in targets)):
                yield node, name
                yield from _sequential_elements(node.value, name)
        elif isinstance(node, ast.Call | ast.Attribute):
            name = _own_attribute_name(node.func if isinstance(node, ast.Call) else node, own)
            if name:
                yield node, name


def _sequential_elements(value: ast.expr | None, name: str) -> Iterator[tuple[ast.expr, str]]:
    """The layers inside `nn.Sequential(...)`, at any depth."""
    if isinstance(value, ast.Call) and _last_name(value.func) in _SEQUENCES:
        for index, each in enumerate(value.args):
            if isinstance(each, ast.Starred):
                return
            yield each, f"{name}.{index}"
            yield from _sequential_elements(each, f"{name}.{index}")


def _own_attribute_name(node: ast.expr, own: str) -> str:
    """`fc` for `self.fc`, else ""."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own
    return node.attr if mine and isinstance(node, ast.Attribute) else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _node_extent(node: ast.expr | ast.stmt, lines: list[str]) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = _code_points(lines[node.lineno - 1], node.col_offset)
    return node.lineno, start, node.end_lineno, _code_points(lines[node.end_lineno - 1], node.end_col_offset)


def _code_points(line: str, offset: int) -> int:
    """Convert a column of the syntax tree, which counts bytes of UTF-8."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))
