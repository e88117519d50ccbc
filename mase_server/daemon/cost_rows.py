"""The rows of a model's cost table: its modules as a tree, with the operators and parameters that stand in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Most places of one row that are told.
_PLACES = 8
_SUMMED = ("multipliers", "luts", "memory_bits")


@dataclass(slots=True)
class CostRow:
    """One row. ident: a module's path, or "path/name" of what stands in it.  kind: scope, layer, operator, parameter.

    weights: the parameters in it, as indices of their first names.  error: (sqnr, max error) of its last result.
    """

    ident: str
    name: str
    kind: str
    above: CostRow | None = None
    type: str = ""
    nodes: int = 0
    flops: int = 0
    traffic: int = 0
    results: float = 0
    weights: set[int] = field(default_factory=set)
    formats: dict[str, None] = field(default_factory=dict)
    error: tuple[Any, Any] = (None, None)
    hardware: dict[str, int] | None = None
    places: list[Mapping[str, Any]] = field(default_factory=list)
    below: list[CostRow] = field(default_factory=list)

    @property
    def lineage(self) -> Iterator[CostRow]:
        """It, and all that hold it."""
        row: CostRow | None = self
        while row is not None:
            yield row
            row = row.above

    def ran(self, flops: int, traffic: int, results: float) -> None:
        """Count one node here and in all that holds it."""
        for row in self.lineage:
            row.nodes += 1
            row.flops += flops
            row.traffic += traffic
            row.results += results

    def became(self, format: str | None, error: tuple[Any, Any]) -> None:
        """What passes made of a node: of a module, the error of its last result counts."""
        for row in self.lineage:
            if format is not None:
                row.formats[format] = None
            if error != (None, None):
                row.error = error

    def built(self, estimate: Mapping[str, int]) -> None:
        """Count hardware: operations run side by side, so the slowest says how many cycles a sample takes."""
        for row in self.lineage:
            found = row.hardware = row.hardware or dict.fromkeys((*_SUMMED, "cycles"), 0)
            found |= {key: found[key] + estimate[key] for key in _SUMMED}
            found["cycles"] = max(found["cycles"], estimate["cycles"])

    def at(self, place: Mapping[str, Any]) -> None:
        """It stands there too."""
        if place not in self.places and len(self.places) < _PLACES:
            self.places.append(place)


class CostTree:
    """The rows of one model. types: of its modules, by their paths."""

    def __init__(self, title: str, types: Mapping[str, str]) -> None:
        self.types = types
        self.root = CostRow("", title, "scope", type=types.get("", ""))
        self._rows = {"": self.root}

    def __contains__(self, path: str) -> bool:
        return path in self._rows

    def module(self, path: str, kind: str = "scope") -> CostRow:
        """The row of a module, made with those of all that hold it where there is none."""
        if (found := self._rows.get(path)) is not None:
            return found
        above, _, name = path.rpartition(".")
        return self._made(path, name, kind, self.module(above), self.types.get(path, ""))

    def within(self, path: str, name: str, kind: str) -> CostRow:
        """The row of an operator or a parameter that stands in a module."""
        ident = f"{path}/{name}"
        return self._rows.get(ident) or self._made(ident, name, kind, self.module(path), "")

    def _made(self, ident: str, name: str, kind: str, above: CostRow, type_name: str) -> CostRow:
        row = self._rows[ident] = CostRow(ident, name, kind, above, type_name)
        above.below.append(row)
        return row

    def weigh(self, weights: Mapping[str, Sequence[Any]]) -> None:
        """Put each parameter into the layer that has it; what a module has beside its layers is a row of its own."""
        for name, same in zip(weights["name"], weights["same"], strict=True):
            owner, _, last = name.rpartition(".")
            row = self._layer(owner)
            if row is None and (owner in self.types or not owner):
                row = self.within(owner, last, "parameter")
            for each in (row or self.module(owner, "layer")).lineage:
                each.weights.add(same)

    def _layer(self, path: str) -> CostRow | None:
        """The layer that a module is, or is a part of; None for one that holds layers."""
        while path:
            found = self._rows.get(path)
            if found is not None and found.kind == "layer":
                return found
            path = path.rpartition(".")[0]
        return None

    def rows(self) -> Iterator[tuple[CostRow, int]]:
        """Every row behind the one that holds it, with the number of that, -1 for the whole model."""
        waiting, number = [(self.root, -1)], 0
        while waiting:
            row, above = waiting.pop()
            yield row, above
            waiting += [(each, number) for each in reversed(row.below)]
            number += 1
