"""The results of `mase-server check`, kept from one run to the next in the cache folder.

A result is valid while all that it was made of is as it was: the file's text, everything that its trace read, listed
or looked for, the interpreter with its packages, the settings, and this program. A result that depended on the
machine's load or memory is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from mase_server import __version__
from mase_server.cli.reports import Report, source_of
from mase_server.daemon.environment import Candidate, list_interpreters, list_packages, project_of
from mase_server.daemon.project import apply_project
from mase_server.daemon.status import FolderSettings
from mase_server.dependencies import MOST, UNSETTLED, Dependency, Kind, ModuleFolder, Seen, look_at_dependency
from mase_server.paths import canonical_path
from mase_server.private import cache_dir, private_folder, read_own, write_whole

#: Codes of results that another run may not have: they depend on time, memory and the state of the system.
_OF_THE_MOMENT = frozenset(
    {"crashed", "exited", "internal-error", "memory-limit", "process-limit", "system-limit", "time-limit"}
)
#: Environment variables that decide what an import finds.
_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "CUDA_VISIBLE_DEVICES")
#: The most texts of which it is kept whether they have a model.
_MOST_TEXTS = 20_000


class KeptReports:
    """The kept reports for one choice of interpreter. Nothing is kept if the cache folder cannot be written."""

    def __init__(self, python: str | None) -> None:
        self._python = python
        self._folder = cache_dir() / "check"
        #: What was looked at in this run: many files depend on the same things.
        self._looks: dict[tuple[Kind, str], Seen] = {}
        self._folders: dict[str, ModuleFolder] = {}
        self._found: dict[str, list[Candidate]] = {}

    def find(self, file: Path) -> Report | None:
        """The kept report of a file, if it is still right."""
        path = canonical_path(file)
        try:
            kept = json.loads(read_own(self._place(path)))
            source = source_of(file)
            if kept["key"] != self._key(path) or kept["told"]["sha256"] != hashlib.sha256(source).hexdigest():
                return None
            if not all(self._is_as_before(*row) for row in kept["dependencies"]):
                return None
            return Report(str(file), path, source, kept["told"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read_by(self, file: Path) -> frozenset[str]:
        """The files that the last trace of a file read, as far as that is kept."""
        try:
            kept = json.loads(read_own(self._place(canonical_path(file))))
            return frozenset(path for kind, path, _ in kept["dependencies"] if kind == "content")
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def keep(self, report: Report, dependencies: Iterable[Dependency]) -> None:
        """Keep a report for the next run, if another run would find the same."""
        rows = [(one.kind, one.path, one.seen) for one in dependencies]
        codes = {problem["code"] for problem in report.told["problems"]}
        settled = len(rows) < MOST and all(UNSETTLED not in _texts_of(seen) for _, _, seen in rows)
        if not rows or not settled or codes & _OF_THE_MOMENT or not report.same_text:
            return
        told = {**report.told, "sites": []}
        rows += [
            ("listing", str(folder), look_at_dependency("listing", str(folder)))
            for folder in self._packages(report.path)
        ]
        text = json.dumps({"key": self._key(report.path), "told": told, "dependencies": rows})
        with contextlib.suppress(OSError):  # a cache costs time, not correctness
            private_folder(self._folder)
            write_whole(self._place(report.path), text)

    def _packages(self, path: str) -> Iterator[Path]:
        for one in self._interpreters(path):
            yield from list_packages(Path(one.path).parent.parent)

    def _interpreters(self, path: str) -> list[Candidate]:
        folder = os.path.dirname(path)  # noqa: PTH120 - the files of a folder have the same
        if folder not in self._found:
            self._found[folder] = list_interpreters(project_of(path), path, self._python, os.environ)
        return self._found[folder]

    def _place(self, path: str) -> Path:
        named = hashlib.sha256(f"{path}\0{self._python or ''}".encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{named[:32]}.json"

    def _key(self, path: str) -> list[Any]:
        """Everything else that a result depends on, besides the looks of its trace."""
        settings = json.loads(json.dumps(asdict(apply_project(FolderSettings(), project_of(path)))))
        pythons = [_describe_python(one.path) for one in self._interpreters(path)]
        return [_describe_program(), pythons, settings, [os.environ.get(name, "") for name in _VARIABLES]]

    def _is_as_before(self, kind: Kind, path: str, seen: Seen) -> bool:
        if isinstance(seen, dict):
            if path not in self._folders:
                self._folders[path] = ModuleFolder.read(path)
            return {name: self._folders[path].find(name) for name in seen} == seen
        if (kind, path) not in self._looks:
            self._looks[kind, path] = look_at_dependency(kind, path)
        return self._looks[kind, path] == seen


class KnownTexts:
    """The models of texts, by sha256, since parsing all files of a repository takes longer than reading them.

    True: a text has a model. Else the names that it imports and calls, which other files may make.
    """

    def __init__(self) -> None:
        self._place = cache_dir() / "check" / "texts.json"
        self._known: dict[str, bool | list[str]] = {}
        self._new: dict[str, bool | list[str]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
            kept = json.loads(read_own(self._place))
            self._known = dict(kept["texts"]) if kept["program"] == _describe_program() else {}

    def look_at(self, source: bytes, look: Callable[[], bool | list[str]]) -> bool | list[str]:
        """The answer for a text. look: parses it."""
        sha256 = hashlib.sha256(source).hexdigest()
        if sha256 not in self._known:
            self._known[sha256] = self._new[sha256] = look()
        return self._known[sha256]

    def keep(self) -> None:
        """Keep what was learned for the next run."""
        if not self._new:
            return
        texts = dict(list(self._known.items())[-_MOST_TEXTS:])
        with contextlib.suppress(OSError):
            private_folder(self._place.parent)
            write_whole(self._place, json.dumps({"program": _describe_program(), "texts": texts}))


def _texts_of(seen: Seen) -> Iterator[str]:
    yield from seen.values() if isinstance(seen, dict) else (seen,)


@cache
def _describe_program() -> str:
    """This program's version, and when its files were last changed, for those who work on it."""
    files = Path(__file__).parents[1].rglob("*.py")
    return f"{__version__} {max(file.stat().st_mtime_ns for file in files)}"


@cache
def _describe_python(path: str) -> str:
    real = os.path.realpath(path)
    return f"{path} is {real}, {look_at_dependency('size', real)}"
