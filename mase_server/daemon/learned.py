"""The learned preload: which third-party modules the files of a folder imported, kept for the next warm parent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

_MAX_MODULES = 4000


class Learned:
    """One (folder, interpreter): modules by file, and those that must never be imported before a fork."""

    def __init__(self, cache_dir: Path, folder: str, interpreter: str) -> None:
        key = hashlib.sha256(f"{folder}\0{interpreter}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self._path = cache_dir / "preload" / f"{key}.json"
        self._files: dict[str, list[str]] = {}
        self._harmful: set[str] = set()
        self._read()

    def _read(self) -> None:
        try:
            data = json.loads(self._path.read_text("utf-8"))
            self._files = {str(path): [str(one) for one in names] for path, names in data["files"].items()}
            self._harmful = {str(one) for one in data["harmful"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._files, self._harmful = {}, set()

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
            self._files[path] = found
            self._write()

    def forget(self) -> None:
        """Begin anew; what is harmful stays known."""
        self._files = {}
        self._write()

    def ban(self, names: Iterable[str]) -> None:
        """Never import these ahead again, nor what lies below them."""
        new = set(names) - self._harmful
        if new:
            self._harmful |= new
            self._write()

    def _is_harmful(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._harmful)

    def _write(self) -> None:
        self._files = {path: names for path, names in self._files.items() if Path(path).exists()}
        text = json.dumps({"files": self._files, "harmful": sorted(self._harmful)})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(text, "utf-8")
            fresh.replace(self._path)
        except OSError:
            return  # a cache that cannot be kept costs time, not correctness
