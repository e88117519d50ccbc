"""Convolution and pooling in integers, against torch in floating point, exact fractions, and tables worked by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, Windows, average_pool2d, conv2d, max_pool2d, mean

DATA, WEIGHT, BIAS, OUT = FixedPoint(8, 4), FixedPoint(8, 6), FixedPoint(16, 10), FixedPoint(9, 3)
SIZES = st.integers(1, 4)


@st.composite
def windows(draw):
    kernel = draw(SIZES), draw(SIZES)
    padding = draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2))
    return Windows(kernel, (draw(SIZES), draw(SIZES)), padding)


@st.composite
def dilated(draw):
    return replace(draw(windows()), dilation=(draw(st.integers(1, 3)), draw(st.integers(1, 3))))


def uniform(format, *shape):
    low, high = format.integers
    return torch.randint(low, high + 1, shape)


@given(dilated(), st.integers(1, 3), SIZES, SIZES, st.booleans(), st.booleans())
def test_conv2d_is_torch_then_the_number_format(place, groups, channels, filters, with_bias, relu):
    values = uniform(DATA, 2, groups * channels, 10, 11)
    weight = uniform(WEIGHT, groups * filters, channels, *place.kernel)
    bias = uniform(BIAS, groups * filters) if with_bias else None
    formats = Affine(DATA, WEIGHT, BIAS if with_bias else None, OUT, relu=relu)
    floats = functional.conv2d(
        DATA.decode(values),
        WEIGHT.decode(weight),
        None if bias is None else BIAS.decode(bias),
        place.stride,
        place.padding,
        place.dilation,
        groups,
    )
    expected = OUT.encode(floats.relu() if relu else floats)
    assert torch.equal(conv2d(values, weight, bias, formats, place, groups), expected)


def test_sums_that_doubles_do_not_hold_are_exact_too():
    wide = FixedPoint(28, 0)
    out = FixedPoint(60, 0)
    values, weight = uniform(wide, 1, 4, 4, 4), uniform(wide, 2, 2, 3, 3)
    got = conv2d(values, weight, None, Affine(wide, wide, None, out), Windows((3, 3)), groups=2)
    for filter_ in (0, 1):
        for row in (0, 1):
            part = values[0, 2 * filter_ : 2 * filter_ + 2, row : row + 3, 1:4]
            total = sum(a * b for a, b in zip(part.flatten().tolist(), weight[filter_].flatten().tolist(), strict=True))
            assert got[0, filter_, row, 1] == total


def test_windows_that_do_not_fit_are_refused():
    formats = Affine(DATA, WEIGHT, None, OUT)
    with pytest.raises(ValueError, match=r"a window of \(5, 3\) does not fit into 2 x 4, padded by \(1, 0\)"):
        conv2d(uniform(DATA, 1, 1, 2, 4), uniform(WEIGHT, 1, 1, 5, 3), None, formats, Windows((5, 3), padding=(1, 0)))


@given(windows())
def test_max_pooling_is_torch(place):
    values = uniform(DATA, 2, 3, 5, 6)
    expected = functional.max_pool2d(values.double(), place.kernel, place.stride, place.padding)
    assert torch.equal(max_pool2d(values, place), expected.long())


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=50), st.integers(2, 12), st.integers(-4, 9))
def test_the_mean_is_the_exact_fraction_rounded_once(values, width, fraction):
    to = FixedPoint(width, fraction)
    exact = Fraction(sum(values), len(values)) * Fraction(2) ** (fraction - 4)
    low, high = to.integers
    assert mean(torch.tensor(values), DATA, to).item() == min(max(round(exact), low), high)


#: Integers of fixed(8,4) -> their mean's integer in fixed(8,4), by hand.
MEANS = [
    ([1, 2], 2),
    ([2, 3], 2),
    ([3, 4], 4),
    ([-1, -2], -2),
    ([-1, 0], 0),
    ([1, 1, 2], 1),
    ([1, 2, 2], 2),
    ([127, 127], 127),
]


@pytest.mark.parametrize(("values", "expected"), MEANS)
def test_means_by_hand(values, expected):
    assert mean(torch.tensor(values), DATA, DATA).item() == expected


@given(windows())
def test_average_pooling_is_torch_then_the_number_format(place):
    values = uniform(DATA, 2, 3, 5, 6)
    floats = functional.avg_pool2d(DATA.decode(values), place.kernel, place.stride, place.padding)
    assert torch.equal(average_pool2d(values, DATA, OUT, place), OUT.encode(floats))
