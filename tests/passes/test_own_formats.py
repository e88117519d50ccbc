"""Formats as objects, of one's own too; and quantised graphs under torch.compile."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.formats import FORMATS, NumberFormat, parse, register, registry
from mase_server.ir.number_formats import format_text

X = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def registered():
    """A registry that is afterwards as it was, since others count what is in it."""
    before = dict(registry._KINDS)
    register(Halves)
    yield
    registry._KINDS.clear()
    registry._KINDS.update(before)
    parse.cache_clear()


@dataclass(frozen=True)
class Halves(NumberFormat):
    highest: float
    name = "test_halves"

    @property
    def bits(self):
        return 8.0

    def round(self, values):
        return (values.detach() * 2).round().clamp(-2 * self.highest, 2 * self.highest) / 2


@dataclass(frozen=True)
class Named(Halves):
    name = "test_named"

    def __str__(self):
        return f"test_named({'high' if self.highest > 4 else 'low'})"

    @classmethod
    def parse(cls, text):
        return cls({"test_named(high)": 8.0, "test_named(low)": 4.0}[text])


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 16), nn.GELU(), nn.LayerNorm(16))


def quantised(made, **pass_args):
    return passes.quantize_transform_pass(MaseGraph(made, X), pass_args)[0]


def halves(x, highest):
    return (x * 2).round().clamp(-2 * highest, 2 * highest) / 2


@pytest.mark.parametrize("format", [Halves(4.0), "test_halves(4.0)", Named(4.0)], ids=str)
def test_a_format_of_ones_own_rounds_as_it_says(format, tmp_path):
    made = model()
    layer = made[0]
    with torch.no_grad():
        layer.weight.mul_(4)
    graph = quantised(made, linear=format)
    result = F.linear(halves(X, 4.0), halves(layer.weight, 4.0), halves(layer.bias, 4.0))
    expected = made[2](made[1](halves(result, 4.0)))
    assert torch.equal(graph.model(X), expected)
    assert {text for node in graph.nodes if (text := format_text(node))} == {str(format)}
    graph.annotate()
    passes.verify_common_metadata_analysis_pass(graph)
    graph.export(str(tmp_path / "graph"))
    assert torch.equal(MaseGraph.from_checkpoint(str(tmp_path / "graph")).model(X), expected)
    (graph.model(X) * torch.arange(16)).sum().backward()
    assert layer.weight.grad.ne(0).any()


def test_a_known_format_may_be_an_object():
    assert torch.equal(
        quantised(model(), linear=parse("mxint(8)")).model(X), quantised(model(), linear="mxint(8)").model(X)
    )


def test_a_name_is_given_once():
    @dataclass(frozen=True)
    class Fixed(Halves):
        name = "fixed"

    with pytest.raises(ValueError, match="another number format is called 'fixed' already"):
        register(Fixed)
    assert FORMATS["fixed"] is type(parse("fixed(8,4)"))


TEXTS = (
    "fixed(8,4)", "mxfp(8,4)", "mxint(8)", "block_log(8)", "minifloat_ieee(8,4)", "scale_integer(8)", "ternary",
    "test_halves(4.0)",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_quantised_graph_compiles_as_a_whole_and_learns_the_same(text):
    torch.compiler.reset()
    made = model()
    graph = quantised(made, default=text)
    results = []
    for run in (graph.model, torch.compile(graph.model, fullgraph=True, backend="aot_eager")):
        made.zero_grad()
        out = run(X)
        out.square().sum().backward()
        results.append([out, *(parameter.grad.clone() for parameter in made.parameters())])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*results, strict=True))


def test_gradients_that_are_rounded_compile_too():
    torch.compiler.reset()
    made = model()
    pass_args = {"linear": {"forward": "fixed(8,4)", "backward": "fixed(12,6)"}}
    graph, _ = passes.training_base_pass(MaseGraph(made, X), pass_args)
    results = []
    for run in (graph.model, torch.compile(graph.model, fullgraph=True, backend="aot_eager")):
        made.zero_grad()
        run(X).square().sum().backward()
        results.append(made[0].weight.grad.clone())
    assert torch.equal(*results)


@pytest.mark.slow
def test_the_compiled_code_rounds_to_the_same_bits():
    torch.compiler.reset()
    graph = quantised(nn.Sequential(nn.Linear(40, 16)), default="mxfp(8,4)")
    with torch.no_grad():
        assert torch.equal(torch.compile(graph.model, fullgraph=True)(X), graph.model(X))


@pytest.mark.parametrize("text", ["fixed(8,4", "mxint(8", "minifloat_ieee(8,4"])
def test_what_is_rounded_down_is_never_above(text):
    values = torch.linspace(-3, 3, 1024).reshape(16, 64)
    down, near = (parse(f"{text},rounding='{way}')").quantise(values) for way in ("floor", "nearest"))
    assert (down <= values).all()
    assert (near > values).any()


@pytest.mark.parametrize("text", ["fixed(8,4,rounding='stochastic')", "mxint(8,rounding='stochastic')"])
def test_stochastic_rounding_is_right_on_average(text):
    torch.manual_seed(0)
    values = torch.full((4000, 32), 0.71)
    values[:, 0] = 1.0
    found = parse(text).quantise(values)[:, 1:]
    assert len(found.unique()) == 2
    assert float(found.mean()) == pytest.approx(0.71, abs=2e-4)


def test_nothing_but_adapters_learns_where_that_is_asked_for():
    made = model()
    graph, found = passes.insert_lora_adapter_transform_pass(MaseGraph(made, X), {"rank": 2, "freeze": True})
    learning = {name for name, parameter in graph.module.named_parameters() if parameter.requires_grad}
    assert learning == {"_0_lora_a", "_0_lora_b"}
    assert (found["trainable"], found["parameters"]) == (2 * 40 + 16 * 2, 2 * 40 + 16 * 2 + 40 * 16 + 16 + 32)
    report = passes.report_graph_analysis_pass(graph)[1]
    assert report["trainable"] == 112
    assert ", 112 trainable" in report["report"]
    graph, found = passes.insert_lora_adapter_transform_pass(MaseGraph(model(), X), {"rank": 2})
    assert found["trainable"] == found["parameters"]
