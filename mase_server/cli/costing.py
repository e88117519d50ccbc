"""`mase-server costs`: the memory and the time of inference or training on a device."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mase_server.cli.checking import read_revision
from mase_server.cli.reports import apply_and_ask
from mase_server.cli.session import Refused, Subject, ask_daemon
from mase_server.cli.steps import (
    DaemonOption,
    FileArgument,
    InputOption,
    ModelOption,
    PythonOption,
    UsageError,
    parse_steps,
)
from mase_server.cli.terminal import Line, from_here, print_lines, say, say_json
from mase_server.lsp.run_costs import describe_comparison, in_gb
from mase_server.lsp.wording import describe_fit, format_seconds, format_with_prefix
from mase_server.protocol.answers import CostComparison, DeviceCosts, RunPlace
from mase_server.protocol.arguments import Step
from mase_server.visible import align_table_columns

#: The method that tells costs.
COSTS = "mase/deviceCosts"
_COMPARE = "mase/compareCosts"
#: Rows of each table for people; the other formats have all.
_ROWS = 12
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


class Format(StrEnum):
    """The output format of `costs`."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Dtype(StrEnum):
    """The element type of parameters and inputs; amp: their own, under an autocast to bf16."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP64 = "fp64"
    AMP = "amp"


def parse_memory(text: str) -> int:
    """Bytes of a text such as 24GB (24 * 10^9) or 512MiB; BadParameter."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", text.lower())
    if found is None or (found[2] or "") not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no size; write it as 24GB or 512MiB")
    return int(float(found[1]) * _UNITS[found[2]])


def costs(
    file: FileArgument,
    device: Annotated[str, typer.Option(help="A device, such as H100; CPU is this machine, as measured.")] = "CPU",
    train: Annotated[
        str, typer.Option(metavar="OPTIMIZER", help="A step of training: sgd, adamw, ..., or auto for the file's own.")
    ] = "",
    dtype: Annotated[Dtype | None, typer.Option(help="Of parameters and inputs; amp: an autocast to bf16.")] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Search the largest sizes that fit into the memory.")] = False,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Train with the model's blocks computed again in the backward.")
    ] = False,
    parallel: Annotated[
        str, typer.Option(metavar="HOW", help="On several devices, for one of them: ddp=8, fsdp=512, tp=8,fsdp=64.")
    ] = "",
    memory: Annotated[str | None, typer.Option(help="Instead of the device's, such as 24GB.")] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="WITH",
            help="Tell the difference from a revision of git, inputs ('x: f32[8,4]') or a named set (set:small), or to "
            "passes ('quantize default=fixed(8,4)').",
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="For people, or programs.")] = Format.TABLE,
    model: ModelOption = None,
    inputs: InputOption = None,
    python: PythonOption = None,
    daemon: DaemonOption = True,
) -> None:
    """Tell what a model needs on a device: its peak memory and who holds it, the time, and the sizes that fit.

    The model runs on tensors without data, so it needs neither the device nor the memory. Times are estimates.

    Examples:

        mase-server costs net.py --device H100

        mase-server costs net.py --device L4 --train adamw --dtype bf16 --fit

        mase-server costs net.py --device H100 --train adamw --dtype bf16 --parallel fsdp=64

        mase-server costs net.py --train auto --format json | jq '.models[].at_peak[:5]'

        mase-server costs net.py --device L4 --compare HEAD

    Exit status: 0 told, 1 it cannot be told, 2 wrong usage.
    """
    given: dict[str, object] = {
        "device": device, "train": train, "dtype": dtype.value if dtype else "", "fit": fit, "checkpoint": checkpoint,
        "parallel": parallel,
    }  # fmt: skip
    if memory is not None:
        given["memory"] = parse_memory(memory)
    sides, steps = ({}, []) if compare is None else _read_sides(file, compare)
    if sides:
        del given["fit"]
        given = {key: value for key, value in given.items() if key != "memory"} | sides
    method = _COMPARE if sides else COSTS
    try:
        subject = Subject(file, tuple(inputs or ()), python, daemon and not steps)
        asked = ask_daemon(subject, lambda path: apply_and_ask(method, path, model, given, steps))
    except Refused as error:
        why = f"{compare!r} is no inputs and no revision that git knows, and as passes: " if steps else ""
        say(f"error: {why}{error}", error=True)
        raise typer.Exit(error.status) from None
    found = [told for _, told in asked]
    if output is Format.JSON:
        say_json({"models": found})
    elif output is Format.CSV:
        if sides:
            _write_changes(found)
        else:
            _write_csv(found)
    else:
        for told in found:
            if sides:
                say(describe_comparison(told, from_here).rstrip())
            else:
                print_lines(_list_lines(told))
    sys.stdout.flush()


def _read_sides(file: Path, compare: str) -> tuple[dict[str, object], list[Step]]:
    """The two sides of a comparison as parameters, and the passes to apply first; BadParameter."""
    if compare.startswith("set:"):
        return {"before": {"set": compare.removeprefix("set:")}, "after": {}}, []
    if re.match(r"\w+\s*:", compare):
        return {"before": {"inputs": compare}, "after": {}}, []
    if (text := read_revision(file, compare)) is not None:
        return {"before": {"text": text.decode()}, "after": {}}, []
    try:
        return {"before": {}, "after": {"passes": True}}, parse_steps(shlex.split(compare))
    except (UsageError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--compare") from error


def _write_changes(found: list[CostComparison]) -> None:
    writer = csv.writer(sys.stdout)
    heads = (f"{name}_{side}" for name in ("seconds", "moved", "held") for side in ("before", "after"))
    writer.writerow(("model", "file", "line", "before_line", "modules", *heads))
    for told in found:
        for row in told["lines"]:
            pairs = [*row["seconds"], *row["moved"], *row["held"]]
            writer.writerow(
                (told["model"], row["file"], row["line"], row["before_line"], " ".join(row["modules"]), *pairs)
            )


def _write_csv(found: list[DeviceCosts]) -> None:
    writer = csv.writer(sys.stdout)
    columns = ("phase", "operator", "dtype", "file", "line", "module", "calls", "flops", "reads_bytes", "writes_bytes",
               "bound", "seconds")  # fmt: skip
    writer.writerow(("model", *columns))
    for told in found:
        writer.writerows((told["model"], *(dict(row)[key] for key in columns)) for row in told["rows"])


def _list_lines(told: DeviceCosts) -> Iterator[Line]:
    sizes = ", ".join(f"{name} = {size}" for name, size in told["sizes"].items())
    what = f"training with {told['optimizer']}, loss: {told['loss']}" if told["optimizer"] else "inference"
    if told["checkpointed"] and not told["fits_checkpointed"]:
        what += f", {told['checkpointed']} checkpointed"
    where = f"{told['device']['title']}, one of {told['parallel']}" if told["parallel"] else told["device"]["title"]
    yield Line(((f"{told['model']}: {what}{f', at {sizes}' if sizes else ''}, on {where}", "bold"),))
    kinds = sorted(told["kinds"].items(), key=lambda pair: -pair[1])
    parts = ", ".join(f"{kind} {in_gb(size)}" for kind, size in kinds)
    yield Line(((f"  peak {in_gb(told['peak_bytes'])}: {parts}", ""),))
    time = f"{format_seconds(told['seconds'])} (estimate), mostly {told['bound']}-bound"
    yield Line(((f"  {time}, {format_with_prefix(told['flops'], 'FLOPs')} in products", ""),))
    if told["parallel"]:
        took = told["communication_seconds"]
        more = f"sends {in_gb(told['sent_bytes'])} in rings" if told["sent_bytes"] else "sends parts of tensors"
        yield Line(((f"  {more}: {format_seconds(took) if took else 'the link has no rate'} (estimate)", ""),))
    if told["token_bytes"]:
        yield Line(((f"  cache {in_gb(told['token_bytes'])} for each token of a sequence", ""),))
    if told["fits"]:
        yield Line(((f"  {describe_fit(told)}", ""),))
    rows = [[in_gb(h["bytes"]), h["kind"], _place(h), h["module"]] for h in told["at_peak"][:_ROWS]]
    yield from _list_table("held at the peak", ("bytes", "kind", "line", "module"), rows)
    slowest = sorted(told["rows"], key=lambda row: -row["seconds"])[:_ROWS]
    times = [
        [format_seconds(row["seconds"]), row["bound"], row["phase"], row["operator"], _place(row), row["module"]]
        for row in slowest
    ]
    yield from _list_table("most of the time", ("estimate", "bound", "phase", "operator", "line", "module"), times)


def _list_table(title: str, head: Sequence[str], rows: list[list[str]]) -> Iterator[Line]:
    yield Line(((f"\n  {title}", "bold"),))
    yield from (Line(((f"    {line}", ""),)) for line in align_table_columns(head, rows, {0}))


def _place(place: RunPlace) -> str:
    return f"{from_here(place['file'])}:{place['line']}" if place["file"] else ""
