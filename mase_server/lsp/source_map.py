"""From Python to the hardware that it becomes, and back: by the rows of the graph that both sides name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.targets import mentions, parts, rows_of
from mase_server.lsp.verilog import Sheet

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: An operation of a design, as `building.OPERATION_KEYS` has it.
Operation = Mapping[str, Any]
_NODE_PLACE = ("line", "column", "end_line", "end_column")


@dataclass(frozen=True, slots=True)
class Match:
    """Operations of one model's hardware."""

    sheet: Sheet
    emission: Emission
    operations: Sequence[Operation]

    def ranges(self) -> list[lsp.Range]:
        """Their lines in the document, in its order, each to its end."""
        lines = _lines(str(self.emission.told["text"]))
        spans = dict.fromkeys(sorted(tuple(span) for operation in self.operations for span in operation["lines"]))
        return [
            lsp.Range(lsp.Position(first - 1, 0), lsp.Position(last - 1, len(lines[last - 1]))) for first, last in spans
        ]


@lru_cache(maxsize=4)
def _lines(text: str) -> list[str]:
    return text.split("\n")


def hardware_at(ls: Server, path: str, place: lsp.Range) -> list[Match]:
    """What the Python in a range of an open file becomes: the hardware of each model that was emitted and runs it."""
    found = []
    for emission in emissions(ls, path):
        page = ls.page_at(path, emission.snapshot.sha256_of(path) or "")
        if page is not None and (operations := _operations_at(page, place, emission)):
            found.append(Match(Sheet(emission.snapshot.path, emission.title), emission, operations))
    return found


def operations_on(emission: Emission, line: int) -> list[Operation]:
    """The operations with a line, from 0, of the top module."""
    found = emission.told["operations"]
    return [each for each in found if any(first <= line + 1 <= last for first, last in each["lines"])]


def python_of(ls: Server, emission: Emission, operations: Iterable[Operation]) -> list[tuple[str, lsp.Range]]:
    """Where operations come from, as (path, range now): the calls first, then where their layers are spoken of."""
    found: dict[tuple[str, int, int], tuple[str, lsp.Range]] = {}
    for path, place in _places(ls, emission, {row for operation in operations for row in operation["rows"]}):
        found.setdefault((path, place.start.line, place.end.line), (path, place))
    return list(found.values())


def _places(ls: Server, emission: Emission, rows: set[int]) -> Iterator[tuple[str, lsp.Range]]:
    snapshot, nodes = emission.snapshot, emission.snapshot.payload["nodes"]
    pages = {path: ls.page_at(path, snapshot.sha256_of(path) or "") for path in _files(emission, rows)}
    for row in sorted(rows):
        path = _file(emission, row)
        page = pages.get(path)
        place = None if page is None else page.place(*(nodes[key][row] for key in _NODE_PLACE))
        if place is not None:
            yield path, place
    layers = frozenset(str(nodes["target"][row]) for row in rows if nodes["op"][row] == "call_module")
    for path, page in pages.items():
        if page is not None:
            yield from ((path, place) for place in mentions(page, snapshot, emission.model, layers))


def _files(emission: Emission, rows: Iterable[int]) -> list[str]:
    """The files of rows, the model's own last where none of them is in it: layers are made there."""
    return list(dict.fromkeys([*filter(None, (_file(emission, row) for row in sorted(rows))), emission.snapshot.path]))


def _file(emission: Emission, row: int) -> str:
    index = emission.snapshot.payload["nodes"]["file"][row]
    return str(emission.snapshot.payload["files"][index]["path"]) if index >= 0 else ""


def _operations_at(page: Page, place: lsp.Range, emission: Emission) -> list[Operation]:
    """The operations of what a range is on."""
    snapshot, model = emission.snapshot, emission.model
    target = parts(page, place, snapshot, model)
    rows = frozenset[int]() if target is None else rows_of(snapshot, model, target.only)
    return [each for each in emission.told["operations"] if not rows.isdisjoint(each["rows"])]


def emissions(ls: Server, path: str) -> list[Emission]:
    """What was emitted of the models that run code of a file, that of the picked one first."""
    view = ls.daemon.store.view(path)
    picked = None if view is None else view.picked
    known = [emission for snapshot in ls.daemon.store.snapshots() for emission in snapshot.hardware.values()]
    found = [emission for emission in known if emission.snapshot.sha256_of(path) is not None]
    return sorted(found, key=lambda emission: emission.title != picked)
