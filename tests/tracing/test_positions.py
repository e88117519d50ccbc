"""Where each node stands: the text at its position is the expression that made it, whatever the file looks like."""

from __future__ import annotations

import functools
import importlib.util
import sys

import pytest
import torch
from torch import nn

from mase_server.tracing.recording.positions import capture_stack, is_hidden, resolve_mark
from mase_server.worker.payload import Places
from tests.tracing.recording import record

HEADER = "import functools\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n"

#: name -> body of forward(self, x), and the text of each call's expression in order.
BODIES = {
    "operators": ("y = x + 1\nreturn -y * x @ x.T", ["x + 1", "-y", "-y * x", "x.T", "-y * x @ x.T"]),
    "one line": (
        "return F.relu(self.fc(x)).sum()",
        ["self.fc(x)", "F.relu(self.fc(x))", "F.relu(self.fc(x)).sum()"],
    ),
    "several lines": (
        "return torch.cat(\n    [\n        x,\n        x.exp(),\n    ],\n    dim=-1,\n)",
        ["x.exp()", "torch.cat(\n    [\n        x,\n        x.exp(),\n    ],\n    dim=-1,\n)"],
    ),
    "chained over lines": (
        "return (\n    x.relu()\n    .view(-1)\n    .sum()\n)",
        ["x.relu()", "view(-1)", "sum()"],  # Python lets a method on a line of its own begin there
    ),
    "astral characters": ("note = '🧠🧠 ünï'; y = x.exp(); return y + 1", ["x.exp()", "y + 1"]),
    "wide characters before on the line": ("y, 变量 = x, x.tanh(); return 变量 * 2", ["x.tanh()", "变量 * 2"]),
    "subscripts": (
        "y = x[:, 1:]\ny = y.clone()\ny[0] = 1\nreturn y[..., None]",
        ["x[:, 1:]", "y.clone()", "y[0]", "y[..., None]"],
    ),
    "augmented": ("y = x * 1\ny += x\ny[0] *= 2\nreturn y", ["x * 1", "y += x", "y[0]", "y[0] *= 2", "y[0]"]),
    "comparison": ("return (x > 0) & ~(x == 1)", ["x > 0", "x == 1", "~(x == 1)", "(x > 0) & ~(x == 1)"]),
    "comprehension": ("return [row.sum() for row in x.unbind(0)]", ["x.unbind(0)", "row.sum()", "row.sum()"]),
    "lambda": ("double = lambda v: v * 2\nreturn double(x)", ["v * 2"]),
    "conditional": ("return x.sin() if x.shape[0] else x.cos()", ["x.sin()"]),
    "f-string": ("text = f'{x.shape}'; return x.sqrt()", ["x.sqrt()"]),
    "walrus": ("return (y := x.abs()).log() + y", ["x.abs()", "(y := x.abs()).log()", "(y := x.abs()).log() + y"]),
    "with": ("with torch.no_grad():\n    y = x.floor()\nreturn y", ["x.floor()"]),
    "keyword arguments": ("return torch.add(input=x, other=x.ceil())", ["x.ceil()", "torch.add(input=x, other=x.ceil())"]),  # noqa: E501
    "star arguments": ("parts = [x]\nreturn torch.stack([*parts], **{'dim': 0})", ["torch.stack([*parts], **{'dim': 0})"]),  # noqa: E501
    "attribute": ("return x.T.mT", ["x.T", "x.T.mT"]),
    "partial": ("half = functools.partial(torch.mul, 0.5)\nreturn half(x)", ["half(x)"]),
    "tabs": ("if True:\n\ty = x.exp()\nreturn y", ["x.exp()"]),
}  # fmt: skip


def load(tmp_path, body, above="", name="model_file"):
    indented = "".join(f"        {line}\n" for line in body.split("\n"))
    text = (
        f"{HEADER}{above}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(3, 3)\n\n    def forward(self, x):\n{indented}"
    )
    path = tmp_path / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, str(path), text


def segment(text, line, column, end_line, end_column):
    """The text between two places; lines from 1, columns in code points."""
    lines = text.splitlines(keepends=True)[line - 1 : end_line]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    return "".join(lines)


def found_texts(run, path, text):
    places = Places(path, None)
    rows = [places.row(resolve_mark(call.stack[0])) for call in run.calls if call.stack and not call.helper]
    assert {row[0] for row in rows} == {0}
    return [segment(text, *row[1:]) for row in rows]


@pytest.mark.parametrize("name", BODIES)
def test_the_text_at_a_nodes_position_is_the_expression_that_made_it(name, tmp_path):
    body, expected = BODIES[name]
    module, path, text = load(tmp_path, body)
    found = found_texts(record(module.Model(), torch.rand(2, 3)), path, text)
    assert [one.replace("        ", "") for one in found] == [one.replace("        ", "") for one in expected]


def test_a_call_inside_a_helper_function_has_the_whole_chain(tmp_path):
    above = "def helper(v):\n    return inner(v)\n\n\ndef inner(v):\n    return v.exp()\n\n\n"
    module, path, text = load(tmp_path, "return helper(x)", above)
    (call,) = [call for call in record(module.Model(), torch.rand(2, 3)).calls if call.kind == "call_method"]
    places = Places(path, None)
    chain = [segment(text, *places.row(resolve_mark(mark))[1:]) for mark in call.stack]
    assert chain == ["v.exp()", "inner(v)", "helper(x)"]
    assert [resolve_mark(mark).function for mark in call.stack] == ["inner", "helper", "Model.forward"]


def test_decorators_of_the_person_are_in_the_chain_and_torchs_are_not(tmp_path):
    above = (
        "def traced(function):\n    @functools.wraps(function)\n    def wrapper(*args):\n"
        "        return function(*args)\n"
        "    return wrapper\n\n\n@traced\n@torch.no_grad()\ndef inner(v):\n    return v.exp()\n\n\n"
    )
    module, path, text = load(tmp_path, "return inner(x)", above)
    (call,) = [call for call in record(module.Model(), torch.rand(2, 3)).calls if call.kind == "call_method"]
    places = Places(path, None)
    chain = [segment(text, *places.row(resolve_mark(mark))[1:]) for mark in call.stack]
    assert chain == ["v.exp()", "function(*args)", "inner(x)"]


def test_frames_outside_of_the_forward_are_not_in_the_chain(tmp_path):
    module, path, _ = load(tmp_path, "return x.exp()")
    (call,) = [call for call in record(module.Model(), torch.rand(2, 3)).calls if call.kind == "call_method"]
    assert [resolve_mark(mark).file for mark in call.stack] == [path]


def test_inputs_and_outputs_have_no_position(tmp_path):
    module, _, _ = load(tmp_path, "return x.exp()")
    run = record(module.Model(), torch.rand(2, 3))
    assert [bool(call.stack) for call in run.calls] == [False, True, False]


def test_code_without_columns_still_has_its_line():
    code = compile("x = 1\ny = x\n", "/somewhere/model.py", "exec")
    position = resolve_mark((code, -1))
    assert (position.line, position.column, position.end_line, position.end_column) == (1, -1, 1, -1)
    assert (position.file, position.function) == ("/somewhere/model.py", "<module>")


@pytest.mark.parametrize(
    ("code", "hidden"),
    [
        (nn.Module._call_impl.__code__, True),
        (record.__code__, False),
        (resolve_mark.__code__, True),
        (functools.wraps.__code__, True),
        (compile("1", "<string>", "exec"), True),
        (compile("1", "<ipython-input-3-abc>", "exec"), False),
    ],
)
def test_what_is_torchs_or_ours_is_of_no_interest(code, hidden):
    assert is_hidden(code) is hidden


def test_capturing_stops_at_the_given_frame():
    outer = sys._getframe()

    def inner():
        return capture_stack(outer)

    assert [resolve_mark(mark).function.rsplit(".", 1)[-1] for mark in inner()] == ["inner"]


def test_columns_are_in_code_points_and_unknown_ones_are_zero(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("a = '🧠'; b = 1\n", encoding="utf-8")
    places = Places(str(path), None)
    assert places.column(str(path), 1, len("a = '🧠'; ".encode())) == len("a = '🧠'; ")
    assert places.column(str(path), 1, -1) == 0
    assert places.column(str(path), 99, 5) == 5
