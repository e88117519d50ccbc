"""Attention: heads split and joined, products of two streams, softmax in integers."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Products(nn.Module):
    """Two heads without softmax: every sum of it is exact in float32 too."""

    def __init__(self, heads=2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 8), heads

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def weigh(self, scores):
        return torch.tanh(scores)

    def forward(self, x):
        q, k, v = (self.split(layer(x)) for layer in self.qkv)
        weights = self.weigh(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


class Attention(Products):
    def weigh(self, scores):
        return F.softmax(scores, dim=-1)


class Fused(nn.Module):
    """Queries, keys and values from one layer; the batch is not always the first dimension."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.tanh(q @ k.transpose(-2, -1) * 0.3)
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape))


class Picked(Fused):
    def forward(self, x):
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = torch.tanh(q @ k.transpose(-2, -1) * 0.3)
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape))


class Encoder(nn.Module):
    """A whole block of a transformer's encoder."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(8), nn.RMSNorm(8), Attention()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@pytest.mark.parametrize("model", [Products(), Picked(), Fused()], ids=["products", "picked", "fused"])
def test_the_integers_are_those_of_the_quantised_graph(model):
    torch.manual_seed(3)
    values = torch.randn(5, 6, 8)
    graph = quantised(model, values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


@pytest.mark.parametrize("model", [Attention(), Encoder()], ids=["attention", "encoder"])
def test_softmax_and_norms_in_integers_are_those_of_floats_but_for_a_rounding_here_and_there(model):
    torch.manual_seed(4)
    values = torch.randn(40, 6, 8)
    graph = quantised(model, values, config())
    difference = (integers(graph, values) - graph.model(values)).abs()
    assert difference.max() <= 4 / 16
    assert (difference == 0).float().mean() > 0.9


@VERILATOR
@pytest.mark.parametrize(
    "model", [Products(), Attention(), Picked(), Encoder()], ids=["products", "attention", "picked", "encoder"]
)
@pytest.mark.parametrize("multipliers", [14, 70])
def test_verilator_gives_the_same_integers(tmp_path, model, multipliers):
    check(emitted(model, torch.randn(2, 6, 8), 20, multipliers=multipliers), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


class Mixer(nn.Module):
    """A linear layer along the other dimension, and back."""

    def __init__(self):
        super().__init__()
        self.tokens, self.channels = nn.Linear(5, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.channels(F.relu(self.tokens(x.transpose(1, 2))).transpose(1, 2))


@VERILATOR
def test_a_buffer_turns_what_comes_in_another_order(tmp_path):
    values = torch.randn(7, 5, 4)
    graph = quantised(Mixer(), values, config())
    assert [each.kind for each in lower_graph(graph).operations.values()].count("swap") == 2
    assert torch.equal(integers(graph, values), graph.model(values))
    check(emitted(Mixer(), values, 30, multipliers=8), tmp_path)
