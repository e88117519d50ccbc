"""Values at any size: valid, deterministic, and named by role."""

import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mase_server.tracing.inputs.roles import describe_inputs
from mase_server.tracing.inputs.spec import Inputs, TensorSpec, complete_sizes, inputs_at, on_meta
from mase_server.tracing.inputs.text import format_inputs, parse_inputs
from mase_server.tracing.recording.shadow import MetaMode, Shadows

EVERYTHING = (
    "x: f32[B, 3, H, W]; ids: i64[B, T] < 7; n: i64[B] lengths(T); c: bool[T, T] causal; f: f32[T, T] causal; "
    "u: bool[T, T] upper; p: i64[B, T] arange; k: f32[B] full(2.5); o: i64[B, T] ones; z: f32[T] zeros; "
    "r: f32[B] uniform; e: bool[B, 50] bernoulli(0.5); h: bf16[B]; q: c64[B]"
)


def test_sizes_that_numpy_counted_are_sizes_and_no_symbols():
    inputs = Inputs({"x": TensorSpec("f32", ("B", np.int64(1), np.prod((3, 4))))}, {"B": 2})
    assert inputs_at(inputs)["x"].shape == (2, 1, 12)
    assert inputs.symbols() == ("B",)
    assert format_inputs(inputs) == "x: f32[B=2, 1, 12]"


@given(st.integers(1, 9), st.integers(1, 20))
def test_values_have_the_asked_sizes_and_are_valid(batch, tokens):
    made = inputs_at(parse_inputs(EVERYTHING), {"B": batch, "T": tokens})
    assert made["x"].shape == (batch, 3, 32, 32)
    assert made["x"].dtype == torch.float32
    assert 0 <= made["ids"].min() <= made["ids"].max() < 7
    lengths = made["n"].tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == tokens
    assert lengths[-1] >= 1
    assert torch.equal(made["c"], torch.tril(torch.ones(tokens, tokens)).bool())
    assert torch.equal(made["u"], ~made["c"])
    assert torch.equal(torch.isinf(made["f"]), ~made["c"])
    assert made["p"].tolist() == [list(range(tokens))] * batch
    assert made["k"].tolist() == [2.5] * batch
    assert made["o"].dtype == torch.int64
    assert bool((made["o"] == 1).all())
    assert bool((made["z"] == 0).all())
    assert 0 <= made["r"].min() <= made["r"].max() <= 1
    assert (made["h"].dtype, made["q"].dtype) == (torch.bfloat16, torch.complex64)


def test_values_are_real_and_the_same_every_time_also_under_a_mode():
    inputs = parse_inputs(EVERYTHING)
    first = inputs_at(inputs)
    with MetaMode(Shadows()), torch.device("meta"):
        second = inputs_at(inputs)
    assert all(value.device.type == "cpu" and torch.equal(value, second[name]) for name, value in first.items())


def test_a_symbol_without_a_size_gets_the_usual_one():
    assert complete_sizes(parse_inputs("x: f32[B, T, H]; y: f32[B=5]")).sizes == {"B": 5, "T": 16, "H": 32}


def test_lengths_can_be_packed_at_every_size():
    made = inputs_at(parse_inputs("x: f32[B, T, 3]; n: i64[B] lengths(T)"), {"B": 6, "T": 11})
    padded, lengths = pad_packed_sequence(
        pack_padded_sequence(made["x"], made["n"], batch_first=True), batch_first=True
    )
    assert padded.shape == (6, 11, 3)
    assert torch.equal(lengths, made["n"])


def ids(*shape, below=50):
    value = torch.randint(0, below, shape, generator=torch.Generator().manual_seed(1))
    value.view(-1)[0] = below - 1
    return value


ROLES = [
    ({"x": torch.randn(4, 3, 8, 9)}, "x: f32[B=4, 3, H=8, W=9]"),
    ({"x": torch.randn(4, 3, 5, 8, 9)}, "x: f32[B=4, 3, D=5, H=8, W=9]"),
    ({"x": torch.randn(4, 7, 32)}, "x: f32[B=4, T=7, 32]"),
    ({"x": torch.randn(4, 32)}, "x: f32[B=4, 32]"),
    ({"x": torch.randn(1, 784)}, "x: f32[B=1, 784]"),
    ({"ids": ids(4, 7)}, "ids: i64[B=4, T=7] < 50"),
    ({"src": ids(4, 7), "tgt": ids(4, 5)}, "src: i64[B=4, T=7] < 50; tgt: i64[B, S=5] < 50"),
    ({"src": ids(4, 7), "tgt": ids(4, 7)}, "src: i64[B=4, T=7] < 50; tgt: i64[B, T] < 50"),
    ({"ids": ids(4, 7), "mask": torch.ones(4, 7, dtype=torch.long)}, "ids: i64[B=4, T=7] < 50; mask: i64[B, T] ones"),
    ({"mask": torch.ones(7, 7).tril().bool(), "ids": ids(4, 7)}, "mask: bool[T=7, T] causal; ids: i64[B=4, T] < 50"),
    ({"ids": ids(7, 7)}, "ids: i64[B=7, T=7] < 50"),
    ({"ids": ids(4, 7), "pos": torch.arange(7)}, "ids: i64[B=4, T=7] < 50; pos: i64[T] arange"),
    ({"ids": ids(4, 7), "lengths": torch.tensor([7, 5, 2, 1])}, "ids: i64[B=4, T=7] < 50; lengths: i64[B] lengths(T)"),
    ({"x": torch.randn(4, 3, 8, 8), "t": torch.full((4,), 3)}, "x: f32[B=4, 3, H=8, W=8]; t: i64[B] full(3)"),
    ({"x": torch.randn(9, 5), "edge_index": ids(2, 30, below=9)}, "x: f32[N=9, 5]; edge_index: i64[2, E=30] < N"),
    ({"x": torch.randn(4, 5), "scale": torch.tensor(2.0), "flag": True}, "x: f32[B=4, 5]; scale: f32[]; flag: True"),
    ({"batch": {"a": ids(4, 7), "b": [torch.randn(4, 2)]}}, "batch: {a: i64[B=4, T=7] < 50, b: [f32[B, 2]]}"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "text"), ROLES, ids=lambda each: each if isinstance(each, str) else "")
def test_dimensions_are_named_by_their_role(values, text):
    assert format_inputs(describe_inputs(values)) == text


def test_a_mask_of_size_one_stays_broadcast():
    named = describe_inputs({"ids": ids(4, 7), "mask": torch.ones(1, 1, 7, 7).tril().bool()})
    assert format_inputs(named) == "ids: i64[B=4, T=7] < 50; mask: bool[1, 1, T, T] causal"


@pytest.mark.parametrize(
    ("model", "values", "text"),
    [
        (nn.GRU(5, 6), {"x": torch.randn(7, 4, 5)}, "x: f32[T=7, B=4, 5]"),
        (nn.GRU(5, 6, batch_first=True), {"x": torch.randn(4, 7, 5)}, "x: f32[B=4, T=7, 5]"),
        (nn.Conv1d(5, 6, 3), {"x": torch.randn(4, 5, 30)}, "x: f32[B=4, 5, T=30]"),
        (nn.TransformerEncoderLayer(8, 2), {"src": ids(7, 4)}, "src: i64[T=7, B=4] < 50"),
        (
            nn.LSTM(5, 6),
            {"x": torch.randn(7, 4, 5), "m": torch.ones(7, 7).tril().bool()},
            "x: f32[T=7, B=4, 5]; m: bool[T, T] causal",
        ),
    ],
)  # fmt: skip
def test_the_model_says_which_dimension_is_time(model, values, text):
    assert format_inputs(describe_inputs(values, model)) == text


@given(st.sampled_from(range(len(ROLES))), st.integers(1, 6), st.integers(2, 9))
def test_described_inputs_can_be_made_at_other_sizes(index, batch, tokens):
    named = describe_inputs(ROLES[index][0])
    made = inputs_at(named, {"B": batch, "T": tokens})
    again = describe_inputs(made)
    assert {name: type(value) for name, value in made.items()} == {
        name: type(value) for name, value in ROLES[index][0].items()
    }
    assert list(again.entries) == list(named.entries)


def test_values_known_only_to_the_shadows_are_seen():
    shadows = Shadows()
    with MetaMode(shadows):
        mask = torch.ones(6, 6).tril().bool()
        tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
        unknown = torch.empty(2, 6) @ torch.empty(6, 6)
    named = describe_inputs({"tokens": tokens, "mask": mask, "h": unknown}, None, shadows.get)
    assert format_inputs(named) == "tokens: i64[B=1, T=6] < 10; mask: bool[T, T] causal; h: f32[2, 6]"


def test_real_values_on_meta_keep_their_values():
    shadows = Shadows()
    given_values = on_meta({"a": [torch.tensor([1, 2])], "flag": True}, shadows)
    assert given_values["a"][0].is_meta
    assert shadows.get(given_values["a"][0]).tolist() == [1, 2]
    assert given_values["flag"] is True


def test_a_packed_sequence_is_packed_again_at_another_size():
    packed = pack_padded_sequence(torch.randn(3, 9, 4), torch.tensor([9, 5, 2]), batch_first=True)
    named = describe_inputs({"x": packed})
    made = inputs_at(named, {"B": 5, "T": 6})["x"]
    assert isinstance(made, PackedSequence)
    assert made.batch_sizes[0] == 5
    assert len(made.batch_sizes) == 6
    assert made.data.shape[1] == 4


def test_observed_containers_are_rebuilt_as_what_they_were():
    import collections
    import dataclasses

    @dataclasses.dataclass
    class Sample:
        image: torch.Tensor
        name: str

    pair = collections.namedtuple("pair", "left right")
    values = {
        "s": Sample(torch.randn(2, 3), "a"),
        "p": pair(torch.randn(2), torch.randn(2)),
        "o": types.SimpleNamespace(a=1),
    }
    made = inputs_at(describe_inputs(values), {"B": 5})
    assert (type(made["s"]), made["s"].image.shape, made["s"].name) == (Sample, (5, 3), "a")
    assert type(made["p"]).__name__ == "pair"
    assert made["p"].right.shape == (5,)
    assert made["o"] is values["o"]
