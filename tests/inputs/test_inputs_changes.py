"""What is tried next: in which order, within which bounds, and what values are never out of range."""

import pytest
import torch
from torch import nn

from mase_server.tracing.inputs.searching.operands import TrackingMode, list_operands, trail_of
from mase_server.tracing.inputs.searching.search import search_inputs
from mase_server.tracing.inputs.searching.trees import (
    iterate_all_members,
    iterate_tensor_specs,
    name_sizes,
    put_member,
    resize_dimension,
)
from mase_server.tracing.inputs.spec import extremes_at, inputs_at, on_meta
from mase_server.tracing.inputs.text import format_inputs, parse_inputs
from mase_server.tracing.models.found import Hooks, plain_hooks
from mase_server.tracing.recording.shadow import MetaMode, Shadows


def on_record(model_of):
    """A search of a model, and the shapes that were tried."""
    shadows, tried = Shadows(), []
    plain = plain_hooks(shadows)

    def attempt(model, args, kwargs):
        tried.append([tuple(value.shape) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)])
        return plain.attempt(model, args, kwargs)

    with MetaMode(shadows):
        model = model_of()
    return search_inputs(model, Hooks(shadows, plain.on_call, attempt)), tried


class Growing(nn.Module):
    """Always wants the square of what it is given."""

    def forward(self, x):
        side = x.shape[-1]
        raise RuntimeError(f"The size of tensor a ({side}) must match the size of tensor b ({side * side}) at 3")


class Offset(nn.Module):
    """Indices are moved up before they are looked up: all but the ten last ones of the table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 8)

    def forward(self, x):
        return self.table(x + 30)


class Labelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 5)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.first(x), y)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, x, y):
        return self.table(x) + self.table(y)[:, :3]


def test_sizes_do_not_grow_without_bounds():
    found, tried = on_record(Growing)
    assert found.spec is None
    assert max(torch.Size(shape).numel() for shapes in tried for shape in shapes) <= 1 << 24


def test_indices_that_are_moved_up_stay_in_the_table():
    found, _ = on_record(Offset)
    (leaf,) = [spec for _, spec in iterate_tensor_specs(found.spec)]
    assert leaf.argument == 10
    for seed in range(8):
        Offset()(**inputs_at(found.spec, seed=seed))


def test_class_labels_are_below_the_number_of_classes():
    found, _ = on_record(Labelled)
    assert format_inputs(found.spec) == "x: f32[B=2, 12]; y: i64[B] < 5"


def test_nothing_is_tried_twice():
    texts = []
    shadows = Shadows()
    plain = plain_hooks(shadows)

    def attempt(model, args, kwargs):
        texts.append(str([(value.shape, value.dtype) for value in (*args, *kwargs.values())]))
        return plain.attempt(model, args, kwargs)

    with MetaMode(shadows):
        model = Growing()
    search_inputs(model, Hooks(shadows, plain.on_call, attempt), attempts=40)
    # Whole numbers are tried at their largest first, and again as they are shown only where that succeeds.
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("text", ["x: i64[B=3, T=4] < 7", "x: {a: i64[5] < 7, b: f32[2]}"])
def test_the_largest_values_are_just_below_their_bound(text):
    (largest,) = {int(value.max()) for value in flat(extremes_at(parse_inputs(text))) if value.dtype == torch.int64}
    assert largest == 6


def test_there_are_no_largest_values_where_no_whole_numbers_are_drawn():
    assert extremes_at(parse_inputs("x: f32[B=3, 4]; mask: bool[B, 4] ones")) == {}


def flat(values):
    for value in values.values():
        yield from value.values() if isinstance(value, dict) else (value,)


def test_an_error_tells_which_call_raised_it_and_what_that_came_from():
    shadows = Shadows()
    with MetaMode(shadows):
        model = Deep()
    values = on_meta(inputs_at(parse_inputs("x: i64[B=2, T=6] < 9; y: i64[B, T] < 9")), shadows)
    with TrackingMode(shadows) as mode, pytest.raises(RuntimeError) as caught:
        model(**values)
    trail = trail_of(caught.value)
    left, right = list_operands(trail)
    assert trail.name == "add"
    assert (left.shape, right.shape) == ((2, 6, 4), (2, 3, 4))
    assert mode.sources_of(left) == {id(values["x"]), id(model.table.weight)}
    assert mode.sources_of(right) == {id(values["y"]), id(model.table.weight)}


def test_a_member_deep_inside_is_found_and_changed():
    inputs = parse_inputs("batch: {x: f32[B=2, 3], more: (f32[B, T=5], {y: i64[T] < 4})}")
    paths = dict(iterate_all_members(inputs))
    path = ("batch", "more", 1, "y")
    assert format_inputs(put_member(inputs, path, paths["batch", "x"])).endswith("{y: f32[B, 3]})}")


def test_a_size_is_changed_for_all_that_share_it_or_for_one_alone():
    inputs = parse_inputs("x: f32[B=2, T=5, 3]; y: i64[B, T] < 4")
    ((_, first), _) = iterate_tensor_specs(inputs)
    assert [format_inputs(each) for each in resize_dimension(inputs, ("x",), first, 1, 7)] == [
        "x: f32[B=2, T=7, 3]; y: i64[B, T] < 4",
        "x: f32[B=2, 7, 3]; y: i64[B, T=5] < 4",
    ]


def test_sizes_are_named_as_other_inputs_name_them():
    inputs = parse_inputs("x: f32[B=2, T=5, 3]; y: f32[B, N=8]")
    assert name_sizes(inputs, (2, 8, 5, 2, 3)) == ("B", "N", "T", 2, 3)


def test_a_mask_of_another_shape_is_refused_as_eager_refuses_it():
    shadows, text = Shadows(), "x: f32[2, 5, 3]; mask: bool[2, 4] ones"
    values = inputs_at(parse_inputs(text))
    with pytest.raises(IndexError) as eager:
        values["x"][values["mask"]]
    with TrackingMode(shadows), pytest.raises(IndexError) as tracked:
        on_meta(values, shadows)["x"][on_meta(values, shadows)["mask"]]
    assert str(tracked.value) == str(eager.value)
