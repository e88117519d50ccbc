"""Quick fixes, written to the files: those that were proved by tracing the mended text."""

from __future__ import annotations

import hashlib
import io
import itertools
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mase_server.cli.checked import Checked
from mase_server.cli.lines import from_here
from mase_server.lsp.text import Text, decode
from mase_server.visible import reveal

Place = tuple[int, int]


def mend(checked: Checked) -> list[str]:
    """Apply one proved fix of each file, the first; what was done, in words.

    One at a time: it was proved with the rest of the file as it stands, and often the next error was its shadow.
    """
    done = []
    for report in checked.reports:
        own = (each for each in checked.problems if each.file == report.path)
        for problem in own if _is_unchanged(report.path, report.told["sha256"]) else ():
            fix = next((fix for fix in problem.fixes if fix["preferred"] and _is_within(fix, report.path)), None)
            if fix is not None:
                _write(Path(report.path), fix["edits"])
                done.append(f"{reveal(from_here(report.path))}:{problem.line}: {fix['title']}")
                break
    return done


def _is_unchanged(path: str, sha256: str) -> bool:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _is_within(fix: Mapping[str, Any], path: str) -> bool:
    """Does it touch this file alone, and no place twice?"""
    places = sorted(_extent(edit) for edit in fix["edits"])
    apart = all(before[1] <= after[0] for before, after in itertools.pairwise(places))
    return bool(places) and apart and all(edit["file"] == path for edit in fix["edits"])


def _extent(edit: Mapping[str, Any]) -> tuple[Place, Place]:
    return (edit["line"] - 1, edit["column"]), (edit["end_line"] - 1, edit["end_column"])


def _write(path: Path, edits: list[dict[str, Any]]) -> None:
    source = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = Text(decode(source))
    for (start, end), new in _from_the_end(edits):
        text.replace(start, end, new)
    path.write_bytes(str(text).encode(encoding))


def _from_the_end(edits: list[dict[str, Any]]) -> Iterator[tuple[tuple[Place, Place], str]]:
    """So that no edit moves the place of another."""
    for edit in sorted(edits, key=_extent, reverse=True):
        yield _extent(edit), edit["new_text"]
