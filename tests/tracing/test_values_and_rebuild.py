"""Descriptions of values, and objects taken apart and put together again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import BatchEncoding, DynamicCache, LlamaConfig, LlamaModel
from transformers.modeling_outputs import BaseModelOutput

from mase_server import MaseGraph
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.calls import Reports, classify, is_shown, ref, references, with_types
from mase_server.tracing.recording.values import (
    DictOf,
    Python,
    Rebuild,
    TupleOf,
    describe_value,
    fields_of,
    holds_tensor,
    tensors_of,
)
from tests.tracing.recording import assert_equal_to_eager, assert_same


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    x: Any
    name: str = "record"


class Plain:
    def __init__(self, **data):
        self.__dict__.update(data)


F32 = TensorType("float32", (2, 3))
T = torch.zeros(2, 3)

DESCRIBED = [
    (T, F32),
    (torch.zeros((), dtype=torch.int64), TensorType("int64", ())),
    (nn.Parameter(T), F32),
    (None, Python("None")),
    (3, Python("int")),
    ("text", Python("str")),
    (T.shape, Python("Size")),
    ((T, 1), TupleOf((F32, Python("int")))),
    ([T, [T]], TupleOf((F32, TupleOf((F32,))))),
    (Pair(T, None), TupleOf((F32, Python("None")))),
    ({"a": T, 1: 2}, DictOf((("a", F32), ("1", Python("int"))))),
    (OrderedDict(a=T), DictOf((("a", F32),))),
    (Record(T), DictOf((("x", F32), ("name", Python("str"))))),
    (BaseModelOutput(last_hidden_state=T), DictOf((("last_hidden_state", F32),))),
    (BatchEncoding({"ids": T}), DictOf((("ids", F32),))),
    (Plain(x=T), Python("Plain")),
    (Record, Python("type")),
]


@pytest.mark.parametrize(("value", "described"), DESCRIBED)
def test_values_are_described_by_shape_and_type(value, described):
    assert describe_value(value) == described


@pytest.mark.parametrize(("value", "described"), DESCRIBED)
def test_what_holds_a_tensor_is_shown(value, described):
    assert holds_tensor(value) == is_shown(described) == bool(list(tensors_of(described)))


def test_endless_nesting_ends():
    value: list = []
    value.append(value)
    assert not holds_tensor(value)
    assert isinstance(describe_value(value), TupleOf)


def test_only_mappings_and_data_classes_have_fields():
    assert fields_of({"a": 1}) == {"a": 1}
    assert fields_of(Record(1)) == {"x": 1, "name": "record"}
    assert fields_of(Record) is None
    assert fields_of(Plain(x=1)) is None


leaves = st.one_of(st.just("tensor"), st.integers(), st.none(), st.text(max_size=3))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.builds(Record, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(OrderedDict),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda data: Plain(**data)),
    ),
    max_leaves=12,
)


def planted(tree, make):
    """The tree with a tensor of `make` for each "tensor"."""
    if tree == "tensor" and isinstance(tree, str):
        return make()
    if isinstance(tree, Pair):
        return Pair(*(planted(item, make) for item in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(planted(item, make) for item in tree)
    if isinstance(tree, dict):
        return type(tree)((key, planted(item, make)) for key, item in tree.items())
    if isinstance(tree, Record):
        return Record(planted(tree.x, make))
    if isinstance(tree, Plain):
        return Plain(**{key: planted(item, make) for key, item in vars(tree).items()})
    return tree


def same(one, other):
    """Equal, of equal types, with identical tensors."""
    if isinstance(one, torch.Tensor):
        return one is other
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Record | Plain):
        return same(vars(one), vars(other))
    return one == other


@given(trees)
def test_objects_are_put_together_with_other_tensors(tree):
    made, others = [], []

    def make(where):
        where.append(torch.empty(len(where)))
        return where[-1]

    value = planted(tree, lambda: make(made))
    expected = planted(tree, lambda: make(others))
    template = Rebuild.of(value)
    assert [id(tensor) for tensor in template.tensors] == [id(tensor) for tensor in made]
    assert same(template(others), expected)
    assert same(template(made), value)


@given(trees)
def test_taking_apart_changes_nothing(tree):
    value = planted(tree, lambda: T)
    copy = planted(tree, lambda: T)
    Rebuild.of(value)([torch.ones(1)] * 12)
    assert same(value, copy)


@pytest.mark.parametrize("kind", [BaseModelOutput, BatchEncoding])
def test_model_outputs_keep_their_type(kind):
    value = BaseModelOutput(last_hidden_state=T) if kind is BaseModelOutput else BatchEncoding({"ids": T})
    new = Rebuild.of(value)([torch.ones(1)])
    assert type(new) is kind
    assert next(iter(new.values())).tolist() == [1.0]
    assert next(iter(value.values())) is T


class Small(nn.Module):
    """A transformers model, inside: its cache comes out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=31, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64,
        )  # fmt: skip
        self.model = LlamaModel(config)

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=True)


def cache_tensors(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def test_a_cache_comes_out_of_a_graph_as_a_cache():
    model, ids = Small().eval(), torch.randint(0, 31, (2, 9))
    graph = MaseGraph(model, {"ids": ids})
    with torch.no_grad():
        theirs, ours = model(ids), graph.model(ids)
    assert type(ours) is type(theirs)
    assert type(ours.past_key_values) is DynamicCache
    assert_same([ours.last_hidden_state, *cache_tensors(ours.past_key_values)],
                [theirs.last_hidden_state, *cache_tensors(theirs.past_key_values)])  # fmt: skip


class Continues(Small):
    def forward(self, ids, cache):
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state


def test_a_filled_cache_goes_into_a_graph_and_stays_as_it_was():
    model = Continues().eval()
    with torch.no_grad():
        filled = model.model(torch.randint(0, 31, (2, 5)), use_cache=True).past_key_values
    ids, before = torch.randint(0, 31, (2, 1)), [tensor.clone() for tensor in cache_tensors(filled)]
    graph = MaseGraph(model, {"ids": ids, "cache": filled})
    assert all(map(torch.equal, cache_tensors(filled), before))
    with torch.no_grad():
        ours = graph.model(ids, filled)
        assert torch.equal(ours, model(ids, filled))


class Remade(nn.Module):
    """A buffer that is computed anew after construction, as rotary tables are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(8.0), persistent=False)

    def forward(self, x):
        self.table = torch.outer(torch.arange(x.shape[1]).float(), torch.ones(4))
        return x + self.table


def test_buffers_that_are_made_anew_follow_the_length():
    graph = assert_equal_to_eager(Remade(), {"x": torch.randn(2, 16, 4)}, {"x": torch.randn(3, 9, 4)})
    assert graph.generic


def test_operators_are_told_from_methods_and_functions():
    import operator

    assert classify(torch.Tensor.add) == ("call_method", "add")
    assert classify(torch.relu) == ("call_function", torch.relu)
    assert classify(nn.functional.relu) == ("call_function", nn.functional.relu)
    assert classify(torch.Tensor.__getitem__) == ("call_function", operator.getitem)
    assert classify(torch.Tensor.__setitem__) == ("call_function", operator.setitem)
    assert classify(torch.Tensor.split) == ("call_method", "split")


nested = st.recursive(
    st.integers(0, 5).map(lambda index: ("ref", index)) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)


@given(nested)
def test_references_are_found_in_order_however_deep(tree):
    found = []

    def build(item):
        if isinstance(item, tuple):
            found.append(item[1])
            return ref(item[1])
        if isinstance(item, list):
            return [build(part) for part in item]
        return {key: build(part) for key, part in item.items()} if isinstance(item, dict) else item

    assert references(build(tree)) == found


def test_references_stand_for_the_types_of_their_calls():
    class Call:
        value = F32

    assert with_types((ref(0), [1, {"a": ref(0)}], slice(None, 2)), [Call()]) == (F32, [1, {"a": F32}], slice(None, 2))


def test_a_trial_that_raises_reports_nothing_and_one_that_succeeds_does():
    reports = Reports()
    see = reports.reporter("/a.py", ())
    with reports.on_trial():
        see(0, T)
    with pytest.raises(KeyError), reports.on_trial():  # noqa: PT012
        see(0, T)
        raise KeyError
    with reports.muted():
        see(0, T)
    assert len(reports.outside) == len(reports.kept) == 1


@pytest.mark.parametrize("value", [T, [T], {"a": T}, Record(T), (1, (T,)), BaseModelOutput(last_hidden_state=T)])
def test_reporters_give_back_the_very_value(value):
    reports = Reports()
    assert reports.reporter("/a.py", ())(0, value) is value
    assert len(reports.outside) == 1


@pytest.mark.parametrize("value", [1, "text", None, [1], {"a": 2}, Record(3), nn.Linear(1, 1), object(), T.shape])
def test_what_holds_no_tensor_is_no_event(value):
    reports = Reports()
    assert reports.reporter("/a.py", ())(0, value) is value
    assert reports.outside == []


def test_sites_of_several_files_share_one_numbering():
    reports = Reports()
    first, second = reports.reporter("/a.py", ("s0", "s1")), reports.reporter("/b.py", ("s2",))
    second(0, T)
    first(1, T)
    assert [reports.sites[event.site] for event in reports.outside] == [("/b.py", "s2"), ("/a.py", "s1")]
