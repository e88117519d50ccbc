"""Softmax and norms: whole rows."""

import torch
from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import exp_table, softmax
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import stream
from tests.rtl.draws import drawn, generator, integers

ROWS = 24
NARROW = st.builds(FixedPoint, st.integers(2, 9), st.integers(-1, 7))
RESULTS = st.builds(FixedPoint, st.integers(2, 14), st.integers(0, 13))


@st.composite
def softmaxes(draw):
    lanes = draw(st.integers(1, 4))
    return lanes, lanes * draw(st.integers(1, 7)), draw(NARROW), draw(RESULTS), draw(st.integers(4, 16))


def softmax_case(number, lanes, size, data, out, exp_fraction):
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
    return Case(
        "fixed_softmax",
        parameters,
        {"data_in_0": stream(values, data.width, lanes)},
        {"data_out_0": stream(softmax(values, data, out, exp_fraction), out.width, lanes)},
        {"FILE": (exp_fraction + 1, exp_table(data, exp_fraction).tolist())},
    )


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
        assert result.first_cycle == 2 * beats + 7 + out.fraction_width, (lanes, size)
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
