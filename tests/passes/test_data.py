"""What passes run a graph on."""

import re
import sys

import numpy
import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.ir.tensors_file import write_tensors
from mase_server.passes.data import load
from tests.ir.models import Classifier


def graph_of(rows=4):
    return MaseGraph(nn.Linear(3, 2), {"input": torch.randn(rows, 3)})


def same(batches, expected):
    assert len(batches) == len(expected)
    for batch, tensor in zip(batches, expected, strict=True):
        assert list(batch) == ["input"]
        assert torch.equal(batch["input"], tensor)


def saved(path, tensor):
    if path.suffix == ".pt":
        torch.save(tensor, path)
    elif path.suffix == ".npy":
        numpy.save(path, tensor.numpy())
    elif path.suffix == ".npz":
        numpy.savez(path, input=tensor.double().numpy())
    else:
        with path.open("wb") as file:
            write_tensors(file, {"input": tensor})
    return str(path)


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".npz", ".safetensors"])
def test_many_rows_are_cut_into_batches_of_the_examples_size(tmp_path, suffix):
    rows = torch.randn(11, 3)
    data = load(graph_of(), saved(tmp_path / f"rows{suffix}", rows))
    same(data.batches, [rows[:4], rows[4:8]])
    assert data.words == f"2 batches of {tmp_path}/rows{suffix}"


def test_a_file_may_hold_a_list_of_batches(tmp_path):
    batches = [torch.randn(4, 3) for _ in range(3)]
    torch.save([{"input": each, "labels": torch.zeros(4)} for each in batches], tmp_path / "list.pt")
    same(load(graph_of(), str(tmp_path / "list.pt")).batches, batches)
    same(load(graph_of(), str(tmp_path / "list.pt"), samples=2).batches, batches[:2])


def test_a_loader_gives_inputs_and_labels():
    x, y = torch.randn(8, 3), torch.zeros(8)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    data = load(graph_of(), loader)
    same(data.batches, [x[:4], x[4:]])
    assert data.words == "2 batches"


def test_a_function_is_called_by_its_text(tmp_path, monkeypatch):
    (tmp_path / "given.py").write_text(
        "import torch\ndef batches():\n    for i in range(9):\n        yield torch.full((4, 3), float(i))\n"
    )
    expected = [torch.full((4, 3), float(i)) for i in range(2)]
    same(load(graph_of(), f"{tmp_path}/given.py:batches", samples=2).batches, expected)
    monkeypatch.syspath_prepend(tmp_path)
    data = load(graph_of(), "given:batches", samples=2)
    same(data.batches, expected)
    assert data.words == "2 batches of given:batches"
    del sys.modules["given"]


def test_a_function_is_asked_for_no_more_than_wanted():
    def endless():
        while True:
            yield torch.zeros(4, 3)

    assert len(load(graph_of(), endless).batches) == 32


def test_without_data_the_example_inputs_are_taken_and_said_to_be():
    graph = graph_of()
    data = load(graph)
    same(data.batches, [graph.arguments["input"]])
    assert data.words == "the example inputs"


def test_inputs_that_nobody_gave_are_said_to_be_random():
    data = load(MaseGraph(nn.Linear(3, 2)), samples=3)
    assert data.words == "3 batches of random inputs"
    assert not torch.equal(data.batches[0]["input"], data.batches[1]["input"])


def test_random_inputs_mean_what_the_example_means():
    ids, mask = torch.tensor([[3, 7, 7, 49], [11, 3, 2, 2]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    graph = MaseGraph(Classifier().eval(), {"input_ids": ids, "attention_mask": mask, "scale": 2.0})
    first, second, again = load(graph, samples=3).batches[0], *[load(graph, samples=2).batches[1] for _ in range(2)]
    assert torch.equal(first["input_ids"], ids)
    assert not torch.equal(second["input_ids"], ids)
    assert set(second["input_ids"].flatten().tolist()) <= set(ids.flatten().tolist())
    assert torch.equal(second["attention_mask"], mask)
    assert second["scale"] == 2.0
    assert torch.equal(second["input_ids"], again["input_ids"]), "the same every time"


def test_random_floats_have_the_examples_mean_and_deviation():
    example = torch.randn(1000, 3) * 5 + 100
    graph = MaseGraph(nn.Linear(3, 2), {"input": example})
    drawn = load(graph, samples=2).batches[1]["input"]
    assert drawn.mean().item() == pytest.approx(100, abs=1)
    assert drawn.std().item() == pytest.approx(5, rel=0.1)


def test_inputs_that_a_batch_does_not_have_are_the_examples():
    ids, mask = torch.tensor([[3, 7, 7, 49], [11, 3, 2, 2]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    graph = MaseGraph(Classifier().eval(), {"input_ids": ids, "attention_mask": mask})
    (batch,) = load(graph, [{"input_ids": ids + 1}]).batches
    assert torch.equal(batch["input_ids"], ids + 1)
    assert torch.equal(batch["attention_mask"], mask)
    _, second = load(graph, torch.cat([ids, ids + 1])).batches
    assert torch.equal(second["input_ids"], ids + 1)
    assert torch.equal(second["attention_mask"], mask)


def test_the_graph_runs_on_what_it_is_fed(tmp_path):
    graph = graph_of()
    data = load(graph, [torch.ones(4, 3)])
    (values,) = data.feeds(graph)
    assert torch.equal(graph.model(*values), graph.root(torch.ones(4, 3)))


ERRORS = [
    ("nothing.pt", "data: there is no file /"),
    (
        "nothing.csv",
        "data: nothing.csv is no file of tensors (.pt, .pth, .bin, .ckpt, .npz, .npy, .safetensors) and no function",
    ),
    ("nomodule:batches", "data: there is no module 'nomodule'; a file is written with .py"),
    ("math:batches", "data: math has no function 'batches'"),
    ("nothing.py:batches", "data: there is no file /"),
    ([], "data: list has no batch"),
    (lambda: 3, "data: <lambda> gave int, no batches"),
    ([{"x": torch.zeros(4, 3)}], "data: a batch has x, but no input, which the model takes"),
    (torch.zeros(4, 3, dtype=torch.int64), "data: input is torch.int64, but the model takes torch.float32"),
]


@pytest.mark.parametrize(("data", "message"), ERRORS)
def test_what_is_no_data_is_told(data, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load(graph_of(), data)


class Hostile:
    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_nothing_in_a_file_is_executed(tmp_path, suffix):
    path = tmp_path / f"hostile{suffix}"
    if suffix == ".pt":
        torch.save(Hostile(), path)
    else:
        numpy.save(path, numpy.array([Hostile()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        load(graph_of(), str(path))


def test_what_is_cut_off_is_told(tmp_path):
    path = tmp_path / "cut.safetensors"
    saved(path, torch.zeros(9, 3))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="is cut off"):
        load(graph_of(), str(path))
