"""A grid of models, pipelines and budgets, from a TOML file or from options."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.paths import canonical_path
from mase_server.protocol.arguments import Step
from mase_server.suggestions import suggest
from mase_server.sweep.points import FIGURES, HARDWARE_OBJECTIVES, OBJECTIVES, Figure, Point, objectives_of

_HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")
#: Keys of a grid, and of one of its models.
_KEYS = ("models", "pipelines", "vary", "hardware", "objectives", "depends")
_MODEL_KEYS = ("file", "model", "inputs")


class GridError(ValueError):
    """The grid is wrong; the text suggests a correction."""


@dataclass(frozen=True, slots=True)
class Grid:
    """models: points without pipeline and build.  pipelines: lists of texts with `{name}` for the values of `vary`.

    names: of the pipelines, in their order, where they have names.  hardware: values to try, by the key of
    `building.Build`; None for no hardware.  objectives: names of figures, () for the usual ones.  depends: data files
    that the models read.
    """

    models: tuple[Point, ...] = ()
    pipelines: tuple[tuple[str, ...], ...] = ()
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    hardware: Mapping[str, tuple[Any, ...]] | None = None
    objectives: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            raise GridError("the grid names no model; write e.g. models = ['mlp.py']")
        try:
            objectives_of(self.objectives or OBJECTIVES)
            for build in self.builds:
                Build.from_wire(build or {})
            for text in itertools.chain.from_iterable(self.filled):
                Step.parse(text)
        except (ValueError, TypeError) as error:
            raise GridError(str(error)) from None

    @property
    def compared(self) -> tuple[Figure, ...]:
        """The objectives as figures."""
        usual = OBJECTIVES if self.builds == (None,) else HARDWARE_OBJECTIVES
        return objectives_of(self.objectives or usual)

    @property
    def builds(self) -> tuple[Mapping[str, Any] | None, ...]:
        """Every budget; only None without hardware, i.e. if neither a budget nor an objective asks for it."""
        if self.hardware is None and not any(FIGURES[name].hardware for name in self.objectives):
            return (None,)
        named = self.hardware or {}
        return tuple(dict(zip(named, values, strict=True)) for values in itertools.product(*named.values()))

    @property
    def filled(self) -> dict[tuple[str, ...], str]:
        """Every pipeline with every combination of its values, without duplicates; and its name, such as `int w=8`."""
        found: dict[tuple[str, ...], str] = {}
        for pipeline, name in itertools.zip_longest(self.pipelines or ((),), self.names, fillvalue=""):
            for steps, values in self._fill_pipeline(tuple(pipeline)):
                found.setdefault(steps, f"{name} {values}".strip() if name else "")
        return found

    def _fill_pipeline(self, pipeline: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        holes = dict.fromkeys(name for text in pipeline for name in _HOLE.findall(text))
        if missing := [name for name in holes if name not in self.vary]:
            raise GridError(f"{{{missing[0]}}} stands in {'; '.join(pipeline)!r}, but it has no values")
        for values in itertools.product(*(self.vary[name] for name in holes)):
            chosen = dict(zip(holes, values, strict=True))
            steps = tuple(_fill_holes(text, chosen) for text in pipeline)
            yield steps, " ".join(f"{name}={value}" for name, value in chosen.items())

    def points(self) -> list[Point]:
        """All points, ordered by file, and within a file by pipeline."""
        return [
            replace(model, pipeline=pipeline, build=build, name=name)
            for model in self.models
            for pipeline, name in self.filled.items()
            for build in self.builds
        ]


def _fill_holes(text: str, chosen: Mapping[str, Any]) -> str:
    return _HOLE.sub(lambda hole: str(chosen[hole[1]]), text)


def read_grid(path: Path) -> Grid:
    """The grid in a TOML file; paths in it are relative to its folder. GridError names the file."""
    try:
        return _grid_from_map(tomllib.loads(path.read_text("utf-8")), path.parent.absolute())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, GridError) as error:
        raise GridError(f"{path}: {error}") from None


def _grid_from_map(told: Mapping[str, Any], folder: Path) -> Grid:
    _require_known_keys(told, _KEYS, "a grid")
    pipelines = told.get("pipelines", ())
    named = pipelines if isinstance(pipelines, Mapping) else {}
    hardware = told.get("hardware")
    return Grid(
        models_of(told.get("models", ()), folder),
        tuple(map(_parse_pipeline, named.values() if named else _as_sequence(pipelines))),
        {name: tuple(_as_sequence(values)) for name, values in _require_table(told.get("vary", {}), "vary").items()},
        None
        if hardware is None
        else {key: tuple(_as_sequence(each)) for key, each in _require_table(hardware, "hardware").items()},
        tuple(_as_sequence(told.get("objectives", ()))),
        tuple(str(folder / file) for file in _as_sequence(told.get("depends", ()))),
        tuple(named),
    )


def models_of(entries: Iterable[Any], folder: Path) -> tuple[Point, ...]:
    """Points for model files: each entry is a path, a pattern, or a map of `file`, `model` and `inputs`. GridError."""
    return tuple(point for entry in _as_sequence(entries) for point in _points_from_entry(entry, folder))


def _points_from_entry(entry: Any, folder: Path) -> Iterator[Point]:
    given = entry if isinstance(entry, Mapping) else {"file": entry}
    _require_known_keys(given, _MODEL_KEYS, "a model")
    file = given.get("file")
    if not isinstance(file, str) or not file:
        raise GridError(f"{entry!r} is no model; an example: {{file = 'mlp.py', model = 'MLP'}}")
    inputs = tuple(_as_sequence(given.get("inputs", ())))
    for path in _files_of_pattern(file, folder):
        yield Point(str(path), given.get("model", ""), inputs)


def _files_of_pattern(file: str, folder: Path) -> list[Path]:
    found = sorted(folder.glob(file)) if any(sign in file for sign in "*?[") else [folder / file]
    found = [Path(canonical_path(path)) for path in found if path.is_file()]
    if not found:
        raise GridError(f"there is no file {file!r} in {folder}")
    return found


def _parse_pipeline(texts: Any) -> tuple[str, ...]:
    steps = _as_sequence(texts)
    if wrong := [step for step in steps if not isinstance(step, str)]:
        raise GridError(f"{wrong[0]!r} is no step; an example of a pipeline: [\"quantize(default='fixed(8,4)')\"]")
    return tuple(steps)


def _require_table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GridError(f"{name} is {value!r}; it is a table of lists")
    return value


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _require_known_keys(given: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
    for key in given:
        if key not in keys:
            raise GridError(f"{what} has no {key!r}{suggest(key, keys, 'it has')}")
