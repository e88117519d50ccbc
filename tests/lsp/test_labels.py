"""The text of values, written out by hand; and that a label never says what was not seen."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.lsp.labels import LIMIT, has_tensor, label_values


def f32(*symbols, sizes=None):
    return ["f32", sizes or [2] * len(symbols), [str(symbol) for symbol in symbols]]


def many(*values):
    return {"tuple": list(values)}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([f32("B", "T", 768)], "f32[B, T, 768]"),
        ([["i64", [2, 16], None]], "i64[2, 16]"),
        ([f32()], "f32[]"),
        ([many(f32("B", 10), f32("B", 64))], "(f32[B, 10], f32[B, 64])"),
        ([many(f32("B"))], "(f32[B],)"),
        ([many()], "()"),
        ([many(f32("B"), None, {"python": "int"})], "(f32[B], None, int)"),
        ([{"dict": {"loss": f32(), "logits": f32("B", 2)}}], "{loss: f32[], logits: f32[B, 2]}"),
        ([many(*[many(f32("B", 4), f32("B", 4))] * 12)], "(12 of (f32[B, 4], f32[B, 4]))"),
        ([f32("B", 10), f32("B", 10)], "f32[B, 10]"),
        ([f32("B", 10), f32("B", "T", 10)], "f32[B, 10] | f32[B, T, 10]"),
        ([f32("B"), ["bf16", [2], ["B"]]], "f32[B] | bf16[B]"),
        ([f32("B"), None], "f32[B] | None"),
        ([f32("B", 64), f32("B", 128)], "f32[B, 64|128]"),
        ([many(f32("B", 64), f32(1)), many(f32("B", 128), f32(1))], "(f32[B, 64|128], f32[1])"),
    ],
)
def test_what_a_label_says(values, text):
    assert label_values(values) == text


def test_a_block_in_four_stages_shows_what_differs():
    stages = [f32("B", 64, 56, 56), f32("B", 128, 28, 28), f32("B", 256, 14, 14), f32("B", 512, 7, 7)]
    assert label_values(stages, LIMIT) == "f32[B, 64|128|256|…, 56|28|14|…, 56|28|14|…]"


def test_alternatives_stand_in_the_same_order_in_every_dimension():
    assert label_values([f32(64, 56), f32(64, 28), f32(128, 28)]) == "f32[64|64|128, 56|28|28]"


def test_more_than_three_alternatives_are_hinted_at():
    assert label_values([f32("B", width) for width in (1, 2, 3, 4, 5, 6)]) == "f32[B, 1|2|3|…]"
    assert label_values([f32(*[1] * rank) for rank in range(1, 7)]).endswith(" | f32[1, 1, 1] | …")


def test_the_widest_dimensions_give_way_first():
    long = [f32("B", 2**k, f"(H+{k}1111111)//{k}", f"(W+{k}1111111)//{k}") for k in (4, 5, 6, 7)]
    assert label_values(long, LIMIT) == "f32[B, 16|32|64|…, (H+41111111)//4|…, (W+41111111)//4|…]"


def test_tensors_without_relation_are_counted():
    parameters = [f32(64), f32(64, 3, 3, 3), f32(128), f32(128, 64, 3, 3), f32(10, 128)]
    assert label_values(parameters, LIMIT) == "5 shapes"
    assert label_values([f32(3, 64), f32(64, 32), f32(32, 16), f32(16, 10)], LIMIT) == "4 shapes"
    assert label_values(parameters[:3], LIMIT) == "f32[64|128] | f32[64, 3, 3, 3]"


def test_a_long_tuple_says_how_many_more():
    wide = many(*[f32("B", size) for size in range(100, 120)])
    text = label_values([wide], LIMIT)
    assert re.search(r"… \d+ more\)$", text)
    assert int(re.search(r"(\d+) more", text).group(1)) + text.count("f32") == 20


def test_equal_symbols_at_other_sizes_are_one_shape():
    assert label_values([f32("B", sizes=[2]), f32("B", sizes=[5])]) == "f32[B]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, False),
        ({"python": "int"}, False),
        (many(None, {"python": "int"}), False),
        (many(None, f32()), True),
        ({"dict": {"a": many(f32())}}, True),
        ({"dict": {}}, False),
        (f32(), True),
    ],
)
def test_a_tensor_is_found_at_any_depth(value, expected):
    assert has_tensor(value) is expected


shapes = st.lists(st.sampled_from(["B", "T", "3", "64", "H//2"]), max_size=3)
tensors = st.builds(lambda dtype, dims: [dtype, [1] * len(dims), dims], st.sampled_from(["f32", "i64"]), shapes)
values = st.recursive(
    tensors | st.none(),
    lambda inner: st.builds(lambda parts: {"tuple": parts}, st.lists(inner, max_size=3)),
    max_leaves=4,
)


@given(st.lists(values, min_size=1, max_size=6))
def test_labels_of_any_values_are_short_enough_and_one_line(seen):
    assert len(label_values(seen, LIMIT)) <= LIMIT
    assert "\n" not in label_values(seen)


@given(st.lists(tensors, min_size=1, max_size=3))
def test_every_value_can_be_read_off_the_label(seen):
    """Reading alternative k of every dimension gives the k-th value: no combination is told that was not seen."""
    told = set()
    for part in label_values(seen).split(" | "):
        dtype, inside = re.fullmatch(r"(\w+)\[(.*)\]", part).groups()
        columns = [column.split("|") for column in inside.split(", ")] if inside else []
        count = max(map(len, columns), default=1)
        assert all(len(column) in {1, count} for column in columns)
        for row in range(count):
            told.add((dtype, tuple(column[row % len(column)] for column in columns)))
    assert told == {(dtype, tuple(symbols)) for dtype, _, symbols in seen}
