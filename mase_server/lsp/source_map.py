"""From Python to the hardware that it becomes, and back: by the rows of the graph that both sides name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.targets import meant, mentions, parts
from mase_server.lsp.verilog import Sheet

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: An operation of a design, as `building.OPERATION_KEYS` has it.
Operation = Mapping[str, Any]
#: A path, and where something stands in it now.
Place = tuple[str, lsp.Range]
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


def python_of(ls: Server, emission: Emission, operations: Iterable[Operation]) -> list[Place]:
    """Where operations come from: the calls first, then where their layers are spoken of; each line once."""
    pages, rows = _Pages(ls, emission), {row for operation in operations for row in operation["rows"]}
    found: dict[tuple[str, int, int], Place] = {}
    for path, at in _all(emission, rows, pages):
        found.setdefault((path, at.start.line, at.end.line), (path, at))
    return list(found.values())


def calls_of(ls: Server, emission: Emission, operations: Iterable[Operation]) -> list[Place | None]:
    """The first call of each operation, None where that is not known or its line was edited."""
    pages = _Pages(ls, emission)
    return [next(_calls(emission, operation["rows"], pages), None) for operation in operations]


class _Pages:
    """The pages of the texts that an emission was made of, each asked for once."""

    def __init__(self, ls: Server, emission: Emission) -> None:
        self._ls, self._snapshot = ls, emission.snapshot
        self._known: dict[str, Page | None] = {}

    def of(self, path: str) -> Page | None:
        """The page of a file; None where its text is not known."""
        if path not in self._known:
            self._known[path] = self._ls.page_at(path, self._snapshot.sha256_of(path) or "")
        return self._known[path]


def _all(emission: Emission, rows: set[int], pages: _Pages) -> Iterator[Place]:
    yield from _calls(emission, rows, pages)
    snapshot, nodes = emission.snapshot, emission.snapshot.payload["nodes"]
    layers = frozenset(str(nodes["target"][row]) for row in rows if nodes["op"][row] == "call_module")
    files = [*filter(None, (_file(emission, row) for row in sorted(rows))), snapshot.path]  # that one makes layers
    for path in dict.fromkeys(files):
        if (page := pages.of(path)) is not None:
            yield from ((path, place) for place in mentions(page, snapshot, emission.model, layers))


def _calls(emission: Emission, rows: Iterable[int], pages: _Pages) -> Iterator[Place]:
    nodes = emission.snapshot.payload["nodes"]
    for row in sorted(rows):
        path = _file(emission, row)
        page = pages.of(path) if path else None
        place = None if page is None else page.place(*(nodes[key][row] for key in _NODE_PLACE))
        if place is not None:
            yield path, place


def _file(emission: Emission, row: int) -> str:
    index = emission.snapshot.payload["nodes"]["file"][row]
    return str(emission.snapshot.payload["files"][index]["path"]) if index >= 0 else ""


def _operations_at(page: Page, place: lsp.Range, emission: Emission) -> list[Operation]:
    """The operations of what a range is on."""
    target = parts(page, place, emission.snapshot, emission.model)
    rows = () if target is None else meant(emission.snapshot, emission.places, target.only)
    found = sorted({index for row in rows for index in emission.places[row]})
    return [emission.told["operations"][index] for index in found]


def emissions(ls: Server, path: str) -> list[Emission]:
    """What was emitted of the models that run code of a file, that of the picked one first."""
    view = ls.daemon.store.view(path)
    picked = None if view is None else view.picked
    known = [emission for snapshot in ls.daemon.store.snapshots() for emission in snapshot.hardware.values()]
    found = [emission for emission in known if emission.snapshot.sha256_of(path) is not None]
    return sorted(found, key=lambda emission: emission.title != picked)
