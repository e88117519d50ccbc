"""Looking up the results of a layer, as a function that graphs can call."""

from __future__ import annotations

from torch import Tensor, arange

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint


def fixed_point(format: str) -> FixedPoint:
    """The fixed-point format that a text names. ValueError for any other format."""
    found = parse(format)
    if not isinstance(found, FixedPoint):
        raise ValueError(f"{format!r} is no fixed-point format; an example: fixed(3,1)")
    return found


def format_values(format: str) -> list[float]:
    """Every value of a fixed-point format, the lowest first."""
    fixed = fixed_point(format)
    lowest, highest = fixed.integers
    return [integer * 2.0**-fixed.fraction_width for integer in range(lowest, highest + 1)]


def look_up(values: Tensor, inputs: Tensor, table: Tensor, format: str) -> Tensor:
    """The result of each neuron for the inputs that it reads.

    values: rounded to the fixed-point format, inputs last.  inputs: for each neuron, the indices of the inputs that
    it reads, [neurons, reads].  table: for each neuron its result for every combination, the first input most
    significant, [neurons, codes ** reads].  The result has the shape of values, but with neurons last. It has no
    gradient.
    """
    fixed = fixed_point(format)
    lowest, highest = fixed.integers
    codes = (values.detach() * 2.0**fixed.fraction_width).round().long() - lowest
    count = highest - lowest + 1
    address = codes.new_zeros((*values.shape[:-1], inputs.shape[0]))
    for read in inputs.unbind(-1):
        address = address * count + codes[..., read]
    return table[arange(table.shape[0], device=table.device), address].to(values.dtype)
