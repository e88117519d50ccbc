"""The text of an open document: its lines as the protocol counts them, and edits to them."""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Column encodings: only this module knows UTF-8, UTF-16 and UTF-32, and converts them to code points and back.


class Encoding(StrEnum):
    """The unit of the protocol's columns; the values are the protocol's own names."""

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


def choose_encoding(offered: Sequence[str] | None) -> Encoding:
    """The encoding to use: utf-32 if offered (nothing to convert), else the client's first choice, else utf-16."""
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
    """The code point column of the protocol's column `units`; inside a character, the column before it."""
    if encoding is Encoding.UTF32 or line.isascii():
        return min(units, len(line))
    measure, left = _UNITS[encoding], units
    for column, character in enumerate(line):
        left -= measure(character)
        if left < 0:
            return column
    return len(line)


# The protocol's line ends are those of Python's tokenizer; str.splitlines, though fast, splits at others, too.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_OTHER_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BOM = b"\xef\xbb\xbf"


def split_lines(text: str) -> list[str]:
    """The lines of `text`, line ends kept; a text that ends with a line end has an empty last line."""
    lines = _LINE.findall(text) if any(each in text for each in _OTHER_ENDS) else text.splitlines(keepends=True)
    if not lines or lines[-1].endswith(("\n", "\r")):
        lines.append("")
    return lines


def strip_line_end(line: str) -> str:
    """`line` without its line end."""
    return line.rstrip("\r\n")


def hashes_of_saved_text(text: str) -> frozenset[str]:
    """sha256 of the files that an editor may write for this text: UTF-8 without and with a byte order mark."""
    data = text.encode("utf-8", "surrogatepass")
    return frozenset({hashlib.sha256(data).hexdigest(), hashlib.sha256(_BOM + data).hexdigest()})


def decode_python_source(data: bytes) -> str:
    """Decode a Python file by its byte order mark or coding comment; undecodable bytes are replaced."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "utf-8"
    return data.decode(encoding, "replace")


def count_equal_lines(one: Sequence[str], other: Sequence[str], most: int) -> int:
    """The number of equal lines at the start of two texts, at most `most`.

    By bisection, because Python compares lists fast.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Edit:
    """The effect of one change on lines: `added` lines replaced `removed` lines from `line` on.

    head, tail: characters of the first and last removed line that were kept before and after the inserted text.
    """

    line: int
    removed: int
    added: int
    head: int
    tail: int


class Text:
    """Lines that are edited in place. Lines and columns count from 0; columns in code points."""

    def __init__(self, text: str) -> None:
        self.lines = split_lines(text)

    def __str__(self) -> str:
        return "".join(self.lines)

    def line(self, index: int) -> str:
        """Line `index` without its line end; "" past the last."""
        return strip_line_end(self.lines[index]) if 0 <= index < len(self.lines) else ""

    def replace(self, start: tuple[int, int], end: tuple[int, int], text: str) -> Edit:
        """Replace the text from `start` to `end` by `text`; positions outside count as the nearest inside."""
        first, first_column = self.inside(start)
        last, last_column = self.inside(max(start, end))
        head, tail = self.lines[first][:first_column], self.lines[last][last_column:]
        if not head and first and self.lines[first - 1].endswith("\r") and (text + tail).startswith("\n"):
            first, head = first - 1, self.lines[first - 1]
        added = split_lines(head + text + tail)
        if not added[-1] and last + 1 < len(self.lines):
            added.pop()
        removed = last - first + 1
        self.lines[first : last + 1] = added
        return Edit(first, removed, len(added), len(strip_line_end(head)), len(strip_line_end(tail)))

    def replace_all(self, text: str) -> Edit:
        """Replace the whole text; the returned edit covers only the lines between equal lines at both ends."""
        old, self.lines = self.lines, split_lines(text)
        most = min(len(old), len(self.lines)) - 1
        head = count_equal_lines(old, self.lines, most)
        tail = count_equal_lines(old[::-1], self.lines[::-1], most - head)
        return Edit(head, len(old) - head - tail, len(self.lines) - head - tail, 0, 0)

    def inside(self, position: tuple[int, int]) -> tuple[int, int]:
        """The nearest position inside the text."""
        line, column = position
        if line >= len(self.lines):
            return len(self.lines) - 1, len(self.line(len(self.lines) - 1))
        return line, min(column, len(self.line(line)))
