"""Memory files: integers packed into words, element 0 in the low bits, one hexadecimal word a line."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def words_of_weight(weight: Tensor, width: int, par_in: int, par_out: int) -> list[int]:
    """The words of rtl/fixed_linear.sv for a weight of [out, in] integers of `width` bits.

    Word o * (in / par_in) + i has weight[o * par_out + b, i * par_in + a] at element b * par_in + a.
    """
    features_out, features_in = weight.shape
    blocks = weight.reshape(features_out // par_out, par_out, features_in // par_in, par_in).permute(0, 2, 1, 3)
    return packed(blocks.reshape(-1, par_out * par_in), width)


def words_of_bias(bias: Tensor, width: int, par_out: int) -> list[int]:
    """One word for each beat of outputs."""
    return packed(bias.reshape(-1, par_out), width)


def packed(rows: Tensor, width: int) -> list[int]:
    """Each row of [words, elements] integers as one number, two's complement, element 0 lowest."""
    mask = (1 << width) - 1
    shifts = [width * index for index in range(rows.shape[1])]
    return [sum((value & mask) << shift for value, shift in zip(row, shifts, strict=True)) for row in rows.tolist()]


def unpacked(words: Sequence[int], width: int, lanes: int) -> list[list[int]]:
    """The inverse of `packed`: signed integers by word."""
    mask, half = (1 << width) - 1, 1 << (width - 1)
    found = ([(word >> (width * index)) & mask for index in range(lanes)] for word in words)
    return [[value - (mask + 1) if value & half else value for value in row] for row in found]


def hexadecimal(words: Sequence[int], width: int) -> str:
    """A file for $readmemh."""
    digits = (width + 3) // 4
    return "".join(f"{word:0{digits}x}\n" for word in words)
