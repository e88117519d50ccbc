"""Running a file as its author would, up to the first call of each model."""

import os
import signal
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
import torch

from mase_server.tracing.execution import guard, watch
from mase_server.tracing.execution.running import run_main
from mase_server.tracing.importing.placeholders import Placeholder
from mase_server.tracing.models.found import plain_hooks
from mase_server.tracing.recording.shadow import Shadows
from tests.inputs.test_inputs_missing import bound, traced

HEAD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=3, *, deep=False):
        super().__init__()
        width = width + 0
        self.layer = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width)
    def forward(self, x, scale=1.0):
        return self.norm(self.layer(x)) * scale

class Loss(nn.Module):
    def forward(self, out, target):
        return ((out - target) ** 2).mean()

log = []
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program; gives (run, calls seen by on_call)."""
    saved = sys.modules["__main__"]

    def go(body, head=HEAD):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        shadows, calls = Shadows(), []

        def on_call(model, args, kwargs):
            shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
            calls.append((type(model).__name__, shapes, dict(kwargs), model.training))
            assert torch._C._len_torch_function_stack() == 0
            return plain_hooks(shadows).on_call(model, args, kwargs)

        return run_main(str(path), str(tmp_path), on_call, shadows), calls

    yield go
    sys.modules["__main__"] = saved


def test_the_first_call_is_seen_with_its_arguments(run):
    result, calls = run("model = Net(5)\ny = model(torch.randn(2, 4), scale=2.0)\nlog.append(y.shape)\n")
    assert calls == [("Net", [(2, 4)], {"scale": 2.0}, False)]
    assert result.module.log == [(2, 5)]
    assert result.error is None


GRAPHS = """
from dataclasses import dataclass

@dataclass
class Batch:
    x: torch.Tensor

class Graph:
    def __init__(self, x):
        self.x = x

class OnGraphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def forward(self, data):
        return self.net(data.x)
"""


@pytest.mark.parametrize("kind", ["Batch", "Graph"])
def test_a_call_with_an_object_that_holds_tensors_is_the_call_of_the_whole_model(run, kind):
    result, _ = run(f"OnGraphs()({kind}(torch.randn(2, 4)))\n", HEAD + GRAPHS)
    assert [type(one.model).__name__ for one in result.reached] == ["OnGraphs"]


def test_a_direct_call_of_forward_is_a_call_of_the_model(run):
    body = """
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()
            self.width = self.forward(torch.zeros(3, 4)).shape[-1]

        def forward(self, x):
            return self.net.forward(x)

    log.append(Outer().forward(torch.randn(2, 4)).shape)
    """
    result, calls = run(body)
    assert calls == [("Outer", [(2, 4)], {}, False)]
    assert result.module.log == [(2, 3)]
    assert result.module.Net.forward.__code__.co_name == "forward"  # nothing stays patched


def test_constructor_arguments_are_known_as_they_were_given(run):
    result, _ = run("model = Net(5, deep=True)\nmodel(torch.randn(2, 4))\n")
    made = result.constructions.of(result.reached[0].model)
    assert made.bound() == {"width": 5, "deep": True}
    again = made.rebuild()()
    assert again is not made.model
    assert again.layer.out_features == 5


@pytest.mark.parametrize(
    ("set_mode", "training"),
    [("", False), ("model.eval()", False), ("model.train()", True), ("model.to('cpu').train()", True)],
)
def test_the_mode_is_the_one_that_the_person_set_else_eval(run, set_mode, training):
    _, calls = run(f"model = Net()\n{set_mode}\nmodel(torch.randn(2, 4))\n")
    assert [call[3] for call in calls] == [training]


@pytest.mark.parametrize(
    "end", ["loss.backward()", "torch.autograd.backward(loss)", "optimizer.step()", "model(torch.randn(2, 4))"]
)
def test_a_loop_ends_with_its_first_round_or_where_it_calls_its_model_again(run, end):
    result, calls = run(f"""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            log.append("round")
            loss = model(torch.randn(2, 4)).mean()
            log.append("loss")
            {end}
            log.append("after")
    """)
    assert len(calls) == 1
    assert result.module.log == ["round", "loss", "after", *["round"] * end.startswith("model")]
    assert result.error is None


def test_the_rest_of_a_round_is_executed_in_the_loops_and_contexts_around_it(run, monkeypatch):
    monkeypatch.setattr(watch.Watch, "_has_spent", lambda self: False)
    result, _ = run("""
        note, model = [].append, Net()
        class Trainer:
            def __init__(self):
                self.__model = model

            def train(self):
                with torch.autocast("cpu", torch.bfloat16):
                    for index in range(5):
                        self.__model(torch.randn(2, 4)).mean().backward()
                        note(("step", index))
                        if index == 0:
                            continue
                        note("never")
                    note(("autocast", torch.is_autocast_enabled("cpu")))
                return "trained"

        try:
            for epoch in range(3):
                done = Trainer().train()
                note(done)
                total = 0.0
                for batch in range(3):
                    out = model(torch.randn(7, 4))
                    note(("batch", batch))
                    total += out.sum().item()
                note(total / 3)
                note(("epoch", epoch, isinstance(out, torch.Tensor)))
        finally:
            note("finally")
        note("end")
    """)
    assert result.module.note.__self__ == [
        "finally", ("step", 0), ("autocast", True), "trained", ("batch", 0), ("epoch", 0, True), "end"
    ]  # fmt: skip


def test_the_statements_after_a_training_loop_are_reached(run, monkeypatch):
    monkeypatch.setattr(watch.Watch, "_has_spent", lambda self: False)
    result, calls = run("""
        model = Net()
        for _ in range(9):
            model(torch.randn(2, 4)).mean().backward()
        head = nn.Sequential(nn.Linear(3, 5))
        scores = head(model(torch.randn(6, 4)))
    """)
    assert [call[1] for call in calls] == [[(2, 4)], [(6, 3)]]
    assert result.module.scores.shape == (6, 5)


def test_a_slow_machine_ends_no_statement_earlier(run, monkeypatch):
    passed = guard.OwnTime.passed
    monkeypatch.setattr(guard.OwnTime, "passed", lambda self: tuple(seconds + 0.25 for seconds in passed(self)))
    result, _ = run("""
        model = Net()
        model(torch.randn(2, 4)).mean().backward()
        log.append(1)
        model(torch.randn(3, 4)).mean().backward()
        log.append(2)
        model(torch.randn(5, 4)).mean().backward()
        log.append(3)
        model(torch.randn(6, 4)).mean().backward()
        log.append(4)
        model(torch.randn(7, 4)).mean().backward()
        log.append(5)
        model(torch.randn(8, 4)).mean().backward()
        log.append(6)
    """)
    assert result.module.log == [1, 2, 3, 4, 5, 6]


def test_the_rest_of_a_function_that_trains_is_reached_with_what_it_returns(run, monkeypatch):
    monkeypatch.setattr(watch.Watch, "_has_spent", lambda self: False)
    result, calls = run("""
        def train(model, losses):
            for _ in range(9):
                loss = model(torch.randn(2, 4)).mean()
                loss.backward()
                losses.append(loss.item())
            log.append("trained")
            return nn.Sequential(model, nn.Linear(3, 5))

        def main(size):
            losses = []
            head = train(Net(), losses)
            scores = head(torch.randn(size, 4))
            log.extend([scores.shape, losses, [each for each in scores if size]])

        if __name__ == "__main__":
            main(6)
            done = train(Net(), [])
        after = done(torch.randn(8, 4))
    """)
    assert [call[:2] for call in calls] == [
        ("Net", [(2, 4)]), ("Sequential", [(6, 4)]), ("Net", [(2, 4)]), ("Sequential", [(8, 4)])
    ]  # fmt: skip
    trained, scores, losses, rows, *again = result.module.log
    assert (trained, scores, len(rows), again) == ("trained", (6, 5), 6, ["trained"])
    assert isinstance(losses, Placeholder)
    assert result.module.after.shape == (8, 5)
    assert result.module.train.__code__.co_varnames[:2] == ("model", "losses")


def test_a_function_that_fails_goes_on_where_nobody_uses_its_value(run):
    result, calls = run("""
        def read(path):
            with open(path) as file:
                return file.read()

        def make(size):
            if size % 2:
                raise ValueError("odd")
            return nn.Linear(4, size)

        def main():
            labels = read("labels.txt")
            head = make(3)
            log.append(head)
            model = Net()
            log.append(model(torch.randn(5, 4)).shape)

        main()
    """)
    assert [call[:2] for call in calls] == [("Net", [(5, 4)])]
    assert isinstance(result.error, FileNotFoundError)
    assert isinstance(result.module.log[0], Placeholder)
    assert result.module.log[1] == (5, 3)


def test_an_object_whose_method_failed_is_unknown(run):
    """It has only a part of what the method would have put into it."""
    result, calls = run("""
        class Corpus:
            def __init__(self):
                self.words = []
            def read(self, path):
                with open(path) as file:
                    self.words += file.read().split()
            def count(self):
                return len(self.words)

        corpus, model = Corpus(), Net()
        ids = corpus.read("words.txt")
        size = corpus.count()
        other = Net(size)
        out = model(torch.randn(5, 4))
    """)
    assert [call[:2] for call in calls] == [("Net", [(5, 4)])]
    assert isinstance(vars(result.module)["size"], Placeholder)


def test_a_list_of_an_object_that_a_cut_loop_was_filling_is_unknown(run, monkeypatch):
    monkeypatch.setattr(watch.Watch, "_has_spent", lambda self: False)
    result, _ = run("""
        class Keeper:
            def __init__(self):
                self.losses, self.names = [], ["a"]

        def train(kept, model):
            for _ in range(9):
                loss = model(torch.randn(2, 4)).mean()
                loss.backward()
                kept.losses.append(loss)

        keeper, model = Keeper(), Net()
        train(keeper, model)
        count, losses = len(keeper.names), keeper.losses
    """)
    assert (result.module.count, type(result.module.losses)) == (1, Placeholder)


def test_what_a_failed_function_was_changing_of_a_library_stays_as_it_is(run):
    """The variables of the process and the folders of its modules are no data of the program."""
    result, _ = run("""
        import os, sys, warnings

        def main(args):
            os.environ["OMP_NUM_THREADS"] = "1"
            sys.path.insert(0, "lib")
            warnings.filters.append(None)
            sys.modules["other"] = None

        main()
        home = "ABSENT_VARIABLE" in os.environ
        import colorsys
        model = Net()
        out = model(torch.randn(5, 4))
    """)
    assert isinstance(result.error, TypeError)
    assert vars(result.module)["home"] is False
    assert vars(result.module)["out"].shape == (5, 3)
    assert not any(isinstance(each, Placeholder) for each in (os.environ, sys.path, sys.modules, warnings.filters))


def test_what_a_cut_loop_made_of_its_first_batch_is_unknown_after_it(run, monkeypatch):
    """The last batch, which Python would leave there, may be a smaller one."""
    monkeypatch.setattr(watch.Watch, "_has_spent", lambda self: False)  # torch's first calls may take long
    result, _ = run("""
        model = Net()
        for x in torch.utils.data.DataLoader(torch.randn(7, 4), batch_size=3):
            out = model(x)
            double = out * 2
            fixed = torch.randn(6, 4)
            double.mean().backward()
        wrong = double + 1
        right = model(fixed)
    """)
    assert not isinstance(vars(result.module).get("wrong"), torch.Tensor)
    assert result.module.right.shape == (6, 3)


def test_an_endless_program_ends_when_its_budget_is_spent(run):
    result, calls = run("model = Net()\nmodel(torch.randn(2, 4))\nwhile True: pass\n")
    assert len(calls) == 1
    assert result.error is None


@pytest.mark.parametrize(("queued", "log"), [(lambda: 0.0, []), (time.monotonic, ["after"])])
def test_what_a_program_waits_for_a_processor_is_not_of_its_budget(run, monkeypatch, queued, log):
    monkeypatch.setattr(guard, "seconds_waited", queued)
    rest = "for _ in range(1):\n    time.sleep(1.4)\n    log.append('after')\n"
    result, _ = run(f"import time\nmodel = Net()\nmodel(torch.randn(2, 4))\n{rest}")
    assert result.module.log == log


def test_an_alarm_that_comes_while_the_budget_changes_ends_nothing(run, monkeypatch):
    """On a busy machine an alarm of before the call is due just after it, and the program lost its next statement."""
    arm = watch.set_alarm

    def arm_and_be_late(seconds, again):
        left = arm(seconds, again)
        if seconds:
            signal.raise_signal(watch.ALARM)
        return left

    monkeypatch.setattr(watch, "set_alarm", arm_and_be_late)
    result, calls = run("model = Net()\ny = model(torch.randn(2, 4))\nlog.append('after')\n")
    assert len(calls) == 1
    assert result.module.log == ["after"]


def test_a_part_that_is_called_first_does_not_end_the_program(run):
    _, calls = run("""
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Net()
            def forward(self, x):
                return self.inner(x)

        outer = Outer()
        y = outer.inner(torch.randn(2, 4))
        outer(torch.randn(3, 4))
    """)
    assert [call[:2] for call in calls] == [("Outer", [(3, 4)])]


def test_a_part_that_is_called_first_and_never_ends_is_stopped(run):
    _, calls = run("""
        class Endless(nn.Module):
            def forward(self, x):
                while True:
                    pass

        outer = nn.Sequential(Endless(), Net())
        outer[0](torch.randn(2, 4))
    """)
    assert calls == []


def test_the_program_goes_on_to_its_loss_which_is_shown_too(run):
    _, calls = run("model, loss = Net(), Loss()\nloss(model(torch.randn(2, 4)), torch.zeros(2, 3)).backward()\n")
    assert [call[0] for call in calls] == ["Net", "Loss"]


def test_the_second_of_two_models_is_reached_beyond_the_first_backward(run):
    _, calls = run("""
        a, b = Net(), nn.Sequential(Net(), nn.Flatten())
        c = Net(7)
        for _ in range(9):
            a(torch.randn(2, 4)).mean().backward()
            c(torch.randn(3, 4))
    """)
    assert [call[1] for call in calls] == [[(2, 4)], [(3, 4)]]


def test_torchs_own_layers_and_losses_are_no_models(run):
    result, calls = run("nn.Linear(4, 4)(torch.randn(2, 4))\nnn.MSELoss()(torch.ones(2), torch.ones(2))\n")
    assert calls == []
    assert result.reached == ()


def test_a_layer_is_the_model_of_a_program_that_has_no_other(run):
    head = "import torch\nfrom torch import nn\n"
    body = "model, loss = nn.Linear(4, 2), nn.MSELoss()\nloss(model(torch.randn(3, 4)), torch.zeros(3, 2)).backward()\n"
    assert [call[:2] for call in run(body, head)[1]] == [("Linear", [(3, 4)])]
    assert [call[:2] for call in run(f"net = nn.Sequential(nn.ReLU())\n{body}", head)[1]] == []
    main = f"def main():\n{textwrap.indent(body, '    ')}\nmain()\n"
    assert [call[:2] for call in run(main, head)[1]] == [("Linear", [(3, 4)])]


def test_a_sequential_of_the_program_is_a_model(run):
    _, calls = run("net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())\nnet(torch.randn(2, 4))\n")
    assert [call[0] for call in calls] == ["Sequential"]


def test_a_part_that_is_called_by_itself_is_remembered_but_not_shown(run):
    result, calls = run("""
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Net()
            def encode(self, x):
                return self.part(x)
            def forward(self, x):
                return self.part(x) + 1
        whole = Whole()
        whole.encode(torch.randn(2, 4))
    """)
    assert calls == []
    assert [(type(each.model).__name__, each.shown) for each in result.reached] == [("Net", False)]


def test_wrappers_are_seen_through(run):
    _, calls = run("model = torch.compile(nn.DataParallel(Net()))\nmodel(torch.randn(2, 4))\n")
    assert [call[0] for call in calls] == ["Net"]


def test_an_exception_after_the_first_call_is_remembered_and_does_no_harm(run):
    result, calls = run("Net()(torch.randn(2, 4))\nraise RuntimeError('no data set here')\n")
    assert len(calls) == 1
    assert str(result.error) == "no data set here"


@pytest.mark.parametrize(
    ("body", "kind"),
    [("import not_there_at_all", ModuleNotFoundError), ("raise SystemExit(2)", SystemExit), ("1 / 0", ArithmeticError)],
)
def test_a_program_that_reaches_no_model_says_why(run, body, kind):
    result, _ = run(body + "\n")
    assert result.reached == ()
    assert isinstance(result.error, kind)


def test_a_loader_with_workers_stays_in_the_process(run):
    result, calls = run("""
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(40.).view(10, 4))
        loader = DataLoader(data, 5, num_workers=3, prefetch_factor=2, persistent_workers=True, shuffle=True)
        for (x,) in loader:
            Net()(x)
            log.append((loader.num_workers, sorted(x[:, 0].tolist())[0] % 4))
            break
    """)
    assert [call[1] for call in calls] == [[(5, 4)]]
    assert result.module.log == [(0, 0.0)]


def test_the_program_runs_in_its_place(run, tmp_path):
    before = (Path.cwd(), sys.argv, sys.path[:])
    result, _ = run("import os, sys\nlog.append((__name__, __file__, os.getcwd(), sys.argv, sys.path[0]))\n")
    path = str(tmp_path / "program.py")
    assert [("__main__", path, str(tmp_path), [path], str(tmp_path))] == result.module.log
    assert (Path.cwd(), sys.argv, sys.path) == before


def test_nothing_is_allocated_and_small_values_are_known(run):
    result, calls = run("""
        big = nn.Linear(10**6, 10**6)
        n = int(torch.tensor([2, 3]).sum().item())
        Net()(torch.randn(n, 4))
        log.append(torch.randn(1).device.type)
    """)
    assert calls[0][1] == [(5, 4)]
    assert result.module.log == ["cpu"]
    assert result.module.big.weight.is_meta


def test_a_copied_model_does_not_pretend_to_know_its_constructor(run):
    result, _ = run("import copy\nmodel = copy.deepcopy(Net(5))\nmodel(torch.randn(2, 4))\n")
    assert result.constructions.of(result.reached[0].model) is None


def test_the_hooks_are_gone_afterwards(run):
    call, train, backward = torch.nn.Module.__call__, torch.nn.Module.train, torch.Tensor.backward
    run("Net()(torch.randn(2, 4))\n")
    assert (torch.nn.Module.__call__, torch.nn.Module.train, torch.Tensor.backward) == (call, train, backward)
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


FUSED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fused = False
        self.body = nn.Sequential()
        self.body.add_module("conv", nn.Conv2d(3, 6, 3))
        self.body.add_module("norm", nn.BatchNorm2d(6))

    def fuse(self):
        self.fused, self.body = True, nn.Conv2d(3, 6, 3)

    def forward(self, x):
        h = self.body(x)
        return h.flatten(1) if self.fused else h


net = Net()
y = net(torch.randn(2, 3, 9, 9))
net.fuse()
z = net(torch.randn(2, 3, 9, 9))
"""


def test_a_model_whose_parts_are_replaced_after_its_call_is_shown_as_it_was_called(tmp_path):
    payload = traced(tmp_path, {"net.py": FUSED})
    assert payload["problems"] == []
    assert bound(payload)["h"][1] == 6
    assert [name for name in payload["nodes"]["name"] if "norm" in name] == ["body_norm"]
