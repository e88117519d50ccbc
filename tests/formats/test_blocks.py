"""Formats whose elements share something, against definitions worked out with fractions."""

from fractions import Fraction
from itertools import islice

import pytest
import torch

from mase_server.formats import parse
from tests.formats.reference import fixed_values, float_values, nearest, nearest_power, powers

#: Values of the element types without sign, as the MX specification tabulates them.
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E2M3 = [*(n / 8 for n in range(8)), *(1 + n / 8 for n in range(8)), *(2 + n / 4 for n in range(8)), *(4 + n / 2 for n in range(8))]  # noqa: E501  # fmt: skip
E3M2 = [0, 0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 1.75, 2, 2.5, 3,
        3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28]  # fmt: skip


def both_signs(values):
    return sorted({Fraction(sign) * Fraction(value) for value in values for sign in (-1, 1)})


#: (width, exponent_width) -> values, exponent of the largest.
ELEMENTS = {
    (4, 2): (both_signs(E2M1), 2),
    (6, 2): (both_signs(E2M3), 2),
    (6, 3): (both_signs(E3M2), 4),
    # E4M3 has no infinity, and one NaN at the top: 448 is the last.
    (8, 4): ([value for value in float_values(4, 3, 7, reserved=False) if abs(value) <= 448], 8),
    (8, 5): (float_values(5, 2, 15), 15),
}


def floor_log2(value):
    exponent = 0
    while powers(exponent) > value:
        exponent -= 1
    while powers(exponent + 1) <= value:
        exponent += 1
    return exponent


def samples(count):
    generator = torch.Generator().manual_seed(3)
    wild = torch.randn(count, generator=generator) * 10.0 ** torch.randint(-6, 7, (count,), generator=generator)
    grid = torch.randint(-40, 41, (count,), generator=generator) / 16
    return torch.cat([wild, grid, torch.zeros(32), torch.full((32,), 3.9999), torch.tensor([1e-40, -2e-41] * 16)])


def blocks_of(values, size):
    left = iter(values.tolist())
    return list(iter(lambda: [Fraction(value) for value in islice(left, size)], []))


@pytest.mark.parametrize(("width", "exponent_width"), ELEMENTS)
@pytest.mark.parametrize("size", [1, 4, 32])
def test_mxfp_as_the_specification_converts(width, exponent_width, size):
    values, top = ELEMENTS[width, exponent_width]
    x = samples(320)
    expected = []
    for block in blocks_of(x, size):
        largest = max(map(abs, block))
        scale = powers(max(floor_log2(largest) - top, -127)) if largest else Fraction(1)
        expected += [nearest(value / scale, values) * scale for value in block]
    got = parse(f"mxfp({width},{exponent_width},block_size=({size},))").round(x.double())
    assert [Fraction(value) for value in got.tolist()] == expected


@pytest.mark.parametrize("width", [3, 4, 8])
@pytest.mark.parametrize("size", [4, 32])
def test_mxint_as_the_specification_converts(width, size):
    values = fixed_values(width, width - 2)[1:]  # without the lowest code: symmetric
    x = samples(320)
    expected = []
    for block in blocks_of(x, size):
        largest = max(map(abs, block))
        scale = powers(max(floor_log2(largest), -127)) if largest else Fraction(1)
        expected += [nearest(value / scale, values) * scale for value in block]
    got = parse(f"mxint({width},block_size=({size},))").round(x.double())
    assert [Fraction(value) for value in got.tolist()] == expected


@pytest.mark.parametrize("width", [2, 4, 8])
def test_block_fp_shares_the_exponent_above_the_largest(width):
    values = fixed_values(width, width - 1)[1:]
    x = samples(320)
    expected = []
    for block in blocks_of(x, 16):
        largest = max(map(abs, block))
        scale = powers(max(floor_log2(largest) + 1, -127)) if largest else Fraction(1)
        expected += [nearest(value / scale, values) * scale for value in block]
    got = parse(f"block_fp({width},block_size=(16,))").round(x.double())
    assert [Fraction(value) for value in got.tolist()] == expected


@pytest.mark.parametrize(("width", "exponent_width"), [(4, 2), (6, 3), (8, 4)])
@pytest.mark.parametrize("bias_width", [4, 8])
def test_block_minifloat_shares_the_bias_of_the_largest(width, exponent_width, bias_width):
    x, half = samples(320), 2 ** (bias_width - 1)
    expected = []
    for block in blocks_of(x, 16):
        largest = max(map(abs, block))
        bias = 2**exponent_width - 1 - floor_log2(largest) if largest else 0
        bias = max(-half, min(half - 1, bias))
        values = float_values(exponent_width, width - 1 - exponent_width, bias, reserved=False)
        expected += [nearest(value, values) for value in block]
    text = f"block_minifloat({width},{exponent_width},exponent_bias_width={bias_width},block_size=(16,))"
    assert [Fraction(value) for value in parse(text).round(x.double()).tolist()] == expected


@pytest.mark.parametrize("width", [3, 4, 6])
@pytest.mark.parametrize("bias_width", [4, 8])
def test_block_log_shares_the_bias_of_the_largest(width, bias_width):
    x, half, codes = samples(320), 2 ** (bias_width - 1), 2 ** (width - 1)
    expected = []
    for block in blocks_of(x, 16):
        largest = max(map(abs, block))
        top = floor_log2(nearest_power(largest, -400, 400)) if largest else 0
        bias = max(-half, min(half - 1, codes - 1 - top))
        expected += [nearest_power(value, 1 - bias, codes - 1 - bias) for value in block]
    text = f"block_log({width},exponent_bias_width={bias_width},block_size=(16,))"
    assert [Fraction(value) for value in parse(text).round(x.double()).tolist()] == expected


@pytest.mark.parametrize(("dtype", "text"), [(torch.float8_e4m3fn, "mxfp(8,4)"), (torch.float8_e5m2, "mxfp(8,5)")])
def test_elements_of_a_block_of_scale_one_are_torchs_float8(dtype, text):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = codes[codes.isfinite()].unique()
    points = torch.cat([finite, (finite[1:] + finite[:-1]) / 2])
    largest = finite.max()
    got = torch.stack([parse(text).round(torch.stack([point, largest]))[0] for point in points])
    assert torch.equal(got, points.to(dtype).float())


def test_a_block_goes_over_the_last_dimensions_and_ends_at_the_edge():
    format, x = parse("block_fp(4,block_size=(2,3))"), torch.randn(2, 5, 7)
    got = format.round(x)
    for row in range(0, 5, 2):
        for column in range(0, 7, 3):
            for first in range(2):
                part = x[first, row : row + 2, column : column + 3]
                alone = format.round(part)
                assert torch.equal(got[first, row : row + 2, column : column + 3], alone)


def test_a_short_tensor_takes_the_last_block_size():
    x = torch.randn(40)
    assert torch.equal(parse("block_fp(6,block_size=(1,16))").round(x), parse("block_fp(6,block_size=(16,))").round(x))
    assert parse("mxint(8)").round(torch.tensor(1.7)).shape == ()


def test_infinity_saturates_and_nan_stays_alone():
    x = torch.tensor([float("nan"), 1.0, 2.0, -0.5])
    assert torch.equal(parse("mxint(8)").round(x)[1:], x[1:])
    assert parse("mxint(8)").round(x)[0].isnan()
    masked = parse("mxint(8,block_size=(4,))").round(torch.tensor([0.0, 0.0, float("-inf"), 0.0]))
    assert masked[2] < -1e38
    assert masked.isfinite().all()


def test_bits_count_what_a_block_shares():
    assert parse("mxint(8)").bits == 8.25
    assert parse("mxfp(4,2)").bits == 4.25
    assert parse("block_fp(8,exponent_width=4,block_size=(2,8))").bits == 8.25
