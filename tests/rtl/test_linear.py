"""`fixed_cast`, `fixed_linear` and `mxint_linear` compute what their arithmetic says, for all widths and foldings."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.formats.mxfp import MxInt
from mase_server.hardware.arithmetic import Affine, linear, requantise
from mase_server.hardware.memories import align_rows, words_of_aligned
from mase_server.hardware.networks import Network, network_text
from mase_server.hardware.verilog import Instance
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import linear_case, precision, stream
from tests.rtl.draws import drawn, generator, integers

FORMATS = st.builds(FixedPoint, st.integers(2, 12), st.integers(-3, 12))
WIDE = st.builds(FixedPoint, st.integers(2, 24), st.integers(-3, 16))


def cast(number, before, after, lanes, floor, relu, expected=requantise):
    values = integers(before.width, 120, lanes, generator=generator(number))
    wanted = expected(values, before.fraction_width, after, floor=floor, relu=relu)
    parameters = {
        **precision("DATA_IN_0", before),
        **precision("DATA_OUT_0", after),
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "FLOOR": int(floor),
        "RELU": int(relu),
    }
    into, out = stream(values, before.width, lanes), stream(wanted, after.width, lanes)
    return Case("fixed_cast", parameters, {"data_in_0": into}, {"data_out_0": out})


def casts():
    return drawn(st.tuples(WIDE, WIDE, st.integers(1, 5), st.booleans(), st.booleans()))


def test_cast_is_requantise():
    Bench([cast(number, *draw) for number, draw in enumerate(casts())]).check_all()


def test_every_number_of_a_format_is_cast_as_it_should_be():
    before, cases = FixedPoint(9, 6), []
    values = torch.arange(-256, 256)
    for after in (FixedPoint(4, 2), FixedPoint(6, 5), FixedPoint(3, 6), FixedPoint(12, 8), FixedPoint(2, -1)):
        wanted = requantise(values, 6, after)
        parameters = {**precision("DATA_IN_0", before), **precision("DATA_OUT_0", after)}
        into, out = stream(values, 9, 1), stream(wanted, after.width, 1)
        cases.append(Case("fixed_cast", parameters, {"data_in_0": into}, {"data_out_0": out}))
    Bench(cases).check()


def test_a_cast_by_one_bit_rounds_alike_in_every_lane():
    """Verilator 5.006 loses a mask where it optimises trees of bits: lanes of whole bytes then rounded -1/2 to -1."""
    formats = [(FixedPoint(width, 10), FixedPoint(width, 9)) for width in (5, 8, 16)]
    draws = [(*each, lanes, False, relu) for each in formats for lanes in (2, 4) for relu in (False, True)]
    Bench([cast(number, *draw) for number, draw in enumerate(draws)]).check_all()


def half_up(values, fraction, to, **_):
    """The mistake that is made most often: floor(x + 1/2)."""
    shift = fraction - to.fraction_width
    return ((values + (1 << (shift - 1))) >> shift).clamp(*to.integers)


def test_rounding_half_up_is_not_what_it_does():
    draw = (FixedPoint(10, 6), FixedPoint(8, 4), 2, False, False)
    (result,) = Bench([cast(1, *draw, expected=half_up)]).run()
    assert 0 < result.mismatches < result.total


@st.composite
def layers(draw):
    lanes_in, lanes_out = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    ins, outs = lanes_in * draw(st.integers(1, 5)), lanes_out * draw(st.integers(1, 5))
    bias = draw(st.one_of(st.none(), WIDE))
    formats = Affine(draw(FORMATS), draw(FORMATS), bias, draw(WIDE), draw(st.booleans()), draw(st.booleans()))
    return formats, ins, outs, (lanes_in, lanes_out)


def layer(number, formats, ins, outs, lanes, arithmetic=None):
    """A case; `arithmetic` replaces the formats from which the expected integers are computed."""
    random = generator(number)
    values = integers(formats.data.width, 30, ins, generator=random)
    weight = integers(formats.weight.width, outs, ins, generator=random)
    bias = None if formats.bias is None else integers(formats.bias.width, outs, generator=random)
    return linear_case(values, weight, bias, formats, lanes, linear(values, weight, bias, arithmetic or formats))


def test_linear_is_the_arithmetic_of_linear():
    Bench([layer(number, *draw) for number, draw in enumerate(drawn(layers()))]).check_all()


PLAIN = Affine(FixedPoint(8, 4), FixedPoint(8, 6), FixedPoint(16, 10), FixedPoint(8, 4))


def test_sums_at_both_ends_of_the_accumulator_are_right_and_saturate():
    cases = []
    for sign in (0, 1):
        for out in (FixedPoint(8, 4), FixedPoint(24, 10)):
            formats = replace(PLAIN, out=out)
            values = torch.full((4, 16), -128)
            weight = torch.full((4, 16), formats.weight.integers[sign])
            bias = torch.full((4,), formats.bias.integers[1 - sign])
            expected = linear(values, weight, bias, formats)
            saturated = out.width == 8
            assert bool((expected == out.integers[1 - sign]).all()) is saturated
            cases.append(linear_case(values, weight, bias, formats, (4, 2), expected))
    Bench(cases).check()


def test_another_rounding_another_bias_and_a_missing_relu_are_noticed():
    wrong = [
        replace(PLAIN, floor=True),
        replace(PLAIN, relu=True),
        replace(PLAIN, bias=FixedPoint(16, 11)),
        replace(PLAIN, weight=FixedPoint(8, 5)),
    ]
    results = Bench([layer(1, PLAIN, 8, 4, (4, 2), each) for each in wrong]).run()
    assert all(result.mismatches > 0 for result in results)


def test_rate_and_latency_are_those_of_the_contract():
    foldings = [((4, 4), 16, 64), ((16, 8), 16, 8), ((1, 1), 8, 8), ((8, 1), 8, 6), ((2, 8), 16, 8), ((3, 2), 9, 2)]
    cases = [layer(number, PLAIN, ins, outs, lanes) for number, (lanes, ins, outs) in enumerate(foldings)]
    for result, (lanes, ins, outs) in zip(Bench(cases).run(), foldings, strict=True):
        beats_in, beats_out = ins // lanes[0], outs // lanes[1]
        levels = (lanes[0] - 1).bit_length()
        assert result.fine
        assert result.first_cycle == beats_in + 9 + levels - (beats_out == 1), (lanes, ins, outs)
        # From the first result to the last one: all beats of results but one, each after beats_in cycles.
        assert result.last_cycle - result.first_cycle == (result.total - 1) * beats_in, (lanes, ins, outs)


# Data in blocks, and weights with an exponent for each beat: `mxint_linear`.


@st.composite
def mxint_layers(draw):
    formats, ins, outs, lanes = draw(layers())
    data = replace(formats, data=FixedPoint(draw(st.integers(3, 14)), draw(st.integers(-3, 12))))
    return data, ins, outs, lanes, draw(st.integers(2, data.data.width - 1))


def mxint_layer(number, formats, ins, outs, lanes, mantissa):
    """Vectors are in blocks of a beat, so that every beat has another exponent."""
    random, (lanes_in, lanes_out), width = generator(number), lanes, formats.data.width
    values = integers(width - 1, 30, ins // lanes_in, lanes_in, generator=random)
    values = values >> torch.randint(0, width - 1, (30, ins // lanes_in, 1), generator=random)
    values = MxInt(mantissa, (lanes_in,)).nearest(values.double()).long().reshape(30, ins)
    bits = max(2, formats.weight.width // 2)
    weight = integers(bits, outs, ins // lanes_in, lanes_in, generator=random)
    steps = torch.randint(0, formats.weight.width - bits + 1, (outs, ins // lanes_in, 1), generator=random)
    weight = (weight << steps).reshape(outs, ins)
    bias = None if formats.bias is None else integers(formats.bias.width, outs, generator=random)
    case = linear_case(values, weight, bias, formats, lanes, linear(values, weight, bias, formats))
    mantissas, exponents, bits = align_rows(weight, lanes_in)
    assert torch.equal(
        mantissas.unflatten(1, (-1, lanes_in)) << exponents[..., None], weight.unflatten(1, (-1, lanes_in))
    )
    most = int(exponents.max())
    words = words_of_aligned(mantissas, exponents, (bits, most.bit_length()), lanes)
    file = lanes_out * (lanes_in * bits + most.bit_length()), list(words)
    parameters = {"MANTISSA_WIDTH": mantissa, "WEIGHT_PRECISION_0": bits, "WEIGHT_EXPONENTS": most}
    return replace(
        case,
        module="mxint_linear",
        parameters={**case.parameters, **parameters},
        memories={**case.memories, "WEIGHT_FILE": file},
    )


def test_layers_of_mantissas_are_the_arithmetic_of_linear():
    cases = [mxint_layer(number, *draw) for number, draw in enumerate(drawn(mxint_layers()))]
    assert len({case.parameters["WEIGHT_EXPONENTS"] for case in cases}) > 3
    Bench(cases).check_all()


def test_layers_of_mantissas_take_three_cycles_more():
    foldings = [((4, 4), 16, 64), ((16, 8), 16, 8), ((1, 1), 8, 8), ((3, 2), 9, 2)]
    formats = replace(PLAIN, data=FixedPoint(12, 8))
    cases = [mxint_layer(number, formats, ins, outs, lanes, 5) for number, (lanes, ins, outs) in enumerate(foldings)]
    for result, (lanes, ins, outs) in zip(Bench(cases).run(), foldings, strict=True):
        beats_in, beats_out, levels = ins // lanes[0], outs // lanes[1], (lanes[0] - 1).bit_length()
        assert result.fine
        assert result.first_cycle == beats_in + 12 + levels - (beats_out == 1), (lanes, ins, outs)
        assert result.last_cycle - result.first_cycle == (result.total - 1) * beats_in, (lanes, ins, outs)


# Constants in place of multipliers: `constant_linear` beside a network of additions.

_LAYER = """layer_{number}_constants layer (.clk, .rst, .data_in_0({data_in_0}), .data_in_0_valid({data_in_0_valid}),
  .data_in_0_ready({data_in_0_ready}), .data_out_0({data_out_0}), .data_out_0_valid({data_out_0_valid}),
  .data_out_0_ready({data_out_0_ready}));
"""


@st.composite
def constant_layers(draw):
    formats = Affine(
        draw(FORMATS), draw(FORMATS), draw(st.one_of(st.none(), WIDE)), draw(WIDE), relu=draw(st.booleans())
    )
    is_signed = draw(st.booleans())
    digit = draw(st.integers(1, formats.data.width - (not is_signed)))
    return formats, draw(st.integers(1, 9)), draw(st.integers(1, 7)), is_signed, digit


def constant_layer(number, formats, ins, outs, is_signed, digit, arithmetic=None):
    """A case. is_signed: may the data be negative?  digit: bits of an element that are worked on at once."""
    random = generator(number)
    values = integers(formats.data.width, 30, ins, generator=random)
    values = values if is_signed else values.clamp(min=0)
    weight = integers(formats.weight.width, outs, ins, generator=random)
    weight[torch.rand(outs, ins, generator=random) < 0.2] = 0
    bias = None if formats.bias is None else integers(formats.bias.width, outs, generator=random)
    network = Network.of(weight, bias, arithmetic or formats, is_signed, digit)
    parameters = {
        "DATA_IN_0_PRECISION_0": formats.data.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": ins,
        **precision("DATA_OUT_0", formats.out),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": outs,
        "RELU": int(formats.relu),
        **network.parameters(formats, is_signed),
    }
    wanted = linear(values, weight, bias, formats)
    return Case(
        "constant_linear",
        parameters,
        {"data_in_0": stream(values, formats.data.width, ins)},
        {"data_out_0": stream(wanted, formats.out.width, outs)},
        body=_LAYER,
        uses=("constant_linear",),
        made=network_text(Instance("", "constant_linear", parameters, {}, "layer_NUMBER", network)),
    )


def test_constant_layers_are_the_arithmetic_of_linear():
    cases = [constant_layer(number, *draw) for number, draw in enumerate(drawn(constant_layers()))]
    assert len({case.parameters["DIGIT_WIDTH"] for case in cases}) > 3
    Bench(cases).check_all()


def test_constant_layers_take_a_cycle_for_each_digit():
    layers = [
        (16, 4, True, 8),
        (16, 4, True, 4),
        (16, 4, True, 3),
        (16, 4, False, 7),
        (5, 3, False, 1),
        (1, 1, True, 8),
    ]
    cases = [constant_layer(number, PLAIN, *layer) for number, layer in enumerate(layers)]
    for result, (_, _, is_signed, digit) in zip(Bench(cases).run(), layers, strict=True):
        digits = -(-(8 if is_signed else 7) // digit)
        assert result.fine
        latency = result.case.parameters["SUM_LATENCY"]
        assert result.first_cycle == latency + 2 + (digits if digits > 1 else 0), (is_signed, digit)
        assert result.last_cycle - result.first_cycle == (result.total - 1) * digits, (is_signed, digit)
