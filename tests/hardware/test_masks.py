"""Masks that depend on no input are part of the hardware; others are refused, and the text says so."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import prepare_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Scores(nn.Module):
    """Attention of one head whose scores are masked in some way."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)))

    def masked(self, scores, x):
        return scores.masked_fill(self.mask == 0, -math.inf)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) * 0.3
        return torch.softmax(self.masked(scores, x), dim=-1) @ self.v(x)


class Chosen(Scores):
    def masked(self, scores, x):
        return torch.where(self.mask[: x.shape[1], : x.shape[1]].bool(), scores, torch.tensor(-1e9))


class Added(Scores):
    def masked(self, scores, x):
        rows = x.shape[1]
        return scores + torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)


class Window(Scores):
    """Two masks; nobody looks at the last column."""

    def masked(self, scores, x):
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places).abs() < 3
        return scores.masked_fill(~near, -math.inf).masked_fill((places == 5) & (places[:, None] != 5), -math.inf)


class Blind(Scores):
    """The first row sees nothing; zeros stand in its place."""

    def masked(self, scores, x):
        return scores.masked_fill(torch.arange(6)[:, None] == 0, -math.inf)

    def forward(self, x):
        scores = self.masked(self.q(x) @ self.k(x).transpose(-1, -2) * 0.3, x)
        weights = torch.softmax(scores, dim=-1)
        return weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0) @ self.v(x)


class Open(Scores):
    def masked(self, scores, x):
        return scores.masked_fill(torch.zeros(6, 6, dtype=torch.bool), -math.inf)


MODELS = [Scores(), Chosen(), Added(), Window(), Blind(), Open()]
NAMES = [type(model).__name__.lower() for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_integers_are_those_of_the_quantised_graph_but_for_a_rounding(model):
    torch.manual_seed(2)
    values = torch.randn(20, 6, 8)
    graph = quantised(model, values, config())
    difference = (integers(graph, values) - graph.model(values)).abs()
    assert difference.max() <= 3 / 16
    assert (difference == 0).float().mean() > 0.9


def test_what_is_masked_decides_nothing():
    torch.manual_seed(3)
    values = torch.randn(4, 6, 8)
    changed = values.clone()
    changed[:, 4:] = torch.randn(4, 2, 8) * 5
    graph = quantised(Scores(), values, config())
    before, after = integers(graph, values), integers(graph, changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


@VERILATOR
@pytest.mark.parametrize("model", [Scores(), Window(), Blind()], ids=["scores", "window", "blind"])
def test_verilator_gives_the_same_integers(tmp_path, model):
    check(emitted(model, torch.randn(2, 6, 8), 12, multipliers=24), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


class Low(Scores):
    def masked(self, scores, x):
        return scores.masked_fill(self.mask == 0, -20.0)


def test_a_number_that_leaves_something_in_a_softmax_is_no_mask():
    told = lower_graph(quantised(Low(), torch.randn(2, 6, 8), config())).unsupported
    assert any("fills in -20.0" in each.why for each in told)


class Operator(nn.Module):
    """One operator for attention, with whatever it is given."""

    def __init__(self, **given):
        super().__init__()
        self.q, self.kv, self.given = nn.Linear(8, 16), nn.Linear(8, 16), given

    def forward(self, x):
        q, (k, v) = self.q(x).view(*x.shape[:2], 4, 4), self.kv(x).view(*x.shape[:2], -1, 4).chunk(2, 2)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        if not self.given.get("enable_gqa"):
            k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        return F.scaled_dot_product_attention(q, k, v, **self.given).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    "given",
    [
        {"is_causal": True},
        {"scale": 0.25, "attn_mask": torch.ones(6, 6).tril().bool()},
        {"attn_mask": torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)},
        {"is_causal": True, "enable_gqa": True},
    ],
    ids=["causal", "boolean", "added", "shared heads"],
)
def test_attention_as_one_operator_is_written_out(given):
    torch.manual_seed(4)
    values = torch.randn(10, 6, 8)
    model = Operator(**given).eval()
    graph, _ = passes.attention_swap_transform_pass(MaseGraph(model, {"x": values}), {"to": "eager"})
    graph, _ = passes.quantize_transform_pass(graph, config((12, 8), (12, 8), (12, 8)))
    assert (integers(graph, values) - model(values)).abs().max() < 0.05


class Encoder(nn.Module):
    """Torch's own encoder under a causal mask."""

    def __init__(self, first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x, mask=torch.ones(6, 6).triu(1).bool())


@VERILATOR
@pytest.mark.parametrize("first", [True, False])
def test_torch_s_own_encoder_is_hardware_without_anything_asked(tmp_path, first):
    torch.manual_seed(5)
    model, values = Encoder(first).eval(), torch.randn(4, 6, 8)
    design = lower_graph(prepare_graph(MaseGraph(model, {"x": values}), Build(precision="fixed(12,8)"))[0])
    assert design.unsupported == ()
    given = integer_graph(design).model(design.inputs[0].out.format.encode(values))
    with torch.no_grad():
        assert (FixedPoint(12, 8).decode(given) - model(values)).abs().max() < 0.15
    check(emit_folder(design, fold_design(design, multipliers=32), "Encoder", random_inputs(design, 8)), tmp_path)
