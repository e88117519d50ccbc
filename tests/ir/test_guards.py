"""A graph gives what its model gives, or says which assumption of its recording does not hold."""

from __future__ import annotations

import copy
import linecache
import math

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from mase_server import GuardError, MaseGraph, passes
from mase_server.ir.session import Session
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import parse_inputs


class Mean(nn.Module):
    def forward(self, x):
        return x.sum(1) / x.shape[1]


class Loop(nn.Module):
    def forward(self, x):
        for step in range(x.shape[1]):
            x = x + step
        return x


class Enumerated(nn.Module):
    def forward(self, x):
        return sum(step * each for step, each in enumerate(x.unbind(1)))


class Counted(nn.Module):
    def forward(self, x):
        for step in range(len(x)):
            x = x + step
        return x


class Pieces(nn.Module):
    def forward(self, x):
        return sum(step * each.sum(1) for step, each in enumerate(x.split(2, 1)))


class Odd(nn.Module):
    def forward(self, x):
        return x * (x.shape[1] % 2)


class Lowest(nn.Module):
    def forward(self, x):
        return x * (x.shape[1] & 1)


class Triangle(nn.Module):
    def forward(self, x):
        return x * sum(range(x.shape[1]))


class Total(nn.Module):
    def forward(self, x):
        return x * int(x.sum())


class Root(nn.Module):
    def forward(self, x):
        return x / float(x.shape[1]) ** 0.5


class Long(nn.Module):
    def forward(self, x):
        return x.relu() if x.shape[1] > 100 else x.tanh()


class LongInt(nn.Module):
    def forward(self, x):
        return x.relu() if int(x.shape[1]) > 100 else x.tanh()


class LongLen(nn.Module):
    def forward(self, x):
        return x.relu() if len(x) > 100 else x.tanh()


class LongHalf(nn.Module):
    def forward(self, x):
        half = math.floor(x.shape[1] / 2)
        limit = half + 1
        if limit > 50:
            return x.relu()
        return x.tanh()


def is_long(size):
    return size > 100


class LongElsewhere(nn.Module):
    def forward(self, x):
        return x.relu() if is_long(float(x.shape[1])) else x.tanh()


class HandedOn(nn.Module):
    def forward(self, x):
        batch, half = int(x.shape[0]), int(x.shape[1] / 2)
        y = x[:, :half].reshape(batch, -1, 3)
        return y.expand(len(x), -1, -1) * round(x.shape[1])


class Parity(nn.Module):
    def forward(self, x):
        return x.relu() if x.shape[1] % 2 else x.tanh()


class Sign(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x * 3


class Scaled(nn.Module):
    def forward(self, x):
        return x / x.abs().max().item()


class Names(nn.Module):
    """Tells the line of its question by its own text."""

    def forward(self, x, y):
        return x[:, : y.shape[1]]


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = None

    def forward(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x], 1)
        return self.keys.sum(1)


class Remembering(nn.Module):
    """Computes a table once and keeps it: every call gives the same."""

    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(4.0)
        self.table = self.table.to(x.device)
        return x * self.table


def ones(*shape):
    return torch.ones(shape)


#: model, traced on, refused for, a part of the question's line, the assumption
REFUSED = {
    "arithmetic on a size": (Mean, (ones(2, 5),), (ones(2, 9),), "x.sum(1) / x.shape[1]", "x.shape[1] = 5"),
    "a loop over a length": (Loop, (ones(2, 5, 3),), (ones(2, 9, 3),), "for step in range", "x.shape[1] = 5"),
    "parts along a length": (Enumerated, (ones(2, 5, 3),), (ones(2, 9, 3),), "x.unbind(1)", "x.shape[1] = 5"),
    "the length of a tensor": (Counted, (ones(2, 5, 3),), (ones(3, 5, 3),), "len(x)", "x.shape[0] = 2"),
    "pieces of a length": (Pieces, (ones(2, 5, 3),), (ones(2, 9, 3),), "x.split(2, 1)", "x.shape[1] = 5"),
    "a remainder as a number": (Odd, (ones(2, 5, 3),), (ones(2, 8, 3),), "x.shape[1] % 2", "T % 2 = 1"),
    "a bit of a length": (Lowest, (ones(2, 5, 3),), (ones(2, 8, 3),), "x.shape[1] & 1", "T & 1 = 1"),
    "a sum over a length": (Triangle, (ones(2, 5, 3),), (ones(2, 8, 3),), "range(x.shape[1])", "x.shape[1] = 5"),
    "a whole number of values": (Total, (ones(2, 5, 3),), (-ones(2, 5, 3),), "int(x.sum())", "a value (int)"),
    "a fraction of a length": (Root, (ones(2, 5, 3),), (ones(2, 9, 3),), "float(x.shape[1])", "x.shape[1] = 5"),
    "a comparison": (Long, (ones(2, 16, 3),), (ones(2, 120, 3),), "> 100", "T <= 100"),
    "a plain int": (LongInt, (ones(2, 16, 3),), (ones(2, 120, 3),), "int(x.shape[1]) > 100", "T = 16"),
    "a length": (LongLen, (ones(16, 2, 3),), (ones(120, 2, 3),), "len(x) > 100", "B <= 100"),
    "a fraction in a variable": (LongHalf, (ones(2, 16, 3),), (ones(2, 120, 3),), "math.floor", "T = 16"),
    "a float for a function": (LongElsewhere, (ones(2, 16, 3),), (ones(2, 120, 3),), "is_long(float", "T = 16"),
    "a remainder": (Parity, (ones(2, 15, 3),), (ones(2, 8, 3),), "% 2", "T % 2 != 0"),
    "a condition on values": (Sign, (ones(2, 5, 3),), (-ones(2, 5, 3),), "x.sum() > 0", "a condition = True"),
    "a value": (Scaled, (ones(2, 5, 3),), (3 * ones(2, 5, 3),), ".item()", "a value (item) = 1.0"),
    "equal sizes": (Names, (ones(2, 5, 3), ones(2, 5, 3)), (ones(2, 5, 3), ones(2, 4, 3)), "", "y.shape[1] = T"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_outside_of_what_was_traced_is_refused_with_line_and_assumption(name):
    make, traced, other, line, assumption = REFUSED[name]
    graph = MaseGraph(make(), dict(zip(("x", "y"), traced, strict=False)))
    assert torch.equal(graph.model(*traced), make()(*traced))
    with pytest.raises(GuardError) as caught:
        graph.model(*other)
    text = str(caught.value)
    assert assumption in text
    number = int(text.partition("test_guards.py:")[2].split(";")[0])
    assert line in linecache.getline(__file__, number)
    assert any(assumption in guard for guard in graph.guards)


@pytest.mark.parametrize("name", REFUSED)
def test_guards_survive_copies_passes_and_checkpoints(name, tmp_path):
    make, traced, other, *_ = REFUSED[name]
    graph = MaseGraph(make(), dict(zip(("x", "y"), traced, strict=False)))
    graph.export(str(tmp_path / "saved"))
    quantised, _ = passes.quantize_transform_pass(copy.deepcopy(graph), {"default": "fixed(8,4)"})
    copies = copy.deepcopy(graph.model), MaseGraph.from_checkpoint(str(tmp_path / "saved")).model, quantised.model
    for model in copies:
        with pytest.raises(GuardError):
            model(*other)


def test_plain_numbers_that_are_only_handed_on_are_not_guarded():
    graph = MaseGraph(HandedOn(), {"x": ones(2, 6, 3)})
    assert (graph.symbols, graph.guards) == ({"B": 2, "T": 6}, [])
    for shape in ((4, 10, 3), (7, 8, 3)):
        x = torch.randn(shape)
        assert torch.equal(graph.model(x), HandedOn()(x))


def test_a_size_that_an_exact_guard_holds_is_no_symbol():
    assert MaseGraph(LongInt(), {"x": ones(2, 16, 3)}).symbols == {"B": 2}


def test_the_advice_is_a_comment_where_that_lets_the_size_vary(tmp_path):
    """The comment is tried: the size that was refused is then a symbol."""

    class Wide(nn.Module):
        def forward(self, x):
            return x / x.shape[2]

    graph = MaseGraph(Wide(), {"x": ones(2, 5, 3)})
    with pytest.raises(GuardError) as caught:
        graph.model(ones(2, 5, 4))
    comment = str(caught.value).rpartition("`# ")[2].rstrip("`")
    assert comment == "mase: x: f32[B=2, T=5, C=3]"
    inputs = parse_inputs(comment.removeprefix("mase: "))
    session = Session(Wide(), inputs_at(inputs), spec=inputs)
    assert session.probe(session.record()).symbols == {"B": 2, "T": 5, "C": 3}


@pytest.mark.parametrize("name", ["a loop over a length", "a comparison", "a fraction of a length"])
def test_no_comment_is_advised_where_it_would_not_help(name):
    make, traced, other, *_ = REFUSED[name]
    with pytest.raises(GuardError, match=r"trace the model again with such sizes$"):
        MaseGraph(make(), {"x": traced[0]}).model(*other)


def test_sizes_that_were_proved_are_not_guarded():
    graph = MaseGraph(Mean(), {"x": torch.randn(2, 5, 3)})
    assert graph.symbols == {"B": 2, "T": 5}
    assert graph.guards == []
    x = torch.randn(7, 9, 3)
    assert torch.allclose(graph.model(x), Mean()(x))


class Windows(nn.Module):
    """Pads what it gets to whole windows of 7: no size explains how much it pads."""

    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % 7))
        return x.unflatten(-1, (-1, 7)).mean(-1)


@pytest.mark.parametrize(
    ("shape", "symbols"), [((2, 3, 14, 15), {"B": 2}), ((2, 15), {"B": 2})], ids=["pictures", "lengths"]
)
def test_batches_vary_where_the_sides_compute_a_padding(shape, symbols):
    graph = MaseGraph(Windows(), {"x": ones(*shape)})
    assert graph.symbols == symbols
    x = torch.randn(5, *shape[1:])
    assert torch.equal(graph.model(x), Windows()(x))
    with pytest.raises(GuardError, match="trace the model again with such sizes"):
        graph.model(ones(*shape[:-1], 16))


class Pictures(nn.Module):
    """Goes another way with other sides, so no graph holds for them; the batch is free."""

    def forward(self, x):
        if x.shape[-1] % 4:
            x = F.interpolate(x, (28, 28)).relu()
        return x.view(-1, 784).mean(-1)


def test_the_batch_varies_where_other_sides_go_another_way():
    graph = MaseGraph(Pictures(), {"x": ones(2, 1, 28, 28)})
    assert graph.symbols == {"B": 2}
    x = torch.randn(5, 1, 28, 28)
    assert torch.equal(graph.model(x), Pictures()(x))
    with pytest.raises(GuardError, match=r"x\.shape\[3\]"):
        graph.model(ones(2, 1, 28, 27))


def test_only_what_may_vary_is_a_symbol():
    assert MaseGraph(Root(), {"x": torch.randn(2, 5, 3)}).symbols == {"B": 2}
    assert MaseGraph(Odd(), {"x": torch.randn(2, 5, 3)}).symbols == {"B": 2, "T": 5}


def test_sizes_that_nobody_asked_for_are_not_guarded():
    class Relu(nn.Module):
        def forward(self, x):
            return x.relu().view(x.shape[0], -1)

    graph = MaseGraph(Relu(), {"x": torch.randn(2, 5)})
    assert graph.guards == []
    assert graph.model(torch.randn(3, 9)).shape == (3, 9)


def test_state_that_grows_from_call_to_call_is_refused_at_the_second_call():
    x = torch.randn(2, 3, 4)
    graph = MaseGraph(Growing(), {"x": x})
    assert torch.equal(graph.model(x), Growing()(x))
    with pytest.raises(GuardError, match=r"self\.keys"):
        graph.model(x)


def test_state_that_stays_is_no_reason_to_refuse():
    x = torch.randn(2, 3, 4)
    graph = MaseGraph(Remembering(), {"x": x})
    assert graph.guards == []
    assert torch.equal(graph.model(x), graph.model(x))


def test_a_cache_that_grows_is_equal_at_its_first_step_and_refused_at_the_next():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model, ids = transformers.LlamaForCausalLM(config).eval(), torch.randint(0, 50, (1, 8))

    def cache():
        with torch.no_grad():
            return model(ids[:, :5], past_key_values=transformers.DynamicCache(config=config)).past_key_values

    graph = MaseGraph(model, {"input_ids": ids[:, 5:6], "past_key_values": cache()})
    with torch.no_grad():
        want = model(ids[:, 5:6], past_key_values=cache()).logits
        first = graph.model(ids[:, 5:6], cache())
        assert torch.allclose(first.logits, want, atol=1e-5)
        with pytest.raises(GuardError, match=r"past_key_values.layers\[0\].keys.shape\[2\] = 5 at cache_utils.py"):
            graph.model(ids[:, 6:7], first.past_key_values)
        other = transformers.DynamicCache(config=config)
        model(ids[:, 2:7], past_key_values=other)
        want = model(ids[:, 5:6], past_key_values=copy.deepcopy(other)).logits
        assert torch.allclose(graph.model(ids[:, 5:6], other).logits, want, atol=1e-5)


@pytest.mark.parametrize(("family", "sizes"), [("Llama", {}), ("Mistral", {"sliding_window": 6})])
def test_a_cache_that_the_graph_leaves_as_it_was_is_refused_at_the_next_step(family, sizes):
    """A loop that hands the same cache to each step, as it may to the model: only the first step would be equal."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, **sizes,
    )  # fmt: skip
    model, ids = getattr(transformers, f"{family}ForCausalLM")(config).eval(), torch.randint(0, 50, (1, 8))
    with torch.no_grad():
        cache = model(ids[:, :5], past_key_values=transformers.DynamicCache(config=config)).past_key_values
        graph = MaseGraph(model, {"input_ids": ids[:, 5:6], "past_key_values": copy.deepcopy(cache)})
        assert any("the forward changes past_key_values" in text for text in graph.guards)
        want = model(ids[:, 5:6], past_key_values=copy.deepcopy(cache)).logits
        for _ in range(2):
            assert torch.allclose(graph.model(ids[:, 5:6], copy.deepcopy(cache)).logits, want, atol=1e-5)
        assert torch.allclose(graph.model(ids[:, 5:6], cache).logits, want, atol=1e-5)
        with pytest.raises(GuardError, match="past_key_values is the same as in the last call"):
            graph.model(ids[:, 6:7], cache)


def test_a_list_that_grows_in_a_forward_is_refused_at_the_next_call(tmp_path):
    class Collecting(nn.Module):
        def forward(self, x, seen):
            seen.append(x * 2)
            return torch.stack(seen).sum(0)

    x, seen = torch.randn(2, 3), [torch.randn(2, 3)]
    graph = MaseGraph(Collecting(), {"x": x, "seen": list(seen)})
    graph.export(tmp_path / "one.mz")
    for loaded in (graph, MaseGraph.from_checkpoint(tmp_path / "one.mz"), copy.deepcopy(graph)):
        assert torch.equal(loaded.model(x, seen), x * 2 + seen[0])
        with pytest.raises(GuardError, match="seen is the same as in the last call"):
            loaded.model(x, seen)


def test_a_guarded_graph_compiles_whole():
    graph = MaseGraph(Long(), {"x": torch.randn(2, 16, 3)})
    x = torch.randn(2, 16, 3)
    compiled = torch.compile(graph.model, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), Long()(x))


def test_hostile_guards_in_a_file_are_refused():
    from mase_server.ir.allowed import CheckpointError
    from mase_server.ir.build import read_guards

    source = ["T", "x", [], 0]
    for data in (
        [[source], [["==", ["__import__", "T", 1], 1, ""]], ""],
        [[source], [["==", "U", 1, ""]], ""],
        [[["T", "x", [[True, "__class__"]], 0]], [["==", "T", 1, ""]], ""],
        [[source], [["is", "T", 1, ""]], ""],
        "T == 1",
    ):
        with pytest.raises(CheckpointError):
            read_guards(data)


def test_a_tensor_that_numpy_computed_of_an_input_holds_for_that_input_alone():
    class Doubling(nn.Module):
        def forward(self, x):
            return torch.from_numpy(x.detach().numpy() * 2)

    x = torch.arange(8.0).view(4, 2)
    graph = MaseGraph(Doubling(), {"x": x})
    assert torch.equal(graph.model(x.clone()), x * 2)
    with pytest.raises(GuardError, match="trace the model again"):
        graph.model(x + 1)
