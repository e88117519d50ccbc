"""Samples follow one another at the interval of the slowest operation, whatever parts and meets again in between."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.hardware import netlist
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import count_multiplications, fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.netlist import Ways
from tests.hardware.simulating import check, simulated
from tests.hardware.test_attention import Encoder
from tests.hardware.test_emission import VERILATOR
from tests.hardware.test_lowering import config


def conv(ins, outs, stride=1):
    return nn.Sequential(nn.Conv2d(ins, outs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outs))


class Block(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.first, self.second = conv(ins, outs, stride), conv(outs, outs)
        self.short = nn.Conv2d(ins, outs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


class Residual(nn.Module):
    """A stem, a block, and a block that halves the image: every layer but the stem has as many products."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = conv(3, 4), nn.Linear(8, 5)
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


def built(model, shape, samples, multipliers, copies=1):
    """The design, its folding and what is emitted, with batch norms that do something."""
    torch.manual_seed(3)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.3)
            layer.running_var.uniform_(0.5, 2)
    name = "input" if isinstance(model, nn.Sequential) else "x"
    graph, _ = passes.conv_bn_fusion_transform_pass(MaseGraph(model.eval(), {name: torch.randn(2, *shape)}), {})
    design = lower_graph(passes.quantize_transform_pass(graph, config())[0])
    assert not design.unsupported
    folding = fold_design(design, multipliers=multipliers, copies=copies)
    return design, folding, emit_folder(design, folding, type(model).__name__, random_inputs(design, samples))


def interval(made, folder, samples):
    """Cycles from one sample to the next."""
    status, (out,) = simulated(made, folder)
    assert (status, out.mismatches, out.moved) == (0, 0, out.total)
    return out.interval(samples)


CASES = [(LeNet, (1, 28, 28), 60), (LeNet, (1, 28, 28), 300), (Residual, (3, 12, 12), 40), (Residual, (3, 12, 12), 320)]


@VERILATOR
@pytest.mark.parametrize(("model", "shape", "multipliers"), CASES)
def test_images_follow_one_another_at_the_pace_of_the_slowest_layer(tmp_path, model, shape, multipliers):
    samples = 12
    _, folding, made = built(model(), shape, samples, multipliers)
    assert interval(made, tmp_path, samples) <= 1.05 * folding.interval
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])


def odd():
    """Sizes that hardly any number of lanes divides."""
    layers = [layer for sizes in pairwise((17, 23, 13, 5)) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


SHARED = [(odd, (17,), 1), (odd, (17,), 6), (LeNet, (1, 28, 28), 16)]
SHARED += [(Residual, (3, 12, 12), budget) for budget in (24, 30, 48)]
SHARED += [(Encoder, (6, 8), budget) for budget in (1, 4, 16)]


@VERILATOR
@pytest.mark.parametrize(("model", "shape", "multipliers"), SHARED)
def test_layers_that_take_turns_use_a_small_budget_whatever_their_sizes(tmp_path, model, shape, multipliers):
    samples = 12
    design, folding, made = built(model(), shape, samples, multipliers)
    assert folding.engines
    assert folding.multipliers <= multipliers
    assert interval(made, tmp_path, samples) <= count_multiplications(design) / multipliers / 0.85
    check(made, tmp_path)


@VERILATOR
def test_a_residual_waits_while_an_engine_works_for_other_layers(tmp_path):
    """A row of an image has work for all of them, and the highest comes first."""
    _, folding, made = built(Residual(), (3, 24, 24), 6, 30)
    assert folding.engines
    assert interval(made, tmp_path, 6) <= 1.01 * folding.interval


@VERILATOR
def test_the_interval_of_a_large_design_with_engines_is_told(tmp_path):
    design, folding, made = built(Residual(), (3, 24, 24), 6, 48)
    found = interval(made, tmp_path, 6)
    assert found > 1.03 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.02)


def temporal():
    """Long kernels in one direction, over one channel and over each of several, as networks for signals have them."""
    return nn.Sequential(
        nn.Conv2d(1, 4, (1, 12), padding=(0, 6)), nn.ReLU(), nn.Conv2d(4, 8, (6, 1), groups=4), nn.Conv2d(8, 4, 1)
    )


@VERILATOR
@pytest.mark.parametrize(("multipliers", "taps"), [(8, (1, 6)), (11, (1, 4)), (16, (2, 1))])
def test_a_long_kernel_takes_as_many_multipliers_as_there_are(tmp_path, multipliers, taps):
    samples = 8
    design, folding, made = built(temporal(), (1, 6, 16), samples, multipliers)
    assert taps in {fold.taps for fold in folding.folds.values()}
    found = interval(made, tmp_path, samples)
    assert found <= count_multiplications(design) / multipliers / 0.9
    assert found <= 1.02 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.02)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])


def separable():
    """A convolution of each channel by itself, one of single pixels, and one of pairs of channels with four filters."""
    return nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 32, 3, groups=8)
    )


@VERILATOR
@pytest.mark.parametrize("multipliers", [40, 110, 328])
def test_channels_that_are_convolved_apart_take_as_many_multipliers_as_there_are(tmp_path, multipliers):
    """Several of them come in a beat, and each lane of results has its own."""
    samples = 8
    design, folding, made = built(separable(), (8, 12, 12), samples, multipliers)
    assert any(folding.folds[name].groups_at_once(channels) > 1 for name, channels in (("_0", 1), ("_3", 2)))
    found = interval(made, tmp_path, samples)
    assert found <= count_multiplications(design) / multipliers / 0.85
    assert found <= 1.02 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.02)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])


class Excited(nn.Module):
    """Means of three by three pixels and of whole images, and a product of channels, multiply beside layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 1)
        self.less, self.more, self.head = nn.Linear(6, 2), nn.Linear(2, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.second(F.avg_pool2d(F.relu(self.first(x)), 3)))
        weights = torch.sigmoid(self.more(F.relu(self.less(F.adaptive_avg_pool2d(x, 1).flatten(1)))))
        return self.head((x * weights[:, :, None, None]).mean((2, 3)))


@VERILATOR
@pytest.mark.parametrize(("multipliers", "serial", "share"), [(1, 4, 0.99), (3, 4, 0.95), (12, 4, 0.8), (60, 2, 0.5)])
def test_means_and_products_take_no_multipliers_where_these_are_few(tmp_path, multipliers, serial, share):
    samples = 8
    design, folding, made = built(Excited(), (1, 15, 15), samples, multipliers)
    assert folding.multipliers <= multipliers
    assert sum(fold.serial for fold in folding.folds.values()) == serial
    found = interval(made, tmp_path, samples)
    assert found <= count_multiplications(design) / multipliers / share
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.02)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])


class Pooled(nn.Sequential):
    """Pools whose results are read in fewer lanes."""

    def __init__(self):
        pools = (nn.ReLU(), nn.MaxPool2d(2))
        first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        super().__init__(first, *pools, second, *pools, nn.Flatten(), nn.Linear(64, 10))


@VERILATOR
def test_a_pool_does_not_wait_until_a_narrower_layer_has_taken_a_result(tmp_path):
    design, folding, made = built(Pooled(), (1, 8, 8), 24, 256)
    found = interval(made, tmp_path, 24)
    assert found <= 1.01 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.01)
    check(made, tmp_path, [("--stall", "40", "--seed", "5", "--reset", "150")])


def prime(channels):
    """Convolutions whose results leave one by one, unless all do at once, and a pool between them: the second one has
    work for a row at a time."""
    first, second = nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), nn.AvgPool2d((4, 3)), second)


@VERILATOR
@pytest.mark.parametrize("budget", [19, 20])
def test_layers_do_not_share_multipliers_if_they_would_wait_for_each_others_streams(tmp_path, budget):
    samples = 6
    design, folding, made = built(prime(19), (1, 40, 18), samples, budget)
    found = interval(made, tmp_path, samples)
    assert found <= 1.02 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.01)
    assert found <= count_multiplications(design) / budget / 0.85


def test_small_layers_stand_alone_between_others_that_share():
    """Their vectors have one element: each would take a cycle of all multipliers."""
    layers = (layer for _ in range(3) for layer in (nn.Conv2d(7, 7, 3, padding=1), nn.Conv2d(7, 7, 1, groups=7)))
    _, folding, _ = built(nn.Sequential(*layers), (7, 6, 6), 1, 64)
    (engine,) = folding.engines
    assert (engine.par_in, engine.par_out, engine.operations) == (7, 7, ("_0", "_2", "_4"))
    assert folding.interval == 3 * 36 * 9


@VERILATOR
def test_room_for_progress_alone_is_not_enough_for_the_pace(tmp_path, monkeypatch):
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    _, folding, made = built(Residual(), (3, 12, 12), 12, 320)
    assert interval(made, tmp_path, 12) > 1.05 * folding.interval


class Deep(nn.Module):
    """A residual beside many layers: more samples than a few are on their way along it."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def linears():
    return Deep(*(layer for _ in range(12) for layer in (nn.Linear(4, 4), nn.ReLU())))


def norms():
    """Norms that multiply bit by bit: a row is in them for longer than it takes to arrive."""
    return Deep(nn.Linear(16, 16), *(layer for _ in range(4) for layer in (nn.LayerNorm(16), nn.Linear(16, 16))))


DEEP = [(linears, (4,), 192, 200), (linears, (4,), 48, 100), (norms, (3, 16), 5, 12)]


@VERILATOR
@pytest.mark.parametrize(("make", "shape", "multipliers", "samples"), DEEP)
def test_a_residual_waits_for_a_path_that_holds_many_samples(tmp_path, make, shape, multipliers, samples):
    _, folding, made = built(make(), shape, samples, multipliers)
    assert interval(made, tmp_path, samples) <= 1.02 * folding.interval
    check(made, tmp_path, [("--stall", "40", "--seed", "5", "--reset", "150")])


def rows():
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))


@VERILATOR
@pytest.mark.parametrize(("multipliers", "cycles", "roots"), [(20, 8, 3), (40, 4, 6)])
def test_rows_of_a_norm_do_not_wait_for_each_others_roots(tmp_path, multipliers, cycles, roots):
    samples = 12
    design, folding, made = built(rows(), (12, 8), samples, multipliers)
    assert (folding.interval, folding.folds["_1"].roots) == (12 * cycles, roots)
    found = interval(made, tmp_path, samples)
    assert found == pytest.approx(folding.interval, rel=0.01)
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.01)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "150")])


@VERILATOR
def test_an_interval_that_only_later_samples_have_is_told(tmp_path, monkeypatch):
    """The first samples find room everywhere, though there is too little."""
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    design, folding, made = built(linears(), (4,), 300, 192)
    found = interval(made, tmp_path, 300)
    assert found > 4 * folding.interval
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.1)


def test_a_chain_has_nothing_that_waits():
    design, folding, _ = built(LeNet(), (1, 28, 28), 1, 60)
    assert netlist.compute_waiting(design, folding, Ways(design)) == {}


def test_what_waits_beside_two_convolutions_is_what_they_hold():
    """Two 3x3 windows need 2 rows and 2 pixels of 12 pixels, less their borders, and each works on a pixel or two."""
    design, folding, _ = built(Residual(), (3, 12, 12), 1, 40)
    (add, _) = (each for each in design.operations.values() if each.kind == "elementwise")
    waits = netlist.compute_waiting(design, folding, Ways(design))
    short = next(index for index, name in enumerate(add.inputs) if "second" not in name)
    assert 2 * 13 * 4 <= waits[add.name, short] <= 2 * 13 * 4 + 10 * 4
    assert waits[add.name, 1 - short] <= 4
