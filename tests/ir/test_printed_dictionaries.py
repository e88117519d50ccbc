"""The dictionaries that MASE's documentation prints for linear, relu and flatten, to the letter."""

import pytest
import torch

from mase_server import MaseGraph, passes
from tests.ir.models import Mlp, node_named

FLOAT = {"type": "float", "precision": [32]}


def tensor(*shape):
    return {**FLOAT, "shape": list(shape), "torch_dtype": torch.float32}


PRINTED = {
    "fc1": {
        "common": {
            "mase_type": "module_related_func",
            "mase_op": "linear",
            "args": {
                "data_in_0": tensor(1, 784),
                "weight": {**FLOAT, "shape": [784, 784]},
                "bias": {**FLOAT, "shape": [784]},
            },
            "results": {"data_out_0": tensor(1, 784)},
        },
        "software": {},
    },
    "relu": {
        "common": {
            "mase_type": "module_related_func",
            "mase_op": "relu",
            "results": {"data_out_0": tensor(1, 784)},
            "args": {"data_in_0": tensor(1, 784), "inplace": False},
        },
        "software": {},
    },
    "flatten": {
        "common": {
            "mase_type": "implicit_func",
            "mase_op": "flatten",
            "results": {"data_out_0": tensor(1, 784)},
            "args": {"data_in_0": tensor(1, 28, 28), "start_dim": 1, "end_dim": -1},
        },
        "software": {},
    },
}


@pytest.mark.parametrize("add_value", [True, False])
@pytest.mark.parametrize("name", PRINTED)
def test_a_node_has_the_printed_metadata(name, add_value):
    graph, found = passes.add_common_metadata_analysis_pass(
        MaseGraph(Mlp()), {"dummy_in": {"x": torch.randn(1, 28, 28)}, "add_value": add_value}
    )
    metadata = node_named(graph, name).meta["mase"]
    assert found == {}
    assert {part: metadata[part] for part in PRINTED[name]} == PRINTED[name]


def test_the_printed_graph_is_the_recorded_one():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)})
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("placeholder", "x"),
        ("call_function", "flatten"),
        ("call_module", "fc1"),
        ("call_function", "relu"),
        ("call_module", "fc2"),
        ("call_function", "relu_1"),
        ("call_module", "fc3"),
        ("output", "output"),
    ]


def test_the_metadata_of_a_graph_names_its_ends():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={"add_value": False})
    common = graph.meta["mase"]["common"]
    assert [node.name for node in common["nodes_in"]] == ["flatten"]
    assert [node.name for node in common["nodes_out"]] == ["fc3"]
    assert common["args"] == {"x": tensor(1, 28, 28)}
    assert common["results"] == {"data_out_0": tensor(1, 10)}
