"""`# mase: ignore[rule]`: problems that the code's author does not want to be told.

- `# mase: ignore[shape-mismatch, index-error]` at the end of a line, or alone above it, ignores these rules there;
  `# mase: ignore` ignores all.
- `# mase: ignore-file[missing-package]` does so in the whole file.

The rules are the codes of [diagnostics](diagnostics.md).
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mase_server.protocol.codes import CODES
from mase_server.protocol.snapshot import Problem
from mase_server.suggestions import suggest
from mase_server.tracing.importing.source import decode_source, read_source

_COMMENT = re.compile(r"#\s*mase:\s*ignore(?P<file>-file)?\s*(?:\[(?P<rules>[^\]]*)\])?\s*(?=$|#|--|;)")
#: Lines of comments and without code, over which a comment alone on its line reaches.
_EMPTY = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment. lines: those that it is for, None for the whole file.  rules: () for all.

    line, column, end_column: where it stands.
    """

    rules: tuple[str, ...]
    lines: range | None
    line: int
    column: int
    end_column: int

    def covers(self, problem: Problem) -> bool:
        """Is a problem of its file not to be told?"""
        inside = self.lines is None or any(line in self.lines for line in (problem.line, problem.end_line))
        return inside and (not self.rules or problem.code in self.rules)


def is_ignore(comment: str) -> bool:
    """Is the text after `mase:` such a comment?"""
    return _COMMENT.match(f"# mase: {comment}") is not None


def read_ignores(source: str) -> list[Ignore]:
    """Every such comment of a file, in order."""
    if "mase:" not in source:
        return []
    found: list[Ignore] = []
    alone: list[tuple[re.Match[str], int, int]] = []
    code_line = 0
    for token in _tokenize(source):
        line, column = token.start
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is not None and (match["file"] or code_line == line):
            found.append(_make_ignore(match, None if match["file"] else range(line, line + 1), line, column))
        elif match is not None:
            alone.append((match, line, column))
        elif token.type not in _EMPTY:
            found += [_make_ignore(above, range(line, line + 1), at, start) for above, at, start in alone]
            alone, code_line = [], token.end[0]
    return found


def _make_ignore(match: re.Match[str], lines: range | None, line: int, column: int) -> Ignore:
    rules = tuple(filter(None, (each.strip() for each in (match["rules"] or "").split(","))))
    return Ignore(rules, lines, line, column + match.start(), column + match.end())


def explain_unknown_rule(ignore: Ignore) -> str:
    """The mistake in the names of its rules; "" if there is none."""
    unknown = next((rule for rule in ignore.rules if rule not in CODES), None)
    return (
        "" if unknown is None else f"there is no rule {unknown!r}{suggest(unknown, CODES, elsewhere='see the codes')}"
    )


def drop_ignored(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that no comment in their file ignores."""
    known: dict[str, list[Ignore]] = {}
    kept = []
    for problem in problems:
        if problem.file not in known:
            known[problem.file] = _read_ignores_of(problem.file)
        if not any(ignore.covers(problem) for ignore in known[problem.file]):
            kept.append(problem)
    return kept


def _read_ignores_of(path: str) -> list[Ignore]:
    try:
        return read_ignores(decode_source(read_source(path)))
    except (OSError, SyntaxError, ValueError):
        return []


def _tokenize(source: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(source).readline)
    except (tokenize.TokenError, SyntaxError):
        return
