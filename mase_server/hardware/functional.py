"""The arithmetic of components as functions that graphs can call; formats are texts, so that checkpoints can hold
them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware import arithmetic
from mase_server.hardware.arithmetic import Affine, Floats, Norm, Recurrent, Windows

#: The formats of values, weight, bias and result.
Formats = tuple[str, str, str | None, str]
#: The same, where weight and bias may be missing.
MaybeAffine = tuple[str, str | None, str | None, str]
#: The formats of two operands.
Both = tuple[str, str]
#: Kernel, stride, padding and dilation, rows before columns.
Places = tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]


def integer_linear(values: Tensor, weight: Tensor, bias: Tensor | None, formats: Formats, relu: bool = False) -> Tensor:
    """activation(values @ weight.T + bias) in integers; formats: of values, weight, bias and result."""
    return arithmetic.linear(values, weight, bias, _affine_formats(formats, relu))


def integer_conv2d(
    values: Tensor, weight: Tensor, bias: Tensor | None, formats: Formats, places: Places, groups: int, relu: bool
) -> Tensor:
    """activation(conv2d(values, weight) + bias) in integers, [N, C, H, W]; places: the windows."""
    return arithmetic.conv2d(values, weight, bias, _affine_formats(formats, relu), Windows(*places), groups)


def integer_max_pool2d(values: Tensor, places: Places) -> Tensor:
    """The largest integer of each window."""
    return arithmetic.max_pool2d(values, Windows(*places))


def integer_average_pool2d(values: Tensor, before: str, after: str, places: Places) -> Tensor:
    """The mean of each window, counting zeros at the border, rounded once."""
    return arithmetic.average_pool2d(values, parse_fixed(before), parse_fixed(after), Windows(*places))


def _affine_formats(formats: Formats, relu: bool) -> Affine:
    data, of_weight, of_bias, out = formats
    bias = None if of_bias is None else parse_fixed(of_bias)
    return Affine(parse_fixed(data), parse_fixed(of_weight), bias, parse_fixed(out), relu=relu)


def integer_requantise(values: Tensor, before: str, after: str, relu: bool = False) -> Tensor:
    """Convert integers from one format to another."""
    return arithmetic.requantise(values, parse_fixed(before).fraction_width, parse_fixed(after), relu=relu)


def integer_add(
    first: Tensor, second: Tensor, before: Both, after: str, relu: bool = False, subtract: bool = False
) -> Tensor:
    """The sum of integers in two formats, or their difference, rounded once."""
    formats = parse_fixed(before[0]), parse_fixed(before[1])
    return arithmetic.add(first, second, formats, parse_fixed(after), subtract=subtract, relu=relu)


def integer_multiply(first: Tensor, second: Tensor, before: Both, after: str, relu: bool = False) -> Tensor:
    """The product of integers in two formats, rounded once."""
    return arithmetic.multiply(
        first, second, (parse_fixed(before[0]), parse_fixed(before[1])), parse_fixed(after), relu=relu
    )


def integer_matmul(first: Tensor, second: Tensor, formats: tuple[str, str, str], relu: bool = False) -> Tensor:
    """first @ second in integers; formats: of both operands and the result."""
    data, other, out = map(parse_fixed, formats)
    return arithmetic.matmul(first, second.mT, Affine(data, other, None, out, relu=relu))


def integer_softmax(values: Tensor, before: str, after: str, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension in integers; mask: 1 for values that are left out."""
    left_out = None if mask is None else mask.bool()
    return arithmetic.softmax(values, parse_fixed(before), parse_fixed(after), mask=left_out)


def integer_norm(
    values: Tensor, weight: Tensor | None, bias: Tensor | None, formats: MaybeAffine, centred: bool, epsilon: float
) -> Tensor:
    """Layer norm, or without centring RMS norm, over the last dimension in integers."""
    data, of_weight, of_bias, out = (None if each is None else parse_fixed(each) for each in formats)
    assert data is not None
    assert out is not None
    norm = Norm.fitting(values.shape[-1], data, out, of_weight, of_bias, centred, epsilon)
    return arithmetic.norm(values, weight, bias, norm)


def integer_blocks(values: Tensor, mantissa_width: int, block: int) -> Tensor:
    """Integers whose blocks share an exponent."""
    return arithmetic.round_blocks(values, mantissa_width, block)


def integer_floats(values: Tensor, numbers: tuple[int, int, int, int, int], block: int) -> Tensor:
    """Integers rounded to floating point. numbers: those of `Floats`, and the lowest bits that results leave out."""
    mantissa_width, low, high, span, dropped = numbers
    return arithmetic.round_floats(values, Floats(mantissa_width, (low, high), span), block) >> dropped


def integer_recurrent(
    parts: Tensor, weight: Tensor, bias: Tensor | None, formats: tuple[int, str, str | None], is_lstm: bool
) -> Tensor:
    """The results of a GRU or an LSTM in integers; formats: bits of a last result, and those of weight and bias."""
    width, of_weight, of_bias = formats
    bias_format = None if of_bias is None else parse_fixed(of_bias)
    return arithmetic.recurrent(
        parts, weight, bias, Recurrent.fitting(is_lstm, width, parse_fixed(of_weight), bias_format)
    )


def integer_reduce(
    values: Tensor, function: str, dims: tuple[int, ...], shape: tuple[int, ...], formats: Both
) -> Tensor:
    """The "mean", "sum", "max" or "argmax" over dimensions of samples, in the given shape."""
    before, after = map(parse_fixed, formats)
    rows = values.movedim([dim + 1 for dim in dims], list(range(-len(dims), 0))).flatten(-len(dims))
    found = arithmetic.reduced(rows, function, before, after)
    return found.reshape(values.shape[0], *shape)


def integer_top_k(values: Tensor, count: int, largest: bool, index: bool) -> Tensor:
    """The largest or smallest along the last dimension, in order, or their indices."""
    found, places = arithmetic.top_k(values, count, largest)
    return places if index else found


def repeated(constant: Tensor, batch: int) -> Tensor:
    """Repeat a sample for each of a batch."""
    return constant.expand(batch, *constant.shape)


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Join samples along a dimension."""
    return torch.cat(list(parts), dim)


def stacked(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Stack samples along a new dimension."""
    return torch.stack(list(parts), dim)


def rows_of(indices: Tensor, weight: Tensor) -> Tensor:
    """The row of a table for each index."""
    return weight[indices]


def move(values: Tensor, places: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rearrange the elements of samples: places has the old row-major index of each element."""
    return values.reshape(values.shape[0], -1)[:, places].reshape(values.shape[0], *shape)


def encode(values: Tensor, format: str) -> Tensor:
    """The integers of the nearest values in a format, int64."""
    return parse_fixed(format).encode(values)


def decode(integers: Tensor, format: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """The values of integers."""
    return parse_fixed(format).decode(integers, dtype)


def parse_fixed(text: str) -> FixedPoint:
    """The fixed-point format of a text; ValueError for any other format."""
    format = parse(text)
    if not isinstance(format, FixedPoint):
        raise ValueError(f"{text} is not a fixed-point format")
    return format
