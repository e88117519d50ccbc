"""The quantised graph as its hardware computes it: bit for bit what the integers are, for operators of every kind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from mase_server import passes
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import requantise
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.as_hardware import as_hardware_transform_pass
from tests.hardware.test_attention import Encoder
from tests.hardware.test_lowering import Rows, Turned, Twice, config, mlp, quantised
from tests.hardware.test_recurrent import Sequences
from tests.hardware.test_residuals import Block, Down, Gate
from tests.hardware.test_vision_transformer import Patches, Words


class Pooled(nn.Module):
    """Means of images with a border, and the largest of windows."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv(F.pad(x, (1, 0, 0, 1)))), 3, 1)
        return F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 1).flatten(1)


class Means(nn.Module):
    """Means of rows."""

    def forward(self, x):
        return F.gelu(x).mean(1) + x.mean(-1, keepdim=True).squeeze(-1)[:, :1]


class Largest(nn.Module):
    """The largest results of a layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 6)

    def forward(self, x):
        return torch.topk(self.layer(x), 3).values


class Functions(nn.Module):
    """Functions of one number, one behind the other, and a softmax of them."""

    def forward(self, x):
        return torch.softmax(F.gelu(x) * 3 - torch.sigmoid(F.silu(x)) / 3, -1)


CASES = {
    "mlp": (mlp(9, 12, 5), (9,)),
    "turned": (Turned(), (2, 3, 4)),
    "rows": (Rows(), (5, 6)),
    "twice": (Twice(), (4,)),
    "block": (Block(), (2, 6, 5)),
    "down": (Down(), (2, 8, 8)),
    "gate": (Gate(), (6,)),
    "encoder": (Encoder(), (5, 8)),
    "patches": (Patches(), (3, 8, 8)),
    "pooled": (Pooled(), (2, 8, 9)),
    "functions": (Functions(), (7,)),
    "means": (Means(), (3, 6)),
    "largest": (Largest(), (7,)),
    "gru": (Sequences(nn.GRU, "state", num_layers=2), (5, 4)),
    "blocks": (mlp(9, 12, 5), (9,)),
    "floats": (mlp(9, 12, 5), (9,)),
    "lstm": (Sequences(nn.LSTM, num_layers=2), (5, 4)),
}
#: Data: width and fraction.  Of 14 bits, sums of products are too long for float32.
FORMATS = [(8, 4), (8, 7), (6, 3), (12, 9), (14, 10)]


def values_of(design, given):
    """What the integers of a design are as numbers."""
    integers = integer_graph(design).model(
        *(each.out.format.encode(values) for each, values in zip(design.inputs, given, strict=True))
    )
    integers = integers if isinstance(integers, tuple) else (integers,)
    return [
        design.operations[name].out.format.decode(each).float()
        for name, each in zip(design.outputs, integers, strict=True)
    ]


def listed(found):
    return list(found) if isinstance(found, tuple) else [found]


def case(name, data, seed):
    torch.manual_seed(seed)
    model, shape = CASES[name]
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    width, fraction = data
    formats = config(data, (8, 6), (width, fraction), data)
    graph = quantised(model, torch.randn(3, *shape), formats)
    if name == "blocks":
        graph, _ = passes.quantize_transform_pass(graph, {"relu": {"config": {"name": "mxint", "data_in_width": 4}}})
    if name == "floats":
        of_data = {"name": "minifloat_ieee", "data_in_width": 5, "data_in_exponent_width": 2}
        graph, _ = passes.quantize_transform_pass(graph, {"relu": {"config": of_data}})
    return graph, torch.randn(40, *shape) * 2 ** (width - fraction - 2)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(CASES)), data=st.sampled_from(FORMATS), seed=st.integers(0, 99))
def test_it_gives_what_the_integers_are(name, data, seed):
    graph, values = case(name, data, seed)
    design = lower_graph(graph)
    wanted = values_of(design, [values])
    graph, found = as_hardware_transform_pass(graph)
    assert found["without"] == {}
    for got, expected in zip(listed(graph.model(values)), wanted, strict=True):
        assert torch.equal(got, expected)


def differing(name, data):
    """Elements of 20 draws that the quantised graph gives otherwise, before and after."""
    before = after = 0
    for seed in range(20):
        graph, values = case(name, data, seed)
        (wanted,) = values_of(lower_graph(graph), [values])
        before += int((graph.model(values) != wanted).sum())
        after += int((as_hardware_transform_pass(graph)[0].model(values) != wanted).sum())
    return before, after


@pytest.mark.parametrize(("name", "data"), [("functions", (12, 9)), ("encoder", (12, 9)), ("mlp", (20, 10))])
def test_without_it_some_elements_differ(name, data):
    before, after = differing(name, data)
    assert before > 0
    assert after == 0


def test_all_kinds_are_tried():
    kinds = {
        operation.kind for name in CASES for operation in lower_graph(case(name, (8, 4), 0)[0]).operations.values()
    }
    other = {"embedding", "gather"}
    assert set(KINDS) - kinds - other == set(), "add a model with this kind to CASES"


def test_indices_are_looked_up_as_before():
    torch.manual_seed(6)
    values = torch.randint(0, 11, (20, 6))
    graph = quantised(Words(), values, config())
    wanted = graph.model(values)
    assert torch.equal(as_hardware_transform_pass(graph)[0].model(values), wanted)


def test_what_is_exact_as_it_is_stays():
    graph, _ = case("block", (8, 4), 0)
    text = str(graph.fx_graph)
    assert as_hardware_transform_pass(graph)[1] == {"replaced": {}, "without": {}}
    assert str(graph.fx_graph) == text


def test_a_node_keeps_its_name_and_what_only_it_read_is_gone():
    graph, _ = case("encoder", (8, 4), 0)
    names = [node.name for node in graph.fx_graph.nodes if node.name.startswith("norm1")]
    assert {"norm1", "norm1_weight"} <= set(names)
    _, found = as_hardware_transform_pass(graph)
    assert found["replaced"]["norm1"] == "norm"
    assert "norm1_weight" not in {node.name for node in graph.fx_graph.nodes}
    graph.fx_graph.lint()
    graph.propagate()
    assert graph.facts[next(node for node in graph.fx_graph.nodes if node.name == "norm1")].dtype == "float32"


def test_operators_without_hardware_stay_as_they_are():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.softmax(torch.cumsum(F.gelu(x), 1), 1)

    values = torch.randn(5, 6)
    graph = quantised(Odd(), values, config((10, 8), out=(10, 8)))
    graph, found = as_hardware_transform_pass(graph)
    assert list(found["without"]) == ["cumsum"]
    assert set(found["replaced"]) == {"gelu", "softmax"}
    design = lower_graph(quantised(nn.Sequential(nn.GELU()), values, config((10, 8), out=(10, 8))))
    (gelu,) = values_of(design, [values])
    format_ = FixedPoint(10, 8)
    summed = format_.nearest(torch.cumsum(gelu, 1))
    design = lower_graph(quantised(nn.Sequential(nn.Softmax(1)), values, config((10, 8), out=(10, 8))))
    assert torch.equal(graph.model(values), values_of(design, [summed])[0])


@given(
    before=st.tuples(st.integers(2, 20), st.integers(-3, 20)),
    after=st.tuples(st.integers(2, 20), st.integers(-3, 20)),
    seed=st.integers(0, 9),
)
def test_rounding_of_integers_and_of_numbers_is_one(before, after, seed):
    """What quantise does to a number is what a component does to its integer."""
    from_, to = FixedPoint(*before), FixedPoint(*after)
    low, high = from_.integers
    generator = torch.Generator().manual_seed(seed)
    integers = torch.cat([torch.randint(low, high + 1, (200,), generator=generator), torch.tensor([low, high, 0])])
    assert torch.equal(requantise(integers, from_.fraction_width, to), to.encode(from_.decode(integers)))
    assert torch.equal(to.decode(to.encode(from_.decode(integers))), to.nearest(from_.decode(integers)))


def test_it_is_a_pass_that_needs_weights():
    from mase_server.passes.registry import built_in

    declared = built_in()["as_hardware"]
    assert (declared.kind, declared.needs) == ("transform", {"weights"})
    assert declared.function is passes.as_hardware_transform_pass
