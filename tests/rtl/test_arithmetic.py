"""The components' arithmetic, against tables worked by hand, exact rational numbers, and the number formats."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, linear, requantise

#: (integer, bits after the point) -> integer in fixed(4,1), by hand: 0.5 is one step, 7 and -8 are the ends.
BY_HAND = [
    (0, 3, 0),
    (1, 3, 0),  # 0.125 -> 0
    (2, 3, 0),  # 0.25 is half a step: to the even 0
    (3, 3, 1),  # 0.375
    (6, 3, 2),  # 0.75 is one and a half: to the even 2
    (10, 3, 2),  # 1.25 is two and a half: to the even 2
    (-2, 3, 0),
    (-6, 3, -2),
    (-10, 3, -2),
    (-11, 3, -3),
    (29, 3, 7),  # 3.625 -> 7.25 steps
    (30, 3, 7),  # 3.75 -> 7.5 steps would round to 8, which is no integer of the format
    (-34, 3, -8),  # -8.5 steps: to the even -8
    (-35, 3, -8),  # saturates
    (1 << 40, 3, 7),
    (-(1 << 40), 3, -8),
    (3, 0, 6),  # to the left
    (4, 0, 7),  # saturates
    (-4, 0, -8),
    (-5, 0, -8),
    (1, -1, 4),
    (5, 90, 0),
    (-1, 64, 0),
]


@pytest.mark.parametrize(("value", "fraction", "expected"), BY_HAND)
def test_requantise_by_hand(value, fraction, expected):
    assert requantise(torch.tensor([value]), fraction, FixedPoint(4, 1)).tolist() == [expected]


def test_floor_and_relu_by_hand():
    values = torch.tensor([-9, -1, 0, 3, 7, 100])
    assert requantise(values, 3, FixedPoint(4, 1), floor=True).tolist() == [-3, -1, 0, 0, 1, 7]
    assert requantise(values, 3, FixedPoint(4, 1), relu=True).tolist() == [0, 0, 0, 1, 2, 7]


WIDTHS = st.integers(2, 24)
FRACTIONS = st.integers(-6, 30)


def exactly(value, fraction, to, floor):
    """In rational numbers: Python's round() of a fraction is half to even."""
    steps = Fraction(value) * Fraction(2) ** (to.fraction_width - fraction)
    low, high = to.integers
    return min(max(math.floor(steps) if floor else round(steps), low), high)


@given(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=30), FRACTIONS, WIDTHS, FRACTIONS, st.booleans())
def test_requantise_is_exact_rounding_in_rational_numbers(values, fraction, width, out_fraction, floor):
    to = FixedPoint(width, out_fraction)
    expected = [exactly(value, fraction, to, floor) for value in values]
    assert requantise(torch.tensor(values), fraction, to, floor=floor).tolist() == expected


@given(st.integers(-60, 60), WIDTHS, st.integers(-60, 60))
def test_the_ends_of_the_range_are_exact(fraction, width, out_fraction):
    to, ends = FixedPoint(width, out_fraction), [-(1 << 62), (1 << 62), 1, -1, 0]
    expected = [exactly(value, fraction, to, False) for value in ends]
    assert requantise(torch.tensor(ends), fraction, to).tolist() == expected


@given(
    st.lists(st.integers(-(1 << 30), 1 << 30), min_size=1, max_size=30), st.integers(0, 20), WIDTHS, st.integers(0, 20)
)
def test_requantise_agrees_with_the_number_format(values, fraction, width, out_fraction):
    to = FixedPoint(width, out_fraction)
    floats = torch.tensor(values, dtype=torch.float64) * 2.0**-fraction
    assert requantise(torch.tensor(values), fraction, to).tolist() == to.encode(floats).tolist()


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(
        ValueError, match=r"fixed\(8,4,is_signed=False\) is unsigned; .* signed numbers: fixed\(9,...\)"
    ):
        requantise(torch.tensor([1]), 0, FixedPoint(8, 4, is_signed=False))
    with pytest.raises(ValueError, match=f"the integer {(1 << 62) + 1} is beyond 2\\*\\*62"):
        requantise(torch.tensor([(1 << 62) + 1]), 0, FixedPoint(8, 4))
    wide = FixedPoint(31, 0)
    with pytest.raises(ValueError, match="a sum of 4 products needs 64 bits, more than 63"):
        linear(
            torch.ones(4, dtype=torch.int64), torch.ones(1, 4, dtype=torch.int64), None, Affine(wide, wide, None, wide)
        )


def test_linear_by_hand():
    formats = Affine(FixedPoint(8, 4), FixedPoint(8, 6), FixedPoint(16, 10), FixedPoint(8, 4))
    values = torch.tensor([[16, -32]])  # 1.0, -2.0
    weight = torch.tensor([[64, 32], [-64, 127], [127, -128]])  # 1.0, 0.5; -1.0, 1.984; 1.984, -2.0
    bias = torch.tensor([512, -1024, 4096])  # 0.5, -1.0, 4.0
    # 1 - 1 + 0.5 = 0.5 -> 8;  -1 - 3.96875 - 1 = -5.96875 -> -95.5 -> -96;  1.984375 + 4 + 4 = 9.98 saturates
    assert linear(values, weight, bias, formats).tolist() == [[8, -96, 127]]


@given(st.integers(1, 40), st.integers(2, 30), st.integers(2, 30), st.integers(-4, 16), st.data())
def test_linear_is_the_exact_sum_in_rational_numbers(length, width, weight_width, bias_fraction, data):
    formats = Affine(
        FixedPoint(width, 3), FixedPoint(weight_width, 5), FixedPoint(12, bias_fraction), FixedPoint(10, 2)
    )
    if formats.accumulator_width(length) > 63:
        return

    def row(of):
        return data.draw(st.lists(st.integers(*of.integers), min_size=length, max_size=length))

    values, weight = row(formats.data), row(formats.weight)
    bias = data.draw(st.integers(*formats.bias.integers))
    total = Fraction(sum(a * b for a, b in zip(values, weight, strict=True)), 2**8)
    total += Fraction(bias) * Fraction(2) ** -bias_fraction
    expected = min(max(round(total * 4), -512), 511)
    assert linear(torch.tensor(values), torch.tensor([weight]), torch.tensor([bias]), formats).tolist() == [expected]


@given(st.integers(1, 300), st.integers(2, 20), st.integers(2, 20), st.integers(2, 40), st.integers(-5, 20))
def test_the_accumulator_holds_the_largest_sums(length, width, weight_width, bias_width, bias_fraction):
    data, weight, bias = FixedPoint(width, 3), FixedPoint(weight_width, 5), FixedPoint(bias_width, bias_fraction)
    formats = Affine(data, weight, bias, data)
    bits = formats.accumulator_width(length)
    for sign in (0, 1):
        products = length * data.integers[0] * weight.integers[sign] << (formats.accumulator_fraction - 8)
        total = products + (bias.integers[1 - sign] << (formats.accumulator_fraction - bias_fraction))
        assert -(1 << (bits - 1)) <= total < 1 << (bits - 1)


@given(st.integers(1, 300), st.integers(2, 20), st.integers(2, 20))
def test_the_accumulator_without_bias_holds_the_largest_sums(length, width, weight_width):
    data, weight = FixedPoint(width, 3), FixedPoint(weight_width, 5)
    bits = Affine(data, weight, None, data).accumulator_width(length)
    assert length * data.integers[0] * weight.integers[0] < 1 << (bits - 1)
