"""`mase-server inputs`: with which inputs the models of a file are traced, and how two sets of them differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mase_server.cli.completing import models
from mase_server.cli.terminal import say, say_json

if TYPE_CHECKING:
    from mase_server.cli.asking import Talk


class Output(StrEnum):
    """How `inputs` prints."""

    TEXT = "text"
    JSON = "json"


def inputs(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")],
    sets: Annotated[
        list[str] | None, typer.Argument(metavar="[SET SET]", help="Two sets to compare; - is the one without a name.")
    ] = None,
    output: Annotated[Output, typer.Option("--format", help="A table, or JSON.")] = Output.TEXT,
    model: Annotated[
        str | None, typer.Option(help="The model, if the file has several.", autocompletion=models)
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
) -> None:
    """List the inputs of the models of a file and their named sets, or compare two sets: shapes and costs.

    A comment gives a set its name: `# mase[small]: x: f32[1, 3, 32, 32]`.

    Examples:

        mase-server inputs net.py

        mase-server inputs net.py small large

    Exit status: 0 shown, 1 there is no such model or set, or one cannot be traced, 2 wrong usage.
    """
    from mase_server.cli.asking import Refused, Subject, ask

    names = ["" if name == "-" else name for name in sets or ()]
    if len(names) not in (0, 2):
        raise typer.BadParameter(f"name two sets to compare, or none to list them; here is {len(names)}")
    talk: Callable[[str], Talk[Any]] = partial(_comparison, model, names) if names else partial(_listing, model)
    try:
        told: Any = ask(Subject(file, python=python, daemon=daemon), talk)
    except Refused as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None
    if output is Output.JSON:
        say_json(told)
    else:
        say("\n".join(_compared(told) if names else _listed(told)))
    sys.stdout.flush()
    raise typer.Exit(1 if names and None in (told["before"], told["after"]) else 0)


def _listing(model: str | None, path: str) -> Talk[Any]:
    told = yield "mase/inputs", {"path": path}
    return [each for each in told["inputs"] if model in (None, each["model"])]


def _comparison(model: str | None, sets: list[str], path: str) -> Talk[Any]:
    params = {"path": path, "sets": sets} | ({} if model is None else {"model": model})
    return (yield "mase/compareInputs", params)


def _listed(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from mase_server.cli.tables import columns

    rows = []
    for each in told:
        values = "; ".join(f"{name}: {sizes([value])}" for name, value in each["inputs"].items())
        named = " ".join(f"{name}*" if name == each["set"] else name for name in each["sets"])
        rows.append([each["model"], named or "-", values, each["found"]])
    yield from columns(["model", "sets (* is used)", "inputs", "found"], rows)


def _compared(told: Mapping[str, Any]) -> Iterator[str]:
    from mase_server.cli.tables import columns
    from mase_server.lsp.figures import in_bytes, scaled

    sides = [told["before"], told["after"]]
    for problem in told["problems"]:
        yield problem["message"]
    if None in sides:
        return
    head = ["", *(each["set"] or "without a name" for each in sides)]
    names = dict.fromkeys(name for each in sides for name in each["inputs"])
    rows = [[f"input {name}", *(sizes([each["inputs"].get(name)]) for each in sides)] for name in names]
    rows.append(["output", *(sizes([each["outputs"]]) for each in sides)])
    rows.append(["parameters", *(f"{each['parameters']:,}" for each in sides)])
    rows.append(["FLOPs", *(scaled(each["flops"] or 0, "") for each in sides)])
    rows.append(["read and written", *(in_bytes(each["bytes"]) for each in sides)])
    yield from columns(head, rows)
    yield ""
    tensors = [[_mark(row), *_place(row), *(_side(row[side]) for side in ("before", "after"))] for row in told["rows"]]
    yield from columns(["", "line", "name", *head[1:]], tensors, right={1})


def _mark(row: Mapping[str, Any]) -> str:
    return "≠" if row["differs"] else ""


def _place(row: Mapping[str, Any]) -> list[str]:
    return [str(row["line"]), "return" if row["kind"] == "return" else row["name"]]


def _side(values: Sequence[Any] | None) -> str:
    return "not reached" if values is None else sizes(values)


def sizes(values: Sequence[Any]) -> str:
    """The label of values with sizes as numbers, which is what sets differ in."""
    from mase_server.lsp.labels import label

    return label([_numbered(each) for each in values])


def _numbered(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [value[0], value[1], None]
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [_numbered(each) for each in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: _numbered(each) for key, each in value["dict"].items()}}
    return value
