"""Addition, multiplication and tables, element by element."""

import torch
from hypothesis import strategies as st
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import add, look_up, multiply, table
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import precision, stream
from tests.rtl.draws import drawn, generator, integers

FORMATS = st.builds(FixedPoint, st.integers(2, 14), st.integers(-3, 10))


def operands(number, first, second, out, lanes, compute):
    random = generator(number)
    left, right = (integers(each.width, 120, lanes, generator=random) for each in (first, second))
    named = (("DATA_IN_0", first), ("DATA_IN_1", second), ("DATA_OUT_0", out))
    parameters = {name: value for prefix, each in named for name, value in precision(prefix, each).items()}
    ins = {"data_in_0": stream(left, first.width, lanes), "data_in_1": stream(right, second.width, lanes)}
    outs = {"data_out_0": stream(compute(left, right, (first, second), out), out.width, lanes)}
    return {**parameters, "DATA_IN_0_PARALLELISM_DIM_0": lanes}, ins, outs


def sum_case(number, first, second, out, lanes, subtract, floor, relu):
    def compute(left, right, formats, to):
        return add(left, right, formats, to, subtract=subtract, floor=floor, relu=relu)

    parameters, ins, outs = operands(number, first, second, out, lanes, compute)
    flags = {"SUBTRACT": int(subtract), "FLOOR": int(floor), "RELU": int(relu)}
    return Case("fixed_add", {**parameters, **flags}, ins, outs)


def product_case(number, first, second, out, lanes, floor, relu, serial=False):
    def compute(left, right, formats, to):
        return multiply(left, right, formats, to, floor=floor, relu=relu)

    parameters, ins, outs = operands(number, first, second, out, lanes, compute)
    flags = {"FLOOR": int(floor), "RELU": int(relu), "SERIAL": int(serial)}
    return Case("fixed_multiply", {**parameters, **flags}, ins, outs)


OPERANDS = (FORMATS, FORMATS, FORMATS, st.integers(1, 4), st.booleans(), st.booleans())


def test_add_is_its_arithmetic():
    draws = drawn(st.tuples(*OPERANDS, st.booleans()))
    Bench([sum_case(number, *draw) for number, draw in enumerate(draws)]).check_all()


def test_multiply_is_its_arithmetic():
    draws = drawn(st.tuples(*OPERANDS, st.booleans()))
    Bench([product_case(number, *draw) for number, draw in enumerate(draws)]).check_all()


def test_a_sum_in_the_wrong_format_is_noticed():
    first, second, out = FixedPoint(8, 4), FixedPoint(8, 5), FixedPoint(8, 3)
    right = sum_case(1, first, second, out, 2, False, False, False)
    wrong = sum_case(1, first, FixedPoint(8, 4), out, 2, False, False, False)
    (result,) = Bench([Case("fixed_add", right.parameters, right.inputs, wrong.outputs)]).run()
    assert result.mismatches > 0


FUNCTIONS = [functional.gelu, functional.silu, torch.sigmoid, torch.tanh, torch.exp]


def look_up_case(number, function, data, out, lanes):
    words = table(function, data, out)
    values = integers(data.width, 200, lanes, generator=generator(number))
    return Case(
        "fixed_table",
        {
            "DATA_IN_0_PRECISION_0": data.width,
            "DATA_OUT_0_PRECISION_0": out.width,
            "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        },
        {"data_in_0": stream(values, data.width, lanes)},
        {"data_out_0": stream(look_up(values, words), out.width, lanes)},
        {"FILE": (out.width, [word & ((1 << out.width) - 1) for word in words.tolist()])},
    )


def test_a_table_gives_the_function_of_every_integer():
    narrow = st.builds(FixedPoint, st.integers(2, 9), st.integers(0, 6))
    draws = drawn(st.tuples(st.sampled_from(FUNCTIONS), narrow, narrow, st.integers(1, 3)))
    Bench([look_up_case(number, *draw) for number, draw in enumerate(draws)]).check_all()


def test_a_residual_needs_as_deep_a_fifo_as_the_other_way_is_long():
    """x + f(x), where f takes `delay` beats before it gives the first one; the fork lets it run one of them ahead."""
    delay = 6
    values = integers(8, 40 * delay, 1, generator=generator(1))
    formats = (FixedPoint(8, 4), FixedPoint(8, 4))
    expected = add(values, values, formats, formats[0])

    def residual(depth):
        body = f"""logic fv, fr, gv, gr, hv, hr; logic [7:0] held, way;
          logic [{8 * delay - 1}:0] all;  logic av, ar;
          stream_fork #(.COUNT(2)) forks (.clk, .rst, .data_in_0_valid({{data_in_0_valid}}),
            .data_in_0_ready({{data_in_0_ready}}), .data_out_0_valid({{{{gv, fv}}}}),
            .data_out_0_ready({{{{gr, fr}}}}));
          fifo #(.DATA_WIDTH(8), .DEPTH({depth})) short (.clk, .rst, .data_in_0({{data_in_0}}), .data_in_0_valid(fv),
            .data_in_0_ready(fr), .data_out_0(held), .data_out_0_valid(hv), .data_out_0_ready(hr));
          width_upsizer #(.DATA_WIDTH(8), .RATIO({delay})) gathers (.clk, .rst, .data_in_0({{data_in_0}}),
            .data_in_0_valid(gv), .data_in_0_ready(gr), .data_out_0(all), .data_out_0_valid(av), .data_out_0_ready(ar));
          logic wv, wr;
          width_downsizer #(.DATA_WIDTH(8), .RATIO({delay})) splits (.clk, .rst, .data_in_0(all), .data_in_0_valid(av),
            .data_in_0_ready(ar), .data_out_0(way), .data_out_0_valid(wv), .data_out_0_ready(wr));
          fixed_add adds (.clk, .rst, .data_in_0(held), .data_in_0_valid(hv), .data_in_0_ready(hr), .data_in_1(way),
            .data_in_1_valid(wv), .data_in_1_ready(wr), .data_out_0({{data_out_0}}),
            .data_out_0_valid({{data_out_0_valid}}), .data_out_0_ready({{data_out_0_ready}}));"""
        uses = ("stream_fork", "fifo", "width_upsizer", "width_downsizer", "fixed_add")
        ins, outs = {"data_in_0": stream(values, 8, 1)}, {"data_out_0": stream(expected, 8, 1)}
        return Case("residual", {"depth": depth}, ins, outs, body=body, uses=uses)

    Bench([residual(delay - 1)]).check_all()
    (result,) = Bench([residual(delay - 2)]).run("--patience", 500)
    assert result.moved == 0
