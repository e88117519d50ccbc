"""Formats that round each element by itself, against every value that their definitions list."""

from fractions import Fraction

import pytest
import torch

from mase_server.formats import FORMATS, parse
from tests.formats.reference import between, fixed_values, float_values, nearest, nearest_power


def exact(points):
    """The points that float64 holds."""
    return [point for point in points if Fraction(float(point)) == point]


def rounded(text, points):
    given = torch.tensor([float(point) for point in points], dtype=torch.float64)
    return [Fraction(value) for value in parse(text).round(given).tolist()]


def assert_holds(text, values):
    """The format rounds to the nearest of all its sorted values, and says which are its ends."""
    points = exact(between(values))
    assert rounded(text, points) == [nearest(point, values) for point in points]
    limits = parse(text).range
    assert (limits.lowest, limits.highest) == (values[0], values[-1])
    assert limits.smallest == min(value for value in values if value > 0)


@pytest.mark.parametrize("width", range(2, 9))
@pytest.mark.parametrize("fraction_width", [-2, 0, 3, 9])
@pytest.mark.parametrize("signed", [True, False])
def test_fixed_gives_the_nearest_of_all_its_values(width, fraction_width, signed):
    values = fixed_values(width, fraction_width, signed)
    text = f"fixed({width},{fraction_width},is_signed={signed})"
    assert_holds(text, values)


@pytest.mark.parametrize(("width", "exponent_width"), [(4, 2), (5, 2), (6, 3), (7, 3), (8, 4), (8, 5), (8, 3)])
@pytest.mark.parametrize("bias", [None, -3, 9])
def test_minifloat_ieee_gives_the_nearest_of_all_its_values(width, exponent_width, bias):
    offset = 2 ** (exponent_width - 1) - 1 if bias is None else bias
    values = float_values(exponent_width, width - 1 - exponent_width, offset)
    text = f"minifloat_ieee({width},{exponent_width},exponent_bias={bias})"
    assert_holds(text, values)


@pytest.mark.parametrize(("width", "exponent_width"), [(4, 2), (6, 3), (7, 3), (8, 4), (8, 5)])
@pytest.mark.parametrize("bias", [None, 0, 5])
def test_minifloat_denorm_gives_the_nearest_of_all_its_values(width, exponent_width, bias):
    offset = 2 ** (exponent_width - 1) - 1 if bias is None else bias
    values = float_values(exponent_width, width - 1 - exponent_width, offset, reserved=False, hidden=False)
    text = f"minifloat_denorm({width},{exponent_width},exponent_bias={bias})"
    assert_holds(text, values)


@pytest.mark.parametrize("width", range(3, 8))
@pytest.mark.parametrize("bias", [None, 0, 4])
def test_log_gives_the_nearest_power_of_two(width, bias):
    codes = 2 ** (width - 1)
    offset = codes // 2 - 1 if bias is None else bias
    low, high = 1 - offset, codes - 1 - offset
    roots = [Fraction(2.0 ** (exponent + 0.5)) for exponent in range(low - 1, high + 1)]
    values = [sign * Fraction(2) ** exponent for exponent in range(low, high + 1) for sign in (-1, 1)]
    points = [*exact(between([*values, Fraction(0)])), *roots, *(-root for root in roots)]
    points += [Fraction(1), Fraction(3, 2)]
    got = rounded(f"log({width},exponent_bias={bias})", points)
    assert got == [nearest_power(point, low, high) for point in points]


def test_the_middle_between_two_powers_is_told_apart_in_float32_too():
    """Each float32 next to the square root of 2 on either side: none of them is the root."""
    below = torch.tensor(1.4142135, dtype=torch.float32)
    above = torch.nextafter(below, torch.tensor(2.0))
    assert Fraction(float(below)) ** 2 < 2 < Fraction(float(above)) ** 2
    assert parse("log(8)").round(torch.stack([below, above])).tolist() == [1.0, 2.0]


def test_fixed_is_what_torch_quantises_to():
    x = torch.randn(4096) * 20
    expected = torch.fake_quantize_per_tensor_affine(x, 2.0**-4, 0, -128, 127)
    assert torch.equal(parse("fixed(8,4)").quantise(x), expected)


def test_fixed_integers_are_those_of_torchs_quantised_kernel():
    x = torch.randn(1000) * 5
    expected = torch.quantize_per_tensor(x, 2.0**-5, 0, torch.qint8).int_repr()
    format = parse("fixed(8,5)")
    assert torch.equal(format.encode(x), expected.to(torch.int64))
    assert torch.equal(format.decode(format.encode(x)).float(), format.quantise(x))


def test_minifloat_ieee_is_torchs_float8_e5m2():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).float()
    finite = codes[codes.isfinite()]
    points = torch.cat([finite, (finite[1:] + finite[:-1]) / 2, torch.randn(5000) * 1000])
    points = points[points.abs() < 57344]
    assert torch.equal(parse("minifloat_ieee(8,5)").round(points), points.to(torch.float8_e5m2).float())


def test_minifloat_ieee_of_16_bits_is_torchs_half():
    points = torch.cat([torch.randn(20000) * 10.0**power for power in range(-8, 4)])
    assert torch.equal(parse("minifloat_ieee(16,5)").round(points), points.half().float())


def test_minifloat_ieee_of_8_bits_of_exponent_is_torchs_bfloat16():
    points = torch.cat([torch.randn(20000) * 10.0**power for power in range(-38, 38, 3)])
    assert torch.equal(parse("minifloat_ieee(16,8)").round(points), points.bfloat16().float())


def test_saturation_never_leaves_the_range_where_the_carrier_is_too_coarse():
    """2**31 - 1 has no float32: the next one below is taken, not the one above."""
    got = parse("fixed(32,0)").round(torch.tensor([1e20, -1e20])).tolist()
    assert got == [2**31 - 128, -(2**31)]
    assert parse("fixed(32,0)").round(torch.tensor([1e20], dtype=torch.float64)).tolist() == [2**31 - 1]
    assert parse("fixed(16,0)").round(torch.tensor([1e5], dtype=torch.bfloat16)).tolist() == [32640.0]
    assert parse("fixed(16,0)").round(torch.tensor([6e4], dtype=torch.float16)).tolist() == [32752.0]


def test_binary_is_a_sign():
    x = torch.tensor([-2.0, -0.1, 0.0, 0.1, 3.0])
    assert parse("binary").quantise(x).tolist() == [-1, -1, 1, 1, 1]
    assert parse("binary(bipolar=False)").quantise(x).tolist() == [0, 0, 1, 1, 1]


def test_stochastic_binary_is_right_on_average():
    torch.manual_seed(0)
    drawn = parse("binary(stochastic=True)").quantise(torch.full((100_000,), 0.5))
    assert set(drawn.tolist()) == {-1.0, 1.0}
    # Probability 0.75 of 1: five standard deviations of the mean are 0.0137.
    assert abs(drawn.mean().item() - 0.5) < 0.0137


def test_ternary_by_hand():
    # The mean magnitude is 2, the threshold 1.4; above it 3 and 4, whose mean is 3.5.
    x = torch.tensor([3.0, -4.0, 1.0, -1.0, 1.0])
    assert parse("ternary").quantise(x).tolist() == [3.5, -3.5, 0, 0, 0]
    assert parse("ternary(scaling_factor=False)").quantise(x).tolist() == [1, -1, 0, 0, 0]


def test_binary_residual_by_hand():
    # Mean magnitude 2 leaves [1, -1, -1, 1], whose mean magnitude 1 leaves nothing.
    x = torch.tensor([3.0, -3.0, 1.0, -1.0])
    assert parse("binary_residual(1)").quantise(x).tolist() == [2, -2, 2, -2]
    assert parse("binary_residual(2)").quantise(x).tolist() == [3, -3, 1, -1]


def test_scale_integer_is_torchs_symmetric_quantisation():
    x = torch.randn(64, 32)
    scale = x.abs().max() / 127
    expected = torch.clamp(torch.round(x / scale), -127, 127) * scale
    assert torch.equal(parse("scale_integer(8)").quantise(x), expected)


def test_every_file_of_a_format_is_in_the_registry():
    names = {kind.name for kind in FORMATS.values()}
    assert names == {
        "fixed", "integer", "scale_integer", "binary", "binary_residual", "ternary", "log", "minifloat_ieee",
        "minifloat_denorm", "block_fp", "block_minifloat", "block_log", "mxint", "mxfp",
    }  # fmt: skip
    assert FORMATS["integer"](8, 4) == FORMATS["fixed"](8, 4)
