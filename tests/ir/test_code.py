"""A graph as Python: what is printed computes what eager computes, and shows of a pass just what it changed."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import build
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.ir.code import code_of


class Awkward(nn.Module):
    """Slices, in-place writes, infinities, tuples of one, starred names, and parts that no attribute can name."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.GELU())])
        self.named = nn.ModuleDict({"not a name": nn.Linear(6, 6), "tanh": nn.Tanh()})
        self.scale = nn.Parameter(torch.rand(6))
        self.register_buffer("mask", torch.ones(9, 9).tril())

    def forward(self, x, factor=2.0):
        b, t, _ = x.shape
        y = self.parts[1](self.parts[0](x)) * self.scale - factor
        scores = (y @ y.transpose(1, 2)).masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        z = torch.softmax(scores, -1) @ y
        z = z.clone()
        z[:, ::2, 1:3] = -(x[..., 1:3] ** 2)[:, ::2]
        first, *rest = self.named["tanh"](z).chunk(3, dim=-1)
        return (self.named["not a name"](torch.cat([*rest, first], -1).view(b * t, 6)).view(b, t, 6),), {"y": y}


def forward_of(text: str, module: nn.Module) -> Callable[..., Any]:
    """The printed forward, which runs over the layers of `module`."""
    tree = ast.parse(text)
    (printed,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    names = {}
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "printed", "exec"), names)
    # Objects are printed by their attributes, which not every class takes.
    called = [each.func for each in ast.walk(printed) if isinstance(each, ast.Call)]
    names |= {each.id: dict for each in called if isinstance(each, ast.Name) and isinstance(names.get(each.id), type)}
    exec(compile(ast.Module([printed], []), "printed", "exec"), names)
    return lambda *args: names["forward"](Layers(module), *args)


class Layers:
    """The layers of a graph's module, which has plain modules in place of lists and dicts, as a person reaches them."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return Layers(found) if type(found) is nn.Module else found

    def __getitem__(self, key: object) -> Any:
        return getattr(self, str(key))


def changed(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and not line.startswith(("---", "+++"))]


def awkward(**args: Any) -> tuple[Awkward, MaseGraph]:
    torch.manual_seed(1)
    model = Awkward().eval()
    return model, MaseGraph(model, {"x": torch.randn(2, 9, 6), **args})


def test_what_is_printed_computes_what_eager_computes():
    model, graph = awkward()
    x = torch.randn(3, 9, 6)
    (mine,), rest = forward_of(code_of(graph.module, "Awkward"), graph.module)(x)
    (theirs,), others = model(x)
    assert torch.equal(mine, theirs)
    assert torch.equal(rest["y"], others["y"])


class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.check_value = nn.Linear(6, 6)

    def forward(self, x):
        return self.check_value(x) if (x.abs() < 100).all() else x


def test_a_value_never_takes_the_name_of_a_function_that_is_called():
    graph = MaseGraph(Guarded(), {"x": torch.randn(2, 6)})
    x = torch.randn(3, 6)
    text = code_of(graph.module, "Guarded")
    assert "import check_value" in text
    assert torch.equal(forward_of(text, graph.module)(x), graph.model(x))


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "convnext", "wav2vec2"])
def test_hugging_face_models_are_printed_as_they_compute(name: str):
    graph = MaseGraph(build(name), add_metadata_args={})
    text = code_of(graph.module, "Model")
    printed = forward_of(text, graph.module)
    feed = graph.knowledge.feed(graph.arguments)
    with torch.no_grad():
        mine, theirs = printed(*feed), graph.model(*feed)
    assert torch.equal(mine["last_hidden_state"], theirs["last_hidden_state"])


def test_a_quantised_graph_is_printed_as_it_computes():
    _, graph = awkward()
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    text = code_of(graph.module, "Awkward")
    assert "quantise(self.scale, 'fixed(8,4)')" in text
    x = torch.randn(2, 9, 6)
    (mine,), _ = forward_of(text, graph.module)(x)
    (theirs,), _ = graph.model(x)
    assert torch.equal(mine, theirs)


def test_a_diff_shows_just_what_a_pass_changed():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    graph = MaseGraph(model, {"input": torch.randn(5, 4)})
    before = code_of(graph.module, "Net")
    graph, _ = passes.quantize_transform_pass(graph, {"by": "name", "2": "fixed(8,4)"})
    assert changed(before, code_of(graph.module, "Net")) == [
        "+",
        "+from mase_server.formats import quantise",
        "-        _2 = self[2](_1)",
        "+        _1 = quantise(_1, 'fixed(8,4)')",
        "+        _2 = F.linear(_1, weight=quantise(self[2].weight, 'fixed(8,4)'), "
        "bias=quantise(self[2].bias, 'fixed(8,4)'))",
        "+        _2 = quantise(_2, 'fixed(8,4)')",
    ]


def test_a_value_that_is_also_used_as_it_was_keeps_its_name_for_that():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            h = x + 1
            return self.fc(h) + h

    graph = MaseGraph(Twice(), {"x": torch.randn(2, 4)})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    text = code_of(graph.module, "Twice")
    assert "quantise(add, 'fixed(8,4)')" in text
    assert "return fc + add" in text or "add_1 = fc + add" in text
    x = torch.randn(2, 4)
    assert torch.equal(forward_of(text, graph.module)(x), graph.model(x))


def test_layers_are_listed_as_they_are_made_and_scopes_are_told():
    _, graph = awkward()
    lines = code_of(graph.module, "Awkward").splitlines()
    assert lines[:3] == ["import torch", "import torch.nn.functional as F", "from torch import nn"]
    assert "        self.parts[1][0] = nn.Linear(in_features=6, out_features=6, bias=True)" in lines
    assert "        self.named['not a name'] = nn.Linear(in_features=6, out_features=6, bias=True)" in lines
    assert "        self.scale = ...  # nn.Parameter, f32[6]" in lines
    assert "        # parts.1 (Sequential)" in lines


def test_the_same_graph_gives_the_same_text():
    texts = {code_of(awkward()[1].module, "Awkward") for _ in range(2)}
    assert len(texts) == 1


def test_long_calls_have_an_argument_a_line():
    forward = code_of(MaseGraph(build("bert"), add_metadata_args={}).module, "Model").partition("def forward")[2]
    assert max(map(len, forward.splitlines())) < 160


@pytest.mark.parametrize(
    ("name", "told"), [("Net.training_step", "Net_training_step"), ("nets['small']", "nets_small")]
)
def test_a_model_that_is_called_by_an_expression_is_a_class_too(name: str, told: str):
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(1, 4)})
    text = code_of(graph.module, name)
    ast.parse(text)
    assert f"class {told}(nn.Module):" in text
