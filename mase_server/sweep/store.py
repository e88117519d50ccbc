"""Results in an SQLite file: each is there as soon as it is known, whoever is killed afterwards.

Other tools read it: every figure is a column of the table `results`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from mase_server.sweep.figures import FIGURES
from mase_server.sweep.points import Hashes, Point, Result, Surroundings

#: Of the layout below; a file with another one is refused.
SCHEMA = 1
#: Seconds that another sweep may hold the file.
_BUSY = 60.0
_TEXTS = ("key", "file", "model", "pipeline", "budget", "error", "kind", "facts", "sources", "finished")
_COLUMNS = (*_TEXTS, "seconds", *FIGURES)
_TYPES = dict.fromkeys(_TEXTS, "TEXT NOT NULL") | {"key": "TEXT PRIMARY KEY"}


class StoreError(Exception):
    """A file of results that cannot be used; the text says why, and what to do."""


class Store:
    """The results of sweeps. Several processes may use one file at once.

    surroundings: what the keys and paths are told from.  StoreError for a file that is none.
    """

    def __init__(self, path: Path, surroundings: Surroundings) -> None:
        self.path = path
        self._around = surroundings
        try:
            self._connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
            with self._told():
                self._prepare()
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        types = ", ".join(f"{name} {_TYPES.get(name, 'NUMERIC')}" for name in _COLUMNS)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if found not in (0, SCHEMA) or (tables and not found):
                raise StoreError(f"{self.path} does not hold results of sweeps: name another file")
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS results ({types})")
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        finally:
            self._connection.execute("COMMIT")

    def put(self, point: Point, key: str, result: Result) -> None:
        """Keep a result, in place of an older one of the same key. It is on disk when this returns."""
        row = {
            "key": key,
            "file": self._around.relative(point.file),
            "model": result.model,
            "pipeline": json.dumps(point.pipeline),
            "budget": "" if point.build is None else json.dumps(point.build, sort_keys=True),
            "error": result.error,
            "kind": result.kind,
            "facts": json.dumps(result.facts),
            "sources": json.dumps({self._around.relative(path): text for path, text in result.sources.items()}),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": result.seconds,
            **{name: result.figures.get(name) for name in FIGURES},
        }
        holes = ", ".join("?" * len(_COLUMNS))
        with self._told():
            self._connection.execute(
                f"INSERT OR REPLACE INTO results VALUES ({holes})", [row[name] for name in _COLUMNS]
            )

    def find(self, key: str, hashes: Hashes) -> Result | None:
        """The result of a key, if no file that it depends on has changed."""
        with self._told():
            row = self._connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM results WHERE key = ?", [key]).fetchone()
        if row is None:
            return None
        told = dict(zip(_COLUMNS, row, strict=True))
        sources = {self._around.absolute(path): text for path, text in json.loads(told["sources"]).items()}
        if any(hashes.of(path) != text for path, text in sources.items()):
            return None
        return _result(told, sources)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None


def _result(told: dict[str, Any], sources: dict[str, str]) -> Result:
    figures = {name: told[name] for name in FIGURES if told[name] is not None}
    return Result(
        told["model"], figures, told["error"], told["kind"], json.loads(told["facts"]), sources, told["seconds"]
    )


def keys_of(points: Sequence[Point], surroundings: Surroundings, hashes: Hashes) -> dict[str, Point]:
    """Points by their keys, in their order; what is equal is there once."""
    return {surroundings.key(point, hashes): point for point in points}
