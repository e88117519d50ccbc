"""`mase-server check` for people: each problem with its place in the source, what explains it, and its fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mase_server.cli.checked import Checked, Sources
from mase_server.cli.lines import SEVERITY, Line, from_here, print_lines
from mase_server.lsp.figures import counted
from mase_server.snapshot import Problem
from mase_server.visible import reveal, reveal_lines

_EXTENT = ("line", "column", "end_line", "end_column")
_BAR = "dim"
#: Places that explain an error, at most: innermost calls come first.
_PLACES = 4


def print_text(checked: Checked) -> None:
    """Print the problems, then one line on all of it."""
    sources = Sources()
    lines = [line for problem in checked.problems for line in (*_problem(checked, sources, problem), Line())]
    print_lines([*lines, *summary(checked)])


def _problem(checked: Checked, sources: Sources, problem: Problem) -> Iterator[Line]:
    style = SEVERITY.get(problem.severity, "")
    first, *rest = problem.message.split("\n")
    place = f"{reveal(from_here(problem.file))}:{problem.line}:{problem.column + 1}: "
    yield Line(((place, "bold"), (f"{problem.severity}[{problem.code}]", style), (f": {first}", "")))
    yield from (Line(((f"    {line}", ""),)) for line in rest)
    told = {key: getattr(problem, key) for key in _EXTENT}
    yield from _excerpt(sources, problem.file, told, "^", style)
    for related in problem.related[:_PLACES]:
        where = f"{reveal(from_here(related['file']))}:{related['line']}: "
        yield Line((("      = ", _BAR), (where, "bold"), (related["message"], "")))
        yield from _excerpt(sources, related["file"], related, "-", "blue")
    for fix in problem.fixes:
        yield from _fix(checked, sources, fix)


def _excerpt(sources: Sources, path: str, place: Mapping[str, Any], mark: str, style: str) -> Iterator[Line]:
    """The line of a place, marked below; nothing for places that are a whole file or that cannot be read."""
    line, column, end_line, end_column = (place[key] for key in _EXTENT)
    text = sources.text(path).line(line - 1)
    if not text.strip():
        return
    end = end_column if end_line == line else len(text)
    width = max(len(reveal_lines(text[column:end])), 1)
    before = "".join("\t" if each == "\t" else " " for each in reveal_lines(text[:column]))
    yield Line(((f"{line:5} | ", _BAR), (text.rstrip(), "")))
    yield Line((("      | ", _BAR), (before + mark * width, style)))


def _fix(checked: Checked, sources: Sources, fix: Mapping[str, Any]) -> Iterator[Line]:
    """The change of a quick fix, as a diff."""
    proved = "" if fix["preferred"] else " (not enough by itself)"
    yield Line((("      = ", _BAR), ("fix", "green"), (f": {fix['title']}{proved}", "")))
    for edit in fix["edits"]:
        text = sources.text(edit["file"])
        first, last = text.line(edit["line"] - 1), text.line(edit["end_line"] - 1)
        after = f"{first[: edit['column']]}{edit['new_text']}{last[edit['end_column'] :]}"
        if edit["line"] == edit["end_line"] or first:
            yield Line(((f"{edit['line']:5} - ", _BAR), (first, "red")))
        for line in after.rstrip("\n").split("\n"):
            yield Line((("      + ", _BAR), (line, "green")))


def summary(checked: Checked) -> Iterator[Line]:
    """The findings in one line, and the files that could not be checked."""
    for report in checked.unchecked:
        why = (report.told["status"] or {}).get("message") or "nothing of it could be traced"
        yield Line(((f"{reveal(from_here(report.path))}: not checked: {why}", "yellow"),))
    files = counted(len(checked.reports), "model file")
    counts = checked.counts
    told = [counted(counts[each], each) for each in ("error", "warning") if counts[each]]
    style = "bold red" if counts["error"] else "yellow" if told else "green"
    yield Line(((f"{files} checked: {', '.join(told) or 'no problem found'}", style),))
