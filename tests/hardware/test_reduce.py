"""Means, sums and the largest over dimensions of a sample."""

import pytest
import torch
from torch import nn

from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.netlist import build_netlist
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Over(nn.Module):
    """A layer, something over dimensions of [samples, 6, 2, 4], and a layer."""

    def __init__(self, function, dim, keepdim=False):
        super().__init__()
        self.first, self.function, self.dim, self.keepdim = nn.Linear(4, 4), function, dim, keepdim
        size = 1 if keepdim and dim == -1 else {(1, 2): 4, (2, 3): 6, (1, 3): 2}.get(dim, 4)
        self.last = nn.Linear(size, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(getattr(x, self.function)(dim=self.dim, keepdim=self.keepdim))


MODELS = [
    Over("mean", 1), Over("sum", 2), Over("mean", -1, keepdim=True), Over("mean", (1, 2)), Over("amax", (2, 3)),
    Over("sum", (1, 3)), Over("amax", 1, keepdim=True),
]  # fmt: skip
NAMES = [f"{each.function}-{each.dim}" for each in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_integers_are_those_of_the_quantised_graph(model):
    torch.manual_seed(1)
    values = torch.randn(9, 6, 2, 4) * 2
    graph = quantised(model, values, config())
    # A mean in float32 may fall just beside a tie that it is on.
    difference = (integers(graph, values) - graph.model(values)).abs()
    assert (difference == 0).float().mean() > 0.98
    assert difference.max() <= 1 / 16


@VERILATOR
@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_verilator_gives_the_same_integers(tmp_path, model):
    check(emitted(model, torch.randn(2, 6, 2, 4), 12, multipliers=12), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


def test_a_mean_over_tokens_takes_them_as_they_come():
    design = lower_graph(quantised(Over("mean", 1), torch.randn(2, 6, 2, 4), config()))
    assert [each.kind for each in design.operations.values()] == ["input", "linear", "reduce", "linear"]
    modules = [each.module for each in build_netlist(design, fold_design(design)).instances]
    assert {"fixed_reduce", "fixed_mean"} < set(modules)
    assert "swap_buffer" not in modules


def test_a_mean_over_samples_has_no_hardware():
    (told,) = lower_graph(quantised(Over("mean", (0, 1)), torch.randn(2, 6, 2, 4), config())).unsupported
    assert "has the samples" in told.why
