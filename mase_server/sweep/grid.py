"""A grid: which models, which pipelines, which budgets; from a TOML file or from options."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.paths import canonical
from mase_server.steps import Step
from mase_server.suggestions import suggest
from mase_server.sweep.figures import FIGURES, HARDWARE_OBJECTIVES, OBJECTIVES, Figure, objectives_of
from mase_server.sweep.points import Point

_HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")
#: Keys of a grid, and of one of its models.
_KEYS = ("models", "pipelines", "vary", "hardware", "objectives", "depends")
_MODEL_KEYS = ("file", "model", "inputs")


class GridError(ValueError):
    """A grid that cannot be meant; the text says what can."""


@dataclass(frozen=True, slots=True)
class Grid:
    """models: points without pipeline and build.  pipelines: lists of texts, with `{name}` where `vary` has values.

    hardware: values to try by the key of `building.Build`; None for no hardware.  objectives: names of figures, () for
    the usual ones.  depends: files of data that the models read.
    """

    models: tuple[Point, ...] = ()
    pipelines: tuple[tuple[str, ...], ...] = ()
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    hardware: Mapping[str, tuple[Any, ...]] | None = None
    objectives: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()

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
        """The objectives."""
        usual = OBJECTIVES if self.builds == (None,) else HARDWARE_OBJECTIVES
        return objectives_of(self.objectives or usual)

    @property
    def builds(self) -> tuple[Mapping[str, Any] | None, ...]:
        """Every budget. None alone where no hardware is wanted: neither given, nor an objective."""
        if self.hardware is None and not any(FIGURES[name].hardware for name in self.objectives):
            return (None,)
        named = self.hardware or {}
        return tuple(dict(zip(named, values, strict=True)) for values in itertools.product(*named.values()))

    @property
    def filled(self) -> tuple[tuple[str, ...], ...]:
        """Every pipeline with every choice of the values that it names, each once."""
        every = itertools.chain.from_iterable(map(self._filled, self.pipelines or ((),)))
        return tuple(dict.fromkeys(every))

    def _filled(self, pipeline: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        holes = dict.fromkeys(name for text in pipeline for name in _HOLE.findall(text))
        if missing := [name for name in holes if name not in self.vary]:
            raise GridError(f"{{{missing[0]}}} stands in {'; '.join(pipeline)!r}, but it has no values")
        for values in itertools.product(*(self.vary[name] for name in holes)):
            yield tuple(_with(text, dict(zip(holes, values, strict=True))) for text in pipeline)

    def points(self) -> list[Point]:
        """All of it: those of one file together, and of those the ones of one pipeline."""
        return [
            replace(model, pipeline=pipeline, build=build)
            for model in self.models
            for pipeline in self.filled
            for build in self.builds
        ]


def _with(text: str, chosen: Mapping[str, Any]) -> str:
    return _HOLE.sub(lambda hole: str(chosen[hole[1]]), text)


def read_grid(path: Path) -> Grid:
    """The grid that a TOML file tells; files in it are meant from its folder. GridError names the file."""
    try:
        return _grid(tomllib.loads(path.read_text("utf-8")), path.parent.absolute())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, GridError) as error:
        raise GridError(f"{path}: {error}") from None


def _grid(told: Mapping[str, Any], folder: Path) -> Grid:
    _known(told, _KEYS, "a grid")
    pipelines = told.get("pipelines", ())
    hardware = told.get("hardware")
    return Grid(
        models_of(told.get("models", ()), folder),
        tuple(map(_pipeline, pipelines.values() if isinstance(pipelines, Mapping) else _listed(pipelines))),
        {name: tuple(_listed(values)) for name, values in _table(told.get("vary", {}), "vary").items()},
        None if hardware is None else {key: tuple(_listed(each)) for key, each in _table(hardware, "hardware").items()},
        tuple(_listed(told.get("objectives", ()))),
        tuple(str(folder / file) for file in _listed(told.get("depends", ()))),
    )


def models_of(entries: Iterable[Any], folder: Path) -> tuple[Point, ...]:
    """Points of model files: a path or pattern each, or a map of `file`, `model` and `inputs`. GridError."""
    return tuple(point for entry in _listed(entries) for point in _models(entry, folder))


def _models(entry: Any, folder: Path) -> Iterator[Point]:
    given = entry if isinstance(entry, Mapping) else {"file": entry}
    _known(given, _MODEL_KEYS, "a model")
    file = given.get("file")
    if not isinstance(file, str) or not file:
        raise GridError(f"{entry!r} is no model; an example: {{file = 'mlp.py', model = 'MLP'}}")
    inputs = tuple(_listed(given.get("inputs", ())))
    for path in _files(file, folder):
        yield Point(str(path), given.get("model", ""), inputs)


def _files(file: str, folder: Path) -> list[Path]:
    found = sorted(folder.glob(file)) if any(sign in file for sign in "*?[") else [folder / file]
    found = [Path(canonical(path)) for path in found if path.is_file()]
    if not found:
        raise GridError(f"there is no file {file!r} in {folder}")
    return found


def _pipeline(texts: Any) -> tuple[str, ...]:
    steps = _listed(texts)
    if wrong := [step for step in steps if not isinstance(step, str)]:
        raise GridError(f"{wrong[0]!r} is no step; an example of a pipeline: [\"quantize(default='fixed(8,4)')\"]")
    return tuple(steps)


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GridError(f"{name} is {value!r}; it is a table of lists")
    return value


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _known(given: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
    for key in given:
        if key not in keys:
            raise GridError(f"{what} has no {key!r}{suggest(key, keys, 'it has')}")
