"""Texts that are not saved, and stand in for their files in every trace: an editor's, or one that a client opened.

A trace sees the disk with these texts laid over it, and so does the look at a trace's dependencies. So a file whose
unsaved text was traced, and is saved then, has not changed for anything that depends on it: the result of a text that
was typed is that of the saved one. It was traced as a saved text is, at a lower priority. Only where a child had run
ahead with the text before, the saved text is traced again. A program that reads its own source file from the disk, not
by `inspect`, saw the saved text instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from mase_server.daemon.tracked import Source
from mase_server.dependencies import Kind, Seen, look_at_dependency
from mase_server.paths import is_library

#: The name of the client whose keys are followed.
EDITOR = "editor"


@dataclass(frozen=True, slots=True)
class _Held:
    source: Source
    by: str


class Unsaved:
    """The texts, by the files that they stand in for, each with the client that holds it."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def source(self, path: str) -> Source | None:
        """The text that stands in for a file; None if the file speaks for itself."""
        held = self._held.get(path)
        return None if held is None else held.source

    def put(self, path: str, source: Source, by: str) -> None:
        """Let a text stand in for a file. by: the client that holds it."""
        self._held[path] = _Held(source, by)

    def drop(self, path: str, by: str | None = None) -> bool:
        """Let the file speak again; returns whether a text stood in. by: only if this client holds it."""
        held = self._held.get(path)
        if held is None or by not in (None, held.by):
            return False
        del self._held[path]
        return True

    def drop_others(self, path: str, by: str) -> None:
        """Forget a text that another client holds."""
        if (held := self._held.get(path)) is not None and held.by != by:
            del self._held[path]

    def texts_for(self, path: str, folder: str) -> dict[str, bytes]:
        """The texts that a trace of the file `path` sees: its own, and those of the workspace `folder`."""
        home = folder.rstrip(os.sep) + os.sep
        return {
            each: held.source.data
            for each, held in self._held.items()
            if each == path or (each.startswith(home) and not is_library(each))
        }

    def unsaved_among(self, texts: Mapping[str, bytes]) -> frozenset[str]:
        """The files whose text in a trace is still not saved."""
        return frozenset(path for path in texts if path in self._held)

    def look(self, kind: Kind, path: str, seen: Seen) -> Seen:
        """`look_at_dependency` as a trace would look now. seen: what it saw before."""
        held = self._held.get(path) if kind == "content" else None
        return look_at_dependency(kind, path, seen) if held is None else held.source.sha256
