"""The grid that `mase-server sweep` is given: a file, or options that say the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mase_server.arguments import split_texts
from mase_server.cli.steps import UsageError, parsed
from mase_server.paths import canonical
from mase_server.sweep.grid import Grid, models_of, read_grid


@dataclass(frozen=True, slots=True)
class Options:
    """The options as typed, None for the others. An option overrides the entry of the grid file."""

    pipelines: Sequence[str] | None = None
    vary: Sequence[str] | None = None
    multipliers: str | None = None
    interval: str | None = None
    precision: str | None = None
    objectives: str | None = None
    model: str | None = None
    inputs: Sequence[str] | None = None


def grid_of(what: Sequence[Path], options: Options) -> Grid:
    """The grid of a file, or of models and options. UsageError, GridError."""
    grids = [path for path in what if path.suffix == ".toml"]
    if grids and len(what) > 1:
        raise UsageError(f"{grids[0]} is a grid: it names its models itself, so no other file may stand beside it")
    given: dict[str, Any] = {}
    if options.pipelines is not None:
        given["pipelines"] = tuple(tuple(map(str, parsed(shlex.split(text)))) for text in options.pipelines)
    if options.vary is not None:
        given["vary"] = dict(map(_values, options.vary))
    if options.objectives is not None:
        given["objectives"] = tuple(split_texts(options.objectives))
    budgets = _budgets(options)
    if grids:
        found = read_grid(grids[0])
        hardware = {**(found.hardware or {}), **budgets} if budgets else found.hardware
        return replace(found, hardware=hardware, **given)
    given["hardware"] = budgets or None
    models = models_of([canonical(path) for path in what], Path.cwd())
    named = (replace(each, model=options.model or "", inputs=tuple(options.inputs or ())) for each in models)
    return Grid(tuple(named), **given)


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not values:
        raise UsageError(f"{text!r} says no values; an example: --vary width=4,6,8")
    return name, tuple(split_texts(values))


def _budgets(options: Options) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("multipliers", "interval"):
        if (text := getattr(options, name)) is not None:
            found[name] = tuple(_whole(name, each) for each in split_texts(text))
    if options.precision is not None:
        found["precision"] = tuple(split_texts(options.precision))
    return found


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{name} has {text!r}; it takes whole numbers, e.g. --{name} 16,64") from None
