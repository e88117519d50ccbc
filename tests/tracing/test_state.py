"""Whatever a forward does to its model, tracing leaves the model as it was."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph
from mase_server.ir.session import Session

DEEDS = {
    "in-place on a parameter": lambda m, x: m.fc.weight.data.mul_(2),
    "in-place on a buffer": lambda m, x: m.steps.add_(1),
    "buffer replaced": lambda m, x: setattr(m, "steps", m.steps + 1),
    "buffer made": lambda m, x: m.register_buffer("late", x.sum()),
    "parameter replaced": lambda m, x: setattr(m.fc, "bias", nn.Parameter(torch.zeros(4))),
    "attribute set": lambda m, x: setattr(m, "last", x),
    "attribute changed": lambda m, x: setattr(m, "count", m.count + 1),
    "attribute deleted": lambda m, x: delattr(m, "note"),
    "list grown": lambda m, x: m.history.append(x),
    "list cleared": lambda m, x: m.history.clear(),
    "dict filled": lambda m, x: m.table.update(last=x),
    "set filled": lambda m, x: m.seen.add(int(x.shape[0])),
    "mode": lambda m, x: m.train(not m.training),
    "requires_grad": lambda m, x: m.fc.weight.requires_grad_(False),
    "module added": lambda m, x: m.add_module("extra", nn.Linear(4, 4)),
    "module replaced": lambda m, x: setattr(m, "fc", nn.Identity()),
    "hook": lambda m, x: m.fc.register_forward_hook(lambda *args: None),
    "fails": lambda m, x: 1 / 0,
}


class Busy(nn.Module):
    def __init__(self, deeds):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros(2))
        self.count, self.note, self.last = 0, "a note", None
        self.history, self.table, self.seen = [1], {"a": 1}, {7}
        self._deeds = tuple(deeds)

    def forward(self, x):
        x = self.norm(self.fc(x))
        for deed in self._deeds:
            with contextlib.suppress(AttributeError):
                DEEDS[deed](self, x)
        return x


def picture(model):
    """Everything about a model that a person could notice."""
    return {
        "tensors": {
            name: (id(tensor), tensor.clone(), tensor.requires_grad, tensor.is_meta)
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
        },
        "modules": {name: (id(module), module.training) for name, module in model.named_modules()},
        "plain": (model.count, getattr(model, "note", None), model.last),
        "containers": (list(model.history), dict(model.table), set(model.seen)),
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }


def assert_as_before(before, after):
    assert {name: rest for name, rest in before.items() if name != "tensors"} == {
        name: rest for name, rest in after.items() if name != "tensors"
    }
    assert before["tensors"].keys() == after["tensors"].keys()
    for name, (identity, value, *rest) in before["tensors"].items():
        other, now, *others = after["tensors"][name]
        assert (identity, rest) == (other, others), name
        assert torch.equal(value, now), name


@given(st.lists(st.sampled_from(sorted(DEEDS)), max_size=4), st.booleans())
@example(["requires_grad", "fails"], False)
def test_tracing_leaves_a_model_as_it_was_whatever_its_forward_does(deeds, training):
    model = Busy(deeds).train(training)
    before = picture(model)
    with contextlib.suppress(ZeroDivisionError):
        MaseGraph(model, {"x": torch.randn(3, 4)})
    assert_as_before(before, picture(model))


@pytest.mark.parametrize("deed", sorted(DEEDS))
def test_each_deed_is_undone(deed):
    model = Busy([deed]).eval()
    before = picture(model)
    with contextlib.suppress(ZeroDivisionError):
        session = Session(model, {"x": torch.randn(3, 4)})
        session.probe(session.record())
    assert_as_before(before, picture(model))


def test_two_tracings_in_a_row_see_the_same_model():
    model = Busy(["attribute changed", "list grown", "in-place on a buffer"]).eval()
    first = [str(node) for node in MaseGraph(model, {"x": torch.randn(3, 4)}).nodes]
    assert [str(node) for node in MaseGraph(model, {"x": torch.randn(3, 4)}).nodes] == first


def test_the_callers_inputs_are_not_written_to():
    class Writes(nn.Module):
        def forward(self, x, batch):
            x.zero_()
            batch["y"].add_(1)
            batch["z"] = x
            return x + batch["y"]

    x, batch = torch.ones(2, 3), {"y": torch.ones(2, 3)}
    MaseGraph(Writes(), {"x": x, "batch": batch})
    assert x.tolist() == batch["y"].tolist() == torch.ones(2, 3).tolist()
    assert list(batch) == ["y"]


def test_a_cache_that_the_caller_passes_stays_as_it_was():
    class Cache:
        def __init__(self):
            self.keys = [torch.ones(2, 3)]

    class Grows(nn.Module):
        def forward(self, x, cache):
            cache.keys.append(x)
            return torch.cat(cache.keys)

    cache = Cache()
    MaseGraph(Grows(), {"x": torch.ones(2, 3), "cache": cache})
    assert len(cache.keys) == 1
