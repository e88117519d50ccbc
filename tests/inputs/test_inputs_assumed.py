"""The comment that asks for what was assumed: it reads back as the same values, and the trace that it asks for is the
same; what has no text form is named."""

import dataclasses
import enum
import functools
import inspect
import math
import textwrap
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.inputs import comments
from mase_server.tracing.inputs.comments import comment_for, inputs_text
from mase_server.tracing.inputs.spec import ConstantSpec, Inputs, MapSpec, SequenceSpec, TensorSpec
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models import expressions
from mase_server.tracing.models.configs import AnyConfig
from mase_server.tracing.models.constructions import Constructions
from mase_server.tracing.models.expressions import NAMES, NoTextError
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import plain_hooks
from mase_server.tracing.recording.shadow import Shadows
from tests.inputs.test_inputs_missing import traced


class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass
class Config:
    dim: int = 8
    heads: tuple[int, ...] = (1, 2)
    name: str = "a"


def build(**arguments):
    return arguments


HERE = {"build": build, "Config": Config, "Mode": Mode, "math": math}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-0.5, "-0.5"),
        (float("inf"), "float('inf')"),
        (True, "True"),
        (None, "None"),
        ("it's", '"it\'s"'),
        ([1, (2,), (3, 4)], "[1, (2,), (3, 4)]"),
        ({"a": [1]}, "{'a': [1]}"),
        (nn.ReLU, "nn.ReLU"),
        (torch.relu, "torch.relu"),
        (torch.float16, "torch.float16"),
        (math.sqrt, "math.sqrt"),
        (Mode.FAST, "Mode.FAST"),
        (Config(), "Config()"),
        (Config(dim=9), "Config(dim=9)"),
        (AnyConfig(dim=3), "config(dim=3)"),
        (types.SimpleNamespace(dim=3), "SimpleNamespace(dim=3)"),
        (range(2, 4), "range(2, 4)"),
        (Path("a/b"), "'a/b'"),
    ],
)
def test_a_value_is_written_so_that_it_reads_back(value, text):
    written = expressions.write_call(build, {"x": value}, HERE)
    assert written == f"build(x={text})"
    back = eval(written, {**NAMES, **HERE})["x"]
    assert (str(back) if isinstance(value, Path) else back) == (str(value) if isinstance(value, Path) else value)


def test_a_partial_and_a_module_are_written_as_the_calls_that_made_them():
    with Constructions().recording():
        layer = nn.Linear(3, out_features=4, bias=False)
    values = {"norm": functools.partial(nn.LayerNorm, eps=1e-6), "layer": layer}
    text = expressions.write_call(build, values, HERE)
    made = eval(text, {**NAMES, **HERE})
    assert made["norm"](5).eps == 1e-6
    assert (made["layer"].in_features, made["layer"].out_features, made["layer"].bias) == (3, 4, None)


def test_positions_stay_positions_where_more_may_follow():
    def function(first, *rest, last):
        return first, rest, last

    bound = inspect.signature(function).bind(1, 2, 3, last=4)
    text = expressions.write_call(function, bound.arguments, {"function": function})
    assert text == "function(1, 2, 3, last=4)"


class Secret:
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Secret(), "x: a Secret has no text form"),
        ([torch.zeros(2)], "x: a Tensor has no text form"),
        (Secret, "x: Secret has no name here"),
        (lambda: 3, "x: <lambda> has no name here"),
        (nn.Identity(), "x: its Identity cannot be made by one expression"),
        ([0] * 1000, "their text would have 3009 characters"),
    ],
)
def test_what_has_no_text_form_is_named(value, message):
    with pytest.raises(NoTextError) as raised:
        expressions.write_call(build, {"x": value}, HERE)
    assert str(raised.value) == message


def test_one_part_used_twice_has_no_text_form_since_its_text_would_make_two():
    with Constructions().recording():
        part = nn.Linear(2, 2)
    with pytest.raises(NoTextError, match="Linear cannot be made by one expression"):
        expressions.write_call(build, {"a": part, "b": part}, HERE)


TENSOR = TensorSpec("f32", ("B", 3))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (ConstantSpec(Secret()), "the input x: a Secret has no text form"),
        (MapSpec((("a", TENSOR),), build=Secret), "the input x: an object of a class of its own has no text form"),
        (SequenceSpec((TENSOR,), build=tuple), "the input x: a tuple of a type of its own has no text form"),
        (SequenceSpec((MapSpec((("a", ConstantSpec(Secret())),)),)), "the input x: a Secret has no text form"),
    ],
)
def test_inputs_without_a_text_form_are_named(entry, message):
    with pytest.raises(NoTextError) as raised:
        inputs_text(Inputs({"x": entry}, {"B": 2}))
    assert str(raised.value) == message


def test_what_was_said_already_is_not_said_again():
    with Constructions().recording():
        model = nn.Linear(3, 4)
    spec = Inputs({"input": TENSOR}, {"B": 2})
    said = {
        (arguments, inputs): comment_for(model, arguments, inputs, spec, {}).text
        for arguments in ("search", "default", "comment")
        for inputs in ("search", "comment")
    }
    call, inputs = "nn.Linear(in_features=3, out_features=4)", "input: f32[B=2, 3]"
    assert said == {
        ("search", "search"): f"mase: {call}; {inputs}",
        ("search", "comment"): f"mase: {call}",
        ("default", "search"): f"mase: {inputs}",
        ("default", "comment"): None,
        ("comment", "search"): f"mase: {inputs}",
        ("comment", "comment"): None,
    }


SOURCES = {
    "usual arguments": """
        class Net(nn.Module):
            def __init__(self, dim, num_classes):
                super().__init__()
                self.fc = nn.Linear(dim, num_classes)
            def forward(self, x):
                return self.fc(x)
        """,
    "a configuration of the file": """
        from dataclasses import dataclass
        @dataclass
        class Config:
            dim: int = 24
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.fc = nn.Linear(config.dim, 3)
            def forward(self, tokens, mask=None):
                return self.fc(tokens)
        """,
    "a configuration that is only read": """
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.table = nn.Embedding(cfg["vocab_size"], cfg["dim"])
            def forward(self, ids):
                return self.table(ids)
        """,
    "a decorated class": """
        def same(kind):
            return kind
        @same
        class Net(nn.Module):
            def __init__(self, act_layer):
                super().__init__()
                self.conv, self.act = nn.Conv2d(3, 8, 3), act_layer()
            def forward(self, image):
                return self.act(self.conv(image))
        """,
    "parts as arguments": """
        class Encoder(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, 8)
            def forward(self, x):
                return self.fc(x)
        class Net(nn.Module):
            def __init__(self, encoder: Encoder, num_classes):
                super().__init__()
                self.encoder, self.head = encoder, nn.Linear(8, num_classes)
            def forward(self, x):
                return self.head(self.encoder(x))
        """,
}


def shown(folder, source):
    path = folder / "net.py"
    path.write_text(source)
    request = TraceRequest(str(path), str(folder), "", 1, scratch=str(folder))
    [found] = find_models(request, source, plain_hooks(Shadows()))
    return found


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_comment_gives_the_same_model_and_the_same_inputs(source, tmp_path):
    text = "import torch\nfrom torch import nn\n" + textwrap.dedent(source)
    found = shown(tmp_path, text)
    assert found.inputs_from == "search"
    assert found.comment.text is not None, found.comment.why
    head = "@same\n" if "@same" in text else ""
    commented = text.replace(f"{head}class Net(", f"# {found.comment.text}\n{head}class Net(")
    again = shown(tmp_path, commented)
    assert again.inputs_from == "comment"
    assert again.arguments_from == "comment"
    assert format_inputs(again.spec) == format_inputs(found.spec)
    assert str(again.model) == str(found.model)
    assert {name: value.shape for name, value in again.model.named_parameters()} == {
        name: value.shape for name, value in found.model.named_parameters()
    }


def test_guessed_arguments_are_told_though_the_inputs_come_from_a_comment(tmp_path):
    source = "import torch\nfrom torch import nn\n# mase: x: f32[2, 64]" + textwrap.dedent(SOURCES["usual arguments"])
    found = shown(tmp_path, source)
    assert found.inputs_from == "comment"
    assert found.found == "inputs from comment; its constructor's arguments are guessed from their names"
    assert found.comment.text == "mase: Net(dim=64, num_classes=10)"


def test_a_comment_that_was_written_is_one_that_is_read():
    text = 'mase: Net(name="a; b)", size=(1, 2)); x: f32[B=2, 3]'
    [wish] = comments.read_comments(f"# {text}\n", comments.ast.parse(""))
    assert wish.call == 'Net(name="a; b)", size=(1, 2))'


def test_sizes_that_nothing_has_do_not_keep_inputs_from_being_written():
    assert inputs_text(Inputs({"x": TENSOR}, {"B": 2, "T": 16, "H": 32})) == "x: f32[B=2, 3]"


def test_what_a_search_found_remembers_only_the_sizes_that_its_inputs_have(tmp_path):
    source = """
        import torch
        from torch import nn
        class Loss(nn.Module):
            def forward(self, pred, target):
                return (torch.sigmoid(pred) * target).sum()
        """
    found = shown(tmp_path, textwrap.dedent(source))
    assert set(found.spec.sizes) == set(found.spec.symbols())
    assert found.comment.text == f"mase: {format_inputs(found.spec)}"


HEAD = "import torch\nfrom torch import nn\n\n\n"
LAYER = "        super().__init__()\n        self.layer = nn.Linear(10, 4)\n"
#: Models of which something has to be assumed, and whether that can be offered as a comment.
ASSUMED = {
    "inputs": (
        f"class Net(nn.Module):\n    def __init__(self):\n{LAYER}\n"
        "    def forward(self, x):\n        return self.layer(x)\n",
        True,
    ),
    "arguments": (
        "class Net(nn.Module):\n    def __init__(self, dim, heads):\n        super().__init__()\n"
        "        self.layer = nn.MultiheadAttention(dim, heads)\n\n"
        "    def forward(self, x):\n        return self.layer(x, x, x)[0]\n",
        True,
    ),
    "arguments that are taken once": (
        "SEEN = []\n\n\nclass Net(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
        "        if SEEN:\n            raise ValueError('there is one already')\n"
        "        SEEN.append(self)\n        self.layer = nn.Linear(dim, 4)\n\n"
        "    def forward(self, x):\n        return self.layer(x)\n",
        True,
    ),
    "inputs that fail": (
        f"class Net(nn.Module):\n    def __init__(self):\n{LAYER}\n"
        "    def forward(self, x):\n        h = self.layer(x)\n        return h.softmaks(-1)\n",
        False,
    ),
    "inputs that a check refuses": (
        f"class Net(nn.Module):\n    def __init__(self):\n{LAYER}\n"
        "    def forward(self, mel):\n        h = self.layer(mel)\n        assert h.requires_grad\n        return h\n",
        False,
    ),
    "inputs that nobody finds": (
        "class Net(nn.Module):\n    def forward(self, mel):\n        raise ValueError('no spectrogram')\n",
        False,
    ),
}


@pytest.mark.parametrize("what", ASSUMED)
def test_a_comment_is_offered_if_the_file_runs_with_it(tmp_path, what):
    body, is_offered = ASSUMED[what]
    text = HEAD + body
    payload = traced(tmp_path, {"net.py": text})
    comments = [model["comment"][key] for model in payload["models"] for key in ("text", "inputs")]
    edits = [edit["new_text"] for problem in payload["problems"] for fix in problem["fixes"] for edit in fix["edits"]]
    offered = {each for each in comments if each} | {each.strip("# \n") for each in edits if "mase:" in each}
    offered = {each for each in offered if "..." not in each}  # a template claims nothing
    assert bool(offered) == is_offered
    assert any("Net(" in each for each in offered) == (what == "arguments")
    for comment in offered:
        again = traced(tmp_path, {"net.py": text.replace("class Net", f"# {comment}\nclass Net")})
        assert [model["inputs_from"] for model in again["models"]] == ["comment"]
        assert again["problems"] == []
