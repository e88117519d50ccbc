"""Targets of passes under the cursor or selection: a model, all modules of a class, layers, operations.

The results are texts for the argument `only`. `outline` looks for `self.x` in the traced source, because a line that
creates a layer has no tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.outline import Mention, Outline, get_outline
from mase_server.lsp.text import from_units
from mase_server.lsp.wording import format_count

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: Maximum number of models of one class in a menu.
MOST_MODELS = 3
_HIDDEN = frozenset({"placeholder", "output", "get_attr"})

Point = tuple[int, int]
Extent = tuple[Point, Point]


@dataclass(frozen=True, slots=True)
class Target:
    """A target that passes are offered for. path: the model file.  model: a title.  name: its name in menus.

    only: names of nodes and paths of modules; empty for the whole model.
    """

    path: str
    model: str
    name: str
    only: tuple[str, ...] = ()


def targets_in_range(ls: Server, page: Page, place: lsp.Range) -> list[Target]:
    """The targets of a range: the models or modules of the class on its line, else the layers on its lines."""
    found = [
        Target(model.snapshot.path, model.title, model.title)
        for model in page.view.models()
        if (at := page.range(model)) is not None and on_lines(at, place)
    ]
    if found:
        picked = [target for target in found if target.model == page.view.picked]
        return (picked or found)[:MOST_MODELS]
    spots = [_Spot(page, place, snapshot, model) for snapshot, model in _models_running_file(ls, page)]
    return next(([target] for spot in spots if (target := spot.of_class() or spot.of_lines()) is not None), [])


def target_in_model(page: Page, place: lsp.Range, snapshot: GraphSnapshot, model: int) -> Target | None:
    """The target of a range in one model: the modules of the class on its line, else the layers on its lines."""
    spot = _Spot(page, place, snapshot, model)
    return spot.of_class() or spot.of_lines()


def mentions_of_modules(page: Page, snapshot: GraphSnapshot, model: int, paths: frozenset[str]) -> Iterator[lsp.Range]:
    """The present lines on which the file mentions the modules with these paths, or a module around them."""
    nothing = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    yield from _Spot(page, nothing, snapshot, model).mentions(paths)


def rows_meant_by(snapshot: GraphSnapshot, rows: Iterable[int], only: Iterable[str]) -> Iterator[int]:
    """Those of the given nodes, by index, that these names of nodes and paths of modules select."""
    nodes, scopes, wanted = snapshot.payload["nodes"], snapshot.payload["scopes"], frozenset(only)
    names, ops, targets, scope_of = (nodes[key] for key in ("name", "op", "target", "scope"))
    inside = {-1: False} | {index: not wanted.isdisjoint(_and_above(each[1])) for index, each in enumerate(scopes)}
    for row in rows:
        if names[row] in wanted or (
            not wanted.isdisjoint(_and_above(targets[row])) if ops[row] == "call_module" else inside[scope_of[row]]
        ):
            yield row


def _models_running_file(ls: Server, page: Page) -> list[tuple[GraphSnapshot, int]]:
    """The models that run code of this file: the picked one first, those shown as a fallback last."""
    snapshots = [one for one in ls.daemon.store.snapshots() if one.sha256_of(page.document.path) == page.traced]
    found = [(one, index) for one in snapshots for index in range(len(one.titles))]
    return sorted(found, key=lambda each: _rank_model(page, *each))


def _rank_model(page: Page, snapshot: GraphSnapshot, model: int) -> tuple[bool, bool, bool]:
    rest = bool(snapshot.payload["models"][model].get("rest"))
    return snapshot.titles[model] != page.view.picked, rest, snapshot.path != page.document.path


@dataclass(frozen=True, slots=True)
class _Part:
    """A place of the traced text that stands for parts of a model. noun: the word for several of them."""

    extent: Extent
    name: str
    noun: str
    only: tuple[str, ...]

    def covers(self, point: Point) -> bool:
        """Does it contain a point? The position right behind it counts."""
        return self.extent[0] <= point <= self.extent[1]

    @property
    def size(self) -> Point:
        """Its size in lines and columns."""
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
        """A target with these nodes and paths; None if there are none."""
        unique = tuple(dict.fromkeys(only))
        return Target(self.snapshot.path, self.snapshot.titles[self.model], name, unique) if unique else None

    def of_class(self) -> Target | None:
        """All modules of the class whose line the range is on."""
        payload, file = self.snapshot.payload, self.snapshot.files[self.page.document.path]
        for each in payload["classes"]:
            at = self.page.place_of(each) if each["file_index"] == file else None
            if at is not None and on_lines(at, self.place):
                scopes = payload["scopes"]
                known = self.snapshot.modules(self.model)
                paths = [path for model, path, kind in scopes if model == self.model and kind == each["name"]]
                paths = [path for path in paths if path in known]
                return self.target(_name_with_count(each["name"], len(paths), "module"), paths)
        return None

    def of_lines(self) -> Target | None:
        """The layers that the lines create or use, and other operations on them; for a cursor, only the innermost."""
        first, last = self._traced_lines()
        if first is None or last is None:
            return None
        parts = [*self._layers_on_lines(first, last), *self._operations_on_lines(first, last)]
        if self.place.start == self.place.end:
            here = [part for part in parts if part.covers(self._traced_point())]
            # At a call, a layer and its parts have the same extent: the layer comes first in the list.
            innermost = min(here, key=lambda part: part.size, default=None)
            parts = parts if innermost is None else [innermost]
        only = _outermost_names(each for part in parts for each in part.only)
        if len({part.name for part in parts}) == 1:
            return self.target(_name_with_count(parts[0].name, len(only), parts[0].noun), only)
        where = "this line" if self.place.start == self.place.end else "the selection"
        return self.target(f"{where} ({format_count(len(only), 'part')})", only)

    def _layers_on_lines(self, first: int, last: int) -> Iterator[_Part]:
        file = get_outline(self.page.python)
        spoken = [each for each in file.mentions if each.line <= last and each.end_line >= first]
        known = self.snapshot.modules(self.model)
        for each in spoken:
            if paths := self._paths_of_mention(each, file, known):
                extent = (each.line, each.column), (each.end_line, each.end_column)
                yield _Part(extent, f"layer {each.name}", "layer", tuple(paths))

    def _operations_on_lines(self, first: int, last: int) -> Iterator[_Part]:
        """The model's operations on these lines; nodes of the same place belong together."""
        nodes, places = self.snapshot.payload["nodes"], dict[Extent, list[int]]()
        for node in self._nodes_on_lines(first, last):
            start = nodes["line"][node], nodes["column"][node]
            end = nodes["end_line"][node], nodes["end_column"][node]
            places.setdefault((start, end), []).append(node)
        for extent, found in places.items():
            kinds = {str(nodes["mase_op"][node] or nodes["target"][node]) for node in found}
            name = kinds.pop() if len(kinds) == 1 else "this call"
            yield _Part(extent, name, "operation", tuple(map(self._selection_name, found)))

    def mentions(self, paths: frozenset[str]) -> Iterator[lsp.Range]:
        """The places where modules are created and used."""
        file = get_outline(self.page.python)
        around = frozenset(above for path in paths for above in _and_above(path))
        for each in file.mentions:
            meant = self._paths_of_mention(each, file, self.snapshot.modules(self.model))
            if around.intersection(meant) and (place := self.page.range(each)) is not None:
                yield place

    def _paths_of_mention(self, mention: Mention, file: Outline, known: frozenset[str]) -> list[str]:
        """The paths of the modules that a mention refers to, in every module of its class."""
        kin = file.class_and_heirs(mention.owner)
        scopes = (path for model, path, kind in self.snapshot.payload["scopes"] if model == self.model and kind in kin)
        candidates = (f"{path}.{mention.name}" if path else mention.name for path in scopes)
        return [path for path in candidates if path in known]

    def _nodes_on_lines(self, first: int, last: int) -> list[int]:
        models, ops = (self.snapshot.payload["nodes"][key] for key in ("model", "op"))
        found = self.snapshot.nodes_on(self.page.document.path, first, last)
        return [node for node in found if models[node] == self.model and ops[node] not in _HIDDEN]

    def _selection_name(self, node: int) -> str:
        """The name of a node in a selection: a layer's is its path."""
        nodes = self.snapshot.payload["nodes"]
        return str(nodes["target" if nodes["op"][node] == "call_module" else "name"][node])

    def _traced_lines(self) -> tuple[int | None, int | None]:
        lines = range(self.place.start.line, _last_line(self.place) + 1)
        traced = [line + 1 for line in map(self.page.alignment.traced_line, lines) if line is not None]
        return (traced[0], traced[-1]) if traced else (None, None)

    def _traced_point(self) -> Point:
        line = self.place.start.line
        traced = self.page.alignment.traced_line(line)
        assert traced is not None
        return traced + 1, from_units(
            self.page.document.text.line(line), self.place.start.character, self.page.encoding
        )


def _last_line(place: lsp.Range) -> int:
    """The last line of a range; one of whole lines ends at the start of the line behind them."""
    behind = place.end.character == 0 and place.end.line > place.start.line
    return place.end.line - behind


@lru_cache(maxsize=4096)
def _and_above(path: str) -> tuple[str, ...]:
    parts = path.split(".")
    return tuple(".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _outermost_names(only: Iterable[str]) -> list[str]:
    """The names without those inside another one."""
    unique = list(dict.fromkeys(only))
    known = set(unique)
    return [each for each in unique if not any(above in known for above in _and_above(each)[:-1])]


def _name_with_count(name: str, count: int, noun: str) -> str:
    return name if count < 2 else f"{name} ({format_count(count, noun)})"
