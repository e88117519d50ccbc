"""Softmax: `rtl/fixed_softmax.sv`."""

from __future__ import annotations

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import WIDEST_TABLE, divide, look_up, requantise

#: Bits after the point of exponentials: with 14, an 8-bit quotient has no error but its own rounding.
EXP_FRACTION = 14


def exp_table(data: FixedPoint, exp_fraction: int = EXP_FRACTION) -> Tensor:
    """Word d is exp(-d steps of `data`) with `exp_fraction` bits after the point, rounded half to even; int64.

    ValueError: more than 16 bits of input.
    """
    if data.width > WIDEST_TABLE:
        raise ValueError(
            f"a table for {data} has 2**{data.width} words; quantise to {WIDEST_TABLE} bits or fewer first"
        )
    steps = torch.arange(1 << data.width, dtype=torch.float64) * 2.0**-data.fraction_width
    return (torch.exp(-steps) * 2.0**exp_fraction).round().to(torch.int64)


def softmax(
    values: Tensor, data: FixedPoint, out: FixedPoint, exp_fraction: int = EXP_FRACTION, mask: Tensor | None = None
) -> Tensor:
    """Softmax over the last dimension in integers, int64. A table gives the exponential of each value minus the
    maximum.

    Their sum is exact; the quotient is rounded once, half to even, and saturated.
    mask: bool, broadcast to the values; masked values are left out, and a row of only masked values gives zeros.
    """
    largest = (values if mask is None else values.masked_fill(mask, data.integers[0])).amax(-1, keepdim=True)
    powers = look_up((largest - values).clamp_(min=0), exp_table(data, exp_fraction))
    powers = powers if mask is None else powers.masked_fill_(mask, 0)
    quotients = divide(powers << out.fraction_width, powers.sum(-1, keepdim=True).clamp(min=1))
    return requantise(quotients, out.fraction_width, out)
