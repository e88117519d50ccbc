"""`mase-server shapes`: the source with its hints, then what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text as Styled

from mase_server.cli.session import Outcome
from mase_server.lsp.wording import EXPRESSIONS, NAMES, hint_text, lens_text, shown
from mase_server.snapshot import Problem

_THEME = "ansi_dark"
_HINT = "dim italic cyan"
_LENS = "dim"
_SEVERITY = {"error": "bold red", "warning": "yellow", "information": "blue", "hint": "dim"}
_ALL_LINES = (1, 1 << 30)


def print_text(outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print every file. Colours only on a terminal."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    for number, outcome in enumerate(outcomes):
        if len(outcomes) > 1:
            console.print(f"{chr(10) if number else ''}── {outcome.file}", style="bold")
        for line in listing(outcome, everything):
            console.print(line)
        for problem in outcome.problems:
            console.print(problem_line(outcome.file, problem))


def listing(outcome: Outcome, everything: bool = False) -> Iterator[Styled]:
    """The lines of the source, each with its hints behind the names, each model's facts above its class."""
    source = "\n".join(outcome.text.line(index) for index in range(len(outcome.text.lines))).removesuffix("\n")
    lines = Syntax(source, "python", theme=_THEME, background_color="default").highlight(source).split("\n")
    hints = _hints(outcome, everything)
    lenses = _lenses(outcome)
    for number, line in enumerate(lines[: source.count("\n") + 1], 1):
        yield from lenses.get(number, ())
        yield _with_hints(line, sorted(hints.get(number, ())))


def _hints(outcome: Outcome, everything: bool) -> dict[int, list[tuple[int, str]]]:
    """By line: the column that each hint stands before, and its text."""
    found: dict[int, list[tuple[int, str]]] = {}
    if outcome.view is None or not outcome.same_text:
        return found
    for site in outcome.view.sites(*_ALL_LINES, EXPRESSIONS if everything else NAMES):
        if shown(site):
            follows = outcome.text.line(site.end_line - 1)[site.end_column :]
            found.setdefault(site.end_line, []).append((site.end_column, hint_text(site, follows)))
    return found


def _lenses(outcome: Outcome) -> dict[int, list[Styled]]:
    found: dict[int, list[Styled]] = {}
    if outcome.view is not None and outcome.same_text:
        for model in outcome.view.models():
            indent = " " * (len(outcome.text.line(model.line - 1)) - len(outcome.text.line(model.line - 1).lstrip()))
            text = f"{indent}# {model.name}: {lens_text(model, outcome.view.stale)}"
            found.setdefault(model.line, []).append(Styled(text, _LENS))
    return found


def _with_hints(line: Styled, hints: Sequence[tuple[int, str]]) -> Styled:
    parts = line.divide([column for column, _ in hints])
    told = Styled()
    for part, (_, text) in zip(parts, hints, strict=False):
        told.append_text(part).append(text, _HINT)
    return told.append_text(parts[-1])


def problem_line(file: str, problem: Problem) -> Styled:
    """A diagnostic as compilers tell one, with its places and fixes below."""
    style = _SEVERITY.get(problem.severity, "")
    told = Styled(f"{file}:{problem.line}:{problem.column + 1}: ")
    told.append(f"{problem.severity}[{problem.code}]", style).append(": " + problem.message.replace("\n", "\n    "))
    for place in problem.related:
        told.append(f"\n    {place['file']}:{place['line']}: {place['message']}", "dim")
    for fix in problem.fixes:
        told.append(f"\n    fix: {fix['title']}", "green")
    return told
