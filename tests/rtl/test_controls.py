"""Every component is compared on its own or within another one; a comparison sees every mistake; ends are reached."""

import re
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.formats.minifloat import MinifloatIeee
from mase_server.hardware.arithmetic import Affine, Norm, Windows
from mase_server.hardware.verilog import find_components
from tests.rtl import test_elements as elements
from tests.rtl import test_images as images
from tests.rtl import test_linear as layers
from tests.rtl import test_matrices as matrices
from tests.rtl import test_outside as outside
from tests.rtl import test_parts as parts
from tests.rtl import test_recurrent as recurrent
from tests.rtl import test_rows as rows
from tests.rtl import test_shared as sharing
from tests.rtl import test_streams as streams
from tests.rtl.bench import Bench
from tests.rtl.build import RTL
from tests.rtl.test_gather import gather

DATA, NARROW = FixedPoint(8, 4), FixedPoint(6, 3)
PLAIN = Affine(DATA, FixedPoint(8, 6), FixedPoint(16, 10), NARROW)
PRODUCT = Affine(DATA, DATA, None, NARROW)
KERNEL = Windows((3, 2), (1, 2), (1, 1))
SHAPE = (4, 6, 7)


def word(name, case):
    """The case with all bits of one word of a memory the other way."""
    width, words = case.memories[name]
    wrong = words[0] ^ ((1 << width) - 1)
    return replace(case, memories={**case.memories, name: (width, [wrong, *words[1:]])})


def but(case, **parameters):
    """The case with other parameters than its expected beats were computed for."""
    assert parameters.keys() <= case.parameters.keys()
    return replace(case, parameters={**case.parameters, **parameters})


def written(case, right, wrong):
    """The case with a mistake in the text that instantiates the component."""
    assert right in case.body + case.made
    return replace(case, body=case.body.replace(right, wrong), made=case.made.replace(right, wrong))


def _with_flipped_mask():
    case = rows.softmax_case(5, 2, 8, DATA, FixedPoint(9, 8), 14, 3)
    return word("MASK_FILE", case)


def _shared():
    """A linear layer and a convolution, with an engine whose lanes divide no size of theirs."""
    return sharing.shared(1, (3, 2), ((PLAIN, None, (7,), 5, 1), (PLAIN, KERNEL, SHAPE, 5, 1)), 0)


def _shared_product():
    """The same with a product of two streams in place of the linear layer."""
    return sharing.shared(1, (3, 2), ((PRODUCT, 3, (7,), 5, 1), (PLAIN, KERNEL, SHAPE, 5, 1)), 0)


def _shared_chain():
    """The same with a recurrent layer that has no multipliers."""
    chain = sharing.chain(recurrent.FORMATS[0], 3, 4, 1, True)
    return sharing.shared(1, (3, 2), (chain, (PLAIN, KERNEL, SHAPE, 5, 1)), 0)


_SWAPPED = "engine (.clk, .rst, .request({{request[0], request[1]}}),"


#: The mistake -> a case that has it. Names begin with the component's.
WRONG = {
    "fixed_dot_core: weights of another fraction": lambda: but(
        layers.layer(1, PLAIN, 8, 4, (4, 2)), WEIGHT_PRECISION_1=5
    ),
    "fixed_cast: rounds down": lambda: but(layers.cast(1, DATA, NARROW, 2, False, False), FLOOR=1),
    "fixed_cast: saturates elsewhere": lambda: but(
        layers.cast(2, FixedPoint(10, 3), NARROW, 2, False, False), DATA_IN_0_PRECISION_1=2
    ),
    "fixed_add: subtracts": lambda: but(elements.sum_case(1, DATA, DATA, NARROW, 2, False, False, False), SUBTRACT=1),
    "fixed_multiply: keeps what is negative": lambda: but(
        elements.product_case(1, DATA, DATA, NARROW, 2, False, True), RELU=0
    ),
    "fixed_table: a wrong word": lambda: word("FILE", elements.look_up_case(1, functional.gelu, NARROW, NARROW, 1)),
    "mxint_linear: another mantissa": lambda: but(
        layers.mxint_layer(1, replace(PLAIN, data=FixedPoint(12, 8), out=FixedPoint(20, 10)), 8, 4, (4, 2), 6),
        MANTISSA_WIDTH=5,
    ),
    "constant_linear: rounds elsewhere": lambda: written(
        layers.constant_layer(1, PLAIN, 8, 4, True, 4), ".DATA_OUT_0_PRECISION_1(3)", ".DATA_OUT_0_PRECISION_1(4)"
    ),
    "mxint_cast: another step": lambda: rows.mxint_case(1, 2, 8, 12, 5, wrong=1),
    "mxint_cast, block_maximum: blocks of half the size": lambda: but(rows.mxint_case(1, 2, 8, 12, 5), BLOCK_SIZE=4),
    "minifloat_cast: another smallest step": lambda: rows.minifloat_case(
        1, FixedPoint(12, 6), MinifloatIeee(6, 3), 2, 0, wrong=1
    ),
    "fixed_linear, bias_memory: another bias": lambda: word("BIAS_FILE", layers.layer(1, PLAIN, 4, 4, (2, 2))),
    "fixed_linear_core, rom: another weight": lambda: word("WEIGHT_FILE", layers.layer(1, PLAIN, 4, 4, (2, 1))),
    "fixed_conv2d: rounds down": lambda: but(images.convolution(1, KERNEL, SHAPE, 4, 2, (2, 1), PLAIN), FLOOR=1),
    "fixed_conv2d, padded_windows: a border on the other side": lambda: but(
        images.convolution(1, KERNEL, SHAPE, 4, 1, (2, 2), PLAIN, (3, 2)), PADDING_LEFT=2, PADDING_RIGHT=0
    ),
    "fixed_engine: the other layer is granted": lambda: written(_shared(), "engine (.clk, .rst, .request,", _SWAPPED),
    "shared_core, shared_linear: rounds down": lambda: written(_shared(), ".FLOOR(0)", ".FLOOR(1)"),
    "shared_matmul: another number of rows": lambda: written(
        _shared_product(), ".DATA_IN_0_TENSOR_SIZE_DIM_1(3)", ".DATA_IN_0_TENSOR_SIZE_DIM_1(4)"
    ),
    "shared_recurrent: a step fewer": lambda: written(
        _shared_chain(), ".DATA_OUT_0_TENSOR_SIZE_DIM_1(3)", ".DATA_OUT_0_TENSOR_SIZE_DIM_1(2)"
    ),
    "shared_conv2d: a column further": lambda: written(_shared(), ".PADDING_LEFT(1)", ".PADDING_LEFT(2)"),
    "sliding_window: taps side by side": lambda: but(
        images.window(1, (2, 7, 7), 1, Windows((2, 2), dilation=(2, 2)), 1, 1, 3), DILATION_WIDTH=1
    ),
    "parallel_window: strides swapped": lambda: but(
        parts.parallel_window(1, (2, 6, 6), 1, Windows((2, 2), (1, 2)), 1, 1, 2, 3), STRIDE_HEIGHT=2, STRIDE_WIDTH=1
    ),
    "line_taps: a window's lines side by side": lambda: but(parts.line_taps(1, 8, 3, 6, 2, 1, 2), DILATION=1),
    "image_padding: the lowest in place of 0": lambda: but(
        images.padding(1, 6, SHAPE, 2, (1, 0, 2, 1), False), LOWEST=1
    ),
    "fixed_max_pool2d: a row further": lambda: but(
        images.max_pool(1, Windows((2, 2), (2, 2), (1, 1)), SHAPE, 2, DATA, DATA), PADDING_TOP=0, PADDING_BOTTOM=2
    ),
    "fixed_average_pool2d: half of it": lambda: but(
        images.average_pool(1, Windows((2, 2), (2, 2)), SHAPE, 2, DATA, DATA), DATA_IN_0_PRECISION_1=5
    ),
    "fixed_recurrent, recurrent_loop: a step fewer": lambda: but(
        recurrent.layer(1, recurrent.FORMATS[0], 3, 4, (2, 3, 1)), DATA_OUT_0_TENSOR_SIZE_DIM_1=2
    ),
    "recurrent_cell: a cell of another fraction": lambda: but(
        recurrent.layer(2, recurrent.FORMATS[1], 3, 4, (2, 4, 1)), CELL_PRECISION_1=10
    ),
    "recurrent_cell: bit by bit, a cell of another fraction": lambda: but(
        recurrent.layer(2, recurrent.FORMATS[1], 3, 4, (2, 4, 1), True), CELL_PRECISION_1=10
    ),
    "fixed_reduce: two positions at once": lambda: but(parts.reduce(1, 8, 2, 2, True, 1), COUNT=2),
    "fixed_top_k: the smallest": lambda: but(rows.top_k_case(1, 2, 6, 3, 8, False, True), SMALLEST=1),
    "fixed_mean: another divisor": lambda: but(images.mean_case(6, 8, DATA), DIVISOR=7),
    "fixed_matmul: relu": lambda: but(matrices.product(1, PRODUCT, (3, 4, 4), (2, 2)), RELU=1),
    "fixed_matmul, bank_buffer: rows as columns": lambda: but(
        matrices.product(1, PRODUCT, (2, 4, 4), (2, 2)), DATA_IN_0_TENSOR_SIZE_DIM_1=4
    ),
    "swap_buffer: rows as columns": lambda: but(matrices.transposition(1, (1, 1), 2, 6, 8), ROWS=6, COLUMNS=2),
    "stream_gather: a beat from elsewhere": lambda: word("FILE", gather(1, 8, 4, (3, 0, 0, 2))),
    "fixed_softmax: a wrong power": lambda: word("FILE", rows.softmax_case(1, 2, 6, DATA, FixedPoint(9, 8), 4)),
    "fixed_softmax: another is left out": _with_flipped_mask,
    "row_statistic: a row of half the beats": lambda: written(
        parts.row_statistic(1, 8, 2, 4, True), ".BEATS(4)", ".BEATS(2)"
    ),
    "fixed_row_reduce: half a row": lambda: but(parts.row_reduce(1, 8, 1, 4, True), BEATS=2),
    "fixed_divide: another rounding": lambda: written(
        parts.divide(1, 6, 6, 4, 6, 9), ".denominator,", ".denominator(denominator ^ 1'b1),"
    ),
    "fixed_product: another sign": lambda: written(
        parts.product(1, 20, 8, False), ".data_in_0(left)", ".data_in_0(~left)"
    ),
    "stream_hold: a beat too long": lambda: written(parts.hold(1, 8, 3), ".COUNT(3)", ".COUNT(4)"),
    "fixed_norm: without the mean": lambda: but(rows.norm_case(1, 2, Norm(8, DATA, DATA)), MEAN=0),
    "serial_multiply: another sign": lambda: written(
        parts.serial_product(1, 8, 6, 2, 3), ".data_in_1(other)", ".data_in_1(~other)"
    ),
    "fixed_root: another mean": lambda: but(parts.root(1, 12, 5, 2, 1), COUNT=4),
    "embedding: a wrong row": lambda: word("FILE", streams.embeddings()[0]),
    "constant_stream: a wrong constant": lambda: word("FILE", streams.constants()[0]),
    "stream_concat: parts swapped": lambda: but(_uneven(streams.concats()), DATA_IN_0_BEATS=9),
    "stream_split: parts swapped": lambda: but(_uneven(streams.splits()), DATA_OUT_0_BEATS=9),
    "round_robin_split: a beat more": lambda: written(
        streams.in_turn(1, 9, 3, 4),
        "round_robin_split #(.COUNT(3), .BEATS(4))",
        "round_robin_split #(.COUNT(3), .BEATS(5))",
    ),
    "round_robin_merge: a beat fewer": lambda: written(
        streams.in_turn(1, 9, 3, 4), ".COUNT(3), .BEATS(4)) merge_0", ".COUNT(3), .BEATS(3)) merge_0"
    ),
    "stream_fork: another consumer's beat": lambda: written(
        streams.fork(1, 9, 3), "assign {data_out_1} = {data_in_0}", "assign {data_out_1} = ~{data_in_0}"
    ),
    "stream_join: one input is not waited for": lambda: written(
        streams.join(1, 9, 2), "join_0 (.data_in_0_valid({{{data_in_1_valid}", "join_0 (.data_in_0_valid({{1'b1"
    ),
    "width_converter: an element too wide": lambda: but(streams.converter(1, 8, 2, 3), DATA_IN_0_PRECISION_0=7),
    "width_upsizer: one beat more": lambda: but(parts.upsizer(1, 8, 3), RATIO=4),
    "width_downsizer: one beat fewer": lambda: but(parts.downsizer(1, 8, 3), RATIO=2),
    "repeat_buffer: once too often": lambda: but(streams.repeated(1, 8, 3, 2, 2), COUNT=3),
    "axi_stream: no sign": lambda: written(streams.on_axi(1, 9, 3, 5, True, 32), ".SIGNED(1)", ".SIGNED(0)"),
    "axi_registers: packets may not begin": lambda: written(
        streams.on_axi(1, 9, 3, 5, True, 32), ".ENABLED(1)", ".ENABLED(0)"
    ),
    "axi_reader: a beat fewer": lambda: written(outside.reader(1, (21,), 64, 4), "{{32'd21}}", "{{32'd20}}"),
    "streamed_linear: fewer vectors at a time": lambda: but(
        outside.outside(layers.layer(1, PLAIN, 8, 4, (4, 2)), 3, 64), ROWS=1
    ),
    "streamed_conv2d: another bias": lambda: word(
        "BIAS_FILE", outside.outside(images.convolution(1, KERNEL, SHAPE, 4, 1, (2, 2), PLAIN), 2, 32)
    ),
    "skid_buffer: a bit is lost": lambda: but(streams.through("skid_buffer", 1, 9), DATA_WIDTH=8),
    "fifo: a bit is lost": lambda: but(streams.through("fifo", 1, 9, DEPTH=3), DATA_WIDTH=8),
}


@pytest.fixture(scope="module")
def noticed():
    """The mistakes that the comparison saw, all in one program."""
    cases = {name: make() for name, make in WRONG.items()}
    results = Bench(list(cases.values())).run("--stall", 30, "--patience", 2000)
    return {name for name, case in cases.items() if any(each.case is case and not each.fine for each in results)}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_noticed(noticed, mistake):
    assert mistake in noticed


def _in_memory():
    """Each component that has a `ram`, in the shape in which it has one."""
    return {
        "bank_buffer": matrices.product(1, PRODUCT, (2, 4, 4), (2, 2)),
        "fifo": streams.through("fifo", 1, 9, DEPTH=40),
        "fixed_reduce": parts.reduce(1, 8, 2, 5, True, 3),
        "line_taps": parts.line_taps(1, 8, 3, 6, 2, 1, 2),
        "recurrent_cell": recurrent.layer(2, recurrent.FORMATS[1], 3, 4, (2, 4, 1)),
        "repeat_buffer": streams.repeated(1, 8, 3, 2, 2),
        "sliding_window": images.window(1, (2, 7, 7), 1, Windows((2, 2), dilation=(2, 2)), 1, 1, 3),
    }


def test_no_component_uses_a_word_that_is_read_while_it_is_written(tmp_path):
    """The macro of a memory may give anything for it."""
    cases, wrong = _in_memory(), tmp_path / "ram.sv"
    assert {*cases} == {path.stem for path in RTL.glob("*.sv") if re.search(r"^ *ram #\(", path.read_text(), re.M)}
    text, read = (RTL / "ram.sv").read_text(), "words[read_address]"
    assert text.count(read) == 1
    wrong.write_text(text.replace(read, f"{read} ^ {{DATA_WIDTH{{write && write_address == read_address}}}}"))
    Bench(list(cases.values()), replaced={"ram": wrong}).check_all()


def test_only_wrappers_hold_memories():
    """So a macro takes the place of one file. Two arrays are a few registers: their elements have a name each."""
    arrays = re.compile(r"^ *logic (?:signed )?(?:\[.*?\] )?(\w+)\[[^:\]]+\];", re.M)
    found = {(path.stem, name) for path in RTL.glob("*.sv") for name in arrays.findall(path.read_text())}
    registers = {("skid_buffer", "beats"), ("recurrent_cell", "sigmoids")}
    assert found == {("ram", "words"), ("register_file", "words"), ("rom", "memory")} | registers


def named():
    """The components that the names of mistakes begin with."""
    return {each for name in WRONG for each in name.split(":")[0].split(", ")}


#: Components without streams of their own -> those that are compared and stand on them.
INSIDE = {
    "adder_tree": "fixed_linear",
    "awaited_product": "recurrent_cell",
    "fixed_mac": "fixed_linear",
    "fixed_requantise": "fixed_cast",
    "fixed_round": "fixed_cast",
    "fixed_saturate": "fixed_linear",
    "loop_counter": "sliding_window",
    "multiplier": "fixed_product",
    "ram": "repeat_buffer",
    "register_file": "fifo",
}


def test_no_component_is_without_a_control():
    assert {path.stem for path in RTL.glob("*.sv")} == named() | set(INSIDE)
    assert named() & set(INSIDE) == set()
    assert set(INSIDE.values()) <= named()
    assert [part for part, whole in INSIDE.items() if RTL / f"{part}.sv" not in find_components(whole)] == []


#: Components that saturate -> the cases that they are compared in.
SATURATING = {
    "fixed_cast": lambda: parts.numbered(layers.cast, WIDE_CASTS),
    "fixed_add": lambda: parts.numbered(elements.sum_case, st.tuples(*elements.OPERANDS, st.booleans())),
    "fixed_multiply": lambda: parts.numbered(elements.product_case, st.tuples(*elements.OPERANDS, st.booleans())),
    "fixed_linear": lambda: parts.numbered(layers.layer, layers.layers()),
    "fixed_conv2d": lambda: parts.numbered(images.convolution, images.convolutions()),
    "fixed_average_pool2d": lambda: parts.numbered(images.average_pool, images.pools()),
    "fixed_matmul": lambda: parts.numbered(matrices.product, matrices.products()),
    "fixed_norm": lambda: parts.numbered(rows.norm_case, rows.norms()),
}
WIDE_CASTS = st.tuples(layers.WIDE, layers.WIDE, st.integers(1, 5), st.booleans(), st.booleans())


def at_the_ends(case):
    """The share of an output's integers that are the lowest and the highest of its format."""
    (out,), width = case.outputs.values(), case.parameters["DATA_OUT_0_PRECISION_0"]
    integers = [beat >> at & ((1 << width) - 1) for beat in out.beats for at in range(0, out.width, width)]
    low, high = 1 << (width - 1), (1 << (width - 1)) - 1
    return integers.count(low) / len(integers), integers.count(high) / len(integers)


@pytest.mark.parametrize("name", SATURATING)
def test_the_drawn_cases_saturate_at_both_ends(name):
    """Of formats with so many integers that chance alone is not at the ends that often."""
    shares = [at_the_ends(case) for case in SATURATING[name]() if case.parameters["DATA_OUT_0_PRECISION_0"] >= 4]
    assert sum(low > 0.1 for low, _ in shares) >= 2
    assert sum(high > 0.1 for _, high in shares) >= 2


def _uneven(cases):
    return next(case for case in cases if 9 not in case.parameters.values())
