"""`mase-server shapes --format json`: one object a file, one file a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mase_server.cli.session import Outcome
from mase_server.daemon.store import SiteView
from mase_server.lsp.labels import dimensions, has_tensor
from mase_server.lsp.wording import EXPRESSIONS, NAMES
from mase_server.snapshot import Problem

_MODEL = ("name", "arguments", "inputs", "inputs_from", "arguments_from", "nodes", "parameters", "flops")
_PLACE = ("line", "column", "end_line", "end_column")
_ALL_LINES = (1, 1 << 30)


def print_json(outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print the report of every file."""
    for outcome in outcomes:
        print(json.dumps(report(outcome, everything), ensure_ascii=False))


def report(outcome: Outcome, everything: bool) -> dict[str, Any]:
    """The report of one file. everything: rows of kind "expression" too."""
    payload: Mapping[str, Any] = outcome.snapshot.payload if outcome.snapshot else {}
    kinds = EXPRESSIONS if everything else NAMES
    sites = outcome.view.sites(*_ALL_LINES, kinds) if outcome.view else []
    return {
        "file": outcome.file,
        "python": payload.get("python"),
        "torch": payload.get("torch"),
        "seconds": payload.get("seconds", outcome.status.seconds),
        "models": [_model(model) for model in payload.get("models", ())],
        "tensors": [row for site in sites if (row := _tensor(site))["values"] and site.name != "self"],
        "problems": [problem_map(problem) for problem in outcome.problems],
    }


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    inputs = {name: value_map(value) for name, value in model["inputs"].items()}
    return {**{key: model[key] for key in _MODEL}, "inputs": inputs}


def _tensor(site: SiteView) -> dict[str, Any]:
    place = {key: getattr(site, key) for key in (*_PLACE, "name", "kind", "function")}
    values = [
        {**value_map(seen.value), "model": seen.model, "count": seen.count, "scopes": [path for path, _ in seen.scopes]}
        for seen in site.values
        if has_tensor(seen.value)
    ]
    return {**place, "values": values}


def value_map(value: Any) -> Any:
    """A snapshot's value with every tensor as {"dtype", "shape", "symbols"}."""
    if isinstance(value, list | tuple):
        return {"dtype": value[0], "shape": list(value[1]), "symbols": dimensions(value)}
    if isinstance(value, dict) and "dtype" in value:
        return value_map([value["dtype"], value["shape"], value.get("symbols")])
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [value_map(part) for part in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: value_map(part) for key, part in value["dict"].items()}}
    return value


def problem_map(problem: Problem) -> dict[str, Any]:
    """A diagnostic as the JSON has it."""
    return {key: getattr(problem, key) for key in (*_PLACE, "severity", "code", "message")}
