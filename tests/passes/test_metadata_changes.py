"""Writing into the metadata: number formats by hand, values in other forms."""

import re

import numpy
import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes

Q_CONFIG = {"data_in_width": 8, "data_in_frac_width": 4, "data_out_width": 10, "data_out_frac_width": 5}


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.inner = nn.Embedding(10, 4), nn.Linear(4, 6)

    def forward(self, ids, bias):
        x = self.inner(self.words(ids)) + bias
        first, second = torch.chunk(x, 2, dim=-1)
        return torch.relu(first) * second


def mixed():
    torch.manual_seed(0)
    inputs = {"ids": torch.tensor([[1, 2, 3]]), "bias": torch.randn(6)}
    return MaseGraph(Mixed().eval(), inputs, add_metadata_args={}), inputs


def common(graph, name):
    return next(node for node in graph.nodes if node.name == name).meta["mase"]["common"]


def formats(graph, name, part):
    entries = common(graph, name)[part]
    return [(entry["type"], entry["precision"]) for entry in entries.values() if isinstance(entry, dict)]


def test_operators_of_python_inputs_and_outputs_get_the_format():
    graph, inputs = mixed()
    expected = graph.model(**inputs)
    graph, found = passes.patch_metadata_transform_pass(graph, {"q_config": Q_CONFIG})
    assert found["patched"] == ["bias", "add", "getitem", "getitem_1", "mul", "output"]
    assert formats(graph, "add", "args") == [("fixed", [8, 4])] * 2
    assert formats(graph, "mul", "results") == formats(graph, "bias", "results") == [("fixed", [10, 5])]
    assert formats(graph, "output", "args") == [("fixed", [8, 4])]
    assert formats(graph, "ids", "results") == [("int", [64])], "token ids have no fraction"
    assert formats(graph, "relu", "results") == formats(graph, "inner", "results") == [("float", [32])]
    assert torch.equal(graph.model(**inputs), expected)


def test_only_the_named_nodes_get_the_format():
    graph, _ = mixed()
    graph, found = passes.patch_metadata_transform_pass(graph, {"q_config": Q_CONFIG, "only": ["inner"]})
    assert found["patched"] == ["inner"]
    assert formats(graph, "inner", "args") == [("fixed", [8, 4]), ("float", [32]), ("float", [32])]


def test_any_format_can_be_written_and_one_side_alone():
    graph, _ = mixed()
    config = {"data_out_width": 8, "data_out_exponent_width": 4, "data_out_exponent_bias": 7}
    graph, _ = passes.patch_metadata_transform_pass(graph, {"precision": "minifloat_denorm", "q_config": config})
    assert formats(graph, "add", "results") == [("minifloat_denorm", [8, 4, 7])]
    assert formats(graph, "add", "args") == [("float", [32])] * 2


def test_annotating_again_tells_what_the_graph_computes():
    graph, _ = mixed()
    graph, _ = passes.patch_metadata_transform_pass(graph, {"q_config": Q_CONFIG})
    graph.annotate()
    assert formats(graph, "add", "results") == [("float", [32])]


@pytest.mark.parametrize(
    ("pass_args", "message"),
    [
        ({"q_config": {}}, "patch_metadata: q_config names no format; an example: {'data_in_width': 8"),
        ({"precision": "fixd", "q_config": Q_CONFIG}, "no number format is called 'fixd'"),
        ({"q_config": Q_CONFIG, "only": ["outer"]}, "only names 'outer', which is no node"),
        ({"config": Q_CONFIG}, "patch_metadata_transform_pass has no option 'config'"),
    ],
)
def test_what_cannot_be_written_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        passes.patch_metadata_transform_pass(mixed()[0], pass_args)


def values(graph):
    return {
        node.name: node.meta["mase"]["common"]["results"]["data_out_0"]["value"]
        for node in graph.nodes
        if node.op.startswith("call_") and "data_out_0" in node.meta["mase"]["common"]["results"]
    }


FORMS = [
    ("numpy", numpy.ndarray, lambda tensor: tensor.detach().numpy()),
    ("list", list, lambda tensor: tensor.detach().tolist()),
    ("float16", torch.Tensor, lambda tensor: tensor.half()),
    (lambda value: ("seen", value.shape), tuple, lambda tensor: ("seen", tensor.shape)),
]


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return numpy.array_equal(one, other) if isinstance(one, numpy.ndarray) else one == other


@pytest.mark.parametrize(("fn", "kind", "expected"), FORMS, ids=["numpy", "list", "float16", "function"])
def test_values_have_another_form(fn, kind, expected):
    graph, _ = mixed()
    before = values(graph)
    graph, found = passes.metadata_value_type_cast_transform_pass(graph, {"fn": fn})
    assert found["cast"] > len(before)
    for name, value in values(graph).items():
        assert isinstance(value, kind), name
        assert same(value, expected(before[name])), name
    assert same(common(graph, "inner")["args"]["weight"]["value"], expected(graph.module.inner.weight))


def test_integers_stay_integers_and_nothing_is_computed_before_it_is_read():
    graph, _ = mixed()
    seen = []
    graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"fn": "float16"})
    graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"fn": lambda value: seen.append(1) or value})
    assert seen == []
    assert common(graph, "words")["args"]["data_in_0"]["value"].dtype == torch.int64
    assert len(seen) == 1
    assert common(graph, "add")["results"]["data_out_0"]["value"].dtype == torch.float16


def test_only_the_named_nodes_are_cast():
    graph, _ = mixed()
    graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"only": ["relu"]})
    assert isinstance(common(graph, "relu")["results"]["data_out_0"]["value"], numpy.ndarray)
    assert isinstance(common(graph, "mul")["results"]["data_out_0"]["value"], torch.Tensor)


def test_statistics_that_hold_values_are_cast_too():
    graph, _ = mixed()
    node = next(node for node in graph.nodes if node.name == "relu")
    node.meta["mase"]["software"]["results"] = {"data_out_0": {"stat": {"record": {"value": torch.ones(2)}}}}
    graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"fn": "list"})
    assert node.meta["mase"]["software"]["results"]["data_out_0"]["stat"]["record"]["value"] == [1.0, 1.0]


def test_another_word_is_quoted():
    with pytest.raises(ValueError, match="fn is 'nump', expected a function or one of numpy, list, tensor, float64"):
        passes.metadata_value_type_cast_transform_pass(mixed()[0], {"fn": "nump"})
