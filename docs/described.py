"""Docstrings in parts: the first sentence, the entry of each name, errors, results, sources, the example.

The docstrings of this project have an entry `name: meaning.` for each parameter. Sentences on errors begin with
"Raises", those on results with "Gives", those on origins with "Source:".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAMES = re.compile(r"(?P<names>[a-z_]\w*(?:(?:, | with )[a-z_]\w*)*): (?P<text>.+)")
_BREAK = re.compile(
    r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.?!])"  # a sentence ended, and
    r"(?:\s{2,}|\s+(?=[A-Z\"`>]|[a-z_]\w*(?:(?:, | with )[a-z_]\w*)*: ))"  # another, or a name with its text, begins
)


@dataclass(slots=True)
class Described:
    """A docstring in parts.

    summary: the first sentence.  entries: the text of each name.  notes, errors, results, sources: the other sentences,
    by subject.  example: the lines from the first prompt on.
    """

    summary: str
    entries: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    example: list[str] = field(default_factory=list)


def described(docstring: str | None) -> Described:
    """Split a docstring into parts; a missing one has an empty summary."""
    text, prompt, example = (docstring or "").partition(">>> ")
    summary, *rest = _sentences(text) or [""]
    found = Described(summary, example=(prompt + example).rstrip().splitlines())
    places = {"Raises ": found.errors, "Gives ": found.results, "Source: ": found.sources}
    for sentence in rest:
        if (match := _NAMES.fullmatch(sentence)) is not None:
            found.entries |= dict.fromkeys(re.split(r", | with ", match["names"]), match["text"])
        else:
            next((place for start, place in places.items() if sentence.startswith(start)), found.notes).append(sentence)
    return found


def _sentences(text: str) -> list[str]:
    return list(_split(text))


def _split(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _BREAK.split(re.sub(r"\n\s*", " ", paragraph.strip())):
            if sentence:
                yield sentence
