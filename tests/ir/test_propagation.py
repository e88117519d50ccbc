"""Types can be found again after any transform, and a transformed graph compared with its model."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from mase_server import MaseGraph, passes
from tests.ir.models import Classifier, Convolutional, Mlp, argument, node_named, result

X = torch.randn(2, 28, 28)


def annotated(graph, **options):
    return passes.add_common_metadata_analysis_pass(graph, options)[0]


def eager_types(module, *inputs):
    """The type of every node's result, from an independent real run."""
    found = {}

    class Seen(fx.Interpreter):
        def run_node(self, n):
            out = super().run_node(n)
            found[n.name] = (list(out.shape), out.dtype) if isinstance(out, torch.Tensor) else None
            return out

    Seen(copy.deepcopy(module)).run(*inputs)
    return found


def assert_types_are_eagers(graph, *inputs):
    expected = eager_types(graph.model, *inputs)
    for node in graph.nodes:
        if expected[node.name] is not None:
            entry = result(node)
            assert (entry["shape"], entry["torch_dtype"]) == expected[node.name], node.name


def insert_after(graph, name, function, *args):
    node = node_named(graph, name)
    with graph.fx_graph.inserting_after(node):
        new = graph.fx_graph.call_function(function, (node, *args))
    node.replace_all_uses_with(new)
    new.update_arg(0, node)
    return new


def test_an_inserted_node_is_annotated():
    graph = annotated(MaseGraph(Mlp(), {"x": X}))
    new = insert_after(graph, "fc1", torch.repeat_interleave, 2, 0)
    graph = annotated(graph)
    assert new.meta["mase"]["common"]["mase_op"] == "repeat_interleave"
    assert result(new)["shape"] == [4, 784]
    assert argument(node_named(graph, "fc2"))["shape"] == [4, 784]
    assert_types_are_eagers(graph, X)


def test_a_changed_type_reaches_all_that_follow():
    graph = annotated(MaseGraph(nn.Sequential(nn.Identity(), nn.ReLU()), {"input": X}))
    insert_after(graph, "_0", torch.Tensor.half)
    graph = annotated(graph)
    assert argument(node_named(graph, "_1")) == {
        "type": "float", "precision": [16], "shape": [2, 28, 28], "torch_dtype": torch.float16,
    }  # fmt: skip


def test_a_replaced_module_is_annotated():
    graph = annotated(MaseGraph(Mlp(), {"x": X}))
    graph.model.add_submodule("other", nn.Linear(784, 10, bias=False, dtype=torch.float32))
    node_named(graph, "fc3").target = "other"
    graph = annotated(graph)
    assert set(node_named(graph, "fc3").meta["mase"]["common"]["args"]) == {"data_in_0", "weight"}
    assert_types_are_eagers(graph, X)


class QuantisedLinear(nn.Linear):
    """What a quantising pass puts in: weights rounded to a grid, as a user would write it."""

    def forward(self, x):
        scale = 2.0**4
        return F.linear((x * scale).round() / scale, (self.weight * scale).round() / scale, self.bias)


def quantised(graph):
    for name in ("fc1", "fc2", "fc3"):
        module = graph.modules[name]
        new = QuantisedLinear(module.in_features, module.out_features)
        new.load_state_dict(module.state_dict())
        setattr(graph.model, name, new)
    return graph


def test_annotating_again_after_quantising_keeps_the_operators():
    model = Mlp()
    graph = quantised(annotated(MaseGraph(model, {"x": X})))
    graph = annotated(graph, dummy_in={"x": torch.randn(5, 28, 28)})
    assert argument(node_named(graph, "fc3"))["shape"] == [5, 784]
    assert result(node_named(graph, "fc3"))["value"].shape == (5, 10)
    assert type(model.fc1) is nn.Linear


def test_a_quantised_graph_is_near_its_model_and_not_equal():
    model = Mlp()
    graph = quantised(MaseGraph(model, {"x": X}))
    found = graph.check_against(model, atol=0.5)
    assert found
    assert not found.equal
    assert 0 < found.largest < 0.5
    assert not graph.check_against(model, rtol=0, atol=found.largest / 2)


def test_layer_norm_with_affine_parameters_is_annotated_after_a_change():
    graph = annotated(MaseGraph(nn.Sequential(nn.LayerNorm(28), nn.ReLU()), {"input": X}))
    insert_after(graph, "_1", torch.neg)
    graph = annotated(graph)
    norm = graph.nodes[1].meta["mase"]["common"]
    assert (norm["mase_op"], norm["args"]["weight"]["shape"]) == ("layer_norm", [28])
    assert graph.nodes[3].meta["mase"]["common"]["mase_op"] == "neg"


def test_types_are_found_again_when_they_are_asked_for_after_a_change():
    graph = MaseGraph(Mlp(), {"x": X})
    assert graph.facts[node_named(graph, "fc3")].shape == (2, 10)
    new = insert_after(graph, "fc3", torch.sum, 0)
    assert graph.facts[new].shape == (10,)


def test_propagating_on_meta_weights_allocates_nothing():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(1 << 17, 1 << 17), nn.ReLU())
    graph = annotated(MaseGraph(model, {"input": torch.empty(2, 1 << 17, device="meta")}))
    insert_after(graph, "_1", torch.neg)
    graph = annotated(graph)
    assert result(graph.nodes[3])["shape"] == [2, 1 << 17]


def test_a_graph_whose_sizes_depend_on_values_is_propagated_by_a_real_run():
    class Chosen(nn.Module):
        def forward(self, x):
            return x[x > 0] * 2

    x = torch.tensor([1.0, -1.0, 2.0])
    graph = MaseGraph(fx.symbolic_trace(Chosen()))
    graph = annotated(graph, dummy_in={"x": x})
    assert result(node_named(graph, "mul"))["shape"] == [2]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("again", [False, True])
def test_types_of_every_node_are_those_of_a_real_run(again, training):
    model, x = Convolutional().train(training), torch.randn(3, 3, 8, 8)
    graph = annotated(MaseGraph(model, {"x": x}))
    if again:
        insert_after(graph, "head", torch.tanh)
        graph = annotated(graph)
    assert_types_are_eagers(graph, x)


# check_against


def test_a_graph_agrees_with_its_model():
    model = Convolutional().eval()
    found = MaseGraph(model, {"x": torch.randn(2, 3, 8, 8)}).check_against(model)
    assert found.equal
    assert (found.largest, found.relative, found.outputs) == (0.0, 0.0, 1)


def test_dropout_draws_the_same_numbers_in_both():
    model = Classifier().train()
    graph = MaseGraph(model, {"input_ids": torch.randint(0, 50, (2, 16))})
    assert graph.check_against(model).equal


def test_a_check_in_training_mode_changes_no_statistics():
    model = Convolutional().train()
    before = copy.deepcopy(model.state_dict())
    assert MaseGraph(model, {"x": torch.randn(2, 3, 8, 8)}).check_against(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_check_tells_where_the_outputs_differ_and_how_far():
    model = Classifier().eval()
    graph = MaseGraph(model, {"input_ids": torch.randint(0, 50, (2, 16))})
    insert_after(graph, "head", torch.add, 0.25)
    found = graph.check_against(model)
    assert not found
    assert (found.where, found.outputs) == ("output.logits", 2)
    assert found.largest == pytest.approx(0.25, abs=1e-6)


def test_outputs_of_other_shapes_are_refused():
    model = Mlp()
    graph = MaseGraph(model, {"x": X})
    insert_after(graph, "fc3", torch.sum, 0)
    with pytest.raises(ValueError, match=r"output is float32\[10\] in the graph, but float32\[2, 10\] in the model"):
        graph.check_against(model)


def test_outputs_of_another_structure_are_refused():
    model = Classifier().eval()
    graph = MaseGraph(model, {"input_ids": torch.randint(0, 50, (2, 16))})
    output = graph.nodes[-1]
    output.args = (output.args[0]["logits"] if isinstance(output.args[0], dict) else output.args[0].args[0][1],)
    with pytest.raises(ValueError, match="the outputs have other parts"):
        graph.check_against(model)


def test_infinities_and_nan_at_the_same_places_agree():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.log(x), torch.sqrt(x)

    found = MaseGraph(Odd(), {"x": torch.tensor([-1.0, 0.0, 1.0])}).check_against(Odd())
    assert found.largest == 0.0
    assert found
