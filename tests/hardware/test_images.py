"""Convolutions and pools, lowered from models as people write them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5, padding=2), nn.Conv2d(4, 6, 3)
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2 = nn.Linear(6 * 2 * 3, 10), nn.Linear(10, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class Separable(nn.Module):
    """Strides, groups, borders, means over windows and over the whole image."""

    def __init__(self):
        super().__init__()
        self.depth = nn.Conv2d(4, 4, 3, stride=(2, 1), padding=(1, 0), groups=4, bias=False)
        self.point = nn.Conv2d(4, 6, 2, padding=1, dilation=(2, 1))
        self.mean = nn.AvgPool2d((2, 1), stride=1, padding=(1, 0))
        self.whole = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.mean(torch.relu(self.point(self.depth(x))))
        return self.head(self.whole(x).flatten(1))


class Bordered(nn.Module):
    """Borders of every kind: by a text, by a call, uneven ones, and windows that look beyond them."""

    def __init__(self):
        super().__init__()
        self.first, self.pool = nn.Conv2d(2, 4, (3, 5), padding="same"), nn.MaxPool2d(3, 2, ceil_mode=True)
        self.depth = nn.Conv2d(4, 4, 3, stride=2, groups=4)

    def forward(self, x):
        x = self.pool(torch.relu(self.first(F.pad(x, (0, 1, 2, 0)))))
        return F.max_pool2d(self.depth(F.pad(x, (1, 0, 1, 1))), 2, ceil_mode=True)


class Joined(nn.Module):
    """Images that are enlarged, joined by channels, and whose pixels become channels and the other way round."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.last = nn.Conv2d(10, 8, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        up = F.interpolate(self.down(x), scale_factor=2)
        return F.pixel_shuffle(self.last(torch.cat([x, up], 1)), 2)


class Line(nn.Module):
    """Convolutions and pools over one dimension."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 4, 5, padding=2), nn.Conv1d(4, 6, 3, stride=2, dilation=2)
        self.pool, self.mean, self.head = nn.MaxPool1d(2), nn.AdaptiveAvgPool1d(1), nn.Linear(6, 3)

    def forward(self, x):
        x = F.avg_pool1d(F.pad(torch.relu(self.first(x)), (1, 0)), 3, stride=1)
        return self.head(self.mean(torch.relu(self.second(self.pool(x)))).flatten(1))


CASES = [
    (LeNet(), (1, 12, 16)),
    (Separable(), (4, 9, 7)),
    (Bordered(), (2, 9, 8)),
    (Line(), (3, 18)),
    (Joined(), (2, 6, 8)),
]
IDS = ["lenet", "separable", "bordered", "line", "joined"]


@pytest.mark.parametrize(("model", "shape"), CASES, ids=IDS)
def test_the_integers_are_those_of_the_quantised_graph(model, shape):
    torch.manual_seed(1)
    values = torch.randn(6, *shape) * 3
    # Means of sixteenths over 2 and 20 elements are exact in float32 or far from a half: see `arithmetic.mean`.
    graph = quantised(model, values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


@VERILATOR
@pytest.mark.parametrize("multipliers", [8, 60])
@pytest.mark.parametrize(("model", "shape"), CASES, ids=IDS)
def test_verilator_gives_the_same_integers(tmp_path, model, shape, multipliers):
    check(emitted(model, torch.randn(2, *shape), 12, multipliers=multipliers), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


class Reflected(nn.Module):
    def forward(self, x):
        return F.pad(x, (1, 1, 1, 1), mode="reflect")


class Odd(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.before, self.layer = nn.Conv2d(2, 2, 1), layer

    def forward(self, x):
        return self.layer(self.before(x))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.MaxPool2d(2, dilation=2), "dilation"),
        (nn.Conv2d(2, 2, 2, padding="same"), "padding 'same' of 1 rows and 1 columns is uneven"),
        (nn.ZeroPad2d(-1), "with a border; zeros around an image have hardware"),
        (Reflected(), "its border is not zero"),
        (nn.ConstantPad2d(1, 3.0), "its border is not zero"),
        (nn.ConstantPad3d((0, 0, 0, 0, 0, 1), 0.0), "other dimensions than the rows and columns"),
        (nn.BatchNorm2d(2), "conv_bn_fusion and norm_to_conv"),
        (nn.AvgPool2d(2, divisor_override=3), "divisor_override"),
        (nn.AdaptiveMaxPool2d(2), "no multiple"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_hardware_says_why(layer, why):
    design = lower_graph(quantised(Odd(layer), torch.randn(2, 2, 7, 7), config()))
    assert why in design.unsupported[0].why


def test_the_page_says_in_which_order_elements_come():
    page = emitted(Separable(), torch.randn(2, 4, 9, 7), 2).files["README.md"]
    assert "| `data_in_0` | x | 4x9x7, rows, columns, channels | `fixed(8,4)` |" in page
    assert "| `data_out_0` | head | 3, row-major | `fixed(8,4)` |" in page
