"""Big answers in pieces: packing twenty thousand nodes at once would hold up the event loop, and everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]

from mase_server.rpc.frames import RESPONSE, pack

#: Elements that are packed in one go, by what they are.
_AT_ONCE = ((dict, 32), (list, 256), (tuple, 256))
_SCALARS_AT_ONCE = 4096
#: Answers with fewer elements than this in all are packed in one go.
_SMALL = 512
_DEPTH = 4
_HOLDERS = frozenset({dict, list, tuple})


def whole_response(ident: int, result: dict[str, Any]) -> bytes | None:
    """The bytes of a response that went well, if it is small enough to be packed in one go; FrameError."""
    return pack([RESPONSE, ident, None, result]) if _weight(result, _DEPTH) < _SMALL else None


def response_pieces(ident: int, result: dict[str, Any]) -> Iterator[bytes]:
    """The bytes of a response that went well; each piece takes well under a millisecond to make."""
    packer = msgpack.Packer(buf_size=64)
    yield packer.pack_array_header(4) + pack(RESPONSE) + pack(ident) + pack(None)
    yield from _pieces(packer, result, _DEPTH)


def _weight(value: Any, depth: int) -> int:
    """About how many elements a value has; stops counting once it is no longer small. Every request pays for this."""
    if type(value) not in _HOLDERS:
        return 1
    total = len(value)
    if depth == 0 or total >= _SMALL:
        return total
    for each in value.values() if isinstance(value, dict) else value:
        if type(each) in _HOLDERS:
            total += _weight(each, depth - 1)
            if total >= _SMALL:
                break
    return total


def _pieces(packer: Any, value: Any, depth: int) -> Iterator[bytes]:
    if depth == 0 or _weight(value, depth) < _SMALL:
        yield pack(value)
    elif isinstance(value, dict):
        yield packer.pack_map_header(len(value))
        for key, each in value.items():
            yield pack(key)
            yield from _pieces(packer, each, depth - 1)
    else:
        yield packer.pack_array_header(len(value))
        yield from _elements(packer, value, depth - 1)


def _elements(packer: Any, values: list[Any] | tuple[Any, ...], depth: int) -> Iterator[bytes]:
    first = values[0]
    if isinstance(first, dict | list | tuple) and len(first) >= _SMALL:
        for each in values:
            yield from _pieces(packer, each, depth)
        return
    step = next((size for kind, size in _AT_ONCE if isinstance(first, kind)), _SCALARS_AT_ONCE)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        yield pack(part)[len(packer.pack_array_header(len(part))) :]
