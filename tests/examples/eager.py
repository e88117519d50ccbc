"""The eager truth of an example, and what `mase-server shapes` says, in one comparable form."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from tests.examples.cases import Case
from tests.ground_truth.places import Place
from tests.ground_truth.record import Truth, run_main, run_with

Rows = dict[tuple[Any, ...], set[Any]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What one `mase-server shapes --format json FILE...` printed: its object for each file name, its exit status."""

    files: dict[str, dict[str, Any]]
    status: int


def shapes(*paths: Path, options: Sequence[str] = ()) -> Shown:
    """Run it, from a folder that has nothing to do with the files."""
    command = [sys.executable, "-m", "mase_server", "shapes", "--format", "json", *options, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=paths[0].anchor)
    assert done.stdout.count("\n") == len(paths), f"not one line a file: {done.stdout[:500]!r}; {done.stderr[-2000:]}"
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    return Shown({Path(one["file"]).name: one for one in objects}, done.returncode)


def truth_of(case: Case, inputs: Mapping[str, Any] | None = None) -> Truth:
    """What eager execution binds: the author's own run, or where there is none the root class on `inputs`."""
    torch.manual_seed(0)
    if inputs is None and case.main:
        return run_main(case.path)
    arguments = case.inputs(case.sizes) if inputs is None else inputs

    def use(file: Mapping[str, Any]) -> None:
        case.build(file)(**arguments)

    return run_with(case.path, use)


def truth_rows(truth: Truth) -> Rows:
    """Place -> described values."""
    return {astuple(place): set(seen) for place, seen in truth.items()}


def shown_rows(shown: Mapping[str, Any]) -> Rows:
    """The tensors of the JSON object in the same form."""
    return {
        astuple(place_of(row)): {described(value) for value in row["values"]}
        for row in shown["tensors"]
        if row["kind"] != "expression"
    }


def place_of(row: Mapping[str, Any]) -> Place:
    """The place that a row of "tensors" speaks of."""
    return Place(
        row["line"], row["column"], row["end_line"], row["end_column"], row["kind"], row["name"], row["function"]
    )


def described(value: Any) -> Any:
    """A JSON value as `ground_truth.record.describe` writes it."""
    if value is None:
        return None
    if "tuple" in value:
        return ("tuple", tuple(described(inner) for inner in value["tuple"]))
    if "dict" in value:
        return ("dict", tuple((key, described(inner)) for key, inner in value["dict"].items()))
    if "python" in value:
        return ("python", value["python"])
    return (value["dtype"], tuple(value["shape"]))


def tensors_in(value: Any) -> Iterable[Mapping[str, Any]]:
    """Every tensor of a JSON value, however deep, in order."""
    if value is None or "python" in value:
        return
    if "tuple" in value or "dict" in value:
        for inner in value.get("tuple") or value["dict"].values():
            yield from tensors_in(inner)
    else:
        yield value


def difference(shown: Rows, truth: Rows) -> dict[str, list[str]]:
    """What is missing, what is too much, and what is wrong, in words a person can act on."""
    where = "{0}:{1} {4} {5!r} in {6!r}".format
    return {
        "missing": [f"{where(*place)}: {truth[place]}" for place in sorted(truth.keys() - shown.keys())],
        "unknown to eager": [f"{where(*place)}: {shown[place]}" for place in sorted(shown.keys() - truth.keys())],
        "wrong": [
            f"{where(*place)}: shown {shown[place]}, eager {truth[place]}"
            for place in sorted(truth.keys() & shown.keys())
            if shown[place] != truth[place]
        ],
    }
