"""The text of a value, and of the several values of a line that ran many times.

A value is what `mase_server.snapshot` says: a tensor `[dtype, shape, symbols]`, a `{"tuple": ...}`, a `{"dict": ...}`,
None or a `{"python": type name}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mase_server.snapshot import tensors
from mase_server.visible import reveal

#: Longest label that a hint shows whole, in characters.
LIMIT = 60
#: Most alternatives that a label lists.
ALTERNATIVES = 4
_MORE = "…"
#: Room that a part of a tuple has at least, in characters.
_PART = 24


def has_tensor(value: Any) -> bool:
    """Is a tensor anywhere in `value`?"""
    return next(tensors(value), None) is not None


def dimensions(tensor: Sequence[Any]) -> list[str]:
    """The dimensions of a tensor value as texts: symbols where they are known, else numbers."""
    _, shape, symbols = tensor
    return [str(size) for size in (shape if symbols is None else symbols)]


def label(values: Sequence[Any], limit: int = 0) -> str:
    """One text for all the values seen at a place, in the order seen; shortened if longer than `limit` (0: never)."""
    groups: dict[Any, list[Any]] = {}
    for value in _distinct(values):
        groups.setdefault(_outline(value), []).append(value)
    texts = [_aligned(group, 0) for group in groups.values()]
    full = reveal(_listed(texts, " | "))
    if limit and len(full) > limit:
        short = reveal(_listed([_aligned(group, limit // len(texts)) for group in groups.values()], " | "))
        return short if len(short) <= limit else short[: limit - 1] + _MORE
    return full


def _distinct(values: Sequence[Any]) -> list[Any]:
    seen: dict[str, Any] = {}
    for value in values:
        seen.setdefault(repr(_shown(value)), value)
    return list(seen.values())


def _shown(value: Any) -> Any:
    """The part of a value that a label tells: two runs at other sizes with equal symbols look the same."""
    if isinstance(value, list | tuple):
        return value[0], dimensions(value)
    if isinstance(value, dict) and "tuple" in value:
        return [_shown(part) for part in value["tuple"]]
    if isinstance(value, dict) and "dict" in value:
        return {key: _shown(part) for key, part in value["dict"].items()}
    return value if value is None else str(value.get("python"))


def _outline(value: Any) -> Any:
    """What must be equal for values to be told in one text: structure, element types and ranks."""
    if isinstance(value, list | tuple):
        return value[0], len(value[1])
    if isinstance(value, dict) and "tuple" in value:
        return ("tuple", *map(_outline, value["tuple"]))
    if isinstance(value, dict) and "dict" in value:
        return ("dict", *((key, _outline(part)) for key, part in value["dict"].items()))
    return "None" if value is None else str(value.get("python"))


def _aligned(values: Sequence[Any], limit: int) -> str:
    """The text of values with one outline. Alternatives stand in the same order everywhere, one for each value."""
    first = values[0]
    if first is None or (isinstance(first, dict) and "python" in first):
        return str(_outline(first))
    if isinstance(first, dict) and "tuple" in first:
        part_limit = max(limit // 2, _PART) if limit else 0
        parts = [_aligned(column, part_limit) for column in zip(*(value["tuple"] for value in values), strict=True)]
        comma = "," if len(parts) == 1 else ""
        return f"({_fitted(_runs(parts), limit)}{comma})"
    if isinstance(first, dict):
        keys = list(first["dict"])
        texts = [f"{key}: {_aligned([value['dict'][key] for value in values], 0)}" for key in keys]
        return f"{{{_fitted(texts, limit)}}}"
    columns = [list(column) for column in zip(*map(dimensions, values), strict=True)]
    return f"{first[0]}[{_dimensions_within(columns, limit - len(first[0]) - 2 if limit else 0)}]"


def _dimensions_within(columns: Sequence[Sequence[str]], limit: int) -> str:
    """The dimensions with their alternatives; where that is too long, the widest lists fewer of them."""
    shown = [1 if len(set(column)) == 1 else ALTERNATIVES for column in columns]
    while True:
        texts = [
            column[0] if len(set(column)) == 1 else _listed(column, "|", count)
            for column, count in zip(columns, shown, strict=True)
        ]
        widths = [len(text) if count > 1 else 0 for text, count in zip(texts, shown, strict=True)]
        if not limit or len(", ".join(texts)) <= limit or not any(widths):
            return ", ".join(texts)
        widest = widths.index(max(widths))
        shown[widest] = min(shown[widest], len(columns[widest])) - 1


def _listed(texts: Sequence[str], separator: str, most: int = ALTERNATIVES) -> str:
    more = [_MORE] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def _runs(texts: list[str]) -> list[str]:
    """Equal neighbours told once: a cache of twelve layers is `12 of f32[...]`."""
    runs: list[tuple[str, int]] = []
    for text in texts:
        if runs and runs[-1][0] == text:
            runs[-1] = text, runs[-1][1] + 1
        else:
            runs.append((text, 1))
    told = [[text] * count if count < 3 else [f"{count} of {text}"] for text, count in runs]
    return [text for group in told for text in group]


def _fitted(texts: Sequence[str], limit: int) -> str:
    """As many of `texts` as fit into `limit` characters (0: all), then how many more there are."""
    full = ", ".join(texts)
    if not limit or len(full) + 2 <= limit:
        return full
    shown = len(texts) - 1
    while shown > 0:
        told = ", ".join(texts[:shown]) + f", {_MORE} {len(texts) - shown} more"
        if len(told) + 2 <= limit:
            return told
        shown -= 1
    return f"{_MORE} {len(texts)} values"
