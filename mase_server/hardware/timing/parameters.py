"""The parameters of an instance as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mase_server.hardware.wiring import Instance, Wide

Given = Mapping[str, int]


def given(instance: Instance) -> Given:
    """All parameters but the names of files."""
    numbers: dict[str, int] = {}
    for name, value in instance.parameters.items():
        if isinstance(value, Wide):
            numbers[name] = value.value
        elif isinstance(value, int):
            numbers[name] = int(value)
    return numbers


def clog2(number: int) -> int:
    """The bits that count up to a number, as $clog2."""
    return (number - 1).bit_length() if number > 1 else 0


@dataclass(frozen=True, slots=True)
class NormWidths:
    """Bits inside of `fixed_norm`, as it works them out."""

    centred: int
    total: int
    root: int
    quotient: int

    @classmethod
    def of(cls, given: Given) -> NormWidths:
        """Of an instance."""
        size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
        bits = clog2(size)
        centred = given["DATA_IN_0_PRECISION_0"] + (bits + 1 if given["MEAN"] else 0)
        summed = 2 * centred + clog2(size // lanes) + clog2(lanes)
        total = max(summed, clog2(given["EPSILON"] + 1)) + 1
        root = (total + 1) // 2 + given["ROOT_FRACTION"]
        return cls(centred, total, root, (bits + 1) // 2 + 2 + given["NORM_FRACTION"])
