"""What a pass declares, and whether given arguments fit it. The expected values are written by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.passes.declaration import Pass
from mase_server.passes.registry import built_in, find_registered_pass
from mase_server.protocol.arguments import Argument, ArgumentError, Step, split_texts

ARGUMENTS = (
    Argument("rank", "integer", "how many", default=8, minimum=1, maximum=64),
    Argument("scale", "number", "how much"),
    Argument("bias", "boolean", "with a bias"),
    Argument("way", "choice", "how", default="all", choices=("all", "some")),
    Argument("width", "format", "of weights"),
    Argument("layers", "texts", "which"),
    Argument("more", "map", "anything"),
    Argument("data", "file", "where from"),
    Argument("weight.sparsity", "number", "share of zeros", minimum=0, maximum=1),
    Argument("weight.method", "choice", "by what", choices=("l1-norm", "random")),
)


def example_transform_pass(graph, pass_args=None):
    """Does nothing.

    Not even this.
    """
    return graph, {}


def declared(*arguments, **more):
    return Pass("example", "Example", "transform", example_transform_pass, arguments or ARGUMENTS, **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"rank": "4"}, {"rank": 4}),
        ({"rank": 4.0}, {"rank": 4}),
        ({"scale": "1e-3"}, {"scale": 0.001}),
        ({"scale": 2}, {"scale": 2}),
        ({"bias": "yes"}, {"bias": True}),
        ({"bias": "Off"}, {"bias": False}),
        ({"way": "some"}, {"way": "some"}),
        ({"width": "fixed(8, 4)"}, {"width": "fixed(8, 4)"}),
        ({"width": {"name": "integer"}}, {"width": {"name": "integer"}}),
        ({"width": "{'name': 'integer'}"}, {"width": {"name": "integer"}}),
        ({"width": "none"}, {}),
        ({"layers": "fc1, fc2"}, {"layers": ["fc1", "fc2"]}),
        ({"layers": "['fc1']"}, {"layers": ["fc1"]}),
        ({"layers": ("fc1",)}, {"layers": ["fc1"]}),
        ({"more": "{'a': [1, None]}"}, {"more": {"a": [1, None]}}),
        ({"data": "data.pt"}, {"data": "data.pt"}),
        ({"weight.sparsity": "0.5"}, {"weight": {"sparsity": 0.5}}),
        (
            {"weight": {"sparsity": 0.5, "method": "random"}},
            {"weight": {"sparsity": 0.5, "method": "random"}},
        ),
        ({"weight": "{'sparsity': '0.5'}"}, {"weight": {"sparsity": 0.5}}),
        ({"weight": None}, {}),
        ({"scale": None}, {}),
    ],
)
def test_texts_and_values_become_pass_args(given, expected):
    defaults = {"rank": 8, "way": "all"}
    assert declared().checked(given) == defaults | expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": "four"}, "example: rank is 'four', expected a whole number from 1 to 64"),
        ({"rank": 0}, "example: rank is 0, expected a whole number from 1 to 64"),
        ({"rank": True}, "example: rank is True, expected a whole number from 1 to 64"),
        ({"rank": 4.5}, "example: rank is 4.5, expected a whole number from 1 to 64"),
        ({"rank": float("inf")}, "example: rank is inf, expected a whole number from 1 to 64"),
        ({"scale": float("nan")}, "example: scale is nan, expected a number"),
        ({"scale": "1,5"}, "example: scale is '1,5', expected a number"),
        ({"bias": 1}, "example: bias is 1, expected true or false"),
        ({"way": "others"}, "example: way is 'others', expected one of all, some"),
        ({"layers": [1]}, "example: layers is [1], expected texts, separated by commas"),
        ({"more": "{'a'"}, "example: more is \"{'a'\", expected a map such as {'name': 1}"),
        ({"weight.sparsity": 1.5}, "example: weight.sparsity is 1.5, expected a number from 0 to 1"),
        ({"weight": {"sparsty": 1}}, "example has no argument 'weight.sparsty'; did you mean 'weight.sparsity'?"),
        ({"weight": 3}, "example has no argument 'weight'; did you mean 'weight.method'?"),
        ({"rnak": 3}, "example has no argument 'rnak'; did you mean 'rank'?"),
        ({"only": "fc1"}, "example has no argument 'only'; it takes rank, scale,"),
        ({"width": "fxed(8,4)"}, "example: width: no number format is called 'fxed'; did you mean 'fixed'?"),
        ({"width": "fixed(8,65)"}, "example: width: fixed: fraction_width is 65, expected"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(given, message):
    with pytest.raises(ArgumentError) as error:
        declared().checked(given)
    assert str(error.value).startswith(message)


def test_a_long_value_is_not_quoted_whole():
    with pytest.raises(ArgumentError) as error:
        declared().checked({"rank": "9" * 5000})
    assert len(str(error.value)) < 200


def test_a_required_argument_is_asked_for_with_its_meaning():
    one = declared(Argument("data", "file", "what to calibrate on", required=True))
    with pytest.raises(ArgumentError, match=r"^example needs data: the path of a file \(what to calibrate on\)$"):
        one.checked({})
    assert one.checked({"data": "none"}) == {"data": "none"}


def test_further_keys_are_taken_where_the_pass_takes_any():
    one = declared(others=Argument("operator", "format", "the format of an operator"))
    given = {"linear": "fixed(8,4)", "transformer.h.0": {"config": {"name": None}}}
    assert {**one.checked(given), **given} == one.checked(given)
    with pytest.raises(ArgumentError, match="example: linear: no number format is called 'nonsense'"):
        one.checked({"linear": "nonsense"})


def test_passes_that_select_take_only():
    one = declared(selects=True)
    assert one.checked({"only": "fc1,fc2"})["only"] == ["fc1", "fc2"]
    assert one.to_wire()["arguments"][-1]["name"] == "only"


def test_on_the_wire_it_is_plain_values():
    told = declared(needs=frozenset({"weights", "data"}), others=ARGUMENTS[0]).to_wire()
    assert told["needs"] == ["data", "weights"]
    assert (told["mase"], told["help"]) == ("example_transform_pass", "Does nothing.")
    assert [Argument.from_wire(each) for each in told["arguments"]] == list(ARGUMENTS)
    assert Argument.from_wire(told["others"]) == ARGUMENTS[0]
    assert _is_plain(told)


def _is_plain(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True), st.dictionaries(st.text(min_size=1), PLAIN, max_size=4))
def test_a_steps_text_reads_back_as_the_step(name, arguments):
    step = Step(name, arguments)
    assert Step.parse(str(step)) == step


@pytest.mark.parametrize("key", ["\ufb00", "None", "class", "match", "weight.sparsity", "a b", "", "'"])
def test_any_key_of_a_step_reads_back(key):
    """Python normalises letters of names, and refuses its own words."""
    step = Step("quantize", {key: "fixed(8,4)"})
    assert Step.parse(str(step)) == step


@given(st.dictionaries(st.sampled_from([each.name for each in ARGUMENTS]) | st.text(), PLAIN, max_size=4))
def test_any_plain_arguments_are_taken_or_refused_in_words(given):
    try:
        taken = declared().checked(given)
    except ArgumentError as error:
        refused = str(error)
    else:
        refused = "example"
        assert declared().checked(taken) == taken
        assert set(taken) <= {each.name.split(".")[0] for each in ARGUMENTS}
    assert refused.startswith("example")


@given(st.lists(st.text(alphabet="ab()[],", max_size=6), max_size=4))
def test_parts_between_commas_join_to_the_text_again(texts):
    text = ",".join(texts)
    assert ",".join(split_texts(text)) == text


SAMPLES = {"map": {"a": 1}, "integer": 1, "number": 0.5, "boolean": True, "format": "fixed(8,4)"}


@pytest.mark.parametrize("each", built_in().values(), ids=lambda each: each.name)
def test_the_defaults_of_every_pass_fit_it(each):
    required = {argument.name: SAMPLES.get(argument.kind, "none") for argument in each.arguments if argument.required}
    taken = each.checked(required)
    assert each.checked(taken) == taken
    assert Step.from_wire(Step(each.name, taken).to_wire()) == Step.parse(str(Step(each.name, taken)))


@pytest.mark.parametrize("each", built_in().values(), ids=lambda each: each.name)
def test_every_pass_can_be_told_and_shown(each):
    assert each.name.isidentifier()
    assert each.title[0].isupper()
    assert not each.title.endswith(".")
    assert each.help
    assert _is_plain(each.to_wire())
    assert all(argument.help for argument in each.all_arguments)
    assert each.function.__name__ in (f"{each.name}_{each.kind}_pass", *_OTHER_NAMES)


#: Functions whose MASE name is not made of the name that people use.
_OTHER_NAMES = {"training_base_pass", "calculate_avg_bits_mg_analysis_pass"}


def test_every_public_pass_is_declared_once():
    public = {name: getattr(passes, name) for name in passes.__all__ if name.endswith("_pass")}
    declared = [each.function for each in built_in().values()]
    assert {function.__name__: function for function in declared} == public
    assert len(declared) == len(public)


def test_a_pass_is_found_by_either_of_its_names():
    known = {"example": declared()}
    assert find_registered_pass("example", known) is find_registered_pass("example_transform_pass", known)
    with pytest.raises(ValueError, match=r"^there is no pass 'exmaple'; did you mean 'example'\? There are example$"):
        find_registered_pass("exmaple", known)
    with pytest.raises(ValueError, match=r"^there is no pass 'zzz'; there are example$"):
        find_registered_pass("zzz", known)


def test_a_plain_graph_takes_what_a_text_means():
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(1, 4)})
    lora = built_in()["insert_lora_adapter"]
    _, found = lora.function(graph, lora.checked({"rank": "2"}))
    assert found["inserted"] == {"_0": [4, 2]}
