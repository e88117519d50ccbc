"""Elements that are read in another order, several times or not at all: slices, rotated halves, repeated heads."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Rotated(nn.Module):
    """Rotary positions as Llama has them: halves of the last dimension, one negated."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 16)
        angle = torch.outer(torch.arange(6.0), 1 / 10 ** (torch.arange(4) / 4))
        self.register_buffer("angle", torch.cat([angle, angle], -1))

    def forward(self, x):
        x = self.layer(x).view(*x.shape[:2], 2, 8).transpose(1, 2)
        turned = torch.cat([-x[..., 4:], x[..., :4]], dim=-1)
        return x * self.angle.cos() + turned * self.angle.sin()


class Shared(nn.Module):
    """Two heads of keys for four of queries."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 16), nn.Linear(8, 8)

    def forward(self, x):
        q = self.q(x).view(*x.shape[:2], 4, 4).transpose(1, 2)
        k = self.k(x).view(*x.shape[:2], 2, 4).transpose(1, 2)
        k = k[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape)
        return torch.tanh(q @ k.transpose(-1, -2) * 0.25)


class Gated(nn.Module):
    """A number for each token, and one for each channel, times all of them."""

    def __init__(self):
        super().__init__()
        self.value, self.token, self.channel = nn.Linear(8, 4), nn.Linear(8, 1), nn.Linear(8, 4)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.token(x)) + self.channel(x)[:, -1:]


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        return F.relu(torch.cat([x.flip(1), x[:, :, 1::2], x[:, :, [0, 0, 3]]], dim=2))


class Flattened(nn.Module):
    """The batch joined with rows, and with heads."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        batch, rows = x.shape[:2]
        q, k, v = self.qkv(x.view(-1, 8)).view(batch, rows, 24).split(8, dim=2)
        q, k, v = (each.reshape(batch, rows, 2, 4).transpose(1, 2).reshape(batch * 2, rows, 4) for each in (q, k, v))
        weights = torch.tanh(torch.bmm(q, k.transpose(1, 2)) * 0.25)
        return self.out(torch.bmm(weights, v).view(batch, 2, rows, 4).transpose(1, 2).reshape(batch, rows, 8))


MODELS = [Rotated(), Shared(), Gated(), Turned(), Flattened()]
NAMES = [type(model).__name__.lower() for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_integers_are_those_of_the_quantised_graph(model):
    torch.manual_seed(1)
    values = torch.randn(5, 6, 8)
    graph = quantised(model, values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


@VERILATOR
@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_verilator_gives_the_same_integers(tmp_path, model):
    check(emitted(model, torch.randn(2, 6, 8), 12, multipliers=24), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


def test_what_comes_again_as_it_is_needs_no_addresses():
    design = lower_graph(quantised(Gated(), torch.randn(2, 6, 8), config()))
    repeated = [each.options["blocks"] for each in design.operations.values() if each.kind == "gather"]
    # A number for each of 4 channels of a token; the last token's vector for each of 6.
    assert [(each.size, each.repeats) for each in repeated] == [(1, 4), (4, 6)]


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).view(-1, 6, 4)


def test_samples_that_are_mixed_have_no_hardware():
    (told,) = lower_graph(quantised(Mixing(), torch.randn(6, 4, 4), config())).unsupported
    assert "mixes samples" in told.why


class Written(nn.Module):
    """A part of a tensor is written after the tensor was named."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        y[:, 0] = 0
        return F.relu(y)


class Doubled(Written):
    def forward(self, x):
        y = self.layer(x)
        y[:, 1:].mul_(2)
        return F.relu(y)


@pytest.mark.parametrize("model", [Written(), Doubled()])
def test_a_part_that_is_changed_in_place_is_refused(model):
    told = lower_graph(quantised(model, torch.randn(2, 4), config())).unsupported
    assert any("in place" in each.why for each in told)
