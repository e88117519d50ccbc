"""Quotients, products and integers at tensor speed, against exact rational numbers."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import divide
from mase_server.hardware.arithmetic.linear import exact_product

#: Numerator, denominator, quotient: halves go to the even one.
BY_HAND = [
    (1, 2, 0), (3, 2, 2), (5, 2, 2), (-1, 2, 0), (-3, 2, -2), (-5, 2, -2), (9, 6, 2), (15, 6, 2), (7, 6, 1), (-8, 6, -1)
]  # fmt: skip
#: Where doubles stop being used, and where they would stop being exact.
EDGES = (1 << 51, 1 << 52, 1 << 53, 1 << 60)


@pytest.mark.parametrize(("numerator", "denominator", "expected"), BY_HAND)
def test_a_quotient_by_hand(numerator, denominator, expected):
    assert divide(torch.tensor([numerator]), torch.tensor([denominator])).tolist() == [expected]
    assert divide(torch.tensor([numerator]), denominator).tolist() == [expected]


@given(
    edge=st.sampled_from(EDGES),
    offset=st.integers(-3, 3),
    sign=st.sampled_from([1, -1]),
    denominator=st.one_of(st.integers(1, 40), st.integers(1, 1 << 45)),
)
def test_a_quotient_near_the_ends_of_doubles(edge, offset, sign, denominator):
    numerator = sign * (edge + offset)
    # With a second one the largest decides for both.
    found = divide(torch.tensor([numerator, 7]), torch.tensor([denominator, 2]))
    assert found.tolist() == [round(Fraction(numerator, denominator)), 4]


@given(quotient=st.integers(-(1 << 30), 1 << 30), half=st.integers(1, 1 << 20), offset=st.sampled_from([-1, 0, 1]))
def test_a_quotient_beside_a_half(quotient, half, offset):
    numerator = quotient * 2 * half + half + offset
    assert divide(torch.tensor([numerator]), torch.tensor([2 * half])).item() == round(Fraction(numerator, 2 * half))


@pytest.mark.parametrize("width", [20, 25, 26, 54, 55, 62])
def test_a_product_is_exact_whatever_it_is_computed_in(width):
    """The longest sums of a width, which floats just hold or just do not."""
    length, bits = 4, (width - 3) // 2
    low = -(1 << (bits - 1))
    first, second = torch.full((3, length), low), torch.full((length, 2), low)
    second[0, 0] += 1
    rows = [[sum(int(first[i, k]) * int(second[k, j]) for k in range(length)) for j in range(2)] for i in range(3)]
    assert exact_product(first, second, width).tolist() == rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@given(width=st.integers(2, 64), fraction=st.integers(-64, 64), seed=st.integers(0, 1000))
def test_integers_are_the_nearest_of_a_number_and_saturate(dtype, width, fraction, seed):
    format_ = FixedPoint(width, fraction)
    low, high = format_.integers
    generator = torch.Generator().manual_seed(seed)
    near = torch.randint(-5, 6, (6,), generator=generator).double() / 2
    values = torch.cat([near, torch.tensor([low, high]).double() + near[:2]]) * 2.0**-fraction
    given_ = [*values.to(dtype), torch.tensor(torch.inf, dtype=dtype), torch.tensor(-torch.inf, dtype=dtype)]
    exact = [round(Fraction(each.item()) * Fraction(2) ** fraction) for each in given_[:-2]]
    expected = [*(min(max(each, low), high) for each in exact), high, low]
    assert format_.encode(torch.stack(given_)).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_integer_is_made_of_nan(dtype):
    with pytest.raises(ValueError, match="no integer for NaN"):
        FixedPoint(8, 4).encode(torch.tensor([1.0, torch.nan, torch.inf], dtype=dtype))
    assert FixedPoint(8, 4).encode(torch.empty(0, dtype=dtype)).tolist() == []


@pytest.mark.parametrize("width", [24, 25, 26])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_of_integers_are_the_nearest_that_a_type_holds(width, dtype):
    format_ = FixedPoint(width, 3)
    integers = torch.tensor([*format_.integers, 0, -1, 1, format_.integers[1] - 1])
    expected = [torch.tensor(each / 8, dtype=torch.float64).to(dtype).item() for each in integers.tolist()]
    assert format_.decode(integers, dtype).tolist() == expected
