"""The one module that knows UTF-8, UTF-16 and UTF-32: columns of the protocol from and to columns in code points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum


class Encoding(StrEnum):
    """What a column of the protocol counts; the values are the protocol's own names."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


def _utf8_units(character: str) -> int:
    code = ord(character)
    return 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)


def _utf16_units(character: str) -> int:
    return 1 + (ord(character) >= 0x10000)


_UNITS: dict[Encoding, Callable[[str], int]] = {
    Encoding.UTF8: _utf8_units,
    Encoding.UTF16: _utf16_units,
    Encoding.UTF32: lambda character: 1,
}


def choose(offered: Sequence[str] | None) -> Encoding:
    """The encoding to speak: utf-32 where it is offered (nothing to convert), else the client's first, else utf-16."""
    known = [Encoding(name) for name in offered or () if name in set(Encoding)]
    if Encoding.UTF32 in known:
        return Encoding.UTF32
    return known[0] if known else Encoding.UTF16


def to_units(line: str, column: int, encoding: Encoding) -> int:
    """The protocol's column of code point `column` of `line`; past the end counts as the end."""
    column = min(column, len(line))
    if encoding is Encoding.UTF32 or line.isascii():
        return column
    return sum(map(_UNITS[encoding], line[:column]))


def from_units(line: str, units: int, encoding: Encoding) -> int:
    """The code point column of the protocol's column `units`; inside a character means before it."""
    if encoding is Encoding.UTF32 or line.isascii():
        return min(units, len(line))
    measure, left = _UNITS[encoding], units
    for column, character in enumerate(line):
        left -= measure(character)
        if left < 0:
            return column
    return len(line)
