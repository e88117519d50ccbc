"""quantize_transform_pass, against forwards rounded by hand with torch's own kernels."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.passes.sparsity import zeros_of_pruned
from tests.ir.models import bert_inputs, bert_tiny, node_named

INT8 = {
    "name": "integer", "data_in_width": 8, "data_in_frac_width": 4, "weight_width": 8, "weight_frac_width": 6,
    "data_out_width": 8, "data_out_frac_width": 4,
    "bias_width": 8, "bias_frac_width": 5,
}  # fmt: skip


def fixed(x, fraction_width):
    """8-bit fixed point as torch's fake quantisation has it."""
    return torch.fake_quantize_per_tensor_affine(x, 2.0**-fraction_width, 0, -128, 127)


def data(x):
    return fixed(x, 4)


def weight(x):
    return fixed(x, 6)


def bias(x):
    return fixed(x, 5)


def quantised(model, inputs, **pass_args):
    graph = MaseGraph(model, inputs)
    return passes.quantize_transform_pass(graph, pass_args)


class Functional(nn.Module):
    """Every way in which a product is written."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))

    def forward(self, x):
        y = F.linear(x, self.weight)
        return torch.relu(y @ y.transpose(1, 2))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        out = self.fc(x)
        out += x
        return out


class Causal(nn.Module):
    """Attention as it is written by hand."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return scores.masked_fill(mask, float("-inf")).softmax(-1) @ v


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
        self.head = nn.Linear(8, 2)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)))


LAYERS = [
    (nn.Linear(8, 4), torch.randn(5, 8) * 3, lambda m, x: F.linear(x, weight(m.weight), bias(m.bias))),
    (nn.Linear(8, 4, bias=False), torch.randn(5, 8), lambda m, x: F.linear(x, weight(m.weight))),
    (
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        torch.randn(2, 4, 9, 9),
        lambda m, x: F.conv2d(x, weight(m.weight), bias(m.bias), 2, 1, 1, 2),
    ),
    (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        torch.randn(2, 4, 5, 5),
        lambda m, x: F.conv_transpose2d(x, weight(m.weight), bias(m.bias), 2, 1, 1),
    ),
    (nn.LayerNorm(8), torch.randn(3, 8), lambda m, x: F.layer_norm(x, (8,), weight(m.weight), bias(m.bias))),
    (nn.GroupNorm(2, 4), torch.randn(3, 4, 5), lambda m, x: F.group_norm(x, 2, weight(m.weight), bias(m.bias))),
    (nn.RMSNorm(8), torch.randn(3, 8), lambda m, x: F.rms_norm(x, (8,), weight(m.weight))),
    (nn.ReLU(), torch.randn(3, 8), lambda m, x: F.relu(x)),
    (nn.GELU(), torch.randn(3, 8), lambda m, x: F.gelu(x)),
    (nn.Softmax(-1), torch.randn(3, 8), lambda m, x: F.softmax(x, -1)),
    (nn.AvgPool2d(2), torch.randn(3, 2, 4, 4), lambda m, x: F.avg_pool2d(x, 2)),
]


@pytest.mark.parametrize(("layer", "x", "by_hand"), LAYERS, ids=lambda case: type(case).__name__)
def test_a_layer_rounds_what_goes_in_its_parameters_and_what_comes_out(layer, x, by_hand):
    model = nn.Sequential(layer)
    graph, _ = quantised(model, {"input": x}, default={"config": INT8})
    with torch.no_grad():
        assert torch.equal(graph.model(x), data(by_hand(layer, data(x))))


def rounded_copy(layer):
    """The layer with parameters rounded once and for all."""
    made = copy.deepcopy(layer)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(bias(parameter) if "bias" in name else weight(parameter))
    return made


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.BatchNorm2d(4), torch.randn(3, 4, 5, 5)),
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), torch.randn(1, 2, 6, 6)),
    ],
    ids=lambda case: type(case).__name__,
)
@pytest.mark.parametrize("training", [False, True])
def test_a_layer_with_more_to_it_than_a_function_is_called_with_rounded_parameters(layer, x, training):
    model = nn.Sequential(copy.deepcopy(layer)).train(training)
    by_hand = rounded_copy(layer).train(training)
    graph, _ = quantised(model, {"input": x}, default={"config": INT8})
    with torch.no_grad():
        assert torch.equal(graph.model(x), data(by_hand(data(x))))
    for name, buffer in by_hand.named_buffers():
        assert torch.equal(model[0].get_buffer(name), buffer), name


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(4, 6, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(12, 2)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.fc(out[:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_rounds_its_weights_and_what_is_taken_from_its_results(kind):
    model, x = Recurrent(kind).eval(), torch.randn(2, 5, 4)
    graph, found = quantised(model, {"x": x}, default={"config": INT8})
    with torch.no_grad():
        out = data(rounded_copy(model.rnn)(data(x))[0])[:, -1]
        expected = data(F.linear(out, weight(model.fc.weight), bias(model.fc.bias)))
        assert torch.equal(graph.model(x), expected)
    graph.annotate(add_value=False)
    common = node_named(graph, "rnn").meta["mase"]["common"]
    assert common["mase_op"] == kind.__name__.lower()
    assert {common["args"][name]["type"] for name in ("data_in_0", "weight_ih_l0", "bias_hh_l0")} == {"integer"}
    assert found["quantised"] == {"rnn": "integer(8,4)", "fc": "integer(8,4)"}


def test_functions_and_operators_are_rounded_as_layers_are():
    model, x = Functional(), torch.randn(2, 3, 8)
    graph, _ = quantised(model, {"x": x}, default={"config": INT8})
    with torch.no_grad():
        y = data(F.linear(data(x), weight(model.weight)))
        assert torch.equal(graph.model(x), data(torch.relu(data(y @ y.transpose(1, 2)))))


def test_a_sum_in_place_is_rounded_and_leaves_its_operands_alone():
    model, x = Residual(), torch.randn(2, 8)
    before = x.clone()
    graph, _ = quantised(model, {"x": x}, default={"config": INT8})
    with torch.no_grad():
        y = data(F.linear(data(x), weight(model.fc.weight), bias(model.fc.bias)))
        assert torch.equal(graph.model(x), data(y + data(x)))
    assert torch.equal(x, before)


class Joined(nn.Module):
    """Positions are added in place to what `cat` made, as vision transformers do."""

    def __init__(self):
        super().__init__()
        self.first, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 4, 8))

    def forward(self, x):
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1)
        x += self.positions
        return x


class Part(nn.Module):
    """What is changed in place is a part of something else, which is read later."""

    def forward(self, x):
        y = x * 2
        y[:, 0].add_(x[:, 1])
        return y


def test_what_a_copy_gives_is_rounded_although_it_is_changed_in_place():
    model, x = Joined(), torch.randn(2, 3, 8)
    graph, found = quantised(model, {"x": x}, default={"config": INT8})
    assert [*found["quantised"].values()] == ["integer(8,4)"]
    with torch.no_grad():
        joined = data(torch.cat((model.first.expand(2, -1, -1), x), dim=1))
        assert torch.equal(graph.model(x), data(joined + data(model.positions)))


def test_what_changes_a_part_of_something_else_stays_as_it_is():
    graph, found = quantised(Part(), {"x": (x := torch.randn(2, 3, 8))}, default={"config": INT8}, add="fixed(8,4)")
    got = graph.model(x)
    assert torch.equal(got[:, 0], data(data(x) * 2)[:, 0] + x[:, 1]), found


@pytest.mark.parametrize("training", [False, True])
def test_a_dropout_is_rounded_after_only_where_it_does_something(training):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 4)).train(training)
    graph, _ = quantised(model, {"input": torch.randn(2, 8)}, default={"config": INT8})
    (dropout,) = [node for node in graph.nodes if node.name == "_1"]
    assert [user.name == "_2" for user in dropout.users] == [not training]


def test_minus_infinity_stays_what_it_is():
    """Rounded, -inf would be -8: a masked position would get a weight."""
    model, x = Causal(), torch.randn(2, 5, 8)
    graph, _ = quantised(model, {"x": x}, default={"config": INT8})
    with torch.no_grad():
        q, k, v = data(F.linear(data(x), weight(model.qkv.weight), bias(model.qkv.bias))).chunk(3, dim=-1)
        scores = data(q @ k.transpose(-2, -1))
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        weights = data(scores.masked_fill(mask, float("-inf")).softmax(-1))
        assert torch.equal(graph.model(x), data(weights @ v))


def test_by_type_takes_what_it_names_and_nothing_else():
    _, found = quantised(Layers(), {"ids": torch.arange(4)[None]}, by="type", gelu="mxint(8)", linear={"config": INT8})
    assert found["quantised"] == {"block_0": "integer(8,4)", "block_1": "mxint(8)", "head": "integer(8,4)"}


def test_by_name_takes_nodes_and_modules():
    pass_args = {"by": "name", "block.0": "fixed(8,4)", "head": "log(8)", "nothing": "binary"}
    _, found = quantised(Layers(), {"ids": torch.arange(4)[None]}, **pass_args)
    assert found == {
        "quantised": {"block_0": "fixed(8,4)", "head": "log(8)"},
        "left": dict.fromkeys(("table", "block_1", "block_2"), "not quantised: it was given no format"),
        "unused": ["nothing"],
        "calibrated": None,
    }


def test_by_regex_takes_the_first_that_matches():
    pass_args = {"by": "regex_name", r"block\.[01]": "fixed(8,4)", r".*": {"config": {"name": None}}}
    _, found = quantised(Layers(), {"ids": torch.arange(4)[None]}, **pass_args, default="binary")
    assert found["quantised"] == {"block_0": "fixed(8,4)", "block_1": "fixed(8,4)"}


def test_by_scope_takes_everything_below_the_longest_that_fits():
    pass_args = {"by": "scope", "block": "fixed(8,4)", "block.2": "mxint(8)"}
    _, found = quantised(Layers(), {"ids": torch.arange(4)[None]}, **pass_args)
    assert found["quantised"] == {"block_0": "fixed(8,4)", "block_1": "fixed(8,4)", "block_2": "mxint(8)"}


def test_name_none_leaves_everything_as_it_was():
    model, ids = Layers(), torch.arange(4)[None]
    graph = MaseGraph(model, {"ids": ids})
    before = [str(node.target) for node in graph.nodes]
    graph, found = passes.quantize_transform_pass(graph, {"by": "type", "default": {"config": {"name": None}}})
    assert found["quantised"] == {}
    assert [str(node.target) for node in graph.nodes] == before


def test_the_second_time_nothing_is_added():
    graph, _ = quantised(Layers(), {"ids": torch.arange(4)[None]}, default={"config": INT8})
    before = len(graph.nodes)
    graph, _ = passes.quantize_transform_pass(graph, {"default": {"config": INT8}})
    assert len(graph.nodes) == before


def test_metadata_is_right_on_arguments_and_results_and_may_be_made_again():
    graph, _ = quantised(Layers(), {"ids": torch.arange(4)[None]}, default={"config": INT8})
    for _ in range(2):
        graph, _ = passes.add_common_metadata_analysis_pass(graph, {"add_value": False})
        passes.verify_common_metadata_analysis_pass(graph)
        common = node_named(graph, "head").meta["mase"]["common"]
        formats = {name: (entry["type"], entry["precision"]) for name, entry in common["args"].items()}
        assert formats == {"data_in_0": ("integer", [8, 4]), "weight": ("integer", [8, 6]), "bias": ("integer", [8, 5])}
        assert common["mase_op"] == "linear"
        assert (common["results"]["data_out_0"]["type"], common["results"]["data_out_0"]["precision"]) == (
            "integer",
            [8, 4],
        )
        ids = node_named(graph, "ids").meta["mase"]["common"]["results"]["data_out_0"]
        assert (ids["type"], ids["precision"]) == ("int", [64])


def test_the_average_width_is_that_of_the_formats():
    graph, _ = quantised(nn.Sequential(nn.Linear(4, 4)), {"input": torch.randn(2, 4)}, default={"config": INT8})
    graph.annotate(add_value=False)
    found = passes.calculate_avg_bits_mg_analysis_pass(graph)[1]
    assert (found["data_avg_bit"], found["w_avg_bit"]) == (8.0, 8.0)


def test_the_parameters_stay_as_they_were_and_learn():
    model, x = nn.Sequential(nn.Linear(8, 1)), torch.randn(64, 8)
    before = copy.deepcopy(model.state_dict())
    graph, _ = quantised(model, {"input": x}, default="fixed(12,8)")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    target, optimiser = x.sum(1, keepdim=True) / 4, torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(100):
        optimiser.zero_grad()
        loss = F.mse_loss(graph.model(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 50


def test_a_quantised_graph_survives_a_checkpoint(tmp_path):
    model, x = Recurrent(nn.LSTM).eval(), torch.randn(2, 5, 4)
    graph, _ = quantised(model, {"x": x}, default={"config": INT8})
    graph.annotate(add_value=False)
    graph.export(str(tmp_path / "saved"))
    loaded = MaseGraph.from_checkpoint(str(tmp_path / "saved"))
    with torch.no_grad():
        assert torch.equal(loaded.model(x), graph.model(x))
    common = node_named(loaded, "fc").meta["mase"]["common"]
    assert common["results"]["data_out_0"]["precision"] == [8, 4]


def test_bert_runs_in_eight_bits_without_rounding_its_masks():
    model = bert_tiny()
    inputs = dict(bert_inputs())
    graph, found = quantised(model, inputs, default="fixed(16,10)")
    assert len(found["quantised"]) > 20
    with torch.no_grad():
        got, expected = graph.model(*graph.knowledge.feed(graph.arguments)), model(**inputs)
    got = got[0] if isinstance(got, tuple) else next(iter(got.values()))
    error = (got - expected[0]).abs().max()
    assert error < 0.05, f"16 bits should be close to float, {error}"
    assert error > 0


ERRORS = [
    ({"by": "color"}, "quantize: by is 'color', expected one of type, name, regex_name, scope"),
    ({"linera": "fixed(8,4)"}, "quantize: it takes no 'linera'; did you mean 'linear'?"),
    ({"0": "fixed(8,4)"}, "quantize: '0' is the name of a layer: give by=name to choose by names"),
    (
        {"linear": {"width": 8}},
        'quantize: {\'width\': 8} is no configuration; examples: {"config": {"name": None}} or "fixed(8,4)"',
    ),
    ({"default": "fixd(8,4)"}, "no number format is called 'fixd'"),
    ({"default": {"config": {"name": "integer", "data_in_width": 8}}}, "lacks data_in_frac_width"),
]


@pytest.mark.parametrize(("pass_args", "message"), ERRORS)
def test_what_cannot_be_read_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quantised(nn.Sequential(nn.Linear(2, 2)), {"input": torch.randn(1, 2)}, **pass_args)


def test_a_layer_whose_weight_is_made_of_others_is_rounded_in_these():
    """Weight normalisation, as speech models have it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1), dim=2))
    x = torch.randn(2, 4, 9)
    graph, _ = quantised(model, {"input": x}, conv1d="fixed(8,5)")
    theirs = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(fixed(parameter, 5))
    assert torch.equal(graph.model(x), fixed(theirs(fixed(x, 5)), 5))


class Masked(nn.Module):
    def forward(self, x, ids):
        seen = (ids > 0).float()
        scores = (x @ x.mT).masked_fill(ids == 0, -torch.inf)
        return torch.exp(scores) * seen.clamp(min=1) + x.sqrt()


def test_each_operator_that_is_left_tells_its_own_reason():
    given = {"x": torch.rand(4, 4), "ids": torch.arange(4)}
    _, found = quantised(Masked(), given, default="fixed(8,4)", exp={"name": None})
    why = {name: text.removeprefix("not quantised: ") for name, text in found["left"].items()}
    alone = "it is computed from sizes, masks or whole numbers alone"
    assert why == {
        "float_1": alone,
        "clamp": alone,
        "masked_fill": "its values hold a mask, which rounding would spoil",
        "exp": "its configuration, exp, leaves it as it is",
        "sqrt": "sqrt is only rounded if a key names it",
    }


def test_a_pruned_weight_is_masked_and_then_rounded_once():
    """The mask is no value of the model: neither it nor the product with it has a format of its own."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(2, 8)
    graph, _ = passes.prune_transform_pass(MaseGraph(model, {"input": x}), {"weight": {"sparsity": 0.5}})
    graph, told = passes.quantize_transform_pass(graph, {"by": "type", "linear": {"config": INT8}})
    assert list(told["quantised"]) == ["_0"]
    assert not [name for name in told["left"] if "mul" in name]
    taken = model[0].weight.abs() <= model[0].weight.abs().flatten().kthvalue(32).values
    masked = weight(model[0].weight * ~taken)
    expected = F.relu(data(F.linear(data(x), masked, bias(model[0].bias))))
    assert torch.equal(graph.module(x), expected)
    assert zeros_of_pruned(graph)[node_named(graph, "_0")].share == 0.5
