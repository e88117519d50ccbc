"""What the cursor or the selection is on, as a pass sees it: a model, all modules of a class, layers, operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
Extent = tuple[Point, Point]


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


def parts(page: Page, place: lsp.Range, snapshot: GraphSnapshot, model: int) -> Target | None:
    """What the range is on in one model: the modules of the class on its line, else the layers of its lines."""
    spot = _Spot(page, place, snapshot, model)
    return spot.of_class() or spot.of_lines()


def mentions(page: Page, snapshot: GraphSnapshot, model: int, paths: frozenset[str]) -> Iterator[lsp.Range]:
    """Where the file speaks of the modules with these paths, or of one around them: its lines as they are now."""
    nothing = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    yield from _Spot(page, nothing, snapshot, model).mentions(paths)


def meant(snapshot: GraphSnapshot, rows: Iterable[int], only: Iterable[str]) -> Iterator[int]:
    """Those of some nodes, by their index, that names of nodes and paths of modules mean."""
    nodes, scopes, wanted = snapshot.payload["nodes"], snapshot.payload["scopes"], frozenset(only)
    names, ops, targets, scope_of = (nodes[key] for key in ("name", "op", "target", "scope"))
    inside = {-1: False} | {index: not wanted.isdisjoint(_and_above(each[1])) for index, each in enumerate(scopes)}
    for row in rows:
        if names[row] in wanted or (
            not wanted.isdisjoint(_and_above(targets[row])) if ops[row] == "call_module" else inside[scope_of[row]]
        ):
            yield row


def _models(ls: Server, page: Page) -> list[tuple[GraphSnapshot, int]]:
    """The models that run code of this file, the picked one first, those shown for want of better last."""
    snapshots = [one for one in ls.daemon.store.snapshots() if one.sha256_of(page.document.path) == page.traced]
    found = [(one, index) for one in snapshots for index in range(len(one.titles))]
    return sorted(found, key=lambda each: _rank(page, *each))


def _rank(page: Page, snapshot: GraphSnapshot, model: int) -> tuple[bool, bool, bool]:
    rest = bool(snapshot.payload["models"][model].get("rest"))
    return snapshot.titles[model] != page.view.picked, rest, snapshot.path != page.document.path


@dataclass(frozen=True, slots=True)
class _Part:
    """A place of the traced text that means parts of a model. noun: what several of them are."""

    extent: Extent
    name: str
    noun: str
    only: tuple[str, ...]

    def covers(self, point: Point) -> bool:
        """Is a point in it? Just behind counts."""
        return self.extent[0] <= point <= self.extent[1]

    @property
    def size(self) -> Point:
        """Lines and columns."""
        (line, column), (end_line, end_column) = self.extent
        return end_line - line, end_column - column


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
                known = self.snapshot.modules(self.model)
                paths = [path for model, path, kind in scopes if model == self.model and kind == each["name"]]
                paths = [path for path in paths if path in known]
                return self.target(_several(each["name"], len(paths), "module"), paths)
        return None

    def of_lines(self) -> Target | None:
        """The layers that the lines make or use, and the other operations on them; at a cursor, the innermost."""
        first, last = self._traced_lines()
        if first is None or last is None:
            return None
        parts = [*self._layers(first, last), *self._operations(first, last)]
        if self.place.start == self.place.end:
            here = [part for part in parts if part.covers(self._point())]
            # A layer and what it is made of have one extent where it is called: the layer comes first in the list.
            innermost = min(here, key=lambda part: part.size, default=None)
            parts = parts if innermost is None else [innermost]
        only = _outermost(each for part in parts for each in part.only)
        if len({part.name for part in parts}) == 1:
            return self.target(_several(parts[0].name, len(only), parts[0].noun), only)
        where = "this line" if self.place.start == self.place.end else "the selection"
        return self.target(f"{where} ({counted(len(only), 'part')})", only)

    def _layers(self, first: int, last: int) -> Iterator[_Part]:
        file = outline(self.page.python)
        spoken = [each for each in file.mentions if each.line <= last and each.end_line >= first]
        known = self.snapshot.modules(self.model)
        for each in spoken:
            if paths := self._paths(each, file, known):
                extent = (each.line, each.column), (each.end_line, each.end_column)
                yield _Part(extent, f"layer {each.name}", "layer", tuple(paths))

    def _operations(self, first: int, last: int) -> Iterator[_Part]:
        """What the model computed on these lines, the nodes of one place together."""
        nodes, places = self.snapshot.payload["nodes"], dict[Extent, list[int]]()
        for node in self._nodes(first, last):
            start, end = (
                (nodes["line"][node], nodes["column"][node]),
                (nodes["end_line"][node], nodes["end_column"][node]),
            )
            places.setdefault((start, end), []).append(node)
        for extent, found in places.items():
            kinds = {str(nodes["mase_op"][node] or nodes["target"][node]) for node in found}
            name = kinds.pop() if len(kinds) == 1 else "this call"
            yield _Part(extent, name, "operation", tuple(map(self._name, found)))

    def mentions(self, paths: frozenset[str]) -> Iterator[lsp.Range]:
        """Where modules are made and used."""
        file = outline(self.page.python)
        around = frozenset(above for path in paths for above in _and_above(path))
        for each in file.mentions:
            meant = self._paths(each, file, self.snapshot.modules(self.model))
            if around.intersection(meant) and (place := self.page.range(each)) is not None:
                yield place

    def _paths(self, mention: Mention, file: Outline, known: frozenset[str]) -> list[str]:
        """The paths of the modules that a mention means, in every module of its class."""
        kin = file.kin(mention.owner)
        scopes = (path for model, path, kind in self.snapshot.payload["scopes"] if model == self.model and kind in kin)
        candidates = (f"{path}.{mention.name}" if path else mention.name for path in scopes)
        return [path for path in candidates if path in known]

    def _nodes(self, first: int, last: int) -> list[int]:
        models, ops = (self.snapshot.payload["nodes"][key] for key in ("model", "op"))
        found = self.snapshot.nodes_on(self.page.document.path, first, last)
        return [node for node in found if models[node] == self.model and ops[node] not in _HIDDEN]

    def _name(self, node: int) -> str:
        """How a selection names a node: a layer by its path."""
        nodes = self.snapshot.payload["nodes"]
        return str(nodes["target" if nodes["op"][node] == "call_module" else "name"][node])

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


@lru_cache(maxsize=4096)
def _and_above(path: str) -> tuple[str, ...]:
    parts = path.split(".")
    return tuple(".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _outermost(only: Iterable[str]) -> list[str]:
    """Without what lies inside of another one."""
    unique = list(dict.fromkeys(only))
    known = set(unique)
    return [each for each in unique if not any(above in known for above in _and_above(each)[:-1])]


def _several(name: str, count: int, noun: str) -> str:
    return name if count < 2 else f"{name} ({counted(count, noun)})"
