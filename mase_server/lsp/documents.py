"""The open documents, and their texts when they were opened, saved and traced.

This module keeps the documents itself, because pygls splits lines at form feeds. A document follows a few of its past
texts (opened, saved, traced) by hash, so that undo restores all hints.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from mase_server import notebooks, reading
from mase_server.lsp.text import (
    Edit,
    Text,
    count_equal_lines,
    decode_python_source,
    hashes_of_saved_text,
    split_lines,
    strip_line_end,
)

# Hints that survive typing: maps each line of the edited text to its line of the traced text.
#
# Every line of the document remembers the traced line that it came from. It is *intact* while its text equals the
# traced line, so a hint disappears with the first character typed into its line and returns once that is undone.
# Both sequences keep their order, so an inserted line can only match traced lines between those of its neighbours.

#: If either side has more lines than this, only the ends of a changed stretch are compared (difflib is quadratic).
_DIFF_LINES = 150
_NONE = -1


class Alignment:
    """The lines of one document against one traced text. Lines count from 0 on both sides."""

    def __init__(self, traced: Sequence[str], lines: list[str]) -> None:
        self._traced = list(traced)
        self._lines = lines
        self._current: dict[int, int] | None = None
        self._changes: list[tuple[int, int]] | None = None
        if traced == lines:
            self._origin = list(range(len(lines)))
        else:
            self._origin = [_NONE] * len(lines)
            self._match_around(0, len(lines))

    @property
    def traced_text(self) -> str:
        """The traced text, with line feeds for its line ends."""
        return "\n".join(map(strip_line_end, self._traced))

    def edited(self, lines: list[str], edit: Edit) -> None:
        """Follow one edit, after which the document consists of these `lines`."""
        old = self._origin[edit.line : edit.line + edit.removed]
        self._lines, self._current, self._changes = lines, None, None
        self._origin[edit.line : edit.line + edit.removed] = self._lines_kept_by_edit(edit, old)
        self._match_around(edit.line, edit.line + edit.added)

    def _lines_kept_by_edit(self, edit: Edit, old: list[int]) -> list[int]:
        """The traced lines of an edit's lines, where the unchanged parts of its first and last line determine them."""
        new = [_NONE] * edit.added
        first, last = edit.line, edit.line + edit.added - 1
        if edit.added == 1 < edit.removed:
            new[0] = old[0] if edit.head and (self._is_line_intact(first, old[0]) or not edit.tail) else old[-1]
        elif edit.removed == 1 < edit.added:
            pushed_down = not edit.head or (
                not self._is_line_intact(first, old[0]) and self._is_line_intact(last, old[0])
            )
            new[-1 if pushed_down else 0] = old[0]
        elif edit.added == edit.removed == 1:
            new[0] = old[0]
        else:
            new[0] = old[0] if edit.head else _NONE
            new[-1] = old[-1] if edit.tail else _NONE
        return new

    def traced_line(self, line: int) -> int | None:
        """The traced line at document line `line`, or None if it is new or its text differs."""
        if not 0 <= line < len(self._lines):
            return None
        origin = self._origin[line]
        return origin if self._is_line_intact(line, origin) else None

    def current_line(self, traced: int) -> int | None:
        """The present line of the traced line `traced`, or None if it is gone or its text differs."""
        if self._current is None:
            self._current = {origin: line for line, origin in enumerate(self._origin) if origin != _NONE}
        line = self._current.get(traced)
        return line if line is not None and self._is_line_intact(line, traced) else None

    def current_span(self, first: int, last: int) -> int | None:
        """The present first line of the traced lines `first` to `last`, if all are intact and still adjacent."""
        start = self.current_line(first)
        if start is None or any(self.current_line(first + i) != start + i for i in range(1, last - first + 1)):
            return None
        return start

    def changes(self) -> list[tuple[int, int]]:
        """The stretches [first, last) of traced lines whose code differs now, in order; empty where lines were added.

        Comments and empty lines are no code, except comments for MASE.
        """
        if self._changes is None:
            self._changes = list(self._find_changes())
        return self._changes

    def _find_changes(self) -> Iterator[tuple[int, int]]:
        last, added = 0, list[str]()
        lines, traced = self._lines, self._traced
        for line, origin in enumerate([*self._origin, len(traced)]):
            if line < len(lines):
                if origin == last and not added and lines[line] == traced[origin]:  # as most, at each key
                    last += 1
                    continue
                if not self._is_line_intact(line, origin):
                    added.append(lines[line])
                    continue
            removed = traced[last:origin]
            if any("\ufffd" in line for line in added):
                # The editor read the file in another encoding: the same code in other letters.
                added, removed = ([_FOREIGN.sub("", line) for line in lines] for lines in (added, removed))
            if (added or removed) and _code_of(added) != _code_of(removed):
                yield last, origin
            last, added = origin + 1, []

    def _is_line_intact(self, line: int, origin: int) -> bool:
        return origin != _NONE and _is_same_line(self._lines[line], self._traced[origin])

    def _match_around(self, start: int, stop: int) -> None:
        """Match the lines around [start, stop) that are not intact with the traced lines again."""
        while start > 0 and not self._is_line_intact(start - 1, self._origin[start - 1]):
            start -= 1
        while stop < len(self._lines) and not self._is_line_intact(stop, self._origin[stop]):
            stop += 1
        for low, high in self._find_gaps(start, stop):
            self._match_gap(low, high)

    def _find_gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The longest stretches [low, high) inside [start, stop) of lines that are not intact."""
        if self._origin[start:stop].count(_NONE) == stop - start:
            return [(start, stop)] if start < stop else []
        gaps: list[tuple[int, int]] = []
        for line, origin in enumerate(self._origin[start:stop], start):
            if origin != _NONE and self._is_line_intact(line, origin):
                continue
            if gaps and gaps[-1][1] == line:
                gaps[-1] = gaps[-1][0], line + 1
            else:
                gaps.append((line, line + 1))
        return gaps

    def _match_gap(self, low: int, high: int) -> None:
        first = self._origin[low - 1] + 1 if low else 0
        last = self._origin[high] if high < len(self._lines) else len(self._traced)
        guesses = self._origin[low:high]
        self._origin[low:high] = [_NONE] * (high - low)
        self._match_texts(low, high, first, last)
        self._keep_guesses(low, guesses, first, last)

    def _match_texts(self, low: int, high: int, first: int, last: int) -> None:
        head, tail = self._alike_at_the_ends(low, high, first, last)
        self._origin[low : low + head] = range(first, first + head)
        self._origin[high - tail : high] = range(last - tail, last)
        low, high, first, last = low + head, high - tail, first + head, last - tail
        if 0 < high - low <= _DIFF_LINES and 0 < last - first <= _DIFF_LINES:
            self._match_by_diff(low, high, first, last)

    def _alike_at_the_ends(self, low: int, high: int, first: int, last: int) -> tuple[int, int]:
        """The number of equal lines at either end of [low, high) and of the traced lines [first, last)."""
        now, traced = self._lines[low:high], self._traced[first:last]
        head, tail = _alike_at_both_ends(now, traced)
        most = min(len(now), len(traced))
        if head + tail < most and (_is_same_line(now[head], traced[head]) or _is_same_line(now[~tail], traced[~tail])):
            # Line ends differ. Stripping all lines of a long text takes longer than everything else here.
            return _alike_at_both_ends(list(map(strip_line_end, now)), list(map(strip_line_end, traced)))
        return head, tail

    def _keep_guesses(self, low: int, guesses: list[int], first: int, last: int) -> None:
        """Let an edited line keep its traced line if the order allows, to tell it apart from equal lines."""
        if guesses.count(_NONE) == len(guesses):
            return
        bounds = [last] * len(guesses)
        for index in range(len(guesses) - 1, 0, -1):
            found = self._origin[low + index]
            bounds[index - 1] = bounds[index] if found == _NONE else found
        for index, guess in enumerate(guesses):
            if self._origin[low + index] == _NONE and first <= guess < bounds[index]:
                self._origin[low + index] = guess
            first = max(first, self._origin[low + index] + 1)

    def _match_by_diff(self, low: int, high: int, first: int, last: int) -> None:
        now = list(map(strip_line_end, self._lines[low:high]))
        traced = list(map(strip_line_end, self._traced[first:last]))
        matcher = SequenceMatcher(None, traced, now, autojunk=False)
        for block in matcher.get_matching_blocks():
            for i in range(block.size):
                self._origin[low + block.b + i] = first + block.a + i


def _is_same_line(line: str, other: str) -> bool:
    """Are two lines equal, apart from their line ends?"""
    return line == other or strip_line_end(line) == strip_line_end(other)


#: What a decoder may read differently: all but ASCII.
_FOREIGN = re.compile(r"[^\x00-\x7f]+")


def _code_of(lines: list[str]) -> list[str]:
    """Some lines without those that hold only a comment or nothing."""
    texts = (line.rstrip() for line in lines)
    return [text for text in texts if text and (not text.lstrip().startswith("#") or "mase" in text)]


def _alike_at_both_ends(one: list[str], other: list[str]) -> tuple[int, int]:
    most = min(len(one), len(other))
    head = count_equal_lines(one, other, most)
    return head, count_equal_lines(one[::-1], other[::-1], most - head)


#: Maximum number of past texts that a document follows: the traced one, the one being traced, and others between.
_FOLLOWED = 4


@dataclass(slots=True)
class Followed:
    """One past text, by the hashes that its file may have, and where its lines are now."""

    hashes: frozenset[str]
    alignment: Alignment


@dataclass(slots=True)
class Document:
    """One open document."""

    uri: str
    path: str
    version: int
    text: Text
    followed: list[Followed] = field(default_factory=list)
    saved: Alignment | None = None
    #: Did its code differ from the saved one after the last edit?
    edited: bool = False
    #: Set once the daemon was asked to trace it.
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def remember_text(self, shown: str = "") -> None:
        """Follow the present text, which may be traced next, and keep following the shown one."""
        self._find_alignment(shown)
        self.saved = self._follow_text(hashes_of_saved_text(str(self.text)), self.text.lines)

    @property
    def is_as_saved(self) -> bool:
        """Is the code that of the saved text?"""
        return self.saved is not None and not self.saved.changes()

    def follow_unsaved(self, data: bytes, shown: str) -> None:
        """Follow the present text, whose bytes are to be traced, and keep following the shown one."""
        self._find_alignment(shown)
        found = hashes_of_saved_text(str(self.text)) | {hashlib.sha256(data).hexdigest()}
        if not any(found <= followed.hashes for followed in self.followed):
            self._follow_text(found, self.text.lines)

    def has_code_of(self, sha256: str) -> bool:
        """Is the code that of the text with this hash, apart from comments and empty lines? False if it is unknown."""
        alignment = self._find_alignment(sha256)
        return alignment is not None and not alignment.changes()

    def apply(self, edit: Edit) -> None:
        """Move the lines of the followed texts along with one edit."""
        for alignment in {id(each): each for each in (*(one.alignment for one in self.followed), self.saved)}.values():
            if alignment is not None:
                alignment.edited(self.text.lines, edit)

    def note_edit(self) -> bool:
        """Has the code begun, or ceased, to differ from the saved one since the last edit?"""
        before, self.edited = self.edited, self.saved is not None and bool(self.saved.changes())
        if self.edited and not before and self._is_on_disk():
            # Another program wrote the file, and the editor has read it again.
            self.remember_text()
            self.edited = False
        return self.edited != before

    def _is_on_disk(self) -> bool:
        try:
            return decode_python_source(notebooks.read_traced_bytes(self.path, reading.MOST)) == str(self.text)
        except OSError:
            return False

    def alignment(self, sha256: str) -> Alignment | None:
        """The alignment with the text of this hash ("": the file's); None if that text is unknown."""
        return self._find_alignment(sha256) or self._from_disk(sha256)

    def _find_alignment(self, sha256: str) -> Alignment | None:
        for index, followed in enumerate(self.followed):
            if sha256 in followed.hashes:
                self.followed.append(self.followed.pop(index))
                return followed.alignment
        return None

    def _from_disk(self, sha256: str) -> Alignment | None:
        """The alignment with the file on disk, if that was traced: another program than this editor wrote it."""
        try:
            data = notebooks.read_traced_bytes(self.path, reading.MOST)
        except OSError:
            # If the file cannot be read, only the editor's text exists.
            return None if sha256 else self._follow_text(frozenset(), self.text.lines)
        found = hashlib.sha256(data).hexdigest()
        if sha256 not in {"", found}:
            return None
        return self._follow_text(frozenset({found}), split_lines(decode_python_source(data)))

    def _follow_text(self, known: frozenset[str], lines: list[str]) -> Alignment:
        alignment = Alignment(lines, self.text.lines)
        self.followed = [old for old in self.followed if old.hashes != known][1 - _FOLLOWED :]
        self.followed.append(Followed(known, alignment))
        return alignment


class Documents:
    """Every document that the client has open. One file may be open under several URIs, e.g. its name and a link."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Document] = {}
        self._by_path: dict[str, list[Document]] = {}

    def open(self, uri: str, path: str, version: int, text: str) -> Document:
        """Open a document; it replaces one that was open under this URI."""
        self.close(uri)
        document = self._by_uri[uri] = Document(uri, path, version, Text(text))
        self._by_path.setdefault(path, []).append(document)
        document.remember_text()
        return document

    def close(self, uri: str) -> Document | None:
        """Close a document; returns it, None if it was not open."""
        if (document := self._by_uri.pop(uri, None)) is not None:
            others = [each for each in self._by_path.pop(document.path) if each is not document]
            self._by_path |= {document.path: others} if others else {}
        return document

    def at(self, uri: str) -> Document | None:
        """The document opened under this URI."""
        return self._by_uri.get(uri)

    def get(self, path: str) -> Document | None:
        """The document of `path` if it is open; the last opened one of several."""
        return self._by_path[path][-1] if path in self._by_path else None

    def of(self, path: str) -> list[Document]:
        """All documents of `path`."""
        return list(self._by_path.get(path, ()))

    def edited(self, path: str) -> bool:
        """Has the code of `path` been edited since it was saved?"""
        return any(document.edited for document in self._by_path.get(path, ()))

    def differ(self, path: str, hashes: Iterable[str]) -> bool:
        """Has the code of `path` been edited since it was saved, so that it is not that of a text with these hashes?"""
        edited = [document for document in self._by_path.get(path, ()) if document.edited]
        return any(not all(map(document.has_code_of, hashes)) for document in edited)

    def paths(self) -> list[str]:
        """The paths of all open documents."""
        return list(self._by_path)


def read_document(path: str, uri: str) -> Document | None:
    """A file that is not open, read from disk; None if it cannot be read."""
    try:
        text = decode_python_source(notebooks.read_traced_bytes(path, reading.MOST))
    except OSError:
        return None
    return Document(uri, path, 0, Text(text))
