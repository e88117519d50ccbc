"""A quantised graph as a design, and the design as integers: equal to the quantised graph itself, run by torch."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Stream
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph


def config(data=(8, 4), weight=(8, 6), bias=(8, 6), out=None):
    given = {"data_in": data, "weight": weight, "bias": bias, "data_out": out or data}
    keys = {f"{name}_width": width for name, (width, _) in given.items()}
    keys |= {f"{name}_frac_width": fraction for name, (_, fraction) in given.items()}
    return {"by": "type", "default": {"config": {"name": "integer", **keys}}}


def quantised(model, values, pass_args):
    graph = MaseGraph(model.eval(), {"input" if isinstance(model, nn.Sequential) else "x": values})
    return passes.quantize_transform_pass(graph, pass_args)[0]


def integers(graph, values):
    """What the hardware gives for real inputs, as numbers again."""
    design = lower_graph(graph)
    assert not design.unsupported
    result = integer_graph(design).model(design.inputs[0].out.format.encode(values))
    return design.operations[design.outputs[0]].out.format.decode(result).float()


def mlp(*sizes):
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


formats = st.tuples(st.integers(3, 9), st.integers(-1, 8))


@settings(max_examples=25, deadline=None)
@given(data=formats, weight=formats, bias=formats, out=formats, seed=st.integers(0, 99))
def test_the_integers_are_those_of_the_quantised_graph(data, weight, bias, out, seed):
    torch.manual_seed(seed)
    values = torch.randn(20, 7) * 3
    graph = quantised(mlp(7, 9, 4), values, config(data, weight, bias, out))
    # Sums of at most 9 products of 9 bits are exact in float32.
    assert torch.equal(integers(graph, values), graph.model(values))


def test_values_that_saturate_are_equal_too():
    model, values = mlp(16, 8, 3), torch.randn(50, 16) * 1000
    torch.nn.init.normal_(model[2].weight)
    graph = quantised(model, values, config())
    result = graph.model(values)
    assert {result.max().item(), result.min().item()} == {7.9375, -8.0}
    assert torch.equal(integers(graph, values), result)


def test_a_relu_that_nobody_else_looks_behind_is_part_of_its_layer():
    design = lower_graph(quantised(mlp(4, 5, 3), torch.randn(2, 4), config()))
    assert [(each.kind, each.options.get("relu")) for each in design.operations.values()] == [
        ("input", None), ("linear", True), ("linear", False),
    ]  # fmt: skip


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return F.relu(x), self.second(x)


def test_a_relu_is_an_operation_where_its_input_is_wanted_too():
    values = torch.randn(6, 4)
    graph = quantised(Twice(), values, config())
    design = lower_graph(graph)
    assert [each.kind for each in design.operations.values()] == ["input", "linear", "requantise", "linear"]
    assert len(design.outputs) == 2
    given = design.inputs[0].out.format.encode(values)
    for name, result, expected in zip(
        design.outputs, integer_graph(design).model(given), graph.model(values), strict=True
    ):
        assert torch.equal(design.operations[name].out.format.decode(result).float(), expected)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def forward(self, x):
        return self.layer(x.view(x.shape[0], -1))


def test_samples_may_be_reshaped():
    values = torch.randn(5, 3, 4)
    graph = quantised(Flat(), values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(torch.cumsum(self.first(x), 1))


def test_what_has_no_hardware_is_listed_once_and_the_rest_is_there():
    design = lower_graph(quantised(Odd(), torch.randn(2, 4), config()))
    assert [(each.node, each.operator) for each in design.unsupported] == [("cumsum", "cumsum")]
    assert {"first", "second"} <= set(design.operations)


def test_what_is_not_rounded_has_no_hardware():
    graph = quantised(mlp(4, 3), torch.randn(2, 4), {"by": "type", "relu": "fixed(8,4)"})
    assert "quantise it first" in lower_graph(graph).unsupported[0].why


def test_another_format_has_no_hardware():
    graph = quantised(mlp(4, 3), torch.randn(2, 4), {"by": "type", "linear": "mxint(8)"})
    assert "fixed(8,4)" in lower_graph(graph).unsupported[0].why


def test_parameters_without_values_are_told():
    with torch.device("meta"):
        model = mlp(4, 3)
    graph = quantised(model, torch.randn(2, 4, device="meta"), config())
    assert "has no values" in lower_graph(graph).unsupported[0].why


class Turned(nn.Module):
    """A linear layer on vectors whose elements come in another order than they are counted."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 3)

    def forward(self, x):
        return self.layer(x.permute(0, 2, 3, 1).transpose(1, 3).flatten(1))


def test_dimensions_may_change_their_order():
    values = torch.randn(5, 2, 3, 4)
    graph = quantised(Turned(), values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_elements_flow_as_before_whatever_their_dimensions_are_called(first, second):
    stream = Stream(FixedPoint(8, 4), (2, 3, 4))
    values = torch.randint(-9, 9, (2, 2, 3, 4))
    flowing = stream.flowing(values)
    for dims in (first, second):
        places = torch.arange(24).reshape(stream.shape).permute(dims)
        stream, values = stream.moved(places.flatten(), tuple(places.shape)), values.permute(0, *(d + 1 for d in dims))
        assert torch.equal(stream.flowing(values), flowing)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return F.relu(self.layer(x))


def test_a_layer_takes_the_vectors_of_a_sequence_one_after_the_other():
    values = torch.randn(3, 5, 6)
    graph = quantised(Rows(), values, config())
    assert torch.equal(integers(graph, values), graph.model(values))
