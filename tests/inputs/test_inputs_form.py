"""What the form for inputs writes is read back as the same inputs and arguments, whatever they are."""

import ast
import inspect
import keyword
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_inputs_text import names, specs, symbols
from torch import nn

from mase_server.daemon.api_inputs import compose_comment_text, find_bad_arguments
from mase_server.tracing.inputs.comments import BadComment, read_comments
from mase_server.tracing.inputs.showing import argument_fields, form_of, input_fields
from mase_server.tracing.inputs.spec import Inputs, MapSpec, SequenceSpec, TensorSpec, complete_sizes
from mase_server.tracing.inputs.text import parse_inputs
from mase_server.tracing.models.constructions import Constructions
from mase_server.tracing.models.expressions import NAMES

#: As Python has them: normalised.
identifiers = names.map(lambda name: unicodedata.normalize("NFKC", name)).filter(
    lambda name: name.isidentifier() and not keyword.iskeyword(name)
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.text(max_size=6), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=5,
)


class Any(nn.Module):
    """A model that takes anything."""

    def __init__(self, **given):
        super().__init__()

    def forward(self, **given):
        return given


def read(text, start="# mase[a set]: "):
    (read,) = read_comments(f"{start}{text}\nclass Net: pass\n", ast.parse("class Net: pass"))
    assert not isinstance(read, BadComment), read
    assert read.set == "a set"
    return read


@given(st.dictionaries(identifiers, specs, min_size=1, max_size=4), st.dictionaries(symbols, st.integers(1, 999)))
def test_inputs_that_the_form_writes_are_read_back(entries, sizes):
    used = set(Inputs(entries).symbols())
    inputs = complete_sizes(Inputs(entries, {symbol: size for symbol, size in sizes.items() if symbol in used}))
    fields = {each["name"]: each["text"] for each in input_fields(Any(), inputs)}
    said = compose_comment_text("Net", None, fields)
    assert complete_sizes(read(said.text).inputs) == inputs
    for start, end, field in said.spans:
        name = field.removeprefix("inputs.")
        assert parse_inputs(said.text[start:end]).entries == {name: inputs.entries[name]}


@given(st.dictionaries(identifiers, plain, max_size=4))
def test_arguments_that_the_form_writes_are_read_back(given):
    def build(**kwargs):
        return kwargs

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in given]
    build.__signature__ = inspect.Signature(parameters)
    fields = {each["name"]: each["text"] for each in argument_fields(build, given, {})}
    assert not list(find_bad_arguments(fields, literal=not any(map(has_infinity, given.values()))))
    wish = read(compose_comment_text("Net", fields, {"x": "f32[1]"}).text)
    assert eval(wish.call, {**NAMES, "Net": build}) == given
    assert wish.inputs == parse_inputs("x: f32[1]")


def has_infinity(value):
    """`float('inf')` is a call, and no plain value."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(map(has_infinity, parts)) or (isinstance(value, float) and math.isinf(value))


class Net(nn.Module):
    def __init__(self, width, *rest, bias=True, kind=nn.ReLU, **more):
        super().__init__()

    def forward(self, x, mask=None, *others, scale=2.0, **more):
        return x


def test_the_form_tells_what_is_given_what_is_needed_and_what_there_is_by_default():
    with Constructions().recording():
        model = Net(3, bias=False)
    spec = Inputs({"x": TensorSpec("f32", ("B", 3)), "others": SequenceSpec((TensorSpec("i64", (2,)),))}, {"B": 4})
    form = form_of(model, "Net", {}, spec, {"Net": Net, "nn": nn})
    told = [[tuple(each.values()) for each in form[group]] for group in ("arguments", "inputs")]
    assert form["call"] == "Net"
    assert told == [
        [("width", "3", "", True, ""), ("bias", "False", "", False, "True"), ("kind", "", "", False, "nn.ReLU")],
        [
            ("x", "f32[B=4, 3]", "", True, ""),
            ("others", "(i64[2],)", "", False, ""),
            ("mask", "", "", False, "None"),
            ("scale", "", "", False, "2.0"),
        ],
    ]


def test_what_has_no_text_says_why_and_a_variable_has_no_call():
    model = nn.Sequential(nn.Linear(3, 4))
    spec = Inputs({"input": MapSpec((("a", TensorSpec("f32", (1,))),), build=Net)})
    form = form_of(model, "model", {}, spec, {"model": model})
    assert (form["call"], form["arguments"]) == ("", [])
    assert [(each["text"], each["why"]) for each in form["inputs"]] == [
        ("", "an object of a class of its own has no text form")
    ]


@pytest.mark.parametrize(
    ("arguments", "inputs", "text"),
    [
        (None, {"x": " f32[1,\n 3] ", "y": ""}, "x: f32[1, 3]"),
        ({}, {"x": "f32[1]"}, "Net(); x: f32[1]"),
        ({"width": "3", "deep": " "}, {}, "Net(width=3)"),
        ({"name": "'a;b)'"}, {"x": "f32[1]", "y": "2"}, "Net(name='a;b)'); x: f32[1]; y: 2"),
        ({"name": "'a  b'"}, {"x": "'  c'"}, "Net(name='a  b'); x: '  c'"),
    ],
)
def test_fields_become_the_text_of_one_comment(arguments, inputs, text):
    assert compose_comment_text("Net", arguments, inputs).text == text


@pytest.mark.parametrize(
    ("text", "literal", "why"),
    [
        ("3 +", False, "'3 +' is no Python expression: invalid syntax"),
        ("nn.ReLU", False, None),
        ("nn.ReLU", True, "'nn.ReLU' is no plain value: what is given over this connection is not run"),
        ("[1, {'a': -2.5}]", True, None),
        ("(" * 500 + ")" * 500, False, "is no Python expression"),
    ],
)
def test_an_argument_is_an_expression_or_where_no_code_is_taken_a_value(text, literal, why):
    found = list(find_bad_arguments({"width": text}, literal=literal))
    assert [field for field, _ in found] == (["arguments.width"] if why else [])
    assert not why or why in found[0][1]
