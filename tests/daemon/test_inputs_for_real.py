"""Sets of inputs in real processes: a trial tells what eager PyTorch does, and nothing that is shown changes."""

import json
from dataclasses import replace

import pytest
import pytest_asyncio
import torch
from jsonschema import Draft202012Validator
from torch import nn

from mase_server.daemon.api import API, Api
from mase_server.daemon.methods import ApiError
from mase_server.daemon.process import DEFAULT_JOB

from .conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = {method.name: method for method in API}
NET = """\
from torch import nn


# mase[small]: Net(width=5); x: f32[2, 5]
# mase[large]: Net(width=7); x: f32[B=8, 7]
class Net(nn.Module):
    def __init__(self, width, deep=False):
        super().__init__()
        self.fc = nn.Linear(width, 4)

    def forward(self, x, scale=1.0):
        y = self.fc(x)
        return y * scale
"""


class Session:
    """A connection of another tool: what it gives is not run."""

    ident, opened, errors = "other", set(), "map"


class InputBench(Bench):
    async def ask(self, name, path, session=None, **params):
        method = METHODS[f"mase/{name}"]
        answer = await method.call(Api(self.daemon, session), {"path": path, **params})
        Draft202012Validator(method.described()["result"]).validate(method.as_map(answer))
        return answer

    async def opened(self, name, text=NET):
        path = str(self.folder / name)
        with open(path, "w") as file:
            file.write(text)
        self.daemon.opened(path)
        assert (await self.daemon.wait(path)).state == "ready"
        return path


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bench(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("inputs")
    (tmp / "work").mkdir()
    bench = InputBench(tmp / "work", tmp, job=DEFAULT_JOB)
    await bench.daemon.start()
    yield bench
    await bench.daemon.shutdown()


def eager(width, shape):
    """What PyTorch says of NET: (output's shape, parameters)."""
    fc = nn.Linear(width, 4)
    return list(fc(torch.zeros(shape)).shape), sum(each.numel() for each in fc.parameters())


async def test_a_pick_is_traced_at_once_and_outlives_the_daemon(bench):
    path = await bench.opened("picked.py")
    [before] = await bench.ask("inputs", path)
    assert (before["set"], before["sets"]) == ("small", ["small", "large"])
    [after] = await bench.ask("pickInputs", path, set="large")
    assert (after["set"], after["inputs"]["x"][1]) == ("large", [8, 7])
    kept = json.loads((bench.cache_dir.parent / "state" / "input_sets.json").read_text())
    assert kept[path] == {"Net": "large"}
    [again] = await bench.ask("pickInputs", path)
    assert again["set"] == "small"
    with pytest.raises(ApiError, match="Net has no inputs named 'huge'; it has small, large"):
        await bench.ask("pickInputs", path, set="huge")


async def test_a_trial_tells_what_eager_does_and_changes_nothing(bench):
    path = await bench.opened("tried.py")
    shown = bench.daemon.store.snapshot(path)
    told = await bench.ask(
        "tryInputs", path, set="new", inputs={"x": "f32[3, 6]", "scale": ""}, arguments={"width": "6"}
    )
    output, parameters = eager(6, (3, 6))
    assert (told["outputs"][1], told["parameters"], told["problems"]) == (output, parameters, [])
    assert told["comment"] == "mase[new]: Net(width=6); x: f32[3, 6]"
    assert bench.daemon.store.snapshot(path) is shown


async def test_the_form_of_a_set_has_every_input_and_argument(bench):
    path = await bench.opened("form.py")
    form = (await bench.ask("tryInputs", path, set="large"))["form"]
    assert form["call"] == "Net"
    inputs = [(each["name"], each["text"], each["required"], each["default"]) for each in form["inputs"]]
    assert inputs == [("x", "f32[B=8, 7]", True, ""), ("scale", "", False, "1.0")]
    arguments = [(each["name"], each["text"], each["required"], each["default"]) for each in form["arguments"]]
    assert arguments == [("width", "7", True, ""), ("deep", "", False, "False")]


@pytest.mark.parametrize(
    ("inputs", "arguments", "field", "message"),
    [
        ({"x": "f33[2, 5]"}, {"width": "5"}, "inputs.x", "unknown element type 'f33'"),
        ({"x": "f32[2, 5]", "scale": "1,"}, {"width": "5"}, "inputs.scale", "expected ';' or the end"),
        ({"x": "f32[2, 5]"}, {"width": "5 +"}, "arguments.width", "'5 +' is no Python expression: invalid syntax"),
        ({"x": "f32[2, 5]"}, {"width": "wide"}, "", "name 'wide' is not defined"),
        ({"x": "f32[2, 9]"}, {"width": "5"}, "", "9"),
    ],
)
async def test_what_is_wrong_is_told_at_its_field(bench, inputs, arguments, field, message):
    path = await bench.opened("wrong.py")
    told = await bench.ask("tryInputs", path, set="small", inputs=inputs, arguments=arguments)
    assert [each["field"] for each in told["problems"]] == [field]
    assert message in told["problems"][0]["message"]


async def test_what_a_forward_that_fails_would_give_is_not_told(bench):
    path = await bench.opened("failing.py")
    told = await bench.ask("tryInputs", path, inputs={"x": "f32[2, 9]"}, arguments={"width": "6"})
    assert [each["severity"] for each in told["problems"]] == ["error"]
    assert (told["outputs"], told["flops"], told["bytes"]) == (None, None, None)
    assert told["parameters"] == eager(6, (2, 6))[1]


async def test_what_a_connection_gives_is_not_run(bench):
    path = await bench.opened("code.py")
    made = bench.folder / "made"
    code = f"open({str(made)!r}, 'w').write('5') + 4"
    told = await bench.ask("tryInputs", path, Session(), inputs={"x": "f32[2, 5]"}, arguments={"width": code})
    assert [each["field"] for each in told["problems"]] == ["arguments.width"]
    assert "is no plain value" in told["problems"][0]["message"]
    assert not made.exists()


async def test_nothing_is_tried_once_a_folder_is_not_trusted_any_more(bench):
    path = await bench.opened("trusted.py")
    before, bench.settings = bench.settings, replace(bench.settings, trusted=False)
    told = await bench.ask("tryInputs", path, inputs={"x": "f32[2, 5]"}, arguments={"width": "5"})
    bench.settings = before
    assert told["outputs"] is None
    assert told["problems"][0]["message"].startswith("This folder is not trusted")


async def test_two_sets_are_compared_line_by_line(bench):
    path = await bench.opened("compared.py")
    told = await bench.ask("compareInputs", path, sets=["small", "large"])
    for side, width, shape in (("before", 5, (2, 5)), ("after", 7, (8, 7))):
        output, parameters = eager(width, shape)
        assert (told[side]["outputs"][1], told[side]["parameters"]) == (output, parameters)
        # A product of matrices multiplies and adds, and a bias adds.
        assert told[side]["flops"] >= 2 * shape[0] * width * 4
    rows = {(row["kind"], row["name"]): row for row in told["rows"]}
    assert [each[1] for each in rows["binding", "y"]["before"]] == [[2, 4]]
    assert [each[1] for each in rows["binding", "y"]["after"]] == [[8, 4]]
    assert all(row["differs"] for row in told["rows"])


async def test_a_trial_that_does_not_end_is_ended_and_told(bench):
    endless = NET.replace("y = self.fc(x)", "while x.shape[1] == 9: pass\n        y = self.fc(x)")
    path = await bench.opened("endless.py", endless)
    before, bench.settings = bench.settings, replace(bench.settings, time_limit=2.0)
    told = await bench.ask("tryInputs", path, inputs={"x": "f32[2, 9]"}, arguments={"width": "9"})
    bench.settings = before
    assert "2 s" in told["problems"][-1]["message"]
    told = await bench.ask("tryInputs", path, inputs={"x": "f32[2, 6]"}, arguments={"width": "6"})
    assert told["outputs"][1] == [2, 4]
