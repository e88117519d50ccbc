"""MASE's configurations mean what they mean there: what they name is rounded, and nothing is passed over."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.formats import parse
from mase_server.ir.number_formats import format_text

X = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
INTEGER = {
    "name": "integer", "data_in_width": 8, "data_in_frac_width": 5, "weight_width": 6, "weight_frac_width": 4,
    "bias_width": 8, "bias_frac_width": 6,
}  # fmt: skip


def fixed(x, width, fraction, down=False):
    whole = (x * 2**fraction).floor() if down else (x * 2**fraction).round()
    return whole.clamp(-(2 ** (width - 1)), 2 ** (width - 1) - 1) / 2**fraction


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 6)).eval()


def quantised(entry, made=None):
    return passes.quantize_transform_pass(MaseGraph(made or model(), X), {"by": "type", "linear": entry})


def expected(down=False, out=None):
    layer = model()[0]
    weight, bias = fixed(layer.weight, 6, 4, down), fixed(layer.bias, 8, 6, down)
    result = F.linear(fixed(X, 8, 5, down), weight, bias)
    return result if out is None else fixed(result, *out, down)


@pytest.mark.parametrize("entry", [{"config": INTEGER}, INTEGER, {"config": {**INTEGER, "data_out": None}}])
def test_a_result_that_no_key_names_is_not_rounded(entry):
    graph, found = quantised(entry)
    assert torch.equal(graph.model(X), expected())
    assert found["quantised"] == {"_0": "integer(8,5)"}


def test_a_result_is_rounded_where_data_out_says_how():
    graph, found = quantised({"config": {**INTEGER, "data_out_width": 5, "data_out_frac_width": 2}})
    assert torch.equal(graph.model(X), expected(out=(5, 2)))
    assert found["quantised"] == {"_0": "integer(5,2)"}


def test_a_text_rounds_results_too():
    graph, _ = quantised("fixed(8,4)")
    layer = model()[0]
    assert torch.equal(
        graph.model(X), fixed(F.linear(fixed(X, 8, 4), fixed(layer.weight, 8, 4), fixed(layer.bias, 8, 4)), 8, 4)
    )


@pytest.mark.parametrize("argument", ["data_in", "weight", "bias"])
def test_an_argument_that_is_none_stays_as_it_is(argument):
    without = {key: value for key, value in INTEGER.items() if not key.startswith(argument)}
    graph, _ = quantised({"config": {**without, argument: None}})
    other, _ = quantised({"config": without})
    assert torch.equal(graph.model(X), other.model(X))
    assert not torch.equal(graph.model(X), expected())


def test_floor_rounds_everything_down():
    config = {**INTEGER, "data_out_width": 8, "data_out_frac_width": 3}
    graph, _ = quantised({"config": {**config, "floor": True}})
    assert torch.equal(graph.model(X), expected(down=True, out=(8, 3)))
    graph, _ = quantised({"config": {**config, "floor": False}})
    assert torch.equal(graph.model(X), expected(out=(8, 3)))


def test_bypass_leaves_a_layer_alone():
    graph, found = quantised({"config": {**INTEGER, "bypass": True}})
    assert torch.equal(graph.model(X), model()(X))
    assert found["quantised"] == {}
    graph, _ = quantised({"config": {**INTEGER, "bypass": False}})
    assert torch.equal(graph.model(X), expected())


def test_mases_keys_of_mxfp_are_the_widths_of_exponent_and_fraction():
    config = {
        "name": "mxfp", "data_in_block_size": 16, "data_in_exponent_width": 4, "data_in_frac_width": 3,
        "weight_block_size": 32, "weight_exponent_width": 2, "weight_frac_width": 1, "clip_search": False,
    }  # fmt: skip
    graph, _ = quantised({"config": config})
    assert [text for node in graph.nodes if (text := format_text(node))] == ["mxfp(8,4,block_size=(16,))", "mxfp(4,2)"]
    layer = model()[0]
    data, weight = parse("mxfp(8,4,block_size=16)").quantise(X), parse("mxfp(4,2)").quantise(layer.weight)
    assert torch.equal(graph.model(X), F.linear(data, weight, layer.bias))


def test_mases_keys_that_say_nothing_here_are_taken():
    binary = {"name": "binary", "weight_width": 1, "weight_stochastic": False, "weight_bipolar": True}
    ternary = {
        "name": "ternary", "weight_width": 2, "weight_scaling_factor": True, "weight_mean": None, "weight_max": None,
        "weight_median": None,
    }  # fmt: skip
    for config in (binary, ternary):
        assert quantised({"config": config})[1]["quantised"] == {"_0": config["name"]}


ERRORS = [
    ({**INTEGER, "weigth_width": 8}, "of integer has no key 'weigth_width'; did you mean 'weight_width'?"),
    ({**INTEGER, "data_out_fracwidth": 8}, "no key 'data_out_fracwidth'; did you mean 'data_out_frac_width'?"),
    ({**INTEGER, "weight_block_size": 8}, "the configuration of integer has no key 'weight_block_size'"),
    ({**INTEGER, "bypas": True}, "the configuration of integer has no key 'bypas'; did you mean 'bypass'?"),
    ({**INTEGER, "bypass": "yes"}, "bypass is 'yes', only True or False has a meaning here"),
    ({**INTEGER, "data_out": 8}, "data_out is 8, only None has a meaning here"),
    ({"name": "log", "weight_width": 8, "floor": True}, "floor is for formats that can round down, as integer can"),
    ({"name": "ternary", "weight_mean": 0.5}, "weight_mean is 0.5, only None has a meaning here"),
    ({"name": "mxint", "weight_width": 8, "clip_search": True}, "clip_search is True, only False has a meaning here"),
    ({"name": "mxfp", "weight_width": 6, "weight_exponent_width": 4, "weight_frac_width": 3}, "frac_width make 8"),
    ({"name": "mxfp", "weight_exponent_width": 1, "weight_frac_width": 2}, "no element type has width 4, exponent 1"),
    ({"name": "flexround", "weight_width": 8}, "flexround is no number format here: its roundings are learned"),
    ({"name": "lutnet", "weight_width": 8}, "lutnet is no number format here: it replaces layers by look-up tables"),
    ({"name": "logicnets", "data_in_width": 8}, "logicnets is no number format here: it is no format: quantise"),
    ({"name": "mxint_hardware", "weight_width": 8}, "mxint_hardware is no number format here: it is the arithmetic"),
    ({"name": "intger", "weight_width": 8}, "no number format is called 'intger'; did you mean 'integer'?"),
]


@pytest.mark.parametrize(("config", "message"), ERRORS, ids=[message[-30:] for _, message in ERRORS])
def test_what_says_nothing_is_refused_with_what_would_do(config, message):
    for function, network in (
        (passes.quantize_transform_pass, MaseGraph(model(), X)),
        (passes.quantize_module_transform_pass, model()),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            function(network, {"by": "type", "linear": {"config": config}})


def test_a_key_beside_a_configuration_is_refused():
    with pytest.raises(ValueError, match="'bypass' is beside 'config'"):
        quantised({"config": INTEGER, "bypass": True})


def test_what_the_other_names_are_called_is_told():
    with pytest.raises(ValueError, match=r"it takes no 'conv_2d'; did you mean 'conv2d'\?"):
        passes.quantize_transform_pass(MaseGraph(model(), X), {"conv_2d": {"config": INTEGER}})
    with pytest.raises(ValueError, match=r"has no option 'rnak'; did you mean 'rank'\?"):
        passes.insert_lora_adapter_transform_pass(MaseGraph(model(), X), {"rnak": 4})
