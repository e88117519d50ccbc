"""What is too large to be emitted, and what of it may be small enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mase_server.building import Build

_NAMED = 3

#: Of one operation, or of the whole: the numbers of `building.ESTIMATE_KEYS`.
Figures = Mapping[str, Any]


def excess(build: Build, totals: Figures, operations: Mapping[str, Figures]) -> str | None:
    """Which ceilings hardware of this size is above, and what takes most; None where it is within them."""
    told = [
        f"it takes {totals[key]:,} {words}, and {getattr(build, ceiling):,} are allowed ({ceiling}); "
        f"most are of {_largest(operations, key)}"
        for key, words, ceiling in _CEILINGS
        if totals[key] > getattr(build, ceiling)
    ]
    return "; ".join(told) or None


_CEILINGS = (
    ("multipliers", "multipliers", "max_multipliers"),
    ("memory_bits", "bits of memory", "max_memory_bits"),
)


def _largest(operations: Mapping[str, Figures], key: str) -> str:
    ranked = sorted(operations, key=lambda name: -operations[name][key])
    return ", ".join(f"{name} ({operations[name][key]:,})" for name in ranked[:_NAMED])


def candidates(build: Build, modules: Mapping[str, Sequence[str]], operations: Mapping[str, Figures]) -> list[str]:
    """The paths of modules that may be within the ceilings, by what their operations take in the whole; the largest
    first.

    modules: the operations of each.  Of modules with the very same operations the innermost one counts.
    """
    sizes = {path: _size(names, operations) for path, names in modules.items()}
    innermost = {tuple(names): path for path, names in sorted(modules.items(), key=lambda each: len(each[0]))}
    fits = [path for path in innermost.values() if _fits(build, sizes[path])]
    return sorted(fits, key=lambda path: (*(-number for number in sizes[path].values()), path))


def _fits(build: Build, size: Mapping[str, int]) -> bool:
    return all(size[key] <= getattr(build, ceiling) for key, _, ceiling in _CEILINGS)


def _size(names: Sequence[str], operations: Mapping[str, Figures]) -> dict[str, int]:
    return {key: sum(operations[name][key] for name in names) for key in ("memory_bits", "multipliers")}
