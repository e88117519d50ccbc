"""Signatures as text: what Python reads in them is what the function has."""

import ast
import inspect
import math
from types import MappingProxyType

import pytest

import mase_server
from docs.signatures import parameters_of, shown, signature
from mase_server import passes

FUNCTIONS = [
    (name, getattr(home, name))
    for home in (mase_server, passes)
    for name in home.__all__
    if inspect.isfunction(getattr(home, name))
]


def short(a, b: int = 3, *, c: str = "x") -> None: ...


def many(
    first_parameter: int, second_parameter: int, third_parameter: int, fourth_parameter: int
) -> dict[str, int]: ...


def gathering(*args: int, **kwargs: str) -> list[int]: ...


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_a_signature_is_python_with_the_names_and_kinds_of_the_function(name, function):
    text = signature(name, function)
    arguments = ast.parse(f"def {text}: ...").body[0].args
    true = inspect.signature(function).parameters.values()
    assert [each.arg for each in arguments.args] == [
        each.name for each in true if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    assert [each.arg for each in arguments.kwonlyargs] == [each.name for each in true if each.kind is each.KEYWORD_ONLY]
    assert len(arguments.defaults) == sum(
        each.default is not each.empty for each in true if each.kind is each.POSITIONAL_OR_KEYWORD
    )


def test_a_short_signature_is_one_line_and_tells_no_result_where_there_is_none():
    assert signature("short", short) == 'short(a, b: int = 3, *, c: str = "x")'


def test_a_long_signature_has_a_line_for_each_parameter():
    lines = signature("many", many).splitlines()
    assert lines[0] == "many("
    assert lines[1] == "    first_parameter: int,"
    assert lines[-1] == ") -> dict[str, int]"
    assert len(lines) == 6


def test_gathered_arguments_have_their_stars():
    assert signature("gathering", gathering) == "gathering(*args: int, **kwargs: str) -> list[int]"


def test_the_object_of_a_method_is_left_out():
    assert [each.name for each in parameters_of(mase_server.MaseGraph.export)] == ["fname"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MappingProxyType({"a": (1,), "b": MappingProxyType({})}), '{"a": (1,), "b": {}}'),
        ((math,), "(math,)"),
        ((), "()"),
        ("all", '"all"'),
        (None, "None"),
        (1e-5, "1e-05"),
        (int, "int"),
        (object(), "..."),
    ],
)
def test_a_default_is_shown_without_addresses_and_paths(value, text):
    assert shown(value) == text


def test_a_long_default_is_cut_because_it_has_a_table():
    def chooses(options: dict[str, int] = MappingProxyType({"a" * 30: 1, "b" * 30: 2})) -> None: ...

    assert signature("chooses", chooses).endswith("= {...})")
