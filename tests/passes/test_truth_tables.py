"""Layers as truth tables give what the layers give, for every code there is."""

import re
from itertools import product

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.passes.tables.functional import format_values, look_up


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def sparse(model, reads):
    """Every neuron of every linear layer reads so many inputs."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            with torch.no_grad():
                mask = torch.stack([torch.randperm(layer.in_features) < reads for _ in range(layer.out_features)])
                layer.weight.copy_((1 + torch.rand_like(layer.weight)) * torch.randn_like(layer.weight).sign() * mask)
        elif isinstance(layer, nn.BatchNorm1d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return model.eval()


def jets():
    """A small LogicNets network: norms and activations around sparse layers."""
    return sparse(
        nn.Sequential(
            nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Hardtanh(),
            nn.Linear(8, 3),
        ), 3,
    )  # fmt: skip


def quantised(model, x, **config):
    graph = MaseGraph(model, {"input": x})
    return passes.quantize_transform_pass(graph, {"by": "type", **(config or {"linear": "fixed(3,1)"})})[0]


def targets(graph):
    return [getattr(node.target, "__name__", node.target) for node in graph.nodes if node.op.startswith("call")]


def test_a_network_becomes_tables_that_are_exact():
    model, x = jets(), torch.randn(64, 6) * 3
    graph = quantised(model, x)
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    graph.fx_graph.lint()
    assert found["kept"] == {}
    figures = [(each["inputs"], each["entries"], each["neurons"]) for each in found["fused"].values()]
    assert figures == [(3, 512, 5), (3, 512, 8), (3, 512, 3)]
    assert torch.equal(graph.model(x), expected)
    assert set(targets(graph)) == {"quantise", "look_up"}
    other = torch.randn(1000, 6) * 3
    again = quantised(model, x).model(other)
    assert torch.equal(graph.model(other), again)
    assert len(again.unique(dim=0)) > 10, "the outputs tell inputs apart"


def test_every_code_of_a_layer_is_in_its_table():
    model = sparse(nn.Sequential(nn.Linear(2, 3), nn.Sigmoid()), 2)
    every = torch.tensor(list(product([-1.0, -0.5, 0.0, 0.5], repeat=2)))
    graph = quantised(model, every, linear="fixed(2,1)")
    expected = graph.model(every)
    graph, _ = passes.logicnets_fusion_transform_pass(graph)
    assert torch.equal(graph.model(every), expected)
    table = next(value for name, value in graph.module.named_buffers() if name.endswith("_table"))
    assert torch.equal(table, expected.T)


def test_codes_are_those_of_twos_complement():
    assert format_values("fixed(2,1)") == [-1.0, -0.5, 0.0, 0.5]
    assert format_values("fixed(2,0,is_signed=False)") == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=r"'ternary' is no fixed-point format; an example: fixed\(3,1\)"):
        format_values("ternary")


def test_a_lookup_counts_the_first_input_most():
    table = torch.arange(2 * 16.0).view(2, 16)
    values = torch.tensor([[-1.0, 0.5], [0.0, -0.5]])
    found = look_up(values, torch.tensor([[0, 1], [1, 0]]), table, "fixed(2,1)")
    assert found.tolist() == [[0 * 4 + 3, 16 + 3 * 4 + 0], [2 * 4 + 1, 16 + 1 * 4 + 2]]


def test_pruned_weights_and_more_dimensions_are_read():
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(2, 5, 8)
    graph, _ = passes.prune_transform_pass(MaseGraph(model, {"input": x}), {"weight": {"sparsity": 0.8}})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(2,0)"})
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    assert len(found["fused"]) == 1
    assert torch.equal(graph.model(x), expected)


def test_float_weights_are_read_as_they_are():
    model, x = jets(), torch.randn(32, 6)
    config = {"linear": {"config": {"name": "fixed", "data_in_width": 3, "data_in_frac_width": 1}}}
    graph = quantised(model, x, **config)
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    assert len(found["fused"]) == 3
    torch.testing.assert_close(graph.model(x), expected)


def test_what_several_use_ends_a_table():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            y = self.inner(x)
            return torch.relu(y) + y

    model, x = sparse(Residual(), 3), torch.randn(9, 3)
    graph = MaseGraph(model, {"x": x})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(3,1)"})
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    assert next(iter(found["fused"].values()))["with"][0] == "inner"
    assert "relu" in targets(graph)
    assert torch.equal(graph.model(x), expected)


def test_only_the_named_layers_become_tables():
    model, x = jets(), torch.randn(4, 6)
    _, found = passes.logicnets_fusion_transform_pass(quantised(model, x), {"only": ["3"]})
    assert [each["with"][0] for each in found["fused"].values()] == ["_3"]


@pytest.mark.parametrize(
    ("model", "config", "reason"),
    [
        (
            nn.Linear(8, 2),
            {"linear": "fixed(3,1)"},
            "a neuron reads 8 inputs of 3 bits, and its table has 2**24",
        ),
        (nn.Linear(2, 2), {"linear": "mxint(8)"}, "its inputs are mxint(8), and not in a fixed-point format"),
        (nn.Linear(2, 2), {"relu": "fixed(3,1)"}, "its inputs are not rounded, and not in a fixed-point format"),
    ],
)
def test_what_can_be_no_table_stays(model, config, reason):
    model = nn.Sequential(model).eval()
    nn.init.ones_(model[0].weight)
    x = torch.randn(3, model[0].in_features)
    graph = quantised(model, x, **config)
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    assert found["fused"] == {}
    assert re.match(re.escape(reason), found["kept"]["_0"])
    assert torch.equal(graph.model(x), expected)


def test_a_norm_that_uses_each_batch_is_in_no_table():
    model, x = jets(), torch.randn(16, 6)
    model[1].train()
    _, found = passes.logicnets_fusion_transform_pass(quantised(model, x))
    first = next(each for each in found["fused"].values() if "_0" in each["with"])
    assert "_1" not in first["with"]


def test_weights_on_meta_are_asked_for():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 2))
    graph = quantised(model, torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"logicnets_fusion needs the values of 0\.weight, which is on meta"):
        passes.logicnets_fusion_transform_pass(graph)


def test_neurons_that_read_fewer_inputs_than_others_read_none_twice():
    model = nn.Sequential(nn.Linear(3, 3)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.5, -1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    x = torch.randn(50, 3)
    graph = quantised(model, x)
    expected = graph.model(x)
    graph, found = passes.logicnets_fusion_transform_pass(graph)
    assert found["fused"]["_0"]["inputs"] == 3
    assert torch.equal(graph.model(x), expected)
