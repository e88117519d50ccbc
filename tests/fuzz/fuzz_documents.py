"""A document as the person's editor has it: its lines, which of them an edit touched, and what may be shown at them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from fuzz_texts import FIRST, Hints, Spec, Written, unknown, utf16, written

Edit = tuple[int, int, str]
_numbers = itertools.count()


@dataclass(frozen=True)
class Line:
    """One line without its end.  ident: changes whenever an edit touches it."""

    text: str
    ident: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True)
class Kept:
    """One text that may be shown: what was written, and which lines the buffer had then (none: it never had it)."""

    told: Written
    idents: tuple[int, ...] = ()


class Document:
    """One file. Offsets are in code points of the text; positions are the protocol's, in UTF-16 units.

    spec: what the person means to write.  shown: the texts whose hints may be in sight.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec: Spec = FIRST
        self.version = self.changes = 0
        self.open = False
        self.deleted = False
        self.lines: list[Line] = []
        self.known = written(self.spec)
        self.disk = self.known
        self.shown: list[Kept] = []
        self.faults = 0
        #: Somebody stopped a trace, killed a process, or asked for other inputs: its end may be another one.
        self.disturbed = False
        self.wished = False
        self.status: dict[str, Any] = {}
        self.load(self.known)

    @property
    def uri(self) -> str:
        """As the editor calls it."""
        return self.path.as_uri()

    @property
    def text(self) -> str:
        """What the buffer holds."""
        return "\n".join(line.text for line in self.lines)

    def load(self, told: Written) -> None:
        """Have this text, with every line new."""
        self.known = told
        self.lines = [Line(text) for text in told.text.split("\n")]

    def position(self, offset: int) -> dict[str, int]:
        """The protocol's position of an offset."""
        before = self.text[:offset]
        return {"line": before.count("\n"), "character": utf16(before[before.rfind("\n") + 1 :])}

    def edit(self, start: int, stop: int, new: str) -> dict[str, Any]:
        """Put `new` in place of a stretch: the change as the protocol tells it."""
        text = self.text
        start, stop = min(start, len(text)), min(max(start, stop), len(text))
        change = {"range": {"start": self.position(start), "end": self.position(stop)}, "text": new}
        first, last = change["range"]["start"]["line"], change["range"]["end"]["line"]  # type: ignore[index]
        whole = text[:start] + new + text[stop:]
        count = len(self.lines) - (last - first + 1)
        fresh = whole.split("\n")
        touched = len(fresh) - count
        made = [Line(each) for each in fresh[first : first + touched]]
        self.lines[first : last + 1] = made
        self.known = unknown(whole)
        return change

    def retyped(self, told: Written) -> list[dict[str, Any]]:
        """Turn the buffer into `told`, by as many small edits as that takes, in one notification."""
        matcher = SequenceMatcher(None, self.text, told.text, autojunk=False)
        edits = [(a, b, told.text[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
        changes = [self.edit(*each) for each in reversed(edits)]
        assert self.text == told.text
        self.known = told
        return changes

    def replaced(self, told: Written) -> list[dict[str, Any]]:
        """Turn the buffer into `told` by one change without a range."""
        self.load(told)
        return [{"text": told.text}]

    def saved(self) -> None:
        """The file holds the buffer's text from now on."""
        self.disk = self.known
        self.may_show(self.known, tuple(line.ident for line in self.lines))

    def may_show(self, told: Written, idents: tuple[int, ...] = ()) -> None:
        """From now on a trace of this text may come."""
        if told.fault == "exits":
            self.faults += 1
        if told.shows or told.fault is None:
            self.shown.append(Kept(told, idents))

    def settled_on(self, sha256: str | None, hashes: Iterable[str]) -> Kept | None:
        """The server says that it shows the text with this hash: nothing else is in sight any more."""
        found = [each for each, of in zip(self.shown, hashes, strict=True) if of == sha256]
        self.shown = found[-1:]
        return found[-1] if found else None

    def expected(self, kept: Kept) -> Hints:
        """The hints that have to be in sight: those of lines that no edit has touched; all where nothing differs."""
        if kept.told.text == self.text:
            return kept.told.hints
        now = {line.ident: number for number, line in enumerate(self.lines)}
        moved = ((now.get(kept.idents[line]) if kept.idents else None, column, label)
                 for (line, column), label in kept.told.hints.items())  # fmt: skip
        return {(line, column): label for line, column, label in moved if line is not None}

    def allowed(self, kept: Kept, line: int, column: int, label: str) -> bool:
        """May this hint stand at that place? Only at a line whose text is, character by character, a traced one."""
        traced = kept.told.text.split("\n")
        text = self.lines[line].text if line < len(self.lines) else None
        if kept.told.fault is None:
            return text in traced
        return any(traced[of] == text and at == column and told == label for (of, at), told in kept.told.hints.items())
