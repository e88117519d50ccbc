"""Copies of graphs have metadata of their own; placeholders get what is meant for them."""

import copy

import pytest
import torch
from torch import fx, nn

from mase_server import MaseGraph, passes
from mase_server.ir.feeding import feed_placeholders, flatten_arguments, name_arguments
from mase_server.ir.number_formats import FORMATS, format_of, number_format
from mase_server.ir.recording import with_padding
from mase_server.ir.session import Snapshot
from tests.ir.models import Mlp, argument, node_named, result

X = {"x": torch.randn(2, 28, 28)}


def annotated():
    graph = MaseGraph(Mlp(), X, add_metadata_args={})
    return passes.add_software_metadata_analysis_pass(graph)[0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: fx.GraphModule(module, copy.deepcopy(module.graph))])
def test_a_copied_graph_has_metadata_of_its_own(copied):
    graph = annotated()
    other = MaseGraph(copied(graph.model))
    node, twin = node_named(graph, "fc1"), node_named(other, "fc1")
    assert twin.meta["mase"].node is twin
    assert twin.meta["mase"]["common"] == node.meta["mase"]["common"]
    argument(twin)["type"] = "fixed"
    argument(twin)["precision"].append(4)
    twin.meta["mase"]["software"]["args"]["weight"]["stat"]["abs_mean"] = 1.0
    assert (argument(node)["type"], argument(node)["precision"]) == ("float", [32])
    assert node.meta["mase"]["software"]["args"]["weight"]["stat"] == {}


def test_a_copy_still_reads_the_values_of_its_original():
    graph = annotated()
    other = MaseGraph(copy.deepcopy(graph.model))
    value = result(node_named(other, "fc1"))["value"]
    assert torch.equal(value, result(node_named(graph, "fc1"))["value"])


def test_annotating_a_copy_leaves_the_original_alone():
    graph = annotated()
    other = MaseGraph(copy.deepcopy(graph.model))
    passes.add_common_metadata_analysis_pass(other, {"dummy_in": {"x": torch.randn(5, 28, 28)}})
    assert argument(node_named(other, "fc1"))["shape"] == [5, 784]
    assert argument(node_named(graph, "fc1"))["shape"] == [2, 784]


# What placeholders get


class Many(nn.Module):
    def forward(self, a, b=None, *rest, scale=2.0, **named):
        return a


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "rest": (3, 4)}, {"a": 1, "rest_0": 3, "rest_1": 4}),
        ({"a": 1, "named": {"x": 5}, "scale": 1.0}, {"a": 1, "x": 5, "scale": 1.0}),
    ],
)
def test_arguments_are_flattened_to_the_names_of_placeholders(given, expected):
    assert flatten_arguments(given, Many()) == expected


def test_any_name_is_an_input_where_forward_takes_any():
    assert name_arguments({"a": 1, "anything": 2}, Many()) == {"a": 1, "anything": 2}


def graph_of(*placeholders):
    graph = fx.Graph()
    for name, *default in placeholders:
        graph.placeholder(name, *([] if not default else [None, default[0]]))
    return graph


def test_placeholders_are_fed_in_their_order_with_defaults_where_nothing_is_given():
    graph = graph_of(("x",), ("y", 7), ("z", 8))
    assert feed_placeholders(graph, {"z": 3, "x": 1}) == [1, 7, 3]


def test_a_placeholder_without_a_value_is_named():
    with pytest.raises(ValueError, match="no value for the graph's input 'y'; given were x"):
        feed_placeholders(graph_of(("x",), ("y",)), {"x": 1})


def test_settings_that_the_graph_has_no_input_for_are_left_out():
    assert feed_placeholders(graph_of(("x",)), {"x": 1, "use_cache": False}) == [1]


# Padding


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_a_mask_of_ones_is_padded_for_recording_and_kept_as_given(dtype, rows):
    mask = torch.ones(rows, 10, dtype=dtype)
    padded = with_padding({"attention_mask": mask})["attention_mask"]
    assert bool(mask.all())
    assert not bool(padded.all())
    assert bool(padded[:, 0].all())
    assert 0.2 <= 1 - float(padded.float().mean()) <= 0.5


@pytest.mark.parametrize(
    "given",
    [
        {"attention_mask": torch.tensor([[1, 0]])},
        {"attention_mask": torch.ones(2, 3)},
        {"attention_mask": torch.ones(2, 3, 3, dtype=torch.int64)},
        {"attention_mask": torch.ones(2, 1, dtype=torch.int64)},
        {"attention_mask": torch.ones(2, 3, dtype=torch.int64, device="meta")},
        {"attention_mask": None, "mask": torch.ones(2, 3, dtype=torch.int64)},
    ],
    ids=["has padding", "float", "three dimensions", "one token", "meta", "another name"],
)
def test_other_masks_are_recorded_as_they_are(given):
    assert with_padding(given) is given


# Formats and snapshots


@pytest.mark.parametrize("name", FORMATS)
def test_the_bits_of_a_format_are_those_of_its_elements(name):
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("this torch does not have it")
    kind, precision = format_of(name)
    assert precision == [1 if dtype is torch.bool else 8 * dtype.itemsize]
    assert kind == ("bool" if dtype is torch.bool else "complex" if dtype.is_complex else
                    "float" if dtype.is_floating_point else "int")  # fmt: skip


def test_what_has_no_format_is_not_available():
    assert format_of("quint8") == ("NA", [])
    assert number_format("text") == ("NA", [])
    assert number_format(True) == ("bool", [1])
    assert number_format(3) == ("int", [64])


CHANGES = {
    "argument": lambda graph, node: setattr(node, "args", (node.args[0], *node.args[1:], 1)),
    "keyword": lambda graph, node: setattr(node, "kwargs", {"inplace": True}),
    "target": lambda graph, node: setattr(node, "target", torch.neg),
    "replaced input": lambda graph, node: node.replace_input_with(node.args[0], next(iter(graph.nodes))),
    "new node": lambda graph, node: graph.call_function(torch.neg, (node,)),
    "erased node": lambda graph, node: graph.erase_node(list(graph.nodes)[-1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_graph_is_noticed(change):
    graph = MaseGraph(Mlp(), X).fx_graph
    before = Snapshot.of(graph)
    assert before.holds(graph)
    CHANGES[change](graph, next(node for node in graph.nodes if node.name == "relu"))
    assert not before.holds(graph)
