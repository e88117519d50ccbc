"""Means, sums and the largest over dimensions of a sample, and the largest of rows in order."""

import pytest
import torch
from torch import nn

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.netlist import build_netlist
from mase_server.hardware.twin import integer_graph
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


class Best(nn.Module):
    """A classifier that ends in its best classes, `of` the values, the indices or both."""

    def __init__(self, of="both", classes=10, count=3, **options):
        super().__init__()
        self.first, self.last = nn.Linear(8, 12), nn.Linear(12, classes)
        self.of, self.count, self.options = of, count, options

    def logits(self, x):
        return self.last(torch.relu(self.first(x)))

    def forward(self, x):
        found = torch.topk(self.logits(x), self.count, **self.options)
        return {"values": found[0], "indices": found.indices, "both": found}[self.of]


class Shown(Best):
    """The same, with what they are the best of."""

    def forward(self, x):
        logits = self.logits(x)
        return logits, *torch.topk(logits, self.count, **self.options)


@pytest.mark.parametrize("options", [{}, {"dim": 1}, {"largest": False}, {"classes": 30, "count": 30}], ids=str)
def test_the_best_classes_are_an_answer_of_torch_on_the_quantised_values(options):
    torch.manual_seed(1)
    values, format = torch.randn(400, 8) * 2, FixedPoint(8, 4)
    graph = quantised(Shown(**options), values, config())
    design = lower_graph(graph)
    assert not design.unsupported
    logits, found, places = integer_graph(design).model(format.encode(values))
    wanted_logits, wanted, wanted_places = graph.model(values)
    assert torch.equal(format.decode(logits).float(), wanted_logits)
    assert torch.equal(format.decode(found).float(), wanted)
    assert torch.equal(logits.gather(1, places), found)
    assert all(len(set(row)) == len(row) for row in places.tolist())
    distinct = torch.tensor([len(set(row)) == len(row) for row in logits.tolist()])
    assert torch.equal(places[distinct], wanted_places[distinct])
    assert distinct.sum() > 10 or options.get("classes") == 30
    assert not distinct.all()


@VERILATOR
@pytest.mark.parametrize(
    ("model", "shape", "multipliers"),
    [
        (Best("values"), (2, 8), 4),
        (Best("indices"), (2, 8), 216),
        (Best(classes=12, count=4, largest=False), (2, 5, 8), 40),
        (Best("indices", classes=7, count=7), (2, 8), 180),
        (Best("both", classes=6, count=1), (2, 3, 8), 2),
    ],
    ids=["values", "indices", "both", "all", "one"],
)
def test_verilator_gives_the_best_classes(tmp_path, model, shape, multipliers):
    check(emitted(model, torch.randn(shape), 40, multipliers=multipliers), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


@pytest.mark.parametrize(
    ("options", "why"), [({"sorted": False}, "leave sorted out"), ({"dim": 1, "count": 2}, "transpose first")]
)
def test_an_open_order_and_another_dimension_have_no_hardware(options, why):
    (told,) = lower_graph(quantised(Best("values", **options), torch.randn(2, 5, 8), config())).unsupported
    assert why in told.why
