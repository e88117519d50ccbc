"""Which nodes `only` covers, on a graph whose nodes and paths are written out here."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.passes.declaration import Selection


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(11))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x * self.scale


@pytest.fixture
def graph():
    return MaseGraph(Net().eval(), {"x": torch.randn(1, 4)})


def covered(graph, only):
    return [node.name for node in graph.nodes if Selection.of(only).covers(node)]


@pytest.mark.parametrize("only", [None, [], [""]])
def test_without_a_text_everything_is_selected(graph, only):
    assert covered(graph, only) == [node.name for node in graph.nodes]


def test_a_module_covers_what_is_below_it_and_no_namesake(graph):
    assert covered(graph, ["h.1"]) == ["h_1_fc", "relu_1"]
    assert covered(graph, ["h.10"]) == ["h_10_fc", "relu_10"]
    assert len(covered(graph, ["h"])) == 22


def test_a_layer_is_selected_by_its_path_and_by_its_nodes_name(graph):
    assert covered(graph, ["h.0.fc"]) == covered(graph, ["h_0_fc"]) == ["h_0_fc"]


def test_a_text_alone_is_one_selection(graph):
    assert covered(graph, "scale") == ["scale"]


def test_a_layer_stays_selected_after_it_became_a_function(graph):
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    assert "h_0_fc" in covered(graph, ["h.0.fc"])


def test_a_text_that_names_nothing_is_refused_with_the_nearest(graph):
    assert Selection.of(["h.0"]).checked(graph.fx_graph).only == ("h.0",)
    with pytest.raises(ValueError, match=r"only names 'h\.0\.fx', which is no node .* did you mean 'h\.0\.fc'\?"):
        Selection.of(["h.0.fx"]).checked(graph.fx_graph)


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match=r"only has 3; it takes names of nodes"):
        Selection.of([3])
