"""The integers of emitted networks from docs/arithmetic.md alone: a model in Python's own integers, without tensors."""

import json
import math
import operator
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.building import Build
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog.told import prepare_graph
from tests.hardware.test_attention import Encoder
from tests.hardware.test_lowering import config, mlp, quantised
from tests.hardware.test_recurrent import Sequences

#: Width and fraction of data, weights and biases.
DATA, WEIGHT, BIAS = (8, 4), (8, 6), (8, 5)


def saturate(value, width, relu=False):
    return max(0 if relu else -(1 << (width - 1)), min((1 << (width - 1)) - 1, value))


def encode(number, format):
    width, fraction = format
    return saturate(round(Fraction(number) * Fraction(2) ** fraction), width)


def requantise(value, fraction, to=DATA, relu=False):
    """Python's round() of a fraction is half to even."""
    width, wanted = to
    return saturate(round(value * Fraction(2) ** (wanted - fraction)), width, relu)


def parameters(tensor, format):
    """A parameter as nested lists of integers; None for one that is missing."""
    if tensor is None:
        return None
    flat = [encode(number, format) for number in tensor.detach().double().flatten().tolist()]
    return nested(flat, tensor.shape)


def nested(flat, shape):
    if len(shape) < 2:
        return list(flat)
    step = len(flat) // shape[0]
    return [nested(flat[at : at + step], shape[1:]) for at in range(0, len(flat), step)]


def biased(total, bias, relu=False):
    """A sum of products of data and weights, and a bias."""
    fraction = max(DATA[1] + WEIGHT[1], BIAS[1])
    exact = (total << (fraction - DATA[1] - WEIGHT[1])) + (bias << (fraction - BIAS[1]))
    return requantise(exact, fraction, relu=relu)


def linear(layer, vector, relu=False):
    weight, bias = parameters(layer.weight, WEIGHT), parameters(layer.bias, BIAS)
    return [
        biased(sum(a * b for a, b in zip(row, vector, strict=True)), offset, relu)
        for row, offset in zip(weight, bias, strict=True)
    ]


def conv2d(layer, image, relu=False):
    """image: [channels][rows][columns]."""
    weight, bias = parameters(layer.weight, WEIGHT), parameters(layer.bias, BIAS)
    (high, wide), (down, right), (above, left) = layer.kernel_size, layer.stride, layer.padding
    height, width = len(image[0]), len(image[0][0])

    def pixel(channel, row, column):
        return image[channel][row][column] if 0 <= row < height and 0 <= column < width else 0

    def window(kernel, row, column):
        taps = product(range(len(image)), range(high), range(wide))
        return sum(kernel[c][y][x] * pixel(c, row * down + y - above, column * right + x - left) for c, y, x in taps)

    rows, columns = (height + 2 * above - high) // down + 1, (width + 2 * left - wide) // right + 1
    return [
        [[biased(window(kernel, row, column), offset, relu) for column in range(columns)] for row in range(rows)]
        for kernel, offset in zip(weight, bias, strict=True)
    ]


def windows(channel, size):
    """Those that do not overlap."""
    return [
        [
            [channel[row + y][column + x] for y in range(size) for x in range(size)]
            for column in range(0, len(channel[0]), size)
        ]
        for row in range(0, len(channel), size)
    ]


def max_pool(image, size):
    return [[[max(window) for window in row] for row in windows(channel, size)] for channel in image]


def average_pool(image, size):
    return [
        [
            [saturate(round(Fraction(sum(window), len(window))), DATA[0]) for window in row]
            for row in windows(each, size)
        ]
        for each in image
    ]


def matmul(left, right):
    """left: rows; right: columns."""
    return [
        [requantise(sum(a * b for a, b in zip(row, column, strict=True)), 2 * DATA[1]) for column in right]
        for row in left
    ]


def add(left, right):
    return [[saturate(a + b, DATA[0]) for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def table(function, rows):
    return [[encode(function(value / 2 ** DATA[1]), DATA) for value in row] for row in rows]


def gelu(value):
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


def softmax(row):
    powers = [round(math.exp(-(max(row) - value) / 2 ** DATA[1]) * 2**14) for value in row]
    return [saturate(round(Fraction(power << DATA[1], sum(powers))), DATA[0]) for power in powers]


def norm(layer, row):
    size, centred = len(row), isinstance(layer, nn.LayerNorm)
    eps = torch.finfo(torch.float32).eps if layer.eps is None else layer.eps
    differences = [size * value - sum(row) for value in row] if centred else row
    epsilon = max(1, round(eps * 4.0 ** DATA[1] * size ** (3 if centred else 1)))
    bits = max(size * ((size if centred else 1) << DATA[0]) ** 2, epsilon).bit_length() + 1
    fraction = max(each for each in range(1, 9) if bits + 2 * each <= 62 and 4**each >= size)
    total = sum(value * value for value in differences) + epsilon
    root = math.isqrt((total << 2 * fraction) // size)
    normal = [round(Fraction(value << fraction + 12, root)) for value in differences]
    weight, bias = parameters(layer.weight, WEIGHT), parameters(getattr(layer, "bias", None), BIAS) or [0] * size
    return [
        requantise(value * factor + (offset << 12 + WEIGHT[1] - BIAS[1]), 12 + WEIGHT[1])
        for value, factor, offset in zip(normal, weight, bias, strict=True)
    ]


def of_parts(weight, bias, vector, fraction):
    """A linear layer whose result has 16 bits, 11 of them after the point."""
    longest = max(fraction + WEIGHT[1], BIAS[1])
    rows, offsets = parameters(weight, WEIGHT), parameters(bias, BIAS) or [0] * len(weight)
    return [
        requantise(
            (sum(a * b for a, b in zip(row, vector, strict=True)) << longest - fraction - WEIGHT[1])
            + (offset << longest - BIAS[1]),
            longest,
            (16, 11),
        )
        for row, offset in zip(rows, offsets, strict=True)
    ]


def recurrent(layer, rows):
    """The results of the last layer, with 14 bits after the point."""
    fraction = DATA[1]
    for level in range(layer.num_layers):
        given, kept = (
            [getattr(layer, f"{kind}_{way}_l{level}") for kind in ("weight", "bias")] for way in ("ih", "hh")
        )
        last, cell, found = [0] * layer.hidden_size, [0] * layer.hidden_size, []
        for row in rows:
            back = [requantise(value, 14, (DATA[0], DATA[0] - 1)) for value in last]
            parts = of_parts(*given, row, fraction), of_parts(*kept, back, DATA[0] - 1)
            step = lstm_step if isinstance(layer, nn.LSTM) else gru_step
            gates = [zip(*nested(each, (len(each) // len(last), 0)), strict=True) for each in parts]
            units = zip(*gates, last, cell, strict=True)
            last, cell = zip(*(step(*unit) for unit in units), strict=True)
            found.append(last)
        rows, fraction = (
            [[requantise(value, 14, (DATA[0], DATA[0] - 1)) for value in each] for each in found],
            DATA[0] - 1,
        )
    return found


ARGUMENT = min(DATA[0] + 3, 14)


def sigmoid_of(value, fraction=11):
    return encode(
        1 / (1 + math.exp(-requantise(value, fraction, (ARGUMENT, ARGUMENT - 4)) / 2 ** (ARGUMENT - 4))), (16, 14)
    )


def tanh_of(value, fraction=11):
    return encode(math.tanh(requantise(value, fraction, (ARGUMENT, ARGUMENT - 3)) / 2 ** (ARGUMENT - 3)), (16, 14))


def gru_step(a, c, last, cell):
    reset, update = sigmoid_of(a[0] + c[0]), sigmoid_of(a[1] + c[1])
    new = tanh_of((a[2] << 14) + reset * c[2], 25)
    return requantise((new << 14) + update * (last - new), 28, (16, 14)), cell


def lstm_step(a, c, last, cell):
    enters, keeps, new, shows = (
        sigmoid_of(a[0] + c[0]),
        sigmoid_of(a[1] + c[1]),
        tanh_of(a[2] + c[2]),
        sigmoid_of(a[3] + c[3]),
    )
    cell = requantise((keeps * cell << 3) + enters * new, 28, (16, 11))
    return requantise(shows * tanh_of(cell), 28, (16, 14)), cell


#: Of a stream, and bits of mantissas of data, weights and biases.
STREAM, MANTISSA = (12, 7), 6


def in_blocks(row, bits, size=32):
    """Integers of a stream, or numbers of a parameter, whose blocks share a power of two."""
    found = []
    for start in range(0, len(row), size):
        block = row[start : start + size]
        largest = max(abs(value) for value in block)
        step = Fraction(2) ** (math.floor(math.log2(largest)) - bits + 2) if largest else Fraction(1)
        if all(isinstance(value, int) for value in block):
            step = max(step, Fraction(1))
        most = 2 ** (bits - 1) - 1
        found += [max(-most, min(most, round(value / step))) * step for value in block]
    return found


def mxint_linear(layer, vector, relu=False):
    bias = in_blocks([Fraction(value) for value in layer.bias.tolist()], MANTISSA)
    rows = [in_blocks([Fraction(value) for value in row], MANTISSA) for row in layer.weight.tolist()]
    data = in_blocks(vector, MANTISSA, 8)
    sums = (sum(map(operator.mul, row, data)) + offset * 2 ** STREAM[1] for row, offset in zip(rows, bias, strict=True))
    return [requantise(total, STREAM[1], STREAM, relu) for total in sums]


def run_mxint(model, vector):
    for layer in model:
        vector = vector if isinstance(layer, nn.ReLU) else mxint_linear(layer, vector, relu=layer is not model[-1])
    return vector


#: Bits of numbers and of their exponents.
FLOAT = 7, 3


def in_floats(row, kind, fraction, grid=True):
    """Integers of a stream, or without a grid the numbers of a parameter, rounded to minifloats."""
    (width, bits), found = FLOAT, []
    mantissa, bias = width - 1 - bits, (1 << (bits - 1)) - 1
    if kind == "minifloat_ieee":
        most, top, low = mantissa + 1, fraction + 2**bits - 2 - bias - mantissa, fraction + 1 - bias - mantissa
    elif kind == "minifloat_denorm":
        most, top, low = mantissa, fraction + 2**bits - 1 - bias - mantissa, fraction - bias - mantissa
    for start in range(0, len(row), 16):
        block = row[start : start + 16]
        if kind == "block_minifloat":
            largest = max(abs(value) for value in block)
            most, top = mantissa + 1, math.floor(math.log2(largest)) - mantissa if largest else 0
            low = top - 2**bits + 2
        for value in block:
            step = low if value == 0 else max(low, math.floor(math.log2(abs(value))) - most + 1)
            step = min(max(0, step), max(0, top)) if grid else min(step, top)
            number = round(Fraction(value) / Fraction(2) ** step)
            highest = (1 << most) - 1
            number = max(-highest, min(highest, number)) if step == top else number
            found.append(number * Fraction(2) ** step)
    return found


def run_floats(model, kind, vector):
    for layer in model:
        if isinstance(layer, nn.ReLU):
            continue
        bias = in_floats([Fraction(value) for value in layer.bias.tolist()], kind, 0, grid=False)
        rows = [in_floats([Fraction(value) for value in row], kind, 0, grid=False) for row in layer.weight.tolist()]
        data, exact = in_floats(vector, kind, STREAM[1]), []
        for row, offset in zip(rows, bias, strict=True):
            exact.append(sum(map(operator.mul, row, data)) + offset * 2 ** STREAM[1])
        vector = [requantise(total, STREAM[1], STREAM, relu=layer is not model[-1]) for total in exact]
    return vector


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 4, 2, stride=2)
        self.last = nn.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.last(F.avg_pool2d(self.second(x), 2).flatten(1))


class Best(nn.Module):
    """The places of the best classes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 30)

    def forward(self, x):
        return self.layer(x).topk(6).indices


def run_best(model, vector):
    scores = linear(model.layer, vector)
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:6]


def run_mlp(model, vector):
    first, _, second, _, third = model
    return linear(third, linear(second, linear(first, vector, relu=True), relu=True))


def run_images(model, image):
    image = average_pool(conv2d(model.second, max_pool(conv2d(model.first, image, relu=True), 2)), 2)
    return linear(model.last, [channel[0][0] for channel in image])


def run_encoder(model, rows):
    rows = add(rows, attend(model.attention, [norm(model.norm1, row) for row in rows]))
    hidden = table(gelu, [linear(model.up, norm(model.norm2, row)) for row in rows])
    return [value for row in add(rows, [linear(model.down, row) for row in hidden]) for value in row]


def attend(model, rows):
    queries, keys, values = ([linear(layer, row) for row in rows] for layer in model.qkv)
    size, joined = len(rows[0]) // model.heads, [[] for _ in rows]
    for start in range(0, len(rows[0]), size):
        query, key, value = ([row[start : start + size] for row in each] for each in (queries, keys, values))
        scores = table(lambda score: score / math.sqrt(size), matmul(query, key))
        mixed = matmul([softmax(row) for row in scores], list(zip(*value, strict=True)))
        joined = [before + row for before, row in zip(joined, mixed, strict=True)]
    return add(rows, [linear(model.out, row) for row in joined])


def read_stream(files, name):
    """The samples of a stream in an emitted folder, as nested lists."""
    told, found = json.loads(files["sim/streams.json"])[name], []
    for line in files[f"sim/{name}.hex"].split():
        for lane in range(told["lanes"]):
            bits = int(line, 16) >> lane * told["spacing"] & (1 << told["width"]) - 1
            found.append(bits - (1 << told["width"]) * (bits >> told["width"] - 1))
    size = math.prod(told["shape"])
    order = told["order"] or range(size)
    samples = [dict(zip(order, found[at : at + size], strict=True)) for at in range(0, len(found), size)]
    return [nested([sample[place] for place in range(size)], told["shape"]) for sample in samples]


def run_recurrent(model, rows):
    return [
        value
        for row in recurrent(model.layer, rows)
        for value in linear(model.last, [requantise(value, 14) for value in row])
    ]


@torch.no_grad()
def lively(model):
    """The model with larger weights, so that its results differ, and saturate."""
    for parameter in model.parameters():
        parameter *= 4
    return model


MODELS = {
    "mlp": (lambda: mlp(16, 12, 8, 5), (16,), run_mlp),
    "best": (Best, (16,), run_best),
    "images": (Images, (2, 8, 8), run_images),
    "encoder": (Encoder, (6, 8), run_encoder),
    "gru": (lambda: lively(Sequences(nn.GRU, num_layers=2)), (7, 4), run_recurrent),
    "lstm": (lambda: lively(Sequences(nn.LSTM, num_layers=2)), (7, 4), run_recurrent),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_page_of_arithmetic_gives_the_expected_integers_of_emitted_networks(name):
    make, shape, run = MODELS[name]
    torch.manual_seed(0)
    model = make()
    formats = config(data=DATA, weight=WEIGHT, bias=BIAS)
    # Quantisation replaces the layers of the model that it is given.
    design = lower_graph(quantised(make_alike(make, model), torch.randn(2, *shape), formats))
    assert not design.unsupported
    files = emit_folder(design, fold_design(design, multipliers=64), "Model", random_inputs(design, 30)).files
    given, expected = read_stream(files, "data_in_0"), read_stream(files, "data_out_0")
    assert len(given) == 30
    flat = torch.tensor(expected).reshape(30, -1).tolist()
    assert [run(model, sample) for sample in given] == flat
    assert len({value for sample in flat for value in sample}) > 20


def test_the_page_of_arithmetic_gives_the_expected_integers_of_layers_in_mxint():
    torch.manual_seed(0)
    model = lively(mlp(40, 16, 8, 5))
    config = {"name": "mxint", **{f"{part}_width": MANTISSA for part in ("data_in", "weight", "bias")}}
    graph = quantised(
        make_alike(lambda: mlp(40, 16, 8, 5), model),
        torch.randn(2, 40),
        {"linear": {"config": {**config, "data_in_block_size": 8}}},
    )
    design = lower_graph(prepare_graph(graph, Build(precision="fixed({},{})".format(*STREAM)))[0])
    assert not design.unsupported
    files = emit_folder(design, fold_design(design, multipliers=64), "Model", random_inputs(design, 30)).files
    given, expected = read_stream(files, "data_in_0"), read_stream(files, "data_out_0")
    assert [run_mxint(model, sample) for sample in given] == expected
    assert len({value for sample in expected for value in sample}) > 20


@pytest.mark.parametrize("kind", ["minifloat_ieee", "minifloat_denorm", "block_minifloat"])
def test_the_page_of_arithmetic_gives_the_expected_integers_of_layers_in_minifloats(kind):
    torch.manual_seed(0)
    model = lively(mlp(40, 16, 8, 5))
    widths = {
        f"{part}_{key}": bits
        for part in ("data_in", "weight", "bias")
        for key, bits in zip(("width", "exponent_width"), FLOAT, strict=True)
    }
    alike = make_alike(lambda: mlp(40, 16, 8, 5), model)
    graph = quantised(alike, torch.randn(2, 40), {"linear": {"config": {"name": kind, **widths}}})
    design = lower_graph(prepare_graph(graph, Build(precision="fixed({},{})".format(*STREAM)))[0])
    assert not design.unsupported
    files = emit_folder(design, fold_design(design, multipliers=64), "Model", random_inputs(design, 30)).files
    given, expected = read_stream(files, "data_in_0"), read_stream(files, "data_out_0")
    assert [run_floats(model, kind, sample) for sample in given] == expected
    assert len({value for sample in expected for value in sample}) > 20


def make_alike(make, model):
    other = make()
    other.load_state_dict(model.state_dict())
    return other
