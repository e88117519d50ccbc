r"""Make texts of others visible: names of files, folders and classes, keys of models, messages of exceptions.

Such a text may contain characters that control a terminal, reverse or end a line, or are invisible. `reveal` writes
them as Python would (`\x1b`, `\u202e`, `\n`) and keeps everything that people read, in any script. The additional
escapes of each medium are also here, so that all writers escape alike: prompts, Markdown, XML, JSON.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import Any

#: `str.isprintable` counts these as visible: fillers, joiners of graphemes, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001da9b-\U0001daaf"
    "\U000e0100-\U000e01ef]"
)
#: Spaces in normal texts that `str.isprintable` counts as invisible.
_SPACES = frozenset("\u00a0\u202f\u3000")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_NON_JOINER, _JOINER, _AS_EMOJI = "\u200c", "\u200d", "\ufe0f"
#: The combining class of signs in Indian scripts that a joiner may follow.
_VIRAMA = 9

#: Special text in Markdown: its signs, entities, and the parts that turn a bare address into a link.
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~&@]|^[-+=]|(?<=\bwww)\.|:(?=//)|(?<=\bmailto):|(?<=\bxmpp):", re.IGNORECASE)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_TICKS = re.compile("`+")
#: In a text such as `<Net object at 0x7f1234567890>`, or `<code object forward at 0x7f1234567890, file ...>`.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}(?=[>,])")
_BLANKS = re.compile(r"[ \t\n]+")
#: Maximum characters of inline code.
_LONGEST_CODE = 300


def reveal(text: str) -> str:
    """The text on one line, with invisible characters and those that end or reverse a line written out."""
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
    """`reveal_lines` for messages in an editor, with its links, `[text](command:...)`, disabled."""
    return reveal_lines(text).replace("](", "] (")


def hide_addresses(text: str) -> str:
    """The text without the addresses of objects in it, `<Net object at 0x7f...>`, which differ from run to run."""
    return _ADDRESS.sub("", text)


def reveal_within(value: Any) -> Any:
    """Plain data with all its texts revealed, keeping their lines."""
    if isinstance(value, str):
        return reveal_lines(value)
    if isinstance(value, dict):
        return {reveal_within(key): reveal_within(each) for key, each in value.items()}
    return [reveal_within(each) for each in value] if isinstance(value, list | tuple) else value


def shorten_middle(text: str, limit: int) -> str:
    """The text with its middle cut out if it is longer than `limit` characters: the ends tell most about a path."""
    if len(text) <= limit:
        return text
    kept = limit - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def escape_markdown(text: str) -> str:
    """Markdown that displays exactly this text, on one line, with single blanks."""
    marked = _MARKS.sub(r"\\\g<0>", reveal(_BLANKS.sub(" ", text).strip()))
    return _NUMBERED.sub(r"\1\\\2", marked)


def escape_code(text: str) -> str:
    """The text as Markdown inline code that is safe in a table: escaped bars, fenced backticks, bounded length."""
    text = reveal(_BLANKS.sub(" ", text).strip())
    text = text if len(text) <= _LONGEST_CODE else text[: _LONGEST_CODE - 1] + "…"
    ticks = max(map(len, _TICKS.findall(text)), default=0)
    fence, space = "`" * (ticks + 1), " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|") if text else ""


def escape_markup(text: str) -> str:
    """The text for XML and HTML, between elements and in quotes."""
    return escape(reveal_lines(text))


def dump_json(value: Any, indent: int | None = None, default: Any = None) -> str:
    """JSON that keeps everything and shows everything: `\\u202e` stays an escape, letters stay letters."""
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
    """Is it a joiner or selector that changes the look of the letters or symbol beside it?"""
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


def align_table_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Iterator[str]:
    """The lines of a table; each column is as wide as its widest cell. right: right-aligned columns."""
    cells = [[reveal(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        padded = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()
