"""The text of an open document: its lines as the protocol counts them, and edits to them."""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

# The protocol's line ends, which are also those of Python's tokenizer; str.splitlines, which is quick, knows more.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_OTHER_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BOM = b"\xef\xbb\xbf"


def split_lines(text: str) -> list[str]:
    """The lines of `text`, line ends kept; a text that ends with a line end has an empty last line."""
    lines = _LINE.findall(text) if any(each in text for each in _OTHER_ENDS) else text.splitlines(keepends=True)
    if not lines or lines[-1].endswith(("\n", "\r")):
        lines.append("")
    return lines


def bare(line: str) -> str:
    """`line` without its line end."""
    return line.rstrip("\r\n")


def hashes(text: str) -> frozenset[str]:
    """sha256 of the files that an editor may have saved this text as: UTF-8 without and with a byte order mark."""
    data = text.encode("utf-8", "surrogatepass")
    return frozenset({hashlib.sha256(data).hexdigest(), hashlib.sha256(_BOM + data).hexdigest()})


def decode(data: bytes) -> str:
    """The text of a Python file, by its byte order mark or coding comment; what cannot be decoded is replaced."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "utf-8"
    return data.decode(encoding, "replace")


def alike(one: Sequence[str], other: Sequence[str], most: int) -> int:
    """How many lines two texts begin with alike, at most so many: found by halves, since Python compares lists fast."""
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
    """What one change did to the lines: `removed` lines from `line` gave way to `added` ones.

    head, tail: characters of the first and the last removed line that were kept before and after the inserted text.
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
        return bare(self.lines[index]) if 0 <= index < len(self.lines) else ""

    def replace(self, start: tuple[int, int], end: tuple[int, int], text: str) -> Edit:
        """Put `text` in place of what stands from `start` to `end`; positions outside count as the nearest inside."""
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
        return Edit(first, removed, len(added), len(bare(head)), len(bare(tail)))

    def replace_all(self, text: str) -> Edit:
        """Put `text` in place of everything: an edit of what lies between the lines that are the same at both ends."""
        old, self.lines = self.lines, split_lines(text)
        most = min(len(old), len(self.lines)) - 1
        head = alike(old, self.lines, most)
        tail = alike(old[::-1], self.lines[::-1], most - head)
        return Edit(head, len(old) - head - tail, len(self.lines) - head - tail, 0, 0)

    def inside(self, position: tuple[int, int]) -> tuple[int, int]:
        """The nearest position that is in the text."""
        line, column = position
        if line >= len(self.lines):
            return len(self.lines) - 1, len(self.line(len(self.lines) - 1))
        return line, min(column, len(self.line(line)))
