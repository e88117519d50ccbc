"""Every text that the source can say, with … where a value is filled in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "mase_client_vscode"
GAP = "…"
#: A string of TypeScript, in either kind of quotes.
_TEXT = re.compile(r"'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`")


def of_python(source: str) -> Iterator[str]:
    """The strings of a module; those beside each other are one, as Python has them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"\{\w*\}", GAP, node.value)  # what `str.format` fills in
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)


def of_typescript(source: str) -> Iterator[str]:
    """The strings of a module."""
    for plain, template in _TEXT.findall(source):
        yield plain or re.sub(r"\$\{[^}]*\}", GAP, template)


def messages() -> list[str]:
    """All of them, of the server and of the extension."""
    found = [text for path in (ROOT / "mase_server").rglob("*.py") for text in of_python(path.read_text("utf-8"))]
    for path in (CLIENT / "src").rglob("*.ts"):
        found += of_typescript(path.read_text("utf-8"))
    return found


def pieces(quote: str) -> list[str]:
    """What a quoted message fixes: the parts between its gaps that are more than a word."""
    return [piece.strip() for piece in quote.split(GAP) if len(piece.strip()) > 2]


def is_said(quote: str, texts: list[str]) -> bool:
    """Does one text of the source have all that the quotation has, in its order?"""
    first = max(pieces(quote), key=len)
    wanted = re.compile(".*".join(map(re.escape, pieces(quote))), re.DOTALL)
    return any(first in text and wanted.search(text) for text in texts)
