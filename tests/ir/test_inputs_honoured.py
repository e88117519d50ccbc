"""Every input that is given reaches the graph: masks, token types, other sizes, other structures."""

import pytest
import torch
from torch import fx, nn
from transformers import BatchEncoding

from mase_server import MaseGraph, passes, trace_torch_module
from tests.ir.models import Classifier, Mlp, argument, bert_inputs, bert_tiny, node_named, result


def annotated(graph, dummy_in):
    return passes.add_common_metadata_analysis_pass(graph, {"dummy_in": dummy_in, "add_value": False})[0]


def placeholders(graph):
    nodes = graph.nodes if isinstance(graph, MaseGraph) else graph.graph.nodes
    return {node.target: len(node.users) for node in nodes if node.op == "placeholder"}


@pytest.mark.parametrize("padded", [0, 3])
@pytest.mark.parametrize("kind", [dict, BatchEncoding])
def test_mask_and_token_types_of_a_batch_become_inputs_that_are_used(kind, padded):
    model, inputs = bert_tiny(), bert_inputs(padded=padded)
    graph = annotated(MaseGraph(model), kind(inputs))
    users = placeholders(graph)
    assert set(users) == set(inputs)
    assert all(users.values())
    for other in (bert_inputs(padded=0), bert_inputs(padded=5), bert_inputs(batch=3, tokens=7, padded=2)):
        assert graph.check_against(model, other, atol=1e-5)


def test_the_mask_that_was_given_is_the_one_whose_value_is_read():
    model, inputs = bert_tiny(), bert_inputs(padded=4)
    graph = MaseGraph(model, add_metadata_args={"dummy_in": inputs})
    for name, tensor in inputs.items():
        assert torch.equal(result(node_named(graph, name))["value"], tensor)
    logits = graph.nodes[-1].meta["mase"]["common"]["args"]["data_in_0"]["value"]
    assert torch.allclose(logits, model(**inputs).logits, atol=1e-5)


def test_a_mask_of_ones_is_no_reason_to_ignore_masks():
    model = Classifier().eval()
    ids = torch.randint(0, 50, (2, 16))
    graph = MaseGraph(model, {"input_ids": ids, "attention_mask": torch.ones(2, 16, dtype=torch.int64)})
    padded = torch.ones(2, 16, dtype=torch.int64)
    padded[0, 4:] = 0
    assert graph.check_against(model, {"input_ids": ids, "attention_mask": padded})


def test_a_model_that_refuses_padding_is_recorded_as_it_is_called():
    class Strict(nn.Module):
        def forward(self, x, attention_mask):
            if not attention_mask.all():
                raise ValueError("no padding here")
            return x * 2

    graph = MaseGraph(Strict(), {"x": torch.ones(2, 5), "attention_mask": torch.ones(2, 5, dtype=torch.int64)})
    assert set(placeholders(graph)) == {"x", "attention_mask"}


def test_other_sizes_keep_the_nodes_of_a_generic_graph():
    graph = annotated(MaseGraph(Mlp()), {"x": torch.randn(4, 28, 28)})
    before = graph.nodes
    annotated(graph, {"x": torch.randn(7, 28, 28)})
    assert graph.nodes == before
    assert argument(node_named(graph, "fc2"))["shape"] == [7, 784]


def test_other_sizes_of_a_graph_that_is_fixed_record_it_again():
    class Fixed(nn.Module):
        def forward(self, x):
            for _ in range(x.shape[1]):
                x = x + 1
            return x

    graph = annotated(MaseGraph(Fixed()), {"x": torch.randn(2, 3)})
    assert len(graph.nodes) == 5
    annotated(graph, {"x": torch.randn(2, 6)})
    assert len(graph.nodes) == 8


def test_values_that_lead_elsewhere_record_the_model_again():
    class Branching(nn.Module):
        def forward(self, x, use):
            return x.relu() if bool(use.any()) else x.tanh()

    x = torch.randn(2, 3)
    graph = annotated(MaseGraph(Branching()), {"x": x, "use": torch.ones(2, dtype=torch.bool)})
    assert "relu" in [node.name for node in graph.nodes]
    annotated(graph, {"x": x, "use": torch.zeros(2, dtype=torch.bool)})
    assert "tanh" in [node.name for node in graph.nodes]


def test_another_structure_records_the_model_again():
    graph = annotated(MaseGraph(Classifier().eval()), {"input_ids": torch.randint(0, 50, (2, 16))})
    assert set(placeholders(graph)) == {"input_ids"}
    mask = torch.ones(2, 16, dtype=torch.int64)
    annotated(graph, {"input_ids": torch.randint(0, 50, (2, 16)), "attention_mask": mask})
    assert set(placeholders(graph)) == {"input_ids", "attention_mask"}


def test_what_was_written_to_a_node_stays_when_the_model_is_recorded_again():
    model, ids = Classifier().eval(), torch.randint(0, 50, (2, 16))
    graph = annotated(MaseGraph(model), {"input_ids": ids})
    node_named(graph, "inner").meta["mase"]["software"]["mine"] = 1
    annotated(graph, {"input_ids": ids, "attention_mask": torch.ones(2, 16, dtype=torch.int64)})
    metadata = node_named(graph, "inner").meta["mase"]
    assert metadata["software"]["mine"] == 1
    assert metadata.node is node_named(graph, "inner")


def test_what_cf_args_fix_stays_fixed_when_inputs_are_given():
    graph = annotated(MaseGraph(Classifier().eval(), {"scale": 3.0}), {"input_ids": torch.randint(0, 50, (2, 16))})
    assert 3.0 in [item for node in graph.nodes for item in node.args if isinstance(item, float)]


def test_an_input_that_forward_does_not_have_is_named():
    with pytest.raises(ValueError, match=r"dummy_in has 'y', but the forward of Mlp has no such parameter; it takes x"):
        annotated(MaseGraph(Mlp()), {"y": torch.zeros(1)})


def test_an_input_that_a_transformed_graph_does_not_have_is_named():
    graph = annotated(MaseGraph(Classifier().eval()), {"input_ids": torch.randint(0, 50, (2, 16))})
    node = node_named(graph, "dropout")
    node.replace_all_uses_with(node.args[0])
    graph.fx_graph.erase_node(node)
    with pytest.raises(ValueError, match="the graph has no input 'attention_mask'; it takes input_ids: trace"):
        annotated(graph, {
            "input_ids": torch.randint(0, 50, (2, 16)), "attention_mask": torch.ones(2, 16),
        })  # fmt: skip


@pytest.mark.parametrize("given", [torch.randn(2, 28, 28), (torch.randn(2, 28, 28),)])
def test_a_single_tensor_or_tuple_is_forwards_first_arguments(given):
    graph = annotated(MaseGraph(Mlp()), given)
    assert argument(node_named(graph, "flatten"))["shape"] == [2, 28, 28]


def test_variable_arguments_are_inputs_too():
    class Summed(nn.Module):
        def forward(self, *parts, **named):
            return sum(parts) + named["bias"]

    parts = {"parts": (torch.randn(2, 3), torch.randn(2, 3)), "named": {"bias": torch.randn(3)}}
    graph = MaseGraph(Summed(), parts, add_metadata_args={})
    assert set(placeholders(graph)) == {"parts_0", "parts_1", "bias"}
    expected = sum(parts["parts"]) + parts["named"]["bias"]
    assert torch.equal(graph.nodes[-1].meta["mase"]["common"]["args"]["data_in_0"]["value"], expected)


# hf_input_names


@pytest.mark.parametrize(
    "names",
    [["input_ids"], ["input_ids", "attention_mask"], ["input_ids", "attention_mask", "token_type_ids", "position_ids"]],
)
def test_the_named_inputs_of_a_hugging_face_model_become_placeholders(names):
    graph = MaseGraph(bert_tiny(), hf_input_names=names)
    users = placeholders(graph)
    assert set(users) == set(names)
    assert all(users.values())
    assert set(placeholders(trace_torch_module(bert_tiny(), hf_input_names=names))) == set(names)


def test_embeddings_can_take_the_place_of_ids():
    model = bert_tiny()
    graph = MaseGraph(model, hf_input_names=["inputs_embeds", "attention_mask"])
    assert set(placeholders(graph)) == {"inputs_embeds", "attention_mask"}
    embeds = torch.randn(2, 9, 32)
    mask = bert_inputs(tokens=9, padded=2)["attention_mask"]
    assert graph.check_against(model, {"inputs_embeds": embeds, "attention_mask": mask}, atol=1e-5)


def test_a_name_that_nobody_knows_asks_for_an_example():
    with pytest.raises(ValueError, match=r"no form is known for the input 'wobble' of Mlp; give an example"):
        _ = MaseGraph(Mlp(), hf_input_names=["wobble"]).nodes


# GraphModules


def test_a_graph_module_is_taken_as_it_is():
    module = fx.symbolic_trace(Mlp())
    before = list(module.graph.nodes)
    graph = MaseGraph(module)
    assert graph.nodes == before
    assert graph.model is module
    annotated(graph, {"x": torch.randn(2, 28, 28)})
    assert argument(node_named(graph, "fc1")) == {
        "type": "float", "precision": [32], "shape": [2, 784], "torch_dtype": torch.float32,
    }  # fmt: skip


def test_a_graph_module_has_values_too():
    model, x = Mlp(), torch.randn(2, 28, 28)
    graph = MaseGraph(fx.symbolic_trace(model), add_metadata_args={"dummy_in": {"x": x}})
    assert torch.equal(result(node_named(graph, "fc3"))["value"], model(x))


def test_a_graph_module_has_no_recording():
    with pytest.raises(ValueError, match="made from a GraphModule: there is no recording of it"):
        _ = MaseGraph(fx.symbolic_trace(Mlp())).run
