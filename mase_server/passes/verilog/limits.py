"""What is too large to be emitted, and what of it could be built alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mase_server.building import Build

#: Scopes that are offered.
_OFFERED = 20
_NAMED = 3

#: Of one operation, or of the whole: the numbers of `building.ESTIMATE_KEYS`.
Figures = Mapping[str, Any]


def refusal(build: Build, totals: Figures, operations: Mapping[str, Figures]) -> str | None:
    """Why hardware of this size is not emitted, in words; None where it is within the ceilings."""
    told = [
        f"it takes {totals[key]:,} {words}, and {getattr(build, ceiling):,} are allowed ({ceiling}); "
        f"most are of {_largest(operations, key)}"
        for key, words, ceiling in _CEILINGS
        if totals[key] > getattr(build, ceiling)
    ]
    if not told:
        return None
    # What takes nothing, such as an input, is no part that anybody would build.
    costly = [each for each in operations.values() if any(each[key] for key, _, _ in _CEILINGS)]
    alone = any(_fits(build, figures) for figures in costly)
    return f"{'; '.join(told)}. Raise the ceiling{', or build one layer or scope alone' if alone else ''}"


_CEILINGS = (
    ("multipliers", "multipliers", "max_multipliers"),
    ("memory_bits", "bits of memory", "max_memory_bits"),
)


def _largest(operations: Mapping[str, Figures], key: str) -> str:
    ranked = sorted(operations, key=lambda name: -operations[name][key])
    return ", ".join(f"{name} ({operations[name][key]:,})" for name in ranked[:_NAMED])


def fitting(build: Build, modules: Mapping[str, Sequence[str]], operations: Mapping[str, Figures]) -> list[str]:
    """The paths of modules that are within the ceilings, the largest first, at most twenty.

    modules: the operations of each.  Of modules with the very same operations the innermost one counts.
    """
    sizes = {path: _size(names, operations) for path, names in modules.items()}
    innermost = {tuple(names): path for path, names in sorted(modules.items(), key=lambda each: len(each[0]))}
    fits = [path for path in innermost.values() if _fits(build, sizes[path])]
    return sorted(fits, key=lambda path: (*(-number for number in sizes[path].values()), path))[:_OFFERED]


def _fits(build: Build, size: Mapping[str, int]) -> bool:
    return all(size[key] <= getattr(build, ceiling) for key, _, ceiling in _CEILINGS)


def _size(names: Sequence[str], operations: Mapping[str, Figures]) -> dict[str, int]:
    return {key: sum(operations[name][key] for name in names) for key in ("memory_bits", "multipliers")}
