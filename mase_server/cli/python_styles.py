"""How Python source looks in colours, by Python's own tokens: a library for it would take longer than the command."""

from __future__ import annotations

import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from contextlib import suppress

#: (first column, column behind the last, style).
Span = tuple[int, int, str]

_KEYWORD, _OPERATOR, _BUILTIN = "bright_blue", "bright_magenta", "bright_cyan"
_MODULE, _DECORATOR = "underline bright_cyan", "bold bright_magenta"
#: What a word is, whatever is around it.
_WORDS = dict.fromkeys((*dir(builtins), "self", "cls"), _BUILTIN)
_WORDS |= dict.fromkeys(keyword.kwlist, _KEYWORD) | dict.fromkeys(("and", "or", "not", "in", "is"), _OPERATOR)
#: What a name is behind one of these words; behind the last three only where they begin the statement.
_BEHIND = {
    "def": "bright_green",
    "class": "underline bright_green",
    "import": _MODULE,
    "from": _MODULE,
    "@": _DECORATOR,
}
_BEGIN = frozenset({"import", "from", "@"})
#: Tokens by their names, since some are only in newer versions of Python.
_TOKENS = {"COMMENT": "dim", "NUMBER": "bright_blue"} | dict.fromkeys(
    ("STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_START", "TSTRING_MIDDLE", "TSTRING_END"),
    "yellow",
)
_BREAKS = frozenset({tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT})


def python_styles(source: str) -> dict[int, list[Span]]:
    """The spans of every line, from 1, that have a style; what follows a place that is no Python has none."""
    found: dict[int, list[Span]] = {}
    with suppress(tokenize.TokenError, SyntaxError, UnicodeError):
        for token, style in _styled_tokens(source):
            line, column = token.start
            for number, text in enumerate(token.string.split("\n"), line):
                start = column if number == line else 0
                found.setdefault(number, []).append((start, start + len(text), style))
    return found


def _styled_tokens(source: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """head: the first word of the statement.  behind: the word that a name, dotted or not, stands behind."""
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
