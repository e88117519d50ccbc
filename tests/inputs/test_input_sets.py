"""Named sets of inputs: which comments count when one is used, and that eager PyTorch makes the same of them."""

import ast
import textwrap

import pytest
import torch
from searching import problems_in

from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.tracing.inputs.comments import BadComment, Wishes, read_comments
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.inputs.trouble import at_comment
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import plain_hooks
from mase_server.tracing.recording.shadow import Shadows

NET = """
    import torch
    from torch import nn

    {above}
    class Net(nn.Module):
        def __init__(self, width=3):
            super().__init__()
            self.fc = nn.Linear(width, 4)

        def forward(self, x):
            return self.fc(x)
"""
SETS = "# mase[small]: Net(width=5); x: f32[2, 5]\n    # mase[large]: Net(width=7); x: f32[8, 7]"


def search(folder, source, **options):
    text = textwrap.dedent(source)
    path = folder / "net.py"
    path.write_text(text)
    asked = TraceOptions(**options)
    request = TraceRequest(str(path), str(folder), "", 1, options=asked, scratch=str(folder / "scratch"))
    return list(find_models(request, text, plain_hooks(Shadows())))


def wishes_of(source, picked=None):
    source = textwrap.dedent(source)
    options = TraceOptions(sets={} if picked is None else {"Net": picked})
    return Wishes(options, read_comments(source, ast.parse(source)))


def asked(source, picked=None, name="Net"):
    wish = wishes_of(source, picked).of(name)
    return wish.call, wish.inputs and format_inputs(wish.inputs), wish.inputs_set


@pytest.mark.parametrize(
    ("picked", "width", "shape"),
    [(None, 5, [2, 5]), ("small", 5, [2, 5]), ("large", 7, [8, 7]), ("gone", 5, [2, 5])],
)
def test_the_picked_set_is_what_the_model_is_made_and_run_with(tmp_path, picked, width, shape):
    source = NET.format(above=SETS)
    options = {} if picked is None else {"sets": {"Net": picked}}
    (found,) = search(tmp_path, source, **options)
    assert found.arguments == {"width": width}
    assert list(found.args[0].shape) == shape
    assert (found.sets, found.set) == (("small", "large"), picked if picked in ("small", "large") else "small")
    # Eager says which outputs belong to it.
    names = {}
    exec(compile(textwrap.dedent(source), "net.py", "exec"), names)
    assert names["Net"](width)(torch.zeros(shape)).shape == (shape[0], 4)
    assert found.found.startswith(f"inputs from comment [{found.set}]")


def test_none_of_the_sets_can_be_picked(tmp_path):
    (found,) = search(tmp_path, NET.format(above=SETS), sets={"Net": ""})
    assert (found.inputs_from, found.set, found.arguments) == ("search", "", {})


BASE = """
    # mase: Net(width=3); x: f32[1, 3]
    # mase[wide]: x: f32[4, 3]
    # mase[other]: Net(width=9)
    class Net: pass
"""


@pytest.mark.parametrize(
    ("picked", "expected"),
    [
        (None, ("Net(width=3)", "x: f32[1, 3]", "")),
        ("wide", ("Net(width=3)", "x: f32[4, 3]", "wide")),
        ("other", ("Net(width=9)", "x: f32[1, 3]", "")),
    ],
)
def test_a_set_lies_over_what_comments_without_a_name_say(picked, expected):
    assert asked(BASE, picked) == expected


def test_what_is_said_for_a_class_beats_what_is_said_for_the_file_wherever_it_stands():
    source = """
        # mase: x: f32[1]
        class Net: pass

        # mase: y: f32[2]
    """
    assert asked(source)[1] == "x: f32[1]"
    assert asked(source, name="Other")[1] == "y: f32[2]"


def test_a_set_may_have_several_comments_and_may_be_for_the_file():
    source = (
        "# mase[a]: Net(3)\n# mase[a]: Net: x: f32[1]\n# mase[b]: x: f32[2]\n\n\nclass Net: pass\nclass Other: pass\n"
    )
    assert wishes_of(source).sets("Net") == ["a", "b"]
    assert wishes_of(source).sets("Other") == ["b"]
    assert asked(source) == ("Net(3)", "x: f32[1]", "a")


def test_the_sets_of_a_function_are_those_of_each_model_that_it_builds():
    source = "# mase[a]: build(3)\n# mase[b]: build(4)\n\ndef build(width): ...\n"
    wishes = Wishes(TraceOptions(sets={"build": "b"}), read_comments(source, ast.parse(source)))
    assert wishes.active("build[0]") == "b"
    assert wishes.of("build").call == "build(4)"


@pytest.mark.parametrize(
    ("comment", "message", "marked"),
    [
        ("# mase[]: x: f32[1]", "expected a set's name of letters, digits, blanks and `_ . + -`", "# mase[]: "),
        ("# mase[a:b]: x: f32[1]", "expected a set's name of letters, digits, blanks and `_ . + -`", "# mase[a:b]: "),
        ("# mase[a]: skip", "`skip` always counts, so it has no set", "# mase[a]: "),
    ],
)
def test_a_name_that_no_set_can_have_is_told_where_it_stands(comment, message, marked):
    (bad,) = read_comments(comment + "\n", ast.parse(""))
    assert isinstance(bad, BadComment)
    assert bad.message.startswith(message)
    assert comment[bad.column : bad.end_column] == marked


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("x: f33[1, 3]", "x: f32[1, 3]"),
        ("x: float[2, 3]; y: long[3]", "x: f32[2, 3]; y: i64[3]"),
        ("x: torch.float16[1]", "x: float16[1]"),
        ("x f32(1,3)", "x: f32[1,3]"),
        ("x: f32[1x3x224x224]", "x: f32[1, 3, 224, 224]"),
        ("x: f32[-1, 3]", "x: f32[B, 3]"),
        ("x: f32[1, 3, 8, 8", "x: f32[1, 3, 8, 8]"),
        ("x: i64[1, 3] onse", "x: i64[1, 3] ones"),
        ("x: f32[1] y: f32[2]", "x: f32[1]; y: f32[2]"),
        ("x: f32[1]]", "x: f32[1]"),
        ("Net(a=1", "Net(a=1)"),
        ("Net(a=1) x: f32[1]", "Net(a=1); x: f32[1]"),
        ("x: ???", ""),
    ],
)
@pytest.mark.parametrize("start", ["# mase: ", "# mase[small]: "])
def test_a_slip_has_the_text_that_was_meant_as_its_fix(start, text, meant):
    source = f"# été\nclass Net:  {start}{text}\n    pass\n"
    (bad,) = read_comments(source, ast.parse(source))
    problem = at_comment("net.py", bad)
    edits = [edit for fix in problem.fixes for edit in fix["edits"]]
    assert [edit["new_text"] for edit in edits] == ([meant] if meant else [])
    for edit in edits:
        line = source.splitlines()[1]
        mended = line[: edit["column"]] + edit["new_text"] + line[edit["end_column"] :]
        assert mended == f"class Net:  {start}{meant}"
        assert not isinstance(read_comments(mended + "\n    pass\n", ast.parse(""))[0], BadComment)


@pytest.mark.parametrize("main", ["", "\n    print(Net()(torch.zeros(1, 3)))\n"])
def test_a_call_that_cannot_be_made_is_told_at_the_comment(tmp_path, main):
    source = textwrap.dedent(NET.format(above="# mase[a]: Net(wide=5); x: f32[2, 5]") + main)
    items = search(tmp_path, source)
    (problem,) = [each for each in problems_in(items) if each.code == "bad-comment"]
    line = source.splitlines()[problem.line - 1]
    assert line[problem.column : problem.end_column] == "Net(wide=5)"
    assert "unexpected keyword argument 'wide'" in problem.message


BUILDERS = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(3, width)

        def forward(self, x):
            return self.fc(x)

    {above}class Net(nn.Module):
        def __init__(self, block, width):
            super().__init__()
            self.block, self.head = block(width), nn.Linear(width, 4)

        def forward(self, x):
            return self.head(self.block(x))

    def _net(width):
        return Net(Block, width)

    def net5():
        return _net(5)

    def net7():
        return _net(7)

    def net_of(width):
        return _net(width)

    {below}
"""
RUN = "net5()(torch.zeros(2, 3))"


@pytest.mark.parametrize(
    ("above", "picked", "width", "builder"),
    [
        ("", None, 5, "net5()"),
        ("", "net7()", 7, "net7()"),
        ("", "gone()", 5, "net5()"),
        ("# mase: net7()\n    ", None, 7, "net7()"),
        ("# mase: net7()\n    ", "net5()", 5, "net5()"),
    ],
)
@pytest.mark.parametrize("below", ["", RUN], ids=["never_called", "called"])
def test_the_files_own_builders_can_be_picked(tmp_path, above, picked, width, builder, below):
    options = {} if picked is None else {"sets": {"Net": picked}}
    found = search(tmp_path, BUILDERS.format(above=above, below=below), **options)
    (net,) = (each for each in found if each.name == "Net")
    assert net.model.head.in_features == (5 if below and picked in (None, "gone()") else width)
    assert net.builders == ("net5()", "net7()"), "a builder with arguments is none that can be called as it is"
    assert net.builder == ("" if below and picked in (None, "gone()") else builder)
