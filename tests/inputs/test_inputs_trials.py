"""Trying forwards: on meta if that can be, else for real."""

from __future__ import annotations

import torch
from torch import nn

from mase_server.tracing.execution.running import Trials
from mase_server.tracing.inputs.searching.operands import trail_of
from mase_server.tracing.recording import rungs
from mase_server.tracing.recording.shadow import MetaMode, Shadows


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.runs = []

    def forward(self, x):
        self.runs.append(x.device.type)
        y = self.fc(x)
        return y[y > 0] if y.sum().item() > 0 else y


def made(shadows, kind):
    with MetaMode(shadows):
        return kind()


def test_a_forward_that_succeeds_on_meta_raises_nothing():
    shadows = Shadows()
    model = made(shadows, lambda: nn.Linear(4, 2))
    assert Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {}) is None


def test_a_forward_that_does_not_fit_gives_its_error():
    shadows = Shadows()
    model = made(shadows, lambda: nn.Linear(4, 2))
    error = Trials(shadows).attempt(model, (torch.empty(3, 5, device="meta"),), {})
    assert isinstance(error, RuntimeError)


def test_a_forward_that_needs_values_is_tried_for_real_on_one_copy():
    shadows = Shadows()
    model, trials = made(shadows, Gated), Trials(shadows)
    x = torch.empty(3, 4, device="meta")
    assert trials.attempt(model, (x,), {}) is None
    assert trials.attempt(model, (), {"x": x}) is None
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_try_that_fails_for_real_came_further_than_on_meta():
    class Wrong(nn.Module):
        def forward(self, x):
            y = x + 1
            y = y[y.new_ones(y.shape) > 0].view(x.shape)
            n = int(y.sum().item()) * 0
            return y[n] if x.shape[0] < 3 else y @ y

    shadows = Shadows()
    model = made(shadows, Wrong)
    error = Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {})
    assert "shapes cannot be multiplied" in str(error)
    assert trail_of(error).progress > 2


def test_a_real_try_may_fail_too():
    shadows = Shadows()
    model = made(shadows, Gated)

    class Wrong(Gated):
        def forward(self, x):
            return super().forward(x) @ torch.ones(5, 5)  # three equal rows never have five values above 0

    model = made(shadows, Wrong)
    error = Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {})
    assert isinstance(error, RuntimeError)


def test_known_values_of_arguments_are_those_of_the_real_try():
    class Lengths(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, lengths):
            if self.fc(x).sum().item() < -1e30:
                return x
            if lengths.tolist() != [3, 1]:
                raise ValueError(str(lengths))
            return x[: lengths[0]]

    shadows = Shadows()
    model = made(shadows, Lengths)
    with MetaMode(shadows):
        lengths = torch.tensor([3, 1])
    assert Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"), lengths), {}) is None


def test_a_real_try_that_takes_too_long_says_nothing_against_the_inputs(monkeypatch):
    monkeypatch.setattr(rungs, "MOST_REAL_SECONDS", -1.0)
    done = []

    class Slow(Gated):
        def forward(self, x):
            out = super().forward(x)
            done.append(out)
            return out @ torch.ones(9, 9)

    shadows = Shadows()
    model = made(shadows, Slow)
    assert Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {}) is None
    assert done == []
