"""MaseGraph and MaseMetadata have the documented names, signatures and defaults."""

import inspect

import pytest
import torch
from torch import fx, nn

import mase_server
from mase_server import MaseGraph, MaseMetadata, MaseTracer, passes, trace_torch_module
from tests.ir.models import Mlp, bert_tiny, node_named

X = {"x": torch.randn(1, 28, 28)}

SIGNATURES = {
    MaseGraph: [
        ("model", None), ("cf_args", None), ("custom_ops", None), ("hf_input_names", None),
        ("skip_init_metadata", False), ("add_metadata_args", None),
    ],
    MaseGraph.from_module: [("model", None), ("cf_args", None), ("custom_ops", {})],
    MaseGraph.from_checkpoint: [("checkpoint", None), ("propagate_missing_metadata", True)],
    MaseGraph.export: [("self", None), ("fname", "masegraph")],
    MaseGraph.draw: [("self", None), ("file", "mase_graph.svg")],
    MaseMetadata: [("node", None), ("model", None)],
    trace_torch_module: [("model", None), ("cf_args", None), ("custom_ops", None), ("hf_input_names", None)],
    passes.add_common_metadata_analysis_pass: [
        ("graph", None), ("pass_args", {"add_value": True, "dummy_in": None, "force_device_meta": False}),
    ],
    passes.add_software_metadata_analysis_pass: [("graph", None), ("pass_args", None)],
}  # fmt: skip


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signatures_are_the_documented_ones(function):
    expected = SIGNATURES[function]
    found = list(inspect.signature(function).parameters.values())
    # More may follow, if nobody has to give it.
    assert all(each.default is not inspect.Parameter.empty for each in found[len(expected) :])
    found = found[: len(expected)]
    assert [each.name for each in found] == [name for name, _ in expected]
    defaults = [None if each.default is inspect.Parameter.empty else each.default for each in found]
    assert defaults == [default for _, default in expected]


def test_the_names_of_the_package_are_importable():
    assert all(getattr(mase_server, name) is not None for name in mase_server.__all__)
    assert mase_server.passes is passes


def test_every_pass_takes_a_graph_and_arguments():
    named = [name for name in passes.__all__ if name.endswith("_pass")]
    taken = {name: list(inspect.signature(getattr(passes, name)).parameters) for name in named}
    # MASE's passes on modules call what they take a network.
    assert taken == {name: ["network" if "_module_" in name else "graph", "pass_args"] for name in named}


def test_implicit_nodes_are_the_documented_ones():
    text = """size view to bool int flatten squeeze unsqueeze transpose permute reshape contiguous dropout eq ne gemm ge
    where _assert getattr long type_as clamp abs stack cast shape gather slice cat split tile expand full ones dim finfo
    masked_fill masked_fill_ index_select detach tensor"""
    assert MaseGraph.implicit_nodes == text.split()


def test_mases_known_types_come_first():
    assert MaseMetadata.known_types[:3] == ["fixed", "float", "NA"]
    assert MaseMetadata.known_toolchain == ["INTERNAL", "EXTERNAL", "HLS"]
    assert MaseMetadata.known_storage == ["BRAM"]


@pytest.mark.parametrize("wrong", [3, "model", [1, 2], nn.Linear])
def test_what_is_no_module_is_refused(wrong):
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module, got"):
        MaseGraph(wrong)


def test_a_module_is_wrapped_in_three_equal_ways():
    model = Mlp()
    texts = [str(one.graph) for one in (MaseGraph(model, X).model, MaseGraph.from_module(model, X).model)]
    assert texts == [str(trace_torch_module(model, X).graph)] * 2


def test_without_inputs_they_are_looked_for_when_the_graph_is_read():
    model = nn.Sequential(nn.Linear(7, 3), nn.ReLU())
    graph = MaseGraph(model)
    assert not graph.is_recorded
    assert [node.op for node in graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert graph.check_against(model)


def test_an_error_of_the_models_forward_comes_at_once_with_inputs():
    class Broken(nn.Module):
        def forward(self, x):
            return x @ torch.zeros(5, 5)

    with pytest.raises(RuntimeError, match=r"\[2, 3\] X \[5, 5\]"):
        MaseGraph(Broken(), {"x": torch.zeros(2, 3)})


def test_every_node_has_metadata_from_the_start():
    graph = MaseGraph(Mlp(), X)
    for node in graph.nodes:
        metadata = node.meta["mase"]
        assert metadata.parameters == {"common": {}, "hardware": {}, "software": {}}
        assert (metadata.node, metadata.graph) == (node, graph.fx_graph)


def test_metadata_can_be_left_to_the_pass():
    graph = MaseGraph(Mlp(), X, skip_init_metadata=True)
    assert not any("mase" in node.meta for node in graph.nodes)
    graph, found = passes.init_metadata_analysis_pass(graph)
    assert all(isinstance(node.meta["mase"], MaseMetadata) for node in graph.nodes)
    assert found == {}


def test_initialising_again_loses_nothing():
    graph = MaseGraph(Mlp(), X)
    graph.nodes[1].meta["mase"]["software"]["kept"] = True
    passes.init_metadata_analysis_pass(graph)
    assert graph.nodes[1].meta["mase"]["software"] == {"kept": True}


def test_metadata_arguments_annotate_at_once():
    graph = MaseGraph(Mlp(), add_metadata_args={"dummy_in": X, "add_value": False})
    assert node_named(graph, "fc1").meta["mase"]["common"]["mase_op"] == "linear"


def test_metadata_knows_the_module_of_its_node():
    model = Mlp()
    graph = MaseGraph(model, X)
    assert node_named(graph, "fc1").meta["mase"].module is model.fc1
    assert node_named(graph, "relu").meta["mase"].module is None


def test_metadata_alone_is_empty():
    metadata = MaseMetadata()
    assert (metadata.module, metadata.graph) == (None, None)
    metadata["common"] = {"mase_op": "linear"}
    assert metadata.parameters["common"] == {"mase_op": "linear"}
    assert list(metadata) == ["common", "hardware", "software"]
    assert "software" in metadata


def test_nodes_and_modules_are_those_of_the_graph():
    model = Mlp()
    graph = MaseGraph(model, X)
    assert graph.nodes == list(graph.fx_graph.nodes) == list(graph.model.graph.nodes)
    assert graph.modules["fc2"] is model.fc2


def test_a_graph_that_is_set_is_what_runs():
    model = Mlp()
    graph = MaseGraph(model, X)
    other = fx.Graph()
    x = other.placeholder("x")
    other.output(other.call_function(torch.neg, (x,)))
    graph.fx_graph = other
    assert torch.equal(graph.model(X["x"]), -X["x"])
    assert graph.fx_graph is other
    assert graph.modified
    assert all("mase" in node.meta for node in graph.nodes)


def test_a_node_that_was_erased_does_not_run():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    graph = MaseGraph(model, {"input": torch.randn(2, 4)})
    x = torch.randn(2, 4)
    assert torch.equal(graph.model(x), model(x))
    relu = graph.nodes[2]
    relu.replace_all_uses_with(relu.args[0])
    graph.fx_graph.erase_node(relu)
    assert torch.equal(graph.model(x), model[0](x))


def test_a_graph_holds_for_another_instance_of_its_model():
    graph = MaseGraph(bert_tiny())
    other = bert_tiny()
    module = graph.bound_to(other)
    assert dict(module.named_parameters()).keys() <= dict(other.named_parameters()).keys()
    assert all(value is dict(other.named_parameters())[name] for name, value in module.named_parameters())


def test_the_tracer_gives_the_same_graph():
    model = Mlp()
    tracer = MaseTracer(custom_leaf_modules=(), custom_leaf_layers=(), custom_leaf_functions=())
    assert str(tracer.trace(model, X)) == str(MaseGraph(model, X).fx_graph)
