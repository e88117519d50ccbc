"""Modules taken together as one node, and apart again: the graph computes what the model does, at every level."""

import copy
import re

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from tests.examples.cases import CASES
from tests.ir.models import bert_inputs, bert_tiny


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x, scale):
        halves = torch.chunk(self.up(x), 2, dim=-1)
        return halves[0].tanh() * scale, self.down(torch.cat(halves, dim=-1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.norm = Gate(), nn.LayerNorm(4)

    def forward(self, x):
        gated, mixed = self.gate(self.norm(x), 0.5)
        return x + gated + mixed


class Model(nn.Module):
    """One block is called twice, and something of another is used from outside."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.blocks[1].gate.shift = nn.Parameter(torch.randn(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = torch.relu(x)
        x = self.blocks[0](x)
        return (x + self.blocks[1].gate.shift) @ self.blocks[1].gate.up.weight.T


def case(**pass_args):
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(3, 4)
    graph, found = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}), pass_args)
    return model, x, graph, found["raised"]


def called(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_module"]


def test_modules_without_others_inside_become_one_node_each():
    model, x, graph, raised = case()
    assert set(raised) == {"blocks.0.gate", "blocks.1.gate"}
    assert called(graph) == [
        "blocks.0.norm", "blocks.0.gate", "blocks.1.norm", "blocks.1.gate", "blocks.0.norm", "blocks.0.gate",
    ]  # fmt: skip
    assert torch.equal(graph.model(x), model(x))


def test_the_largest_modules_become_one_node_each():
    model, x, graph, raised = case(level="outermost")
    assert set(raised) == {"blocks.0", "blocks.1"}
    assert called(graph) == ["blocks.0", "blocks.1", "blocks.0"]
    assert torch.equal(graph.model(x), model(x))


@pytest.mark.parametrize(
    ("only", "level", "names"),
    [
        (["blocks.1"], "outermost", {"blocks.1"}),
        (["blocks.1"], "innermost", {"blocks.1.gate"}),
        (["blocks"], "outermost", {"blocks.0", "blocks.1"}),
        (["chunk_1"], "innermost", {"blocks.1.gate"}),
        ([""], "outermost", {"blocks.0", "blocks.1"}),
    ],
)
def test_only_what_is_named_is_taken_together(only, level, names):
    model, x, graph, raised = case(only=only, level=level)
    assert set(raised) == names
    assert torch.equal(graph.model(x), model(x))


def test_the_parameters_are_those_of_the_model_and_the_model_stays_as_it_was():
    model, x, graph, _ = case(level="outermost")
    assert {name for name, _ in graph.model.named_parameters()} >= {name for name, _ in model.named_parameters()}
    own = {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for parameter in graph.model.parameters()} == own
    assert type(model.blocks[0]) is Block
    graph.model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_was_taken_together_is_taken_apart_into_what_it_was():
    model, x, graph, _ = case(level="outermost")
    before = [(node.op, node.target) for node in MaseGraph(model, {"x": x}).nodes if node.op != "get_attr"]
    graph, found = passes.lower_granularity_transform_pass(graph)
    assert [(node.op, node.target) for node in graph.nodes if node.op != "get_attr"] == before
    assert found == {"lowered": ["blocks.0", "blocks.1", "blocks.0"], "kept": {}}
    assert torch.equal(graph.model(x), model(x))


def test_a_level_above_another_holds_it():
    model, x, graph, _ = case()
    graph, _ = passes.raise_granularity_transform_pass(graph, {"level": "outermost"})
    assert called(graph) == ["blocks.0", "blocks.1", "blocks.0"]
    assert torch.equal(graph.model(x), model(x))
    graph, _ = passes.lower_granularity_transform_pass(graph, {"only": ["blocks.1"]})
    assert called(graph).count("blocks.1.norm") == 1
    assert "blocks.0" in called(graph)
    assert torch.equal(graph.model(x), model(x))


def test_roundings_are_taken_along():
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(3, 4)
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"x": x}), {"by": "type", "linear": "fixed(8,4)"})
    expected = graph.model(x)
    assert not torch.equal(expected, model(x))
    graph, _ = passes.raise_granularity_transform_pass(graph, {"level": "outermost"})
    assert {"blocks.0", "blocks.1"} <= set(called(graph))
    assert torch.equal(graph.model(x), expected)
    graph, _ = passes.lower_granularity_transform_pass(graph)
    assert torch.equal(graph.model(x), expected)


def test_a_graph_of_modules_is_annotated_and_verified():
    model, inputs = bert_tiny(), dict(bert_inputs())
    graph, _ = passes.raise_granularity_transform_pass(MaseGraph(model, inputs))
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    assert graph.check_against(model)
    attention = next(node for node in graph.nodes if str(node.target).endswith("attention.self"))
    assert attention.meta["mase"]["common"]["mase_op"] == "bert_self_attention"


@pytest.mark.parametrize("level", ["innermost", "outermost"])
@pytest.mark.parametrize("example", CASES, ids=lambda case: case.file)
def test_an_example_stays_what_it_computes(example, level):
    torch.manual_seed(0)
    model = example.build(example.load()).eval()
    graph = MaseGraph(model, example.inputs(example.sizes))
    count = len(graph.nodes)
    graph, found = passes.raise_granularity_transform_pass(graph, {"level": level})
    assert len(graph.nodes) < count or not found["raised"]
    assert graph.check_against(model)
    graph, found = passes.lower_granularity_transform_pass(graph)
    assert len(graph.nodes) >= count
    assert found["kept"] == {}
    assert graph.check_against(model)


def test_a_module_costs_what_its_nodes_cost():
    model, x, graph, _ = case(level="outermost")
    before, after = MaseGraph(model, {"x": x}).scope_costs()[""], graph.scope_costs()[""]
    assert (after.flops, after.matmul_flops) == (before.flops, before.matmul_flops)
    assert after.flops > 1000


def test_a_graph_holds_at_other_sizes_too():
    model, _, graph, _ = case(level="outermost")
    other = torch.randn(7, 4)
    assert torch.equal(graph.model(other), model(other))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_transformer_of_torch_is_taken_apart(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.TransformerDecoder(layer, 2).eval()
    inputs = {"tgt": torch.randn(2, 5, 8), "memory": torch.randn(2, 3, 8)}

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, tgt, memory):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            return self.inner(tgt, memory, tgt_mask=mask)

    graph, found = passes.lower_granularity_transform_pass(MaseGraph(around := Around().eval(), inputs))
    assert found == {"lowered": ["inner"], "kept": {}}
    assert called(graph).count("inner.layers.1.self_attn") == 1
    assert graph.check_against(around)
    changed = {"tgt": torch.randn(2, 5, 8), "memory": torch.randn(2, 3, 8)}
    torch.testing.assert_close(graph.model(**changed), around(**changed))


@pytest.mark.parametrize(
    ("pass_args", "message"),
    [
        ({"level": "middle"}, "raise_granularity: level is 'middle', expected innermost or outermost"),
        ({"only": ["block"]}, "only names 'block', which is no node and no module of this graph"),
    ],
)
def test_what_cannot_be_done_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        case(**pass_args)


class Restored(nn.Module):
    """Its second call reads what its first one kept."""

    def forward(self, x, way):
        if way == "out":
            self.mean = x.mean(1, keepdim=True)
            return x - self.mean
        return x + self.mean


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.restored, self.fc = Restored(), nn.Linear(4, 4)

    def forward(self, x):
        return self.restored(self.fc(self.restored(x, "out")), "back")


@pytest.mark.parametrize("level", ["innermost", "outermost"])
def test_a_call_may_use_what_an_earlier_one_of_the_same_module_kept(level):
    model, x = Normalised().eval(), torch.randn(2, 3, 4)
    graph, found = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}), {"level": level})
    assert found["raised"]["restored"] == 3
    assert torch.equal(graph.model(x), model(x))


class InPlace(nn.Module):
    """Changes what it was given, and gives it back."""

    def forward(self, x):
        x.add_(1)
        y = torch.relu(x)
        x[:, :2] = y[:, 2:] * 3
        return x


class Counting(nn.Module):
    """Keeps a buffer of its own, and gives a dict."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, *, scale=1.0):
        self.seen.mul_(0.5).add_(x.mean(0))
        return {"scaled": x * scale, "seen": self.seen + 0.0, "same": x}


class Slices(nn.Module):
    def forward(self, x, size):
        return x[..., :size], x.view(-1, 2, 2).sum((1, 2))


class Awkward(nn.Module):
    def __init__(self):
        super().__init__()
        self.change, self.count, self.slices = InPlace(), Counting(), Slices()

    def forward(self, x):
        x = x * 2
        before = x + 0
        y = self.change(x)
        first = self.count(x, scale=3.0)
        second = self.count(y, scale=0.5)
        head, sums = self.slices(second["scaled"], 2)
        return before + x, first["scaled"] + first["same"], second["seen"], head, sums, first["seen"]


def test_changes_in_place_buffers_and_aliases_stay_what_they_are():
    x = torch.randn(3, 4)
    model, kept = Awkward().eval(), Awkward().eval()
    expected, again = kept(x), kept(x)
    graph, found = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}))
    assert set(found["raised"]) == {"change", "count", "slices"}
    assert not model.count.seen.any(), "recording changed the model"
    for results in (expected, again):
        for mine, eager in zip(graph.model(x), results, strict=True):
            assert torch.equal(mine, eager)
    graph, _ = passes.lower_granularity_transform_pass(graph)
    third = kept(x)
    for mine, eager in zip(graph.model(x), third, strict=True):
        assert torch.equal(mine, eager)


class Factor(nn.Module):
    def forward(self, x, factor):
        return torch.tanh(x) * factor


class Twice(nn.Module):
    """One module, called with different numbers, and once more with the first."""

    def __init__(self):
        super().__init__()
        self.factor, self.between = Factor(), nn.Linear(4, 4)

    def forward(self, x):
        x = self.between(self.factor(x, 2.0))
        x = self.between(self.factor(x, 3.0))
        return self.factor(x, 2.0)


def test_calls_that_compute_other_things_are_other_modules():
    model, x = Twice().eval(), torch.randn(3, 4)
    graph, _ = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}))
    assert called(graph) == ["factor", "between", "factor_1", "between", "factor"]
    assert torch.equal(graph.model(x), model(x))


def test_a_graph_of_modules_trains_as_the_model_does():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = block

        def forward(self, x):
            return x + self.inner(x)

    model = nn.Sequential(Residual(), nn.Linear(4, 1)).train()
    other, x = copy.deepcopy(model), torch.randn(6, 4)
    graph, found = passes.raise_granularity_transform_pass(MaseGraph(model, {"input": x}), {"level": "outermost"})
    assert found["raised"]
    for trained, parameters in ((graph.model, graph.model.parameters()), (other, other.parameters())):
        optimiser = torch.optim.SGD(list(parameters), 0.1)
        for _ in range(3):
            optimiser.zero_grad()
            trained(x).square().sum().backward()
            optimiser.step()
    assert torch.equal(graph.model(x), other(x))
    assert torch.equal(model[0].inner[1].running_mean, other[0].inner[1].running_mean)


def test_what_was_taken_apart_is_taken_together_without_changing_the_model():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, x = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval(), torch.randn(2, 5, 8)
    expected, kinds = model(x), [type(part) for part in model.modules()]
    graph, _ = passes.lower_granularity_transform_pass(MaseGraph(model, {"input": x}))
    graph, found = passes.raise_granularity_transform_pass(graph)
    assert set(found["raised"]) == {"0.layers.0", "0.layers.1"}
    assert [type(part) for part in model.modules()] == kinds
    assert torch.equal(model(x), expected)
    torch.testing.assert_close(graph.model(x), expected)


def test_no_module_is_put_where_another_one_is():
    class Three(Twice):
        def __init__(self):
            super().__init__()
            self.factor_1 = nn.Linear(4, 4)

        def forward(self, x):
            return self.factor_1(super().forward(x))

    model, x = Three().eval(), torch.randn(3, 4)
    graph, _ = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}))
    assert called(graph) == ["factor", "between", "factor_2", "between", "factor", "factor_1"]
    assert torch.equal(graph.model(x), model(x))


def test_a_module_that_is_a_graph_already_is_taken_apart():
    inner = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    outer = torch.fx.Graph()
    x = outer.placeholder("x")
    outer.output(outer.call_module("inner", (x,)))
    model = torch.fx.GraphModule({"inner": inner}, outer)
    graph, found = passes.lower_granularity_transform_pass(MaseGraph(model))
    assert found["lowered"] == ["inner"]
    assert called(graph) == ["inner.0", "inner.1"]
    value = torch.randn(2, 4)
    assert torch.equal(graph.model(value), model(value))


class Mixed(nn.Module):
    """Reads a weight that its second call reads again, on the far side of another module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x, bias):
        return self.weight @ x + bias


class MixedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed, self.between = Mixed(), nn.Linear(4, 4)

    def forward(self, x):
        return self.mixed(self.between(self.mixed(x, 1.0)), x)


@pytest.mark.parametrize("level", ["innermost", "outermost"])
def test_calls_with_another_module_between_them_read_one_weight(level):
    model, x = MixedTwice().eval(), torch.randn(4, 4)
    graph, _ = passes.raise_granularity_transform_pass(MaseGraph(model, {"x": x}), {"level": level})
    assert torch.equal(graph.model(x), model(x))
    graph, _ = passes.lower_granularity_transform_pass(graph)
    assert torch.equal(graph.model(x), model(x))
