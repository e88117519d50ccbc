"""Autocast: the types that eager gives under it, on meta and from the graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.shadow import Shadows
from mase_server.tracing.recording.values import tensors_of


class Mixed(nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self.fc, self.norm, self.conv = nn.Linear(8, 16), nn.LayerNorm(16), nn.Conv1d(4, 4, 3)

    def forward(self, x):
        before = x * 2
        with torch.autocast("cpu", dtype=self.dtype):
            hidden = self.fc(self.conv(before).mean(-1, keepdim=True).expand(-1, -1, 8))
            products = hidden @ hidden.transpose(-1, -2)
            with torch.autocast("cpu", enabled=False):
                plain = hidden.float() @ hidden.float().transpose(-1, -2)
            summed = torch.einsum("bij,bjk->bik", products, plain)
        return before, hidden, products, plain, summed, self.norm(hidden.float())


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=str)
def model(request):
    torch.manual_seed(0)
    return Mixed(request.param).eval()


def eager(model, x):
    with torch.no_grad():
        return model(x)


def test_types_under_autocast_are_those_of_eager(model):
    x = torch.randn(2, 4, 8)
    run = Recorder(model, Shadows()).record((x,), {})
    theirs = [(str(out.dtype).removeprefix("torch."), tuple(out.shape)) for out in eager(model, x)]
    assert [(out.dtype, out.shape) for out in tensors_of(run.result)] == theirs
    assert {dtype for dtype, _ in theirs} == {"float32", str(model.dtype).removeprefix("torch.")}


def test_the_graph_enters_and_leaves_autocast_where_the_forward_does(model):
    graph = MaseGraph(model, {"x": torch.randn(2, 4, 8)})
    for x in (torch.randn(2, 4, 8), torch.randn(5, 4, 8)):
        with torch.no_grad():
            ours = graph.model(x)
        assert all(torch.equal(a, b) for a, b in zip(ours, eager(model, x), strict=True))
        assert not torch.is_autocast_enabled("cpu")


def test_the_same_call_with_and_without_autocast_keeps_both_types():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            first = self.fc(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                second = self.fc(x)
            return first, second, self.fc(x)

    run = Recorder(Twice(), Shadows()).record((torch.randn(2, 8),), {})
    assert [out.dtype for out in tensors_of(run.result)] == ["float32", "bfloat16", "float32"]
