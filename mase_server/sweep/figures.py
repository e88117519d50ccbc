"""The figures of a point, which direction is better for each, and the points that no other point beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mase_server.suggestions import suggest

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a point. source: its key in a transform's summary, or in the totals of an emission."""

    name: str
    help: str
    source: str
    hardware: bool = False
    more_is_better: bool = False

    def better(self, one: float, other: float) -> bool:
        """Is one value better than another?"""
        return one > other if self.more_is_better else one < other


#: All of them, in the order of columns.
FIGURES = {
    each.name: each
    for each in (
        Figure("sqnr", "of the output beside the original's, in dB", "sqnr", more_is_better=True),
        Figure("max_error", "largest difference of an element of the output", "max_error"),
        Figure("data_bits", "bits of an activation, on average", "data_bits"),
        Figure("weight_bits", "bits of a weight, on average", "weight_bits"),
        Figure("parameters", "numbers that are learnt", "parameters"),
        Figure("parameter_bytes", "bytes of all weights", "parameter_bytes"),
        Figure("multipliers", "of the hardware", "multipliers", hardware=True),
        Figure("luts", "four-input tables, estimated", "luts", hardware=True),
        Figure("memory_bits", "weights, buffers and tables, estimated", "memory_bits", hardware=True),
        Figure("cycles", "from one sample to the next", "interval", hardware=True),
        Figure("latency", "cycles from a sample's first beat to its result's last", "latency", hardware=True),
    )
}

#: What is compared where nobody says.
OBJECTIVES, HARDWARE_OBJECTIVES = ("sqnr", "weight_bits"), ("sqnr", "luts", "cycles")


def objectives_of(names: Sequence[str]) -> tuple[Figure, ...]:
    """The figures of these names; ValueError says which there are."""
    if unknown := [name for name in names if name not in FIGURES]:
        raise ValueError(f"there is no figure {unknown[0]!r} to compare{suggest(unknown[0], FIGURES)}")
    if not names:
        raise ValueError("no objective is named")
    return tuple(FIGURES[name] for name in dict.fromkeys(names))


def front(rows: Sequence[Figures], objectives: Sequence[Figure]) -> list[bool]:
    """Is each row one that no other beats: as good in every objective, and better in one? Lacking one, it is not."""
    complete = [all(row.get(each.name) is not None for each in objectives) for row in rows]
    known = [row for row, whole in zip(rows, complete, strict=True) if whole]
    return [
        whole and not any(_beats(other, row, objectives) for other in known)
        for row, whole in zip(rows, complete, strict=True)
    ]


def _beats(one: Figures, other: Figures, objectives: Sequence[Figure]) -> bool:
    pairs = [(each, one[each.name], other[each.name]) for each in objectives]
    better = [each.better(mine, its) for each, mine, its in pairs if mine is not None and its is not None]
    worse = [each.better(its, mine) for each, mine, its in pairs if mine is not None and its is not None]
    return any(better) and not any(worse)
