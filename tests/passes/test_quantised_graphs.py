"""Quantised graphs of all kinds of layers: they are exported, they learn, they are annotated as often as one likes."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from mase_server import MaseGraph, passes
from mase_server.formats import parse
from mase_server.ir.number_formats import format_text, number_formats
from mase_server.passes.quantize.config import COMPUTES
from tests.ir.models import bert_inputs, bert_tiny


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(4, 6, num_layers=2, bidirectional=True)
        self.fc = nn.Linear(12, 2)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.fc(out[-1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(self.attention(x, x, x, need_weights=False)[0] + x)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.act, self.both = nn.EmbeddingBag(20, 8), nn.PReLU(), nn.Bilinear(8, 8, 3)

    def forward(self, ids):
        x = self.act(self.bag(ids))
        return self.both(x, x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(x))


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.lstm = nn.GRUCell(4, 8), nn.LSTMCell(4, 8)

    def forward(self, x, state):
        g = h = c = state
        for step in x:
            g = self.gru(step, g)
            h, c = self.lstm(step, (h, c))
        return g + h


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 5),
    )  # fmt: skip


MODELS = {
    "lstm": lambda: (Recurrent(nn.LSTM), {"x": torch.randn(5, 2, 4)}),
    "gru": lambda: (Recurrent(nn.GRU), {"x": torch.randn(5, 2, 4)}),
    "cells": lambda: (Cells(), {"x": torch.randn(3, 2, 4), "state": torch.randn(2, 8)}),
    "attention": lambda: (Attention(), {"x": torch.randn(2, 5, 16)}),
    "encoder": lambda: (Encoder(), {"x": torch.randn(2, 5, 16)}),
    "bags": lambda: (Bags(), {"ids": torch.randint(0, 20, (3, 4))}),
    "convolutions": lambda: (convolutional(), {"input": torch.randn(2, 3, 8, 8)}),
    "bert": lambda: (bert_tiny(), dict(bert_inputs())),
}
TEXTS = ("fixed(8,auto)", "mxint(8)", "scale_integer(8)")


def quantised(name, text):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    graph, found = passes.quantize_transform_pass(MaseGraph(model.eval(), inputs), {"default": text})
    assert len(found["quantised"]) >= 2
    return model, inputs, graph


def tensors(value):
    value = value.to_tuple() if hasattr(value, "to_tuple") else value
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_exported_and_gives_the_same(name, text):
    _, _, graph = quantised(name, text)
    feed = tuple(graph.knowledge.feed(graph.arguments))
    exported = torch.export.export(graph.model, feed)
    with torch.no_grad():
        for mine, theirs in zip(tensors(exported.module()(*feed)), tensors(graph.model(*feed)), strict=True):
            assert torch.equal(mine, theirs)


def gradients(model, run):
    """The parameters that a backward reaches."""
    model.zero_grad()
    sum((out.float() ** 2).sum() for out in tensors(run()) if out.requires_grad).backward()
    return {name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter_that_they_reach_in_the_model(name, text):
    model, inputs, graph = quantised(name, text)
    feed = graph.knowledge.feed(graph.arguments)
    reached = gradients(model, lambda: graph.model(*feed))
    assert reached >= gradients(model, lambda: model(**inputs)) - {"encoder.layers.0.self_attn.in_proj_bias"}
    assert len(reached) > 3


@pytest.mark.parametrize("name", MODELS)
def test_annotated_twice_every_operator_has_formats_on_arguments_and_results(name):
    _, _, graph = quantised(name, "fixed(8,auto)")
    for _ in range(2):
        graph, _ = passes.add_common_metadata_analysis_pass(graph, {"add_value": False})
        graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    checked = 0
    for node in graph.nodes:
        common = node.meta["mase"]["common"]
        if common["mase_op"] not in COMPUTES:
            continue
        entries = [entry for entry in common["args"].values() if isinstance(entry, dict) and "type" in entry]
        data = [entry for entry in (*entries, common["results"]["data_out_0"]) if entry["type"] in ("fixed", "float")]
        for entry in data:
            if not _is_statistic(entry):
                assert (entry["type"], entry["precision"][0]) == ("fixed", 8), node.name
                checked += 1
    assert checked >= 8


def _is_statistic(entry):
    """A running mean or variance, which are no data."""
    source = entry.get("from")
    return source is not None and "running_" in str(source.target)


@pytest.mark.parametrize("name", MODELS)
def test_what_metadata_say_is_what_the_values_are(name):
    """Every value whose format is told is one of that format: rounding it again changes nothing."""
    _, _, graph = quantised(name, "fixed(8,auto)")
    formats, values = number_formats(graph.fx_graph, graph.module), {}

    class Kept(torch.fx.Interpreter):
        def run_node(self, n):
            values[n] = super().run_node(n)
            return values[n]

    with torch.no_grad():
        Kept(graph.model).run(*graph.knowledge.feed(graph.arguments))
    rounded = {node: format for node, format in formats.items() if not _is_accumulator(node)}
    assert len(rounded) > 5
    for node, format in rounded.items():
        for tensor in tensors(values[node]):
            assert torch.equal(parse(str(format)).round(tensor), tensor), node.name


def _is_accumulator(node):
    """A value that is not rounded itself, but by all who read it."""
    return bool(node.users) and all(format_text(user) is not None for user in node.users)


def test_channels_have_scales_of_their_own():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 4, bias=False)), torch.randn(3, 8)
    with torch.no_grad():
        model[0].weight[2] *= 1000
    config = {"name": "scale_integer", "weight_width": 8, "weight_axis": 0}
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"input": x}), {"default": {"config": config}})
    scale = model[0].weight.detach().abs().amax(1) / 127
    with torch.no_grad():
        by_hand = torch.fake_quantize_per_channel_affine(
            model[0].weight, scale, torch.zeros(4, dtype=torch.int32), 0, -127, 127
        )
        assert torch.allclose(graph.model(x), x @ by_hand.T, rtol=1e-6)


def test_a_transformer_of_torchs_is_quantised_inside():
    torch.manual_seed(0)
    model, inputs = MODELS["encoder"]()
    graph, found = passes.quantize_transform_pass(MaseGraph(model.eval(), inputs))
    assert {"encoder_layers_0_self_attn", "encoder_layers_1_linear2", "relu_1", "head"} <= set(found["quantised"])
    graph, found = passes.measure_error_analysis_pass(graph)
    with torch.no_grad():
        x, y = model(**inputs).double(), graph.model(**inputs).double()
    assert found["output"].sqnr == pytest.approx(float(10 * torch.log10((x**2).sum() / ((x - y) ** 2).sum())), rel=1e-6)


@pytest.mark.parametrize(
    ("pass_args", "inside"),
    [({"by": "name", "head": "fixed(8,4)"}, False), ({"by": "scope", "encoder.layers.1": "fixed(8,4)"}, True)],
)
def test_it_is_taken_apart_only_where_something_inside_is_meant(pass_args, inside):
    model, inputs = MODELS["encoder"]()
    graph, found = passes.quantize_transform_pass(MaseGraph(model.eval(), inputs), pass_args)
    whole = [node for node in graph.nodes if node.op == "call_module" and node.target == "encoder"]
    assert (not whole) is inside
    assert found["unused"] == []


def test_roundings_read_as_calls_of_one_function_with_a_text():
    _, _, graph = quantised("attention", "fixed(8,auto)")
    rounded = [node for node in graph.nodes if format_text(node) is not None]
    assert all(re.fullmatch(r"fixed\(8,-?\d+\)", node.args[1]) for node in rounded)
    assert all(node.target.__name__ == "quantise" and not node.kwargs for node in rounded)


def test_quantising_changes_nothing_of_the_model():
    for name in MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        before = copy.deepcopy(model.eval().state_dict())
        graph, _ = passes.quantize_transform_pass(MaseGraph(model, inputs))
        with torch.no_grad():
            graph.model(*graph.knowledge.feed(graph.arguments))
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items()), name


def test_a_point_outside_of_the_width_is_verified_too():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(8, 4) * 1e4
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"input": x}), {"default": "fixed(4,auto)"})
    graph, _ = passes.add_common_metadata_analysis_pass(graph, {"add_value": False})
    graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    (relu,) = [node for node in graph.nodes if node.name == "_1"]
    assert relu.meta["mase"]["common"]["results"]["data_out_0"]["precision"][1] < 0
