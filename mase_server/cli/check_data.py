"""`mase-server check` for programs: JSON, and the commands of GitHub's workflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from mase_server import __version__
from mase_server.cli.checked import SEVERITIES, Checked
from mase_server.cli.lines import from_here
from mase_server.cli.terminal import say, say_json
from mase_server.snapshot import Problem

_COMMANDS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def print_json(checked: Checked) -> None:
    """One object."""
    say_json(report(checked))


def report(checked: Checked) -> dict[str, Any]:
    """{"version", "files", "problems", "counts"}; problems have "file", and all that an editor is told of them."""
    unchecked = {each.path for each in checked.unchecked}
    files = [
        {
            "file": from_here(each.path),
            "state": each.state,
            "models": [model["title"] for model in each.models],
            "checked": each.path not in unchecked,
        }
        for each in checked.reports
    ]
    counts = {severity: checked.counts[severity] for severity in SEVERITIES}
    problems = [asdict(problem) | {"file": from_here(problem.file)} for problem in checked.problems]
    return {"version": __version__, "files": files, "problems": problems, "counts": counts}


def print_github(checked: Checked) -> None:
    """A line for each problem, which GitHub shows beside the changed code."""
    for problem in checked.problems:
        say(annotation(checked, problem))


def annotation(checked: Checked, problem: Problem) -> str:
    """`::error file=net.py,line=13,...::message`."""
    told = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in _properties(checked, problem))
    fixes = "".join(f"\nfix: {fix['title']}" for fix in problem.fixes)
    return f"::{_COMMANDS[problem.severity]} {told}::{_escaped(problem.message + fixes, _DATA)}"


#: What GitHub's runner decodes in a message, and in the properties before it: % is first.
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def _properties(checked: Checked, problem: Problem) -> Iterator[tuple[str, object]]:
    """Columns count from 1 and belong to one line: GitHub drops an annotation that has them for several."""
    yield "file", checked.relative(problem.file)
    yield "line", problem.line
    if problem.end_line == problem.line:
        yield "endLine", problem.line
        yield "col", problem.column + 1
        yield "endColumn", problem.end_column + 1
    else:
        yield "endLine", problem.end_line - (problem.end_column == 0)
    yield "title", f"mase-server {problem.code}"


def _escaped(value: object, codes: dict[str, str]) -> str:
    text = str(value)
    for character, code in codes.items():
        text = text.replace(character, code)
    return text
