"""Verilog from a trace child: of the real model, after its pipeline, with the payload's rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mase_server.building import EMISSION_KEYS, ESTIMATE_KEYS, OPERATION_KEYS, TOTAL_KEYS
from mase_server.worker.transforms.work import _send_operations
from tests.worker.jobs import Job
from tests.worker.serving import Answer, Child, children, gone, room

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


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, z):
        z = self.first(z)
        z = torch.sort(z)[0]
        return self.last(z)


def in_order(x):
    return torch.sort(x)[0]


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation=in_order, batch_first=True)

    def forward(self, t):
        u = self.layer(t)
        return u


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, u):
        v, _ = self.attention(u, u, u, need_weights=False)
        return v


class Big(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(1 << 18, 1 << 18, bias=False)

    def forward(self, x):
        return self.fc(x)


class Broken(nn.Module):
    def forward(self, b):
        return b @ b


def waiting_transform_pass(mg, pass_args={"gate": ""}):
    import time
    open(pass_args["gate"], "w").close()
    time.sleep(1000)
    return mg, {}


def failing_transform_pass(mg, pass_args={}):
    raise ValueError("there is no such layer")


if __name__ == "__main__":
    Net()(torch.randn(3, 8))
    Odd()(torch.randn(3, 8))
    Deep().eval()(torch.randn(1, 4, 8))
    Heads().eval()(torch.randn(1, 4, 8))
    Big()(torch.randn(1, 1 << 18))
    Broken()(torch.randn(3, 8))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A traced file, and the child that serves it."""
    job = Job(tmp_path_factory.mktemp("net"), NET)
    child = Child(job.live)
    yield job, child
    child.close()


def emit(child: Child, *steps: str, model: str = "Net", build=None, **params) -> Answer:
    return child.call("verilog", *steps, model=model, build=build or {"multipliers": 12}, **params)


def names(job: Job, rows: list[int]) -> list[str]:
    return [job.payload["nodes"]["name"][row] for row in rows]


def test_the_text_is_told_with_the_nodes_that_each_operation_stands_for(served):
    job, child = served
    answer = emit(child)
    told = answer.value
    assert (answer.error, told.keys()) == ("", EMISSION_KEYS.keys())
    assert (told["model"], told["module"], told["folder"], told["files"]) == ("Net", "net", None, [])
    assert (told["build"]["multipliers"], told["weights"]) == (12, "random weights (seed 0)")
    # The server adds what the part's clock makes of it.
    assert {*told["totals"], "clock", "copies", "rams", "samples"} == set(TOTAL_KEYS)
    found = {operation["name"]: names(job, operation["rows"]) for operation in told["operations"]}
    # The dropout is in no operation: it does nothing.
    assert found == {"x": ["x"], "fc1": ["fc1", "relu"], "fc2": ["fc2"]}
    lines = told["text"].splitlines()
    for operation in told["operations"]:
        assert operation.keys() == OPERATION_KEYS.keys()
        assert operation["estimate"].keys() == set(ESTIMATE_KEYS)
    ((first, last),) = next(each for each in told["operations"] if each["name"] == "fc1")["lines"]
    assert "fc1_i" in "".join(lines[first - 1 : last])


def test_what_is_asked_for_is_told_as_it_goes(served):
    _, child = served
    assert emit(child).told[-4:] == ["quantising", "lowering", "estimating", "measuring errors"]


def test_the_pipeline_comes_first_and_nothing_of_it_is_done_again(served):
    _, child = served
    assert emit(child).value["steps"] == ["remove_dropout()", "quantize(default='fixed(8,auto)')"]
    own = ("remove_dropout()", "quantize(default='fixed(6,3)')")
    answer = emit(child, *own)
    assert answer.value["steps"] == list(own)
    assert ".DATA_IN_0_PRECISION_0(6)" in answer.value["text"]
    assert ".DATA_IN_0_PRECISION_0(8)" not in answer.value["text"]
    assert answer.told[-6:-4] == ["remove_dropout (1 of 2)", "quantize (2 of 2)"]


def test_the_text_alone_writes_nothing_and_a_folder_gets_every_file_that_is_told(served, tmp_path: Path):
    job, child = served
    before = sorted(Path(job.request.folder).iterdir())
    text = emit(child).value["text"]
    assert sorted(Path(job.request.folder).iterdir()) == before
    folder = tmp_path / "out"
    told = emit(child, folder=str(folder), vectors=3).value
    assert (told["folder"], told["text"]) == (str(folder), text)
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert dict(map(tuple, told["files"])) == sizes
    assert told["files"][0][0] == "net.sv"
    assert (folder / "net.sv").read_text() == text


def test_a_node_without_hardware_is_told_with_its_row_and_the_rest_is_there(served):
    job, child = served
    told = emit(child, model="Odd").value
    nodes = job.payload["nodes"]
    ((operator, row),) = [(each["operator"], each["row"]) for each in told["unsupported"]]
    assert (operator, nodes["name"][row]) == ("sort", "sort")
    assert "z = torch.sort(z)[0]" in job.text.splitlines()[nodes["line"][row] - 1]
    assert "first_i" in told["text"]


def test_what_is_inside_of_a_layer_of_torch_is_told_with_the_row_of_its_call(served):
    job, child = served
    told = emit(child, model="Deep").value
    (row,) = {each["row"] for each in told["unsupported"] if each["operator"] == "sort"}
    assert job.payload["nodes"]["name"][row] == "layer"
    assert {name for each in told["operations"] for name in names(job, each["rows"])} == {"t", "layer"}


def test_every_part_of_attention_that_is_written_out_stands_for_its_layer(served):
    job, child = served
    told = emit(child, model="Heads").value
    found = [(each["kind"], names(job, each["rows"])[:1]) for each in told["operations"] if each["kind"] != "input"]
    assert [name for _, name in found] == [["attention"]] * len(found)
    # Queries, keys, values, and what comes out.
    assert [kind for kind, _ in found].count("linear") == 4
    alone = emit(child, model="Heads", build={"scope": "attention"}).value
    assert [each["name"] for each in alone["operations"]] == [each["name"] for each in told["operations"]]


def test_one_layer_can_be_built_alone(served):
    job, child = served
    told = emit(child, build={"scope": "fc2"}).value
    assert [names(job, each["rows"]) for each in told["operations"] if each["kind"] == "linear"] == [["fc2"]]
    assert "fc1_i" not in told["text"]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        ({"multipliers": -1}, "multipliers is -1; it takes a whole number from 0"),
        ({"precision": "fixed(99)"}, "fixed(99)"),
        ({"scope": "fc3"}, "fc3"),
    ],
)
def test_what_a_person_asked_for_that_there_is_not_is_an_argument(served, build, text):
    _, child = served
    answer = emit(child, build=build)
    assert answer.kind == "argument"
    assert text in answer.error


def test_a_step_that_fails_is_told(served):
    _, child = served
    answer = emit(child, "failing()")
    assert answer.kind == "pass"
    assert answer.error.endswith("ValueError: there is no such layer")


def test_a_model_that_is_too_large_is_refused_before_it_is_made(served):
    _, child = served
    answer = emit(child, model="Big", memory=room(1 << 30))
    assert answer.kind == "limit"
    assert answer.error.startswith("Big has 256.0 GiB of parameters; with values it would take about 512.0 GiB")
    assert not any("with its weights" in message for message in answer.told)


def test_a_model_whose_forward_fails_has_no_hardware(served):
    _, child = served
    answer = emit(child, model="Broken")
    assert answer.kind == "pass"
    assert answer.error.startswith("the forward of Broken fails")


def test_cancelling_ends_the_process_that_works_on_it(served, tmp_path: Path):
    _, child = served
    assert emit(child).value["module"] == "net"
    (holder,) = children(child.pid)
    step = f"waiting(gate={str(tmp_path / 'gate')!r})"
    ident = child.ask("verilog", step, model="Net")
    child.wait(ident, lambda message: message.get("message", "").startswith("waiting"))
    (working,) = children(holder)
    child.send({"op": "cancel", "id": ident})
    answer = child.wait(ident)
    assert (answer.error, answer.kind) == ("it was cancelled", "cancelled")
    assert gone([working])
    assert emit(child).value["module"] == "net"
    assert children(child.pid) == [holder]


def test_many_operations_come_before_the_answer_in_order(monkeypatch):
    monkeypatch.setattr("mase_server.worker.transforms.work.CHUNK_ROWS", 2)
    for count, sizes in [(0, []), (1, []), (2, []), (3, [2]), (5, [2, 2])]:
        sent = []
        _send_operations(sent.append, {"operations": list(range(count)), "text": "module"})
        *events, answer = sent
        assert [len(event["operations"]) for event in events] == sizes
        pieces = [*(event["operations"] for event in events), answer["value"]["operations"]]
        assert [each for piece in pieces for each in piece] == list(range(count))
        assert answer["value"]["text"] == "module"


SMALL = """
{comment}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


if __name__ == "__main__":
    Net()({values})
"""


@pytest.mark.parametrize(
    ("comment", "values", "words"),
    [
        ("# mase: data samples.pt", "torch.randn(2, 8)", "3 batches of {folder}/samples.pt"),
        ("", "torch.ones(2, 8)", "the example inputs"),
        ("# mase: x: f32[2, 8]", None, "random inputs"),
    ],
    ids=["a file that a comment names", "the file's own", "random"],
)
def test_what_formats_are_calibrated_on_is_said(tmp_path, comment, values, words):
    torch.save({"x": torch.randn(6, 8)}, tmp_path / "samples.pt")
    text = SMALL.format(comment=comment, values=values)
    job = Job(tmp_path, text if values else text.partition("if __name__")[0])
    child = Child(job.live)
    try:
        accuracy = emit(child, build={"multipliers": None}).value["accuracy"]
    finally:
        child.close()
    assert accuracy["calibrated"] == words.format(folder=tmp_path)
    assert accuracy["saturated"] is not None
    assert accuracy["problem"] is None
