"""GRU and LSTM: the component is its arithmetic, in the cycles of its contract."""

from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Recurrent, recurrent
from mase_server.hardware.memories import words_of_bias, words_of_weight
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import precision, stream
from tests.rtl.draws import drawn, generator, integers

SEQUENCES = 4
#: A GRU and an LSTM.
FORMATS = [Recurrent.fitting(is_lstm, 8, FixedPoint(8, 6), FixedPoint(8, 5)) for is_lstm in (False, True)]
NARROW = st.builds(FixedPoint, st.integers(2, 9), st.integers(0, 8))


@st.composite
def units_of(draw):
    """Formats of results: numbers up to one have to fit."""
    width = draw(st.integers(8, 16))
    return FixedPoint(width, draw(st.integers(5, width - 1)))


@st.composite
def layers(draw):
    gates = draw(st.sampled_from([3, 4]))
    lanes, hidden_lanes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    units = lanes * hidden_lanes * draw(st.integers(1, 3))
    outs = gates * lanes if lanes > 1 else draw(st.sampled_from([each for each in (1, 2, gates) if gates % each == 0]))
    formats = Recurrent(
        gates == 4,
        draw(NARROW),
        draw(NARROW),
        draw(st.one_of(st.none(), NARROW)),
        draw(st.builds(FixedPoint, st.integers(6, 16), st.integers(2, 11))),
        draw(st.integers(5, 9)),
        draw(units_of()),
        draw(st.builds(FixedPoint, st.integers(6, 16), st.integers(3, 15))),
    )
    return formats, draw(st.integers(1, 5)), units, (hidden_lanes, outs, lanes), draw(st.booleans())


def sequences(number, formats, steps, units):
    """Parts of gates, weights, biases and results."""
    random, rows = generator(number), units * formats.gates
    parts = integers(formats.parts.width, SEQUENCES, steps, rows, generator=random)
    parts[1:] = parts[1:] // 8
    weight = integers(formats.weight.width, rows, units, generator=random)
    bias = None if formats.bias is None else integers(formats.bias.width, rows, generator=random)
    return parts, weight, bias, recurrent(parts, weight, bias, formats)


def layer_parameters(formats, steps, units, lanes, serial):
    """lanes: of the last result, of its gates, and of the results.  serial: without multipliers for gates and state."""
    lanes_in, lanes_gates, lanes_out = lanes
    return {
        "LSTM": int(formats.is_lstm),
        "SERIAL": int(serial),
        **precision("DATA_IN_0", formats.parts),
        **precision("HIDDEN", formats.hidden),
        "HIDDEN_PARALLELISM_DIM_0": lanes_in,
        "GATES_PARALLELISM_DIM_0": lanes_gates,
        **precision("WEIGHT", formats.weight),
        "HAS_BIAS": int(formats.bias is not None),
        **precision("BIAS", formats.bias or formats.weight),
        "ARGUMENT_WIDTH": formats.argument,
        **precision("CELL", formats.cell),
        **precision("DATA_OUT_0", formats.unit),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": units,
        "DATA_OUT_0_TENSOR_SIZE_DIM_1": steps,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes_out,
    }


def tables(formats):
    return {
        "SIGMOID_FILE": (formats.unit.width, words_of_bias(formats.sigmoid_words, formats.unit.width, 1)),
        "TANH_FILE": (formats.unit.width, words_of_bias(formats.tanh_words, formats.unit.width, 1)),
    }


def layer(number, formats, steps, units, lanes, serial=False):
    """lanes, serial: as above."""
    parts, weight, bias, expected = sequences(number, formats, steps, units)
    (lanes_in, lanes_gates, lanes_out), width = lanes, formats.weight.width
    memories = {
        "WEIGHT_FILE": (width * lanes_in * lanes_gates, words_of_weight(weight, width, lanes_in, lanes_gates)),
        **tables(formats),
    }
    if bias is not None:
        width = formats.bias.width
        memories["BIAS_FILE"] = (width * lanes_gates, words_of_bias(bias, width, lanes_gates))
    into = stream(parts, formats.parts.width, formats.gates * lanes_out)
    return Case(
        "fixed_recurrent",
        layer_parameters(formats, steps, units, lanes, serial),
        {"data_in_0": into},
        {"data_out_0": stream(expected, formats.unit.width, lanes_out)},
        memories,
    )


def test_recurrent_layers_are_their_arithmetic():
    draws = drawn(layers())
    assert len({(formats.is_lstm, serial) for formats, *_, serial in draws}) == 4
    Bench([layer(number, *draw) for number, draw in enumerate(draws)]).check_all()


def test_a_step_begins_when_the_one_before_is_whole():
    steps, units = 5, 8
    draws = [(formats, serial) for formats in FORMATS for serial in (False, True)]
    cases = [
        layer(number, formats, steps, units, (1, formats.gates, 1), serial)
        for number, (formats, serial) in enumerate(draws)
    ]
    for result, (formats, serial) in zip(Bench(cases).run(), draws, strict=True):
        assert result.fine
        # Behind the last product of a step: fixed_linear, the gates in turn, the cell, and the way back.
        bits = 2 * (formats.unit.width + 1) if serial else 0
        unit = 14 + bits if serial else units
        step = (units - 1) * unit + formats.gates + 23 + bits
        last = (units - 1) * unit
        assert result.last_cycle - result.first_cycle == (SEQUENCES * steps - 1) * step + last
