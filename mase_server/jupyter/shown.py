"""A cell with its hints, as HTML for notebooks and as text for terminals. Everything of the person's is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mase_server.cli.reports import Report
from mase_server.lsp.wording import NAMES, hint_text, lens_text, shown
from mase_server.snapshot import Problem
from mase_server.visible import escape_markup, reveal_lines

_BOX = "border-left: 3px solid #8aa; padding: 2px 0 2px 8px; margin: 2px 0"
_HINT = "color: #0a7ea4; font-style: italic"
_LENS = "opacity: 0.65"
_SEVERITY = {"error": "color: #c0392b", "warning": "color: #b9770e"}

#: A text, and its style: "" for the person's own source.
Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell under which its shapes stand, or in words why none do.

    first: the line of the traced text that the cell begins at, from 1.
    """

    cell: str
    traced: Report | str
    first: int = 1

    def _repr_html_(self) -> str:
        lines = ["".join(_html(*piece) for piece in line) for line in self.lines()]
        return f'<pre style="{_BOX}">' + "\n".join(lines) + "</pre>"

    def __repr__(self) -> str:
        return reveal_lines("\n".join("".join(text for text, _ in line) for line in self.lines()))

    def lines(self) -> Iterator[Sequence[Piece]]:
        """Each model's facts, the source with hints behind the names, and what is wrong."""
        texts, hints, lenses = self.cell.splitlines(), self._hints(), self._lenses()
        yield from ([(text, _LENS)] for text in lenses.pop(0, ()))
        for number, text in enumerate(texts, 1):
            indent = text[: len(text) - len(text.lstrip())]
            yield from ([(f"{indent}# {lens}", _LENS)] for lens in lenses.get(number, ()))
            yield list(_with_hints(text, sorted(hints.get(number, ()))))
        yield from ([(text, style)] for text, style in self._ends())

    def _ends(self) -> Iterator[Piece]:
        """The problems of the cell; if there are no shapes, at least the reason."""
        if isinstance(self.traced, str):
            yield self.traced, _SEVERITY["warning"]
            return
        problems = self.traced.told_problems
        yield from ((self._problem(each), _SEVERITY.get(each.severity, "")) for each in problems)
        if self.traced.told["python"] is None and not problems:
            status = self.traced.told["status"] or {}
            yield status.get("message") or "nothing of this cell could be traced", _LENS

    def _hints(self) -> dict[int, list[tuple[int, str]]]:
        """By line of the cell: the column that each hint stands before, and its text."""
        found: dict[int, list[tuple[int, str]]] = {}
        lines = self.cell.splitlines()
        for site in self.traced.sites(NAMES) if isinstance(self.traced, Report) else ():
            line = site.end_line - self.first
            if shown(site) and 0 <= line < len(lines):
                text = hint_text(site, lines[line][site.end_column :])
                found.setdefault(line + 1, []).append((site.end_column, text))
        return found

    def _lenses(self) -> dict[int, list[str]]:
        """By line of the cell, 0 for models of other cells."""
        found: dict[int, list[str]] = {}
        for model in self.traced.lenses if isinstance(self.traced, Report) else ():
            line = max(0, model.line - self.first + 1)
            found.setdefault(line, []).append(f"{model.name}: {lens_text(model, False)}")
        return found

    def _problem(self, problem: Problem) -> str:
        line = problem.line - self.first + 1
        place = f"line {line}" if line >= 1 else "an earlier cell"
        return f"{place}: {problem.severity}: {problem.message}"


def _html(text: str, style: str) -> str:
    return f'<span style="{style}">{escape_markup(text)}</span>' if style else escape_markup(text)


def _with_hints(text: str, hints: Sequence[tuple[int, str]]) -> Iterator[Piece]:
    start = 0
    for column, hint in hints:
        yield text[start:column], ""
        yield hint, _HINT
        start = column
    yield text[start:], ""
