"""Quantisation-aware training, against rounding and gradients done by hand and against eager training."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from tests.ir.models import bert_inputs, bert_tiny


def trainable(model, inputs, **pass_args):
    return passes.training_base_pass(MaseGraph(model, inputs), pass_args)


def fixed(x, width, fraction):
    low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
    return (x * 2**fraction).round().clamp(low, high) / 2**fraction


# Training


def moons(seed, count):
    """Two half circles, one in the other, in eight dimensions."""
    generator = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=generator) * torch.pi
    label = torch.arange(count) % 2
    side = 1 - 2.0 * label
    points = torch.stack([angle.cos() * side + label, angle.sin() * side + 0.5 * label], dim=1)
    points = points + 0.1 * torch.randn(points.shape, generator=generator)
    spread = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    return points @ spread, label


def train(model, steps, rate):
    x, y = moons(1, 512)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def accuracy(model):
    x, y = moons(2, 2000)
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Dropout(0.05),
        nn.Linear(24, 24),
        nn.ReLU(),
        nn.Linear(24, 2),
    )


@pytest.mark.parametrize("format", ["fixed(4,2)", "fixed(3,1)"])
def test_training_with_few_bits_beats_rounding_afterwards(format):
    model = classifier()
    train(model, 200, 0.01)
    float_accuracy = accuracy(model)
    assert float_accuracy > 0.97
    inputs = {"input": moons(1, 8)[0]}
    after, _ = passes.quantize_transform_pass(MaseGraph(copy.deepcopy(model), inputs), {"linear": format})
    graph, _ = trainable(model, inputs, linear=format)
    assert accuracy(graph.model) == accuracy(after.model), "the same formats before training"
    before = accuracy(graph.model)
    train(graph.model, 150, 0.01)
    trained = accuracy(graph.model)
    assert trained > before + 0.02
    assert trained > 0.9


def test_one_step_of_training_is_eagers_with_roundings_by_hand():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 3)), torch.randn(5, 4)
    theirs = copy.deepcopy(model)
    graph, _ = trainable(model, {"input": x}, linear="fixed(8,4)")
    graph.model.train()
    F.mse_loss(graph.model(x), torch.zeros(5, 3)).backward()

    def rounded(tensor):
        return tensor + (fixed(tensor, 8, 4) - tensor).detach()

    layer = theirs[0]
    y = rounded(F.linear(rounded(x), rounded(layer.weight), rounded(layer.bias)))
    F.mse_loss(y, torch.zeros(5, 3)).backward()
    assert torch.allclose(model[0].weight.grad, layer.weight.grad, atol=1e-7)
    assert torch.allclose(model[0].bias.grad, layer.bias.grad, atol=1e-7)


def test_every_parameter_of_a_transformer_learns():
    model = bert_tiny()
    graph, found = trainable(model, bert_inputs(), default="fixed(8,5)")
    assert found["quantised"]
    graph.model.train()
    out = graph.model(*graph.knowledge.feed(graph.arguments))
    out["logits"].square().sum().backward()
    assert all(parameter.grad is not None for parameter in graph.model.parameters())


# Gradients


def test_gradients_are_rounded_where_that_is_wanted():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(5, 4)
    theirs = copy.deepcopy(model)
    config = {"forward": None, "backward": {"name": "integer", "output_grad_width": 8, "output_grad_frac_width": 5}}
    graph, found = trainable(model, {"input": x}, linear={"config": config})
    assert found["gradients"] == ["_0", "_2"]
    assert found["quantised"] == {}
    assert torch.equal(graph.model(x), theirs(x)), "nothing is rounded on the way forward"
    graph.model(x).square().sum().backward()
    with torch.no_grad():
        first, second = theirs[0], theirs[2]
        hidden = first(x)
        gradient = fixed(2 * theirs(x), 8, 5)
        assert torch.equal(model[2].weight.grad, gradient.T @ hidden.relu())
        gradient = fixed((gradient @ second.weight) * (hidden > 0), 8, 5)
        assert torch.allclose(model[0].weight.grad, gradient.T @ x, atol=1e-6)


def test_gradients_that_an_operator_gives_on_are_rounded():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 3)), torch.randn(5, 4, requires_grad=True)
    backward = {
        "name": "integer", "data_in_width": 8, "data_in_frac_width": 3, "weight_width": 8, "weight_frac_width": 2,
    }  # fmt: skip
    graph, _ = trainable(model, {"input": x.detach()}, linear={"forward": "fixed(16,12)", "backward": backward})
    coming = torch.randn(5, 3)
    (graph.model(x) * coming).sum().backward()
    rounded = fixed(x.detach(), 16, 12)
    assert torch.equal(model[0].weight.grad, fixed(coming.T @ rounded, 8, 2))
    assert torch.equal(x.grad, fixed(coming @ fixed(model[0].weight.detach(), 16, 12), 8, 3))
    assert torch.allclose(model[0].bias.grad, coming.sum(0)), "the bias has no format"


def test_metadata_and_formats_pass_through_the_rounding_of_gradients():
    graph, _ = trainable(
        nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {"input": torch.randn(5, 4)},
        linear={"forward": "fixed(8,4)", "backward": "fixed(16,12)"},
    )  # fmt: skip
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    relu = next(node for node in graph.nodes if node.target == "1")
    assert relu.meta["mase"]["common"]["args"]["data_in_0"]["type"] == "fixed"


# Modes


class Modes(nn.Module):
    """Dropout as a layer, as a function, and inside of attention; batch norm as both."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.layer, self.norm = nn.Dropout(0.3), nn.BatchNorm1d(8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))

    def forward(self, x):
        x = F.dropout(self.layer(self.fc(x)), 0.2, self.training)
        x = F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.4 if self.training else 0.0)[0]
        return F.batch_norm(self.norm(x), self.mean, self.var, training=self.training)


@pytest.mark.parametrize("recorded_in_training", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_graph_follows_the_mode_as_eager_does(recorded_in_training, training):
    torch.manual_seed(0)
    model, x = Modes().train(recorded_in_training), torch.randn(6, 8)
    graph, found = trainable(model, {"x": x}, default={"config": {"name": None}})
    assert model.training == recorded_in_training, "the person's model keeps its mode"
    assert len(found["modes"]) == 3
    theirs = copy.deepcopy(model).train(training)
    traced = graph.model.train(training)
    torch.manual_seed(1)
    expected = theirs(x)
    torch.manual_seed(1)
    assert torch.equal(traced(x), expected)
    assert torch.equal(model.mean, theirs.mean)
    assert torch.equal(model.norm.running_mean, theirs.norm.running_mean)


def test_a_model_that_computes_otherwise_in_training_keeps_what_was_recorded():
    class Otherwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            if self.training:
                x = torch.mul(x, 3.0)
            x = torch.mul(self.fc(x), 2.0)
            return F.dropout(torch.mul(x, 0.5 if self.training else 4.0), 0.5, self.training)

    model, x = Otherwise().eval(), torch.randn(6, 8)
    graph, found = trainable(model, {"x": x}, default={"config": {"name": None}})
    assert found["modes"] == ["dropout"]
    traced = graph.model.train()
    torch.manual_seed(0)
    expected = F.dropout(model.fc(x) * 2.0 * 4.0, 0.5)
    torch.manual_seed(0)
    assert torch.equal(traced(x), expected)


def test_a_graph_that_follows_the_mode_is_annotated_and_saved(tmp_path):
    torch.manual_seed(0)
    graph, _ = trainable(Modes().eval(), {"x": torch.randn(6, 8)}, linear="fixed(8,4)")
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    graph.export(str(tmp_path / "modes"))
    loaded = MaseGraph.from_checkpoint(str(tmp_path / "modes"))
    x = torch.randn(6, 8)
    assert torch.equal(loaded.model.eval()(x), graph.model.eval()(x))


def test_what_is_no_configuration_of_training_is_told():
    with pytest.raises(ValueError, match=r"training_base: pass is 'prune'; only quantize is available"):
        trainable(classifier(), {"input": torch.randn(4, 8)}, linear={"forward": {"pass": "prune", "name": "integer"}})
    with pytest.raises(ValueError, match="a configuration has forward and backward, not 'sideways'"):
        trainable(
            classifier(), {"input": torch.randn(4, 8)}, linear={"forward": "fixed(8,4)", "sideways": "fixed(8,4)"}
        )
