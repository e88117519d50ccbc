"""What stands inside of other components, alone: lines of images, rows, quotients, roots, and beats made wider."""

import itertools
import math
from fractions import Fraction

import torch
from hypothesis import strategies as st

from mase_server.hardware.arithmetic import Windows
from tests.rtl.bench import Bench, Case, Stream
from tests.rtl.build import RTL, run
from tests.rtl.designs import dilation, image_sizes, image_stream, kernel_sizes, stream
from tests.rtl.draws import drawn, generator, integers
from tests.rtl.test_images import kernels, pixels

FRAMES = 4


def numbered(make, strategy):
    """Cases of a strategy's draws, each with a number of its own."""
    return [make(number, *draw) for number, draw in enumerate(drawn(strategy))]


@st.composite
def lines(draw):
    taps, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = (taps - 1) * dilation + draw(st.integers(1, 6))
    return draw(st.integers(1, 20)), draw(st.integers(1, 5)), count, taps, draw(st.integers(1, 4)), dilation


def line_taps(number, width, length, count, taps, stride, dilation):
    """By plain loops over the last lines of windows."""
    values = torch.randint(0, 1 << width, (FRAMES, count, length), generator=generator(number)).tolist()
    before = (taps - 1) * dilation
    expected = [
        sum(frame[last - before + tap * dilation][at] << (tap * width) for tap in range(taps))
        for frame in values
        for last in range(before, count, stride)
        for at in range(length)
    ]
    parameters = {"DATA_WIDTH": width, "LENGTH": length, "LINES": count, "TAPS": taps, "STRIDE": stride}
    into = Stream(width, [beat for frame in values for line in frame for beat in line])
    outs = {"data_out_0": Stream(taps * width, expected)}
    return Case("line_taps", {**parameters, "DILATION": dilation}, {"data_in_0": into}, outs)


def test_a_beat_comes_beside_those_of_the_lines_before_it():
    Bench(numbered(line_taps, lines())).check_all()


@st.composite
def windows(draw):
    kernel, strides, dilation, size = draw(kernels())
    lanes, groups = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    channels = lanes * groups * draw(st.integers(1, 2))
    columns = draw(st.sampled_from([1, kernel[1]]))
    place = Windows(kernel, strides, (0, 0), dilation)
    return (channels, *size), lanes, place, groups, draw(st.integers(1, 3)), columns, draw(st.integers(0, 5))


def by_columns(values, lanes, place, groups, count, columns):
    """All windows by plain loops: windows, groups, repetitions, columns if they come alone, channels.

    A beat is columns, rows, lanes.
    """
    found = []
    _, channels, height, width = values.shape
    (tall, wide), (down, right), each = place.reach, place.dilation, channels // groups
    corners = itertools.product(
        range(0, height - tall + 1, place.stride[0]), range(0, width - wide + 1, place.stride[1])
    )
    for image, (row, column), group in itertools.product(values, list(corners), range(groups)):
        part = image[group * each : (group + 1) * each, row : row + tall : down, column : column + wide : right]
        beats = part.reshape(each // lanes, lanes, *part.shape[1:])
        order = (0, 3, 2, 1) if columns > 1 else (3, 0, 2, 1)
        found += [beats.permute(order).reshape(-1)] * count
    return torch.cat(found)


def parallel_window(number, shape, lanes, place, groups, count, columns, spare):
    values = pixels(number, 6, shape)
    parameters = {
        **image_sizes(6, shape, lanes),
        **kernel_sizes(place),
        **dilation(place),
        **{"KERNEL_PARALLELISM_DIM_0": columns, "GROUPS": groups, "COUNT": count, "SPARE": spare},
    }
    wanted = by_columns(values, lanes, place, groups, count, columns)
    out = stream(wanted, 6, columns * place.kernel[0] * lanes)
    return Case("parallel_window", parameters, {"data_in_0": image_stream(values, 6, lanes)}, {"data_out_0": out})


def test_windows_come_by_columns_or_whole():
    cases = numbered(parallel_window, windows())
    assert {case.parameters["KERNEL_PARALLELISM_DIM_0"] > 1 for case in cases} == {True, False}
    Bench(cases).check_all()


ROWS = st.tuples(st.integers(2, 12), st.integers(1, 5), st.integers(1, 6), st.booleans())


def statistic_of(values, lanes, beats, maximum):
    """(the number of each row, its bits)."""
    bits = (beats - 1).bit_length() + (lanes - 1).bit_length()
    return (values.amax(-1), 0) if maximum else (values.sum(-1), bits)


def row_reduce(number, width, lanes, beats, maximum):
    values = integers(width, 30, beats * lanes, generator=generator(number))
    found, more = statistic_of(values, lanes, beats, maximum)
    parameters = {"DATA_IN_0_PRECISION_0": width, "DATA_IN_0_PARALLELISM_DIM_0": lanes, "BEATS": beats}
    ins, outs = {"data_in_0": stream(values, width, lanes)}, {"data_out_0": stream(found, width + more, 1)}
    return Case("fixed_row_reduce", {**parameters, "MAXIMUM": int(maximum)}, ins, outs)


def test_a_row_gives_one_number():
    Bench(numbered(row_reduce, ROWS)).check_all()


# The wires of a port are a part of a longer vector: parts of parts have to be written with names.
STATISTIC = """logic [{row} + {found} - 1:0] beside; assign {{data_out_0}} = beside;
row_statistic #(.DATA_IN_0_PRECISION_0({width}), .DATA_IN_0_PARALLELISM_DIM_0({lanes}), .BEATS({beats}),
  .MAXIMUM({maximum}), .REDUCED_PRECISION({width})) rows (.clk, .rst, .data_in_0({{data_in_0}}),
  .reduced({{data_in_0}}), .data_in_0_valid({{data_in_0_valid}}), .data_in_0_ready({{data_in_0_ready}}),
  .data_out_0(beside[{row} - 1:0]), .statistic(beside[{row} +: {found}]),
  .data_out_0_valid({{data_out_0_valid}}), .data_out_0_ready({{data_out_0_ready}}));"""


def row_statistic(number, width, lanes, beats, maximum):
    values = integers(width, 30, beats * lanes, generator=generator(number))
    found, more = statistic_of(values, lanes, beats, maximum)
    rows, mask = stream(values, width, lanes), (1 << (width + more)) - 1
    beside = [beat | (found[at // beats].item() & mask) << rows.width for at, beat in enumerate(rows.beats)]
    body = STATISTIC.format(
        width=width, lanes=lanes, beats=beats, maximum=int(maximum), row=rows.width, found=width + more
    )
    outs = {"data_out_0": Stream(rows.width + width + more, beside)}
    parameters = {"BEATS": beats, "MAXIMUM": int(maximum)}
    return Case("row_statistic", parameters, {"data_in_0": rows}, outs, body=body)


def test_a_row_comes_again_beside_its_number():
    Bench(numbered(row_statistic, ROWS)).check_all()


def reduce(number, width, lanes, beats, maximum, count, index=False):
    values = integers(width, 12, count, beats * lanes, generator=generator(number))
    bits = (count - 1).bit_length()
    found = values.amax(1) if maximum else values.sum(1)
    parameters = {"DATA_IN_0_PRECISION_0": width, "DATA_IN_0_PARALLELISM_DIM_0": lanes, "BEATS": beats}
    parameters |= {"COUNT": count, "MAXIMUM": int(maximum)}
    to = width if maximum else width + bits
    if index:  # many are equal: the first one counts
        values = values >> max(0, width - 2)
        found, to = (values == values.amax(1, keepdim=True)).int().argmax(1), bits + 1
        parameters["INDEX"] = 1
    ins, outs = {"data_in_0": stream(values, width, lanes)}, {"data_out_0": stream(found, to, lanes)}
    return Case("fixed_reduce", parameters, ins, outs)


def test_positions_become_one():
    draws = st.builds(lambda row, count: (*row, count), ROWS, st.integers(1, 7))
    Bench(numbered(reduce, draws)).check_all()


def test_the_first_of_the_largest_positions_has_its_number():
    draws = st.builds(lambda row, count: (*row[:3], True, count, True), ROWS, st.integers(1, 9))
    Bench(numbered(reduce, draws)).check_all()


HOLD = """stream_hold #(.COUNT({count})) hold (.clk, .rst, .data_in_0_valid({{data_in_0_valid}}),
  .data_in_0_ready({{data_in_0_ready}}), .value_valid({{value_valid}}), .value_ready({{value_ready}}),
  .data_out_0_valid({{data_out_0_valid}}), .data_out_0_ready({{data_out_0_ready}}));
assign {{data_out_0}} = {{{{ {{value}}, {{data_in_0}} }}}};"""


def hold(number, width, count):
    random = generator(number)
    values, row = (torch.randint(0, 1 << width, (size,), generator=random).tolist() for size in (25, 25 * count))
    beside = [beat | values[at // count] << width for at, beat in enumerate(row)]
    ins, outs = {"data_in_0": Stream(width, row), "value": Stream(width, values)}, Stream(2 * width, beside)
    return Case("stream_hold", {"COUNT": count}, ins, {"data_out_0": outs}, body=HOLD.format(count=count))


def test_a_value_stays_for_its_row():
    Bench(numbered(hold, st.tuples(st.integers(1, 30), st.integers(1, 7)))).check_all()


def root(number, width, count, fraction, epsilon):
    sums = torch.randint(0, 1 << width, (30,), generator=generator(number)).tolist()
    sums = [0, 1, (1 << width) - 1, *sums]
    roots = [math.isqrt(((total + epsilon) << (2 * fraction)) // count) for total in sums]
    bits = max(1, max(roots).bit_length())
    parameters = {"SUM_WIDTH": width, "COUNT": count, "FRACTION": fraction, "EPSILON": f"64'd{epsilon}"}
    ins, outs = {"sum": Stream(width, sums)}, {"root": Stream(bits, roots)}
    return Case("fixed_root", {**parameters, "ROOT_WIDTH": bits, "AT_ONCE": 1 + number % 3}, ins, outs)


def test_roots_of_means_are_exact():
    draws = st.tuples(st.integers(2, 24), st.integers(1, 70), st.integers(0, 6), st.integers(0, 300))
    Bench(numbered(root, draws)).check_all()


DIVIDE = """logic [{stages} + 1:0] at; logic moves;
assign moves = !{{data_out_0_valid}} || {{data_out_0_ready}};
assign {{data_in_0_ready}} = moves;
assign {{data_out_0_valid}} = at[{stages} + 1];
always_ff @(posedge clk) if (rst) at <= '0; else if (moves) at <= {{{{at[{stages}:0], {{data_in_0_valid}}}}}};
logic [{top} - 1:0] numerator; logic [{bottom} - 1:0] denominator; logic negative;
assign {{{{negative, denominator, numerator}}}} = {{data_in_0}};
fixed_divide #(.NUMERATOR_WIDTH({top}), .DENOMINATOR_WIDTH({bottom}), .FRACTION({fraction}),
  .QUOTIENT_WIDTH({stages}), .RESULT_WIDTH({result})) divide (.clk, .moves, .numerator, .denominator,
  .negative, .result({{data_out_0}}));"""


def divide(number, top, bottom, fraction, quotient, result):
    """Python's round() of a fraction is half to even."""
    random = generator(number)
    below = torch.randint(1, 1 << bottom, (60,), generator=random).tolist()
    most = [min(1 << top, -(-(each << quotient) >> fraction)) for each in below]
    above = [int(torch.randint(0, max(1, each), (), generator=random)) for each in most]
    signs = torch.randint(0, 2, (60,), generator=random).tolist()
    exact = [round(Fraction((-a if s else a) << fraction, b)) for a, b, s in zip(above, below, signs, strict=True)]
    least, mask = -1 << (result - 1), (1 << result) - 1
    outs = [min(max(each, least), ~least) & mask for each in exact]
    beats = [a | b << top | s << (top + bottom) for a, b, s in zip(above, below, signs, strict=True)]
    body = DIVIDE.format(top=top, bottom=bottom, fraction=fraction, stages=quotient, result=result)
    parameters = {"NUMERATOR_WIDTH": top, "DENOMINATOR_WIDTH": bottom, "FRACTION": fraction, "RESULT_WIDTH": result}
    ins = {"data_in_0": Stream(top + bottom + 1, beats)}
    return Case("fixed_divide", parameters, ins, {"data_out_0": Stream(result, outs)}, body=body)


PRODUCT = """logic [1:0] at; logic moves; logic signed [{left} - 1:0] left; logic signed [{right} - 1:0] right;
assign moves = !{{data_out_0_valid}} || {{data_out_0_ready}};
assign {{data_in_0_ready}} = moves;
assign {{data_out_0_valid}} = at[{cycles} - 1];
always_ff @(posedge clk) if (rst) at <= '0; else if (moves) at <= {{{{at[0], {{data_in_0_valid}}}}}};
assign {{{{right, left}}}} = {{data_in_0}};
fixed_product #(.DATA_IN_0_PRECISION_0({left}), .DATA_IN_1_PRECISION_0({right}), .BARE({bare})) multiply (
  .clk, .moves, .data_in_0(left), .data_in_1(right), .product({{data_out_0}}));"""


def product(number, left, right, is_bare):
    """Two factors, the extremes of their widths among them."""
    random = generator(number)
    ends = [(-1 << (left - 1), -1 << (right - 1)), (-1 << (left - 1), ~(-1 << (right - 1))), (-1, -1)]
    drawn_ones = [
        [int(torch.randint(-1 << (bits - 1), 1 << (bits - 1), (), generator=random)) for bits in (left, right)]
        for _ in range(60)
    ]
    pairs = [*ends, *drawn_ones]
    ins = [a % (1 << left) | b % (1 << right) << left for a, b in pairs]
    outs = [a * b % (1 << (left + right)) for a, b in pairs]
    body = PRODUCT.format(left=left, right=right, bare=int(is_bare), cycles=1 if is_bare else 2)
    parameters = {"DATA_IN_0_PRECISION_0": left, "DATA_IN_1_PRECISION_0": right, "BARE": int(is_bare)}
    streams = {"data_in_0": Stream(left + right, ins)}, {"data_out_0": Stream(left + right, outs)}
    return Case("fixed_product", parameters, *streams, body=body)


def test_products_are_exact():
    """18 bits is what one multiplier takes, 35 what two do."""
    bits = st.one_of(st.sampled_from((18, 19, 35, 36)), st.integers(2, 45))
    Bench(numbered(product, st.tuples(bits, bits, st.booleans()))).check_all()


WIDTHS = st.integers(2, 10)


@st.composite
def quotients(draw):
    """Widths of numerators and of denominators, the fraction, a width that holds the quotient, and the result's."""
    top, bottom, fraction = draw(WIDTHS), draw(WIDTHS), draw(st.integers(0, 8))
    return top, bottom, fraction, max(draw(WIDTHS), top + fraction - bottom), draw(WIDTHS)


def test_quotients_are_exact_fractions_rounded_once():
    Bench(numbered(divide, quotients())).check_all()


SERIAL = """logic [{lanes}*{first} - 1:0] one; logic [{lanes}*{second} - 1:0] other; logic [{beside} - 1:0] beside;
logic [{lanes}*{product} + {beside} - 1:0] together; assign {{data_out_0}} = together;
assign {{{{beside, other, one}}}} = {{data_in_0}};
serial_multiply #(.DATA_IN_0_PRECISION_0({first}), .DATA_IN_1_PRECISION_0({second}), .LANES({lanes}),
  .BESIDE_WIDTH({beside})) multiply (.clk, .rst, .data_in_0(one), .data_in_1(other), .beside,
  .data_in_0_valid({{data_in_0_valid}}), .data_in_0_ready({{data_in_0_ready}}),
  .data_out_0(together[{lanes}*{product} - 1:0]), .beside_out(together[{lanes}*{product} +: {beside}]),
  .data_out_0_valid({{data_out_0_valid}}), .data_out_0_ready({{data_out_0_ready}}));"""


def serial_product(number, first, second, lanes, beside):
    random, product = generator(number), first + second
    one, other = (integers(width, 40, lanes, generator=random) for width in (first, second))
    numbers = torch.randint(0, 1 << beside, (40,), generator=random).tolist()
    ins, others, outs = (
        stream(each, width, lanes) for each, width in ((one, first), (other, second), (one * other, product))
    )
    beats = [
        a | b << ins.width | c << ins.width + others.width
        for a, b, c in zip(ins.beats, others.beats, numbers, strict=True)
    ]
    wanted = [a | c << outs.width for a, c in zip(outs.beats, numbers, strict=True)]
    body = SERIAL.format(first=first, second=second, lanes=lanes, beside=beside, product=product)
    parameters = {"DATA_IN_0_PRECISION_0": first, "DATA_IN_1_PRECISION_0": second, "LANES": lanes}
    into, out = Stream(ins.width + others.width + beside, beats), Stream(outs.width + beside, wanted)
    return Case("serial_multiply", parameters, {"data_in_0": into}, {"data_out_0": out}, body=body)


def test_products_are_exact_bit_by_bit():
    Bench(numbered(serial_product, st.tuples(WIDTHS, WIDTHS, st.integers(1, 3), st.integers(1, 9)))).check_all()


def wider(number, width, ratio):
    beats = torch.randint(0, 1 << width, (30, ratio), generator=generator(number)).tolist()
    narrow = Stream(width, [beat for group in beats for beat in group])
    wide = Stream(width * ratio, [sum(beat << (k * width) for k, beat in enumerate(group)) for group in beats])
    return narrow, wide, {"DATA_WIDTH": width, "RATIO": ratio}


def upsizer(number, width, ratio):
    narrow, wide, parameters = wider(number, width, ratio)
    return Case("width_upsizer", parameters, {"data_in_0": narrow}, {"data_out_0": wide})


def downsizer(number, width, ratio):
    narrow, wide, parameters = wider(number, width, ratio)
    return Case("width_downsizer", parameters, {"data_in_0": wide}, {"data_out_0": narrow})


def test_beats_are_gathered_and_split():
    draws = st.tuples(st.integers(1, 30), st.integers(1, 8))
    Bench([*numbered(upsizer, draws), *numbered(downsizer, draws)]).check_all()


def rated():
    """(case, cycles to its first beat by its contract, cycles between its first and its last beat)."""
    return [
        (row_statistic(1, 8, 2, 5, True), 5 + 2, 30 * 5 - 1),
        (row_reduce(1, 8, 2, 5, False), 4 + 2, 29 * 5),
        (reduce(1, 8, 2, 3, True, 4), 3 * 3 + 1, 11 * 4 * 3 + 2),
        (line_taps(1, 8, 5, 6, 3, 1, 1), 2 * 5 + 1, 3 * 6 * 5 + 3 * 5 + 4),
        (serial_product(1, 8, 6, 2, 3), 6 + 1, 39 * (6 + 1)),
    ]


def test_rates_and_latencies_are_those_of_the_contracts():
    cases = rated()
    for result, (case, first, between) in zip(Bench([each[0] for each in cases]).run(), cases, strict=True):
        assert result.fine
        assert (result.first_cycle, result.last_cycle - result.first_cycle) == (first, between), case


#: A multiplier of an ECP5, as far as `multiplier` uses it: registers for factors and product, all of one clock.
_MULTIPLIER = """
module MULT18X18D #(parameter REG_INPUTA_CLK = "", REG_INPUTB_CLK = "", REG_OUTPUT_CLK = "", GSR = "") (
  input CLK0, CE0, RST0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, input {factors}, output {product});
  reg signed [17:0] a, b;
  reg signed [35:0] p;
  always @(posedge CLK0) begin
    if (CE0) a <= {{{a}}};
    if (CE0) b <= {{{b}}};
    if (CE0) p <= a * b;
  end
  assign {{{p}}} = p;
endmodule
"""


def test_a_multiplier_of_an_ecp5_makes_the_same_products(tmp_path):
    """Yosys proves it for all factors of six cycles, the last four of which may stand still."""
    a, b, c, p = (
        [f"{port}{bit}" for bit in reversed(range(size))] for port, size in zip("ABCP", (18, 18, 18, 36), strict=True)
    )
    ports = {"factors": ", ".join(a + b + c), "product": ", ".join(p)}
    text = _MULTIPLIER.format(**ports, **{name: ", ".join(bits) for name, bits in zip("abp", (a, b, p), strict=True)})
    (tmp_path / "multiplier.v").write_text(text)
    product, widths = RTL / "multiplier.sv", "chparam -set DATA_IN_0_PRECISION_0 3 -set DATA_IN_1_PRECISION_0 4"
    read = (
        f"read_verilog -sv -D ECP5 {product}; read_verilog multiplier.v; {widths} multiplier; prep -flatten -top "
        f"multiplier; rename multiplier primitive; design -stash primitive; read_verilog -sv {product}; {widths} "
        "multiplier; prep -flatten -top multiplier; design -copy-from primitive primitive"
    )
    proof = "miter -equiv -make_assert -flatten multiplier primitive both; cd both; sat -verify -prove-asserts"
    steps = f"{read}; {proof} -set-at 1 in_moves 1 -set-at 2 in_moves 1 -prove-skip 2 -seq 6"
    run(["yosys", "-q", "-p", steps], cwd=tmp_path)
