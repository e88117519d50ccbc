"""RMS norms that are written out, as one operator."""

import copy

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes


class Llama(nn.Module):
    """As in Llama: in float32, and back, times a weight."""

    def __init__(self, size=8):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


class Gemma(Llama):
    def forward(self, x):
        return x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight.float())


class Roots(Llama):
    def forward(self, x):
        return x * (1 / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5))


class Shared(Llama):
    """What is normalised is used twice, so the weight stays apart."""

    def forward(self, x):
        y = x * torch.rsqrt(torch.mean(x**2, 2, True) + 1e-6)
        return y * self.weight + y


class Tokens(Llama):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)


class Another(Llama):
    def forward(self, x):
        return (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Twice(Llama):
    def forward(self, x):
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * root + root


class Cubed(Llama):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6)


def fused(model, values):
    graph, found = passes.norm_fusion_transform_pass(MaseGraph(model, {"x": values}))
    graph.propagate()
    return graph, found["fused"]


def operators(graph):
    return [getattr(node.target, "__name__", node.target) for node in graph.nodes if node.op.startswith("call")]


@pytest.mark.parametrize("model", [Llama(), Gemma(), Roots(), Shared()], ids=["llama", "gemma", "roots", "shared"])
def test_what_is_fused_gives_what_was_written(model):
    values = torch.randn(2, 5, 8) * 3
    graph, names = fused(copy.deepcopy(model), values)
    assert len(names) == 1
    assert operators(graph).count("rms_norm") == 1
    assert not {"rsqrt", "sqrt", "mean", "pow"} & set(operators(graph))
    assert torch.allclose(graph.model(values), model(values), rtol=1e-6, atol=1e-6)


def test_the_weight_is_part_of_it_only_where_nobody_else_wants_what_is_normalised():
    assert operators(fused(Llama(), torch.randn(2, 5, 8))[0])[-1] == "rms_norm"
    assert operators(fused(Shared(), torch.randn(2, 5, 8))[0])[-2:] == ["mul", "add"]


@pytest.mark.parametrize("model", [Tokens(), Another(), Twice(), Cubed()], ids=["tokens", "another", "twice", "cubed"])
def test_what_is_no_such_norm_stays(model):
    values = torch.rand(2, 5, 8) + 0.1
    before = model(values)
    graph, names = fused(model, values)
    assert names == []
    assert torch.equal(graph.model(values), before)


def test_only_what_is_selected_is_fused():
    model = nn.Sequential(Llama(), Llama())
    graph, found = passes.norm_fusion_transform_pass(MaseGraph(model, {"input": torch.randn(2, 3, 8)}), {"only": ["1"]})
    assert operators(graph).count("rms_norm") == len(found["fused"]) == 1
