"""Named dimensions by probing: what is proven holds for eager at sizes that were never probed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.dtypes import SHORT
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.calls import Constant, ref
from mase_server.tracing.recording.values import DictOf, Python, TupleOf
from mase_server.tracing.symbols import probing
from mase_server.tracing.symbols.fitting import Atom, Expr, Fitter
from mase_server.tracing.symbols.probing import MismatchError, Wire, check_structure, merge
from tests.tracing.recording import assert_same, run_once, session


class Sequence(nn.Module):
    """Embedding, positions, attention over all pairs, a head."""

    def __init__(self, positions=64):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.positions = nn.Embedding(positions, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, ids):
        b, t = ids.shape
        x = self.embed(ids) + self.positions(torch.arange(t))
        scores = (x @ x.transpose(-1, -2)).masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        x = (scores.softmax(-1) @ x).view(b * t, 8)
        return self.head(x).view(b, t, -1), scores


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 5)
        self.fc = nn.Linear(6 * 12 * 12, 10)

    def forward(self, x):
        return self.fc(F.max_pool2d(self.conv(x), 2).flatten(1))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 7, stride=2, padding=3)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.down = nn.Conv2d(4, 8, 3, stride=2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        a = self.stem(x)
        b = self.pool(a)
        c = self.down(b)
        d = F.avg_pool2d(c, 2, ceil_mode=True)
        return a, b, c, d, self.fc(d.mean((2, 3)))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 16, stride=16)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)


class TwoLengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, source, target):
        out, weights = self.attention(target, source, source)
        return torch.cat([out, source], 1), weights


class Halves(nn.Module):
    """Takes only lengths that divide by 4."""

    def forward(self, x):
        b, t, d = x.shape
        return x.view(b, t // 4, 4, d).mean(2)


class OneLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 16, 8))

    def forward(self, x):
        return x + self.positions


class Depth(nn.Module):
    """As many operations as there are tokens."""

    def forward(self, x):
        for step in range(x.shape[1]):
            x = x + step
        return x


class Branches(nn.Module):
    """Another path for long inputs."""

    def forward(self, x):
        return x.relu() if x.shape[1] > 14 else x.tanh()


class Specialised(nn.Module):
    """The batch size escapes through float() into a scale."""

    def forward(self, x):
        return x / float(x.shape[0]) ** 0.5


class Pairs(nn.Module):
    """T * (T - 1) / 2 entries."""

    def forward(self, x):
        rows, columns = torch.triu_indices(x.shape[1], x.shape[1], 1)
        return x[:, rows] * x[:, columns]


class Rows(nn.Module):
    """Takes any picture whose pixels make rows of 784, as many programs for MNIST do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 5)

    def forward(self, x):
        return self.layer(x.view(-1, 784))


class NoSymbols(nn.Module):
    def forward(self, x):
        return x * 2


def ids(batch, length):
    return {"ids": torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(length))}


def image(batch, height, width, channels=3):
    return {"x": torch.randn(batch, channels, height, width)}


def tokens(batch, length, width=8):
    return {"x": torch.randn(batch, length, width)}


def pair(batch, source, target):
    return {"source": torch.randn(batch, source, 8), "target": torch.randn(batch, target, 8)}


#: name -> model, traced on, equal to eager at.
GENERIC = {
    "sequence": (Sequence, ids(2, 16), [ids(3, 64), ids(7, 2), ids(1, 29)]),
    "lenet": (LeNet, image(4, 28, 28, 1), [image(1, 28, 28, 1), image(9, 28, 28, 1)]),
    "conv": (Conv, image(2, 64, 64), [image(3, 96, 33), image(1, 47, 121), image(2, 224, 224)]),
    "patches": (Patches, image(2, 64, 64), [image(5, 32, 160), image(1, 112, 16)]),
    "two lengths": (TwoLengths, pair(2, 16, 12), [pair(3, 5, 31), pair(1, 20, 8)]),
    "lengths by four": (Halves, tokens(2, 16), [tokens(3, 8), tokens(5, 40)]),
    "one length": (OneLength, tokens(2, 16), [tokens(5, 16), tokens(1, 16)]),
    "no code about sizes": (NoSymbols, tokens(2, 16), [tokens(3, 4)]),
}


@pytest.mark.parametrize("name", GENERIC)
def test_a_graph_that_claims_to_be_generic_equals_eager_at_sizes_that_were_not_probed(name):
    make, inputs, others = GENERIC[name]
    torch.manual_seed(0)
    model = make().eval()
    graph = MaseGraph(model, inputs)
    assert graph.generic
    for other in (inputs, *others):
        assert_same(run_once(graph.model, other), run_once(model, other))


#: name -> symbols of its outputs.
OUTPUTS = {
    "sequence": [["B", "T", "50"], ["B", "T", "T"]],
    "lenet": [["B", "10"]],
    "patches": [["B", "(H//16)*(W//16)+1", "8"]],
    "two lengths": [["B", "T+S", "8"], ["B", "S", "T"]],  # source is T, target S
    "lengths by four": [["B", "T//4", "8"]],
    "one length": [["B", "16", "8"]],
    "no code about sizes": [["B", "T", "8"]],
}


def output_symbols(make, inputs):
    one = session(make(), **inputs)
    run = one.record()
    probed = one.probe(run)
    value = Wire(probed).value([each.result for each in probed.runs], SHORT)
    parts = value["tuple"] if isinstance(value, dict) else [value]
    return [symbols for _, _, symbols in parts], probed


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_named_by_role(name):
    make, inputs, _ = GENERIC[name]
    found, _ = output_symbols(make, inputs)
    assert found == OUTPUTS[name]


@pytest.mark.parametrize("height", [33, 47, 64, 96, 130, 224])
@pytest.mark.parametrize("width", [65, 100, 128])
def test_floor_and_ceiling_divisions_of_convolutions_are_eagers(height, width):
    found, probed = output_symbols(Conv, image(2, 64, 64))
    sizes = {"B": 3, "H": height, "W": width}
    eager = Conv().eval()(torch.randn(3, 3, height, width))
    assert probed.symbols == {"B": 2, "H": 64, "W": 64}
    assert [[eval(text, {}, sizes) for text in symbols] for symbols in found] == [list(out.shape) for out in eager]


def test_a_model_for_one_image_size_is_generic_in_its_batch_alone():
    _, probed = output_symbols(LeNet, image(4, 28, 28, 1))
    assert probed.symbols == {"B": 4}
    assert set(probed.fixed) == {"H", "W"}
    assert "864" in probed.fixed["H"]


def test_a_picture_that_would_become_several_samples_keeps_its_size():
    found, probed = output_symbols(Rows, image(2, 28, 28, channels=1))
    assert (found, probed.symbols) == ([["B", "5"]], {"B": 2})
    assert "further samples" in probed.fixed["H"]


def test_a_length_that_positions_fix_is_fixed_and_says_why():
    _, probed = output_symbols(OneLength, tokens(2, 16))
    assert probed.symbols == {"B": 2}
    assert "16" in probed.fixed["T"]


def test_lengths_stay_within_the_table_of_positions():
    _, probed = output_symbols(lambda: Sequence(positions=16), ids(2, 16))
    assert probed.symbols == {"B": 2, "T": 16}


def test_a_short_length_varies_beside_the_batch_up_to_the_table_of_positions():
    found, probed = output_symbols(lambda: Sequence(positions=16), ids(4, 8))
    assert probed.symbols == {"B": 4, "T": 8}
    assert found[1] == ["B", "T", "T"]


def test_a_structure_that_depends_on_the_length_fixes_it():
    _, probed = output_symbols(Depth, tokens(2, 16))
    assert probed.symbols == {"B": 2}
    assert "operations at one size" in probed.fixed["T"]


def test_another_path_at_smaller_sizes_is_an_obstacle_although_all_larger_ones_agree():
    found, probed = output_symbols(Branches, tokens(2, 16))
    assert found == [["B", "T", "8"]]
    assert probed.obstacles == ["relu at one size, tanh at another"]
    assert not probed.generic


def test_a_symbol_that_varies_alone_is_run_at_no_size_twice():
    one = session(OneLength(), **tokens(2, 16))
    run, counted = one.record(), []
    record_at = one.record_at
    one.record_at = lambda sizes: counted.append(tuple(sizes.items())) or record_at(sizes)
    assert one.probe(run).symbols == {"B": 2}
    assert len(set(counted)) == len(counted)


def test_the_sizes_that_tell_most_are_searched_for_once(monkeypatch):
    one = session(Conv(), **image(2, 64, 64))
    run = one.record()
    first = one.probe(run)
    assert first.telling
    monkeypatch.setattr(probing, "telling_sizes", None)
    second = one.probe(run, first.telling)
    assert (second.points, second.symbols) == (first.points, first.symbols)


def test_a_size_that_escapes_into_a_number_is_an_obstacle_and_the_shapes_are_still_named():
    found, probed = output_symbols(Specialised, tokens(4, 16))
    assert found == [["B", "T", "8"]]
    assert not probed.generic
    assert probed.obstacles


def test_a_graph_that_is_not_generic_is_right_at_its_own_sizes():
    model, inputs = Specialised(), tokens(4, 16)
    graph = MaseGraph(model, inputs)
    assert not graph.generic
    assert_same(run_once(graph.model, inputs), run_once(model, inputs))


def test_what_no_expression_of_the_family_gives_is_a_question_mark_or_right():
    found, _ = output_symbols(Pairs, tokens(2, 16))
    text = found[0][1]
    assert text == "?" or all(eval(text, {}, {"T": size}) == size * (size - 1) // 2 for size in (16, 5, 90))


def test_probing_reports_no_positions_and_leaves_the_base_first():
    one = session(NoSymbols(), **tokens(2, 16))
    run = one.record()
    probed = one.probe(run)
    assert probed.runs[0] is run
    assert probed.points[0] == {"B": 2, "T": 16}
    assert all(call.stack == () for other in probed.runs[1:] for call in other.calls)


def test_a_model_that_fails_keeps_its_named_dimensions_up_to_the_error():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(8, 6), nn.Linear(7, 2)

        def forward(self, x):
            return self.two(self.one(x))

    one = session(Fails(), **tokens(2, 16))
    with pytest.raises(RuntimeError):
        one.record()
    probed = one.probe(one.base.partial())
    values = [Wire(probed).value([run.calls[-1].value for run in probed.runs], SHORT)]
    assert values == [["f32", [2, 16, 6], ["B", "T", "6"]]]


def a(value):
    return TensorType("float32", value)


FITTER = Fitter([{"B": 2, "T": 16}, {"B": 5, "T": 13}, {"B": 3, "T": 11}])
T_EXPR = Expr(0, ((1, (Atom("T"),)),))


@pytest.mark.parametrize(
    ("values", "merged"),
    [
        ([1, 1, 1], 1),
        ([(16, 8), (13, 8), (11, 8)], (T_EXPR, 8)),
        ([[16], [13], [11]], [T_EXPR]),
        ([{"size": 16}, {"size": 13}, {"size": 11}], {"size": T_EXPR}),
        ([slice(None, 16), slice(None, 13), slice(None, 11)], slice(None, T_EXPR, None)),
        ([ref(3)] * 3, ref(3)),
        ([Constant("a")] * 3, Constant("a")),
        (["mean"] * 3, "mean"),
    ],
)
def test_integers_that_vary_become_expressions(values, merged):
    assert merge(values, FITTER, []) == merged


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 1.0, 1], "an argument's type depends on the size"),
        ([(1,), (1, 2), (1,)], "the number of arguments depends on the size"),
        ([{"a": 1}, {"b": 1}, {"a": 1}], "the names of the arguments depend on the size"),
        ([2.0, 5.0, 3.0], "the value 2.0 depends on the size in an unknown way"),
        ([True, False, True], "the value True depends on the size in an unknown way"),
        ([3, 900, 17], "the value 3 depends on the size in an unknown way"),
        (["a", "b", "a"], "the value 'a' depends on the size in an unknown way"),
    ],
)
def test_what_varies_otherwise_cannot_be_merged(values, message):
    with pytest.raises(MismatchError) as raised:
        merge(values, FITTER, [])
    assert str(raised.value) == message


def test_runs_with_other_operations_are_told_apart():
    long = session(Branches(), **tokens(2, 16)).record()
    short = session(Branches(), **tokens(2, 9)).record()
    with pytest.raises(MismatchError, match="relu at one size, tanh at another"):
        check_structure(long, short)
    check_structure(long, session(Branches(), **tokens(3, 30)).record())


VALUES = [
    ([a((2, 16)), a((5, 13)), a((3, 11))], ["f32", [2, 16], ["B", "T"]]),
    ([a((2, 8)), a((2, 8)), a((2, 8))], ["f32", [2, 8], ["2", "8"]]),
    ([a((32,)), a((65,)), a((33,))], ["f32", [32], ["B*T"]]),
    ([a((1,)), a((900,)), a((7,))], ["f32", [1], ["?"]]),
    (
        [TupleOf((a((s,)), Python("None"))) for s in (2, 5, 3)],
        {"tuple": [["f32", [2], ["B"]], None]},
    ),
    (
        [DictOf((("out", a((s,))), ("n", Python("int")))) for s in (2, 5, 3)],
        {"dict": {"out": ["f32", [2], ["B"]], "n": {"python": "int"}}},
    ),
]


@pytest.mark.parametrize(("values", "wire"), VALUES)
def test_values_cross_the_wire_with_symbols(values, wire):
    one = session(NoSymbols(), **tokens(2, 16))
    run = one.record()
    probed = one.probe(run)
    object.__setattr__(probed, "fitter", FITTER)
    object.__setattr__(probed, "runs", [run] * 3)
    assert Wire(probed).value(values, SHORT) == wire


def test_before_probing_there_are_no_symbols_and_without_any_there_are_numbers():
    assert Wire(None).value([a((2, 8))], SHORT) == ["f32", [2, 8], None]
    assert Wire(None, final=True).value([a((2, 8))], SHORT) == ["f32", [2, 8], ["2", "8"]]
