"""What the cursor or the selection is on, as a pass sees it: a model, all modules of a class, layers, operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.encoding import from_units
from mase_server.lsp.figures import counted
from mase_server.lsp.outline import Mention, Outline, outline

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: Most models of one class that are each offered.
MOST_MODELS = 3
_HIDDEN = frozenset({"placeholder", "output", "get_attr"})

Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """What passes are offered for. path: the model file.  model: a title.  name: as a menu says it.

    only: names of nodes and paths of modules; empty for the whole model.
    """

    path: str
    model: str
    name: str
    only: tuple[str, ...] = ()


def targets(ls: Server, page: Page, place: lsp.Range) -> list[Target]:
    """What the range is on: the models or the modules of the class on its line, else the layers of its lines."""
    found = [
        Target(model.snapshot.path, model.title, model.title)
        for model in page.view.models()
        if (at := page.range(model)) is not None and on_lines(at, place)
    ]
    if found:
        picked = [target for target in found if target.model == page.view.picked]
        return (picked or found)[:MOST_MODELS]
    spots = [_Spot(page, place, snapshot, model) for snapshot, model in _models(ls, page)]
    return next(([target] for spot in spots if (target := spot.of_class() or spot.of_lines()) is not None), [])


def _models(ls: Server, page: Page) -> list[tuple[GraphSnapshot, int]]:
    """The models that run code of this file, the picked one first, those shown for want of better last."""
    snapshots = [one for one in ls.daemon.store.snapshots() if one.sha256_of(page.document.path) == page.traced]
    found = [(one, index) for one in snapshots for index in range(len(one.titles))]
    return sorted(found, key=lambda each: _rank(page, *each))


def _rank(page: Page, snapshot: GraphSnapshot, model: int) -> tuple[bool, bool, bool]:
    rest = bool(snapshot.payload["models"][model].get("rest"))
    return snapshot.titles[model] != page.view.picked, rest, snapshot.path != page.document.path


@dataclass(frozen=True, slots=True)
class _Spot:
    """A range of a page, for one model of a snapshot."""

    page: Page
    place: lsp.Range
    snapshot: GraphSnapshot
    model: int

    def target(self, name: str, only: Sequence[str]) -> Target | None:
        """A target of these nodes and paths; None without any."""
        unique = tuple(dict.fromkeys(only))
        return Target(self.snapshot.path, self.snapshot.titles[self.model], name, unique) if unique else None

    def of_class(self) -> Target | None:
        """All modules of the class on whose line the range is."""
        payload, file = self.snapshot.payload, self.snapshot.files[self.page.document.path]
        for each in payload["classes"]:
            at = self.page.place_of(each) if each["file_index"] == file else None
            if at is not None and on_lines(at, self.place):
                scopes = payload["scopes"]
                known = _known_paths(self.snapshot, self.model)
                paths = [path for model, path, kind in scopes if model == self.model and kind == each["name"]]
                paths = [path for path in paths if path in known]
                return self.target(_several(each["name"], len(paths), "module"), paths)
        return None

    def of_lines(self) -> Target | None:
        """The layers that the lines make or use, and the other operations on them; at a cursor, the innermost."""
        first, last = self._traced_lines()
        if first is None or last is None:
            return None
        file = outline(self.page.alignment.traced_text)
        known = _known_paths(self.snapshot, self.model)
        layers = [(each, self._paths(each, file, known)) for each in file.mentions if _on(each, first, last)]
        nodes = [(node, _place(self.snapshot, node)) for node in self._nodes(first, last)]
        if self.place.start != self.place.end:
            only = [*(path for _, paths in layers for path in paths), *(self._name(node) for node, _ in nodes)]
            covered = _outermost(only)
            return self.target(f"the selection ({counted(len(covered), 'part')})", covered)
        return self._innermost(layers, nodes)

    def _innermost(
        self, layers: Sequence[tuple[Mention, list[str]]], nodes: Sequence[tuple[int, tuple[Point, Point]]]
    ) -> Target | None:
        point = self._point()
        spoken = [(_extent(mention), mention.name, paths) for mention, paths in layers if paths]
        here = [each for each in spoken if _covers(each[0], point)]
        operations = [each for each in nodes if _covers(each[1], point) and self._is_operation(each[0])]
        smallest = min((_size(extent) for extent, *_ in here), default=None)
        inner = min((_size(extent) for _, extent in operations), default=None)
        if smallest is not None and (inner is None or smallest <= inner):
            return self._layer(next(each for each in here if _size(each[0]) == smallest))
        if inner is not None:
            names = [self._name(node) for node, extent in operations if _size(extent) == inner]
            kind = next(self._operator(node) for node, extent in operations if _size(extent) == inner)
            return self.target(_several(kind, len(names), "operation"), names)
        if spoken:
            names = list(dict.fromkeys(name for _, name, _ in spoken))
            if len(names) == 1:
                return self._layer(spoken[0])
        only = _outermost([*(path for *_, paths in spoken for path in paths), *(self._name(node) for node, _ in nodes)])
        return self.target(f"this line ({counted(len(only), 'part')})", only)

    def _layer(self, spoken: tuple[tuple[Point, Point], str, list[str]]) -> Target | None:
        _, name, paths = spoken
        return self.target(_several(f"layer {name}", len(paths), "layer"), paths)

    def _paths(self, mention: Mention, file: Outline, known: frozenset[str]) -> list[str]:
        """The paths of the modules that a mention means, in every module of its class."""
        kin = file.kin(mention.owner)
        scopes = (path for model, path, kind in self.snapshot.payload["scopes"] if model == self.model and kind in kin)
        candidates = (f"{path}.{mention.name}" if path else mention.name for path in scopes)
        return [path for path in candidates if path in known]

    def _nodes(self, first: int, last: int) -> Iterator[int]:
        nodes, file = self.snapshot.payload["nodes"], self.snapshot.files[self.page.document.path]
        rows = zip(nodes["file"], nodes["line"], nodes["end_line"], nodes["model"], nodes["op"], strict=True)
        for index, (where, line, end_line, model, op) in enumerate(rows):
            if where == file and model == self.model and line <= last and end_line >= first and op not in _HIDDEN:
                yield index

    def _name(self, node: int) -> str:
        """How a selection names a node: a layer by its path."""
        nodes = self.snapshot.payload["nodes"]
        return str(nodes["target" if nodes["op"][node] == "call_module" else "name"][node])

    def _operator(self, node: int) -> str:
        nodes = self.snapshot.payload["nodes"]
        return str(nodes["mase_op"][node] or nodes["target"][node])

    def _is_operation(self, node: int) -> bool:
        return bool(self.snapshot.payload["nodes"]["op"][node] != "call_module")

    def _traced_lines(self) -> tuple[int | None, int | None]:
        lines = range(self.place.start.line, _last_line(self.place) + 1)
        traced = [line + 1 for line in map(self.page.alignment.traced_line, lines) if line is not None]
        return (traced[0], traced[-1]) if traced else (None, None)

    def _point(self) -> Point:
        line = self.place.start.line
        traced = self.page.alignment.traced_line(line)
        assert traced is not None
        return traced + 1, from_units(
            self.page.document.text.line(line), self.place.start.character, self.page.encoding
        )


def _last_line(place: lsp.Range) -> int:
    """A selection of whole lines ends at the start of the line behind them."""
    behind = place.end.character == 0 and place.end.line > place.start.line
    return place.end.line - behind


def _known_paths(snapshot: GraphSnapshot, model: int) -> frozenset[str]:
    """The paths of the modules that hold a node of a model: an empty nn.Sequential has nothing to work on."""
    payload = snapshot.payload
    nodes = payload["nodes"]
    rows = zip(nodes["op"], nodes["model"], nodes["target"], nodes["scope"], strict=True)
    own = [(op, target, scope) for op, owner, target, scope in rows if owner == model and op not in _HIDDEN]
    paths = {payload["scopes"][scope][1] for scope in {scope for *_, scope in own} if scope >= 0}
    paths |= {target for op, target, _ in own if op == "call_module"}
    return frozenset(above for path in paths for above in _and_above(path))


def _and_above(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _outermost(only: Iterable[str]) -> list[str]:
    """Without what lies inside of another one."""
    unique = list(dict.fromkeys(only))
    known = set(unique)
    return [each for each in unique if not any(above in known for above in list(_and_above(each))[:-1])]


def _several(name: str, count: int, noun: str) -> str:
    return name if count < 2 else f"{name} ({counted(count, noun)})"


def _on(mention: Mention, first: int, last: int) -> bool:
    return mention.line <= last and mention.end_line >= first


def _extent(mention: Mention) -> tuple[Point, Point]:
    return (mention.line, mention.column), (mention.end_line, mention.end_column)


def _place(snapshot: GraphSnapshot, node: int) -> tuple[Point, Point]:
    nodes = snapshot.payload["nodes"]
    return (nodes["line"][node], nodes["column"][node]), (nodes["end_line"][node], nodes["end_column"][node])


def _covers(extent: tuple[Point, Point], point: Point) -> bool:
    return extent[0] <= point <= extent[1]


def _size(extent: tuple[Point, Point]) -> Point:
    (line, column), (end_line, end_column) = extent
    return end_line - line, end_column - column
