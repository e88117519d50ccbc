"""Causal language models, whole: tokens in, a score for every token of the vocabulary out."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import prepare_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, make

VOCABULARY, WIDTH, HEADS, ROWS = 13, 16, 4, 6


class Causal(nn.Module):
    """Attention in the manner of nanoGPT, its mask a buffer."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = (each.view(batch, rows, HEADS, -1).transpose(1, 2) for each in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :rows, :rows] == 0, -math.inf)
        y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, rows, width))


class GPT(nn.Module):
    """Learned positions, layer norms, GELU; the head has the weights of the embedding."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(32, WIDTH)
        self.attention, self.drop = Causal(), nn.Dropout(0.1)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        x = x + self.attention(self.norm1(x))
        x = x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))
        return self.head(self.norm3(x))


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


class Llama(nn.Module):
    """Written out RMS norms, rotary positions, two heads of keys for four of queries, a gated MLP."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.q, self.k, self.v = (nn.Linear(WIDTH, size, bias=False) for size in (WIDTH, WIDTH // 2, WIDTH // 2))
        self.out, self.norms = nn.Linear(WIDTH, WIDTH, bias=False), nn.ModuleList(RMSNorm() for _ in range(3))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def rotated(self, x):
        size = x.shape[-1]
        angles = torch.outer(torch.arange(x.shape[-2]), 1 / 100 ** (torch.arange(0, size, 2) / size))
        angles = torch.cat([angles, angles], dim=-1)
        turned = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], dim=-1)
        return x * angles.cos() + turned * angles.sin()

    def attend(self, x):
        q, k, v = (each(x).unflatten(-1, (-1, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.attend(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x))


def design_of(model, precision="fixed(8,4)", rows=ROWS):
    torch.manual_seed(0)
    graph, *_ = prepare_graph(
        MaseGraph(model.eval(), {"ids": torch.randint(0, VOCABULARY, (2, rows))}), Build(precision=precision)
    )
    return lower_graph(graph), graph


@pytest.mark.parametrize("kind", [GPT, Llama])
def test_a_language_model_lowers_whole_without_anything_asked(kind):
    design, _ = design_of(kind())
    assert design.unsupported == ()
    assert [each.options.get("below") for each in design.inputs] == [VOCABULARY]
    assert design.operations[design.outputs[0]].out.shape == (ROWS, VOCABULARY)


@pytest.mark.parametrize("kind", [GPT, Llama])
def test_its_integers_are_close_to_the_model_in_floats(kind):
    torch.manual_seed(1)
    model = kind()
    design, _ = design_of(model, "fixed(16,10)")
    ids = torch.randint(0, VOCABULARY, (20, ROWS))
    given = design.operations[design.outputs[0]].out.format.decode(integer_graph(design).model(ids))
    wanted = model(ids)
    assert (given - wanted).abs().max() < 0.05 * wanted.abs().max()
    assert (given.argmax(-1) == wanted.argmax(-1)).float().mean() > 0.97


@pytest.mark.parametrize("kind", [GPT, Llama])
def test_no_token_knows_those_behind_it(kind):
    torch.manual_seed(2)
    design, _ = design_of(kind())
    ids = torch.randint(0, VOCABULARY, (30, ROWS))
    other = torch.cat([ids[:, :3], (ids[:, 3:] + 1) % VOCABULARY], dim=1)
    first, second = (integer_graph(design).model(each) for each in (ids, other))
    assert torch.equal(first[:, :3], second[:, :3])
    assert not torch.equal(first[:, 3:], second[:, 3:])


@VERILATOR
@pytest.mark.parametrize("kind", [GPT, Llama])
def test_verilator_gives_the_same_integers(tmp_path, kind):
    torch.manual_seed(3)
    design, _ = design_of(kind())
    check(emit_folder(design, fold_design(design, multipliers=64), kind.__name__, random_inputs(design, 20)), tmp_path)
    assert make(tmp_path, "lint").stderr == ""
