r"""Texts of others, made visible: names of files, folders and classes, keys of models, messages of exceptions.

Such a text may hold characters that steer a terminal, turn a line round, end it, or are not seen at all. `reveal`
writes them as Python would (`\x1b`, `\u202e`, `\n`) and leaves everything that people read as it is, in any script.
What a medium needs on top of that is here too, so that all writers escape alike: prompts, Markdown, XML, JSON.
"""

from __future__ import annotations

import json
import re
import unicodedata
from html import escape
from typing import Any

#: `str.isprintable` takes these for something to be seen: fillers, joiners of graphemes, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001da9b-\U0001daaf"
    "\U000e0100-\U000e01ef]"
)
#: Spaces that people write, which `str.isprintable` takes for nothing to be seen.
_SPACES = frozenset("\u00a0\u202f\u3000")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_NON_JOINER, _JOINER, _AS_EMOJI = "\u200c", "\u200d", "\ufe0f"
#: The combining class of signs, in scripts of India, that a joiner may follow.
_VIRAMA = 9

#: What Markdown takes for more than text: its signs, entities, and what makes a link of a bare address.
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~&@]|^[-+=]|(?<=\bwww)\.|:(?=//)|(?<=\bmailto):|(?<=\bxmpp):", re.IGNORECASE)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_TICKS = re.compile("`+")
_BLANKS = re.compile(r"[ \t\n]+")
#: Characters of inline code.
_LONGEST_CODE = 300


def reveal(text: str) -> str:
    """The text on one line: what is not seen, ends a line or turns it round is written out."""
    if text.isprintable() and (text.isascii() or not _UNSEEN.search(text)):
        return text
    return _NOT_ASCII.sub(_write_out, text)


def reveal_lines(text: str) -> str:
    """`reveal` of each line; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(reveal, line.split("\t"))) for line in lines)


def reveal_prompt(text: str) -> str:
    """`reveal_lines` for a message of an editor, which takes `[text](command:...)` for a link in its own words."""
    return reveal_lines(text).replace("](", "] (")


def reveal_within(value: Any) -> Any:
    """Plain data with all its texts revealed, each with its lines."""
    if isinstance(value, str):
        return reveal_lines(value)
    if isinstance(value, dict):
        return {reveal_within(key): reveal_within(each) for key, each in value.items()}
    return [reveal_within(each) for each in value] if isinstance(value, list | tuple) else value


def shorten_middle(text: str, limit: int) -> str:
    """The text without its middle where it is longer than `limit` characters: the ends tell most of a path."""
    if len(text) <= limit:
        return text
    kept = limit - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def escape_markdown(text: str) -> str:
    """The text as Markdown that means just that text, on one line, with single blanks."""
    marked = _MARKS.sub(r"\\\g<0>", reveal(_BLANKS.sub(" ", text).strip()))
    return _NUMBERED.sub(r"\1\\\2", marked)


def escape_code(text: str) -> str:
    """The text as inline code of Markdown that survives a table: bars escaped, backticks fenced, not endless."""
    text = reveal(_BLANKS.sub(" ", text).strip())
    text = text if len(text) <= _LONGEST_CODE else text[: _LONGEST_CODE - 1] + "…"
    ticks = max(map(len, _TICKS.findall(text)), default=0)
    fence, space = "`" * (ticks + 1), " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|") if text else ""


def escape_markup(text: str) -> str:
    """The text as XML and HTML have it, between elements and in quotes."""
    return escape(reveal_lines(text))


def dump_json(value: Any, indent: int | None = None, default: Any = None) -> str:
    """JSON in which nothing is lost and everything is seen: `\\u202e` stands for itself, letters stay letters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    if text.isascii() and "\x7f" not in text:
        return text
    return "\n".join(_NOT_ASCII.sub(lambda found: _write_out(found, in_json=True), line) for line in text.split("\n"))


def _write_out(found: re.Match[str], *, in_json: bool = False) -> str:
    each = found[0]
    if each in _SPACES or (each.isprintable() and not _UNSEEN.match(each)) or _is_needed(found):
        return each
    return json.dumps(each)[1:-1] if in_json else ascii(each)[1:-1]


def _is_needed(found: re.Match[str]) -> bool:
    """Is it a joiner or a selector without which letters or a symbol beside it look like others?"""
    text, each = found.string, found[0]
    before, after = text[: found.start()][-1:], text[found.end() :][:1]
    if not before:
        return False
    if each == _AS_EMOJI:
        return unicodedata.category(before) in ("So", "Sm")
    if each not in (_NON_JOINER, _JOINER):
        return False
    return unicodedata.combining(before) == _VIRAMA or (
        bool(after) and {unicodedata.bidirectional(before), unicodedata.bidirectional(after)} == {"AL"}
    )
