"""Quantising modules in place, against roundings by hand and against the same on a graph."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

from mase_server import MaseGraph, passes
from tests.ir.models import bert_inputs, bert_tiny

INTEGER = {
    "name": "integer", "data_in_width": 8, "data_in_frac_width": 4, "weight_width": 8, "weight_frac_width": 6,
    "bias_width": 8, "bias_frac_width": 5, "data_out_width": 8, "data_out_frac_width": 4,
}  # fmt: skip


def fixed(x, width, fraction):
    return (x * 2**fraction).round().clamp(-(2 ** (width - 1)), 2 ** (width - 1) - 1) / 2**fraction


def quantised(model, **given):
    return passes.quantize_module_transform_pass(model, given)


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


def test_layers_of_a_type_are_rounded_as_by_hand():
    model, theirs = layers(), layers()
    given = copy.deepcopy(INTEGER)
    result, found = quantised(model, by="type", linear={"config": given}, default={"config": {"name": None}})
    assert result is model
    assert given == INTEGER, "the configuration is read, not eaten"

    def layer(x, own):
        return fixed(F.linear(fixed(x, 8, 4), fixed(own.weight, 8, 6), fixed(own.bias, 8, 5)), 8, 4)

    assert torch.equal(model(X), layer(layer(X, theirs[0]).relu(), theirs[2]))
    formats = {"weight": "integer(8,6)", "bias": "integer(8,5)", "data_in": "integer(8,4)", "data_out": "integer(8,4)"}
    assert found["quantised"] == {"0": formats, "2": formats}


@pytest.mark.parametrize(
    ("way", "key", "paths"),
    [("name", "2", {"2"}), ("regex_name", "[02]", {"0", "2"}), ("type", "relu", {"1"}), ("name", "7", set())],
)
def test_modules_are_chosen_by_type_name_or_expression(way, key, paths):
    _, found = quantised(layers(), **{"by": way, key: "fixed(8,4)"})
    assert set(found["quantised"]) == paths
    assert found["unused"] == ([] if paths else [key])


def test_only_what_is_below_a_path_is_rounded():
    model = nn.ModuleDict({"a": layers(), "b": layers()})
    _, found = quantised(model, linear="fixed(8,4)", only=["b"])
    assert set(found["quantised"]) == {"b.0", "b.2"}


def test_a_module_and_its_graph_are_rounded_alike():
    model = bert_tiny()
    inputs = bert_inputs()
    graph, _ = passes.quantize_transform_pass(
        MaseGraph(copy.deepcopy(model), inputs), {"linear": {"config": INTEGER}, "layer_norm": "fixed(12,8)"}
    )
    model, found = quantised(model, linear={"config": INTEGER}, layer_norm="fixed(12,8)")
    assert len(found["quantised"]) > 15
    with torch.no_grad():
        expected = graph.model(*graph.knowledge.feed(graph.arguments))["logits"]
        assert torch.equal(model(**inputs).logits, expected)
    traced = MaseGraph(model, inputs)
    assert traced.check_against(model)


def test_classes_names_and_training_stay():
    model = layers()
    quantised(model, linear="fixed(4,2)")
    assert isinstance(model[0], nn.Linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = model[0].weight.detach().clone()
    for _ in range(20):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
    assert not torch.equal(model[0].weight, first)
    assert torch.equal(fixed(model[0].weight, 4, 2), model[0].weight)
    copied = copy.deepcopy(model)
    copied.load_state_dict(model.state_dict())
    assert torch.equal(copied(X), model(X))


def test_layers_of_gpt_2_are_linear():
    torch.manual_seed(0)
    model = nn.Sequential(Conv1D(6, 8))
    nn.init.normal_(model[0].weight)
    weight = model[0].weight.detach().clone()
    quantised(model, linear={"config": {"name": "integer", "weight_width": 6, "weight_frac_width": 3}})
    assert torch.equal(model(X), torch.addmm(model[0].bias, X, fixed(weight, 6, 3)))


def test_a_format_is_chosen_by_the_weight_where_it_is_left_open():
    model = nn.Sequential(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model[0].weight.uniform_(-0.1, 0.1)
    weights = {"config": {"name": "integer", "weight_width": 8, "weight_frac_width": "auto"}}
    _, found = quantised(model, linear=weights)
    assert found["quantised"]["0"] == {"weight": "integer(8,10)"}


@pytest.mark.parametrize(
    ("model", "given", "text"),
    [
        (nn.LSTM(4, 4), {"default": "fixed(8,4)", "lstm": "fixed(8,4)"}, "is LSTM, whose parameters are used all at"),
        (nn.MultiheadAttention(4, 2), {"multihead_attention": "fixed(8,4)"}, "is MultiheadAttention, whose parameters"),
        (layers(), {"linear": "fixed(8,auto)"}, r"fixed\(8,auto\) for data has to be chosen on data"),
        (layers(), {"by": "colour"}, "by is 'colour', expected one of type, name, regex_name"),
        (layers(), {"liner": "fixed(8,4)"}, "quantize_module: it takes no 'liner'"),
        (
            layers(),
            {"linear": "fixed(8,4)", "gptq": {"rows": 3}},
            "gptq has no 'rows'; it takes data, samples, damping",
        ),
    ],
    ids=["recurrent", "attention", "open", "by", "type", "gptq"],
)
def test_what_cannot_be_done_is_told(model, given, text):
    with pytest.raises(ValueError, match=text):
        quantised(model, **given)


def test_the_inside_of_attention_is_left_alone():
    model = nn.TransformerEncoderLayer(8, 2, 16)
    _, found = quantised(model, linear="fixed(8,4)")
    assert set(found["quantised"]) == {"linear1", "linear2"}


# GPTQ


def correlated(count=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 8, generator=generator) @ torch.randn(8, 8, generator=generator)


WEIGHTS = {"config": {"name": "mxint", "weight_width": 3, "weight_block_size": [8]}}


def test_gptq_chooses_the_weights_that_the_graph_pass_chooses():
    model, x = layers(), correlated()
    graph, _ = passes.gptq_transform_pass(
        MaseGraph(copy.deepcopy(model), {"input": x}), {"default": "mxint(3,block_size=(8,))"}
    )
    theirs = copy.deepcopy(model)
    model, found = quantised(model, linear=WEIGHTS, gptq={"data": [x]})
    assert torch.equal(model(x), graph.model(x))
    assert found["inputs"] == "1 batch"
    plain, _ = quantised(copy.deepcopy(theirs), linear=WEIGHTS)
    with torch.no_grad():
        errors = [float((each(x) - theirs(x)).square().mean()) for each in (model, plain)]
    assert errors[0] < errors[1]
    assert all(each["error"] <= each["rounding_error"] for each in found["gptq"].values())


def test_gptq_needs_no_data_and_takes_labelled_batches():
    model, x = layers(), correlated()
    _, found = quantised(copy.deepcopy(model), linear=WEIGHTS, gptq=True)
    assert found["inputs"] == "random inputs"
    _, found = quantised(copy.deepcopy(model), linear=WEIGHTS, gptq={"data": [(x, torch.zeros(64))], "act_order": True})
    assert set(found["gptq"]) == {"0", "2"}


def test_a_weight_whose_scale_would_move_is_stored_as_it_is():
    model, x = nn.Sequential(nn.Linear(8, 6)), correlated()
    before = model[0].weight.detach().clone()
    weights = {"config": {"name": "scale_integer", "weight_width": 4}}
    quantised(model, linear=weights, gptq={"data": [x]})
    steps = model[0].weight.detach() / (before.abs().max() / 7)
    assert torch.allclose(steps, steps.round(), atol=1e-4)


def test_a_graph_is_quantised_as_a_graph():
    model, x = layers(), correlated()
    graph, found = passes.quantize_module_transform_pass(
        MaseGraph(model, {"input": x}), {"linear": "fixed(6,4)", "gptq": True}
    )
    assert set(found["gptq"]) == {"_0", "_2"}
    assert set(found["quantised"]) == {"_0", "_2"}
    hidden = fixed(F.linear(fixed(x, 6, 4), graph.module._0_gptq_weight, fixed(model[0].bias, 6, 4)), 6, 4).relu()
    expected = fixed(F.linear(hidden, graph.module._2_gptq_weight, fixed(model[2].bias, 6, 4)), 6, 4)
    assert torch.equal(graph.model(x), expected)
