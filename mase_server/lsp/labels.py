"""The text of a value, and of the several values of a line that ran many times.

More than three tensors that have nothing in common are counted: `149 shapes`.

A value is what `mase_server.protocol.snapshot` says: a tensor `[dtype, shape, symbols]`, a `{"tuple": ...}`, a
`{"dict": ...}`, None or a `{"python": type name}`.

The alternatives of a line that ran many times stand in one order for all dimensions, one for each distinct value:
column k of all dimensions together is the k-th value, and no combination is shown that was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mase_server.protocol.records import Value
from mase_server.protocol.snapshot import iterate_tensor_values
from mase_server.visible import reveal

#: Maximum characters of a label that a hint shows in full.
LIMIT = 60
#: Maximum number of alternatives in a label.
ALTERNATIVES = 3
_MORE = "…"
#: Minimum characters for a part of a tuple.
_PART = 24


def has_tensor(value: Any) -> bool:
    """Is a tensor anywhere in `value`?"""
    return next(iterate_tensor_values(value), None) is not None


def dimension_texts(tensor: Sequence[Any]) -> list[str]:
    """The dimensions of a tensor value as texts: symbols if known, else numbers."""
    _, shape, symbols = tensor
    return [str(size) for size in (shape if symbols is None else symbols)]


def label_values(values: Sequence[Any], limit: int = 0, *, dtypes: bool = True) -> str:
    """One text for all values seen at a place, in that order; shortened if longer than `limit` (0: never).

    dtypes: with element types, `f32[B, 64]`; else only `[B, 64]`.
    """
    if not dtypes:
        values = [_without_dtype(value) for value in values]
    groups: dict[Any, list[Any]] = {}
    distinct = _distinct_values(values)
    if limit and are_unlike(distinct):
        return f"{len(distinct)} shapes"
    for value in distinct:
        groups.setdefault(_value_outline(value), []).append(value)
    texts = [_align_values(group, 0) for group in groups.values()]
    full = reveal(_join_alternatives(texts, " | "))
    if limit and len(full) > limit:
        short = reveal(
            _join_alternatives([_align_values(group, limit // len(texts)) for group in groups.values()], " | ")
        )
        return short if len(short) <= limit else short[: limit - 1] + _MORE
    return full


def _without_dtype(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ["", *value[1:]]
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [_without_dtype(part) for part in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: _without_dtype(part) for key, part in value["dict"].items()}}
    return value


def are_unlike(distinct: Sequence[Any]) -> bool:
    """Are these more tensors than a label lists, with different ranks or no dimension in common?

    Such are the parameters of a module in a loop.
    """
    if len(distinct) <= ALTERNATIVES or not all(isinstance(value, list | tuple) for value in distinct):
        return False
    shapes = [dimension_texts(value) for value in distinct]
    return len(set(map(len, shapes))) > 1 or not any(len(set(column)) == 1 for column in zip(*shapes, strict=True))


def _distinct_values(values: Sequence[Any]) -> list[Any]:
    seen: dict[str, Value] = {}
    for value in values:
        seen.setdefault(repr(_labelled_part(value)), value)
    return list(seen.values())


def _labelled_part(value: Any) -> Any:
    """The part of a value that a label shows: two runs at other sizes with equal symbols look the same."""
    if isinstance(value, list | tuple):
        return value[0], dimension_texts(value)
    if isinstance(value, dict) and "tuple" in value:
        return [_labelled_part(part) for part in value["tuple"]]
    if isinstance(value, dict) and "dict" in value:
        return {key: _labelled_part(part) for key, part in value["dict"].items()}
    return value if value is None else str(value.get("python"))


def _value_outline(value: Any) -> Any:
    """The facts that values in one text must share: structure, element types and ranks."""
    if isinstance(value, list | tuple):
        return value[0], len(value[1])
    if isinstance(value, dict) and "tuple" in value:
        return ("tuple", *map(_value_outline, value["tuple"]))
    if isinstance(value, dict) and "dict" in value:
        return ("dict", *((key, _value_outline(part)) for key, part in value["dict"].items()))
    return "None" if value is None else str(value.get("python"))


def _align_values(values: Sequence[Any], limit: int) -> str:
    """The text of values with one outline. Alternatives are in the same order everywhere, one for each value."""
    first = values[0]
    if first is None or (isinstance(first, dict) and "python" in first):
        return str(_value_outline(first))
    if isinstance(first, dict) and "tuple" in first:
        part_limit = max(limit // 2, _PART) if limit else 0
        parts = [
            _align_values(column, part_limit) for column in zip(*(value["tuple"] for value in values), strict=True)
        ]
        comma = "," if len(parts) == 1 else ""
        return f"({_fit_texts(_fold_equal_neighbours(parts), limit)}{comma})"
    if isinstance(first, dict):
        keys = list(first["dict"])
        texts = [f"{key}: {_align_values([value['dict'][key] for value in values], 0)}" for key in keys]
        return f"{{{_fit_texts(texts, limit)}}}"
    columns = [list(column) for column in zip(*map(dimension_texts, values), strict=True)]
    return f"{first[0]}[{_dimensions_within(columns, limit - len(first[0]) - 2 if limit else 0)}]"


def _dimensions_within(columns: Sequence[Sequence[str]], limit: int) -> str:
    """The dimensions with their alternatives; if that is too long, the widest lists show fewer."""
    shown = [1 if len(set(column)) == 1 else ALTERNATIVES for column in columns]
    while True:
        texts = [
            column[0] if len(set(column)) == 1 else _join_alternatives(column, "|", count)
            for column, count in zip(columns, shown, strict=True)
        ]
        widths = [len(text) if count > 1 else 0 for text, count in zip(texts, shown, strict=True)]
        if not limit or len(", ".join(texts)) <= limit or not any(widths):
            return ", ".join(texts)
        widest = widths.index(max(widths))
        shown[widest] = min(shown[widest], len(columns[widest])) - 1


def _join_alternatives(texts: Sequence[str], separator: str, most: int = ALTERNATIVES) -> str:
    more = [_MORE] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def _fold_equal_neighbours(texts: list[str]) -> list[str]:
    """Merge equal neighbours: a cache of twelve layers is `12 of f32[...]`."""
    runs: list[tuple[str, int]] = []
    for text in texts:
        if runs and runs[-1][0] == text:
            runs[-1] = text, runs[-1][1] + 1
        else:
            runs.append((text, 1))
    told = [[text] * count if count < 3 else [f"{count} of {text}"] for text, count in runs]
    return [text for group in told for text in group]


def _fit_texts(texts: Sequence[str], limit: int) -> str:
    """As many of `texts` as fit into `limit` characters (0: all), and the number of the others."""
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
