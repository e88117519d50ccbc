# ruff: noqa
# fmt: off
"""Every way of binding a name, in one model."""

import contextlib
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn, Tensor

Pair = namedtuple("Pair", "left right")


class Heads(NamedTuple):
    policy: Tensor
    value: Tensor


@dataclass
class State:
    hidden: Tensor
    cell: Tensor


def halves(x):
    for part in x.chunk(2, dim=-1):
        yield part


class Forms(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.lin = nn.Linear(dim, dim)
        self.gru = nn.GRUCell(dim, dim)
        self.scale = nn.Parameter(torch.ones(dim))

    def helper(self, *xs: Tensor, bias: Tensor = None, **rest):
        total = xs[0]
        for other in xs[1:]: total = total + other
        return total if bias is None else total + bias

    @torch.no_grad()
    def decorated(self, x: Tensor) -> Tensor:
        return x.detach()

    @property
    def doubled(self):
        return self.scale * 2

    def forward(self, x: torch.Tensor, *, mask=None):
        a, (b, *rest) = x, (x[:, 0], x[:, 1:3], x[:, 3])
        c = d = e = b.mean(-1)
        a += 1
        a *= self.doubled; a = a - 1; a = self.lin(a)
        if (n := a.sum(-1)) is not None and (m := n.max()) is not None:
            a = a + m
        with contextlib.nullcontext((a, n)) as (p, q), torch.no_grad() as _:
            p = p * 2
        squares = [i * i for i in (c, d)]
        table = {key: value.sum() for key, value in {"p": p, "q": q}.items()}
        nested = [[u + v for u in (c,)] for v in (d,)]
        apply = lambda t, k=2: t * k
        y = apply(p)
        pair = Pair(y, right=self.helper(y, y, bias=self.scale, extra=c))
        left, right = pair
        state = State(right[:, 0], left[:, 1])
        h = state.hidden
        steps = []
        for t, step in enumerate(right.unbind(1)):
            h = self.gru(step, h)
            steps.append(h)
        out = torch.stack(steps, 1)

        def inner(z, out=out):
            nonlocal h
            h = z.tanh()
            return h

        inner(out)
        first, second = halves(out)
        try:
            w = out @ out.transpose(1, 2)
        finally:
            done = w.softmax(-1)
        while done.dim() > 2:
            done = done[0]
        g = (k * 2 for k in (first, second))
        doubled = list(g)
        z: Tensor = self.decorated(torch.cat(doubled, -1))
        größe = z.amax(); self.last = größe
        i = 0
        for i, _x in zip(range(2), z): pass
        assert (flag := z.isfinite().all())
        return Heads(policy=z, value=self.helper(z)), {"h": h, "steps": steps, "pair": pair, "n": None, "k": 3}, state


if __name__ == "__main__":
    model = Forms()
    (heads, extras, state), x = model(torch.randn(3, 5, 12)), 1
    policy, value = heads
    print(policy.shape)
