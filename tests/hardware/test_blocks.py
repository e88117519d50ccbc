"""mxint and minifloats in hardware: data with an exponent for each block or number, and weights in any format. The
truth is eager PyTorch in doubles, where sums of products are exact."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import build, prepare_graph
from tests.hardware.simulating import check, latency, simulated
from tests.hardware.test_emission import VERILATOR
from tests.hardware.test_lowering import mlp


def mxint(data=8, weight=8, bias=8, **more):
    """Rounds what linear layers read, and leaves their results to the hardware's precision."""
    widths = {"data_in_width": data, "weight_width": weight, "bias_width": bias}
    return {"linear": {"config": {"name": "mxint", **widths, **more}}}


class Tokens(nn.Module):
    """Rows of tokens, a sum that is read twice, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(12, 24), nn.Linear(24, 12), nn.Linear(12, 3)

    def forward(self, x):
        x = x + self.down(torch.relu(self.up(x)))
        return self.head(x) + self.head(torch.relu(x))


class Images(nn.Module):
    """A convolution, and a linear layer of all that it gives."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4 * 6 * 6, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


def minifloat(name, width, exponent, **more):
    """Rounds what linear layers read, and their parameters."""
    widths = {
        f"{part}_{key}": value
        for part in ("data_in", "weight", "bias")
        for key, value in {"width": width, "exponent_width": exponent, **more}.items()
    }
    return {"linear": {"config": {"name": name, **widths}}}


CASES = {
    "layers": (lambda: mlp(16, 64, 32, 5), (16,), mxint()),
    "few bits": (lambda: mlp(16, 64, 32, 5), (16,), mxint(4, 3, 6)),
    "two": (lambda: mlp(16, 32, 5), (16,), mxint(2, 2, 2)),
    "small blocks": (lambda: mlp(24, 16, 5), (24,), mxint(5, 6, data_in_block_size=4, weight_block_size=8)),
    "blocks of weights": (lambda: mlp(24, 16, 5), (24,), mxint(6, 6, weight_block_size=(4, 6))),
    "blocks that do not divide rows": (lambda: mlp(20, 24, 5), (20,), mxint(5, 6, data_in_block_size=16)),
    "blocks that do not divide tokens": (Tokens, (5, 12), mxint(6, 5, data_in_block_size=8)),
    "results too": (lambda: mlp(16, 32, 5), (16,), {"default": "mxint(6)"}),
    "rows": (Tokens, (5, 12), mxint(6, 5)),
    "after images": (Images, (2, 6, 6), mxint(6, 6, data_in_block_size=16)),
    "ieee": (lambda: mlp(16, 64, 32, 5), (16,), minifloat("minifloat_ieee", 8, 4)),
    "ieee of few bits": (lambda: mlp(16, 32, 5), (16,), minifloat("minifloat_ieee", 5, 2)),
    "ieee below one": (lambda: mlp(16, 32, 5), (16,), minifloat("minifloat_ieee", 6, 3, exponent_bias=12)),
    "denorm": (Tokens, (5, 12), minifloat("minifloat_denorm", 6, 3)),
    "denorm after images": (Images, (2, 6, 6), minifloat("minifloat_denorm", 8, 4)),
    "block minifloats": (lambda: mlp(16, 64, 32, 5), (16,), minifloat("block_minifloat", 6, 3)),
    "small blocks of minifloats": (Tokens, (5, 12), minifloat("block_minifloat", 5, 2, block_size=8)),
    "close biases": (lambda: mlp(16, 32, 5), (16,), minifloat("block_minifloat", 6, 2, exponent_bias_width=3)),
    "results in minifloats, too": (lambda: mlp(16, 32, 5), (16,), {"default": "minifloat_ieee(8,4)"}),
    "weights alone": (Images, (2, 6, 6), {"default": {"config": {"name": "mxint", "weight_width": 5}}}),
}


def prepared(name, precision="fixed(14,auto)"):
    make, shape, arguments = CASES[name]
    torch.manual_seed(0)
    model = make().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Rows of weights of different sizes, so that blocks have different exponents.
            parameter *= 2.0 ** torch.randint(-3, 3, (parameter.shape[0], *[1] * (parameter.dim() - 1)))
    values = torch.randn(40, *shape, dtype=torch.float64)
    graph = MaseGraph(model, {"input" if isinstance(model, nn.Sequential) else "x": values})
    graph, _ = passes.quantize_transform_pass(graph, arguments)
    return prepare_graph(graph, Build(precision=precision))[0], values


def integers_of(graph, values):
    """The values that the hardware takes, and the numbers that it gives for them."""
    design = lower_graph(graph)
    assert design.unsupported == ()
    given, out = design.inputs[0].out.format, design.operations[design.outputs[0]].out.format
    integers = given.encode(values)
    return given.decode(integers), out.decode(integer_graph(design).model(integers))


@pytest.mark.parametrize("name", CASES)
def test_the_integers_are_the_numbers_of_the_quantised_model(name):
    graph, values = prepared(name)
    spread = values * 2.0 ** torch.randint(-8, 2, (len(values), *[1] * (values.dim() - 1)))
    given, got = integers_of(graph, spread)
    with torch.no_grad():
        assert torch.equal(got, graph.model(given))
    assert len(got.unique()) > 20


def test_a_stream_of_fixed_point_is_there_before_each_block():
    """The rounding before it, and the roundings that a person chose, which stay."""
    graph, _ = prepared("layers")
    rounded = {node.name: str(node.args[1]) for node in graph.nodes if "quantise" in node.name}
    blocks = [node for node in graph.nodes if rounded.get(node.name) == "mxint(8)"]
    before = [each.args[0] for each in blocks]
    assert {rounded.get(each.name, each.op).split(",")[0] for each in before} == {"fixed(14", "get_attr"}
    readers = {user.name for each in blocks for user in each.users}
    assert readers == {"_0", "_2", "_4"}, "nothing is rounded again between blocks and layers"


def test_a_conversion_stands_at_the_layer_that_asks_for_it():
    """Blocks at the layer that reads them, another fixed point at the layer whose result it is."""
    found = build(prepared("rows")[0], Build(), "Tokens")
    scopes = [each["scope"] for each in found["operations"] if each["module"] == "mxint_cast"]
    assert scopes == ["up", "down", "head", "head"]
    torch.manual_seed(0)
    graph = MaseGraph(nn.Sequential(nn.GRU(4, 6, batch_first=True)), {"input": torch.randn(2, 3, 4)})
    found = build(graph, Build(), "GRU")
    assert {each["scope"] for each in found["operations"] if each["module"] == "fixed_cast"} == {"0"}


@VERILATOR
@pytest.mark.parametrize(
    ("name", "budget", "width"),
    [
        ("layers", 3, 14),
        ("layers", 52, 24),
        ("small blocks", None, 20),
        ("blocks that do not divide rows", 20, 20),
        ("rows", 40, 20),
        ("results too", 30, 12),
        ("ieee", 52, 16),
        ("ieee below one", None, 12),
        ("denorm", 40, 14),
        ("block minifloats", 52, 16),
        ("small blocks of minifloats", 20, 12),
    ],
)
def test_simulations_give_these_integers_in_the_estimated_cycles(name, budget, width, tmp_path):
    design = lower_graph(prepared(name, f"fixed({width},auto)")[0])
    folding = fold_design(design, multipliers=budget)
    made = emit_folder(design, folding, "Model", random_inputs(design, 30))
    # Numbers of more than 18 bits are multiplied as mantissas.
    is_float = "minifloat" in str(CASES[name][2])
    assert ("rtl/mxint_linear.sv" in made.files) == (width >= 18 and not is_float)
    assert ("rtl/minifloat_cast.sv" in made.files) == is_float
    check(made, tmp_path)
    totals = estimate(design, folding).totals
    (stream,) = simulated(made, tmp_path)[1]
    assert totals["interval"] == pytest.approx(stream.interval(30), rel=0.02)
    assert totals["latency"] == latency(made, tmp_path)


WEIGHTS = {
    "mxint": {"weight_width": 5, "weight_block_size": (2, 4)},
    "mxfp": {"weight_width": 6, "weight_exponent_width": 3},
    "minifloat_ieee": {"weight_width": 6, "weight_exponent_width": 3},
    "block_fp": {"weight_width": 6},
    "log": {"weight_width": 4, "weight_exponent_bias": 3},
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_in_any_format_are_stored_exactly(name):
    torch.manual_seed(0)
    model = mlp(12, 16, 3).double().eval()
    values = torch.randn(40, 12, dtype=torch.float64)
    graph = MaseGraph(model, {"input": values})
    graph, _ = passes.quantize_transform_pass(graph, {"linear": {"config": {"name": name, **WEIGHTS[name]}}})
    graph, _, _ = prepare_graph(graph, Build(precision="fixed(8,4)"))
    given, got = integers_of(graph, values)
    with torch.no_grad():
        assert torch.equal(got, graph.model(given))
    texts = [str(each.args[1]) for each in graph.nodes if "quantise" in each.name and each.args[0].op == "get_attr"]
    assert [text.split("(")[0] for text in texts] == [name, "fixed", name, "fixed"], "rounded once"


NO_HARDWARE = {
    "mxint(8,block_size=(2,16))": "blocks of (2, 16) have no hardware for data; use 16 along the last dimension",
    "mxint(8,rounding='floor')": "rounding to the nearest has: mxint(8)",
    "mxfp(8,4)": "mxfp(8,4) has no hardware for data; signed fixed point, mxint and minifloats have, e.g. fixed(8,4)",
    "minifloat_ieee(8,4,rounding='floor')": "rounding to the nearest has: minifloat_ieee(8,4)",
    "minifloat_ieee(8,4,exponent_bias=120)": "bits; up to 32 have hardware: choose a bias that gives a higher one",
    "block_minifloat(8,4,block_size=(2,16))": "blocks of (2, 16) have no hardware for data; use 16 along the last",
}


@pytest.mark.parametrize(("text", "why"), NO_HARDWARE.items())
def test_what_has_no_hardware_is_told_with_a_remedy(text, why):
    graph = MaseGraph(mlp(16, 5).eval(), {"input": torch.randn(4, 16)})
    graph, _ = passes.quantize_transform_pass(graph, {"default": text})
    design = lower_graph(prepare_graph(graph, Build(precision="fixed(16,auto)"))[0])
    assert any(why in each.why for each in design.unsupported), design.unsupported


def test_weights_that_no_integers_of_few_bits_hold_are_told():
    values = torch.randn(4, 16, dtype=torch.float64)
    graph, _ = passes.quantize_transform_pass(
        MaseGraph(mlp(16, 5).double().eval(), {"input": values}),
        {"linear": {"config": {"name": "ternary", "weight_scaling_factor": True}}},
    )
    design = lower_graph(prepare_graph(graph, Build())[0])
    (told,) = [each.why for each in design.unsupported if "spans" in each.why]
    assert told.endswith("more than 32 have no hardware; quantise it to nearer numbers, e.g. to mxint(8) or fixed(8,4)")


def test_blocks_of_unrounded_data_are_told():
    graph = MaseGraph(mlp(16, 5).eval(), {"input": torch.randn(4, 16)})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "mxint(8)"})
    whys = [each.why for each in lower_graph(graph).unsupported]
    assert whys[0] == "input_1 is not rounded to fixed point; quantise it first, e.g. to fixed(8,4)"
