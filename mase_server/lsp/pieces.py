"""Big answers in pieces: turning twenty thousand hints into JSON at once would hold up the loop, and everybody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

#: Elements that are written in one go, by what they are.
_SCALARS_AT_ONCE, _CHARACTERS_AT_ONCE, _AT_ONCE = 4000, 1 << 16, 16
#: What has more elements than this in all is written in pieces.
_SMALL = 128
_DEPTH = 8
_SCALARS = (str, int, float, bool, type(None))

Default = Callable[[Any], Any]


def is_big(value: Any) -> bool:
    """Does an answer take long enough to be written in pieces?"""
    return _weight(value, _DEPTH) >= _SMALL


def pieces(value: Any, default: Default) -> Iterator[str]:
    """The JSON text of a value as `json.dumps(value, default=default)` writes it; each piece takes a millisecond."""
    return _pieces(value, default, _DEPTH)


def _weight(value: Any, depth: int) -> int:
    """About how many elements a value has, a text for each kilobyte one; stops counting once it is no longer small."""
    if isinstance(value, str):
        return 1 + len(value) // 1024
    parts = _parts(value)
    if parts is None or depth == 0:
        return 1 if parts is None else 1 + len(parts)
    total = 1 + len(parts) // (16 if parts and isinstance(parts[0], int | float) else 1)
    for each in parts:
        if total >= _SMALL:
            break
        total += 0 if isinstance(each, int | float) else _weight(each, depth - 1)
    return total


def _parts(value: Any) -> Sequence[Any] | None:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return list(value.values())
    if attrs.has(type(value)):
        return [getattr(value, each.name) for each in attrs.fields(type(value))]
    return None


def _pieces(value: Any, default: Default, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _text(value)
    elif depth == 0 or _weight(value, depth) < _SMALL:
        yield json.dumps(value, default=default)
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        yield from _entries(value, default, depth)
    elif isinstance(value, list | tuple):
        yield from _elements(value, default, depth)
    elif attrs.has(type(value)):
        yield from _entries(_opened(value, default), default, depth)
    else:
        yield json.dumps(value, default=default)


def _text(value: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(value), _CHARACTERS_AT_ONCE):
        yield json.dumps(value[start : start + _CHARACTERS_AT_ONCE])[1:-1]
    yield '"'


def _opened(value: Any, default: Default) -> dict[str, Any]:
    """A structure of the protocol as the map that it becomes, but its long lists, which are left as they are."""
    fields = [each.name for each in attrs.fields(type(value)) if "_" not in each.name]
    long = {name: found for name in fields if isinstance(found := getattr(value, name), list) and is_big(found)}
    return {**default(attrs.evolve(value, **{name: [] for name in long})), **long}


def _entries(value: dict[str, Any], default: Default, depth: int) -> Iterator[str]:
    before = "{"
    for key, each in value.items():
        yield f"{before}{json.dumps(key)}: "
        yield from _pieces(each, default, depth - 1)
        before = ", "
    yield "}"


def _elements(values: Sequence[Any], default: Default, depth: int) -> Iterator[str]:
    before = "["
    step = _SCALARS_AT_ONCE if isinstance(values[0], _SCALARS) else _AT_ONCE
    for start in range(0, len(values), step):
        part = values[start : start + step]
        yield before
        if depth > 1 and any(_weight(each, depth - 1) >= _SMALL for each in part if not isinstance(each, _SCALARS)):
            yield from _each(part, default, depth - 1)
        else:
            yield json.dumps(part, default=default)[1:-1]
        before = ", "
    yield "]"


def _each(part: Sequence[Any], default: Default, depth: int) -> Iterator[str]:
    for number, value in enumerate(part):
        if number:
            yield ", "
        yield from _pieces(value, default, depth)
