"""Formats with a parameter that data are to choose: texts, configurations, and what may be chosen."""

import math
import re

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from mase_server.formats import FORMATS, Open, from_config, parse, quantise

#: Text -> MASE's name, precision without what is open, bits.
OPEN = {
    "fixed(8,auto)": ("fixed", [8], 8.0),
    "fixed(6,auto,is_signed=False)": ("fixed", [6], 6.0),
    "log(5,exponent_bias=auto)": ("log", [5], 5.0),
    "minifloat_ieee(8,4,exponent_bias=auto)": ("minifloat_ieee", [8, 4], 8.0),
    "minifloat_denorm(6,3,exponent_bias=auto)": ("minifloat_denorm", [6, 3], 6.0),
    "scale_integer(8,scale=auto)": ("scale_integer", [8], 8.0),
}


@pytest.mark.parametrize("text", OPEN)
def test_a_text_names_the_open_format_that_it_came_from(text):
    format = parse(text)
    assert isinstance(format, Open)
    assert str(format) == text
    assert parse(str(format)) == format
    assert (format.name, format.precision, format.bits, format.range) == (*OPEN[text], None)


@pytest.mark.parametrize("text", OPEN)
def test_a_configuration_names_it_too(text):
    assert from_config(parse(text).to_config()) == parse(text)


def test_mases_keys_may_be_left_open():
    config = {"name": "integer", "data_in_width": 8, "data_in_frac_width": "auto"}
    assert str(from_config(config, "data_in")) == "integer(8,auto)"


@pytest.mark.parametrize("text", OPEN)
def test_it_runs_on_meta_and_rounds_nothing_real(text):
    assert quantise(torch.empty(2, 3, device="meta"), text).shape == (2, 3)
    with pytest.raises(ValueError, match=re.escape(f"{text} rounds nothing yet: data must choose its ")):
        quantise(torch.randn(2, 3), text)


@pytest.mark.parametrize("text", OPEN)
def test_what_is_closed_fits_and_nothing_else_does(text):
    format = parse(text)
    for value in format.choices(-1.0, 1.0)[:3]:
        assert format.fits(format.closed(value))
    assert not format.fits(parse("mxint(8)"))
    assert not format.fits(parse("fixed(9,4)"))


def test_every_format_that_has_a_parameter_for_data_is_tried_here():
    assert {kind.name for kind in FORMATS.values() if kind.calibrated} - {"integer"} == {
        name for name, _, _ in OPEN.values()
    }


magnitudes = st.floats(min_value=2.0**-20, max_value=2.0**20)


@pytest.mark.parametrize("width", [3, 8, 16])
@given(low=magnitudes | st.just(0.0), high=magnitudes | st.just(0.0))
def test_the_first_fraction_width_holds_everything_and_one_more_would_not(width, low, high):
    """By definition: the integers that -low and high round to are inside of two's complement."""
    assume(low or high)
    choice = parse(f"fixed({width},auto)").choices(-low, high)[0]

    def held(fraction_width):
        return (
            -low * 2.0**fraction_width >= -(2 ** (width - 1)) - 0.5
            and high * 2.0**fraction_width <= 2 ** (width - 1) - 0.5
        )

    assert held(choice)
    assert not held(choice + 1)


@pytest.mark.parametrize("text", [text for text in OPEN if "is_signed" not in text])
@given(high=magnitudes)
def test_the_first_choice_does_not_saturate(text, high):
    format = parse(text)
    closed = format.closed(format.choices(-high, high)[0])
    largest = closed.range.highest
    if not text.startswith("log"):  # a logarithm's largest number may be as far as half an octave
        assert closed.round(torch.tensor(high, dtype=torch.float64)).item() <= largest
    assert largest >= high * (1 - 2.0**-3) or closed.exponent_bias == 127


def test_choices_become_finer():
    assert parse("fixed(8,auto)").choices(-3.0, 3.0) == [5, 6, 7, 8, 9, 10, 11]
    scales = parse("scale_integer(8,scale=auto)").choices(-1.27, 1.0)
    assert scales[0] == 0.01
    assert scales == sorted(scales, reverse=True)
    assert scales[-1] < 0.2 * scales[0]


@pytest.mark.parametrize("text", OPEN)
@pytest.mark.parametrize("value", [0.0, 1e-38, 3e38])
def test_there_is_a_choice_for_extreme_data(text, value):
    format = parse(text)
    for choice in format.choices(-value, value):
        assert torch.isfinite(format.closed(choice).round(torch.tensor([value, -value]))).all()


def test_a_given_scale_is_one_for_all_data():
    x = torch.tensor([-1.0, 0.26, 0.5, 9.0])
    assert parse("scale_integer(3,scale=0.25)").round(x).tolist() == [-0.75, 0.25, 0.5, 0.75]
    assert parse("scale_integer(3,scale=0.25)").range.highest == 0.75


ERRORS = [
    ("fixed(auto,4)", "fixed: width is auto, but only fraction_width may be left to data"),
    ("mxint(8,block_size=auto)", "mxint: block_size is auto, but no parameter may be left to data"),
    ("fixed(1,auto)", "fixed: width is 1, expected a whole number from 2 to 64"),
    ("minifloat_ieee(12,8,exponent_bias=auto)", "minifloat_ieee(12,8) leaves no exponent_bias to choose"),
    ("scale_integer(8,scale=0.0)", "scale_integer: scale is 0.0, expected a number above 0, e.g. 0.125"),
    ("scale_integer(8,axis=0,scale=0.5)", "scale_integer: one scale is for a whole tensor; leave out the scale, or"),
    ("fixed(8,4,True,'floor',3)", "does not fit fixed(width, fraction_width, is_signed=True, rounding='nearest')"),
    (
        "fixed(8,width=8)",
        "'fixed(8,width=8)' does not fit fixed(width, fraction_width, is_signed=True, ",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_a_bad_text_is_quoted_with_what_would_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


def test_integers_at_the_end_of_the_range_are_the_scales():
    format = parse("scale_integer(8,scale=auto)")
    closed = format.closed(format.choices(-5.0, 5.0)[0])
    assert closed.round(torch.tensor(5.0)).item() == pytest.approx(5.0, rel=1e-4)
    assert math.isclose(closed.range.highest, 5.0, rel_tol=1e-4)
