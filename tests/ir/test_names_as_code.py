"""Layers may have any names: a graph computes what the model does, or says which name torch.fx cannot write as code."""

import keyword
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph
from mase_server.ir.errors import CheckpointError
from mase_server.ir.targets import UnwritableName

NAMES = st.text(st.characters(exclude_characters="."), min_size=1, max_size=8).filter(
    lambda name: not hasattr(nn.Module(), name)
)


def usual(name):
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


class Named(nn.Module):
    def __init__(self, layer, weight):
        super().__init__()
        self.add_module(layer, nn.Linear(3, 3))
        self.register_parameter(weight, nn.Parameter(torch.ones(3)))
        self.layer, self.weight = layer, weight

    def forward(self, x):
        return getattr(self, self.layer)(x) + getattr(self, self.weight)


@given(NAMES, NAMES)
@example("a b", "0")
@example("a\nb", "w")
@example("class", "w")
@example("l", "\ufb01")  # a ligature: Python reads it as two letters
@example("l", 'f") or ("')
@example("l", "\\x41")
@example("l", "\udc80")
def test_a_graph_computes_what_the_model_does_or_names_what_cannot_be_written(layer, weight):
    if layer == weight or {"layer", "weight"} & {layer, weight}:
        return
    model, x = Named(layer, weight), torch.rand(2, 3)
    graph = MaseGraph(model, {"x": x})
    told = ""
    try:
        assert torch.equal(graph.model(x), model(x))
    except UnwritableName as error:
        told = str(error)
    if told:
        assert repr(layer) in told or repr(weight) in told
        assert not (usual(layer) and usual(weight))


def test_what_cannot_be_run_is_drawn_and_not_exported(tmp_path):
    graph = MaseGraph(Named("a\nb", "w"), {"x": torch.zeros(1, 3)})
    graph.draw(tmp_path / "drawn.svg")
    assert "linear" in (tmp_path / "drawn.svg").read_text()
    with pytest.raises(CheckpointError, match=re.escape(repr("a\nb"))):
        graph.export(tmp_path / "graph")
    assert not list(tmp_path.glob("graph*"))
