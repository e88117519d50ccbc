"""What every number format promises: properties, texts, configurations, gradients, errors."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mase_server.formats import from_config, parse, quantise

TEXTS = [
    "fixed(8,4)", "fixed(5,7)", "fixed(3,1,is_signed=False)", "scale_integer(8)", "scale_integer(4,axis=0)", "binary",
    "binary(bipolar=False)", "binary_residual(2)", "binary_residual(3,axis=1)", "ternary", "ternary(axis=0)",
    "ternary(scaling_factor=False)", "log(8)", "log(4,exponent_bias=3)", "minifloat_ieee(8,4)",
    "minifloat_ieee(6,3,exponent_bias=2)", "minifloat_denorm(8,4)", "block_fp(8)", "block_fp(4,block_size=(3,))",
    "block_minifloat(8,4)", "block_log(5)", "mxint(8)", "mxint(4,block_size=(2,2))", "mxfp(8,4)", "mxfp(8,5)",
    "mxfp(6,3)", "mxfp(6,2)", "mxfp(4,2)",
]  # fmt: skip
#: The data decide their values, and the result is other data.
NOT_IDEMPOTENT = ("scale_integer", "binary_residual", "ternary(scaling_factor=False)", "binary(bipolar=False)")
ELEMENTWISE = [text for text in TEXTS if re.match("fixed|log|minifloat", text)]
POWERS_OF_TWO = [text for text in TEXTS if re.match("fixed|log|mini|block|mx", text)]

floats = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**99), max_value=2.0**99)
lists = st.lists(floats, min_size=1, max_size=48)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_names_the_format_that_it_came_from(text):
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_configuration_names_the_format_that_it_came_from(text):
    config = parse(text).to_config()
    assert from_config(config) == parse(text)
    prefixed = {"name": config["name"], **{f"weight_{key}": value for key, value in config.items() if key != "name"}}
    assert from_config(prefixed, "weight") == parse(text)


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith(NOT_IDEMPOTENT)])
@given(values=lists)
def test_rounding_again_changes_nothing(text, values):
    once = parse(text).round(torch.tensor(values).reshape(1, -1))
    assert torch.equal(parse(text).round(once), once)


@pytest.mark.parametrize("text", TEXTS)
@given(values=lists)
def test_rounding_keeps_the_order(text, values):
    ordered = torch.tensor(sorted(values)).reshape(1, -1)
    # Sorting changes who shares a block, so the order within one block is what is asked.
    format = parse(re.sub(r"block_size=\([^)]*\)", "block_size=(1,48)", text)) if "block_size" in text else parse(text)
    got = format.round(ordered[:, :16])[0]
    if not text.startswith("binary_residual"):
        assert bool((got[1:] >= got[:-1]).all()), got


@pytest.mark.parametrize("text", ELEMENTWISE)
@given(value=floats)
def test_nothing_leaves_the_range(text, value):
    limits = parse(text).range
    assert limits.lowest <= parse(text).round(torch.tensor(value)).item() <= limits.highest


@given(value=st.floats(width=32, min_value=-8, max_value=7.9375))
def test_fixed_is_at_most_half_a_step_away(value):
    assert abs(parse("fixed(8,4)").round(torch.tensor(value, dtype=torch.float64)).item() - value) <= 2.0**-5


@given(value=st.floats(width=32, min_value=2.0**-6, max_value=240))
def test_a_minifloat_is_at_most_half_a_last_place_away(value):
    got = parse("minifloat_ieee(8,4)").round(torch.tensor(value, dtype=torch.float64)).item()
    assert abs(got - value) <= 2.0 ** (math.floor(math.log2(value)) - 4)


@given(values=st.lists(st.floats(width=32, min_value=-1000, max_value=1000), min_size=2, max_size=40))
def test_scale_integer_is_at_most_half_a_step_away(values):
    x = torch.tensor(values, dtype=torch.float64)
    step = x.abs().max() / 127
    assert bool(((parse("scale_integer(8)").round(x) - x).abs() <= step / 2 * (1 + 1e-12)).all())


@pytest.mark.parametrize("name", ["scale_integer(5", "binary_residual(2", "ternary("])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_channel_is_rounded_as_if_it_were_alone(name, axis):
    x = torch.randn(3, 4, 5)
    comma = "" if name.endswith("(") else ","
    got = parse(f"{name}{comma}axis={axis})").round(x)
    alone = parse(f"{name})")
    for index in range(x.shape[axis]):
        assert torch.equal(got.select(axis, index), alone.round(x.select(axis, index)))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_shape_and_element_type_stay(text, dtype):
    x = (torch.randn(2, 3, 20) * 4).to(dtype)
    before = x.clone()
    got = parse(text).quantise(x)
    assert (got.shape, got.dtype) == (x.shape, dtype)
    assert torch.equal(x, before), "the argument was changed"
    assert parse(text).quantise(x.to("meta")).shape == x.shape
    assert parse(text).quantise(x.new_zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("text", POWERS_OF_TWO)
def test_a_narrow_carrier_holds_the_rounded_values_exactly(text):
    x = (torch.randn(400) * 3).bfloat16()
    assert torch.equal(parse(text).round(x).double(), parse(text).round(x.double()))


@pytest.mark.parametrize("text", TEXTS)
def test_nan_stays_nan(text):
    got = parse(text).round(torch.tensor([[1.0, float("nan"), -2.0]]))
    assert got.isnan().tolist() == [[False, True, False]]


@pytest.mark.parametrize("text", TEXTS)
def test_the_gradient_goes_straight_through_what_is_not_saturated(text):
    low, high = (0.0, 0.1) if "is_signed=False" in text else (-0.1, 0.1)
    x = torch.empty(4, 6).uniform_(low, high).requires_grad_()
    weights = torch.randn(4, 6)
    (parse(text).quantise(x) * weights).sum().backward()
    assert torch.equal(x.grad, weights)


def test_what_is_saturated_learns_nothing():
    x = torch.tensor([-9.0, -8.0, 0.3, 7.9375, 8.5], requires_grad=True)
    parse("fixed(8,4)").quantise(x).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]
    y = torch.tensor([-1.5, -1.0, 0.2, 1.0, 1.1], requires_grad=True)
    parse("binary").quantise(y).sum().backward()
    assert y.grad.tolist() == [0, 1, 1, 1, 0]


def test_a_quantised_layer_learns():
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 1), torch.randn(256, 4)
    target = x @ torch.tensor([[1.0], [-0.5], [0.25], [2.0]])
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(200):
        optimiser.zero_grad()
        weight = quantise(layer.weight, "fixed(8,5)")
        loss = nn.functional.mse_loss(nn.functional.linear(x, weight, layer.bias), target)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.01


def test_mases_configuration_gives_each_argument_its_own_format():
    config = {
        "name": "integer", "data_in_width": 8, "data_in_frac_width": 4, "weight_width": 6, "weight_frac_width": 5,
    }  # fmt: skip
    assert str(from_config(config, "data_in")) == "integer(8,4)"
    assert str(from_config(config, "weight")) == "integer(6,5)"
    assert from_config(config, "bias") is None


def test_a_block_size_may_be_one_number():
    assert parse("mxint(8,block_size=16)") == parse("mxint(8,block_size=(16,))")
    config = {"name": "block_fp", "weight_width": 6, "weight_block_size": 16}
    assert from_config(config, "weight") == parse("block_fp(6,block_size=(16,))")


ERRORS = [
    ("fixt(8,4)", "no number format is called 'fixt'; did you mean 'fixed'?"),
    ("posit(8)", "no number format is called 'posit'; there are binary, "),
    ("fixed(8)", "'fixed(8)' does not fit fixed(width, fraction_width, is_signed=True, rounding='nearest')"),
    (
        "fixed(8,4,depth=3)",
        "'fixed(8,4,depth=3)' does not fit fixed(width, fraction_width, is_signed=True, ",
    ),
    ("fixed(1,0)", "fixed: width is 1, expected a whole number from 2 to 64"),
    ("fixed(8,4.5)", "fixed: fraction_width is 4.5, expected a whole number from -64 to 64"),
    ("fixed(True,4)", "fixed: width is True, expected a whole number from 2 to 64"),
    ("mxfp(8,3)", "mxfp: no element type has width 8, exponent 3: (8,5) (8,4) (6,3) (6,2) (4,2)"),
    ("mxint(8,block_size=(0,))", "mxint: block_size is (0,), expected positive whole numbers, e.g. 32 or (1, 16)"),
    ("mxfp(8,4,block_size=0)", "mxfp: block_size is (0,), expected positive whole numbers"),
    ("mxint(8,block_size=2.5)", "mxint: block_size is 2.5, expected positive whole numbers"),
    ("minifloat_ieee(8,7)", "minifloat_ieee: width is 8, expected a whole number from 9 to 31"),
    ("fixed(open('x'),1)", "\"fixed(open('x'),1)\" is no number format; an example"),
    ("8", "'8' is no number format: a format begins with its name; an example: fixed(8,4)"),
    ("fixed(8,", "'fixed(8,' is no number format: '(' was never closed"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_a_bad_text_is_quoted_with_what_would_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


def test_a_bad_configuration_says_what_it_lacks():
    message = "the configuration of integer lacks weight_frac_width; it has name, weight_width"
    with pytest.raises(ValueError, match=message):
        from_config({"name": "integer", "weight_width": 8}, "weight")


def test_integers_are_not_rounded():
    message = re.escape("fixed(8,4) rounds floating-point tensors, not torch.int64: convert it with .float() first")
    with pytest.raises(TypeError, match=message):
        parse("fixed(8,4)").quantise(torch.arange(3))


def test_nan_has_no_integer():
    with pytest.raises(ValueError, match=re.escape("fixed(8,4) has no integer for NaN; the tensor [2] holds one")):
        parse("fixed(8,4)").encode(torch.tensor([1.0, float("nan")]))


def test_an_axis_that_is_not_there_is_named():
    with pytest.raises(IndexError, match=re.escape("axis 2 is out of range for a tensor of shape [3, 4]")):
        parse("scale_integer(8,axis=2)").round(torch.randn(3, 4))
