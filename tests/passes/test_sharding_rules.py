"""What operators can do on split tensors: every rule, by splitting by hand, against the whole."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.passes.sharding.rules import describe_call, needs_whole, rules_of


class Calls(nn.Module):
    """One function of its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None, z=None):
        return self.function(*[each for each in (x, y, z) if each is not None])


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, IDS = randn(2, 4, 6), torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7]])
LAYERS = {
    "linear": (nn.Linear(6, 8, bias=False), X, {0, 1, 2, "P"}),
    "linear with a bias": (nn.Linear(6, 8), X, {0, 1, 2, "P"}),
    "embedding": (nn.Embedding(8, 6), IDS, {0, 1, 2}),
    "layer norm": (nn.LayerNorm(6), X, {0, 1}),
    "layer norm over two": (nn.LayerNorm((4, 6)), X, {0}),
    "conv2d": (nn.Conv2d(4, 6, 3), randn(2, 4, 6, 6), {0, 1}),
    "grouped conv2d": (nn.Conv2d(4, 6, 3, groups=2), randn(2, 4, 6, 6), {0}),
    "gelu": (nn.GELU(), X, {0, 1, 2}),
    "softmax": (nn.Softmax(dim=1), X, {0, 2}),
}  # fmt: skip
FUNCTIONS = {
    "product": (torch.matmul, (randn(2, 4, 6), randn(2, 6, 8)), {0, 1, 2, "P"}),
    "product with a matrix": (torch.matmul, (randn(2, 4, 6), randn(6, 8)), {0, 1, 2, "P"}),
    "product that is spread": (torch.matmul, (randn(2, 4, 4, 6), randn(4, 6, 8)), {0, 1, 2, 3, "P"}),
    "addmm": (torch.addmm, (randn(8), randn(4, 6), randn(6, 8)), {0, 1}),
    "addmm of a matrix": (torch.addmm, (randn(4, 8), randn(4, 6), randn(6, 8)), {0, 1}),
    "sum": (torch.add, (X, randn(4, 1)), {0, 1, 2}),
    "sum with one": (torch.add, (X, randn(1, 4, 6)), {0, 1, 2}),
    "where": (torch.where, (X > 0, X, randn(6)), {0, 1, 2}),
    "functional linear": (F.linear, (X, randn(8, 6), randn(8)), {0, 1, 2, "P"}),
    "attention": (F.scaled_dot_product_attention, tuple(randn(2, 4, n, 8) for n in (6, 6, 6)), {0, 1}),
    "attention of unlike heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (randn(2, 4, 6, 8), randn(2, 2, 6, 8), randn(2, 2, 6, 8)), set(),
    ),
    "log softmax": (lambda x: F.log_softmax(x, -1), (X,), {0, 1}),
    "joined": (lambda x, y: torch.cat([x, y], dim=1), (X, randn(2, 2, 6)), {0, 2}),
    "mean": (lambda x: x.mean(-1), (X,), set()),
    "sorted": (lambda x: torch.sort(x)[0], (X,), set()),
}  # fmt: skip


def found_rules(graph, node):
    found = describe_call(node, graph.facts, graph.module)
    first, *rest = rules_of(found, graph.facts)
    assert not first.is_split
    return found, rest


def halves(tensor, place):
    if place == "P":
        return [tensor, torch.zeros_like(tensor)]
    return [tensor, tensor] if place == "R" else list(tensor.chunk(2, place))


def joined(parts, place):
    if place == "P":
        return sum(parts)
    return parts[0] if place == "R" else torch.cat(parts, place)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_halves_gives_what_it_gives_on_the_whole(name):
    layer, x, places = LAYERS[name]
    model = nn.Sequential(copy.deepcopy(layer)).eval()
    graph = MaseGraph(model, {"input": x})
    node = next(node for node in graph.nodes if node.op == "call_module")
    _, others = found_rules(graph, node)
    assert {rule.output for rule in others} == places
    for rule in others:
        # Of a bias that is whole, each device adds its part.
        named = {key: halves(each.detach(), rule.parameters.get(key, "R")) for key, each in layer.named_parameters()}
        if rule.output == "P" and "bias" in named:
            named["bias"] = halves(layer.bias.detach(), "P")
        parts = []
        for half, given in enumerate(halves(x, rule.inputs[0])):
            own = {key: each[half] for key, each in named.items()}
            if name.startswith("conv"):
                parts.append(F.conv2d(given, own["weight"], own["bias"]))
            else:
                parts.append(torch.func.functional_call(model[0], own, (given,)))
        torch.testing.assert_close(joined(parts, rule.output), layer(x), msg=f"{rule}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_halves_gives_what_it_gives_on_the_whole(name):
    function, inputs, places = FUNCTIONS[name]
    graph = MaseGraph(Calls(function), dict(zip("xyz", inputs, strict=False)))
    node = next(node for node in graph.nodes if node.op.startswith("call_"))
    found, others = found_rules(graph, node)
    assert {rule.output for rule in others} == places
    given = {str(source.target): index for index, source in enumerate(found.inputs)}
    for rule in others:
        split = [halves(each, rule.inputs[given[key]]) for key, each in zip("xyz", inputs, strict=False)]
        if rule.output == "P" and name == "functional linear":
            split[2] = halves(inputs[2], "P")
        parts = [function(*half) for half in zip(*split, strict=True)]
        torch.testing.assert_close(joined(parts, rule.output), function(*inputs), msg=f"{rule}")


VIEWS = {
    "transposed": (lambda x: x.transpose(1, 2), (2, 4, 6), {(0, 0), (2, 1), (1, 2)}),
    "permuted": (lambda x: x.permute(2, 0, 1), (2, 4, 6), {(1, 0), (2, 1), (0, 2)}),
    "heads": (lambda x: x.view(2, 4, 2, 3), (2, 4, 6), {(0, 0), (1, 1), (2, 2)}),
    "heads joined": (lambda x: x.flatten(2), (2, 4, 2, 6), {(0, 0), (1, 1), (2, 2)}),
    "rows joined": (lambda x: x.reshape(-1, 6), (2, 4, 6), {(0, 0), (1, 2)}),
    "first half": (lambda x: x[:, :, :3], (2, 4, 6), {(0, 0), (1, 1)}),
    "every second": (lambda x: x[:, ::2], (2, 4, 6), {(0, 0), (2, 2)}),
    "chunks": (lambda x: torch.chunk(x, 3, dim=-1), (2, 4, 6), {(0, 0), (1, 1)}),
    "new dimension": (lambda x: x.unsqueeze(1), (2, 4, 6), {(0, 0), (2, 1), (3, 2)}),
    "expanded": (lambda x: x.expand(4, 2, 4, 6), (2, 4, 6), {(1, 0), (2, 1), (3, 2)}),
    "rolled": (lambda x: x.roll(1, 0), (2, 4, 6), set()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_halves_together(name):
    """The first half of what comes out has the very elements of the first half of what went in."""
    function, shape, pairs = VIEWS[name]
    x = torch.arange(float(torch.Size(shape).numel())).view(shape)
    graph = MaseGraph(Calls(function), {"x": x})
    node = next(node for node in graph.nodes if node.op.startswith("call_"))
    _, others = found_rules(graph, node)
    assert {(rule.output, rule.inputs[0]) for rule in others} == pairs
    result = function(x)
    first = result[0] if isinstance(result, tuple) else result
    for rule in others:
        for part, given in zip(halves(first, rule.output), halves(x, rule.inputs[0]), strict=True):
            assert set(part.flatten().tolist()) <= set(given.flatten().tolist()), rule


def test_what_is_picked_from_several_is_split_as_they_are():
    graph = MaseGraph(Calls(lambda x: torch.chunk(x, 3, dim=-1)[1] * 2), {"x": X})
    node = next(node for node in graph.nodes if node.name == "getitem")
    _, others = found_rules(graph, node)
    assert {(rule.output, rule.inputs) for rule in others} == {(0, (0,)), (1, (1,)), (2, (2,))}


def test_what_gives_tensors_of_several_kinds_needs_whole_ones():
    graph = MaseGraph(nn.Sequential(nn.LSTM(6, 4, batch_first=True)), {"input": X})
    needing = [node.name for node in graph.nodes if needs_whole(node, graph.facts)]
    assert needing == ["_0"]
    sizes = MaseGraph(Calls(lambda x: x.view(x.size(0), -1)), {"x": X})
    assert not any(needs_whole(node, sizes.facts) for node in sizes.nodes)


@pytest.mark.parametrize(
    ("format", "places"), [("fixed(8,4)", {0, 1, 2}), ("mxint(8)", set()), ("scale_integer(8)", set())]
)
def test_a_rounding_is_split_where_it_rounds_each_number_by_itself(format, places):
    graph = MaseGraph(Calls(torch.tanh), {"x": X})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "tanh": format})
    node = next(node for node in graph.nodes if node.name == "quantise")
    _, others = found_rules(graph, node)
    assert {rule.output for rule in others} == places
