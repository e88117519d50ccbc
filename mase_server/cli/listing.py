"""`mase-server shapes`: the source with its hints, then what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mase_server.cli.lines import SEVERITY, Line, print_lines
from mase_server.cli.reports import Report
from mase_server.cli.styles import styled
from mase_server.cli.terminal import is_coloured
from mase_server.lsp.wording import EXPRESSIONS, NAMES, hint_text, lens_text, shown
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.cli.python_styles import Span
    from mase_server.snapshot import Problem

_HINT = "dim italic cyan"
_LENS = "dim"
#: The style of Python source, which is highlighted as a whole.
_PYTHON = "python"


def print_text(reports: Sequence[Report], everything: bool) -> None:
    """Print every file. Colours only on a terminal."""
    coloured = is_coloured(sys.stdout)
    for number, report in enumerate(reports):
        head = [Line(((f"{chr(10) if number else ''}── {reveal(report.file)}", "bold"),))] if len(reports) > 1 else []
        lines = [*head, *listing(report, everything), *_problems(report)]
        if coloured:
            _print_coloured(report, lines)
        else:
            print_lines(lines)


def listing(report: Report, everything: bool = False) -> Iterator[Line]:
    """The lines of the source, each with its hints behind the names, each model's facts above its class."""
    hints = _hints(report, everything)
    lenses = _lenses(report)
    for number, line in enumerate(_source(report).split("\n"), 1):
        yield from lenses.get(number, ())
        yield Line(tuple(_with_hints(line, sorted(hints.get(number, ())))), number)


def _source(report: Report) -> str:
    return "\n".join(report.text.line(index) for index in range(len(report.text.lines))).removesuffix("\n")


def _hints(report: Report, everything: bool) -> dict[int, list[tuple[int, str]]]:
    """By line: the column that each hint stands before, and its text."""
    found: dict[int, list[tuple[int, str]]] = {}
    for site in report.sites(EXPRESSIONS if everything else NAMES) if report.same_text else ():
        if shown(site):
            follows = report.text.line(site.end_line - 1)[site.end_column :]
            found.setdefault(site.end_line, []).append((site.end_column, hint_text(site, follows)))
    return found


def _lenses(report: Report) -> dict[int, list[Line]]:
    found: dict[int, list[Line]] = {}
    for model in report.lenses if report.same_text else ():
        above = report.text.line(model.line - 1)
        indent = " " * (len(above) - len(above.lstrip()))
        found.setdefault(model.line, []).append(Line(((f"{indent}# {model.name}: {lens_text(model, False)}", _LENS),)))
    return found


def _with_hints(line: str, hints: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    start = 0
    for column, text in hints:
        yield line[start:column], _PYTHON
        yield text, _HINT
        start = column
    yield line[start:], _PYTHON


def _print_coloured(report: Report, lines: Sequence[Line]) -> None:
    from mase_server.cli.python_styles import python_styles

    python = python_styles(_source(report))
    shown = (_highlighted(line, python.get(line.number, ())) if line.number else line.coloured for line in lines)
    sys.stdout.write("".join(f"{line}\n" for line in shown))


def _highlighted(line: Line, spans: Sequence[Span]) -> str:
    """A line of the source, of which the Python parts look as in the whole."""
    told, column = "", 0
    for text, style in line.parts:
        if style != _PYTHON:
            told += styled(text, style)
            continue
        end = column + len(text)
        told += _python(text, [(max(first, column) - column, min(last, end) - column, of) for first, last, of in spans])
        column = end
    return told


def _python(text: str, spans: Sequence[Span]) -> str:
    told, column = "", 0
    for first, last, style in spans:
        if first < last:
            told += styled(text[column:first], "") + styled(text[first:last], style)
            column = last
    return told + styled(text[column:], "")


def _problems(report: Report) -> Iterator[Line]:
    for problem in report.problems:
        yield problem_line(report.file, problem)


def _problem(file: str, problem: Problem) -> Iterator[tuple[str, str]]:
    yield f"{reveal(file)}:{problem.line}:{problem.column + 1}: ", ""
    yield f"{problem.severity}[{problem.code}]", SEVERITY.get(problem.severity, "")
    yield ": " + problem.message.replace("\n", "\n    "), ""
    for place in problem.related:
        yield f"\n    {reveal(place['file'])}:{place['line']}: {place['message']}", "dim"
    for fix in problem.fixes:
        yield f"\n    fix: {fix['title']}", "green"


def problem_line(file: str, problem: Problem) -> Line:
    """A diagnostic as compilers tell one, with its places and fixes below."""
    return Line(tuple(_problem(file, problem)))
