"""Layers that rearrange by a written pattern, as `"b c (h p1) (w p2) -> b (h w) (p1 p2 c)"`: what they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mase_server.inputs.spec import TensorSpec

_GROUP = re.compile(r"\(([^)]*)\)|(\S+)")
#: Names of the dimensions behind batch and channels that may vary, by how many there are.
_SPACE = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


@dataclass(frozen=True, slots=True)
class Rearranged:
    """A layer with a pattern, and how many features what follows it takes: 0 where nobody can say."""

    layer: Any
    features: int


def has_pattern(layer: Any) -> bool:
    """Is this a layer whose input is described by a pattern?"""
    return isinstance(getattr(layer, "pattern", None), str) and isinstance(
        getattr(layer, "axes_lengths", None), Mapping
    )


def wanted_by(rearranged: Rearranged) -> list[TensorSpec]:
    """The input that a pattern describes; empty where it leaves too much open."""
    left, _, right = rearranged.layer.pattern.partition("->")
    given, results = _groups(left), _groups(right)
    if "..." in (name for group in given for name in group) or not results:
        return []
    sizes = dict(rearranged.layer.axes_lengths)
    made = [group for group in results if any(name in sizes for name in group)]
    sizes |= _solved([*made, results[-1]][0], sizes, rearranged.features)
    varying = [index for index, group in enumerate(given) if index and any(name not in sizes for name in group)]
    names = dict(zip(varying, _SPACE.get(len(varying), ()), strict=False))
    if len(names) != len(varying):
        return []
    dims = (_dimension(index, group, names, sizes) for index, group in enumerate(given))
    return [TensorSpec("f32", tuple(dims))]


def _groups(side: str) -> list[tuple[str, ...]]:
    return [tuple((match[1] or match[2] or "").split()) for match in _GROUP.finditer(side)]


def _solved(group: Sequence[str], sizes: Mapping[str, int], features: int) -> dict[str, int]:
    """The one unknown size of the group that becomes the features, which is the one with sizes given."""
    unknown = [name for name in group if name not in sizes]
    known = prod(sizes[name] for name in group if name in sizes)
    return {unknown[0]: features // known} if len(unknown) == 1 and features and features % known == 0 else {}


def _dimension(index: int, group: Sequence[str], names: Mapping[int, str], sizes: Mapping[str, int]) -> int | str:
    if index == 0:
        return "B"
    return names[index] if index in names else prod(sizes[name] for name in group)
