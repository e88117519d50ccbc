"""`fixed_engine` computes what shares it: `shared_linear`, `shared_conv2d`, `shared_matmul` and `shared_recurrent`, of
any sizes."""

from math import gcd, prod

from hypothesis import strategies as st

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, Recurrent, conv2d, linear, matmul
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
    precision,
    stream,
)
from tests.rtl.draws import drawn, generator, integers
from tests.rtl.test_images import IMAGES, convolutions
from tests.rtl.test_linear import FORMATS, WIDE
from tests.rtl.test_matrices import MATRICES
from tests.rtl.test_recurrent import layer_parameters, sequences, tables

_WIRES = """logic [1:0] request, last, grant;
logic [2*{data}-1:0] data; logic [2*{weight}-1:0] weight; logic [{total}-1:0] total;
fixed_engine #(.COUNT(2), {parameters}) engine (.clk, .rst, .request, .last, .grant, .data, .weight, .total);
"""
_LAYER = """{module} #({parameters}) layer_{index} (.clk, .rst,
  .data_in_0({{data_in_{index}}}), .data_in_0_valid({{data_in_{index}_valid}}),
  .data_in_0_ready({{data_in_{index}_ready}}),{more} .data_out_0({{data_out_{index}}}),
  .data_out_0_valid({{data_out_{index}_valid}}), .data_out_0_ready({{data_out_{index}_ready}}),
  .engine_request(request[{index}]), .engine_last(last[{index}]), .engine_grant(grant[{index}]),
  .engine_data(data[{index}*{data}+:{data}]), .engine_weight(weight[{index}*{weight}+:{weight}]), .engine_total(total));
"""
_SECOND = """
  .data_in_1({{more_in_{index}}}), .data_in_1_valid({{more_in_{index}_valid}}),
  .data_in_1_ready({{more_in_{index}_ready}}),"""


@st.composite
def pairs(draw):
    """Two layers, any sizes each, and lanes that need not divide them."""
    lanes = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    layers = st.one_of(vectors(), images(), products(), chains())
    return lanes, (draw(layers), draw(layers)), draw(st.integers(0, 9))


@st.composite
def vectors(draw):
    bias = draw(st.one_of(st.none(), WIDE))
    formats = Affine(draw(FORMATS), draw(FORMATS), bias, draw(WIDE), draw(st.booleans()), draw(st.booleans()))
    return formats, None, (draw(st.integers(1, 12)),), draw(st.integers(1, 10)), 1


@st.composite
def products(draw):
    """Of two streams: the number of rows stands in the place of windows."""
    formats = Affine(draw(FORMATS), draw(FORMATS), None, draw(WIDE), draw(st.booleans()), draw(st.booleans()))
    return formats, draw(st.integers(1, 5)), (draw(st.integers(1, 12)),), draw(st.integers(1, 10)), 1


@st.composite
def chains(draw):
    """Of a last result: formats, steps, units at once and their products stand in the place of windows."""
    bias = draw(st.one_of(st.none(), st.just(FixedPoint(8, 5))))
    formats = Recurrent.fitting(draw(st.booleans()), draw(st.integers(4, 9)), FixedPoint(7, 5), bias)
    units = draw(st.integers(1, 9))
    lanes = draw(st.sampled_from(find_divisors(units)))
    return chain(formats, draw(st.integers(1, 5)), units, lanes, draw(st.booleans()))


def chain(formats, steps, units, lanes, serial):
    affine = Affine(formats.hidden, formats.weight, formats.bias, formats.parts)
    return affine, (formats, steps, lanes, serial), (units,), units * formats.gates, 1


@st.composite
def images(draw):
    windows, shape, filters, groups, _, formats = draw(convolutions())
    return formats, windows, shape, filters, groups


def shared(number, lanes, layers, choice):
    """Two layers with streams of their own and one engine."""
    par_in, par_out = lanes
    widths = [max(getattr(each[0], which).width for each in layers) for which in ("data", "weight")]
    longest = max(prod(shape) * prod(getattr(windows, "kernel", ())) for _, windows, shape, _, _ in layers)
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
        module, parameters, given, outs[f"data_out_{index}"], words = one(number + index, layer, lanes, choice)
        ins |= {f"{name}_{index}": each for name, each in zip(("data_in", "more_in"), given, strict=False)}
        memories |= {f"{name}_{index}": held for name, held in words.items()}
        files = {name: f'"case_{{number}}_{name.lower()}_{index}.mem"' for name in words}
        written = _written({**parameters, **engine, **files})
        more = _SECOND.format(index=index) if len(given) > 1 else ""
        body += _LAYER.format(module=module, index=index, parameters=written, more=more, **sizes)
    uses = ("fixed_engine", "shared_linear", "shared_conv2d", "shared_matmul", "shared_recurrent")
    return Case("fixed_engine", {**own, **parameters}, ins, outs, memories, body, uses)


def _written(parameters):
    return ", ".join(f".{name}({value})" for name, value in parameters.items())


def one(number, layer, lanes, choice):
    """A layer's component, its parameters, streams and memories. choice: of the lanes of its streams."""
    (formats, windows, shape, results, groups), random = layer, generator(number)
    if isinstance(windows, int):
        return _product(random, layer, lanes, choice)
    if isinstance(windows, tuple):
        return _chain(number, layer, lanes, choice)
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
    memories = _memories(formats, rows, bias, groups, lanes)
    into, out = give(values, formats.data.width, lanes_in), give(expected, formats.out.width, lanes_out)
    return "shared_linear" if windows is None else "shared_conv2d", parameters, (into,), out, memories


def _memories(formats, rows, bias, groups, lanes):
    width, padded = formats.weight.width, pad_results(pad_vectors(rows, lanes[0]), groups, lanes[1])
    memories = {"WEIGHT_FILE": (width * lanes[0] * lanes[1], words_of_weight(padded, width, *lanes))}
    if bias is not None:
        offsets = words_of_bias(pad_results(bias[:, None], groups, lanes[1]), formats.bias.width, lanes[1])
        memories["BIAS_FILE"] = (formats.bias.width * lanes[1], offsets)
    return memories


def _chain(number, layer, lanes, choice):
    affine, (formats, steps, lanes_out, serial), (units,), _, _ = layer
    parts, weight, bias, expected = sequences(number, formats, steps, units)
    lanes_gates = _pick(gcd(formats.gates * lanes_out, lanes[1]), choice)
    own = _pick(gcd(units, lanes[0]), choice), lanes_gates, lanes_out
    into = stream(parts, formats.parts.width, formats.gates * lanes_out)
    memories = {**_memories(affine, weight, bias, 1, lanes), **tables(formats)}
    out = stream(expected, formats.unit.width, lanes_out)
    return "shared_recurrent", layer_parameters(formats, steps, units, own, serial), (into,), out, memories


def _product(random, layer, lanes, choice):
    formats, rows, (length,), columns, _ = layer
    left = integers(formats.data.width, MATRICES, rows, length, generator=random)
    right = integers(formats.weight.width, MATRICES, columns, length, generator=random)
    lanes_in, lanes_out = _pick(gcd(length, lanes[0]), choice), _pick(gcd(columns, lanes[1]), choice)
    parameters = {
        **precision("DATA_IN_0", formats.data),
        **precision("DATA_IN_1", formats.weight),
        **precision("DATA_OUT_0", formats.out),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": length,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes_in,
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": columns,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes_out,
        "FLOOR": int(formats.floor),
        "RELU": int(formats.relu),
    }
    given = stream(left, formats.data.width, lanes_in), stream(right, formats.weight.width, lanes_in)
    out = stream(matmul(left, right, formats), formats.out.width, lanes_out)
    return "shared_matmul", parameters, given, out, {}


def _pick(number, choice):
    divisors = find_divisors(number)
    return divisors[choice % len(divisors)]


def test_layers_that_share_multipliers_are_the_arithmetic_of_each():
    cases = [shared(number, *draw) for number, draw in enumerate(drawn(pairs()))]
    shared_by = {"shared_linear", "shared_conv2d", "shared_matmul", "shared_recurrent"}
    assert shared_by <= {name for case in cases for name in case.body.split()}
    Bench(cases).check_all()
