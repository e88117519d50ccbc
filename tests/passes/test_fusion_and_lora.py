"""Transforms that must leave what a model gives as it was, against the model itself."""

import copy
import re

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from tests.ir.models import bert_inputs, bert_tiny


def trained(model):
    """Running statistics that are not those of a fresh layer, then eval mode."""
    model.train()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return model.eval()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y


FUSED = [
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 8, 8)),
    (nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.BatchNorm1d(4)), (2, 3, 8)),
    (nn.Sequential(nn.ConvTranspose2d(4, 6, 2, stride=2), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
    (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), (5, 6)),
]


@pytest.mark.parametrize(("model", "shape"), FUSED)
def test_a_norm_disappears_into_the_layer_before_it(model, shape):
    model, x = trained(model), torch.randn(shape)
    before, expected = copy.deepcopy(model.state_dict()), model(x)
    graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {"input": x}))
    assert found == {"fused": [("0", "1")], "kept": {}}
    assert not any(node.target == "1" for node in graph.nodes)
    torch.testing.assert_close(graph.model(x), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(x), expected), "the person's model was changed"


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (Shared().eval(), (1, 3, 4, 4), "conv is used elsewhere too"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 8, 8), "it uses the statistics of each batch"),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)).eval(), (1, 3, 4, 4), "its input is from no convolution"),
        (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(5)).eval(), (2, 5, 6), "it normalises over another dimension"),
    ],
)
def test_a_norm_stays_where_fusing_would_change_something(model, shape, reason):
    x = torch.randn(shape)
    name = "x" if isinstance(model, Shared) else "input"
    graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {name: x}))
    assert found["fused"] == []
    assert reason in next(iter(found["kept"].values()))
    if not model.training:
        assert torch.equal(graph.model(x), model(x))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(4), (3, 4, 6)),
        (nn.BatchNorm2d(4), (3, 4, 5, 6)),
        (nn.BatchNorm3d(4), (3, 4, 2, 3, 2)),
    ],
)
def test_a_norm_alone_becomes_a_convolution_of_single_elements(norm, shape):
    model, x = trained(nn.Sequential(nn.ReLU(), norm)), torch.randn(shape)
    expected = model(x)
    graph, found = passes.norm_to_conv_transform_pass(MaseGraph(model, {"input": x}))
    assert found == {"made": ["1"], "kept": {}}
    assert type(graph.module.get_submodule("1")).__name__.startswith("Conv")
    torch.testing.assert_close(graph.model(x), expected)
    assert model[1] is norm
    assert torch.equal(model(x), expected), "the person's model was changed"


def test_a_norm_without_weights_becomes_one_too():
    norm, x = nn.BatchNorm2d(4, affine=False).eval(), torch.randn(3, 4, 5, 6)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    model = nn.Sequential(norm)
    graph, _ = passes.norm_to_conv_transform_pass(MaseGraph(model, {"input": x}))
    torch.testing.assert_close(graph.model(x), model(x))


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (nn.Sequential(nn.BatchNorm1d(4)).eval(), (3, 4), "its input has 2 dimensions"),
        (nn.Sequential(nn.BatchNorm2d(4)), (3, 4, 5, 5), "it uses the statistics of each batch"),
    ],
)
def test_a_norm_stays_where_no_convolution_does_the_same(model, shape, reason):
    found = passes.norm_to_conv_transform_pass(MaseGraph(model, {"input": torch.randn(shape)}))[1]
    assert found["made"] == []
    assert reason in found["kept"]["0"]


def test_dropouts_go_and_the_output_stays():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.1)).eval()
    x = torch.randn(3, 4)
    graph, found = passes.remove_dropout_transform_pass(MaseGraph(model, {"input": x}))
    assert found["removed"] == ["_1", "_3"]
    assert torch.equal(graph.model(x), model(x))


def test_an_adapter_changes_nothing_until_it_has_learnt():
    """MASE's own drops the bias: the output moves at once."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)), torch.randn(4, 6)
    graph, found = passes.insert_lora_adapter_transform_pass(MaseGraph(model, {"input": x}), {"rank": 2})
    assert found["inserted"] == {"_0": [6, 5], "_2": [5, 3]}
    assert torch.equal(graph.model(x), model(x))
    own = {name for name, _ in model.named_parameters()}
    adapters = [parameter for name, parameter in graph.model.named_parameters() if name not in own]
    assert len(adapters) == 4
    optimiser = torch.optim.SGD(adapters, 0.01)
    for _ in range(3):
        optimiser.zero_grad()
        graph.model(x).square().sum().backward()
        optimiser.step()
    learnt = graph.model(x)
    assert not torch.equal(learnt, model(x))
    graph, found = passes.fuse_lora_weights_transform_pass(graph)
    assert found["fused"] == ["_0", "_2"]
    torch.testing.assert_close(graph.model(x), learnt)
    assert not any("lora" in name for name, _ in graph.model.named_parameters())


def test_what_an_adapter_adds_is_b_a_x_times_alpha_over_rank():
    model, x = nn.Sequential(nn.Linear(6, 5)), torch.randn(4, 6)
    graph, _ = passes.insert_lora_adapter_transform_pass(MaseGraph(model, {"input": x}), {"rank": 2, "lora_alpha": 3.0})
    a, b = graph.module._0_lora_a, graph.module._0_lora_b
    with torch.no_grad():
        b.normal_()
        torch.testing.assert_close(graph.model(x), model(x) + x @ a.T @ b.T * 1.5)


def test_adapters_of_bert_are_annotated_and_change_nothing():
    model, inputs = bert_tiny(), dict(bert_inputs())
    graph, found = passes.insert_lora_adapter_transform_pass(MaseGraph(model, inputs), {"rank": 4, "lora_dropout": 0.1})
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    assert len(found["inserted"]) == sum(isinstance(part, nn.Linear) for part in model.modules())
    check = graph.check_against(model)
    assert check, check


@pytest.mark.parametrize(
    ("pass_args", "message"),
    [
        ({"rank": 0}, "rank is 0, expected a whole number of at least 1"),
        ({"lora_dropout": 1.0}, "lora_dropout is 1.0, expected a probability below 1"),
        (
            {"ranks": 1},
            "insert_lora_adapter_transform_pass has no option 'ranks'; did you mean 'rank'?",
        ),
    ],
)
def test_options_out_of_range_are_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        passes.insert_lora_adapter_transform_pass(MaseGraph(nn.Sequential(nn.Linear(2, 2))), pass_args)


def _two_blocks():
    return nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout()) for _ in range(2))).eval()


@pytest.mark.parametrize("only", [["1"], ["1.0"], ["1.1"]])
def test_only_the_selected_norms_are_fused(only):
    model, x = _two_blocks(), torch.randn(2, 3, 4, 4)
    graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {"input": x}), {"only": only})
    assert found == {"fused": [("1.0", "1.1")], "kept": {}}
    torch.testing.assert_close(graph.model(x), model(x))


def test_only_the_selected_dropouts_are_removed():
    graph = MaseGraph(_two_blocks(), {"input": torch.randn(2, 3, 4, 4)})
    assert passes.remove_dropout_transform_pass(graph, {"only": ["1"]})[1] == {"removed": ["_1_2"]}
    assert "_0_2" in [node.name for node in graph.nodes]


def test_only_the_selected_layers_have_adapters_and_lose_them():
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3))
    graph = MaseGraph(model, {"input": torch.randn(4, 6)})
    graph, found = passes.insert_lora_adapter_transform_pass(graph, {"only": ["1", "_2"]})
    assert found["inserted"] == {"_1": [5, 4], "_2": [4, 3]}
    assert passes.fuse_lora_weights_transform_pass(graph, {"only": ["2"]})[1] == {"fused": ["_2"]}
    assert passes.fuse_lora_weights_transform_pass(graph)[1] == {"fused": ["_1"]}


COMPUTED = {
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
    "weight norm of another dimension": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4), dim=1),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(6, 4)),
    "older weight norm": lambda: nn.utils.weight_norm(nn.Linear(6, 4)),
    "older spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(6, 4)),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("kind", COMPUTED)
def test_computed_weights_become_parameters_of_the_graph_and_stay_in_the_model(kind):
    torch.manual_seed(0)
    model = nn.Sequential(COMPUTED[kind](), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 6)
    model(x).sum().backward()  # the layer keeps a weight through which gradients flow
    before = model.eval()(x)
    names, layer = [name for name, _ in model.named_parameters()], type(model[0])
    graph, found = passes.fold_weights_transform_pass(MaseGraph(model, {"input": x}))
    assert (found["folded"], found["kept"]) == (["0"], {})
    assert torch.equal(graph.model(x), before)
    assert sorted(name for name, _ in graph.module.get_submodule("0").named_parameters()) == ["bias", "weight"]
    assert type(graph.module.get_submodule("0")) is nn.Linear
    # The model is as it was.
    assert ([name for name, _ in model.named_parameters()], type(model[0])) == (names, layer)
    assert torch.equal(model(x), before)
    kept = passes.fold_weights_transform_pass(MaseGraph(model.train(), {"input": x}))[1]["kept"]
    assert list(kept) == ["0"]


@pytest.mark.parametrize(
    "name",
    ["conv_bn_fusion", "fold_weights", "norm_to_conv", "remove_dropout", "insert_lora_adapter", "fuse_lora_weights"],
)
def test_a_selection_that_names_nothing_is_refused(name):
    graph = MaseGraph(_two_blocks(), {"input": torch.randn(2, 3, 4, 4)})
    with pytest.raises(ValueError, match="only names 'fc1', which is no node"):
        getattr(passes, f"{name}_transform_pass")(graph, {"only": ["fc1"]})


def test_norms_are_fused_where_nothing_has_a_value():
    """Which layers fit does not depend on values, so the largest models show it at once."""
    model = _two_blocks().to("meta")
    graph = MaseGraph(model, {"input": torch.randn(2, 3, 4, 4, device="meta")})
    assert passes.conv_bn_fusion_transform_pass(graph)[1]["fused"] == [("0.0", "0.1"), ("1.0", "1.1")]
    graph.propagate()
    assert {fact.shape for fact in graph.facts.values()} == {(2, 3, 4, 4)}
