"""`mase-server shapes --format json`: one object a file, one file a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mase_server.cli.reports import Report, Site
from mase_server.cli.terminal import say_json
from mase_server.lsp.labels import dimensions, has_tensor
from mase_server.lsp.wording import EXPRESSIONS, NAMES
from mase_server.snapshot import Problem

_MODEL = ("name", "arguments", "inputs", "inputs_from", "arguments_from", "nodes", "parameters", "flops")
_PLACE = ("line", "column", "end_line", "end_column")


def print_json(reports: Sequence[Report], everything: bool) -> None:
    """Print the report of every file."""
    for each in reports:
        say_json(report(each, everything))


def report(found: Report, everything: bool) -> dict[str, Any]:
    """The report of one file. everything: rows of kind "expression" too."""
    told = found.told
    sites = found.sites(EXPRESSIONS if everything else NAMES)
    return {
        "file": found.file,
        "python": told["python"],
        "torch": told["torch"],
        "seconds": told["seconds"] if told["seconds"] is not None else (told["status"] or {}).get("seconds"),
        "models": [_model(model) for model in found.models],
        "tensors": [row for site in sites if (row := _tensor(site))["values"] and site.name != "self"],
        "problems": [problem_map(problem) for problem in found.problems],
    }


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    inputs = {name: value_map(value) for name, value in model["inputs"].items()}
    return {**{key: model[key] for key in _MODEL}, "inputs": inputs}


def _tensor(site: Site) -> dict[str, Any]:
    place = {key: getattr(site, key) for key in (*_PLACE, "name", "kind", "function")}
    values = [
        {**value_map(seen.value), "model": seen.model, "count": seen.count, "scopes": list(seen.scopes)}
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
