"""One point of a grid, what came of measuring it, and the key that both are kept by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mase_server import __version__


@dataclass(frozen=True, slots=True)
class Point:
    """A model, the passes that are applied to it, and the hardware that it becomes.

    file: absolute.  model: its title, "" for the file's first.  inputs: texts as `TraceOptions` has them.  pipeline:
    texts of steps.  build: keys of `building.Build`; None for no hardware.
    """

    file: str
    model: str = ""
    inputs: tuple[str, ...] = ()
    pipeline: tuple[str, ...] = ()
    build: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values."""
        return asdict(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Point:
        """The inverse of `to_wire`."""
        return cls(**{**data, "inputs": tuple(data["inputs"]), "pipeline": tuple(data["pipeline"])})

    @property
    def budget(self) -> str:
        """The budget of the hardware in words; "" without hardware."""
        given = {} if self.build is None else self.build
        return ", ".join(f"{key}={value}" for key, value in given.items()) or ("default" if self.build == {} else "")

    def __str__(self) -> str:
        name = Path(self.file).name + (f" {self.model}" if self.model else "")
        return " | ".join([name, "; ".join(self.pipeline) or "as it is", *([self.budget] if self.budget else [])])


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a point. figures: the known ones, by name.  error: why others are unknown, "" if all are known.

    kind: of the error, e.g. "pass", "hardware", "trace" or "died".  model: its title.  facts: the origin of the
    weights, the inputs, and the versions of Python and torch, as texts.  sources: sha256 of the files it depends on.
    """

    model: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    error: str = ""
    kind: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything else that a result depends on. folder: the base of relative paths, so that the folder may move.

    environment: in words, which torch.  depends: files of data that the models read.
    """

    folder: str
    environment: str = ""
    depends: tuple[str, ...] = ()

    def key(self, point: Point, hashes: Hashes) -> str:
        """Equal for points that give equal results, as far as this can be told before the model is traced."""
        told = {
            **point.to_wire(),
            "file": self.relative(point.file),
            "texts": [hashes.of(path) for path in (point.file, *self.depends)],
            "environment": self.environment,
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def relative(self, path: str) -> str:
        """A path as it is kept: from the folder, if it is inside of it."""
        return Path(path).relative_to(self.folder).as_posix() if Path(path).is_relative_to(self.folder) else path

    def absolute(self, path: str) -> str:
        """The inverse of `relative`."""
        return str(Path(self.folder, path))


class Hashes:
    """The sha256 of files as they are now, each read once; "" for one that cannot be read."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Of one file."""
        if path not in self._known:
            self._known[path] = sha256_of(path)
        return self._known[path]


def sha256_of(path: str) -> str:
    """Of a file as it is now; "" for one that cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
