"""Whatever is done with a graph, the caller's model stays as it was; and graphs of one process do not add up."""

import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph, passes
from tests.ir.models import Convolutional, Mlp, result

LAYERS = {
    "linear": lambda: nn.Linear(6, 6),
    "norm": lambda: nn.BatchNorm1d(6),
    "layer_norm": lambda: nn.LayerNorm(6),
    "dropout": lambda: nn.Dropout(0.3),
    "in_place": lambda: nn.ReLU(inplace=True),
    "half": lambda: nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh()),
}


class Counting(nn.Module):
    """Writes to a buffer, an attribute and a list in its forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.last, self.seen = None, []

    def forward(self, x):
        self.calls.add_(1)
        self.last = x
        self.seen.append(x.shape)
        return x + self.calls


class Clipping(nn.Module):
    """Gives its weight and a buffer other data in its forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.layer.weight.data = self.layer.weight.data.clamp(-0.01, 0.01)
        self.calls.data = self.calls + 1
        return self.layer(x) + self.calls


LAYERS |= {"counting": Counting, "clipping": Clipping}


def everything(model):
    """All that a caller could see of a model."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "tensors": {name: (id(t), t.device, t.requires_grad, t.detach().clone()) for name, t in tensors.items()},
        "grads": {name: t.grad for name, t in tensors.items()},
        "modes": [module.training for module in model.modules()],
        "ids": [id(module) for module in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "lists": [list(module.seen) for module in model.modules() if isinstance(module, Counting)],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }


def assert_unchanged(model, before):
    after = everything(model)
    tensors, kept = after.pop("tensors"), before.pop("tensors")
    assert after == before
    assert tensors.keys() == kept.keys()
    for name, (*facts, value) in tensors.items():
        assert facts == list(kept[name][:-1])
        assert torch.equal(value, kept[name][-1])


def perhaps_refused(function, graph):
    """A pass that needs metadata works, or says which pass to run first, as earlier actions decide."""
    if any("mase_op" in node.meta.get("mase", {}).get("common", {}) for node in graph.nodes):
        function(graph)
    else:
        with pytest.raises(ValueError, match="run add_common_metadata_analysis_pass first"):
            function(graph)


ACTIONS = {
    "common": lambda g: passes.add_common_metadata_analysis_pass(g),
    "meta": lambda g: passes.add_common_metadata_analysis_pass(g, {"force_device_meta": True}),
    "other sizes": lambda g: passes.add_common_metadata_analysis_pass(g, {"dummy_in": {"input": torch.randn(9, 6)}}),
    "values": lambda g: [
        passes.add_common_metadata_analysis_pass(g),
        *(entry["value"] for node in g.nodes for entry in node.meta["mase"]["common"]["results"].values()),
    ],
    "check": lambda g: g.check_against(g.root, rtol=1e9),
    "cost": lambda g: g.scope_costs(),
    "code": lambda g: g.model.code,
    "software": lambda g: [
        passes.add_common_metadata_analysis_pass(g, {"add_value": False}),
        passes.add_software_metadata_analysis_pass(g),
    ],
    "perhaps too early": lambda g: perhaps_refused(passes.add_software_metadata_analysis_pass, g),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=5),
    st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_the_callers_model_is_unchanged(layers, actions, training, frozen):
    model = nn.Sequential(*(LAYERS[name]() for name in layers)).train(training)
    model.requires_grad_(not frozen)
    before = everything(model)
    graph = MaseGraph(model, {"input": torch.randn(4, 6)})
    for action in actions:
        ACTIONS[action](graph)
    assert_unchanged(model, before)


class Routed(nn.Module):
    """Which rows an expert gets is known with values only; so inputs are tried for real, on the caller's own model."""

    def __init__(self):
        super().__init__()
        self.norm, self.gate, self.counting = nn.BatchNorm1d(6), nn.Linear(6, 2), Counting()

    def forward(self, x):
        rows = self.gate(self.counting(self.norm(x))).argmax(-1).nonzero()
        return x[rows[:, 0]]


def test_inputs_are_found_where_values_decide_and_the_model_is_unchanged():
    model = Routed().train()
    before = everything(model)
    graph = MaseGraph(model)
    assert [tuple(value.shape)[1:] for value in graph.arguments.values()] == [(6,)]
    assert any(node.target is torch.Tensor.nonzero or node.target == "nonzero" for node in graph.nodes)
    assert_unchanged(model, before)


def test_the_callers_inputs_are_unchanged():
    x = torch.randn(4, 6)
    kept = x.clone()
    graph = MaseGraph(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2)), {"input": x}, add_metadata_args={})
    assert result(graph.nodes[1])["value"].min() >= 0
    assert torch.equal(x, kept)


def test_an_input_that_is_given_other_data_is_unchanged():
    class Giving(nn.Module):
        def forward(self, x):
            x.data = x.data * 2
            return x + 1

    x = torch.ones(4, 6)
    graph = MaseGraph(Giving(), {"x": x})
    assert x.tolist() == torch.ones(4, 6).tolist()
    assert graph.model(x).tolist() == torch.full((4, 6), 3.0).tolist()


def test_a_model_whose_forward_fails_is_unchanged():
    class Failing(nn.Sequential):
        def forward(self, input):
            super().forward(input)
            raise ArithmeticError("after everything")

    model = Failing(Counting(), nn.BatchNorm1d(6)).train()
    before = everything(model)
    with pytest.raises(ArithmeticError, match="after everything"):
        MaseGraph(model, {"input": torch.randn(4, 6)})
    assert_unchanged(model, before)


def test_the_options_that_were_given_are_unchanged():
    options = {"dummy_in": {"x": torch.randn(1, 28, 28)}, "add_value": False}
    kept = {**options, "dummy_in": dict(options["dummy_in"])}
    arguments = {"x": torch.randn(2, 28, 28)}
    passes.add_common_metadata_analysis_pass(MaseGraph(Mlp(), arguments), options)
    assert options.keys() == kept.keys()
    assert options["dummy_in"]["x"] is kept["dummy_in"]["x"]
    assert list(arguments) == ["x"]


def test_graphs_leave_no_trace_in_torch():
    before = (nn.Module.__call__, F.relu, torch.relu, torch.Tensor.add, len(vars(torch.fx.Tracer)))
    inference = torch._C._InferenceMode
    MaseGraph(Convolutional(), {"x": torch.randn(2, 3, 8, 8)}, add_metadata_args={})
    assert (nn.Module.__call__, F.relu, torch.relu, torch.Tensor.add, len(vars(torch.fx.Tracer))) == before
    assert torch._C._InferenceMode is inference


@pytest.mark.slow
def test_objects_do_not_grow_over_four_hundred_graphs():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def graphs(count):
        for _ in range(count):
            graph = MaseGraph(model, {"input": torch.randn(2, 4)}, custom_ops={"modules": {nn.ReLU: {}}})
            passes.add_common_metadata_analysis_pass(graph)
        del graph
        gc.collect()
        return len(gc.get_objects())

    graphs(20)
    before = graphs(1)
    assert graphs(400) - before < 400


class Cached(nn.Module):
    """Decodes with a cache in inference mode, as published inference code does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(8, 16, 4), persistent=False)

    @torch.inference_mode()
    def forward(self, x, start: int = 0):
        h = self.layer(x)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu_(1)
        self.cache[: x.shape[0], start : start + x.shape[1]] = h
        with torch.inference_mode(False):
            known = torch.arange(3)
        known += 1
        return h @ self.cache[: x.shape[0], : x.shape[1]].transpose(1, 2) + mask


def test_inference_mode_is_no_obstacle():
    model, x = Cached(), torch.randn(2, 5, 4)
    graph = MaseGraph(model, {"x": x})
    assert torch.equal(graph.module(x), model(x))
    assert not model.cache.is_inference(), "as it was"
    with torch.inference_mode():
        assert model.layer(x).is_inference(), "outside of a trace the mode is torch's own"
    assert MaseGraph(model) is not None, "nor for inputs that are searched for"
