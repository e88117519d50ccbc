"""What a card looks like in an editor: Markdown with tables, Markdown with lists, or plain text.

Cards are written once, as Markdown with tables; few editors draw tables, and some draw no Markdown at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The Markdown parsers that clients name and that know tables. Neovim, Helix and Emacs name none, and draw the bars.
WITH_TABLES = frozenset({"marked", "markdown-it"})

_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|(\s*-{3,}\s*\|)+")
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)|\\(?P<escaped>[!-/:-@\[-`{-~])|\[(?P<link>[^\]]*)\]\([^)]*\)|\*+"
)


def markup(ls: Server, text: str) -> lsp.MarkupContent:
    """A card, as this client can show it."""
    hover = ls.client_capabilities.text_document and ls.client_capabilities.text_document.hover
    formats = [str(getattr(each, "value", each)) for each in (hover and hover.content_format) or ()]
    if formats and lsp.MarkupKind.Markdown.value not in formats:
        return lsp.MarkupContent(lsp.MarkupKind.PlainText, plain(text))
    general = ls.client_capabilities.general
    parser = general.markdown.parser if general is not None and general.markdown is not None else ""
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text if parser.lower() in WITH_TABLES else lists(text))


def lists(text: str) -> str:
    """The same Markdown with a list where there was a table: `- size: 256 elements`."""
    return _with_tables(text, lambda rows: [f"- {left}: {right}" for left, right in rows])


def plain(text: str) -> str:
    """The same as text: nothing emphasised, columns by spaces, links by their words."""
    return "\n".join(line for line in _with_tables(text, _columns, _words).split("\n") if line != "```")


def _with_tables(
    text: str, shown: Callable[[list[tuple[str, str]]], list[str]], other: Callable[[str], str] = str
) -> str:
    lines: list[str] = []
    fenced = False
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("| ")):
        if is_table:
            lines += shown(list(_rows(list(group))))
            continue
        for line in group:
            fence = line.startswith("```")
            lines.append("```" if fence and other is not str else line if fenced or fence else other(line))
            fenced ^= fence
    return "\n".join(lines)


def _rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The rows of a table of two columns, without its head; a bar in a cell stands there escaped."""
    body = lines[2:] if len(lines) > 1 and _RULE.fullmatch(lines[1]) else lines
    for line in body:
        cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
        yield cells[0], " | ".join(cells[1:])


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    words = [(_words(left), _words(right)) for left, right in rows]
    width = max((len(left) for left, _ in words), default=0)
    return [f"{left:{width}}  {right}" for left, right in words]


def _words(line: str) -> str:
    return _INLINE.sub(lambda found: found["code"] or found["escaped"] or found["link"] or "", line)
