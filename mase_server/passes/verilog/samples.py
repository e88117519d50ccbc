"""A person's own samples as integers for the inputs of a design."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Design, Operation
from mase_server.hardware.entries import argument_name, is_given
from mase_server.ir.graph import MaseGraph
from mase_server.passes.data.files import read


def own_inputs(path: str, design: Design, arguments: Mapping[str, str]) -> list[Tensor]:
    """Integers for each input, [samples, ...], of a .npz, .npy, .pt or .safetensors file.

    arguments: node of an input -> the name of the forward's argument.  Entries go by either name; where none has the
    name of an input, in the order of the inputs.  Numbers with a point are rounded to the input's format; integers are
    taken as integers of the format.
    ValueError for a file, a shape or a value that does not fit.
    """
    given = _entries(path)
    names = [_named(operation, arguments) for operation in design.inputs]
    by_name = [next((given[name] for name in each if name in given), None) for each in names]
    named = sum(each is not None for each in by_name)
    chosen = by_name if named else list(given.values())
    if len(chosen) != len(names) or named not in (0, len(names)):
        wanted = ", ".join(each[0] for each in names)
        raise ValueError(f"{path} holds {', '.join(given) or 'nothing'}; it needs one array for each of {wanted}")
    found = [
        _integers(values, operation, f"{each[0]} in {path}")
        for values, operation, each in zip(chosen, design.inputs, names, strict=True)
    ]
    if len(counts := {len(each) for each in found}) > 1:
        raise ValueError(f"{path} has {' and '.join(map(str, sorted(counts)))} samples; every input needs as many")
    return found


def arguments_of(graph: MaseGraph) -> dict[str, str]:
    """Node of an input -> the forward's argument, or the key under which it is in one."""
    facts = graph.facts
    return {node.name: argument_name(node) for node in graph.fx_graph.nodes if is_given(node, facts)}


def _entries(path: str) -> dict[str, Any]:
    """The arrays of a file by name; by number, where they have none."""
    try:
        batches = read(path)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("data: ")) from error
    if len(batches) == 1 and isinstance(batches[0], Mapping):
        return dict(batches[0])
    return {str(index): each for index, each in enumerate(batches)}


def _named(operation: Operation, arguments: Mapping[str, str]) -> list[str]:
    """What an input may be called: the forward's argument first."""
    known = [arguments[name] for name in operation.nodes if name in arguments]
    return [*known, operation.name, *operation.nodes]


def _integers(values: Any, operation: Operation, where: str) -> Tensor:
    stream = operation.out
    if not isinstance(values, Tensor) or values.is_complex():
        kind = type(values).__name__ if not isinstance(values, Tensor) else str(values.dtype)
        raise ValueError(f"{where} is {kind}; an array of real numbers is needed")
    if values.shape == stream.shape:
        values = values[None]
    if values.shape[1:] != stream.shape or not len(values):
        raise ValueError(f"{where} is {list(values.shape)}; a batch of samples of {list(stream.shape)} is needed")
    is_index = "below" in operation.options
    if values.is_floating_point() and (why := _no_number(values, is_index)):
        raise ValueError(f"{where} holds {why}")
    if values.is_floating_point() and not is_index:
        return stream.format.encode(values)
    low, high = stream.format.integers
    high = operation.options.get("below", high + 1) - 1
    integers: Tensor = values.long()
    if not (low <= int(integers.min()) and int(integers.max()) <= high):
        worst = int(integers.max()) if int(integers.max()) > high else int(integers.min())
        raise ValueError(f"{where} holds the integer {worst}; {_takes(stream.format, low, high, is_index)}")
    return integers


def _no_number(values: Tensor, is_index: bool) -> str | None:
    """What there is in place of a number that can be rounded, or of an index; None where there is none."""
    wrong = values.isnan() if not is_index else ~values.isfinite() | (values != values.round())
    if not wrong.any():
        return None
    place = wrong.nonzero()[0].tolist()
    what = "NaN" if values[tuple(place)].isnan() else f"{values[tuple(place)]:g}"
    return f"{what} at {place}" + ("; an index is a whole number" if is_index else "; hardware has no such number")


def _takes(form: FixedPoint, low: int, high: int, is_index: bool) -> str:
    if is_index:
        return f"an index is {low} to {high}"
    unit = f"integers are those of {form}, {low} to {high}, each worth {2.0**-form.fraction_width:g}"
    return f"{unit}; numbers with a point are rounded to it"
