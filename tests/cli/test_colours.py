"""Colours of `shapes`: Python looks as pygments has it, and nothing but colours is added to the listing."""

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers.python import PythonLexer
from pygments.token import Token
from rich.style import Style
from rich.text import Text

from mase_server.cli import showing
from mase_server.cli.reports import Report
from mase_server.cli.showing import python_styles
from mase_server.cli.terminal import Line, apply_style

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "examples").glob("*.py")), *sorted((ROOT / "mase_server" / "cli").glob("*.py"))]
#: Kinds of tokens of pygments, and our style for them.
STYLES = {
    Token.Keyword: "bright_blue",
    Token.Operator.Word: "bright_magenta",
    Token.Comment: "dim",
    Token.Literal.String: "yellow",
    Token.Literal.Number: "bright_blue",
    Token.Name.Class: "underline bright_green",
    Token.Name.Decorator: "bold bright_magenta",
    Token.Name.Namespace: "underline bright_cyan",
}


def expected(source):
    """(offset, style) of every character of a word, a string or a comment that pygments gives one of these styles."""
    for offset, kind, text in PythonLexer(ensurenl=False, stripnl=False).get_tokens_unprocessed(source):
        style = next((style for of, style in STYLES.items() if kind in of), None)
        if style:
            yield from ((offset + index, style) for index, each in enumerate(text) if each not in " \n.@\\")


def given_styles(source):
    """The style of every offset that has one."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    spans = ((number, span) for number, found in python_styles(source).items() for span in found)
    return {starts[number - 1] + at: style for number, (first, last, style) in spans for at in range(first, last)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_python_looks_as_pygments_has_it(path):
    source = path.read_text()
    ours = given_styles(source)
    told = [(offset, style, ours.get(offset)) for offset, style in expected(source)]
    assert len(told) > len(source) / 20
    wrong = {
        (source.split("\n")[source[:offset].count("\n")], *styles) for offset, *styles in told if len({*styles}) == 2
    }
    assert [each for each in wrong if not is_known(*each)] == []


def is_known(line, theirs, ours):
    """What a string computes is the string's here; names behind `raise ... from` and `as` are no modules."""
    if ours == "yellow":
        return "{" in line
    return ours is None and theirs == STYLES[Token.Name.Namespace] and ("raise " in line or " as " in line)


@pytest.mark.parametrize(
    ("source", "styles"),
    [
        # Behind a keyword that does not begin the statement, a name is a name.
        ("raise A from b.c\n", {1: [(0, 5, "bright_blue"), (8, 12, "bright_blue")]}),
        ("a = b @ c\n", {}),
        ("x.print(x.self)\n", {}),
        # What follows a place that is no Python has no style; what precedes it does.
        ("if x:\n  '''\n", {1: [(0, 2, "bright_blue")]}),
        ("", {}),
    ],
)
def test_a_place_has_the_style_of_what_it_is(source, styles):
    assert python_styles(source) == styles


@given(st.text(alphabet=st.sampled_from("a'\"#\n\\ ({[\t\f\r\0f1éß😀@.:\ud800"), max_size=40))
def test_any_text_has_spans_within_its_lines(source):
    lines = source.split("\n")
    for number, spans in python_styles(source).items():
        ends = [each for first, last, _ in spans for each in (first, last)]
        assert ends == sorted(ends)
        assert ends[-1] <= len(lines[number - 1])


def test_a_styles_codes_are_those_that_rich_writes():
    for style in {*STYLES.values(), "bold red", "dim italic cyan", "green", "yellow", "blue"}:
        # rich reads them back as the same style.
        [span] = Text.from_ansi(apply_style("x", style)).spans
        told, meant = span.style, Style.parse(style)
        assert (told.color and told.color.number) == (meant.color and meant.color.number), style
        assert str(told.without_color) == str(meant.without_color), style


def test_no_style_goes_over_the_end_of_a_line():
    assert Line((("a", ""), ("b\n\nc", "bold red"))).coloured == "a\x1b[1;31mb\x1b[0m\n\n\x1b[1;31mc\x1b[0m"


SOURCE = "def f(x):\n    y = x.relu()  # über 😀\n    return y\n"
PLACES = [(1, 6, 7, "x", "parameter"), (2, 4, 5, "y", "binding"), (3, 4, 12, "", "return")]


def report_of(source, places):
    extents = [
        {"line": line, "column": first, "end_line": line, "end_column": last} for line, first, last, *_ in places
    ]
    facts = [{"name": name, "kind": kind, "function": "f"} for *_, name, kind in places]
    values = [{"value": ["f32", [2, 3], ["B", "3"]], "model": "f", "count": 1, "scopes": []}]
    sites = [{**extent, **fact, "values": values} for extent, fact in zip(extents, facts, strict=True)]
    problem = {"file": "/f.py", "line": 2, "column": 8, "end_line": 2, "end_column": 9, "severity": "error"}
    problem |= {"code": "shape-mismatch", "message": "two\nlines", "related": [], "fixes": [{"title": "a fix"}]}
    told = {"sites": sites, "models": [], "problems": [problem], "python": "3", "status": None}
    return Report("f.py", "/f.py", source.encode(), told)


def printed(report, monkeypatch, coloured):
    stream = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1") if coloured else monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", stream)
    showing.print_text([report], False)
    return stream.getvalue()


def test_without_its_codes_a_coloured_listing_is_the_plain_one(monkeypatch):
    monkeypatch.setattr(Report, "same_text", True)
    report = report_of(SOURCE, PLACES)
    plain, coloured = printed(report, monkeypatch, False), printed(report, monkeypatch, True)
    assert plain.startswith("def f(x: f32[B, 3]):\n    y: f32[B, 3] = x.relu()  # über 😀\n    return y -> f32[B, 3]\n")
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    first, second, third, *rest = coloured.splitlines()
    hint = "\x1b[2;3;36m{}: f32[B, 3]\x1b[0m"
    assert first == f"\x1b[94mdef\x1b[0m \x1b[92mf\x1b[0m(x{hint.format('')}):"
    assert second == f"    y{hint.format('')} = x.relu()  \x1b[2m# über 😀\x1b[0m"
    assert third == "    \x1b[94mreturn\x1b[0m y\x1b[2;3;36m -> f32[B, 3]\x1b[0m"
    assert rest == [
        "f.py:2:9: \x1b[1;31merror[shape-mismatch]\x1b[0m: two",
        "    lines",
        "\x1b[32m    fix: a fix\x1b[0m",
    ]
