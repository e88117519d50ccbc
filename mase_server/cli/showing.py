"""`mase-server shapes`: print a file's source with its shapes, or JSON, once or again at every save."""

from __future__ import annotations

import builtins
import io
import keyword
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from mase_server.cli import attached
from mase_server.cli.reports import Report, Site
from mase_server.cli.terminal import SEVERITY, Line, apply_style, is_coloured, print_lines, say, say_json
from mase_server.lsp.labels import dimension_texts, has_tensor
from mase_server.lsp.wording import EXPRESSIONS, NAMES, has_hint, hint_text, lens_text
from mase_server.protocol.records import Plain, UnshownModel
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.protocol.snapshot import Problem


@dataclass(frozen=True, slots=True)
class Asked:
    """The file to show, and how. model, inputs, set, python: given for this command; a daemon has its own.

    daemon: may the command query a running one?  texts: what is shown in place of files that are not read.
    """

    files: tuple[Path, ...]
    everything: bool = False
    json: bool = False
    model: str | None = None
    inputs: tuple[str, ...] = ()
    python: str | None = None
    daemon: bool = True
    set: str | None = None
    texts: Mapping[Path, bytes] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Can a running daemon answer this?"""
        own = self.model, self.python, self.set, *self.inputs
        return self.daemon and not self.texts and all(each is None for each in own)


def show_reports(asked: Asked) -> int:
    """Print everything; returns the exit status."""
    found = attached.cached_reports(asked.files, asked.everything) if asked.is_plain else {}
    missing = tuple(file for file in asked.files if file not in found)
    if missing:
        # Loaded here: the command answers from a running daemon's cache in less time than these take to load.
        import asyncio

        from mase_server.cli.session import Wanted, trace_files

        wanted = Wanted(missing, asked.model, asked.inputs, asked.python, asked.set, asked.texts)
        traced = asyncio.run(trace_files(wanted, asked.everything))
        found = found | dict(zip(missing, traced, strict=True))
    told = [found[file] for file in asked.files]
    if lacks_set(told, asked.set):
        return 2
    print_reports(told, asked)
    return max(report.status for report in told)


def lacks_set(reports: Sequence[Report], name: str | None) -> bool:
    """Does no model have inputs of this name? Then say so."""
    named = (each for report in reports for model in report.models for each in [*model["sets"], *model["builders"]])
    if not name or name in named:
        return False
    say(f"error: no model has inputs named {name!r}; write `# mase[{name}]: ...`", error=True)
    return True


def print_reports(reports: list[Report], asked: Asked) -> None:
    """Print as text or as JSON."""
    if asked.json:
        print_json(reports, asked.everything)
    else:
        print_text(reports, asked.everything)
    sys.stdout.flush()


# `mase-server shapes`: the source with its hints, then the problems.

HINT = "dim italic cyan"
_LENS = "dim"
#: The style of Python source, which is highlighted as one text.
_PYTHON = "python"


def print_text(reports: Sequence[Report], everything: bool) -> None:
    """Print every file. Colours only on a terminal."""
    coloured = is_coloured(sys.stdout)
    for number, report in enumerate(reports):
        head = [Line(((f"{chr(10) if number else ''}── {reveal(report.file)}", "bold"),))] if len(reports) > 1 else []
        lines = [*head, *annotated_lines(report, everything), *_problem_lines(report)]
        if coloured:
            _print_coloured(report, lines)
        else:
            print_lines(lines)


def annotated_lines(report: Report, everything: bool = False) -> Iterator[Line]:
    """The lines of the source, each with its hints behind the names, and each model's facts above its class."""
    hints = _hints_by_line(report, everything)
    lenses = _lenses_by_line(report)
    for number, line in enumerate(source_text(report).split("\n"), 1):
        yield from lenses.get(number, ())
        yield Line(tuple(_with_hints(line, sorted(hints.get(number, ())))), number)


def source_text(report: Report) -> str:
    """The source without its last line end."""
    return "\n".join(report.text.line(index) for index in range(len(report.text.lines))).removesuffix("\n")


def _hints_by_line(report: Report, everything: bool) -> dict[int, list[tuple[int, str]]]:
    """By line: the column behind which each hint stands, and its text."""
    found: dict[int, list[tuple[int, str]]] = {}
    for site in report.sites(EXPRESSIONS if everything else NAMES) if report.same_text else ():
        if has_hint(site):
            follows = report.text.line(site.end_line - 1)[site.end_column :]
            found.setdefault(site.end_line, []).append((site.end_column, hint_text(site, follows)))
    return found


def _lenses_by_line(report: Report) -> dict[int, list[Line]]:
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
        yield text, HINT
        start = column
    yield line[start:], _PYTHON


def _print_coloured(report: Report, lines: Sequence[Line]) -> None:

    python = python_styles(source_text(report))
    for line in lines:
        parts = split_by_style(line, python.get(line.number, ())) if line.number else line.parts
        sys.stdout.write("".join(apply_style(*part) for part in parts) + "\n")


def split_by_style(line: Line, spans: Sequence[Span]) -> Iterator[tuple[str, str]]:
    """The parts of a line of the source, its Python parts divided by the styles of the whole text."""
    column = 0
    for text, style in line.parts:
        if style != _PYTHON:
            yield text, style
            continue
        start, end = column, column + len(text)
        for first, last, of in spans:
            if max(first, column) < min(last, end):
                yield text[column - start : max(first, column) - start], ""
                yield text[max(first, column) - start : min(last, end) - start], of
                column = min(last, end)
        yield text[column - start :], ""
        column = end


def _problem_lines(report: Report) -> Iterator[Line]:
    """The problems, then the models that are not shown for a reason that is told elsewhere."""
    for problem in report.problems:
        yield problem_line(report.file, problem)
    told = {problem.line for problem in report.problems}
    for model in report.unshown:
        if model["line"] not in told:
            where = f"{reveal(report.file)}:{model['line']}:{model['column'] + 1}: "
            text = f": {model['name']} is not shown. {model['why']} {model['step']}".rstrip()
            yield Line(((where, ""), ("note", SEVERITY.get("information", "")), (text, "")))


def _problem_parts(file: str, problem: Problem) -> Iterator[tuple[str, str]]:
    yield f"{reveal(file)}:{problem.line}:{problem.column + 1}: ", ""
    yield f"{problem.severity}[{problem.code}]", SEVERITY.get(problem.severity, "")
    yield ": " + problem.message.replace("\n", "\n    "), ""
    for place in problem.related:
        yield f"\n    {reveal(place['file'])}:{place['line']}: {place['message']}", "dim"
    for fix in problem.fixes:
        yield f"\n    fix: {fix['title']}", "green"


def problem_line(file: str, problem: Problem) -> Line:
    """A diagnostic in the form that compilers use, with its places and fixes below."""
    return Line(tuple(_problem_parts(file, problem)))


# Colours for Python source, by Python's own tokenizer: importing a library would take longer than the command.

#: (first column, column behind the last, style).
Span = tuple[int, int, str]

_KEYWORD, _OPERATOR, _BUILTIN = "bright_blue", "bright_magenta", "bright_cyan"
_MODULE, _DECORATOR = "underline bright_cyan", "bold bright_magenta"
#: The style of a word, independent of its context.
_WORDS = dict.fromkeys((*dir(builtins), "self", "cls"), _BUILTIN)
_WORDS |= dict.fromkeys(keyword.kwlist, _KEYWORD) | dict.fromkeys(("and", "or", "not", "in", "is"), _OPERATOR)
#: The style of a name behind one of these words; the last three count only at the beginning of a statement.
_BEHIND = {
    "def": "bright_green",
    "class": "underline bright_green",
    "import": _MODULE,
    "from": _MODULE,
    "@": _DECORATOR,
}
_BEGIN = frozenset({"import", "from", "@"})
#: Tokens by name, because some exist only in newer versions of Python.
_TOKENS = {"COMMENT": "dim", "NUMBER": "bright_blue"} | dict.fromkeys(
    ("STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_START", "TSTRING_MIDDLE", "TSTRING_END"),
    "yellow",
)
_BREAKS = frozenset({tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT})


def python_styles(source: str) -> dict[int, list[Span]]:
    """The styled spans of every line, counted from 1; nothing after the first place that is not valid Python."""
    found: dict[int, list[Span]] = {}
    with suppress(tokenize.TokenError, SyntaxError, UnicodeError):
        for token, style in _styled_tokens(source):
            line, column = token.start
            for number, text in enumerate(token.string.split("\n"), line):
                start = column if number == line else 0
                found.setdefault(number, []).append((start, start + len(text), style))
    return found


def _styled_tokens(source: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """The tokens with their styles. head: the first word of the statement.  behind: the word before a (dotted) name."""
    before = head = behind = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _BREAKS:
            before = head = ""
            continue
        head = head or token.string
        behind = behind if "." in (before, token.string) else before
        if token.type == tokenize.NAME:
            style = _name_style(token.string, behind, head, before == ".")
        else:
            is_decorator = token.string == head == "@"
            style = _DECORATOR if is_decorator else _TOKENS.get(tokenize.tok_name[token.type], "")
        if style:
            yield token, style
        before = token.string


def _name_style(name: str, behind: str, head: str, is_attribute: bool) -> str:
    own = _WORDS.get(name, "")
    if own != _KEYWORD and behind in _BEHIND and (behind == head or behind not in _BEGIN):
        return _BEHIND[behind]
    return "" if is_attribute else own


# `mase-server shapes --format json`: one object per file, one file per line.

_MODEL = ("name", "arguments", "inputs", "inputs_from", "arguments_from", "nodes", "parameters", "flops", "complete")
_PLACE = ("line", "column", "end_line", "end_column")


def print_json(reports: Sequence[Report], everything: bool) -> None:
    """Print the report of every file."""
    for each in reports:
        say_json(report_to_json(each, everything))


class TensorRow(TypedDict):
    """A place with tensors. values: with every tensor as {"dtype", "shape", "symbols"}."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[dict[str, Plain]]


class ProblemRow(TypedDict):
    """A diagnostic as the JSON of commands has it."""

    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str


class ShapesReport(TypedDict):
    """The JSON of `mase-server shapes` for a file.

    models: the keys of _MODEL.  unshown: the models without shapes.
    complete: is nothing missing: no model, and of none the part behind an error?
    """

    file: str
    python: str | None
    torch: str | None
    seconds: float | None
    complete: bool
    models: list[dict[str, Plain]]
    tensors: list[TensorRow]
    problems: list[ProblemRow]
    unshown: list[UnshownModel]


def report_to_json(found: Report, everything: bool) -> ShapesReport:
    """The report of one file. everything: include rows of kind "expression"."""
    told = found.told
    sites = found.sites(EXPRESSIONS if everything else NAMES)
    return {
        "file": found.file,
        "python": told["python"],
        "torch": told["torch"],
        "seconds": told["status"]["seconds"] if told["seconds"] is None and told["status"] else told["seconds"],
        "complete": found.is_complete,
        "models": [_model_map(model) for model in found.models],
        "tensors": [row for site in sites if (row := _tensor_map(site))["values"] and site.name != "self"],
        "problems": [problem_map(problem) for problem in found.problems],
        "unshown": found.unshown,
    }


def _model_map(model: Mapping[str, Any]) -> dict[str, Plain]:
    inputs = {name: value_map(value) for name, value in model["inputs"].items()}
    return {**{key: model[key] for key in _MODEL}, "inputs": inputs}


def _tensor_map(site: Site) -> TensorRow:
    values = [
        {**value_map(seen.value), "model": seen.model, "count": seen.count, "scopes": list(seen.scopes)}
        for seen in site.values
        if has_tensor(seen.value)
    ]
    return {
        "line": site.line, "column": site.column, "end_line": site.end_line, "end_column": site.end_column,
        "name": site.name, "kind": site.kind, "function": site.function, "values": values,
    }  # fmt: skip


def value_map(value: Any) -> Any:
    """A snapshot's value with every tensor as {"dtype", "shape", "symbols"}."""
    if isinstance(value, list | tuple):
        return {"dtype": value[0], "shape": list(value[1]), "symbols": dimension_texts(value)}
    if isinstance(value, dict) and "dtype" in value:
        return value_map([value["dtype"], value["shape"], value.get("symbols")])
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [value_map(part) for part in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: value_map(part) for key, part in value["dict"].items()}}
    return value


def problem_map(problem: Problem) -> ProblemRow:
    """A diagnostic in the form of the JSON."""
    return {
        "line": problem.line, "column": problem.column,
        "end_line": problem.end_line, "end_column": problem.end_column,
        "severity": problem.severity, "code": problem.code, "message": problem.message,
    }  # fmt: skip


# `mase-server shapes --watch`: show the files again whenever one of them, or a file they import, is saved.
