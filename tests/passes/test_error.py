"""measure, against errors computed outside with plain forward hooks on the eager model."""

import copy
import math

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.passes.error import CHUNK, GIVES, Error, Sums, measure, original_of
from tests.ir.models import bert_inputs, bert_tiny


def fixed(x, fraction_width=4):
    return torch.fake_quantize_per_tensor_affine(x, 2.0**-fraction_width, 0, -128, 127)


def decibels(reference, value):
    """By definition, in numpy's float64."""
    x, y = reference.detach().double().numpy(), value.detach().double().numpy()
    return 10 * math.log10((x**2).sum() / ((x - y) ** 2).sum())


def transformed(model, inputs, **pass_args):
    graph = MaseGraph(model, inputs)
    original = original_of(graph)
    graph, _ = passes.quantize_transform_pass(graph, pass_args)
    return original, graph.model, graph.knowledge.feed(graph.arguments)


class Rounds:
    """Forward hooks that round what layers get and give, as the pass does; and keep what they give."""

    def __init__(self, model, layers):
        self.kept = {}
        for name in layers:
            layer = model.get_submodule(name)
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.copy_(fixed(parameter))
            layer.register_forward_pre_hook(lambda layer, args: tuple(map(fixed, args)))
            layer.register_forward_hook(self.keep(name))

    def keep(self, name):
        def hook(layer, args, result):
            self.kept[name] = fixed(result)
            return self.kept[name]

        return hook


def hooked(model, x, names, rounded):
    """What the named layers of a copy give, rounded or as they are."""
    own, kept = copy.deepcopy(model), {}
    if rounded:
        rounds = Rounds(own, names)
        with torch.no_grad():
            return own(x), rounds.kept
    for name in names:
        own.get_submodule(name).register_forward_hook(lambda *given, name=name: kept.update({name: given[2]}))
    with torch.no_grad():
        return own(x), kept


def deep():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 20), nn.Tanh(), nn.Linear(20, 5)
    )


def test_errors_are_those_of_hooks_on_the_eager_model():
    torch.manual_seed(0)
    model, x = deep(), torch.randn(4, 3, 8, 8)
    names = ["0", "1", "3", "4", "5"]
    given, plain = hooked(model, x, names, rounded=False)
    got, rounded = hooked(model, x, names, rounded=True)
    errors = measure(*transformed(model, {"input": x}, default="fixed(8,4)"))
    assert set(errors.nodes) == {f"_{name}" for name in [*names, "2"]}
    for name in names:
        assert errors.nodes[f"_{name}"].sqnr == pytest.approx(decibels(plain[name], rounded[name]), rel=1e-9)
        largest = (plain[name].double() - rounded[name].double()).abs().max().item()
        assert errors.nodes[f"_{name}"].max_error == pytest.approx(largest, rel=1e-12)
    assert errors.output.sqnr == pytest.approx(decibels(given, got), rel=1e-9)
    assert errors.outputs == {"output": errors.output}


def test_the_local_error_is_what_a_layer_adds_to_exact_inputs():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)), torch.randn(16, 8)
    errors = measure(*transformed(model, {"input": x}, default="fixed(8,4)"), local=True)
    with torch.no_grad():
        middle = model[0](x)
        # The rounding of what goes in belongs to who gave it: here it is exact.
        rounded = fixed(F.linear(middle, fixed(model[1].weight), fixed(model[1].bias)))
        assert errors.local["_1"].sqnr == pytest.approx(decibels(model(x), rounded), rel=1e-9)
    assert errors.local["_1"].sqnr > errors.nodes["_1"].sqnr


def test_runs_are_summed_as_if_they_were_one():
    torch.manual_seed(0)
    model, x = deep(), torch.randn(6, 3, 8, 8)
    original, rounded, _ = transformed(model, {"input": x[:2]}, default="fixed(8,4)")
    whole = measure(original, rounded, [x])
    parts = measure(original, rounded, *[[part] for part in x.split(2)])
    assert parts.output.max_error == whole.output.max_error
    # Convolutions may add up in another order for another batch.
    assert parts.nodes["_5"].sqnr == pytest.approx(whole.nodes["_5"].sqnr, rel=1e-6)


def test_what_is_the_same_has_no_error():
    graph = MaseGraph(bert_tiny(), dict(bert_inputs()))
    errors = measure(original_of(graph), graph.model, graph.knowledge.feed(graph.arguments))
    assert len(errors.nodes) > 40
    assert set(errors.nodes.values()) == {Error(math.inf, 0.0)}
    assert errors.output == Error(math.inf, 0.0)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        scores = self.fc(x) @ x.transpose(-2, -1)
        masked = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
        return masked.softmax(-1)


def test_masked_scores_count_where_they_are_finite():
    torch.manual_seed(0)
    model, x = Masked(), torch.randn(2, 5, 8)
    errors = measure(*transformed(model, {"x": x}, by="type", linear="fixed(8,4)"))
    with torch.no_grad():
        mine = fixed(F.linear(fixed(x), fixed(model.fc.weight), fixed(model.fc.bias)))
        kept = torch.ones(5, 5).tril().bool().expand(2, 5, 5)
        expected = decibels((model.fc(x) @ x.mT)[kept], (mine @ x.mT)[kept])
    assert errors.nodes["masked_fill"].sqnr == pytest.approx(expected, rel=1e-9)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        y = self.fc(x)
        y[:, 0].add_(1.0)
        z = y + 1
        z.mul_(3)
        return z * 2


@pytest.mark.parametrize("local", [False, True])
def test_a_value_that_is_written_to_later_is_compared_as_it_was(local):
    torch.manual_seed(0)
    model, x = InPlace(), torch.randn(4, 8)
    errors = measure(*transformed(model, {"x": x}, by="type", linear="fixed(8,4)"), local=local)
    with torch.no_grad():
        theirs, mine = model.fc(x), fixed(F.linear(fixed(x), fixed(model.fc.weight), fixed(model.fc.bias)))
        assert errors.nodes["fc"].sqnr == pytest.approx(decibels(theirs, mine), rel=1e-9)
        for each in (theirs, mine):
            each[:, 0] += 1
        expected = decibels((theirs + 1) * 6, (mine + 1) * 6)
    assert errors.output.sqnr == pytest.approx(expected, rel=1e-9)
    if local:
        assert {errors.local[name] for name in ("add", "mul")} == {Error(math.inf, 0.0)}


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = self.first(x)
        return {"hidden": hidden, "logits": self.second(hidden)}


def test_outputs_are_named_and_taken_together():
    torch.manual_seed(0)
    model, x = Two(), torch.randn(3, 4)
    errors = measure(*transformed(model, {"x": x}, default="fixed(8,4)"))
    assert set(errors.outputs) == {"output.hidden", "output.logits"}
    got, _ = hooked(model, x, ["first", "second"], rounded=True)
    with torch.no_grad():
        given = model(x)
    both = [torch.cat([part["hidden"].flatten(), part["logits"].flatten()]) for part in (given, got)]
    assert errors.output.sqnr == pytest.approx(decibels(*both), rel=1e-9)
    assert errors.outputs["output.logits"] == errors.nodes["second"]


def test_a_node_that_takes_the_place_of_another_is_compared_with_that_one():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    with torch.no_grad():
        model[1].running_mean.uniform_(1, 2)
    graph = MaseGraph(model, {"input": torch.randn(1, 3, 8, 8)})
    original = original_of(graph)
    graph, _ = passes.conv_bn_fusion_transform_pass(graph)
    (fused,) = [node for node in graph.nodes if node.op == "call_module" and node.name == "_0"]
    fused.meta[GIVES] = "_1"
    errors = measure(original, graph.model, graph.knowledge.feed(graph.arguments))
    assert set(errors.nodes) == {"_1", "_2"}
    assert errors.nodes["_1"].sqnr > 100


def test_random_numbers_are_the_same_in_both_and_nothing_is_left_behind():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4)).train()
    graph = MaseGraph(model, {"input": torch.randn(16, 8)})
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    errors = measure(original_of(graph), graph.model, graph.knowledge.feed(graph.arguments))
    assert errors.output == Error(math.inf, 0.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        with torch.autocast("cpu", torch.bfloat16):
            x = self.second(x)
        return x.float() + 1


def test_autocast_of_one_run_does_not_reach_the_other():
    graph = MaseGraph(Autocast(), {"x": torch.randn(3, 8)})
    errors = measure(original_of(graph), graph.model, graph.knowledge.feed(graph.arguments))
    assert set(errors.nodes.values()) == {Error(math.inf, 0.0)}
    assert not torch.is_autocast_enabled("cpu")


def summed(reference, values):
    sums = Sums()
    sums.add(torch.as_tensor(reference), torch.as_tensor(values))
    return sums.error()


#: Worked by hand: 10 * log10(25 / 1), and the edges of the definition.
DEFINITION = [
    ([3.0, 4.0], [3.0, 3.0], Error(10 * math.log10(25), 1.0)),
    ([3.0, 4.0], [3.0, 4.0], Error(math.inf, 0.0)),
    ([0.0, 0.0], [0.0, 0.0], Error(math.inf, 0.0)),
    ([0.0, 0.0], [0.0, 0.5], Error(None, 0.5)),
    ([3.0, 4.0], [3.0, math.inf], Error(None, None)),
    ([3.0, math.nan], [3.0, 4.0], Error(None, None)),
    ([3.0, 4.0, -math.inf, math.nan], [3.0, 3.0, -math.inf, math.nan], Error(10 * math.log10(25), 1.0)),
    ([3 + 4j], [3 + 3j], Error(10 * math.log10(25), 1.0)),
    ([], [], Error(math.inf, 0.0)),
]


@pytest.mark.parametrize(("reference", "values", "expected"), DEFINITION)
def test_the_error_is_what_its_definition_says(reference, values, expected):
    assert summed(reference, values) == expected


def test_tensors_of_other_shapes_have_no_known_error():
    assert summed(torch.zeros(2), torch.zeros(3)) == Error(None, None)


def test_a_large_tensor_is_summed_in_parts():
    torch.manual_seed(0)
    x = torch.randn(CHUNK + 17)
    y = x + torch.randn_like(x) / 100
    assert summed(x, y).sqnr == pytest.approx(decibels(x, y), rel=1e-9)


class Wide(nn.Module):
    def forward(self, x):
        for _ in range(12):
            x = torch.sin(x) + 1
        return x.mean()


def test_values_are_dropped_when_nobody_needs_them_any_more():
    graph = MaseGraph(Wide(), {"x": torch.randn(1 << 12)})
    alive, most = set(), 0
    original, module = original_of(graph), graph.model

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal most
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.dtype == torch.float32 and out.numel() == 1 << 12:
                alive.add(torch.multiprocessing.reductions.StorageWeakRef(out.untyped_storage()))
                most = max(most, sum(not one.expired() for one in alive))
            return out

    with Counting():
        measure(original, module, graph.knowledge.feed(graph.arguments))
    assert most <= 8, f"{most} tensors at once of a chain of 24 in two graphs"


def test_saturated_values_are_those_that_numpy_counts():
    """Inputs, weights, biases and results of two layers, each rounded by hand; the second one is in a wide format."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    with torch.no_grad():
        for layer in model:
            layer.weight.mul_(12)
    x = 5 * torch.randn(40, 6)
    graph = MaseGraph(model, {"input": x})
    formats = {"by": "name", "_0": "fixed(6,2)", "_1": "fixed(16,6)"}
    graph, _ = passes.quantize_transform_pass(graph, formats)
    _, found = passes.measure_error_analysis_pass(graph)

    counts = {"_0": [0, 0], "_1": [0, 0]}

    def rounded(name, values, width, fraction):
        steps = values.astype(numpy.float64) * 2**fraction
        low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        counts[name][0] += int(((steps < low) | (steps > high)).sum())
        counts[name][1] += values.size
        return numpy.clip(numpy.rint(steps), low, high) / 2**fraction

    def layer(name, given, index, width, fraction):
        weight, bias = (rounded(name, each.detach().numpy(), width, fraction) for each in model[index].parameters())
        return given @ weight.T + bias

    first = layer("_0", rounded("_0", x.numpy(), 6, 2), 0, 6, 2)
    # What flows between the two is the first one's result; the second rounds it again, to its own format.
    between = rounded("_0", first, 6, 2)
    rounded("_1", layer("_1", rounded("_1", between, 16, 6), 1, 16, 6), 16, 6)
    shares = {name: saturated / total for name, (saturated, total) in counts.items()}
    assert 0.1 < shares["_0"] < 0.9
    assert found["saturated"] == pytest.approx(shares)
    assert found["saturation"] == pytest.approx(sum(each[0] for each in counts.values())
                                                / sum(each[1] for each in counts.values()))  # fmt: skip


def test_formats_that_follow_the_data_do_not_saturate():
    graph = MaseGraph(nn.Sequential(nn.Linear(6, 5)), {"input": torch.randn(4, 6)})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "scale_integer(8)"})
    _, found = passes.measure_error_analysis_pass(graph)
    assert (found["saturated"], found["saturation"]) == ({}, None)


def test_a_model_that_gives_indices_alone_has_no_known_error():
    class Best(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)

        def forward(self, x):
            return self.layer(x).argmax(-1)

    errors = measure(*transformed(Best(), {"x": torch.randn(4, 6)}, default="fixed(4,2)"))
    assert (errors.outputs, errors.output) == ({}, Error(None, None))
