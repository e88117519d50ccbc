"""`fixed_engine` computes the layers that share it, `shared_linear` and `shared_conv2d`, whatever their sizes."""

from math import gcd, prod

from hypothesis import strategies as st

from mase_server.hardware.arithmetic import Affine, conv2d, linear
from mase_server.hardware.design import find_divisors
from mase_server.hardware.kinds.conv2d import arrange_filters
from mase_server.hardware.kinds.linear import pad_results, pad_vectors
from mase_server.hardware.memories import words_of_bias, words_of_weight
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import (
    dilation,
    image_sizes,
    image_stream,
    kernel_parameters,
    linear_parameters,
    stream,
)
from tests.rtl.draws import drawn, generator, integers
from tests.rtl.test_images import IMAGES, convolutions
from tests.rtl.test_linear import FORMATS, WIDE

_WIRES = """logic [1:0] request, last, grant;
logic [2*{data}-1:0] data; logic [2*{weight}-1:0] weight; logic [{total}-1:0] total;
fixed_engine #(.COUNT(2), {parameters}) engine (.clk, .rst, .request, .last, .grant, .data, .weight, .total);
"""
_LAYER = """{module} #({parameters}) layer_{index} (.clk, .rst,
  .data_in_0({{data_in_{index}}}), .data_in_0_valid({{data_in_{index}_valid}}),
  .data_in_0_ready({{data_in_{index}_ready}}), .data_out_0({{data_out_{index}}}),
  .data_out_0_valid({{data_out_{index}_valid}}), .data_out_0_ready({{data_out_{index}_ready}}),
  .engine_request(request[{index}]), .engine_last(last[{index}]), .engine_grant(grant[{index}]),
  .engine_data(data[{index}*{data}+:{data}]), .engine_weight(weight[{index}*{weight}+:{weight}]), .engine_total(total));
"""


@st.composite
def pairs(draw):
    """Two layers, any sizes each, and lanes that need not divide them."""
    lanes = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return lanes, (draw(st.one_of(vectors(), images())), draw(st.one_of(vectors(), images()))), draw(st.integers(0, 9))


@st.composite
def vectors(draw):
    bias = draw(st.one_of(st.none(), WIDE))
    formats = Affine(draw(FORMATS), draw(FORMATS), bias, draw(WIDE), draw(st.booleans()), draw(st.booleans()))
    return formats, None, (draw(st.integers(1, 12)),), draw(st.integers(1, 10)), 1


@st.composite
def images(draw):
    windows, shape, filters, groups, _, formats = draw(convolutions())
    return formats, windows, shape, filters, groups


def shared(number, lanes, layers, choice):
    """Two layers with streams of their own and one engine."""
    par_in, par_out = lanes
    widths = [max(getattr(each[0], which).width for each in layers) for which in ("data", "weight")]
    longest = max(prod(shape) * (prod(windows.kernel) if windows else 1) for _, windows, shape, _, _ in layers)
    total = sum(widths) + (longest + par_in).bit_length()
    sizes = {"data": par_in * widths[0], "weight": par_in * par_out * widths[1], "total": par_out * total}
    engine = {
        "ENGINE_PARALLELISM_DIM_0": par_in,
        "ENGINE_PARALLELISM_DIM_1": par_out,
        "ENGINE_DATA_WIDTH": widths[0],
        "ENGINE_WEIGHT_WIDTH": widths[1],
        "ENGINE_SUM_WIDTH": total,
    }
    own = {
        "DATA_IN_0_PRECISION_0": widths[0],
        "DATA_IN_0_PARALLELISM_DIM_0": par_in,
        "WEIGHT_PRECISION_0": widths[1],
        "DATA_OUT_0_PARALLELISM_DIM_0": par_out,
        "SUM_WIDTH": total,
    }
    body, ins, outs, memories = _WIRES.format(parameters=_written(own), **sizes), {}, {}, {}
    for index, layer in enumerate(layers):
        module, parameters, ins[f"data_in_{index}"], outs[f"data_out_{index}"], words = one(
            number + index, layer, lanes, choice
        )
        memories |= {f"{name}_{index}": held for name, held in words.items()}
        files = {name: f'"case_{{number}}_{name.lower()}_{index}.mem"' for name in words}
        written = _written({**parameters, **engine, **files})
        body += _LAYER.format(module=module, index=index, parameters=written, **sizes)
    uses = ("fixed_engine", "shared_linear", "shared_conv2d")
    return Case("fixed_engine", {**own, **parameters}, ins, outs, memories, body, uses)


def _written(parameters):
    return ", ".join(f".{name}({value})" for name, value in parameters.items())


def one(number, layer, lanes, choice):
    """A layer's component, its parameters, streams and memories. choice: of the lanes of its streams."""
    (formats, windows, shape, results, groups), random = layer, generator(number)
    values = integers(formats.data.width, *((20,) if windows is None else (IMAGES,)), *shape, generator=random)
    kernel = () if windows is None else windows.kernel
    weight = integers(formats.weight.width, results, shape[0] // groups, *kernel, generator=random)
    bias = None if formats.bias is None else integers(formats.bias.width, results, generator=random)
    lanes_in = _pick(gcd(shape[0] // groups, lanes[0]), choice)
    lanes_out = _pick(gcd(results // groups, lanes[1]), choice)
    parameters = linear_parameters(formats, shape[0], results, lanes_in, lanes_out)
    give = stream if windows is None else image_stream
    if windows is None:
        expected, rows = linear(values, weight, bias, formats), weight
    else:
        expected, rows = conv2d(values, weight, bias, formats, windows, groups), arrange_filters(weight, (1, 1), 1)
        parameters |= {**image_sizes(formats.data.width, shape, lanes_in), **kernel_parameters(windows)}
        parameters |= {**dilation(windows), "GROUPS": groups}
    width = formats.weight.width
    padded = pad_results(pad_vectors(rows, lanes[0]), groups, lanes[1])
    memories = {"WEIGHT_FILE": (width * lanes[0] * lanes[1], words_of_weight(padded, width, *lanes))}
    if bias is not None:
        offsets = words_of_bias(pad_results(bias[:, None], groups, lanes[1]), formats.bias.width, lanes[1])
        memories["BIAS_FILE"] = (formats.bias.width * lanes[1], offsets)
    into, out = give(values, formats.data.width, lanes_in), give(expected, formats.out.width, lanes_out)
    return "shared_linear" if windows is None else "shared_conv2d", parameters, into, out, memories


def _pick(number, choice):
    divisors = find_divisors(number)
    return divisors[choice % len(divisors)]


def test_layers_that_share_multipliers_are_the_arithmetic_of_each():
    cases = [shared(number, *draw) for number, draw in enumerate(drawn(pairs()))]
    assert {"shared_linear", "shared_conv2d"} <= {name for case in cases for name in case.body.split()}
    Bench(cases).check_all()
