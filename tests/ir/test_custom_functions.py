"""autograd.Functions in models: one node each, with the gradients of the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from mase_server import MaseGraph, passes
from mase_server.ir.allowed import CheckpointError
from mase_server.ir.checkpoint import load


class Round(Function):
    """Rounds, and lets gradients through as they are."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.factor * grad, None


class Same(Function):
    """Gives back its very input."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class FusedLinear(Function):
    """With a context of its own, and a wrong gradient, so that no other can be taken for it."""

    @staticmethod
    def forward(x, weight):
        return torch.relu(x @ weight.t())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return 2 * grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2)


class Halves(Function):
    @staticmethod
    def forward(ctx, x, parts=2):
        return tuple(part.clone() for part in x.chunk(parts, -1))

    @staticmethod
    def backward(ctx, *grads):
        return 5 * torch.cat(grads, -1), None


class Double(Function):
    """Writes to its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 7 * grad


round_through = Round.apply  # taken before anything is recorded


class Uses(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.first, self.second, self.use = nn.Linear(4, 4), nn.Linear(4, 4), use

    def forward(self, x):
        return self.second(self.use(self, self.first(x)))


#: name -> how a model uses a function, the names of its nodes
USES = {
    "straight through": (lambda model, x: Round.apply(4 * x), ["Round"]),
    "by another name": (lambda model, x: round_through(4 * x), ["Round"]),
    "reversal": (lambda model, x: Reverse.apply(x, 0.5), ["Reverse"]),
    "a size as an argument": (lambda model, x: Reverse.apply(x, x.shape[1]), ["Reverse"]),
    "its very input": (lambda model, x: x + Same.apply(x), ["Same"]),
    "fused, with setup_context": (lambda model, x: FusedLinear.apply(x, model.first.weight), ["FusedLinear"]),
    "several results": (lambda model, x: torch.cat(Halves.apply(x)[::-1], -1), ["Halves"]),
    "twice": (lambda model, x: Round.apply(3 * Reverse.apply(Round.apply(4 * x), 2.0)), ["Round", "Reverse", "Round"]),
    "in place": (lambda model, x: Double.apply(x + 1), ["Double"]),
    "checkpoint": (lambda model, x: checkpoint(model.second, x, use_reentrant=False), []),
    "reentrant checkpoint": (lambda model, x: checkpoint(model.second, x, use_reentrant=True), []),
    "a function inside of a checkpoint": (
        lambda model, x: checkpoint(lambda y: Round.apply(4 * y), x, use_reentrant=True),
        ["Round"],
    ),
}


def gradients(module, parameters, x):
    x = x.clone().requires_grad_()
    out = module(x)
    (out * torch.arange(1.0, 1 + out.numel()).view(out.shape)).sum().backward()
    found = [x.grad, *(parameter.grad for parameter in parameters)]
    for parameter in parameters:
        parameter.grad = None
    return [out, *found]


@pytest.mark.parametrize("name", USES)
def test_results_and_gradients_through_the_graph_are_the_models(name):
    use, names = USES[name]
    torch.manual_seed(0)
    model = Uses(use)
    graph = MaseGraph(model, {"x": torch.randn(2, 3, 4)})
    functions = [node.target.__name__ for node in graph.nodes if type(node.target).__name__ == "CustomFunction"]
    assert functions == names
    for x in (torch.randn(2, 3, 4), torch.randn(5, 6, 4)):
        ours, theirs = (gradients(module, list(model.parameters()), x) for module in (graph.model, model))
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


def test_a_function_has_its_own_name_in_metadata():
    graph = MaseGraph(Uses(USES["straight through"][0]), {"x": torch.randn(2, 3, 4)})
    graph, _ = passes.add_common_metadata_analysis_pass(graph)
    node = next(node for node in graph.nodes if node.name == "round_1")
    assert node.meta["mase"]["common"]["mase_op"] == "Round"


def test_quantisation_leaves_a_function_as_it_is():
    graph = MaseGraph(Uses(USES["straight through"][0]), {"x": torch.randn(2, 3, 4)})
    graph, _ = passes.quantize_transform_pass(graph, {"linear": "fixed(16,8)"})
    assert [node for node in graph.nodes if type(node.target).__name__ == "CustomFunction"]
    graph.model(torch.randn(2, 3, 4))


def test_hardware_refuses_a_function_by_its_name():
    graph = MaseGraph(Uses(USES["straight through"][0]), {"x": torch.randn(2, 3, 4)})
    graph, _ = passes.add_common_metadata_analysis_pass(graph)
    with pytest.raises(ValueError, match="there is no component for Round"):
        passes.emit_verilog_top_analysis_pass(graph)


def test_a_checkpoint_names_a_function_and_never_imports_it(tmp_path):
    torch.manual_seed(0)
    model = Uses(USES["straight through"][0])
    graph = MaseGraph(model, {"x": torch.randn(2, 3, 4)})
    graph.export(str(tmp_path / "saved"))
    with pytest.raises(CheckpointError, match=r"the autograd.Function '.*test_custom_functions.Round'.*allow="):
        load(tmp_path / "saved")
    with pytest.raises(CheckpointError):
        load(tmp_path / "saved", allow=[Reverse])
    x = torch.randn(2, 3, 4)
    assert torch.equal(load(tmp_path / "saved", allow=[Round]).model(x), model(x))
