"""Blocks: neighbouring elements that share an exponent or a scale."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat
from mase_server.formats.rounding import finite

#: Elements of a piece.
_PIECE = 1 << 18


def check_block(format: NumberFormat, block: Any) -> None:
    """See that a format's block size is a tuple; one whole number is that of the last dimension.

    ValueError, quoting it, for anything but positive whole numbers.
    """
    if type(block) in (int, list):
        block = (block,) if type(block) is int else tuple(block)
        object.__setattr__(format, "block_size", block)
    if type(block) is not tuple or not block or any(type(size) is not int or size < 1 for size in block):
        raise ValueError(f"{format.name}: block_size is {block!r}, expected positive whole numbers, e.g. 32 or (1, 16)")


def blockwise(values: Tensor, block: tuple[int, ...], rounded: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Round each block knowing its largest magnitude.

    block: sizes over the last dimensions, the last one last; leading ones of a longer tensor count one by one, and a
    shorter tensor takes the last sizes.  A block at an edge is smaller.  rounded: takes blocks and the largest
    magnitude of each, which broadcasts over them; NaN is left out of it, infinities count as the largest finite value.
    """
    if values.dim() == 0:
        return blockwise(values.reshape(1), block, rounded).reshape(())
    block = block[-values.dim() :]
    while len(block) > 1 and block[0] == 1:
        block = block[1:]
    split, sizes = _split(values, block)
    inner = tuple(range(split.dim() - 2 * len(sizes) + 1, split.dim(), 2))

    def piece(part: Tensor) -> Tensor:
        return rounded(part, finite(part, nan=0.0).abs_().amax(dim=inner, keepdim=True))

    whole = _in_pieces(split, piece).reshape(_padded(values, sizes))
    # What depends on strides, such as the order in which a product is summed, must not depend on what was padded.
    return whole[tuple(slice(0, size) for size in values.shape)].contiguous()


def _in_pieces(split: Tensor, piece: Callable[[Tensor], Tensor]) -> Tensor:
    """What a function of blocks gives, computed in pieces that stay in a processor's cache, which is several times
    faster."""
    per = max(1, _PIECE // max(1, split[:1].numel()))
    with torch._C.DisableTorchFunction():  # modes that record on meta show another device
        is_cpu = split.device.type == "cpu"
    if not is_cpu or torch.compiler.is_compiling() or len(split) <= per:
        return piece(split)
    whole = torch.empty_like(split, memory_format=torch.contiguous_format)
    for first in range(0, len(split), per):
        whole[first : first + per] = piece(split[first : first + per])
    return whole


def _padded(values: Tensor, block: tuple[int, ...]) -> list[int]:
    """The shape in whole blocks."""
    first = values.dim() - len(block)
    return [*values.shape[:first], *(ceil(n / b) * b for n, b in zip(values.shape[first:], block, strict=True))]


def _split(values: Tensor, block: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Each of the last dimensions as [blocks, size], filled with zeros at the end."""
    shape = _padded(values, block)
    missing = [whole - size for size, whole in zip(values.shape, shape, strict=True)]
    if any(missing):
        values = torch.nn.functional.pad(values, [pad for each in reversed(missing) for pad in (0, each)])
    first = values.dim() - len(block)
    pairs = [pair for whole, size in zip(shape[first:], block, strict=True) for pair in (whole // size, size)]
    # Blocks of the last dimension alone need no other: all in one row, so that they can be cut into pieces.
    if len(block) == 1:
        return values.reshape(prod(shape[:first]) * pairs[0], pairs[1]), block
    return values.reshape([*shape[:first], *pairs]), block


def shared(numbers: Tensor, largest: Tensor, limits: tuple[int, int], of_zeros: int) -> Tensor:
    """The exponents or biases that blocks share, within limits; a block of zeros, which has any, takes `of_zeros`."""
    return torch.where(largest > 0, numbers.clamp(*limits), torch.full_like(numbers, of_zeros))


def shared_biases(bias_width: int, top: int) -> tuple[int, int]:
    """The lowest and the highest bias of so many bits, signed, with which code `top` stays an exponent of float32."""
    half = 1 << (bias_width - 1)
    return max(-half, top - 127), half - 1


def shared_bits(bits: int, block: tuple[int, ...]) -> float:
    """An element's share of the bits that a whole block has once."""
    return bits / prod(block)
