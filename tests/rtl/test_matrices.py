"""Products of two streams, transposition, and the order of heads."""

from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, matmul
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import precision, stream
from tests.rtl.draws import drawn, generator, integers

MATRICES = 5
FORMATS = st.builds(FixedPoint, st.integers(2, 10), st.integers(-2, 9))


@st.composite
def products(draw):
    lanes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    sizes = draw(st.integers(1, 5)), lanes[0] * draw(st.integers(1, 4)), lanes[1] * draw(st.integers(1, 4))
    return (
        Affine(draw(FORMATS), draw(FORMATS), None, draw(FORMATS), draw(st.booleans()), draw(st.booleans())),
        sizes,
        lanes,
    )


def product(number, formats, sizes, lanes):
    rows, ins, outs = sizes
    random = generator(number)
    left = integers(formats.data.width, MATRICES, rows, ins, generator=random)
    right = integers(formats.weight.width, MATRICES, outs, ins, generator=random)
    parameters = {
        **precision("DATA_IN_0", formats.data),
        **precision("DATA_IN_1", formats.weight),
        **precision("DATA_OUT_0", formats.out),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": ins,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes[0],
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": outs,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes[1],
        "FLOOR": int(formats.floor),
        "RELU": int(formats.relu),
    }
    streams = {
        "data_in_0": stream(left, formats.data.width, lanes[0]),
        "data_in_1": stream(right, formats.weight.width, lanes[0]),
    }
    expected = stream(matmul(left, right, formats), formats.out.width, lanes[1])
    return Case("fixed_matmul", parameters, streams, {"data_out_0": expected})


def test_matmul_is_its_arithmetic():
    Bench([product(number, *draw) for number, draw in enumerate(drawn(products()))]).check_all()


def test_matrices_follow_each_other_without_a_gap():
    wide = FixedPoint(8, 4)
    formats = Affine(wide, wide, None, wide)
    shapes = [((8, 16, 8), (4, 2)), ((6, 8, 12), (2, 4)), ((16, 4, 4), (4, 4))]
    for result, ((rows, ins, outs), lanes) in zip(
        Bench([product(number, formats, *shape) for number, shape in enumerate(shapes)]).run(), shapes, strict=True
    ):
        cycles = rows * (ins // lanes[0]) * (outs // lanes[1])
        first_matrix = outs * ins // lanes[0]  # until it has arrived
        assert result.fine
        assert result.last_cycle <= 1.02 * MATRICES * cycles + first_matrix + 30


@st.composite
def transpositions(draw):
    lanes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return lanes, lanes[1] * draw(st.integers(1, 4)), lanes[0] * draw(st.integers(1, 4)), draw(st.integers(1, 12))


def transposition(number, lanes, rows, columns, width):
    values = integers(max(width, 2), MATRICES, rows, columns, generator=generator(number))
    width = max(width, 2)
    parameters = {
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes[0],
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes[1],
        "ROWS": rows,
        "COLUMNS": columns,
    }
    out = stream(values.transpose(1, 2), width, lanes[1])
    return Case("swap_buffer", parameters, {"data_in_0": stream(values, width, lanes[0])}, {"data_out_0": out})


def test_transposition_swaps_rows_and_columns():
    Bench([transposition(number, *draw) for number, draw in enumerate(drawn(transpositions()))]).check_all()


def swap(number, rows, columns, beats, lanes):
    values = integers(8, MATRICES, rows, columns, beats * lanes, generator=generator(number))
    parameters = {
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes,
        **{"ROWS": rows, "COLUMNS": columns, "BEATS": beats, "TRANSPOSE": 0},
    }
    out = stream(values.transpose(1, 2), 8, lanes)
    return Case("swap_buffer", parameters, {"data_in_0": stream(values, 8, lanes)}, {"data_out_0": out})


def test_heads_are_split_and_joined():
    sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
    Bench([swap(number, *draw) for number, draw in enumerate(drawn(sizes))]).check_all()
