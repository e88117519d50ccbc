"""A chain of layers: the jet-tagging MLP 16-64-32-32-5, equal in every integer, at its full rate."""

from itertools import pairwise

import pytest
import torch

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, linear
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import linear_memories, linear_parameters, stream
from tests.rtl.draws import generator

SIZES = (16, 64, 32, 32, 5)
DATA, WEIGHT, BIAS = FixedPoint(8, 4), FixedPoint(8, 6), FixedPoint(16, 10)
#: Multipliers -> elements of a beat at the input and behind each layer.
FOLDINGS = {488: (16, 16, 8, 8, 5), 52: (4, 4, 4, 4, 1), 4: (1, 1, 1, 1, 1)}


def trained(seed):
    """Weights and biases with some spread, as integers; and inputs that reach the ends of the format."""
    random = generator(seed)
    layers = []
    for ins, outs in pairwise(SIZES):
        weight = torch.randn(outs, ins, generator=random, dtype=torch.float64) * 2 / ins**0.5
        bias = torch.randn(outs, generator=random, dtype=torch.float64) / 4
        layers.append((WEIGHT.encode(weight), BIAS.encode(bias)))
    return layers


def text(parameters, memories, number):
    files = {name: f'"case_0_{number}_{name.lower()}.mem"' for name in memories}
    return ", ".join(f".{name}({value})" for name, value in {**parameters, **files}.items())


def chain(lanes, vectors):
    layers = trained(1)
    values = DATA.encode(torch.randn(vectors, SIZES[0], generator=generator(2), dtype=torch.float64) * 3)
    wires, memories, hidden = [], {}, values
    for number, (weight, bias) in enumerate(layers):
        formats = Affine(DATA, WEIGHT, BIAS, DATA, relu=number < len(layers) - 1)
        hidden = linear(hidden, weight, bias, formats)
        ins, outs = weight.shape[1], weight.shape[0]
        own = linear_memories(formats, weight, bias, lanes[number], lanes[number + 1])
        memories |= {f"{number}_{name}": words for name, words in own.items()}
        parameters = text(linear_parameters(formats, ins, outs, lanes[number], lanes[number + 1]), own, number)
        wires.append(instance(number, lanes, parameters, last=number == len(layers) - 1))
    return Case(
        "mlp",
        {"lanes": lanes},
        {"data_in_0": stream(values, 8, lanes[0])},
        {"data_out_0": stream(hidden, 8, lanes[-1])},
        memories,
        body="\n".join(wires),
        uses=("fixed_linear",),
    )


def instance(number, lanes, parameters, last):
    before = "{data_in_0}", "{data_in_0_valid}", "{data_in_0_ready}"
    source = before if number == 0 else (f"s{number}", f"v{number}", f"r{number}")
    after = "{data_out_0}", "{data_out_0_valid}", "{data_out_0_ready}"
    target = after if last else (f"s{number + 1}", f"v{number + 1}", f"r{number + 1}")
    declared = (
        "" if last else f"logic [{8 * lanes[number + 1] - 1}:0] s{number + 1}; logic v{number + 1}, r{number + 1};\n"
    )
    return (
        f"{declared}fixed_linear #({parameters}) fc{number} (.clk, .rst, .data_in_0({source[0]}), "
        f".data_in_0_valid({source[1]}), .data_in_0_ready({source[2]}), .data_out_0({target[0]}), "
        f".data_out_0_valid({target[1]}), .data_out_0_ready({target[2]}));"
    )


def ideal(lanes):
    """Cycles per vector of the slowest layer."""
    return max(SIZES[k] // lanes[k] * (SIZES[k + 1] // lanes[k + 1]) for k in range(4))


@pytest.mark.parametrize("multipliers", FOLDINGS)
def test_every_integer_of_the_chain_is_right_and_it_runs_at_the_rate_of_its_slowest_layer(multipliers):
    lanes = FOLDINGS[multipliers]
    assert sum(a * b for a, b in pairwise(lanes)) == multipliers
    vectors = 200 if multipliers < 10 else 1000
    bench = Bench([chain(lanes, vectors)])
    (result,) = bench.run()
    assert result.fine, str(result)
    assert result.last_cycle / vectors <= 1.055 * ideal(lanes)
    bench.check("--stall", 40)
    bench.check("--stall", 40, "--reset", 1234)
