"""`# mase:` comments: whom they belong to, what they say, and where their mistakes are."""

import ast
import textwrap

import pytest

from mase_server.tracing.inputs.comments import BadComment, read_comments
from mase_server.tracing.inputs.text import format_inputs


def read(source):
    source = textwrap.dedent(source)
    return read_comments(source, ast.parse(source))


SOURCE = """
# mase: everywhere: f32[1]

class First:
    x = 1
    # mase: inside: f32[2]

# mase: above: f32[3]
# another comment
@decorator
class Second:
    class Inner:
        pass  # mase: nested: f32[4]

# mase: Second: named: f32[5]
"""


def test_a_comment_belongs_to_the_class_it_stands_in_or_above_or_names():
    owners = {next(iter(wish.inputs.entries)): wish.owner for wish in read(SOURCE)}
    assert owners == {"everywhere": None, "inside": "First", "above": "Second", "nested": "Inner", "named": "Second"}


def test_only_real_comments_count():
    assert read('x = "# mase: x: f32[1]"\n"""\n# mase: y: f32[1]\n"""\n# a mase: note\n') == []


@pytest.mark.parametrize(
    ("text", "call", "inputs"),
    [
        ("GPT(vocab_size=100, n_layer=2)", "GPT(vocab_size=100, n_layer=2)", None),
        ("GPT(GPTConfig(n_layer=(1, 2)))", "GPT(GPTConfig(n_layer=(1, 2)))", None),
        ("GPT(name=')'); idx: i64[2, 16] < 100", "GPT(name=')')", "idx: i64[2, 16] < 100"),
        ("GPT()", "GPT()", None),
    ],
)
def test_constructor_arguments_may_be_followed_by_inputs(text, call, inputs):
    (wish,) = read(f"# mase: {text}\n")
    assert (wish.owner, wish.call) == ("GPT", call)
    assert (wish.inputs and format_inputs(wish.inputs)) == inputs


@pytest.mark.parametrize(
    ("source", "owner"),
    [("# mase: skip\n\nx = 1\n", None), ("# mase: skip Net\n", "Net"), ("class Net:  # mase: skip\n    pass\n", "Net")],
)
def test_skip_leaves_out_the_file_or_a_class(source, owner):
    (wish,) = read(source)
    assert wish.skip
    assert wish.owner == owner


@pytest.mark.parametrize(
    ("source", "line", "found"),
    [
        ("x = 1\nclass N:\n    y = 2  # mase: x: f33[1]\n", 3, "f33[1]"),
        ("# mase: N: x: f32[1,\n", 1, ""),
        ("# mase: Net(a, b\n", 1, "Net(a, b"),
        ("#mase:x: f32[2] y\n", 1, "y"),
    ],
)
def test_a_mistake_is_placed_in_the_file(source, line, found):
    (bad,) = read(source)
    assert isinstance(bad, BadComment)
    assert bad.line == line
    assert source.splitlines()[line - 1][bad.column :].startswith(found)
    assert bad.end_column > bad.column


def test_a_file_that_cannot_be_tokenised_is_no_error():
    assert read_comments("x = (\n  # an open bracket\n", ast.parse("")) == []


@pytest.mark.parametrize(
    ("text", "data"),
    [("data calib.npz", "calib.npz"), ("data loaders.py:batches ", "loaders.py:batches"), ("data: f32[2, 3]", "")],
)
def test_a_comment_may_name_data_to_calibrate_on_and_an_input_may_be_called_data(text, data):
    (wish,) = read(f"# mase: {text}\n")
    assert (wish.data, wish.inputs is None) == (data, bool(data))
