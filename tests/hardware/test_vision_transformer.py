"""What whole transformers are made of beside attention: patches, tokens, positions, embeddings."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from tests.hardware.simulating import check
from tests.hardware.test_attention import Encoder
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Patches(nn.Module):
    """An image as tokens, a token of its own, positions; the vector of one of them decides."""

    def __init__(self, *blocks, decides=0):
        super().__init__()
        self.decides = decides
        self.patch, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 3)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.blocks(x)[:, self.decides])


class Words(nn.Module):
    """Indices, learned positions, and the vectors of the last two of them."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.head = nn.Embedding(11, 4), nn.Embedding(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.words(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(F.relu(x[:, -2:]))


def test_tokens_and_positions_are_those_of_the_quantised_graph():
    torch.manual_seed(5)
    values = torch.randn(6, 3, 8, 8)
    graph = quantised(Patches(), values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


def test_embeddings_are_those_of_the_quantised_graph():
    torch.manual_seed(6)
    values = torch.randint(0, 11, (20, 6))
    graph = quantised(Words(), values, config())
    design = lower_graph(graph)
    result = integer_graph(design).model(values)
    assert torch.equal(design.operations[design.outputs[0]].out.format.decode(result).float(), graph.model(values))


@VERILATOR
@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Patches(decides=2), torch.randn(2, 3, 8, 8)),
        (Patches(Encoder()), torch.randn(2, 3, 8, 8)),
        (Words(), torch.randint(0, 11, (2, 6))),
    ],
    ids=["patches", "vit", "words"],
)
def test_verilator_gives_the_same_integers(tmp_path, model, values):
    check(emitted(model, values, 12, multipliers=24), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


class Cut(nn.Module):
    def forward(self, x):
        return F.relu(x)[:, :, 1]


def test_what_does_not_come_in_one_piece_is_gathered():
    model, values = nn.Sequential(nn.Linear(4, 4), Cut()), torch.randn(2, 3, 4)
    graph = quantised(model, values, config())
    assert [each.kind for each in lower_graph(graph).operations.values()] == ["input", "linear", "gather"]
    assert torch.equal(integers(graph, values), graph.model(values))
