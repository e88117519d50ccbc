"""The format where nobody names one: what trained models lose by it, and that hardware gives the same."""

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.passes.verilog.told import build
from tests.hardware.test_emission import VERILATOR, make

#: Images of ten classes: rows and columns, as many as those of handwritten digits that come with statistics libraries.
SIDE, CLASSES = 8, 10


def digits(count, seed):
    """Blurred strokes of ten shapes, moved, bent and noisy, with values from 0 to 16 as such images have them."""
    shapes = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(7))
    shapes = F.avg_pool2d(shapes, 3, 1, 1) * 3
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=draw)
    images = shapes[labels] + 0.35 * torch.randn(count, 1, SIDE, SIDE, generator=draw)
    moved = torch.stack([image.roll(int(torch.randint(-1, 2, (1,), generator=draw)), 2) for image in images])
    return (4 + 4 * moved).clamp(0, 16), labels


class Cnn(nn.Module):
    """Two convolutions with norms, and a head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(16 * 4, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class Encoder(nn.Module):
    """Rows of an image as tokens, and one layer of a transformer's encoder."""

    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Linear(SIDE, 16), nn.Parameter(torch.zeros(1, SIDE, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.flatten(1, 2)) + self.places).mean(1))


def trained(model, steps, rate):
    images, labels = digits(1024, 0)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        batch = torch.randint(len(images), (128,), generator=draw)
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    return {"cnn": trained(Cnn(), 120, 5e-3), "encoder": trained(Encoder(), 250, 5e-3)}


def accuracy(model):
    images, labels = digits(1000, 99)
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def quantised(model, **given):
    return passes.quantize_transform_pass(MaseGraph(model, {"x": digits(64, 5)[0]}), given)


@pytest.mark.parametrize("name", ["cnn", "encoder"])
def test_the_default_of_quantize_loses_at_most_a_percent(models, name):
    before = accuracy(models[name])
    assert before > 0.9
    graph, found = quantised(models[name])
    assert accuracy(graph.model) >= before - 0.01
    assert found["calibrated"] == "the example inputs"


@pytest.mark.parametrize("name", ["cnn", "encoder"])
def test_the_default_of_hardware_loses_at_most_a_percent_computed_as_hardware_does(models, name):
    before = accuracy(models[name])
    graph = MaseGraph(models[name], {"x": digits(64, 5)[0]})
    # What is measured is the graph that computes the hardware's integers.
    found = build(graph, Build(), "Net")
    assert found["unsupported"] == []
    assert found["accuracy"]["calibrated"] == found["accuracy"]["inputs"] == "the example inputs"
    assert found["accuracy"]["sqnr"] > 15
    assert accuracy(graph.model) >= before - 0.01
    assert found["steps"][-1].startswith("quantize(default='fixed(8,auto)'")


def test_a_format_that_is_asked_for_is_not_calibrated_and_says_what_it_loses(models):
    """Values up to 16 do not fit into fixed(8,4): what quantize of today's default holds is lost, and told."""
    found = build(MaseGraph(models["encoder"], {"x": digits(64, 5)[0]}), Build(precision="fixed(8,4)"), "Net")
    best = build(MaseGraph(models["encoder"], {"x": digits(64, 5)[0]}), Build(), "Net")
    assert found["accuracy"]["calibrated"] is None
    assert found["accuracy"]["saturated"] > 0.01 > best["accuracy"]["saturated"]
    assert found["accuracy"]["sqnr"] < best["accuracy"]["sqnr"]


def test_calibration_says_which_data_it_is_on(models, tmp_path):
    images, _ = digits(256, 3)
    numpy.savez(tmp_path / "calibration.npz", x=images.numpy())
    graph = MaseGraph(models["cnn"], {"x": digits(64, 5)[0]})
    by_build = build(graph, Build(data=str(tmp_path / "calibration.npz")), "Net")
    assert by_build["accuracy"]["calibrated"] == f"4 batches of {tmp_path / 'calibration.npz'}"
    graph = MaseGraph(models["cnn"], {"x": digits(64, 5)[0]})
    graph.data = str(tmp_path / "calibration.npz")
    by_graph = build(graph, Build(), "Net")
    assert by_graph["accuracy"]["calibrated"] == by_graph["accuracy"]["inputs"] == by_build["accuracy"]["calibrated"]


@VERILATOR
def test_hardware_in_the_default_format_gives_the_integers_of_its_graph(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    found = build(MaseGraph(model, {"input": 9 * torch.randn(8, 4)}), Build(), "Net", folder=str(tmp_path), vectors=20)
    assert found["accuracy"]["calibrated"] == "the example inputs"
    done = make(tmp_path, "sim")
    assert done.returncode == 0, done.stdout
    assert done.stdout.split("out data_out_0 ")[1].split()[2] == "0"
