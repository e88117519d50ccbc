"""The output of `mase-server check`: text for people, JSON, annotations for GitHub, and SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from mase_server import PROJECT_URL, __version__
from mase_server.cli.checking import SEVERITIES, Checked, Sources
from mase_server.cli.terminal import SEVERITY, Line, from_here, print_lines, say, say_json
from mase_server.lsp.wording import format_count
from mase_server.protocol.codes import CODES
from mase_server.protocol.records import Extent, Fix, ProblemRecord, SourcePlace
from mase_server.protocol.snapshot import Problem
from mase_server.visible import reveal, reveal_lines

_EXTENT = ("line", "column", "end_line", "end_column")
_BAR = "dim"
#: Maximum number of places that explain an error: innermost calls come first.
_PLACES = 4


def print_text(checked: Checked) -> None:
    """Print the problems, then one line that sums them up."""
    sources = Sources()
    lines = [
        line for problem in checked.problems for line in (*_explained_problem_lines(checked, sources, problem), Line())
    ]
    print_lines([*lines, *check_summary(checked)])


def _explained_problem_lines(checked: Checked, sources: Sources, problem: Problem) -> Iterator[Line]:
    style = SEVERITY.get(problem.severity, "")
    first, *rest = problem.message.split("\n")
    place = f"{reveal(from_here(problem.file))}:{problem.line}:{problem.column + 1}: "
    yield Line(((place, "bold"), (f"{problem.severity}[{problem.code}]", style), (f": {first}", "")))
    yield from (Line(((f"    {line}", ""),)) for line in rest)
    told = {key: getattr(problem, key) for key in _EXTENT}
    yield from _excerpt_lines(sources, problem.file, told, "^", style)
    for related in problem.related[:_PLACES]:
        where = f"{reveal(from_here(related['file']))}:{related['line']}: "
        yield Line((("      = ", _BAR), (where, "bold"), (related["message"], "")))
        yield from _excerpt_lines(sources, related["file"], related, "-", "blue")
    for fix in problem.fixes:
        yield from fix_lines(sources, fix)


def _excerpt_lines(sources: Sources, path: str, place: Mapping[str, Any], mark: str, style: str) -> Iterator[Line]:
    """The line of a place, marked below; nothing for a place that is a whole file or cannot be read."""
    line, column, end_line, end_column = (place[key] for key in _EXTENT)
    text = sources.text(path).line(line - 1)
    if not text.strip():
        return
    end = end_column if end_line == line else len(text)
    width = max(len(reveal_lines(text[column:end])), 1)
    before = "".join("\t" if each == "\t" else " " for each in reveal_lines(text[:column]))
    yield Line(((f"{line:5} | ", _BAR), (text.rstrip(), "")))
    yield Line((("      | ", _BAR), (before + mark * width, style)))


def fix_lines(sources: Sources, fix: Mapping[str, Any]) -> Iterator[Line]:
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


#: What the compilers found, which is of level information but may be asked to fail a check.
_COMPILED = {"graph-break": "graph break", "recompilation": "recompilation", "not-exported": "refused export"}


def check_summary(checked: Checked) -> Iterator[Line]:
    """The findings in one line, and the files that could not be checked."""
    for report, reason in checked.unchecked:
        line = f":{reason.line}" if reason.file == report.path and reason.line > 1 else ""
        why = reason.message.replace("\n", " ")
        yield Line(((f"{reveal(from_here(report.path))}{line}: not checked: {why}", "yellow"),))
    left = len(checked.unchecked)
    files = format_count(len(checked.reports) - left, "model file")
    counts = checked.counts
    told = [format_count(counts[each], each) for each in ("error", "warning") if counts[each]]
    codes = Counter(problem.code for problem in checked.problems)
    told += [format_count(codes[code], words) for code, words in _COMPILED.items() if codes[code]]
    style = "bold red" if counts["error"] else "yellow" if told or left else "green"
    rest = f"; {format_count(left, 'file')} not checked" if left else ""
    rest += f"; {checked.known_count} known" if checked.known_count else ""
    yield Line(((f"{files} checked: {', '.join(told) or 'no problem found'}{rest}", style),))


# Output for programs: JSON, and the commands of GitHub's workflows.

_COMMANDS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def print_json(checked: Checked) -> None:
    """Print one JSON object."""
    say_json(checked_to_json(checked))


class CheckedFile(TypedDict):
    """A file that was looked at. checked: was anything traced of it?  reason: why not, else ""."""

    file: str
    state: str
    models: list[str]
    checked: bool
    reason: str


class CheckReport(TypedDict):
    """The result of `mase-server check`. problems: all that an editor is told of them.  counts: by severity."""

    version: str
    files: list[CheckedFile]
    problems: list[ProblemRecord]
    counts: dict[str, int]


def checked_to_json(checked: Checked) -> CheckReport:
    """The report with paths from here."""
    reasons = {report.path: reason.message for report, reason in checked.unchecked}
    files: list[CheckedFile] = [
        {
            "file": from_here(each.path),
            "state": each.state,
            "models": [model["title"] for model in each.models],
            "checked": each.path not in reasons,
            "reason": reasons.get(each.path, ""),
        }
        for each in checked.reports
    ]
    counts = {severity: checked.counts[severity] for severity in SEVERITIES}
    problems: list[ProblemRecord] = [
        {**problem.to_wire(), "file": from_here(problem.file)} for problem in checked.problems
    ]
    return {"version": __version__, "files": files, "problems": problems, "counts": counts}


def print_github(checked: Checked) -> None:
    """Print a line for each problem; GitHub shows it beside the changed code. The log gets what was not checked."""
    for problem in checked.problems:
        say(github_annotation(checked, problem))
    for line in check_summary(checked):
        say(line.plain, error=True)


def github_annotation(checked: Checked, problem: Problem) -> str:
    """`::error file=net.py,line=13,...::message`."""
    told = ",".join(
        f"{key}={_escape_for_github(value, _PROPERTY)}" for key, value in _annotation_properties(checked, problem)
    )
    fixes = "".join(f"\nfix: {fix['title']}" for fix in problem.fixes)
    return f"::{_COMMANDS[problem.severity]} {told}::{_escape_for_github(problem.message + fixes, _DATA)}"


#: Characters that GitHub's runner decodes in a message and in the properties before it; % must be replaced first.
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def _annotation_properties(checked: Checked, problem: Problem) -> Iterator[tuple[str, object]]:
    """The properties of an annotation. Columns count from 1.

    They are left out for several lines, as GitHub requires.
    """
    yield "file", checked.relative(problem.file)
    yield "line", problem.line
    if problem.end_line == problem.line:
        yield "endLine", problem.line
        yield "col", problem.column + 1
        yield "endColumn", problem.end_column + 1
    else:
        yield "endLine", problem.end_line - (problem.end_column == 0)
    yield "title", f"mase-server {problem.code}"


def _escape_for_github(value: object, codes: dict[str, str]) -> str:
    text = str(value)
    for character, code in codes.items():
        text = text.replace(character, code)
    return text


# Output as SARIF 2.1.0, for code scanning services.

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "information": "note", "hint": "note"}
_BASE = "SRCROOT"
#: The page that explains every rule, with a heading for each.
RULES_PAGE = f"{PROJECT_URL}/blob/main/docs/reference/diagnostics.md"
#: An object of SARIF, as its schema declares it.
Sarif = dict[str, Any]


def print_sarif(checked: Checked) -> None:
    """Print one JSON object."""
    say_json(checked_to_sarif(checked), indent=1)


def checked_to_sarif(checked: Checked) -> Sarif:
    """The log of one run. Paths are relative to the root; columns count code points."""
    codes = sorted({problem.code for problem in checked.problems})
    rules = [_sarif_rule(code) for code in codes]
    driver = {"name": "mase-server", "version": __version__, "informationUri": PROJECT_URL, "rules": rules}
    missed = [_sarif_notification(checked, report.path, reason) for report, reason in checked.unchecked]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_BASE: {"uri": checked.root.as_uri() + "/"}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": missed}],
        "results": [_sarif_result(checked, codes, problem) for problem in checked.problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(code: str) -> Sarif:
    meaning, step = CODES.get(code, (code, "Do what the message says."))
    name = "".join(part.capitalize() for part in code.split("-"))
    told = {"text": f"{meaning}\n\nNext: {step}", "markdown": f"{meaning}\n\n**Next:** {step}"}
    return {
        "id": code, "name": name, "shortDescription": {"text": meaning.partition(". ")[0].removesuffix(".") + "."},
        "fullDescription": {"text": meaning}, "help": told, "helpUri": f"{RULES_PAGE}#{code}",
    }  # fmt: skip


def _sarif_result(checked: Checked, codes: Sequence[str], problem: Problem) -> Sarif:
    told: Sarif = {
        "ruleId": problem.code, "ruleIndex": codes.index(problem.code), "level": _LEVELS[problem.severity],
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": _physical_location(checked, problem.to_wire())}],
    }  # fmt: skip
    if problem.related:
        told["relatedLocations"] = [
            {"id": number, "physicalLocation": _physical_location(checked, each), "message": {"text": each["message"]}}
            for number, each in enumerate(problem.related)
        ]
    if problem.fixes:
        told["fixes"] = [_sarif_fix(checked, fix) for fix in problem.fixes]
    return told


def _sarif_fix(checked: Checked, fix: Fix) -> Sarif:
    files: dict[str, list[Sarif]] = {}
    for edit in fix["edits"]:
        change = {"deletedRegion": sarif_region(edit), "insertedContent": {"text": edit["new_text"]}}
        files.setdefault(edit["file"], []).append(change)
    changes = [
        {"artifactLocation": _artifact_location(checked, file), "replacements": each} for file, each in files.items()
    ]
    return {"description": {"text": fix["title"]}, "artifactChanges": changes}


def _physical_location(checked: Checked, place: SourcePlace) -> Sarif:
    return {"artifactLocation": _artifact_location(checked, place["file"]), "region": sarif_region(place)}


def _artifact_location(checked: Checked, path: str) -> dict[str, str]:
    file = Path(path)
    if not file.is_relative_to(checked.root):
        return {"uri": file.as_uri()}
    return {"uri": quote(file.relative_to(checked.root).as_posix()), "uriBaseId": _BASE}


def sarif_region(place: Extent) -> dict[str, int]:
    """Lines and columns from 1, the end's column exclusive."""
    return {
        "startLine": place["line"], "startColumn": place["column"] + 1,
        "endLine": place["end_line"], "endColumn": place["end_column"] + 1,
    }  # fmt: skip


def _sarif_notification(checked: Checked, path: str, reason: Problem) -> Sarif:
    where = {"physicalLocation": {"artifactLocation": _artifact_location(checked, path)}}
    return {"level": "warning", "message": {"text": f"not checked: {reason.message}"}, "locations": [where]}
