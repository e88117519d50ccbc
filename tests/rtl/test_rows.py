"""Softmax and norms: whole rows; blocks that share an exponent; and floating point of a few bits."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mase_server.formats.blocks import BlockMinifloat
from mase_server.formats.fixed import FixedPoint
from mase_server.formats.minifloat import MinifloatDenorm, MinifloatIeee
from mase_server.formats.mxfp import MxInt
from mase_server.hardware.arithmetic import Floats, Norm, exp_table, norm, round_blocks, round_floats, softmax, top_k
from mase_server.hardware.arithmetic.norms import root_floor
from mase_server.hardware.memories import pack_rows, words_of_bias
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import precision, stream
from tests.rtl.draws import drawn, generator, integers

ROWS = 24
NARROW = st.builds(FixedPoint, st.integers(2, 9), st.integers(-1, 7))
RESULTS = st.builds(FixedPoint, st.integers(2, 14), st.integers(0, 13))


@st.composite
def softmaxes(draw):
    lanes = draw(st.integers(1, 4))
    size = lanes * draw(st.integers(1, 7))
    return lanes, size, draw(NARROW), draw(RESULTS), draw(st.integers(4, 16)), draw(st.sampled_from([0, 1, 3, ROWS]))


def softmax_case(number, lanes, size, data, out, exp_fraction, masked=0):
    """masked: rows of a mask, which repeats; a third of its elements are left out, and one row whole."""
    values = integers(data.width, ROWS, size, generator=generator(number))
    values[::3] = values[::3].clamp(-2, 1)  # rows of nearly equal numbers, and of equal ones
    values[1::6] = values[1, 0]
    parameters = {
        "DATA_IN_0_PRECISION_0": data.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": size,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "EXP_FRACTION": exp_fraction,
        "DATA_OUT_0_PRECISION_0": out.width,
        "DATA_OUT_0_PRECISION_1": out.fraction_width,
    }
    memories, mask = {"FILE": (exp_fraction + 1, exp_table(data, exp_fraction).tolist())}, None
    if masked:
        mask = torch.rand(masked, size, generator=generator(number)) < 1 / 3
        mask[0] = True
        parameters |= {"HAS_MASK": 1, "MASK_BEATS": mask.numel() // lanes}
        memories["MASK_FILE"] = lanes, pack_rows(mask.long().reshape(-1, lanes), 1)
        mask = mask.repeat(ROWS // masked, 1)
    expected = softmax(values, data, out, exp_fraction, mask)
    into, outof = stream(values, data.width, lanes), stream(expected, out.width, lanes)
    return Case("fixed_softmax", parameters, {"data_in_0": into}, {"data_out_0": outof}, memories)


def test_softmax_is_its_arithmetic():
    Bench([softmax_case(number, *draw) for number, draw in enumerate(drawn(softmaxes()))]).check_all()


def test_softmax_takes_a_beat_a_cycle_with_the_latency_of_its_contract():
    data, out = FixedPoint(8, 4), FixedPoint(8, 7)
    sizes = [(1, 8), (4, 16), (2, 32)]
    for result, (lanes, size) in zip(
        Bench([softmax_case(n, *each, data, out, 14) for n, each in enumerate(sizes)]).run(), sizes, strict=True
    ):
        beats = size // lanes
        assert result.fine
        assert result.first_cycle == 2 * beats + 9 + out.fraction_width, (lanes, size)
        assert result.last_cycle - result.first_cycle == ROWS * beats - 1, (lanes, size)


def test_softmax_by_hand():
    data, out = FixedPoint(4, 0), FixedPoint(9, 8)
    # exp(0) = 16384, exp(-1) = 6027, exp(-7) = 15 of 16384; rows in 256ths
    values = torch.tensor([[3, 3], [3, 2], [3, -4], [7, -8]])
    assert exp_table(data)[[0, 1, 7, 15]].tolist() == [16384, 6027, 15, 0]
    # 16384 * 256 / 22411 = 187.15; 6027 * 256 / 22411 = 68.85; 16384 * 256 / 16399 = 255.77 -> 256, one too many
    assert softmax(values, data, out).tolist() == [[128, 128], [187, 69], [255, 0], [255, 0]]


def test_softmax_is_that_of_torch_but_for_one_rounding():
    data, out = FixedPoint(8, 4), FixedPoint(10, 9)
    values = integers(8, 200, 16, generator=generator(1)).clamp(-60, 60)
    exact = torch.softmax(data.decode(values), -1)
    error = (out.decode(softmax(values, data, out)) - exact).abs().max()
    assert error <= 0.5 * 2.0**-9 + 16 * 2.0**-14


def test_what_a_mask_leaves_out_is_as_if_it_were_not_there():
    data, out = FixedPoint(8, 4), FixedPoint(10, 9)
    values = integers(8, 50, 8, generator=generator(2))
    mask = torch.tensor([False, True, False, False, True, True, False, True])
    expected = softmax(values[:, ~mask], data, out)
    assert torch.equal(softmax(values, data, out, mask=mask)[:, ~mask], expected)
    assert (softmax(values, data, out, mask=mask)[:, mask] == 0).all()
    assert (softmax(values, data, out, mask=torch.ones(8, dtype=torch.bool)) == 0).all()


@st.composite
def norms(draw):
    lanes = draw(st.integers(1, 4))
    factors = st.one_of(st.none(), st.builds(FixedPoint, st.integers(2, 10), st.integers(0, 8)))
    formats = Norm(
        lanes * draw(st.integers(1, 8)),
        draw(st.builds(FixedPoint, st.integers(2, 9), st.integers(0, 7))),
        draw(st.builds(FixedPoint, st.integers(2, 12), st.integers(0, 10))),
        draw(factors),
        draw(factors),
        draw(st.booleans()),
        draw(st.sampled_from([1e-5, 1e-3, 0.1])),
        draw(st.integers(3, 9)),
        draw(st.integers(4, 14)),
    )
    return lanes, formats, draw(st.booleans()), draw(st.integers(1, 3))


def norm_case(number, lanes, formats, serial=False, roots=1):
    """serial: without multipliers.  roots: at a time."""
    random = generator(number)
    values = integers(formats.data.width, ROWS, formats.size, generator=random)
    values[::3] = values[::3].clamp(-1, 1)
    values[1::6] = values[1, 0]  # rows without any variance
    parameters = {
        "DATA_IN_0_PRECISION_0": formats.data.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": formats.size,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "MEAN": int(formats.centred),
        "SERIAL": int(serial),
        "ROOTS": roots,
        "EPSILON": f"64'd{formats.steps}",
        "ROOT_FRACTION": formats.root_fraction,
        "NORM_FRACTION": formats.norm_fraction,
        **precision("DATA_OUT_0", formats.out),
    }
    given_, memories = {}, {}
    for name, format_ in (("WEIGHT", formats.weight), ("BIAS", formats.bias)):
        parameters[f"HAS_{name}"] = int(format_ is not None)
        given_[name] = None
        if format_ is not None:
            parameters |= precision(name, format_)
            given_[name] = integers(format_.width, formats.size, generator=random)
            memories[f"{name}_FILE"] = (format_.width * lanes, words_of_bias(given_[name], format_.width, lanes))
    expected = norm(values, given_["WEIGHT"], given_["BIAS"], formats)
    into, out = stream(values, formats.data.width, lanes), stream(expected, formats.out.width, lanes)
    return Case("fixed_norm", parameters, {"data_in_0": into}, {"data_out_0": out}, memories)


def test_norms_are_their_arithmetic():
    cases = [norm_case(number, *draw) for number, draw in enumerate(drawn(norms()))]
    assert {case.parameters["SERIAL"] for case in cases} == {0, 1}
    Bench(cases).check_all()


def test_rows_follow_each_other_as_fast_as_roots_are_found():
    data, out = FixedPoint(8, 4), FixedPoint(8, 5)
    cases = [norm_case(1, 1, Norm(64, data, out)), norm_case(1, 4, Norm(16, data, out, centred=False))]
    cases += [norm_case(1, 2, Norm(64, data, out), serial=True)]
    cases += [norm_case(1, 4, Norm(16, data, out, centred=False), roots=3)]
    long, short, serial, several = Bench(cases).run()
    assert serial.fine
    assert serial.last_cycle - serial.first_cycle <= ROWS * 32 * (8 + 6 + 1 + 1)
    assert long.fine
    assert short.fine
    assert long.last_cycle - long.first_cycle == ROWS * 64 - 1
    root_bits = (2 * 8 + 4 + 1 + 1) // 2 + 8
    assert (short.last_cycle - short.first_cycle) / (ROWS - 1) <= root_bits + 3
    assert several.fine
    assert (several.last_cycle - several.first_cycle - 3) / (ROWS - 1) <= (root_bits + 2) / 3


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=50))
def test_roots_are_exact(values):
    assert root_floor(torch.tensor(values)).tolist() == [math.isqrt(value) for value in values]
    squares = [math.isqrt(value) ** 2 for value in values]
    assert root_floor(torch.tensor(squares)).tolist() == [math.isqrt(value) for value in values]
    below = [max(square - 1, 0) for square in squares]
    assert root_floor(torch.tensor(below)).tolist() == [math.isqrt(value) for value in below]


def test_norms_are_those_of_torch_but_for_their_roundings():
    data, out, size = FixedPoint(8, 4), FixedPoint(12, 8), 32
    values = integers(8, 100, size, generator=generator(1))
    exact = torch.layer_norm(data.decode(values), [size])
    assert (out.decode(norm(values, None, None, Norm(size, data, out))) - exact).abs().max() <= 2.0**-9 + 2.0**-12
    exact = torch.rms_norm(data.decode(values), [size], eps=1e-5)
    rms = norm(values, None, None, Norm(size, data, out, centred=False, root_fraction=10))
    assert (out.decode(rms) - exact).abs().max() <= 2.0**-9 + 2.0**-11


def test_a_row_without_variance_gives_the_bias():
    data = FixedPoint(8, 4)
    formats = Norm(4, data, data, bias=data)
    bias = torch.tensor([1, -2, 3, -128])
    assert norm(torch.full((2, 4), 77), None, bias, formats).tolist() == [bias.tolist()] * 2


def test_wide_numbers_leave_fewer_bits_for_the_root_but_never_too_few():
    data = FixedPoint(16, 10)
    formats = Norm.fitting(64, data, data, None, None, True, 1e-5)
    assert 3 <= formats.root_fraction < 8
    assert formats.sum_width + 2 * formats.root_fraction <= 62
    values = integers(16, 50, 64, generator=generator(3))
    exact = torch.layer_norm(data.decode(values), [64])
    assert (data.decode(norm(values, None, None, formats)) - exact).abs().max() <= 2.0**-9
    assert Norm.fitting(64, FixedPoint(8, 4), data).root_fraction == 8
    with pytest.raises(ValueError, match="more than 62"):
        Norm.fitting(512, FixedPoint(20, 10), data)


# The largest and smallest of a row. The truth is a loop over plain lists, and PyTorch's own answer.


@st.composite
def top_ks(draw):
    lanes = draw(st.integers(1, 5))
    size = lanes * draw(st.integers(1, 7))
    return lanes, size, draw(st.integers(1, size)), draw(st.integers(2, 12))


def top_k_rows(number, size, width):
    """Rows of integers, of few different ones, and of equal ones."""
    values = integers(width, ROWS, size, generator=generator(number))
    values[::3] = values[::3].clamp(-2, 1)
    values[1::6] = values[1, 0]
    return values


def top_k_case(number, lanes, size, count, width, smallest, index):
    values, expected = top_k_rows(number, size, width), []
    for row in values.tolist():
        places = sorted(range(size), key=lambda place: (row[place] if smallest else -row[place], place))[:count]
        expected.append(places if index else [row[place] for place in places])
    parameters = {
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": size,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": count,
        "SMALLEST": int(smallest),
        "INDEX": int(index),
    }
    bits = (size - 1).bit_length() + 1 if index else width
    into, out = stream(values, width, lanes), stream(torch.tensor(expected), bits, count)
    return Case("fixed_top_k", parameters, {"data_in_0": into}, {"data_out_0": out})


def test_the_largest_and_smallest_of_rows_are_those_of_their_rule():
    draws = enumerate(drawn(top_ks()))
    Bench([top_k_case(number, *draw, number % 2 == 1, number % 4 > 1) for number, draw in draws]).check_all()


def test_rows_for_their_largest_follow_each_other_at_a_beat_a_cycle():
    sizes = [(1, 8, 3), (4, 16, 5), (4, 4, 4), (1, 1, 1)]
    cases = [top_k_case(n, *each, 8, False, n % 2 == 1) for n, each in enumerate(sizes)]
    for result, (lanes, size, _) in zip(Bench(cases).run(), sizes, strict=True):
        assert result.fine
        assert result.first_cycle == size // lanes + 2, (lanes, size)
        assert result.last_cycle - result.first_cycle == (ROWS - 1) * size // lanes, (lanes, size)


@pytest.mark.parametrize("largest", [True, False])
def test_the_arithmetic_of_the_largest_is_an_answer_of_torch(largest):
    for number, (size, count) in enumerate([(1, 1), (7, 3), (20, 20), (300, 4), (300, 40)]):
        values = top_k_rows(number, size, 10)
        found, places = top_k(values, count, largest)
        wanted = values.topk(count, -1, largest=largest)
        assert torch.equal(found, wanted.values)
        assert torch.equal(values.gather(-1, places), found)
        distinct = values.argsort(-1)  # without ties there is one answer
        assert torch.equal(top_k(distinct, count, largest)[1], distinct.topk(count, -1, largest=largest).indices)


def test_the_largest_by_hand():
    row = torch.tensor([2, 7, -8, 7, 2, 7])
    assert [each.tolist() for each in top_k(row, 4)] == [[7, 7, 7, 2], [1, 3, 5, 0]]
    assert [each.tolist() for each in top_k(row, 4, largest=False)] == [[-8, 2, 2, 7], [2, 0, 4, 1]]


# Blocks that share an exponent. The truth is the quantiser of `mase_server.formats`, in doubles.


@st.composite
def blocks(draw):
    lanes = draw(st.integers(1, 4))
    width = draw(st.integers(2, 20))
    return lanes, lanes * draw(st.integers(1, 6)), width, draw(st.integers(2, width))


def block_values(number, size, width):
    """Blocks of all magnitudes, with zeros, both ends, and ties among them."""
    random = generator(number)
    values = integers(width, 4 * ROWS, size, generator=random)
    values = values >> torch.randint(0, width, (4 * ROWS, 1), generator=random)
    values[::7] = 0
    values[3::7, 1:] //= 2
    return values


def mxint_case(number, lanes, size, width, mantissa, wrong=0):
    """wrong: bits by which the mantissas of the expected numbers are wider."""
    values = block_values(number, size, width)
    expected = MxInt(mantissa + wrong, (size,)).nearest(values.double()).long()
    parameters = {
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "BLOCK_SIZE": size,
        "MANTISSA_WIDTH": mantissa,
    }
    into, out = stream(values, width, lanes), stream(expected, width + 1, lanes)
    return Case("mxint_cast", parameters, {"data_in_0": into}, {"data_out_0": out})


def test_blocks_are_rounded_as_the_quantiser_rounds_them():
    Bench([mxint_case(number, *draw) for number, draw in enumerate(drawn(blocks()))]).check_all()


# Floating point of a few bits. The truth is the quantiser of `mase_server.formats`, in doubles.


@st.composite
def minifloats(draw):
    """A stream, a format whose highest number it holds exactly or does not reach, lanes, and beats of a block."""
    width, fraction, exponent = draw(st.integers(2, 20)), draw(st.integers(-3, 24)), draw(st.integers(2, 8))
    kind = draw(st.sampled_from([MinifloatIeee, MinifloatDenorm, BlockMinifloat]))
    bits, lanes = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    before = FixedPoint(width, fraction)
    if kind is BlockMinifloat:
        exponent, of_bias = draw(st.integers(1, 4)), draw(st.integers(2, 8))
        size = lanes * draw(st.integers(1, 6))
        format = BlockMinifloat(1 + exponent + bits, exponent, of_bias, (size,))
    else:
        size, bias = 0, draw(st.integers(-10, 20)) if exponent < 6 else None
        format = kind(1 + exponent + bits, exponent, bias)
    assume(not Floats.fitting(format, before).missing(before))
    return before, format, lanes, size


def minifloat_case(number, before, format, lanes, size, wrong=0):
    """size: of a block; 0 without any.  wrong: added to the exponent of the smallest step of the component."""
    floats = Floats.fitting(format, before)
    values = block_values(number, size or 6 * lanes, before.width)
    after = floats.out(before)
    numbers = format.nearest(before.decode(values))
    expected = (numbers * 2.0**after.fraction_width).long()
    assert torch.equal(expected.double() * 2.0**-after.fraction_width, numbers)
    low, high = (max(each, 0) for each in floats.tops)
    parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "BLOCK_SIZE": size,
        "MANTISSA_WIDTH": floats.mantissa_width,
        "TOP_LOWEST": low,
        "TOP_HIGHEST": high,
        "SPAN": floats.span - wrong,
        "DROPPED": floats.dropped(before),
        "DATA_OUT_0_PRECISION_0": after.width,
    }
    into, out = stream(values, before.width, lanes), stream(expected, after.width, lanes)
    return Case("minifloat_cast", parameters, {"data_in_0": into}, {"data_out_0": out})


def test_floats_are_rounded_as_the_quantiser_rounds_them():
    Bench([minifloat_case(number, *draw) for number, draw in enumerate(drawn(minifloats()))]).check_all()


@settings(max_examples=300, deadline=None)
@given(minifloats(), st.integers(0, 99))
def test_integers_are_rounded_to_floats_as_the_quantiser_rounds_their_values(draw, number):
    before, format, _, size = draw
    values = block_values(number, size or 8, before.width)
    floats = Floats.fitting(format, before)
    got = round_floats(values, floats, size)
    assert torch.equal(before.decode(got), format.nearest(before.decode(values)))
    assert not floats.is_exact(before) or torch.equal(got, values)
    dropped, after = floats.dropped(before), floats.out(before)
    assert torch.equal(got >> dropped << dropped, got)
    assert int((got >> dropped).abs().max()) < 1 << (after.width - 1)


FLOATS = (
    (FixedPoint(9, 6), MinifloatIeee(5, 2)),
    (FixedPoint(9, 4), MinifloatIeee(6, 3, 4)),
    (FixedPoint(9, 4), MinifloatDenorm(5, 3)),
    (FixedPoint(9, 8), MinifloatDenorm(4, 2, 1)),
    (FixedPoint(9, 8), MinifloatIeee(8, 4)),
)


def test_every_number_of_a_format_is_rounded_as_the_quantiser_rounds_it():
    Bench(
        [
            replace(case, **_every_number(before, format))
            for before, format in FLOATS
            for case in [minifloat_case(0, before, format, 1, 0)]
        ]
    ).check()


def _every_number(before, format):
    values, after = torch.arange(-256, 256)[:, None], Floats.fitting(format, before).out(before)
    expected = (format.nearest(before.decode(values)) * 2.0**after.fraction_width).long()
    return {
        "inputs": {"data_in_0": stream(values, before.width, 1)},
        "outputs": {"data_out_0": stream(expected, after.width, 1)},
    }


def test_floats_take_as_many_cycles_as_their_contract_says():
    sizes = ((1, 0), (4, 0), (1, 8), (2, 8), (8, 8), (2, 4))
    formats = (MinifloatIeee(6, 3), BlockMinifloat(6, 3))
    cases = [
        minifloat_case(n, FixedPoint(12, 6), formats[size > 0], lanes, size) for n, (lanes, size) in enumerate(sizes)
    ]
    for result, (lanes, size) in zip(Bench(cases).run(), sizes, strict=True):
        assert result.fine
        assert result.first_cycle == (size // lanes + 8 if size else 6), (lanes, size)
        assert result.last_cycle - result.first_cycle == 4 * ROWS * (size // lanes or 6) - 1, (lanes, size)


def test_every_pair_of_small_numbers_is_rounded_as_the_quantiser_rounds_it():
    pairs = torch.cartesian_prod(torch.arange(-64, 64), torch.arange(-64, 64))
    for width in range(2, 9):
        wanted = MxInt(width, (2,)).nearest(pairs.double()).long()
        assert torch.equal(round_blocks(pairs, width, 2), wanted)


def test_blocks_by_hand():
    # Integers of 4 bits, up to 7. The largest of the first block is at least 64, so its steps are of 16; -15 saturates.
    given = [[100, 24, 40, -8, 7], [127, -128, 0, 16, 48], [6, -7, 1, 0, 3], [0, 0, 0, 0, 0], [8, 9, 11, -15, 1]]
    wanted = [[96, 32, 32, 0, 0], [128, -128, 0, 0, 64], [6, -7, 1, 0, 3], [0, 0, 0, 0, 0], [8, 8, 12, -14, 0]]
    assert round_blocks(torch.tensor(given), 4, 5).tolist() == wanted


def test_blocks_take_a_beat_a_cycle_with_the_latency_of_the_contract():
    sizes = [(1, 8), (4, 16), (2, 32), (4, 4)]
    for result, (lanes, size) in zip(
        Bench([mxint_case(n, *each, 16, 8) for n, each in enumerate(sizes)]).run(), sizes, strict=True
    ):
        assert result.fine
        assert result.first_cycle == size // lanes + 7, (lanes, size)
        assert result.last_cycle - result.first_cycle == 4 * ROWS * size // lanes - 1, (lanes, size)
