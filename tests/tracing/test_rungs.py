"""The real rung: where meta cannot go on, and where an error has to be confirmed."""

from __future__ import annotations

import gc
import sys
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from mase_server.dtypes import SHORT
from mase_server.ir.session import Session
from mase_server.tracing.execution.running import Trials
from mase_server.tracing.recording import rungs
from mase_server.tracing.recording.rungs import (
    CHEAP_PARAMETERS,
    TooSlowError,
    needs_values,
    real_copy,
    worth_a_real_run,
)
from mase_server.tracing.recording.shadow import MetaMode, Shadows, ValueDependentError
from mase_server.tracing.symbols.probing import Wire
from tests.tracing.recording import session


class Routed(nn.Module):
    """As many rows as the gate lets through."""

    def __init__(self):
        super().__init__()
        self.gate, self.fc = nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x):
        chosen = (self.gate(x).squeeze(-1) > -100).nonzero().squeeze(-1)
        return self.fc(x[chosen]), chosen


class Early(nn.Module):
    """Leaves its loop when a value says so."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            x = self.fc(x)
            if x.sum().item() > 1e9:
                return x[:, :1]
        return x


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(6, 2)

    def forward(self, x):
        return self.two(self.one(x))


class ValuesThenWrong(Wrong):
    def forward(self, x):
        y = self.one(x)
        if y.abs().sum().item() >= 0:
            return self.two(y)
        return y


class Unique(nn.Module):
    """A result whose size only values say."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return (x * 0 + self.weight).unique()


@pytest.mark.parametrize("make", [Routed, Early])
def test_a_path_that_depends_on_values_is_run_for_real(make):
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(5, 4)
    one = session(model, x=x)
    run = one.record()
    assert one.rung == "real"
    eager = model(x)
    shapes = [list(t.shape) for t in (eager if isinstance(eager, tuple) else (eager,))]
    value = Wire(None).value([run.result], SHORT)
    assert [part[1] for part in (value["tuple"] if isinstance(value, dict) else [value])] == shapes


class Normed(nn.Module):
    """Weight norm computes the weight anew before each forward: it is a result, which torch refuses to copy."""

    def __init__(self):
        super().__init__()
        with warnings.catch_warnings(action="ignore"):
            self.fc = torch.nn.utils.weight_norm(nn.Linear(4, 4))

    def forward(self, x):
        y = self.fc(x)
        return y * 2 if y.sum() > 0 else y


class Uncopied(Early):
    def __deepcopy__(self, memo):
        raise RuntimeError("no copies")


def test_a_model_with_weight_norm_is_run_for_real():
    with MetaMode(shadows := Shadows()):
        model = Normed()
    assert Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {}) is None


def test_of_a_model_that_cannot_be_copied_the_error_on_meta_is_told():
    with MetaMode(shadows := Shadows()):
        model = Uncopied()
    error = Trials(shadows).attempt(model, (torch.empty(3, 4, device="meta"),), {})
    assert isinstance(error, ValueDependentError)


def test_what_meta_runs_is_not_run_for_real():
    one = session(nn.Sequential(nn.Linear(4, 2)), input=torch.randn(3, 4))
    one.record()
    assert one.rung == "meta"


def test_an_error_that_eager_has_too_is_told_as_meta_tells_it():
    one = session(Wrong(), x=torch.randn(3, 4))
    with pytest.raises(RuntimeError):
        one.record()
    assert one.rung == "meta"
    assert one.base.failure.path == "two"
    assert [call.target for call in one.base.partial().calls] == ["x", "one"]


def test_an_error_after_values_were_needed_is_the_real_one():
    one = session(ValuesThenWrong(), x=torch.randn(3, 4))
    with pytest.raises(RuntimeError) as raised:
        one.record()
    assert not isinstance(raised.value, ValueDependentError)
    assert one.rung == "real"
    assert one.base.failure.path == "two"


def test_a_real_run_that_takes_too_long_is_given_up_and_says_so(monkeypatch):
    monkeypatch.setattr(rungs, "MOST_REAL_SECONDS", -1.0)
    with pytest.raises(TooSlowError, match="had not ended after"):
        session(Routed(), x=torch.randn(3, 4)).record()


class Grows(Early):
    """Its tensor has 192 MiB: smaller ones may come from what this process freed, without more memory."""

    def forward(self, x):
        y = torch.zeros(48 << 20) + (self.fc(x).sum().item() > 1e9)
        y += 1
        return y


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory of a run")
@pytest.mark.parametrize("room", [96, 320])
def test_memory_that_the_recorder_takes_is_no_error_of_the_forward(monkeypatch, room):
    monkeypatch.setattr(rungs, "limit_memory", partial(rungs.limit_memory, room << 20))
    gc.collect()  # the limit counts from what the process has now, and other tests have left something
    with pytest.raises(TooSlowError, match="of memory"):
        session(Grows(), x=torch.randn(3, 4)).record()


def test_an_error_that_could_not_be_checked_in_time_is_told_as_meta_tells_it(monkeypatch):
    monkeypatch.setattr(rungs, "MOST_REAL_SECONDS", -1.0)
    with pytest.raises(RuntimeError) as caught:
        session(nn.Sequential(nn.Linear(4, 3), nn.Linear(5, 2)), input=torch.randn(3, 4)).record()
    assert not isinstance(caught.value, TooSlowError)


def test_the_callers_model_and_its_weights_stay_where_they_are():
    torch.manual_seed(0)
    model = Early()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    session(model, x=torch.randn(5, 4)).record()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(not tensor.is_meta for tensor in model.state_dict().values())


def test_a_real_run_that_fails_leaves_statistics_and_weights_as_they_were():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.norm(x)
            self.fc.weight.data.zero_()
            self.fc.bias.add_(1)
            if x.sum().item() > -1e9:
                raise KeyError("no")

    model = Fails().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(KeyError):
        Session(model, {"x": torch.randn(5, 4)}).record()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_model_on_meta_is_filled_with_finite_weights_and_known_buffers():
    shadows = Shadows()
    with MetaMode(shadows):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        model.register_buffer("table", torch.arange(5))
        model.register_buffer("unknown", torch.empty(3))
    made = real_copy(model, shadows, None)
    assert made is not model
    assert all(tensor.isfinite().all() and not tensor.is_meta for tensor in made.state_dict().values())
    assert made.table.tolist() == [0, 1, 2, 3, 4]
    assert made.unknown.tolist() == [0, 0, 0]
    assert all(parameter.is_meta for parameter in model.parameters())
    assert [p.requires_grad for p in made.parameters()] == [p.requires_grad for p in model.parameters()]


def test_a_model_on_meta_is_made_again_where_somebody_knows_how_and_keeps_its_mode():
    with torch.device("meta"):
        model = nn.Linear(4, 4)
    made = real_copy(model.eval(), Shadows(), lambda: nn.Linear(4, 4))
    assert not made.training
    assert not made.weight.is_meta


def test_a_constructor_that_raises_is_no_hindrance():
    def fails():
        raise OSError("the checkpoint is not here")

    with torch.device("meta"):
        model = nn.Linear(4, 4)
    assert not real_copy(model, Shadows(), fails).weight.is_meta


def test_a_real_model_stands_for_itself():
    model = nn.Linear(4, 4)
    assert real_copy(model, Shadows(), None) is model


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ValueDependentError("item() needs"), True),
        (NotImplementedError("no kernel"), True),
        (RuntimeError("Tensor.item() cannot be called on meta tensors"), True),
        (RuntimeError("expected a on cpu, but it's on meta"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (KeyError("meta tensor"), False),
        (AttributeError("no attribute"), False),
    ],
)
def test_errors_that_only_meta_tensors_meet(error, answer):
    assert needs_values(error) is answer


def test_large_models_are_not_run_for_real_to_confirm_an_error():
    with torch.device("meta"):
        large, small = nn.Linear(CHEAP_PARAMETERS // 1000, 1001), nn.Linear(4, 4)
    assert worth_a_real_run(small, RuntimeError("shapes"))
    assert not worth_a_real_run(large, RuntimeError("shapes"))
    assert worth_a_real_run(large, ValueDependentError("item()"))


def test_operations_whose_size_only_values_say_are_run_for_real():
    one = session(Unique(), x=torch.randn(3, 4))
    run = one.record()
    assert one.rung == "real"
    assert Wire(None).value([run.result], SHORT) == ["f32", [1], None]


class Pieces(nn.Module):
    """As many pieces as samples, each as long as its values say."""

    def __init__(self):
        super().__init__()
        self.weigh = nn.Linear(8, 128)

    def forward(self, x):
        return [row[: 1 + int(row.abs().sum() * 1e4) % 97] for row in self.weigh(x)], x


def test_sizes_that_values_decide_are_unknown_inside_a_list_whose_length_a_symbol_decides():
    torch.manual_seed(0)
    one = session(Pieces(), x=torch.randn(2, 8))
    run = one.record()
    assert one.rung == "real"
    probed = one.probe(run)
    pieces, x = Wire(probed).value([each.result for each in probed.runs], SHORT)["tuple"]
    assert [piece[2] for piece in pieces["tuple"]] == [["?"], ["?"]]
    assert x[2] == ["B", "8"]


def test_a_copy_of_a_model_whose_own_train_fails_is_in_its_mode_all_the_same():
    class Stubborn(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def train(self, mode=True):
            raise RuntimeError("no other mode")

    shadows = Shadows()
    with MetaMode(shadows):
        model = Stubborn()
    made = real_copy(model, shadows, Stubborn)
    assert made is not model
    assert [part.training for part in made.modules()] == [True, True]
