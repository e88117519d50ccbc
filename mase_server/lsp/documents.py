"""The open documents, and what each of them was when it was opened, saved and traced."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

from mase_server import notebooks, reading
from mase_server.lsp.alignment import Alignment
from mase_server.lsp.text import Edit, Text, decode, hashes, split_lines

#: Texts of the past that a document follows: the traced one, the one being traced, and one between.
_FOLLOWED = 4


@dataclass(slots=True)
class Followed:
    """One text of the past, by the hashes that its file may have, and where its lines are now."""

    hashes: frozenset[str]
    alignment: Alignment


@dataclass(slots=True)
class Document:
    """One open document."""

    uri: str
    path: str
    version: int
    text: Text
    followed: list[Followed] = field(default_factory=list)
    #: Set once the daemon was asked to trace it.
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def remember(self, shown: str = "") -> None:
        """Follow the present text, which the file holds now and which may be traced next, and not forget the shown."""
        self._known(shown)
        self._follow(hashes(str(self.text)), self.text.lines)

    def apply(self, edit: Edit) -> None:
        """Move what is followed along with one edit of the text."""
        for followed in self.followed:
            followed.alignment.edited(self.text.lines, edit)

    def alignment(self, sha256: str) -> Alignment | None:
        """Where the lines of the text with this hash ("": the file's) are now; None if that text is not known."""
        return self._known(sha256) or self._from_disk(sha256)

    def _known(self, sha256: str) -> Alignment | None:
        for index, followed in enumerate(self.followed):
            if sha256 in followed.hashes:
                self.followed.append(self.followed.pop(index))
                return followed.alignment
        return None

    def _from_disk(self, sha256: str) -> Alignment | None:
        """The file as it is on disk, if that is what was traced: something else than this editor wrote it."""
        try:
            data = notebooks.read(self.path, reading.MOST)
        except OSError:
            # Of a file that is not read there is only what the editor shows.
            return None if sha256 else self._follow(frozenset(), self.text.lines)
        found = hashlib.sha256(data).hexdigest()
        if sha256 not in {"", found}:
            return None
        return self._follow(frozenset({found}), split_lines(decode(data)))

    def _follow(self, known: frozenset[str], lines: list[str]) -> Alignment:
        alignment = Alignment(lines, self.text.lines)
        self.followed = [old for old in self.followed if old.hashes != known][1 - _FOLLOWED :]
        self.followed.append(Followed(known, alignment))
        return alignment


class Documents:
    """Every document that the client has open. One file may be open under several URIs: by its name and by a link."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Document] = {}
        self._by_path: dict[str, list[Document]] = {}

    def open(self, uri: str, path: str, version: int, text: str) -> Document:
        """A document was opened; one that was open under this URI is so no longer."""
        self.close(uri)
        document = self._by_uri[uri] = Document(uri, path, version, Text(text))
        self._by_path.setdefault(path, []).append(document)
        document.remember()
        return document

    def close(self, uri: str) -> Document | None:
        """A document was closed; the one it was, if it was open."""
        if (document := self._by_uri.pop(uri, None)) is not None:
            others = [each for each in self._by_path.pop(document.path) if each is not document]
            self._by_path |= {document.path: others} if others else {}
        return document

    def at(self, uri: str) -> Document | None:
        """The document that was opened under this URI."""
        return self._by_uri.get(uri)

    def get(self, path: str) -> Document | None:
        """The document of `path` if it is open; of several the one that was opened last."""
        return self._by_path[path][-1] if path in self._by_path else None

    def of(self, path: str) -> list[Document]:
        """All documents of `path`."""
        return list(self._by_path.get(path, ()))

    def paths(self) -> list[str]:
        """The paths of all open documents."""
        return list(self._by_path)


def read_document(path: str, uri: str) -> Document | None:
    """A file that is not open, as it is on disk; None if it cannot be read."""
    try:
        text = decode(notebooks.read(path, reading.MOST))
    except OSError:
        return None
    return Document(uri, path, 0, Text(text))
