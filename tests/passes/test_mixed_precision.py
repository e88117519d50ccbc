"""The search for mixed precision, against trying everything."""

import copy
import itertools
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.passes.error import measure, original_of
from mase_server.passes.mixed_precision import Unit, cost_of, search_within_budget, search_within_noise

WIDTHS = (3, 4, 6, 8)


@st.composite
def tables(draw):
    """Units whose noise falls with the width as rounding noise does, more or less."""
    units = []
    for _ in range(draw(st.integers(1, 5))):
        size, gain = draw(st.integers(1, 50)), draw(st.floats(1e-6, 1.0))
        noises = [gain * 4.0**-width * draw(st.floats(0.5, 2.0)) for width in WIDTHS]
        units.append(Unit(tuple(float(width * size) for width in WIDTHS), tuple(sorted(noises, reverse=True))))
    return units


def noise_of(units, choice):
    return sum(unit.noises[level] for unit, level in zip(units, choice, strict=True))


def everything(units):
    return [list(choice) for choice in itertools.product(range(len(WIDTHS)), repeat=len(units))]


@given(units=tables(), share=st.floats(0.0, 1.0))
def test_the_noise_within_a_budget_is_near_the_least_there_is(units, share):
    low, high = (sum(unit.costs[level] for unit in units) for level in (0, -1))
    budget = low + share * (high - low)
    found = search_within_budget(units, budget, lambda choice: noise_of(units, choice))
    least = min(noise_of(units, choice) for choice in everything(units) if cost_of(units, choice) <= budget)
    assert cost_of(units, found) <= budget
    assert noise_of(units, found) <= 2 * least, "3 dB of the best"


@given(units=tables(), share=st.floats(0.0, 1.0))
def test_the_cost_for_a_noise_is_near_the_least_there_is(units, share):
    noises = [noise_of(units, [level] * len(units)) for level in (-1, 0)]
    limit = noises[0] * (noises[1] / noises[0]) ** share * 1.0001
    found = search_within_noise(units, limit, lambda choice: noise_of(units, choice))
    least = min(cost_of(units, choice) for choice in everything(units) if noise_of(units, choice) <= limit)
    assert noise_of(units, found) <= limit
    assert cost_of(units, found) <= 1.15 * least


def test_a_budget_that_is_out_of_reach_gives_what_is_nearest():
    units = [Unit((3.0, 8.0), (0.5, 0.1)), Unit((6.0, 16.0), (0.4, 0.2))]
    assert search_within_budget(units, 1.0, lambda choice: noise_of(units, choice)) == [0, 0]
    assert search_within_noise(units, 0.01, lambda choice: noise_of(units, choice)) == [1, 1]


def test_measuring_counts_and_not_what_units_do_alone():
    """Two units whose errors cancel, but only in one combination."""
    units = [Unit((1.0, 2.0), (4.0, 1.0)), Unit((1.0, 2.0), (4.0, 1.0))]
    truth = {(0, 0): 8.0, (1, 0): 5.0, (0, 1): 0.5, (1, 1): 2.0}
    assert search_within_budget(units, 3.0, lambda choice: truth[tuple(choice)]) == [0, 1]


def network():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 8)).eval()
    with torch.no_grad():
        model[0].weight.mul_(3)
    return model, torch.randn(40, 6)


FORMATS = ("fixed(3,auto)", "fixed(5,auto)", "fixed(8,auto)")
NODES = ("_0", "_1", "_2", "_3", "_4")
#: Elements of each node's rounded values: parameters and result; the first one's input too.
ELEMENTS = (40 * 6 + 6 * 20 + 20 + 40 * 20, 40 * 20, 20 * 12 + 12 + 40 * 12, 40 * 12, 12 * 8 + 8 + 40 * 8)
BITS = {"fixed(3,auto)": 3, "fixed(5,auto)": 5, "fixed(8,auto)": 8}


def average(formats):
    return sum(BITS[text] * size for text, size in zip(formats, ELEMENTS, strict=True)) / sum(ELEMENTS)


@pytest.fixture(scope="module")
def tried():
    """Every assignment of the formats to the nodes: its average of bits and its ratio, by hand.

    Rounded with torch's own kernel; the fraction widths are those with the least squared error on the float values.
    """
    model, x = network()

    def fixed(value, width):
        high = 2 ** (width - 1) - 1
        options = [torch.fake_quantize_per_tensor_affine(value, 2.0**-f, 0, -high - 1, high) for f in range(-4, 20)]
        return min(range(len(options)), key=lambda i: float((options[i] - value).double().square().sum())) - 4

    def apply(value, width, fraction):
        high = 2 ** (width - 1) - 1
        return torch.fake_quantize_per_tensor_affine(value, 2.0**-fraction, 0, -high - 1, high)

    with torch.no_grad():
        values = [x]
        for layer in model:
            values.append(layer(values[-1]))
        reference = values[-1].double()
        chosen = {
            (index, text): (
                fixed(values[index + 1], BITS[text]), fixed(x, BITS[text]),
                {name: apply(each, BITS[text], fixed(each, BITS[text])) for name, each in layer.named_parameters()},
            )
            for index, layer in enumerate(model) for text in FORMATS
        }  # fmt: skip
        found = {}
        for formats in itertools.product(FORMATS, repeat=5):
            value = apply(x, BITS[formats[0]], chosen[0, formats[0]][1])
            for index, (layer, text) in enumerate(zip(model, formats, strict=True)):
                fraction, _, parameters = chosen[index, text]
                value = apply(torch.func.functional_call(layer, parameters, value), BITS[text], fraction)
            noise = float((value.double() - reference).square().sum())
            found[formats] = (average(formats), 10 * math.log10(float(reference.square().sum()) / noise))
    return found


def searched(**pass_args):
    model, x = network()
    graph = MaseGraph(model, {"input": x})
    original = original_of(graph)
    graph, found = passes.mixed_precision_transform_pass(graph, {"formats": FORMATS, **pass_args})
    return original, graph, found


@pytest.mark.parametrize("bits", [3.5, 4.0, 5.0, 6.0, 7.0])
def test_a_budget_of_bits_is_met_as_well_as_by_trying_everything(tried, bits):
    original, graph, found = searched(bits=bits)
    formats = tuple(found["quantised"][name] for name in NODES)
    best = max(sqnr for average_, sqnr in tried.values() if average_ <= bits)
    assert found["met"]
    assert found["bits"] == pytest.approx(tried[formats][0], rel=1e-12)
    assert found["bits"] <= bits
    assert found["sqnr"] == pytest.approx(tried[formats][1], abs=1e-4), "what is told is what is there"
    assert found["sqnr"] >= best - 0.5
    measured = measure(original, graph.model, graph.knowledge.feed(graph.arguments))
    assert measured.output.sqnr == pytest.approx(found["sqnr"], rel=1e-9), "and what the graph does"


@pytest.mark.parametrize("sqnr", [12.0, 20.0, 25.0, 30.0])
def test_a_budget_of_error_is_met_with_as_few_bits_as_by_trying_everything(tried, sqnr):
    _, _, found = searched(sqnr=sqnr)
    fewest = min(average_ for average_, reached in tried.values() if reached >= sqnr)
    assert found["met"]
    assert found["sqnr"] >= sqnr
    assert found["bits"] <= 1.03 * fewest


def test_what_cannot_be_met_is_said_and_the_nearest_is_in_the_graph(tried):
    _, graph, found = searched(bits=2.0)
    assert not found["met"]
    assert found["problem"] == "the narrowest formats take 3.00 bits on average, more than 2"
    assert set(found["quantised"].values()) == {"fixed(3,auto)"}
    _, graph, found = searched(sqnr=80.0)
    assert not found["met"]
    assert re.fullmatch(r"the outputs reach \d+\.\d dB, less than 80 dB: wider formats .*", found["problem"])
    assert found["sqnr"] >= max(sqnr for _, sqnr in tried.values()) - 1
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)


def test_no_format_stays_open_and_the_model_is_as_it_was():
    model, x = network()
    before = copy.deepcopy(model.state_dict())
    graph, _ = passes.mixed_precision_transform_pass(MaseGraph(model, {"input": x}), {"bits": 5.0})
    texts = [node.args[1] for node in graph.nodes if getattr(node.target, "__name__", "") == "quantise"]
    assert len(texts) == 12
    assert all(re.fullmatch(r"fixed\(\d+,-?\d+\)", text) for text in texts)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_only_what_is_selected_is_searched():
    _, _, found = searched(bits=5.0, only=["0", "2"])
    assert list(found["quantised"]) == ["_0", "_2"]


def test_formats_of_different_kinds_may_be_mixed():
    _, _, found = searched(bits=6.0, formats=("ternary", "mxint(4)", "fixed(8,auto)"))
    assert found["met"]
    assert set(found["quantised"].values()) <= {"ternary", "mxint(4)", "fixed(8,auto)"}


def test_the_same_again_gives_the_same():
    assert searched(bits=4.5)[2]["quantised"] == searched(bits=4.5)[2]["quantised"]


ERRORS = [
    ({}, "mixed_precision: there is no budget; give bits (on average, at most) or sqnr (dB, at least)"),
    ({"bits": 4, "formats": ()}, "mixed_precision: formats is empty"),
    ({"bits": 4, "formats": ["fixt(8)"]}, "no number format is called 'fixt'"),
    ({"bits": 4, "only": ["nothing"]}, "only names 'nothing'"),
]


@pytest.mark.parametrize(("pass_args", "message"), ERRORS)
def test_what_cannot_be_read_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        passes.mixed_precision_transform_pass(MaseGraph(*network_and_inputs()), pass_args)


def network_and_inputs():
    model, x = network()
    return model, {"input": x}


def test_a_model_on_meta_has_no_errors_to_measure():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4))
    graph = MaseGraph(model, {"input": torch.randn(2, 4, device="meta")})
    with pytest.raises(ValueError, match="so it needs the model's weights; this one is on meta"):
        passes.mixed_precision_transform_pass(graph, {"bits": 4})
