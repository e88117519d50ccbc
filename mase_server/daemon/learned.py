"""The learned preload: which third-party modules the files of a folder imported, kept for the next warm parent."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from mase_server.private import changing, read_own, write_whole
from mase_server.reading import exists

_MAX_MODULES = 4000
#: Seconds that another server may take to write the same.
_PATIENCE = 0.5


class Learned:
    """One (folder, interpreter): modules by file, and those that must never be imported before a fork."""

    def __init__(self, cache_dir: Path, folder: str, interpreter: str) -> None:
        key = hashlib.sha256(f"{folder}\0{interpreter}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self._path = cache_dir / "preload" / f"{key}.json"
        self._files: dict[str, list[str]] = {}
        self._harmful: set[str] = set()
        self._read()

    def _read(self) -> None:
        """Take in what is kept: other servers of the folder learn as well."""
        try:
            data = json.loads(read_own(self._path))
            files = {str(path): [str(one) for one in names] for path, names in data["files"].items()}
            harmful = {str(one) for one in data["harmful"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._files = files | self._files
        self._harmful |= harmful

    def modules(self) -> list[str]:
        """Every module worth importing ahead, in the order learned."""
        every = dict.fromkeys(name for names in self._files.values() for name in names)
        return [name for name in every if not self._is_harmful(name)][:_MAX_MODULES]

    def needs(self, path: str) -> list[str]:
        """The modules that the file `path` imported last time."""
        return [name for name in self._files.get(path, ()) if not self._is_harmful(name)]

    def learn(self, path: str, names: Iterable[str]) -> None:
        """Remember what the file `path` imported beyond what was there already."""
        known = self._files.get(path, [])
        found = list(dict.fromkeys([*known, *names]))
        if found != known:
            self._change(lambda: self._files.update({path: found}))

    def forget(self) -> None:
        """Begin anew; what is harmful stays known."""
        self._change(lambda: self._files.clear())

    def ban(self, names: Iterable[str]) -> None:
        """Never import these ahead again, nor what lies below them."""
        new = set(names) - self._harmful
        if new:
            self._change(lambda: self._harmful.update(new))

    def _is_harmful(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._harmful)

    def _change(self, change: Callable[[], None]) -> None:
        change()  # it holds in this process, whether it can be kept or not: a cache costs time, not correctness
        with contextlib.suppress(OSError), changing(self._path, _PATIENCE):
            self._read()
            change()
            self._files = {path: names for path, names in self._files.items() if exists(path)}
            write_whole(self._path, json.dumps({"files": self._files, "harmful": sorted(self._harmful)}))
