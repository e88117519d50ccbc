"""`mase-server check --format sarif`: SARIF 2.1.0, as code scanning services read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mase_server import __version__
from mase_server.cli.checked import Checked
from mase_server.cli.terminal import say_json
from mase_server.codes import CODES
from mase_server.snapshot import Problem

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "information": "note", "hint": "note"}
_BASE = "SRCROOT"


def print_sarif(checked: Checked) -> None:
    """One object."""
    say_json(report(checked), indent=1)


def report(checked: Checked) -> dict[str, Any]:
    """The log of one run. Paths are relative to the root; columns count code points."""
    codes = sorted({problem.code for problem in checked.problems})
    driver = {"name": "mase-server", "version": __version__, "rules": [_rule(code) for code in codes]}
    missed = [_notification(checked, each.path, each.told["status"]) for each in checked.unchecked]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_BASE: {"uri": checked.root.as_uri() + "/"}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": missed}],
        "results": [_result(checked, codes, problem) for problem in checked.problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    meaning, step = CODES.get(code, (code, "Do what the message says."))
    name = "".join(part.capitalize() for part in code.split("-"))
    told = {"text": f"{meaning}\n\nNext: {step}", "markdown": f"{meaning}\n\n**Next:** {step}"}
    return {
        "id": code, "name": name, "shortDescription": {"text": meaning.partition(". ")[0].removesuffix(".") + "."},
        "fullDescription": {"text": meaning}, "help": told,
    }  # fmt: skip


def _result(checked: Checked, codes: Sequence[str], problem: Problem) -> dict[str, Any]:
    place = {key: getattr(problem, key) for key in ("file", "line", "column", "end_line", "end_column")}
    told: dict[str, Any] = {
        "ruleId": problem.code, "ruleIndex": codes.index(problem.code), "level": _LEVELS[problem.severity],
        "message": {"text": problem.message}, "locations": [{"physicalLocation": _physical(checked, place)}],
    }  # fmt: skip
    if problem.related:
        told["relatedLocations"] = [
            {"id": number, "physicalLocation": _physical(checked, each), "message": {"text": each["message"]}}
            for number, each in enumerate(problem.related)
        ]
    if problem.fixes:
        told["fixes"] = [_fix(checked, fix) for fix in problem.fixes]
    return told


def _fix(checked: Checked, fix: Mapping[str, Any]) -> dict[str, Any]:
    files: dict[str, list[dict[str, Any]]] = {}
    for edit in fix["edits"]:
        change = {"deletedRegion": region(edit), "insertedContent": {"text": edit["new_text"]}}
        files.setdefault(edit["file"], []).append(change)
    changes = [{"artifactLocation": _where(checked, file), "replacements": each} for file, each in files.items()]
    return {"description": {"text": fix["title"]}, "artifactChanges": changes}


def _physical(checked: Checked, place: Mapping[str, Any]) -> dict[str, Any]:
    return {"artifactLocation": _where(checked, place["file"]), "region": region(place)}


def _where(checked: Checked, path: str) -> dict[str, str]:
    file = Path(path)
    if not file.is_relative_to(checked.root):
        return {"uri": file.as_uri()}
    return {"uri": quote(file.relative_to(checked.root).as_posix()), "uriBaseId": _BASE}


def region(place: Mapping[str, Any]) -> dict[str, int]:
    """Lines and columns from 1, the end's column exclusive."""
    return {
        "startLine": place["line"], "startColumn": place["column"] + 1,
        "endLine": place["end_line"], "endColumn": place["end_column"] + 1,
    }  # fmt: skip


def _notification(checked: Checked, path: str, status: Mapping[str, Any] | None) -> dict[str, Any]:
    text = (status or {}).get("message") or "nothing of it could be traced"
    where = {"physicalLocation": {"artifactLocation": _where(checked, path)}}
    return {"level": "warning", "message": {"text": f"not checked: {text}"}, "locations": [where]}
