"""One point of a grid, its result, the key that both are stored under, and the figures to compare.

The key is known before a trace: texts, pipeline, build and torch's version. The result lists the files that the trace
imported, and is valid only while none of them has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from mase_server import __version__
from mase_server.protocol.records import Plain
from mase_server.suggestions import suggest


class PointRecord(TypedDict):
    """A `Point` as it goes to another process."""

    file: str
    model: str
    inputs: Sequence[str]
    pipeline: Sequence[str]
    build: Mapping[str, Plain] | None


class ResultRecord(TypedDict):
    """A `Result` as it comes from another process."""

    model: str
    figures: dict[str, float | None]
    error: str
    kind: str
    facts: dict[str, str]
    sources: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Point:
    """A model, the passes on it, and the hardware to make from it.

    file: absolute.  model: its title, "" for the file's first.  inputs: texts as in `TraceOptions`.  pipeline:
    texts of steps.  build: keys of `building.Build`; None for no hardware.  name: of the pipeline, in the person's
    words; it makes no other point.
    """

    file: str
    model: str = ""
    inputs: tuple[str, ...] = ()
    pipeline: tuple[str, ...] = ()
    build: Mapping[str, Any] | None = None
    name: str = field(default="", compare=False)

    def to_wire(self) -> PointRecord:
        """Its measurements, as a map of plain values."""
        return {
            "file": self.file, "model": self.model, "inputs": self.inputs, "pipeline": self.pipeline,
            "build": None if self.build is None else dict(self.build),
        }  # fmt: skip

    @classmethod
    def from_wire(cls, data: PointRecord) -> Point:
        """The inverse of `to_wire`."""
        return cls(data["file"], data["model"], tuple(data["inputs"]), tuple(data["pipeline"]), data["build"])

    @property
    def budget(self) -> str:
        """The budget of the hardware in words; "" without hardware."""
        given = {} if self.build is None else self.build
        return ", ".join(f"{key}={value}" for key, value in given.items()) or ("default" if self.build == {} else "")

    @property
    def passes(self) -> str:
        """The pipeline in words."""
        return self.name or "; ".join(self.pipeline) or "as it is"

    def __str__(self) -> str:
        name = Path(self.file).name + (f" {self.model}" if self.model else "")
        return " | ".join([name, self.passes, *([self.budget] if self.budget else [])])


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

    def to_wire(self) -> ResultRecord:
        """As a map of plain values."""
        return {
            "model": self.model, "figures": dict(self.figures), "error": self.error, "kind": self.kind,
            "facts": dict(self.facts), "sources": dict(self.sources), "seconds": self.seconds,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything else that a result depends on. folder: the base of relative paths, so that it may be moved.

    environment: the torch version, in words.  depends: data files that the models read.
    """

    folder: str
    environment: str = ""
    depends: tuple[str, ...] = ()

    def key(self, point: Point, hashes: Hashes) -> str:
        """The key: equal for points with equal results, as far as this is known before the model is traced."""
        told = {
            **point.to_wire(),
            "file": self.relative(point.file),
            "texts": [hashes.of(path) for path in (point.file, *self.depends)],
            "environment": self.environment,
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def relative(self, path: str) -> str:
        """The path in the store: relative to the folder if it is inside."""
        return Path(path).relative_to(self.folder).as_posix() if Path(path).is_relative_to(self.folder) else path

    def absolute(self, path: str) -> str:
        """The inverse of `relative`."""
        return str(Path(self.folder, path))


class Hashes:
    """The present sha256 of files, each read once; "" for an unreadable one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """The hash of one file."""
        if path not in self._known:
            self._known[path] = sha256_of(path)
        return self._known[path]


def sha256_of(path: str) -> str:
    """The present sha256 of a file; "" if it is unreadable."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


# The figures of a point, the better direction of each, and the points that no other point beats.

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a point. source: its key in a transform's summary, or in the totals of an emission."""

    name: str
    help: str
    source: str
    hardware: bool = False
    more_is_better: bool = False

    def better(self, one: float, other: float) -> bool:
        """Is one value better than another?"""
        return one > other if self.more_is_better else one < other


#: All figures, in the order of columns.
FIGURES = {
    each.name: each
    for each in (
        Figure("sqnr", "of the output beside the original's, in dB", "sqnr", more_is_better=True),
        Figure("max_error", "largest difference of an element of the output", "max_error"),
        Figure("data_bits", "bits of an activation, on average", "data_bits"),
        Figure("weight_bits", "bits of a weight, on average", "weight_bits"),
        Figure("parameters", "numbers that are learnt", "parameters"),
        Figure("parameter_bytes", "bytes of all weights", "parameter_bytes"),
        Figure("multipliers", "of the hardware", "multipliers", hardware=True),
        Figure("luts", "four-input tables, estimated", "luts", hardware=True),
        Figure("memory_bits", "weights, buffers and tables, estimated", "memory_bits", hardware=True),
        Figure("cycles", "from one sample to the next", "interval", hardware=True),
        Figure("latency", "cycles from a sample's first beat to its result's last", "latency", hardware=True),
    )
}

#: The figures compared by default.
OBJECTIVES, HARDWARE_OBJECTIVES = ("sqnr", "weight_bits"), ("sqnr", "luts", "cycles")


def objectives_of(names: Sequence[str]) -> tuple[Figure, ...]:
    """The figures of these names; ValueError lists the existing ones."""
    if unknown := [name for name in names if name not in FIGURES]:
        raise ValueError(f"there is no figure {unknown[0]!r} to compare{suggest(unknown[0], FIGURES)}")
    if not names:
        raise ValueError("no objective is named")
    return tuple(FIGURES[name] for name in dict.fromkeys(names))


def mark_front(rows: Sequence[Figures], objectives: Sequence[Figure]) -> list[bool]:
    """For each row: does no other row beat it (as good everywhere, better somewhere)? Incomplete rows never count."""
    complete = [all(row.get(each.name) is not None for each in objectives) for row in rows]
    known = [row for row, whole in zip(rows, complete, strict=True) if whole]
    return [
        whole and not any(_is_beating(other, row, objectives) for other in known)
        for row, whole in zip(rows, complete, strict=True)
    ]


def _is_beating(one: Figures, other: Figures, objectives: Sequence[Figure]) -> bool:
    pairs = [(each, one[each.name], other[each.name]) for each in objectives]
    better = [each.better(mine, its) for each, mine, its in pairs if mine is not None and its is not None]
    worse = [each.better(its, mine) for each, mine, its in pairs if mine is not None and its is not None]
    return any(better) and not any(worse)
