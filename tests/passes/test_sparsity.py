"""Zeros and movement, against counting and training the model itself."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

from mase_server import MaseGraph, passes
from tests.ir.models import node_named


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.transposed = Conv1D(6, 4)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.conv(x.relu()).relu().mean((2, 3))
        return self.head(self.transposed(x).relu())


def sparse():
    torch.manual_seed(0)
    model = Sparse()
    with torch.no_grad():
        model.head.weight[0] = 0
        model.transposed.weight[:, :2] = 0
    return model


X = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(1))


def annotated(model, x=X):
    return MaseGraph(model, {"x": x}, add_metadata_args={"add_value": False})


def entry(graph, node, name):
    return node_named(graph, node).meta["mase"]["software"]["args"][name]


def share(tensor):
    return float((tensor == 0).double().mean())


def inputs_of(model, *args):
    """What each layer gets, by hooks on the eager model."""
    got = {}
    layers = {"conv": model.conv, "transposed": model.transposed, "head": model.head}
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda layer, given, name=name: got.setdefault(name, given[0]))
    model(*args)
    return got


def test_zeros_of_weights_and_inputs_are_those_of_the_eager_model():
    model = sparse()
    graph, found = passes.add_natural_sparsity_metadata_analysis_pass(annotated(model), {})
    got = inputs_of(copy.deepcopy(model), X)
    weights = {name: getattr(model, name).weight for name in got}
    for name in got:
        assert found[f"{name}_weight"] == (weights[name].numel(), pytest.approx(share(weights[name])))
        assert found[f"{name}_activation"] == (got[name].numel(), pytest.approx(share(got[name])))
    assert 0.3 < found["conv_activation"][1] < 0.7, "there are zeros to count"
    every = torch.cat([weight.flatten() for weight in weights.values()])
    assert found["avg_weight"] == pytest.approx(share(every))
    assert found["avg_activation"] == pytest.approx(share(torch.cat([value.flatten() for value in got.values()])))
    assert entry(graph, "head", "weight")["natural_sparsity"] == pytest.approx(1 / 3)
    assert entry(graph, "addmm", "data_in_2")["natural_sparsity"] == pytest.approx(1 / 3)
    assert entry(graph, "addmm", "data_in_1")["natural_sparsity"] == found["transposed_activation"][1]
    passes.verify_software_metadata_analysis_pass(graph)


def test_zeros_are_counted_over_all_batches_and_without_metadata_where_asked():
    model, batches = nn.Sequential(nn.Linear(4, 2)), [torch.zeros(2, 4), torch.ones(2, 4), torch.ones(2, 4)]
    graph = MaseGraph(model, {"input": torch.ones(2, 4)}, add_metadata_args={})
    given = {"data": batches, "samples": 2, "add_meta": False}
    graph, found = passes.add_natural_sparsity_metadata_analysis_pass(graph, given)
    assert found["0_activation"] == (16, 0.5)
    assert "args" not in graph.nodes[1].meta["mase"]["software"]
    _, found = passes.add_natural_sparsity_metadata_analysis_pass(graph, {"dummy_in": {"input": torch.zeros(1, 4)}})
    assert found["avg_activation"] == 1.0


def test_a_pruned_graph_says_how_sparse_it_is():
    graph, _ = passes.prune_transform_pass(
        annotated(sparse()),
        {
            "weight": {"sparsity": 0.5, "scope": "global"},
            "activation": {"sparsity": 0.25},
            "only": ["conv", "transposed"],
        },
    )
    graph, found = passes.add_pruning_metadata_analysis_pass(graph, {"add_value": True})
    masks = {"conv": graph.module.conv_pruning_mask, "transposed": graph.module.addmm_pruning_mask}
    assert set(found) == set(masks)
    assert {name: each["weight_sparsity"] for name, each in found.items()} == {
        name: pytest.approx(share(mask)) for name, mask in masks.items()
    }
    assert found["conv"]["activation_sparsity"] == pytest.approx(share(X.relu())), "more was zero than had to be"
    assert found["transposed"]["activation_sparsity"] == pytest.approx(0.25)
    assert entry(graph, "conv", "weight")["sparsity"] == found["conv"]["weight_sparsity"]
    assert torch.equal(entry(graph, "addmm", "data_in_2")["mask_value"], masks["transposed"])


def test_a_pruned_and_quantised_graph_says_how_sparse_it_is():
    graph, _ = passes.prune_transform_pass(annotated(sparse()), {"weight": {"sparsity": 0.5}})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,6)"})
    _, found = passes.add_pruning_metadata_analysis_pass(graph)
    assert found["head"] == {"weight_sparsity": 0.5}


def test_a_graph_without_masks_is_refused():
    with pytest.raises(ValueError, match="nothing is pruned here; run prune_transform_pass first"):
        passes.add_pruning_metadata_analysis_pass(annotated(sparse()))


# Movement


def batches(count):
    generator = torch.Generator().manual_seed(2)
    return [
        (torch.randn(3, 2, 5, 5, generator=generator), torch.randint(3, (3,), generator=generator))
        for _ in range(count)
    ]


def loss(outputs, batch):
    return F.cross_entropy(outputs, batch[1])


def moved(model, steps, data, rate):
    """The sum of |change| of every parameter in plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    sums = {name: torch.zeros_like(parameter) for name, parameter in before.items()}
    for step in range(steps):
        x, y = data[step % len(data)]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for name, parameter in model.named_parameters():
            sums[name] += (parameter.detach() - before[name]).abs()
            before[name] = parameter.detach().clone()
    return sums


def test_movement_is_that_of_training_the_model():
    model, data = sparse(), batches(3)
    before = copy.deepcopy(model.state_dict())
    expected = moved(copy.deepcopy(model), 5, data, 0.1)
    given = {"data": data, "loss": loss, "steps": 5, "learning_rate": 0.1}
    graph, found = passes.add_movement_metadata_analysis_pass(annotated(model), given)
    assert found["steps"] == 5
    for node, name, path in [
        ("conv", "weight", "conv"),
        ("addmm", "data_in_2", "transposed"),
        ("head", "weight", "head"),
    ]:
        score = entry(graph, node, name)["stat"]["movement"]
        assert torch.allclose(score, expected[f"{path}.weight"], atol=1e-6)
        assert found["movement"][path] == pytest.approx(float(expected[f"{path}.weight"].mean()), rel=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_pruning_by_movement_takes_what_moved_least():
    model, data = sparse(), batches(2)
    expected = moved(copy.deepcopy(model), 4, data, 0.1)
    graph, _ = passes.add_movement_metadata_analysis_pass(
        annotated(model), {"data": data, "loss": loss, "steps": 4, "learning_rate": 0.1}
    )
    graph, _ = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5, "method": "movement"}})
    for mask, path in [(graph.module.conv_pruning_mask, "conv"), (graph.module.addmm_pruning_mask, "transposed")]:
        scores = expected[f"{path}.weight"]
        assert scores[mask == 0].max() <= scores[mask == 1].min() + 1e-6


def test_checkpoints_are_as_good_as_training(tmp_path):
    model = sparse()
    states = [{name: value + step for name, value in model.state_dict().items()} for step in (0.5, -1.0)]
    torch.save(states[1], tmp_path / "second.pt")
    given = {"checkpoints": [states[0], str(tmp_path / "second.pt")]}
    graph, found = passes.add_movement_metadata_analysis_pass(annotated(model), given)
    assert found["steps"] == 2
    assert torch.allclose(entry(graph, "head", "weight")["stat"]["movement"], torch.full((3, 6), 2.5))


def test_a_state_of_batch_norm_is_as_before():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    before = copy.deepcopy(model.state_dict())
    graph = MaseGraph(model, {"input": torch.randn(3, 4)}, add_metadata_args={})
    passes.add_movement_metadata_analysis_pass(
        graph, {"loss": lambda outputs, batch: outputs.square().sum(), "steps": 2}
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_loss_among_the_outputs_is_taken():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x, labels):
            y = self.inner(x)
            return {"loss": F.cross_entropy(y, labels), "y": y}

    graph = MaseGraph(Own(), {"x": torch.randn(3, 4), "labels": torch.tensor([0, 1, 1])}, add_metadata_args={})
    _, found = passes.add_movement_metadata_analysis_pass(graph, {"steps": 3})
    assert found["movement"]["inner"] > 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "the outputs hold no loss; give a function"),
        ({"checkpoints": [{}]}, r"checkpoint 0 has no conv\.weight of \[4, 2, 3, 3\]"),
        ({"checkpoints": [{"conv.weight": 3}]}, r"checkpoint 0 has no conv\.weight of \[4, 2, 3, 3\]"),
        ({"checkpoints": [[torch.zeros(1)]]}, "checkpoint 0 is a list, no state dict"),
        ({"checkpoints": ["/nowhere/one.pt"]}, "checkpoints: there is no file /nowhere/one.pt"),
        ({"data": [], "loss": loss}, r"data has no batch: \[\]"),
        ({"step": 1}, "add_movement_metadata_analysis_pass has no option 'step'"),
        ({"only": ["tail"]}, "only names 'tail'"),
    ],
)
def test_what_gives_no_movement_is_told(given, text):
    with pytest.raises(ValueError, match=text):
        passes.add_movement_metadata_analysis_pass(annotated(sparse()), given)


@pytest.mark.parametrize("name", ["add_movement_metadata", "add_natural_sparsity_metadata"])
def test_weights_on_meta_are_refused(name):
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 2))
    graph = MaseGraph(model, {"input": torch.randn(1, 4)}, add_metadata_args={"add_value": False})
    with pytest.raises(ValueError, match=rf"{name} needs the values of 0\.weight, which is on meta"):
        getattr(passes, f"{name}_analysis_pass")(graph)
