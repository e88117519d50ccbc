"""Hints that survive typing: which line of the traced text each line of the edited text still is.

Every line of the document remembers the traced line that it came from. It counts as *intact* while its text is the
traced one, so a hint disappears with the first character typed into its line and is back once that was undone.
Both sequences keep their order, so what an edit inserted can only be what the trace had between its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from mase_server.lsp.text import Edit, alike, bare

#: Above this many lines on either side, a changed stretch is compared at its two ends only (difflib is quadratic).
_DIFF_LINES = 150
_NONE = -1


class Alignment:
    """The lines of one document against one traced text. Lines count from 0 on both sides."""

    def __init__(self, traced: Sequence[str], lines: list[str]) -> None:
        self._traced = list(traced)
        self._lines = lines
        self._current: dict[int, int] | None = None
        if traced == lines:
            self._origin = list(range(len(lines)))
        else:
            self._origin = [_NONE] * len(lines)
            self._match(0, len(lines))

    @property
    def traced_text(self) -> str:
        """The traced text, with line feeds for its line ends."""
        return "\n".join(map(bare, self._traced))

    def edited(self, lines: list[str], edit: Edit) -> None:
        """Follow one edit, after which the document has these `lines`."""
        old = self._origin[edit.line : edit.line + edit.removed]
        self._lines, self._current = lines, None
        self._origin[edit.line : edit.line + edit.removed] = self._kept(edit, old)
        self._match(edit.line, edit.line + edit.added)

    def _kept(self, edit: Edit, old: list[int]) -> list[int]:
        """The traced lines of an edit's lines, as far as they follow from what it kept of its first and last line."""
        new = [_NONE] * edit.added
        first, last = edit.line, edit.line + edit.added - 1
        if edit.added == 1 < edit.removed:
            new[0] = old[0] if edit.head and (self._intact(first, old[0]) or not edit.tail) else old[-1]
        elif edit.removed == 1 < edit.added:
            pushed_down = not edit.head or (not self._intact(first, old[0]) and self._intact(last, old[0]))
            new[-1 if pushed_down else 0] = old[0]
        elif edit.added == edit.removed == 1:
            new[0] = old[0]
        else:
            new[0] = old[0] if edit.head else _NONE
            new[-1] = old[-1] if edit.tail else _NONE
        return new

    def traced_line(self, line: int) -> int | None:
        """The traced line that document line `line` is, or None if it is new or its text differs."""
        if not 0 <= line < len(self._lines):
            return None
        origin = self._origin[line]
        return origin if self._intact(line, origin) else None

    def current_line(self, traced: int) -> int | None:
        """Where traced line `traced` stands now, or None if it is gone or its text differs."""
        if self._current is None:
            self._current = {origin: line for line, origin in enumerate(self._origin) if origin != _NONE}
        line = self._current.get(traced)
        return line if line is not None and self._intact(line, traced) else None

    def current_span(self, first: int, last: int) -> int | None:
        """Where the traced lines `first` to `last` start now, if all of them are intact and still adjacent."""
        start = self.current_line(first)
        if start is None or any(self.current_line(first + i) != start + i for i in range(1, last - first + 1)):
            return None
        return start

    def _intact(self, line: int, origin: int) -> bool:
        return origin != _NONE and _same(self._lines[line], self._traced[origin])

    def _match(self, start: int, stop: int) -> None:
        """Find the traced lines again for the lines around [start, stop) that are not intact."""
        while start > 0 and not self._intact(start - 1, self._origin[start - 1]):
            start -= 1
        while stop < len(self._lines) and not self._intact(stop, self._origin[stop]):
            stop += 1
        for low, high in self._gaps(start, stop):
            self._match_gap(low, high)

    def _gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The longest stretches [low, high) inside [start, stop) of lines that are not intact."""
        if self._origin[start:stop].count(_NONE) == stop - start:
            return [(start, stop)] if start < stop else []
        gaps: list[tuple[int, int]] = []
        for line, origin in enumerate(self._origin[start:stop], start):
            if origin != _NONE and self._intact(line, origin):
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
            self._diff(low, high, first, last)

    def _alike_at_the_ends(self, low: int, high: int, first: int, last: int) -> tuple[int, int]:
        """How many of the lines [low, high) and of the traced ones [first, last) are the same at either end."""
        now, traced = self._lines[low:high], self._traced[first:last]
        head, tail = _alike_at_both_ends(now, traced)
        most = min(len(now), len(traced))
        if head + tail < most and (_same(now[head], traced[head]) or _same(now[~tail], traced[~tail])):
            # Line ends differ. To strip all lines of a long text takes longer than all else here.
            return _alike_at_both_ends(list(map(bare, now)), list(map(bare, traced)))
        return head, tail

    def _keep_guesses(self, low: int, guesses: list[int], first: int, last: int) -> None:
        """An edited line keeps the traced line that it was, so that it is found among equal ones, if order allows."""
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

    def _diff(self, low: int, high: int, first: int, last: int) -> None:
        now, traced = list(map(bare, self._lines[low:high])), list(map(bare, self._traced[first:last]))
        matcher = SequenceMatcher(None, traced, now, autojunk=False)
        for block in matcher.get_matching_blocks():
            for i in range(block.size):
                self._origin[low + block.b + i] = first + block.a + i


def _same(line: str, other: str) -> bool:
    """Are two lines the same, their ends aside?"""
    return line == other or bare(line) == bare(other)


def _alike_at_both_ends(one: list[str], other: list[str]) -> tuple[int, int]:
    most = min(len(one), len(other))
    head = alike(one, other, most)
    return head, alike(one[::-1], other[::-1], most - head)
