"""Types are those of the tensors; values cost nothing until they are read, and are eager's."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mase_server import MaseGraph
from mase_server.ir import propagate
from mase_server.ir.recording import TensorEntry
from tests.ir.models import Classifier, Convolutional, Mlp, argument, node_named, result

FORMATS = {
    torch.float64: ("float", [64]), torch.float32: ("float", [32]), torch.float16: ("float", [16]),
    torch.bfloat16: ("float", [16]), torch.float8_e4m3fn: ("float", [8]), torch.int64: ("int", [64]),
    torch.int32: ("int", [32]), torch.int16: ("int", [16]), torch.int8: ("int", [8]), torch.uint8: ("int", [8]),
    torch.bool: ("bool", [1]), torch.complex64: ("complex", [64]), torch.complex128: ("complex", [128]),
}  # fmt: skip


class Viewed(nn.Module):
    def forward(self, x):
        return x.view(-1), x.shape[0]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_arguments_and_results_have_their_own_type(dtype):
    graph = MaseGraph(Viewed(), {"x": torch.zeros(2, 3).to(dtype)}, add_metadata_args={})
    node = node_named(graph, "view")
    for entry in (argument(node), result(node)):
        assert (entry["type"], entry["precision"]) == FORMATS[dtype]
        assert entry["torch_dtype"] is dtype


def test_a_halved_model_has_halved_weights():
    graph = MaseGraph(Mlp().half(), {"x": torch.zeros(1, 28, 28, dtype=torch.float16)}, add_metadata_args={})
    weight = argument(node_named(graph, "fc1"), "weight")
    assert weight == {"type": "float", "precision": [16], "shape": [784, 784]}
    assert weight["torch_dtype"] is torch.float16


def test_numbers_among_arguments_are_themselves():
    class Pooled(nn.Module):
        def forward(self, x):
            return F.avg_pool2d(x, (2, 2), stride=2, ceil_mode=True)

    graph = MaseGraph(Pooled(), {"x": torch.zeros(1, 1, 8, 8)}, add_metadata_args={})
    args = graph.nodes[1].meta["mase"]["common"]["args"]
    assert (args["kernel_size"], args["stride"], args["ceil_mode"]) == ((2, 2), 2, True)


def test_sizes_in_a_generic_graph_are_numbers():
    class Reshaped(nn.Module):
        def forward(self, x):
            return x.view(x.shape[0] * x.shape[1], 3)

    graph = MaseGraph(Reshaped(), {"x": torch.zeros(4, 16, 3)}, add_metadata_args={})
    assert graph.generic
    assert argument(node_named(graph, "view"), "shape_0") == 64
    size = result(node_named(graph, "size"))
    assert size == {"type": "int", "precision": [64], "shape": [], "value": size["value"]}


def test_every_part_of_a_result_has_an_entry():
    class Split(nn.Module):
        def forward(self, x):
            values, indices = x.max(dim=1)
            return values, indices

    graph = MaseGraph(Split(), {"x": torch.randn(4, 6)}, add_metadata_args={})
    results = graph.nodes[1].meta["mase"]["common"]["results"]
    assert [(name, entry["type"], entry["shape"]) for name, entry in results.items()] == [
        ("data_out_0", "float", [4]),
        ("data_out_1", "int", [4]),
    ]


def test_no_forward_runs_until_a_value_is_read(monkeypatch):
    runs = []
    plain = propagate.visit_for_real
    monkeypatch.setattr(propagate, "visit_for_real", lambda *args: (runs.append(1), plain(*args)))
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={"add_value": True})
    entry = result(node_named(graph, "relu"))
    assert "value" in entry
    assert not runs
    assert entry["value"].shape == (1, 784)
    assert result(node_named(graph, "fc3"))["value"].shape == (1, 10)
    assert len(runs) == 1


def test_values_are_eagers():
    torch.manual_seed(0)
    model, x = Mlp(), torch.randn(3, 28, 28)
    graph = MaseGraph(model, {"x": x}, add_metadata_args={})
    hidden = model.fc1(x.flatten(1))
    assert torch.equal(result(node_named(graph, "fc1"))["value"], hidden)
    assert torch.equal(argument(node_named(graph, "relu"))["value"], hidden)
    assert torch.equal(result(node_named(graph, "relu"))["value"], hidden.relu())
    assert torch.equal(result(node_named(graph, "x"))["value"], x)
    assert argument(node_named(graph, "fc1"), "weight")["value"] is model.fc1.weight
    assert argument(node_named(graph, "relu"))["from"].name == "fc1"


def test_a_value_is_what_the_node_gave_not_what_was_written_over_it():
    class Overwritten(nn.Module):
        def forward(self, x):
            doubled = x * 2
            doubled[0] = 7.0
            return doubled.add_(1)

    x = torch.randn(2, 3)
    graph = MaseGraph(Overwritten(), {"x": x}, add_metadata_args={})
    assert torch.equal(result(node_named(graph, "mul"))["value"], x * 2)
    assert torch.equal(result(node_named(graph, "x"))["value"], x)


def test_values_that_are_too_large_to_keep_are_computed_again(monkeypatch):
    monkeypatch.setattr(propagate, "KEPT_BYTES", 100)
    model, x = Mlp(), torch.randn(1, 28, 28)
    graph = MaseGraph(model, {"x": x}, add_metadata_args={})
    for name in ("fc1", "fc3", "fc1"):
        expected = {"fc1": model.fc1(x.flatten(1)), "fc3": model(x)}[name]
        assert torch.equal(result(node_named(graph, name))["value"], expected)


def test_values_inside_a_model_output_are_found():
    model = Classifier().eval()
    ids = torch.randint(0, 50, (2, 16))
    graph = MaseGraph(model, {"input_ids": ids}, add_metadata_args={})
    output = model(ids)
    found = [entry["value"] for entry in graph.nodes[-1].meta["mase"]["common"]["args"].values()]
    assert all(map(torch.equal, found, output.values()))


def test_without_values_there_is_none_to_read():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={"add_value": False})
    entry = argument(node_named(graph, "fc1"))
    assert "value" not in entry
    assert entry.get("value", 5) == 5
    with pytest.raises(KeyError, match="value"):
        entry["value"]


def test_forced_to_meta_values_are_meta_tensors_and_the_model_stays_real():
    model = Convolutional()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    graph = MaseGraph(model, {"x": torch.randn(2, 3, 8, 8)}, add_metadata_args={"force_device_meta": True})
    for name in ("conv", "head"):
        node = node_named(graph, name)
        value = result(node)["value"]
        assert (value.device.type, list(value.shape)) == ("meta", result(node)["shape"])
        assert argument(node, "weight")["value"].is_meta
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_reading_values_in_training_mode_changes_no_statistics_and_no_random_numbers():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    before = copy.deepcopy(model.state_dict())
    graph = MaseGraph(model, {"input": torch.randn(8, 4)}, add_metadata_args={})
    state = torch.get_rng_state()
    assert result(graph.nodes[2])["value"].shape == (8, 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_node_that_was_erased_has_no_value_to_read():
    graph = MaseGraph(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), {"input": torch.ones(1, 2)}, add_metadata_args={})
    erased = graph.nodes[2]
    entry = result(erased)
    erased.replace_all_uses_with(graph.nodes[1])
    graph.fx_graph.erase_node(erased)
    with pytest.raises(LookupError, match="'_1' is no longer in the graph: annotate the graph again"):
        entry["value"]


# Entries


def test_an_entry_compares_and_iterates_by_its_plain_keys():
    entry = TensorEntry({"shape": [2]}, {"value": lambda: 1})
    assert entry == {"shape": [2]}
    assert list(entry) == ["shape"]
    assert entry.get("value") == 1
    assert entry.get("absent") is None


def test_a_value_that_is_set_takes_the_place_of_the_lazy_one():
    entry = TensorEntry({}, {"value": lambda: 1})
    entry["value"] = 2
    assert entry["value"] == 2


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copied_entry_still_reads_values(copied):
    entry = TensorEntry({"shape": [2]}, {"value": lambda: 1})
    other = copied(entry)
    other["shape"] = [3]
    assert (other["value"], entry["shape"]) == (1, [2])


def test_a_deep_copy_shares_no_list():
    entry = TensorEntry({"shape": [2]})
    copy.deepcopy(entry)["shape"].append(9)
    assert entry["shape"] == [2]


def test_a_pickled_entry_is_a_plain_dictionary():
    entry = TensorEntry({"shape": [2]}, {"value": lambda: 1})
    assert pickle.loads(pickle.dumps(entry)) == {"shape": [2]}
