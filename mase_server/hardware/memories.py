"""Memory files: integers packed into words, element 0 in the low bits, one hexadecimal word on each line.

And the image of a memory outside: the same words, packed into beats of its port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import torch
from torch import Tensor
from torch.nn import functional

from mase_server.hardware.design import count_beats

_DIGITS = torch.tensor(list(b"0123456789abcdef"), dtype=torch.uint8)
_NEW_LINE = ord("\n")
#: Elements that are written at once: each temporarily takes a few bytes for each of its bits.
_AT_ONCE = 1 << 19


@dataclass(frozen=True, slots=True, eq=False)
class Words(Sequence[int]):
    """The words of a memory, which are made when they are first read.

    length: the number of words.  width: bits of an element, up to 64.  make: returns the elements, integers of
    [words, elements].
    """

    length: int
    width: int
    make: Callable[[], Tensor]

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        rows = self.make()[index]
        return pack_rows(rows, self.width) if isinstance(index, slice) else pack_rows(rows[None], self.width)[0]

    def __iter__(self) -> Iterator[int]:
        return iter(pack_rows(self.make(), self.width))

    def text(self) -> str:
        """A file for $readmemh."""
        return _rows_to_hexadecimal(self.make(), self.width)


def words_of_weight(weight: Tensor, width: int, par_in: int, par_out: int) -> Words:
    """The words of rtl/fixed_linear.sv for a weight of [out, in] integers of `width` bits.

    Word o * (in / par_in) + i has weight[o * par_out + b, i * par_in + a] at element b * par_in + a.
    """
    features_out, features_in = weight.shape
    blocks = weight.reshape(features_out // par_out, par_out, features_in // par_in, par_in).permute(0, 2, 1, 3)
    return Words(weight.numel() // (par_in * par_out), width, lambda: blocks.reshape(-1, par_out * par_in))


def align_rows(weight: Tensor, lanes: int) -> tuple[Tensor, Tensor, int]:
    """Integers [out, in] as mantissas of the fewest bits times powers of two, which `lanes` neighbours share: the
    mantissas, the exponents [out, in / lanes], and the bits of a mantissa."""
    groups = weight.reshape(len(weight), -1, lanes)
    lowest = torch.where(groups == 0, 1 << 62, groups & -groups).amin(-1)
    bits = torch.frexp((groups ^ (groups >> 63)).amax(-1).double()).exponent + 1
    width = max(2, int((bits - torch.frexp(lowest.double()).exponent + 1).max()))
    exponents = (bits - width).clamp(min=0).long()
    return (groups >> exponents[..., None]).reshape(weight.shape), exponents, width


def words_of_aligned(mantissas: Tensor, exponents: Tensor, widths: tuple[int, int], lanes: tuple[int, int]) -> Words:
    """The words of rtl/fixed_linear.sv with exponents: for each row of a block its mantissas, and the exponent above.

    widths: bits of a mantissa and of an exponent.  lanes: elements and rows of a word.
    """
    (width, above), (par_in, par_out) = widths, lanes

    def make() -> Tensor:
        rows = words_of_weight(mantissas, width, par_in, par_out).make().reshape(-1, par_out, par_in, 1)
        own = words_of_weight(exponents, above, 1, par_out).make().reshape(-1, par_out, 1)
        bits = (rows >> torch.arange(width) & 1).flatten(2)
        return torch.cat([bits, own >> torch.arange(above) & 1], -1).flatten(1)

    return Words(mantissas.numel() // (par_in * par_out), 1, make)


def words_of_bias(bias: Tensor, width: int, par_out: int) -> Words:
    """One word for each beat of outputs."""
    return words_of(bias.reshape(-1, par_out), width)


def words_of(rows: Tensor, width: int) -> Words:
    """The words of [words, elements] integers."""
    return Words(len(rows), width, lambda: rows)


def pack_rows(rows: Tensor, width: int) -> list[int]:
    """Each row of [words, elements] integers as one number, two's complement, element 0 lowest."""
    text = _rows_to_hexadecimal(rows, width)
    return [int(line, 16) for line in text.splitlines()]


def words_to_hexadecimal(words: Sequence[int], width: int) -> str:
    """A file for $readmemh."""
    if isinstance(words, Words):
        return words.text()
    digits = (width + 3) // 4
    return "".join(f"{word:0{digits}x}\n" for word in words)


# The image of an outside memory: a region for each layer, each at the beginning of a page.

_PAGE = 4096


class Region(Protocol):
    """Words of `width` bits each."""

    @property
    def width(self) -> int:
        """Bits of a word."""
        ...

    @property
    def words(self) -> Sequence[int]:
        """All words."""
        ...


def place_regions(regions: Iterable[Region], port: int) -> list[tuple[int, int]]:
    """The first byte of each region, and its beats. port: bits of a beat."""
    found, end = [], 0
    for each in regions:
        beats = count_beats(len(each.words), each.width, port)
        found.append((end, beats))
        end += -(-beats * port // 8 // _PAGE) * _PAGE
    return found


def make_image(regions: Sequence[Region], port: int) -> bytes:
    """The bytes of all regions, and zeros up to each: little-endian, the first word of a beat lowest."""
    image = bytearray()
    for each, (offset, _) in zip(regions, place_regions(regions, port), strict=True):
        image += bytes(offset - len(image)) + _words_to_beats(each, port)
    return bytes(image)


def _words_to_beats(region: Region, port: int) -> bytes:
    assert isinstance(region.words, Words)
    rows, packed = region.words.make(), max(1, port // region.width)
    beats = functional.pad(rows, (0, 0, 0, -len(rows) % packed)).reshape(-1, packed * rows.shape[1])
    digits = -(-packed * region.width // port) * port // 4
    lines = _rows_to_hexadecimal(beats, region.words.width).splitlines()
    return b"".join(bytes.fromhex(line.rjust(digits, "0"))[::-1] for line in lines)


def beats_to_hexadecimal(image: bytes, port: int) -> str:
    """An image for $readmemh, a beat on each line."""
    size = port // 8
    return "".join(image[at : at + size][::-1].hex() + "\n" for at in range(0, len(image), size))


def _rows_to_hexadecimal(rows: Tensor, width: int) -> str:
    """Hexadecimal words, with as many digits as their bits need; made by tensor operations, because there are
    millions."""
    if not rows.numel():
        return ""
    count = max(1, _AT_ONCE // rows.shape[1])
    return "".join(_piece_to_hexadecimal(rows[start : start + count], width) for start in range(0, len(rows), count))


def _piece_to_hexadecimal(rows: Tensor, width: int) -> str:
    count = rows.shape[0]
    nibbles = _split_into_digits(rows.to(torch.int64), width)
    lines = torch.full((count, nibbles.shape[1] + 1), _NEW_LINE, dtype=torch.uint8)
    lines[:, :-1] = _DIGITS[nibbles.flip(1).int()]
    held = bytearray(lines.numel())
    torch.frombuffer(held, dtype=torch.uint8).copy_(lines.flatten())
    return held.decode("ascii")


def _split_into_digits(rows: Tensor, width: int) -> Tensor:
    """[words, digits], the lowest first."""
    step = 4 if width % 4 == 0 else 1
    parts = (rows[..., None] >> torch.arange(0, width, step)) & ((1 << step) - 1)
    digits = parts.to(torch.uint8).flatten(1)
    if step == 4:
        return digits
    digits = functional.pad(digits, (0, -digits.shape[1] % 4))
    return (digits.reshape(len(digits), -1, 4) * torch.tensor([1, 2, 4, 8], dtype=torch.uint8)).sum(-1)
