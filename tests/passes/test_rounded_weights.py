"""A graph that rounds weights sees every change of them, however it was made: nothing rounded is kept."""

import copy

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.formats import parse

X = torch.randn(3, 64)


def step(layer):
    layer(X).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()


CHANGES = {
    "in place": lambda layer: layer.weight.detach().mul_(-2),
    "data in place": lambda layer: layer.weight.data.add_(1),
    "numpy": lambda layer: layer.weight.detach().numpy().__imul__(3),
    "data": lambda layer: setattr(layer.weight, "data", torch.randn(8, 64)),
    "an optimizer's step": step,
    "load_state_dict": lambda layer: layer.load_state_dict(nn.Linear(64, 8).state_dict()),
    "another parameter": lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn(8, 64))),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_weights_is_seen_by_the_next_forward(change, compiled):
    graph, _ = passes.quantize_transform_pass(
        MaseGraph(nn.Sequential(nn.Linear(64, 8)).eval(), {"input": X}), {"default": "mxfp(8,4)"}
    )
    model, layer = graph.model, graph.model.get_submodule("0")
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model

    def expected():
        rounded = parse("mxfp(8,4)").round
        return rounded(nn.functional.linear(rounded(X), rounded(layer.weight), rounded(layer.bias)))

    with torch.no_grad():
        before = run(X)
        assert torch.equal(before, expected())
    change(layer)
    with torch.no_grad():
        wanted = expected()
        assert torch.equal(run(X), wanted)
        assert not torch.equal(run(X), before)
        assert torch.equal(copy.deepcopy(model)(X), wanted)
        assert model.to(torch.float64)(X.double()).dtype == torch.float64
