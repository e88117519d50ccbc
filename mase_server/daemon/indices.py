"""Indices of a payload's tables: the rows of a site, the sites and nodes of some lines, the modules of a model."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mase_server.daemon.slices import let_go
from mase_server.snapshot import COLUMNS, KINDS, Payload

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot, SiteView

#: Among places of equal extent, what a person means by it.
_PRECEDENCE = {"parameter": 0, "binding": 1, "return": 2, "expression": 3}


class Tables:
    """The indices of a payload, shared by all snapshots of it; once they are gone, so is the payload, in pieces."""

    # Not cached_property: its lock is one for all payloads in Python 3.11, and the event loop would wait for a thread.
    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._rows: list[list[int]] | None = None
        self._places: dict[int, Places] | None = None
        self._nodes: dict[int, Places] | None = None
        self._modules: dict[int, frozenset[str]] | None = None
        self._parts = [column for table in COLUMNS for column in payload[table].values()]
        weakref.finalize(self, let_go, self._parts).atexit = False

    def prepare(self) -> None:
        """Build them now."""
        self.rows_of(0)
        self.places_of(0)
        self.nodes_of(0)
        self.modules_of(0)

    def rows_of(self, site: int) -> list[int]:
        """The rows of one site."""
        if self._rows is None:
            buckets: list[list[int]] = [[] for _ in self._payload["sites"]["file"]]
            for row, owner in enumerate(self._payload["rows"]["site"]):
                buckets[owner].append(row)
            self._rows = buckets
            self._parts.append(buckets)
        return self._rows[site] if self._rows else []

    def places_of(self, file: int) -> Places:
        """The sites of one file."""
        if self._places is None:
            self._places = _by_file(self._payload["sites"])
        return self._places.get(file) or Places({}, [])

    def nodes_of(self, file: int) -> Places:
        """The nodes of one file."""
        if self._nodes is None:
            self._nodes = _by_file(self._payload["nodes"])
        return self._nodes.get(file) or Places({}, [])

    def modules_of(self, model: int) -> frozenset[str]:
        """The paths of the modules that hold a node of a model, at any depth."""
        if self._modules is None:
            nodes, scopes = self._payload["nodes"], self._payload["scopes"]
            found: dict[int, set[str]] = {}
            for op, owner, target, scope in zip(
                *(nodes[key] for key in ("op", "model", "target", "scope")), strict=True
            ):
                paths = found.setdefault(owner, set())
                _add_with_above(paths, target if op == "call_module" else scopes[scope][1] if scope >= 0 else "")
            self._modules = {owner: frozenset(paths) for owner, paths in found.items()}
        return self._modules.get(model, frozenset())


def _add_with_above(paths: set[str], path: str) -> None:
    """Add a path and those of the modules that it is in."""
    while path and path not in paths:
        paths.add(path)
        path = path.rpartition(".")[0]


def _by_file(table: Mapping[str, Sequence[int]]) -> dict[int, Places]:
    members: dict[int, list[int]] = {}
    for row, owner in enumerate(table["file"]):
        members.setdefault(owner, []).append(row)
    return {owner: Places(table, found) for owner, found in members.items()}


class Places:
    """The sites, or the nodes, of one file, ordered by position."""

    def __init__(self, table: Mapping[str, Sequence[int]], members: list[int]) -> None:
        self.order = sorted(members, key=lambda row: (table["line"][row], table["column"][row]))
        self.lines = [table["line"][row] for row in self.order]
        # The furthest line that any row up to here reaches: where it falls short, no earlier one covers a line.
        self.reach = list(accumulate((table["end_line"][row] for row in self.order), max))

    def reaching(self, first: int, last: int) -> list[int]:
        """The rows that may lie on the lines `first` to `last`; some that end before them are among these."""
        end = start = bisect_right(self.lines, last)
        while start and self.reach[start - 1] >= first:
            start -= 1
        return self.order[start:end]


class FileIndex:
    """The sites of one file of one snapshot, ordered by position, so that a few lines cost a few lines."""

    def __init__(self, snapshot: GraphSnapshot, places: Places) -> None:
        self._snapshot = snapshot
        self._places = places

    def between(self, first: int, last: int, kinds: frozenset[str] | None) -> Iterator[SiteView]:
        """The sites that start on the lines `first` to `last`, both included, in position order."""
        lines, of_kind = self._places.lines, self._snapshot.payload["sites"]["kind"]
        for site in self._places.order[bisect_left(lines, first) : bisect_right(lines, last)]:
            if kinds is None or KINDS[of_kind[site]] in kinds:
                yield self._snapshot.site(site)

    def covering(self, line: int, column: int) -> Iterator[SiteView]:
        """The sites whose extent holds a position; a position just behind a name counts as on it."""
        sites, places = self._snapshot.payload["sites"], self._places
        for place in range(bisect_right(places.lines, line) - 1, -1, -1):
            if places.reach[place] < line:
                return
            site = places.order[place]
            start = (sites["line"][site], sites["column"][site])
            if start <= (line, column) <= (sites["end_line"][site], sites["end_column"][site]):
                yield self._snapshot.site(site)


def smallest(sites: Sequence[SiteView], line: int, column: int) -> SiteView | None:
    """The site that a person means at a position: truly inside before just behind, then the smallest, then a name."""

    def rank(site: SiteView) -> tuple[Any, ...]:
        behind = (line, column) == (site.end_line, site.end_column)
        size = (site.end_line - site.line, site.end_column - site.column)
        return behind, size, _PRECEDENCE[site.kind]

    return min(sites, key=rank, default=None)
