"""After a transform every node has the metadata that all nodes had before; a copy's metadata is its own."""

import copy

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.ir.metadata import MaseMetadata

INTEGER = {
    "name": "integer", "data_in_width": 8, "data_in_frac_width": 4, "weight_width": 6, "weight_frac_width": 5,
    "bias_width": 8, "bias_frac_width": 3, "data_out_width": 8, "data_out_frac_width": 2,
}  # fmt: skip


def model():
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2)).eval()


def annotated():
    graph = MaseGraph(model(), torch.randn(3, 6), add_metadata_args={})
    graph, _ = passes.add_software_metadata_analysis_pass(graph)
    return passes.add_hardware_metadata_analysis_pass(graph)[0]


TRANSFORMS = {
    "quantize": (passes.quantize_transform_pass, {"default": "fixed(8,4)"}),
    "lora": (passes.insert_lora_adapter_transform_pass, {"rank": 2}),
    "prune": (passes.prune_transform_pass, {"weight": {"sparsity": 0.5, "method": "l1-norm"}}),
    "gptq": (passes.gptq_transform_pass, {"default": "fixed(4,2)"}),
    "norms": (passes.conv_bn_fusion_transform_pass, {}),
    "training": (passes.training_base_pass, {"default": {"forward": "fixed(8,4)", "backward": "fixed(16,10)"}}),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_node_lacks_metadata_after_a_transform(name):
    function, pass_args = TRANSFORMS[name]
    graph, _ = function(annotated(), pass_args)
    passes.verify_common_metadata_analysis_pass(graph)
    passes.verify_software_metadata_analysis_pass(graph)
    for node in graph.nodes:
        assert node.meta["mase"]["common"]["mase_op"]
        assert {"is_implicit", "module", "interface"} <= node.meta["mase"]["hardware"].keys()


def test_the_types_after_quantising_are_those_of_the_configuration():
    graph, _ = passes.quantize_transform_pass(annotated(), {"by": "type", "linear": {"config": INTEGER}})
    linear = next(node for node in graph.nodes if node.meta["mase"]["common"]["mase_op"] == "linear")
    args, results = (linear.meta["mase"]["common"][part] for part in ("args", "results"))
    told = {name: (entry["type"], entry["precision"]) for name, entry in {**args, **results}.items() if "type" in entry}
    assert told == {
        "data_in_0": ("integer", [8, 4]), "weight": ("integer", [6, 5]), "bias": ("integer", [8, 3]),
        "data_out_0": ("integer", [8, 2]),
    }  # fmt: skip


def test_a_graph_that_was_never_annotated_gets_empty_metadata_for_new_nodes():
    graph, _ = passes.quantize_transform_pass(MaseGraph(model(), torch.randn(3, 6)), {"default": "fixed(8,4)"})
    assert all(dict(node.meta["mase"]) == {"common": {}, "hardware": {}, "software": {}} for node in graph.nodes)
    untouched = MaseGraph(model(), torch.randn(3, 6), skip_init_metadata=True)
    graph, _ = passes.quantize_transform_pass(untouched, {"default": "fixed(8,4)"})
    assert not any("mase" in node.meta for node in graph.nodes)


def test_a_copy_has_metadata_of_its_own_graph():
    graph = annotated()
    other = copy.deepcopy(graph)
    mine, theirs = set(graph.nodes), set(other.nodes)
    assert not mine & theirs
    for node in other.nodes:
        metadata = node.meta["mase"]
        assert (metadata.node, metadata.model, metadata.graph) == (node, other.module, other.fx_graph)
        sources = [entry["from"] for entry in metadata["common"]["args"].values() if "from" in (entry or {})]
        assert set(sources) <= theirs
    summary = other.meta["mase"]["common"]
    assert {*summary["nodes_in"], *summary["nodes_out"]} <= theirs
    other.nodes[1].meta["mase"]["common"]["mase_op"] = "changed"
    assert graph.nodes[1].meta["mase"]["common"]["mase_op"] == "linear"


def test_a_copy_computes_with_weights_of_its_own():
    graph = annotated()
    other, given = copy.deepcopy(graph), torch.randn(2, 6)
    before = graph.model(given)
    with torch.no_grad():
        for parameter in other.module.parameters():
            parameter.zero_()
    assert torch.equal(graph.model(given), before)
    value = other.nodes[1].meta["mase"]["common"]["results"]["data_out_0"]["value"]
    assert value.eq(0).all()
    assert other.root.get_parameter("0.weight") is other.module.get_parameter("0.weight")
    other, _ = passes.quantize_transform_pass(other, {"default": "fixed(8,4)"})
    assert len(other.nodes) > len(graph.nodes)
    assert not graph.modified


REPORTS = {
    "report_node_type_analysis_pass": "add_common_metadata_analysis_pass",
    "report_node_shape_analysis_pass": "add_common_metadata_analysis_pass",
    "report_node_meta_param_analysis_pass": "add_common_metadata_analysis_pass",
    "report_node_hardware_type_analysis_pass": "add_common_metadata_analysis_pass",
    "add_software_metadata_analysis_pass": "add_common_metadata_analysis_pass",
    "calculate_avg_bits_mg_analysis_pass": "add_common_metadata_analysis_pass",
    "profile_statistics_analysis_pass": "add_common_metadata_analysis_pass",
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_needs_metadata_names_the_pass_that_adds_it(name):
    with pytest.raises(ValueError, match=f"run {REPORTS[name]} first"):
        getattr(passes, name)(MaseGraph(model(), torch.randn(3, 6)))


def test_a_report_on_hardware_names_the_pass_that_adds_it():
    graph = MaseGraph(model(), torch.randn(3, 6), add_metadata_args={})
    with pytest.raises(ValueError, match="run add_hardware_metadata_analysis_pass first"):
        passes.report_node_hardware_type_analysis_pass(graph)


@pytest.mark.parametrize("name", [name for name in passes.__all__ if name.endswith("_pass") and "module" not in name])
def test_a_pass_on_a_module_says_how_to_make_a_graph(name):
    with pytest.raises(TypeError, match=rf"{name} takes a MaseGraph, not a Sequential; make one .*MaseGraph\(model"):
        getattr(passes, name)(model())


def test_example_inputs_may_be_one_tensor_or_a_tuple():
    given = torch.randn(3, 6)
    for cf_args in (given, (given,), [given], {"input": given}):
        graph = MaseGraph(model(), cf_args)
        assert torch.equal(graph.arguments["input"], given)
    with pytest.raises(ValueError, match="cf_args do not fit the forward of Sequential: too many"):
        MaseGraph(model(), (given, given))


def test_metadata_is_a_dictionary():
    metadata = MaseGraph(model(), torch.randn(3, 6)).nodes[0].meta["mase"]
    assert isinstance(metadata, MaseMetadata)
    assert dict(metadata) == {"common": {}, "hardware": {}, "software": {}}
    assert (len(metadata), list(metadata), "common" in metadata, "other" in metadata) == (
        3, ["common", "hardware", "software"], True, False,
    )  # fmt: skip
    assert (metadata.get("other"), metadata.get("other", 4)) == (None, 4)
    metadata["other"] = 5
    assert list(metadata.keys())[-1] == "other"
    assert list(metadata.items())[-1] == ("other", 5)
    assert list(metadata.values()) == [{}, {}, {}, 5]
