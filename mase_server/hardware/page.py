"""The README of an emitted folder: its ports, its pace, what each operation takes, and what can be done there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import torch

from mase_server.hardware.design import Design, Operation, Stream
from mase_server.hardware.estimates import Estimates
from mase_server.hardware.kinds.settings import image_order
from mase_server.hardware.wiring import Netlist, Tap
from mase_server.visible import escape_markdown

_TEMPLATES = Path(__file__).parent / "templates"
_FIGURES = ("multipliers", "luts", "memory_bits", "cycles", "latency")


def page(title: str, module: str, design: Design, made: Netlist, told: Estimates) -> str:
    """The text. title: of the model.  module: its top module."""
    totals = told.totals
    costs = "{multipliers:,} multipliers, {luts:,} LUTs of four inputs, {memory_bits:,} bits of memory"
    return Template(template("README.md")).substitute(
        name=escape_markdown(title),
        module=module,
        ports="\n".join(_ports(design, made)),
        costs=costs.format_map(totals),
        pace=_pace(totals),
        operations="\n".join(_operations(design, made, told)),
        missing="".join(_missing(design)),
    )


def describe_losses(accuracy: Mapping[str, Any], weights: str) -> str:
    """The last section of the README: what the formats lose. accuracy: a map of `building.ACCURACY_KEYS`."""
    said = []
    if accuracy["sqnr"] is not None:
        exact = accuracy["sqnr"] == "inf"
        said.append(
            "The outputs equal the model's." if exact else f"The outputs have an SQNR of {accuracy['sqnr']:.1f} dB."
        )
    if accuracy["saturated"] is not None:
        said.append(f"{accuracy['saturated']:.2%} of the rounded values do not fit their format and saturate.")
    if said:
        said.append(f"Measured on {accuracy['inputs']}{f', with {weights}' if weights else ''}.")
    if accuracy["calibrated"]:
        said.append(f"The formats are calibrated on {accuracy['calibrated']}.")
    if accuracy["problem"]:
        said.append(f"The loss is not known: {accuracy['problem']}.")
    return f"\n## What it loses\n\n{escape_markdown(' '.join(said))}\n" if said else ""


def template(name: str) -> str:
    """A text of the folder `templates`."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _pace(totals: Mapping[str, object]) -> str:
    interval, latency = totals["interval"], totals["latency"]
    known = f", and comes out {latency} cycles after its first beat" if latency else ""
    return f"A sample takes {interval} cycles once the pipeline is full{known}"


def _ports(design: Design, made: Netlist) -> Iterator[str]:
    outputs = [design.operations[name] for name in design.outputs]
    for kind, operations, taps in (("in", design.inputs, made.inputs), ("out", outputs, made.outputs)):
        for index, (operation, tap) in enumerate(zip(operations, taps, strict=True)):
            yield _row(f"`data_{kind}_{index}`", _is(kind, operation, design), *_stream(operation.out, tap))


def _is(kind: str, operation: Operation, design: Design) -> str:
    """What a port is: an input or a result of the model, or the place of what is missing."""
    if operation.name not in design.cut:
        return operation.name
    return f"what {operation.nodes[0]} would give" if kind == "in" else f"{operation.name}, for what is missing"


def _stream(stream: Stream, tap: Tap) -> tuple[str, str, str, str]:
    """Shape and order, format, what a beat is, beats of a sample."""
    shape = f"{'x'.join(map(str, stream.shape))}, {_order(stream)}" if stream.shape else "one number"
    beat = f"{tap.lanes} element{'s' * (tap.lanes > 1)} of {tap.bits} bits"
    return shape, f"`{stream.format}`", beat, str(stream.size // tap.lanes)


def _order(stream: Stream) -> str:
    """In which order the elements of a sample flow, in words."""
    if stream.order is None:
        return "row-major"
    pixels = len(stream.shape) in (2, 3) and torch.equal(stream.order, image_order(stream.shape))
    return "rows, columns, channels" if pixels else "in the order of `sim/streams.json`"


def _operations(design: Design, made: Netlist, told: Estimates) -> Iterator[str]:
    modules: dict[str, list[str]] = {}
    for instance in made.instances:
        modules.setdefault(instance.operation, []).append(instance.module)
    for name, operation in design.operations.items():
        used = ", ".join(f"`{module}`" for module in dict.fromkeys(modules.get(name, ())))
        figures = (_figure(key, told.operations[name][key]) for key in _FIGURES)
        yield _row(name, used, f"`{operation.out.format}`", *figures)


def _figure(key: str, value: int) -> str:
    """Nothing for a time that is not known, or that there is not."""
    return str(value) if value or key not in ("cycles", "latency") else ""


def _missing(design: Design) -> Iterable[str]:
    if not design.unsupported:
        return []
    rows: Sequence[str] = [
        f"- {escape_markdown(f'{each.node} ({each.operator}): {each.why}')}\n" for each in design.unsupported
    ]
    return ["\n**Not the whole model.** Without hardware, and so cut off:\n\n", *rows]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
