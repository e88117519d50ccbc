"""Each broken rule is found at its node and told in words."""

import pytest
import torch

from mase_server import MaseGraph, passes
from tests.ir.models import Mlp, argument, node_named, result


@pytest.fixture
def graph():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={})
    graph, _ = passes.add_software_metadata_analysis_pass(graph)
    return passes.add_hardware_metadata_analysis_pass(graph)[0]


def common(node):
    return node.meta["mase"]["common"]


def hardware(node):
    return node.meta["mase"]["hardware"]


BROKEN = {
    "operator": (
        "common", lambda node: common(node).pop("mase_op"),
        "node 'fc1': it has no mase_op: run add_common_metadata_analysis_pass first",
    ),
    "type": (
        "common", lambda node: common(node).update(mase_type="layer"),
        "node 'fc1': its mase_type is 'layer'; known are module, module_related_func",
    ),
    "format": (
        "common", lambda node: argument(node).update(type="flaot"),
        "node 'fc1': the type of args data_in_0 is 'flaot'; known are fixed, float, NA, int, bool, complex",
    ),
    "precision": (
        "common", lambda node: result(node).update(precision=[8.5]),
        "node 'fc1': the precision of results data_out_0 is [8.5]; it must be a list of whole numbers of bits",
    ),
    "shape": (
        "common", lambda node: argument(node, "weight").update(shape=[784, -1]),
        "node 'fc1': the shape of args weight is [784, -1]; it must be a list of whole numbers",
    ),
    "dtype": (
        "common", lambda node: argument(node).update(torch_dtype="float32"),
        "node 'fc1': the torch_dtype of args data_in_0 is 'float32'; it must be a torch.dtype",
    ),
    "edge": (
        "common", lambda node: argument(node).update(shape=[1, 783]),
        "node 'fc1': args data_in_0 has shape [1, 783], but its source 'flatten' gives [1, 784]",
    ),
    "statistics": (
        "software", lambda node: node.meta["mase"]["software"]["args"].update(wieght={"stat": {}}),
        "node 'fc1': software has args wieght, which the node does not have",
    ),
    "stat": (
        "software", lambda node: node.meta["mase"]["software"]["args"].update(weight={}),
        "node 'fc1': software args weight has no stat",
    ),
    "hardware": (
        "hardware", lambda node: hardware(node).clear(),
        "node 'fc1': hardware has no is_implicit: run add_hardware_metadata_analysis_pass first",
    ),
    "toolchain": (
        "hardware", lambda node: hardware(node).update(toolchain="VHDL"),
        "node 'fc1': the toolchain is 'VHDL'; known are INTERNAL, EXTERNAL, HLS",
    ),
    "module": (
        "hardware", lambda node: hardware(node).update(module=None),
        "node 'fc1': it is not implicit, but names no hardware module",
    ),
    "storage": (
        "hardware", lambda node: hardware(node)["interface"]["weight"].update(storage="DRAM"),
        "node 'fc1': the storage of weight is 'DRAM'; known are BRAM",
    ),
    "port": (
        "hardware", lambda node: hardware(node)["interface"].update(scale={"storage": "BRAM"}),
        "node 'fc1': the interface has scale, which is no argument of the node",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_told_at_its_node(graph, name):
    part, break_it, text = BROKEN[name]
    break_it(node_named(graph, "fc1"))
    with pytest.raises(passes.MetadataError) as raised:
        getattr(passes, f"verify_{part}_metadata_analysis_pass")(graph)
    assert text in str(raised.value)
    assert any(problem.startswith(text) for problem in raised.value.problems)


@pytest.mark.parametrize("part", ["common", "software", "hardware"])
def test_what_the_passes_wrote_breaks_no_rule(graph, part):
    assert getattr(passes, f"verify_{part}_metadata_analysis_pass")(graph) == (graph, {})


def test_many_problems_are_told_in_part_and_counted():
    error = passes.MetadataError([f"problem {number}" for number in range(25)])
    assert str(error).splitlines()[9:] == ["problem 9", "and 15 more"]
    assert len(error.problems) == 25
