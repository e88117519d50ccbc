"""`mase-server inputs`: list the inputs that a file's models are traced with, or compare two sets of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mase_server.cli.steps import complete_models
from mase_server.cli.terminal import say, say_json
from mase_server.suggestions import suggest

if TYPE_CHECKING:
    from mase_server.cli.reports import Talk


class Output(StrEnum):
    """The output format of `inputs`."""

    TEXT = "text"
    JSON = "json"


def inputs(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")],
    sets: Annotated[
        list[str] | None, typer.Argument(metavar="[SET SET]", help="Two sets to compare; - is the unnamed one.")
    ] = None,
    output: Annotated[Output, typer.Option("--format", help="A table, or JSON.")] = Output.TEXT,
    model: Annotated[
        str | None, typer.Option(help="The model, if the file has several.", autocompletion=complete_models)
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
) -> None:
    """List the inputs of the models of a file and their named sets, or compare two sets: shapes and costs.

    A comment gives a set its name: `# mase[small]: x: f32[1, 3, 32, 32]`.

    Examples:

        mase-server inputs net.py

        mase-server inputs net.py small large

    Exit status: 0 shown, 1 one cannot be traced, 2 wrong usage: there is no such model or set.
    """
    from mase_server.cli.session import Refused, Subject, ask_daemon

    names = ["" if name == "-" else name for name in sets or ()]
    if len(names) not in (0, 2):
        raise typer.BadParameter(f"name two sets to compare, or none to list them, not {len(names)}")
    talk: Callable[[str], Talk[Any]] = (
        partial(_request_comparison, model, names) if names else partial(_request_inputs, model)
    )
    try:
        told: Any = ask_daemon(Subject(file, python=python, daemon=daemon), talk)
    except Refused as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(error.status) from None
    if output is Output.JSON:
        say_json(told)
    else:
        say("\n".join(_comparison_lines(told) if names else _input_lines(told)))
    sys.stdout.flush()
    raise typer.Exit(1 if names and None in (told["before"], told["after"]) else 0)


def _request_inputs(model: str | None, path: str) -> Talk[Any]:
    from mase_server.cli.session import Refused
    from mase_server.daemon.methods import ApiError

    told = yield "mase/inputs", {"path": path}
    found = [each for each in told["inputs"] if model in (None, each["model"])]
    if found:
        return found
    if names := [each["model"] for each in told["inputs"]]:
        raise Refused(ApiError("unknown-model", f"{path} has no model {model!r}{suggest(str(model), names, 'it has')}"))
    status = yield "mase/fileStatus", {"path": path}
    raise Refused(ApiError("no-graph", f"no model of {path} is shown: {status['message'] or status['state']}"))


def _request_comparison(model: str | None, sets: list[str], path: str) -> Talk[Any]:
    params = {"path": path, "sets": sets} | ({} if model is None else {"model": model})
    return (yield "mase/compareInputs", params)


def _input_lines(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from mase_server.visible import align_table_columns

    rows = []
    for each in told:
        values = "; ".join(f"{name}: {label_with_sizes([value])}" for name, value in each["inputs"].items())
        used = (each["set"], each["builder"])
        named = " ".join(f"{name}*" if name in used else name for name in [*each["sets"], *each["builders"]])
        rows.append([each["model"], named or "-", values, each["found"]])
    yield from align_table_columns(["model", "sets (* is used)", "inputs", "found"], rows)


def _comparison_lines(told: Mapping[str, Any]) -> Iterator[str]:
    from mase_server.lsp.wording import format_with_prefix, in_bytes
    from mase_server.visible import align_table_columns

    sides = [told["before"], told["after"]]
    for problem in told["problems"]:
        yield problem["message"]
    if None in sides:
        return
    head = ["", *(each["set"] or "without a name" for each in sides)]
    names = dict.fromkeys(name for each in sides for name in each["inputs"])
    rows = [[f"input {name}", *(label_with_sizes([each["inputs"].get(name)]) for each in sides)] for name in names]
    rows.append(["output", *(label_with_sizes([each["outputs"]]) for each in sides)])
    rows.append(["parameters", *(f"{each['parameters']:,}" for each in sides)])
    rows.append(["FLOPs", *(format_with_prefix(each["flops"] or 0, "") for each in sides)])
    rows.append(["read and written", *(in_bytes(each["bytes"]) for each in sides)])
    yield from align_table_columns(head, rows)
    yield ""
    tensors = [
        [_difference_mark(row), *_place_cells(row), *(_side_label(row[side]) for side in ("before", "after"))]
        for row in told["rows"]
    ]
    yield from align_table_columns(["", "line", "name", *head[1:]], tensors, right={1})


def _difference_mark(row: Mapping[str, Any]) -> str:
    return "≠" if row["differs"] else ""


def _place_cells(row: Mapping[str, Any]) -> list[str]:
    return [str(row["line"]), "return" if row["kind"] == "return" else row["name"]]


def _side_label(values: Sequence[Any] | None) -> str:
    return "not reached" if values is None else label_with_sizes(values)


def label_with_sizes(values: Sequence[Any]) -> str:
    """The label of values with sizes as numbers, because sets differ in these."""
    from mase_server.lsp.labels import label_values

    return label_values([_drop_symbols(each) for each in values])


def _drop_symbols(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [value[0], value[1], None]
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [_drop_symbols(each) for each in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: _drop_symbols(each) for key, each in value["dict"].items()}}
    return value
