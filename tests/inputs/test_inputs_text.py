"""The text form of inputs: what is read, what is written, and where mistakes are."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.dtypes import LONG
from mase_server.tracing.inputs.spec import (
    FILLS,
    ConstantSpec,
    Inputs,
    MapSpec,
    SequenceSpec,
    TensorSpec,
    resize_inputs,
)
from mase_server.tracing.inputs.text import SpecError, format_inputs, parse_inputs

symbols = st.sampled_from(["B", "T", "H", "W", "n_1"])
numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False, width=32))
tensors = st.builds(
    lambda dtype, dims, fill: TensorSpec(dtype, tuple(dims), *fill),
    st.sampled_from(sorted(LONG)),
    st.lists(st.one_of(st.integers(0, 4096), symbols), max_size=5),
    st.one_of(
        st.just(("", None)),
        st.sampled_from([(word, None) for word in FILLS if word != "below"]),
        st.tuples(st.sampled_from(sorted(FILLS)), st.one_of(st.integers(0, 10**5), symbols)),
    ),
)
constants = st.builds(ConstantSpec, st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8)))
names = st.one_of(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text(min_size=1, max_size=6))
specs = st.recursive(
    st.one_of(tensors, constants),
    lambda inner: st.one_of(
        st.builds(
            lambda items, is_list: SequenceSpec(tuple(items), is_list), st.lists(inner, max_size=3), st.booleans()
        ),
        st.builds(lambda items: MapSpec(tuple(items.items())), st.dictionaries(names, inner, max_size=3)),
    ),
    max_leaves=6,
)


@given(st.dictionaries(names, specs, max_size=4), st.dictionaries(symbols, st.integers(1, 999)))
def test_what_was_written_is_read_back_as_the_same_inputs(entries, sizes):
    used = set(Inputs(entries).symbols())
    inputs = Inputs(entries, {symbol: size for symbol, size in sizes.items() if symbol in used})
    assert parse_inputs(format_inputs(inputs)) == inputs


@pytest.mark.parametrize(
    "name", ["inf", "nan", "True", "f32", "join", "A\u0dca", "inf\u0dca", "\u2118x", "x\u00b7", "a b", "-"]
)
def test_any_name_is_read_back(name):
    inputs = Inputs({name: TensorSpec("f32", (2,))}, {})
    assert parse_inputs(format_inputs(inputs)) == inputs


def test_every_character_that_begins_an_identifier_of_python_does_so_here():
    letters = [letter for letter in map(chr, range(sys.maxunicode)) if letter.isidentifier()]
    assert list(parse_inputs("; ".join(f"{letter}0: 1" for letter in letters)).entries) == [
        f"{letter}0" for letter in letters
    ]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("x: f32[1, 784]", {"x": TensorSpec("f32", (1, 784))}),
        ("x = float32[1, 784]", {"x": TensorSpec("f32", (1, 784))}),
        ("ids: i64[2, 16] < 50257", {"ids": TensorSpec("i64", (2, 16), "below", 50257)}),
        ("s: f32[]", {"s": TensorSpec("f32", ())}),
        ("use_cache = False", {"use_cache": ConstantSpec(False)}),
        ("p: (f32[2, 3],)", {"p": SequenceSpec((TensorSpec("f32", (2, 3)),))}),
        (
            "p: [f32[2], 'a', -1.5]",
            {"p": SequenceSpec((TensorSpec("f32", (2,)), ConstantSpec("a"), ConstantSpec(-1.5)), True)},
        ),
        (
            "batch: {input_ids: i64[B, T], label: i64[B]}",
            {"batch": MapSpec((("input_ids", TensorSpec("i64", ("B", "T"))), ("label", TensorSpec("i64", ("B",)))))},
        ),
        (
            "a: f32[1]\n b: f32[2];; c: None",
            {"a": TensorSpec("f32", (1,)), "b": TensorSpec("f32", (2,)), "c": ConstantSpec(None)},
        ),
        ("n: i64[B] lengths(T)", {"n": TensorSpec("i64", ("B",), "lengths", "T")}),
    ],
)
def test_each_form_is_read(text, entries):
    assert dict(parse_inputs(text).entries) == entries


def test_a_symbol_may_say_its_size_once():
    inputs = parse_inputs("x: f32[B=4, T, 8]; m: bool[B, T=7]")
    assert inputs.sizes == {"B": 4, "T": 7}
    assert inputs.symbols() == ("B", "T")
    assert format_inputs(inputs) == "x: f32[B=4, T=7, 8]; m: bool[B, T]"


def test_resizing_keeps_the_other_symbols():
    assert resize_inputs(parse_inputs("x: f32[B=4, T=7]"), {"T": 23}).sizes == {"B": 4, "T": 23}


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("x f32[1]", 1, 2, "expected ':' and the value after the name, as in `x: f32[1, 784]`, found 'f32'"),
        ("x: f32[1, ", 1, 10, "expected a size: a number or a symbol, found the end"),
        ("x: f32[1; 2]", 1, 8, "expected ',' or ']', found ';'"),
        ("x: f32(1)", 1, 6, "expected '[' and the sizes after f32, as in f32[1, 784], found '('"),
        ("x: f32[-1]", 1, 7, "expected a size: a number or a symbol, found '-1'"),
        ("x: f32[2]\ny: i64[3] <", 2, 11, "expected a number or a symbol, found the end"),
        ("x: f32[2] x: f32[3]", 1, 10, f"expected one of {', '.join(FILLS)}, found 'x'"),
        ("x: f32[2]; x: f32[3]", 1, 11, "the input 'x' is given twice"),
        ("x: f32[B=2, B=3]", 1, 14, "B is 2 before and 3 here"),
        ("x: {a: f32[1]", 1, 13, "expected ',' or '}', found the end"),
        ("x: ?", 1, 3, "unexpected character '?'"),
        ("1: f32[2]", 1, 0, "expected an input's name, as in `x: f32[1, 784]`, found '1'"),
    ],
)
def test_a_mistake_is_reported_where_it_is_with_what_was_expected(text, line, column, message):
    with pytest.raises(SpecError) as caught:
        parse_inputs(text)
    assert (caught.value.line, caught.value.column, caught.value.message) == (line, column, message)


def test_an_unknown_element_type_names_the_known_ones():
    with pytest.raises(SpecError, match=r"unknown element type 'f31'; expected one of f16, bf16, f32"):
        parse_inputs("x: f31[2]")
