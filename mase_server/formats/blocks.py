"""Block formats: neighbouring elements share an exponent, an exponent bias or a scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_rounding, check_whole_number
from mase_server.formats.rounding import exponent_of, make_finite, power_of_two, to_float, to_powers, to_steps

#: Elements that are rounded at once; see `_in_pieces`.
_PIECE = 1 << 18


def check_block(format: NumberFormat, block: Any) -> None:
    """Check that a format's block size is a tuple; a single whole number is the size over the last dimension.

    Raises ValueError, which quotes it, for anything but positive whole numbers.
    """
    if type(block) in (int, list):
        block = (block,) if type(block) is int else tuple(block)
        object.__setattr__(format, "block_size", block)
    if type(block) is not tuple or not block or any(type(size) is not int or size < 1 for size in block):
        raise ValueError(f"{format.name}: block_size is {block!r}, expected positive whole numbers, e.g. 32 or (1, 16)")


def round_blockwise(values: Tensor, block: tuple[int, ...], rounded: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Round each block, given its largest magnitude.

    block: sizes over the last dimensions, the last one last; a longer tensor's leading dimensions have blocks of
    one, and a shorter tensor takes the last sizes.  A block at an edge is smaller.  rounded: takes blocks and the
    largest magnitude of each, which broadcasts over them; NaN does not count there, infinities count as the largest
    finite value.
    """
    if values.dim() == 0:
        return round_blockwise(values.reshape(1), block, rounded).reshape(())
    block = block[-values.dim() :]
    while len(block) > 1 and block[0] == 1:
        block = block[1:]
    split, sizes = _split_into_blocks(values, block)
    inner = tuple(range(split.dim() - 2 * len(sizes) + 1, split.dim(), 2))

    def piece(part: Tensor) -> Tensor:
        return rounded(part, make_finite(part, nan=0.0).abs_().amax(dim=inner, keepdim=True))

    whole = _in_pieces(split, piece).reshape(_padded_shape(values, sizes))
    # Padding must not show in the strides: the order in which a product is summed depends on them.
    return whole[tuple(slice(0, size) for size in values.shape)].contiguous()


def _in_pieces(split: Tensor, piece: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to the blocks in pieces that fit into a processor's cache, which is several times faster."""
    per = max(1, _PIECE // max(1, split[:1].numel()))
    with torch._C.DisableTorchFunction():  # modes that record on meta show another device
        is_cpu = split.device.type == "cpu"
    if not is_cpu or torch.compiler.is_compiling() or len(split) <= per:
        return piece(split)
    whole = torch.empty_like(split, memory_format=torch.contiguous_format)
    for first in range(0, len(split), per):
        whole[first : first + per] = piece(split[first : first + per])
    return whole


def _padded_shape(values: Tensor, block: tuple[int, ...]) -> list[int]:
    """The shape, padded to whole blocks."""
    first = values.dim() - len(block)
    return [*values.shape[:first], *(ceil(n / b) * b for n, b in zip(values.shape[first:], block, strict=True))]


def _split_into_blocks(values: Tensor, block: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Split each of the last dimensions into [blocks, size], padded with zeros at the end."""
    shape = _padded_shape(values, block)
    missing = [whole - size for size, whole in zip(values.shape, shape, strict=True)]
    if any(missing):
        values = torch.nn.functional.pad(values, [pad for each in reversed(missing) for pad in (0, each)])
    first = values.dim() - len(block)
    pairs = [pair for whole, size in zip(shape[first:], block, strict=True) for pair in (whole // size, size)]
    # Blocks along the last dimension only become one row, which can be cut into pieces.
    if len(block) == 1:
        return values.reshape(prod(shape[:first]) * pairs[0], pairs[1]), block
    return values.reshape([*shape[:first], *pairs]), block


def share_exponents(numbers: Tensor, largest: Tensor, limits: tuple[int, int], of_zeros: int) -> Tensor:
    """The exponents or biases that blocks share, clamped to `limits`; a block of zeros fits any and takes
    `of_zeros`."""
    return torch.where(largest > 0, numbers.clamp(*limits), torch.full_like(numbers, of_zeros))


def shared_biases(bias_width: int, top: int) -> tuple[int, int]:
    """The lowest and highest signed bias of `bias_width` bits such that code `top` is still an exponent of float32."""
    half = 1 << (bias_width - 1)
    return max(-half, top - 127), half - 1


def shared_bits(bits: int, block: tuple[int, ...]) -> float:
    """Each element's share of the bits that a block stores once."""
    return bits / prod(block)


# Block floating point: one exponent for each block, one mantissa for each element.


@dataclass(frozen=True, slots=True)
class BlockFloat(NumberFormat):
    """+-m / 2**(width - 1) * 2**e, with e shared so that the block's largest magnitude is below 2**e.

    width: bits of an element, sign included, 2..24.  exponent_width: bits of e, 2..8.  block_size: elements that share
    e, over the last dimensions.  exponent_bias: None for 2**(exponent_width - 1) - 1.  rounding: as of
    `FixedPoint`.  Saturates.
    Source: MASE's `block_fp` quantiser (Microsoft floating point).
    """

    width: int
    exponent_width: int = 8
    block_size: tuple[int, ...] = (1, 16)
    exponent_bias: int | None = None
    rounding: str = "nearest"

    name: ClassVar[str] = "block_fp"

    def __post_init__(self) -> None:
        check_whole_number(self, "width", 2, 24)
        check_whole_number(self, "exponent_width", 2, 8)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)
        if self.exponent_bias is not None:
            check_whole_number(self, "exponent_bias", -127 + (1 << self.exponent_width), 125)

    @property
    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest shared exponent."""
        bias = (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias
        return -bias, min((1 << self.exponent_width) - 1 - bias, 128)

    @property
    def bits(self) -> float:
        """The width plus a share of the exponent."""
        return self.width + shared_bits(self.exponent_width, self.block_size)

    @property
    def range(self) -> Range:
        """The range of a block whose largest element has the highest exponent."""
        low, high = self.exponents
        step = 2.0 ** (1 - self.width)
        return Range(-(1.0 - step) * 2.0**high, (1.0 - step) * 2.0**high, step * 2.0**low)

    def nearest(self, values: Tensor) -> Tensor:
        """Round block by block."""
        return round_blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        top = share_exponents(exponent_of(largest) + 1, largest, self.exponents, self.exponents[0])
        steps = power_of_two(top - (self.width - 1), block)
        highest = steps * ((1 << (self.width - 1)) - 1)
        return to_steps(torch.minimum(torch.maximum(block, -highest), highest), steps, self.rounding)


# Block logarithm: signed powers of two with one exponent bias for each block.


@dataclass(frozen=True, slots=True)
class BlockLog(NumberFormat):
    """+-2**(code - bias), where code 0 is zero; blocks share the bias that gives their largest magnitude the highest
    code.

    width: bits of an element, sign included, 3..9.  exponent_bias_width: bits of the shared bias, signed, 2..8;
    biases that do not fit saturate.  block_size: elements that share it, over the last dimensions.  Rounds as `Log`
    does.
    Source: MASE's `block_log` quantiser, which has no zero.
    """

    width: int
    exponent_bias_width: int = 8
    block_size: tuple[int, ...] = (1, 16)

    name: ClassVar[str] = "block_log"

    def __post_init__(self) -> None:
        check_whole_number(self, "width", 3, 9)
        check_whole_number(self, "exponent_bias_width", 2, 8)
        check_block(self, self.block_size)

    @property
    def biases(self) -> tuple[int, int]:
        """The lowest and the highest shared bias."""
        return shared_biases(self.exponent_bias_width, self._top)

    @property
    def _top(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def bits(self) -> float:
        """The width plus a share of the bias."""
        return self.width + shared_bits(self.exponent_bias_width, self.block_size)

    @property
    def range(self) -> Range:
        """The range over blocks with the lowest and with the highest bias."""
        low, high = self.biases
        return Range(-(2.0 ** (self._top - low)), 2.0 ** (self._top - low), 2.0 ** (1 - high))

    def nearest(self, values: Tensor) -> Tensor:
        """Round block by block."""
        return round_blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        # The block's bias follows from its largest magnitude, rounded as every element is.
        top = torch.frexp(to_powers(largest, -(1 << 20), 127)).exponent - 1
        bias = share_exponents(self._top - top, largest, self.biases, self.biases[1])
        return to_powers(block, 1 - bias, self._top - bias)


# Block minifloat: small floating point with one exponent bias for each block.


@dataclass(frozen=True, slots=True)
class BlockMinifloat(NumberFormat):
    """Minifloats with subnormals, without infinity; blocks share the bias that gives their largest value the top
    exponent.

    width, exponent_width: of an element, as in `MinifloatIeee`.  exponent_bias_width: bits of the shared bias,
    signed, 2..8; biases that do not fit saturate.  block_size: elements that share it, over the last dimensions.
    rounding: as of `FixedPoint`.  Source: MASE's `block_minifloat` quantiser, after Fox et al., 2021.
    """

    width: int
    exponent_width: int
    exponent_bias_width: int = 8
    block_size: tuple[int, ...] = (1, 16)
    rounding: str = "nearest"

    name: ClassVar[str] = "block_minifloat"

    def __post_init__(self) -> None:
        check_whole_number(self, "exponent_width", 1, 5)
        check_whole_number(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        check_whole_number(self, "exponent_bias_width", 2, 8)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa, without the hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def biases(self) -> tuple[int, int]:
        """The lowest and the highest shared bias."""
        return shared_biases(self.exponent_bias_width, (1 << self.exponent_width) - 1)

    @property
    def bits(self) -> float:
        """The width plus a share of the bias."""
        return self.width + shared_bits(self.exponent_bias_width, self.block_size)

    @property
    def range(self) -> Range:
        """The range over blocks with the lowest and with the highest bias."""
        low, high = self.biases
        top = (1 << self.exponent_width) - 1 - low
        highest = (2.0 - 2.0**-self.mantissa_width) * 2.0**top
        return Range(-highest, highest, 2.0 ** (1 - high - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """Round block by block."""
        return round_blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        codes = (1 << self.exponent_width) - 1
        bias = share_exponents(codes - exponent_of(largest), largest, self.biases, self.biases[1])
        highest = power_of_two(codes - bias, block) * (2.0 - 2.0**-self.mantissa_width)
        return to_float(block, self.mantissa_width, 1 - bias, highest, self.rounding)
