"""Pruning, against masks worked out by hand and by torch's own pruning."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune as torch_prune
from transformers.pytorch_utils import Conv1D

from mase_server import MaseGraph, passes
from mase_server.passes.registry import built_in
from tests.ir.models import node_named


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


X = torch.randn(3, 8)


def pruned(model, **plans):
    return passes.prune_transform_pass(MaseGraph(model, {"input": X}), plans)


def zeros(tensor):
    return int((tensor == 0).sum())


@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.5, 0.9])
def test_the_smallest_of_each_layer_go_as_torch_prunes_them(sparsity):
    model, theirs = two_layers(), two_layers()
    for layer in (theirs[0], theirs[2]):
        torch_prune.l1_unstructured(layer, "weight", sparsity)
    graph, found = pruned(model, weight={"sparsity": sparsity, "method": "l1-norm"})
    assert torch.equal(graph.model(X), theirs(X))
    assert found["weight"]["_0"] == pytest.approx(zeros(theirs[0].weight) / 64)


def test_the_smallest_of_all_layers_go_as_torch_prunes_them():
    model, theirs = two_layers(), two_layers()
    parts = [(theirs[0], "weight"), (theirs[2], "weight")]
    torch_prune.global_unstructured(parts, torch_prune.L1Unstructured, amount=0.5)
    graph, found = pruned(model, weight={"sparsity": 0.5, "scope": "global"})
    assert torch.equal(graph.model(X), theirs(X))
    assert len(set(found["weight"].values())) == 2, "the layers have different shares"


def test_whole_channels_go():
    model = two_layers()
    graph, _ = pruned(model, weight={"sparsity": 0.25, "granularity": "channelwise"})
    mask = graph.module._0_pruning_mask
    means = model[0].weight.abs().mean(1)
    gone = set(means.argsort()[:2].tolist())
    assert {index for index in range(8) if zeros(mask[index]) == 8} == gone
    assert zeros(mask) == 16


def test_two_of_every_four_stay():
    model = two_layers()
    graph, _ = pruned(model, weight={"sparsity": 0.5, "granularity": "2:4"})
    mask = graph.module._0_pruning_mask.reshape(-1, 4)
    for weights, kept in zip(model[0].weight.reshape(-1, 4).abs().tolist(), mask.tolist(), strict=True):
        largest = sorted(range(4), key=lambda index: -weights[index])[:2]
        assert [index for index in range(4) if kept[index]] == sorted(largest)


def test_random_pruning_has_the_share_that_was_asked_for():
    graph, found = pruned(two_layers(), weight={"sparsity": 0.25, "method": "random"})
    assert zeros(graph.module._0_pruning_mask) == 16
    assert found["weight"] == {"_0": 0.25, "_2": 0.25}


def test_activations_are_sparse_where_they_go_in():
    model = nn.Sequential(nn.Linear(8, 8))
    graph, found = pruned(model, activation={"sparsity": 0.5})
    assert found["activation"] == ["_0"]
    threshold = X.abs().flatten().sort().values[11]
    by_hand = torch.where(X.abs() > threshold, X, torch.zeros(()))
    assert zeros(by_hand) == 12
    assert torch.equal(graph.model(X), F.linear(by_hand, model[0].weight, model[0].bias))


def test_masked_weights_learn_and_what_is_masked_does_not():
    model = two_layers()
    graph, _ = pruned(model, weight={"sparsity": 0.5})
    graph.model(X).sum().backward()
    gradient, mask = model[0].weight.grad, graph.module._0_pruning_mask
    assert zeros(gradient * (1 - mask)) == 64
    assert zeros(gradient) < 64


def test_detaching_writes_the_zeros_and_leaves_the_model_alone():
    model = two_layers()
    before = copy.deepcopy(model.state_dict())
    graph, _ = pruned(model, weight={"sparsity": 0.5})
    expected = graph.model(X)
    graph, found = passes.prune_detach_hook_transform_pass(graph)
    assert found["detached"] == ["_0", "_2"]
    assert torch.equal(graph.model(X), expected)
    assert zeros(graph.module._0_weight_pruned) == 32
    assert not [name for name, _ in graph.module.named_buffers()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_pruned_graph_is_annotated_and_can_be_quantised():
    graph, _ = pruned(two_layers(), weight={"sparsity": 0.5}, activation={"sparsity": 0.25})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,8)"})
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    assert node_named(graph, "_0").meta["mase"]["common"]["mase_op"] == "linear"
    assert graph.model(X).isfinite().all()


# Where weights stand


class Functional(nn.Module):
    """A layer of GPT-2's kind, a product with a parameter of the model's own, and a convolution."""

    def __init__(self):
        super().__init__()
        self.transposed = Conv1D(8, 4)
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.conv = nn.Conv2d(8, 4, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        x = F.linear(self.transposed(x), self.weight)
        return self.conv(x.mT.unsqueeze(-1))


def test_groups_lie_along_what_a_product_sums_over():
    torch.manual_seed(0)
    model, x = Functional(), torch.randn(2, 5, 4)
    graph = MaseGraph(copy.deepcopy(model), {"x": x})
    graph, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5, "granularity": "2:4"}})
    assert set(found["weight"].values()) == {0.5}
    with torch.no_grad():
        for weight, dim in [(model.transposed.weight, 0), (model.weight, 1), (model.conv.weight, 1)]:
            grouped = weight.movedim(dim, -1).reshape(-1, 4)
            grouped = grouped * (grouped.abs() >= grouped.abs().sort(dim=1).values[:, 2:3])
            shape = weight.movedim(dim, -1).shape
            weight.copy_(grouped.view(shape).movedim(-1, dim))
    assert torch.equal(graph.model(x), model(x))


def test_groups_that_do_not_divide_a_layer_leave_it_out_and_say_so():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
    graph = MaseGraph(model, {"input": torch.randn(1, 3, 8, 8)})
    _, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5, "granularity": "2:4"}})
    assert found == {"weight": {"_1": 0.5}, "activation": [], "left": ["_0"]}


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_weight_that_is_made_of_others_is_left_out_and_that_is_said(norm):
    model = nn.Sequential(norm(nn.Linear(8, 8)), nn.Linear(8, 4))
    graph, found = pruned(model, weight={"sparsity": 0.5})
    assert found == {"weight": {"_1": 0.5}, "activation": [], "left": ["_0"]}
    _, found = passes.gptq_transform_pass(graph, {"default": "mxint(4)"})
    assert (list(found["layers"]), found["left"]) == (["_1"], ["_0"])


def test_only_what_is_named_is_pruned():
    model = two_layers()
    _, found = pruned(model, weight={"sparsity": 0.5}, activation={"sparsity": 0.5}, only=["2"])
    assert list(found["weight"]) == ["_2"]
    assert found["activation"] == ["_2"]
    with pytest.raises(ValueError, match="only names 'head'"):
        pruned(model, weight={"sparsity": 0.5}, only=["head"])


def test_what_was_pruned_before_stays_pruned():
    model = two_layers()
    graph, _ = pruned(model, weight={"sparsity": 0.25, "method": "random"}, only=["0"])
    before = graph.module._0_pruning_mask
    graph, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}, "only": ["_0"]})
    after = graph.module._0_pruning_mask
    assert found["weight"] == {"_0": 0.5}
    assert zeros(after) == 32
    assert zeros(after[before == 0]) == 16
    assert torch.equal(graph.model(X), F.linear(F.linear(X, model[0].weight * after, model[0].bias).relu(), *[
        model[2].weight, model[2].bias,
    ]))  # fmt: skip


def test_whole_channels_that_stay_do_not_bring_back_what_was_pruned():
    graph, _ = pruned(two_layers(), weight={"sparsity": 0.25, "method": "random"}, only=["0"])
    before = graph.module._0_pruning_mask
    plan = {"sparsity": 0.25, "granularity": "channelwise"}
    graph, found = passes.prune_transform_pass(graph, {"weight": plan, "only": ["0"]})
    after = graph.module._0_pruning_mask
    assert zeros(after[before == 0]) == 16
    assert sum(bool((row == 0).all()) for row in after) == 2
    assert found["weight"]["_0"] == pytest.approx(zeros(after) / 64)


def test_a_layer_that_is_called_twice_has_one_mask_and_counts_once():
    layer = nn.Linear(8, 8)
    graph, found = pruned(nn.Sequential(layer, nn.ReLU(), layer), weight={"sparsity": 0.5, "scope": "global"})
    [mask] = [buffer for name, buffer in graph.module.named_buffers()]
    assert found["weight"] == {"_0": 0.5, "_0_1": 0.5}
    expected = graph.model(X)
    hidden = F.linear(X, layer.weight * mask, layer.bias).relu()
    assert torch.equal(expected, F.linear(hidden, layer.weight * mask, layer.bias))
    graph, found = passes.prune_detach_hook_transform_pass(graph)
    assert found["detached"] == ["_0"]
    assert torch.equal(graph.model(X), expected)
    assert len([name for name, _ in graph.module.named_parameters() if name.endswith("_pruned")]) == 1


def test_a_quantised_weight_is_pruned_before_it_is_rounded():
    model = two_layers()
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"input": X}), {"by": "type", "linear": "fixed(8,6)"})
    graph, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}})
    assert found["weight"] == {"_0": 0.5, "_2": 0.5}
    other, _ = pruned(model, weight={"sparsity": 0.5})
    other, _ = passes.quantize_transform_pass(other, {"by": "type", "linear": "fixed(8,6)"})
    assert torch.equal(graph.model(X), other.model(X))


def test_channels_of_activations_are_those_of_the_layers_input():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(4, 2, 1)), torch.randn(2, 4, 3, 3)
    graph = MaseGraph(model, {"input": x})
    graph, _ = passes.prune_transform_pass(graph, {"activation": {"sparsity": 0.5, "granularity": "channelwise"}})
    weakest = x.abs().mean((0, 2, 3)).argsort()[:2]
    expected = x.clone()
    expected[:, weakest] = 0
    assert torch.equal(graph.model(x), model(expected))


def test_weights_on_meta_cannot_be_pruned():
    with torch.device("meta"):
        model = two_layers()
    with pytest.raises(ValueError, match=r"prune needs the values of 0\.weight, which is on meta"):
        pruned(model, weight={"sparsity": 0.5})


def test_a_weight_that_is_shared_is_pruned_where_it_is_a_product():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 8))

        def forward(self, ids):
            return F.linear(F.embedding(ids, self.weight), self.weight)

    model, ids = Tied(), torch.tensor([[1, 2, 3]])
    graph = MaseGraph(model, {"ids": ids})
    graph, _ = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}})
    expected = graph.model(ids)
    mask = next(iter(dict(graph.module.named_buffers()).values()))
    assert torch.equal(expected, F.linear(F.embedding(ids, model.weight), model.weight * mask))
    graph, _ = passes.prune_detach_hook_transform_pass(graph)
    assert torch.equal(graph.model(ids), expected)


def test_a_configuration_as_mase_writes_it_fits_the_declaration():
    """With what its own loader takes for activations, too."""
    activation = {"sparsity": 0.25, "method": "l1-norm", "scope": "local", "granularity": "elementwise"}
    given = {"weight": {**activation, "scope": "global"}, "activation": activation}
    assert built_in()["prune"].checked(given) == given
    _, found = pruned(two_layers(), **given)
    assert found["activation"] == ["_0", "_2"]


ERRORS = [
    ({"weight": {"sparsity": 1.0}}, "prune: sparsity is 1.0, expected a share from 0 to below 1"),
    ({"weight": {"sparsity": 0.5, "method": "l2"}}, "prune: method is 'l2', expected one of l1-norm, random, movement"),
    ({"weight": {"sparsity": 0.5, "scope": "all"}}, "prune: scope is 'all', expected one of local, global"),
    (
        {"weight": {"sparsity": 0.5, "granularity": "4:2"}},
        "prune: granularity is '4:2', expected elementwise, channelwise or n:m with n below m, e.g. 2:4",
    ),
    ({"weight": {"method": "random"}}, "prune: {'method': 'random'} is no plan"),
    ({"weight": {"sparsity": 0.5, "share": 1}}, "prune: a plan has no 'share'; it takes sparsity, method, scope,"),
    ({"activation": {"sparsity": 0.5, "scope": "global"}}, "their scope is local, not 'global'"),
    ({"activation": {"sparsity": 0.5, "method": "movement"}}, "prune: activations have no scores of movement"),
    (
        {"weight": {"sparsity": 0.5, "method": "movement"}},
        "prune: _0 has no movement scores; run add_movement_metadata_analysis_pass first",
    ),
    (
        {"weight": {"sparsity": 0.5, "granularity": "2:5"}},
        "prune: 2:5 needs a dimension divisible by 5 to sum over, got [8, 8]",
    ),
]


@pytest.mark.parametrize(("plans", "message"), ERRORS)
def test_a_plan_that_cannot_be_followed_is_quoted(plans, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pruned(two_layers(), **plans)
