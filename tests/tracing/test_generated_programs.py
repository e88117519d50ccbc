"""Programs that hypothesis writes: their graphs compute what they compute, there and at other batch sizes."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph
from tests.tracing.recording import assert_same, run_once

#: Statements over x, y: [B, 6] floats, and `self`.
STATEMENTS = [
    "x = self.one(x)", "y = self.two(x)", "x = self.act(y)", "self.act(x)", "x = x + y", "y = x", "x, y = y, x",
    "y = x.clone()", "x = x.clone(); x += y", "x = x.clone(); x[0] = y[-1]", "x = x.clone(); v = x[:, 1:3]; v.mul_(2)",
    "y = y.contiguous().clone(); v = y.view(-1); v[::2] = 0.5", "x = x.contiguous()", "y = y.to(x.dtype)",
    "x = x.view(x.shape)",
    "x = torch.cat([x, y], dim=-1)[:, ::2]", "x = torch.where(x > 0, x, y)", "y = x.masked_fill(y > 1, 0.0)",
    "x = x.t().contiguous().t()", "x = x.reshape(-1, 2, 3).transpose(1, 2).reshape(len(x), 6)",
    "a, b = x.chunk(2, dim=-1); x = torch.cat([b, a], dim=-1)", "x = x * self.scale", "x = x - x.mean(0, keepdim=True)",
    "x = torch.stack([x, y]).sum(0)", "x = (lambda v: v.sin())(x)", "x = sum([x, y])",
    "y = x.softmax(-1) @ self.one.weight",
    "x = x.max(dim=-1, keepdim=True).values.expand(-1, 6)", "for layer in self.layers: x = layer(x)",
    "x = x if self.flag else y", "x = x.clone(); torch.relu_(x)", "x = x.clone(); x.data.add_(1)", "y = y.detach()",
    "x = torch.zeros_like(x).scatter_(1, y.argsort(-1), x)", "x = x.clone().copy_(y)",
    "y = torch.addmm(y, x, self.one.weight)", "x = torch.einsum('bi,bi->b', x, y)[:, None] + x",
    "x = x.unbind(0)[0] + x",
    "x = x.clone(); x[x > 1] = 1.0", "x = x.split(4, -1)[0].repeat(1, 2)[:, :6]", "y = [x, y][1]", "x = {'x': x}['x']",
    "x = x.clone(); torch.add(x, y, out=x)", "y = x.new_zeros(x.shape) + 1",
]  # fmt: skip


class Program(nn.Module):
    """Runs the statements; gives x, y."""

    def __init__(self, statements):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.act = nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU(inplace=True)
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Tanh()])
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.flag = True
        lines = "\n".join(f"    {line}" for line in statements)
        names = {"torch": torch}
        exec(f"def forward(self, x, y):\n{lines}\n    return x, y", names)
        self._function = (names["forward"],)

    def forward(self, x, y):
        return self._function[0](self, x, y)


def inputs(batch):
    make = torch.Generator().manual_seed(batch)
    return {"x": torch.randn(batch, 6, generator=make), "y": torch.randn(batch, 6, generator=make)}


def runs_in_eager(statements):
    """Eager refuses to write through an expanded tensor, or to view one whose strides do not fit."""
    try:
        Program(statements).eval()(**inputs(4))
    except RuntimeError:
        return False
    return True


programs = st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=9).filter(runs_in_eager)


@given(programs)
def test_graphs_of_generated_programs_equal_eager(statements):
    model = Program(statements).eval()
    graph = MaseGraph(model, inputs(4))
    for batch in (4, *((3, 7) if graph.generic else ())):
        assert_same(run_once(graph.model, inputs(batch)), run_once(model, inputs(batch)))


@settings(deadline=None, max_examples=25)
@given(programs)
def test_gradients_of_generated_programs_equal_eagers(statements):
    model = Program(statements).eval()
    graph = MaseGraph(model, inputs(4)).model

    def gradients(function):
        try:
            total = sum(out.square().sum() for out in function(**inputs(4)))
            found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        except RuntimeError as error:
            return str(error).split(":")[0]
        return [torch.zeros(()) if one is None else one for one in found]

    mine, other = gradients(graph), gradients(model)
    if isinstance(other, str):
        assert isinstance(mine, str)
    else:
        assert_same(mine, other)
