"""A graph with a guard on values compiles as a whole, and the compiled one refuses other values, too."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph


class Branching(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_a_condition_is_checked_in_the_compiled_graph():
    graph = MaseGraph(Branching(), {"x": torch.ones(3)})
    compiled = torch.compile(graph.model.forward, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match=r"traced with a condition = True at test_compiled_guards.py:\d+"):
        compiled(-torch.ones(3))
