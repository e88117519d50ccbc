"""Passes in a trace child: what they make of a model, with errors that eager PyTorch gives too."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mase_server.protocol.snapshot import TRANSFORM_KEYS, unique_titles
from tests.worker.jobs import Job
from tests.worker.serving import Answer, Child, room

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 4)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        h = self.drop(h)
        y = self.fc2(h)
        return y


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, z):
        out, (hidden, cell) = self.lstm(z)
        return out, hidden


if __name__ == "__main__":
    torch.manual_seed(3)
    net = Net(){load}
    Net()
    out = net(torch.randn(3, 8))
    Other()(torch.rand(2, 7, 6))
"""
FIXED = "quantize(default='fixed(8,4)')"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A traced file, and the child that serves it."""
    job = Job(tmp_path_factory.mktemp("net"), NET.replace("{load}", ""))
    child = Child(job.live)
    yield job, child
    child.close()


def serve(tmp_path: Path, text: str) -> tuple[Job, Child]:
    job = Job(tmp_path, text)
    return job, Child(job.live)


def shown(job: Job, transform: dict[str, Any]) -> dict[str, Any]:
    """Name -> its value after the transform, for the rows that it changes."""
    payload = job.payload
    sites, rows = payload["sites"], payload["rows"]
    return {sites["name"][rows["site"][row]]: value for row, value in zip(*transform["rows"], strict=True)}


def nodes(job: Job, transform: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names, table = job.payload["nodes"]["name"], transform["nodes"]
    rows = [dict(zip(table, facts, strict=True)) for facts in zip(*table.values(), strict=True)]
    return {names[row["row"]]: row for row in rows}


def noise(reference: torch.Tensor, value: torch.Tensor) -> float:
    """SQNR in dB."""
    return 10 * math.log10(float((reference**2).sum() / ((reference - value) ** 2).sum()))


def rounded(tensor: torch.Tensor, width: int = 8, fraction: int = 4) -> torch.Tensor:
    """Fixed point by hand."""
    limit = 2 ** (width - 1)
    return (tensor * 2**fraction).round().clamp(-limit, limit - 1) / 2**fraction


def by_hand(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """Net with every rounding written out."""
    h = rounded(F.linear(rounded(x), rounded(state["fc1.weight"]), rounded(state["fc1.bias"])))
    h = rounded(F.relu(h))
    return rounded(F.linear(h, rounded(state["fc2.weight"]), rounded(state["fc2.bias"])))


def test_the_formats_come_at_once_and_the_errors_after(served):
    job, child = served
    answer = child.call("transform", FIXED, model="Net", measure=True)
    assert (answer.error, answer.value) == ("", {})
    first, last = answer.transforms
    assert {*first} >= {*TRANSFORM_KEYS}
    assert [one["complete"] for one in (first, last)] == [False, True]
    assert first["summary"]["sqnr"] is None
    assert (first["inputs"], first["weights"]) == ("", "")
    assert last["summary"]["sqnr"] > 10
    assert last["weights"] == "random weights (seed 0)"
    assert last["inputs"] == "the inputs that model.py calls it with: x: f32[B=3, 8]"
    for one in (first, last):
        assert shown(job, one)["h"][0] == shown(job, one)["y"][0] == "fixed(8,4)"
        assert shown(job, one)["y"] == ["fixed(8,4)", [3, 4], ["B", "4"]]
        assert one["formats"] == {"fixed(8,4)": 8.0}
        assert one["failed"] is one["problem"] is None


def test_the_values_of_tuples_show_the_format_of_each_part(served):
    job, child = served
    answer = child.call("transform", FIXED, model="Other", measure=False)
    (only,) = answer.transforms
    assert only["complete"]
    assert shown(job, only)["out"] == ["fixed(8,4)", [2, 7, 5], ["B", "T", "5"]]
    returned = shown(job, only)[""]
    # What is inside of a tuple in a tuple is not rounded.
    assert [part[0] for part in returned["tuple"]] == ["fixed(8,4)", "f32"]


def test_bits_and_sizes_are_told_before_and_after(served):
    _, child = served
    summary = child.call("transform", "quantize(by='name', fc1='fixed(8,4)')", model="Net").last["summary"]
    elements = 8 * 16 + 16 + 16 * 4 + 4
    assert summary["parameters"] == [elements, elements]
    assert summary["parameter_bytes"] == [4 * elements, 8 * 16 + 16 + 4 * (16 * 4 + 4)]
    assert summary["weight_bits"][0] == 32.0
    assert 8.0 < summary["weight_bits"][1] < 32.0


def test_a_line_that_runs_in_several_formats_shows_all_of_them(tmp_path: Path):
    job, child = serve(tmp_path, """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x

        Net()(torch.randn(2, 8))
        """)  # fmt: skip
    steps = "quantize(by='name', **{'layers.0': 'fixed(8,4)', 'layers.3': 'mxint(8)'})"
    (value,) = [shown(job, child.call("transform", steps).last)["x"]]
    child.close()
    assert value == ["fixed(8,4)|f32|mxint(8)", [2, 8], ["B", "8"]]


def test_errors_are_those_of_eager_with_the_weights_that_the_file_loads(tmp_path: Path):
    torch.manual_seed(11)
    state = nn.Module()
    state.fc1, state.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)
    torch.save({"model": {f"module.{key}": value for key, value in state.state_dict().items()}}, tmp_path / "kept.pt")
    load = """
    kept = torch.load("kept.pt")["model"]
    net.load_state_dict({key.removeprefix("module."): value for key, value in kept.items()})"""
    job, child = serve(tmp_path, NET.replace("{load}", load))
    last = child.call("transform", FIXED, model="Net", measure=True).last
    child.close()
    assert last["weights"] == "weights of kept.pt"
    x, weights = inputs_of(job), state.state_dict()
    eager = F.linear(F.relu(F.linear(x, weights["fc1.weight"], weights["fc1.bias"])), *second(weights))
    with torch.no_grad():
        mine = by_hand(x, weights)
        assert last["summary"]["sqnr"] == pytest.approx(noise(eager, mine), rel=1e-4)
        assert last["summary"]["max_error"] == pytest.approx(float((eager - mine).abs().max()), rel=1e-4)
    assert nodes(job, last)["fc2"]["sqnr"] == pytest.approx(last["summary"]["sqnr"])


def second(weights: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return weights["fc2.weight"], weights["fc2.bias"]


def inputs_of(job: Job) -> torch.Tensor:
    """The input that the file called its model with, which its run computed for real."""
    (found,) = [one for one in job.traced if one.name == "Net"]
    value = found.session.shadows.get(found.found.inputs["x"])
    assert value is not None
    return value


def test_a_node_that_is_gone_says_what_took_its_place(served):
    job, child = served
    last = child.call("transform", "remove_dropout()", model="Net", measure=True).last
    assert nodes(job, last)["drop"]["note"] == "taken out by remove_dropout; relu takes its place"
    assert last["summary"]["sqnr"] == "inf"
    assert last["steps"][0]["info"] == "removed 1"
    assert last["summary"]["nodes"] == [6, 5]


def test_what_comes_before_a_step_that_fails_stays_applied(served):
    job, child = served
    answer = child.call("transform", FIXED, "prune(weight={'sparsity': 7})", model="Net", measure=True)
    assert answer.kind in ("argument", "pass")
    assert "sparsity" in answer.error
    last = answer.last
    assert (last["failed"], last["problem"]) == (1, answer.error)
    assert [step["pass"] for step in last["steps"]] == ["quantize"]
    assert shown(job, last)["y"][0] == "fixed(8,4)"


@pytest.mark.parametrize(
    ("step", "model", "told"),
    [
        ("quantise()", "Net", "did you mean 'quantize'?"),
        ("quantize(default='fixed(8')", "Net", "fixed(8"),
        ("quantize()", "Absent", "this file has no model 'Absent'; it has Net, Other"),
    ],
)
def test_what_was_asked_wrongly_says_so(served, step: str, model: str, told: str):
    answer = served[1].call("transform", step, model=model, measure=True)
    assert told in answer.error
    assert answer.kind == "argument"


def test_passes_that_need_weights_wait_for_them_and_get_them(served):
    _, child = served
    answer = child.call("transform", "prune(weight={'sparsity': 0.5})", model="Net", measure=False)
    assert answer.error == ""
    assert [len(one["steps"]) for one in answer.transforms][-1] == 1
    assert answer.last["complete"]


def test_a_model_that_is_too_big_keeps_its_formats_and_says_how_big_it_is(tmp_path: Path):
    job, child = serve(tmp_path, """
        class Big(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(40000, 50000, bias=False)

            def forward(self, x):
                y = self.fc(x)
                return y

        Big()(torch.randn(2, 40000))
        """)  # fmt: skip
    answer = child.call("transform", FIXED, measure=True, memory=room(4 << 30))
    child.close()
    assert answer.kind == "limit"
    assert answer.error.startswith("Big has 7.5 GiB of parameters; with values it would take about 14.9 GiB, and the ")
    (only,) = answer.transforms
    assert only["complete"]
    assert (only["problem"], only["failed"]) == (answer.error, None)
    assert shown(job, only)["y"][0] == "fixed(8,4)"


def test_code_of_a_model_before_and_after(served):
    _, child = served
    before = child.call("code", FIXED, model="Net", original=True).value["text"]
    after = child.call("code", FIXED, model="Net").value["text"]
    assert "fc1 = self.fc1(x)" in before
    assert "quantise" not in before
    assert "weight=quantise(self.fc1.weight, 'fixed(8,4)')" in after


def test_code_after_a_pass_that_needs_weights(served):
    text = served[1].call("code", "prune(weight={'sparsity': 0.5})", model="Net").value["text"]
    assert "F.linear(x, weight=self.fc1.weight * self.fc1_pruning_mask, bias=self.fc1.bias)" in text


def test_code_has_the_formats_that_values_choose(served):
    _, child = served
    text = child.call("code", "quantize(default='fixed(8,auto)')", model="Net").value["text"]
    assert "auto" not in text
    assert "weight=quantise(self.fc1.weight, 'fixed(8," in text


def test_code_after_a_step_that_fails_is_that_of_the_steps_before(served):
    text = served[1].call("code", FIXED, "prune(weight={'sparsity': 7})", model="Net").value["text"]
    assert text.startswith("# step 2, prune: ")
    assert "quantise(self.fc1.weight, 'fixed(8,4)')" in text


def test_a_calibration_uses_the_inputs_of_the_files_run(served):
    info = served[1].call("transform", "quantize(default='fixed(8,auto)')", model="Net", measure=True).last["steps"][0]
    assert "the example inputs" in info["info"]


def test_every_pass_is_listed(served):
    found = {one["name"] for one in served[1].call("passes").value}
    assert {"quantize", "prune", "remove_dropout", "conv_bn_fusion"} <= found


def test_a_file_that_was_traced_with_a_pipeline_shows_it_at_once(tmp_path: Path):
    steps = [{"pass": "quantize", "arguments": {"default": "fixed(8,4)"}}]
    job = Job(tmp_path, NET.replace("{load}", ""), pipelines={"Net": steps, "Gone": steps, "Other": []})
    assert [payload["transforms"] for payload in job.payloads[:-1]] == [[]] * (len(job.payloads) - 1)
    (transform,) = job.payload["transforms"]
    assert unique_titles([model["name"] for model in job.payload["models"]])[transform["model"]] == "Net"
    assert shown(job, transform)["y"][0] == "fixed(8,4)"
    assert not transform["complete"]


def test_a_model_whose_forward_fails_is_not_transformed(tmp_path: Path):
    _, child = serve(tmp_path, "class Net(nn.Module):\n    def forward(self, x):\n        return x @ x\n\n"
                     "Net()(torch.randn(2, 3))\n")  # fmt: skip
    answer: Answer = child.call("transform", FIXED)
    child.close()
    assert answer.kind == "pass"
    assert answer.error.startswith("the forward of Net fails (")


def test_a_model_whose_path_depends_on_values_is_transformed_too(tmp_path: Path):
    job, child = serve(tmp_path, """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

            def forward(self, x):
                y = self.fc(x)
                if y.sum() > -1e9:
                    y = y.relu()
                return y

        Net()(torch.randn(2, 8))
        """)  # fmt: skip
    assert job.payload["models"][0]["rung"] == "real"
    last = child.call("transform", FIXED, measure=True).last
    child.close()
    assert shown(job, last)["y"][0] == "fixed(8,4)"
    assert last["summary"]["sqnr"] > 5


GPU = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4{device}){cuda}

    def forward(self, x):
        y = self.fc(x{cuda}) + torch.arange(4{device}).to({to}torch.float32)
        return y


torch.manual_seed(4)
x = torch.randn(2, 8)
Net()(x)
"""


def test_a_model_for_a_gpu_has_the_errors_that_it_has_on_the_cpu(tmp_path: Path):
    found = []
    for name, device, cuda, to in (("cpu", "", "", ""), ("gpu", ", device='cuda'", ".cuda()", "'cuda', ")):
        (tmp_path / name).mkdir()
        text = GPU.replace("{device}", device).replace("{cuda}", cuda).replace("{to}", to)
        _, child = serve(tmp_path / name, text)
        found.append(child.call("transform", FIXED, measure=True).last["summary"]["sqnr"])
        child.close()
    assert found[0] == found[1] > 5


def test_a_model_that_cannot_be_made_with_values_keeps_its_formats(tmp_path: Path):
    job, child = serve(tmp_path, """
        made = []

        class Once(nn.Module):
            def __init__(self):
                super().__init__()
                made.append(self)
                if len(made) > 1:
                    raise RuntimeError("there can be only one")
                self.fc = nn.Linear(8, 4)

            def forward(self, x):
                y = self.fc(x)
                return y

        Once()(torch.randn(2, 8))
        """)  # fmt: skip
    answer = child.call("transform", FIXED, measure=True)
    child.close()
    assert shown(job, answer.last)["y"][0] == "fixed(8,4)"
    assert answer.kind == "internal"
    assert answer.error.startswith("Once could not be made with values (RuntimeError: there can be only one): ")


@pytest.mark.parametrize("order", [1, -1])
def test_masked_weights_that_are_rounded_take_the_bits_of_their_format(served, order: int):
    steps = ["quantize(default='fixed(8,4)')", "prune(weight={'sparsity': 0.5})"][::order]
    summary = served[1].call("transform", *steps, model="Net").last["summary"]
    assert summary["parameter_bytes"][0] == 4 * summary["parameter_bytes"][1]


PAIRS = [
    "quantize(default='fixed(8,4)')", "prune(weight={'sparsity': 0.5})", "remove_dropout()", "insert_lora_adapter()",
    "prune(activation={'sparsity': 0.5})",
]  # fmt: skip


@pytest.mark.parametrize("first", PAIRS)
def test_code_after_any_two_passes_is_python(served, first: str):
    for second in PAIRS:
        text = served[1].call("code", first, second, model="Net").value["text"]
        ast.parse(text)
        assert not text.startswith("#") or "it changes nothing here" in text.partition("\n")[0], second
