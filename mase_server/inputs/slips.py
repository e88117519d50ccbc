"""What may have been meant by a `# mase:` comment that cannot be read: the smallest change that makes it readable."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from mase_server.dtypes import LONG, SHORT
from mase_server.inputs.spec import FILLS

#: What people write for an element type -> its short name.
_TYPES = {
    **SHORT, "float": "f32", "double": "f64", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
    "byte": "u8", "fp32": "f32", "fp16": "f16", "int1": "bool",
}  # fmt: skip
_WORD = re.compile(r"[^\W\d]\w*")
#: Signs that are forgotten, each as it would be written.
_FORGOTTEN = (": ", "]", ")", "}", "; ", ", ", "[")
#: Slips of spelling that may stand anywhere: what is written -> what is meant.
_SPELLINGS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\btorch\.(?=\w)"), ""),
    (re.compile(r"\b(\w+)\(([\w\s,=]*)\)"), r"\1[\2]"),
    (re.compile(r"(?<=[\w\]])\s*[x*]\s*(?=\d)"), ", "),
    (re.compile(r"(?<=\d)x(?=\d)"), ", "),
    (re.compile(r"(?<=[\[,])\s*(?:-1|\?)(?=\s*[,\]])"), "B"),
    (re.compile(r"\b\w+\b(?=\s*[\[(])"), lambda match: _TYPES.get(match[0], match[0])),
)


def mended(text: str, column: int, reads: Callable[[str], bool]) -> str:
    """The first likely text that can be read, "" where there is none. column: where reading it stopped."""
    return next((each for each in _candidates(text, column) if each != text and reads(each)), "")


def _candidates(text: str, column: int) -> Iterator[str]:
    word = _WORD.match(text, column)
    if word:
        for close in _close(word[0]):
            yield text[:column] + close + text[word.end() :]
    spelled = text
    for pattern, meant in _SPELLINGS:
        yield pattern.sub(meant, text)
        spelled = pattern.sub(meant, spelled)
        yield spelled
    for whole in dict.fromkeys((text, spelled)):
        yield from _completed(whole, column)
    if not word and column < len(text):
        yield text[:column] + text[column + 1 :]


def _completed(text: str, column: int) -> Iterator[str]:
    """With a sign more, where reading stopped, behind a call, or at the end."""
    before, after = text[:column].rstrip(), text[column:].lstrip()
    for sign in _FORGOTTEN:
        yield f"{before}{sign}{after}"
    yield re.sub(r"\)\s*(?=\w+\s*[:=])", "); ", text)
    for sign in ")]}":
        yield text + sign


def _close(word: str) -> list[str]:
    """The words of the text form that are spelled like this one."""
    return difflib.get_close_matches(word, [*LONG, *FILLS], n=3, cutoff=0.5)
