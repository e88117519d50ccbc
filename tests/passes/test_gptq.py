"""GPTQ against a naive form of the algorithm, column by column with explicit inverses, and against eager."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

from mase_server import MaseGraph, passes
from mase_server.formats import parse, quantise
from mase_server.passes.gptq import Hessian, Layout, Options, grid_of, mean_squared_change, solve_columns
from mase_server.passes.weighted import find_weighted
from tests.ir.models import bert_inputs, bert_tiny, node_named

LINEAR = ["fixed(4,5)", "mxint(3)", "mxfp(4,2)", "block_fp(4)", "log(5)", "minifloat_ieee(5,3)", "binary"]


def problem(seed=0, rows=6, columns=40, count=200):
    """A weight, and the Hessian of inputs that depend on each other."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * 0.3
    inputs = torch.randn(count, columns, generator=generator) @ torch.randn(columns, columns, generator=generator)
    return weight, (inputs.double().T @ inputs.double()) / count, inputs


def fixed(x, width=4, fraction=5):
    return (x * 2**fraction).round().clamp(-(2 ** (width - 1)), 2 ** (width - 1) - 1) / 2**fraction


def naive(weight, hessian, rounded, order=None, damping=0.01):
    """The paper's algorithm without blocks or Cholesky: the inverse is made anew for the columns that are left."""
    columns = list(range(weight.shape[1])) if order is None else list(order)
    hessian = hessian + damping * hessian.diagonal().mean() * torch.eye(len(hessian), dtype=hessian.dtype)
    values, found = weight.double().clone(), torch.zeros_like(weight)
    while columns:
        inverse = torch.linalg.inv(hessian[columns][:, columns])
        first, rest = columns[0], columns[1:]
        found[:, first] = rounded(values[:, first].float())
        error = (values[:, first] - found[:, first]) / inverse[0, 0]
        values[:, rest] -= torch.outer(error, inverse[0, 1:])
        columns = rest
    return found


def grid(format, weight):
    return grid_of(parse(format), weight, Layout(weight.shape))


@pytest.mark.parametrize("block", [1, 7, 40, 128])
def test_it_is_the_naive_algorithm_whatever_the_block(block):
    weight, hessian, _ = problem()
    expected = naive(weight, hessian, fixed)
    assert torch.equal(solve_columns(weight, hessian, grid("fixed(4,5)", weight), Options(block=block)), expected)
    assert not torch.equal(expected, fixed(weight))


def test_columns_that_matter_most_can_go_first():
    weight, hessian, _ = problem(1)
    order = hessian.diagonal().argsort(descending=True).tolist()
    found = solve_columns(weight, hessian, grid("fixed(4,5)", weight), Options(block=8, act_order=True))
    assert torch.equal(found, naive(weight, hessian, fixed, order))


@pytest.mark.parametrize("format", [*LINEAR, "scale_integer(4)", "scale_integer(4,axis=0)", "scale_integer(4,axis=1)"])
def test_independent_inputs_leave_nothing_but_rounding(format):
    weight, _, _ = problem(2)
    hessian = torch.eye(40, dtype=torch.float64) * 3
    found = solve_columns(weight, hessian, grid(format, weight), Options())
    assert torch.equal(found, parse(format).quantise(weight))


@pytest.mark.parametrize("format", [*LINEAR, "scale_integer(4,axis=0)"])
def test_every_element_is_on_the_grid_of_the_weight_as_it_was(format):
    """Blocks keep the scales of the weight: each element rounds to itself."""
    weight, hessian, _ = problem(3)
    found = solve_columns(weight, hessian, grid(format, weight), Options())
    if format.startswith("scale"):
        steps = weight.abs().amax(1, keepdim=True) / 7
        assert torch.allclose(found / steps, (found / steps).round(), atol=1e-5)
        assert (found.abs() <= weight.abs().amax(1, keepdim=True) * 1.0001).all()
    else:
        assert torch.equal(parse(format).quantise(found), found)


def test_columns_that_are_never_used_are_rounded_by_themselves():
    weight, hessian, _ = problem(4)
    hessian[5], hessian[:, 5] = 0, 0
    found = solve_columns(weight, hessian, grid("fixed(4,5)", weight), Options())
    assert torch.equal(found[:, 5], fixed(weight[:, 5]))
    assert mean_squared_change(weight, found, hessian).sum() < mean_squared_change(weight, fixed(weight), hessian).sum()


def test_few_inputs_are_damped_until_there_is_an_inverse():
    weight, _, inputs = problem(5)
    few = inputs[:3].double()
    found = solve_columns(weight, few.T @ few, grid("fixed(4,5)", weight), Options(damping=0.0))
    assert found.isfinite().all()
    assert torch.equal(fixed(found), found)


def test_the_loss_is_the_mean_squared_change_of_the_outputs():
    weight, hessian, inputs = problem(6)
    other = fixed(weight)
    change = (inputs.double() @ (other - weight).double().T).square().mean(0)
    assert torch.allclose(mean_squared_change(weight, other, hessian), change)


@pytest.mark.parametrize("format", ["ternary", "binary_residual(2)", "binary(stochastic=True)"])
def test_a_format_without_a_grid_is_refused(format):
    with pytest.raises(ValueError, match=r"has no fixed set of values to choose from; use a format such as mxint\(4\)"):
        grid(format, problem()[0])


@pytest.mark.parametrize("options", [{"damping": -1}, {"block": 0}, {"block": 1.5}])
def test_options_out_of_range_are_quoted(options):
    with pytest.raises(ValueError, match=f"gptq: {next(iter(options))} is {next(iter(options.values()))}, expected"):
        Options(**options)


# Inputs of layers

CONVOLUTIONS = [
    nn.Conv1d(4, 6, 3, padding=1),
    nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 2)),
    nn.Conv2d(4, 6, 3, padding="same", groups=2),
    nn.Conv2d(4, 8, 3, padding=1, groups=4),
    nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="circular"),
    nn.Conv2d(4, 6, 3, padding="same", dilation=2, padding_mode="reflect"),
    nn.Conv3d(4, 6, 2),
]


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_a_convolution_is_a_product_with_what_its_kernel_sees(layer):
    """The Hessian gives the output's second moments, if and only if it is made of what the kernel sees."""
    torch.manual_seed(0)
    size = {3: (9,), 4: (8, 9), 5: (5, 6, 4)}[layer.weight.dim()]
    x = torch.randn(3, 4, *size)
    graph = MaseGraph(nn.Sequential(layer), {"input": x})
    (found,) = find_weighted(graph.fx_graph, graph.module)
    hessian = Hessian.of(found, graph.module)
    hessian.add(x[:2])
    hessian.add(x[2])
    without = layer._conv_forward(x, layer.weight, None)
    outputs = without.flatten(2).transpose(0, 1).flatten(1).double().square().mean(1)
    count = layer.groups
    for group, rows in enumerate(layer.weight.flatten(1).chunk(count)):
        moments = mean_squared_change(rows, torch.zeros_like(rows), hessian.mean(group))
        assert torch.allclose(moments, outputs.chunk(count)[group], rtol=1e-5)


@pytest.mark.parametrize(
    ("layer", "x"),
    [(nn.Linear(4, 3), torch.randn(1, 50_000, 4)), (nn.Conv2d(2, 3, 2), torch.randn(1, 2, 300, 200))],
    ids=["linear", "convolution"],
)
def test_of_many_inputs_some_are_heard_that_are_spread_evenly(layer, x):
    graph = MaseGraph(nn.Sequential(layer), {"input": x})
    (found,) = find_weighted(graph.fx_graph, graph.module)
    hessian = Hessian.of(found, graph.module)
    hessian.add(x)
    assert 4000 < hessian.count <= 8192
    every = x.reshape(-1, 4) if x.dim() == 3 else F.unfold(x, 2)[0].T
    expected = (every.double().T @ every.double()) / len(every)
    assert torch.allclose(hessian.mean(0), expected, atol=0.1)


# The pass


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, groups=2)
        self.transposed = Conv1D(16, 8)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.conv(x).relu().flatten(2).mT.contiguous()
        return self.head(self.transposed(x).relu())


def network():
    torch.manual_seed(0)
    model = Network().eval()
    nn.init.normal_(model.transposed.weight, std=0.3)
    return model


def images(seed, count=8):
    generator = torch.Generator().manual_seed(seed)
    smooth = torch.randn(count, 2, 5, 5, generator=generator)
    return F.interpolate(smooth, scale_factor=2, mode="bilinear") * 2


X = images(0)


def gptq(model, x=X, **given):
    return passes.gptq_transform_pass(MaseGraph(model, {"x": x}), given)


def test_each_layer_is_chosen_on_what_the_layers_before_it_give_by_then():
    model = network()
    before = copy.deepcopy(model.state_dict())
    graph, found = gptq(model, default="fixed(4,3)")
    theirs = copy.deepcopy(model)

    def rounded(values):
        return fixed(values, 4, 3)

    def best(weight, hessian):
        """Row by row, no worse than rounding."""
        solved, plain = naive(weight, hessian, rounded), rounded(weight)
        return torch.where(
            (mean_squared_change(weight, solved, hessian) <= mean_squared_change(weight, plain, hessian))[:, None],
            solved,
            plain,
        )

    with torch.no_grad():
        seen = F.unfold(X, 3).transpose(0, 1).flatten(1).double().chunk(2)
        parts = zip(model.conv.weight.flatten(1).chunk(2), seen, strict=True)
        chosen = torch.cat([best(rows, own @ own.T / own.shape[1]) for rows, own in parts])
        theirs.conv.weight.copy_(chosen.view_as(theirs.conv.weight))
        inputs = theirs.conv(X).relu().flatten(2).mT.contiguous().reshape(-1, 8).double()
        theirs.transposed.weight.copy_(best(model.transposed.weight.T, inputs.T @ inputs / len(inputs)).T)
        inputs = theirs.transposed(theirs.conv(X).relu().flatten(2).mT.contiguous()).relu().reshape(-1, 16).double()
        theirs.head.weight.copy_(best(model.head.weight, inputs.T @ inputs / len(inputs)))
    assert torch.equal(graph.module.conv_gptq_weight, theirs.conv.weight)
    assert torch.equal(graph.module.addmm_gptq_weight, theirs.transposed.weight)
    assert torch.equal(graph.module.head_gptq_weight, theirs.head.weight)
    assert torch.equal(graph.model(X), theirs(X))
    assert found["inputs"] == "the example inputs"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("format", ["mxint(3)", "fixed(4,auto)", "scale_integer(3,axis=0)", "mxfp(4,2)", "block_fp(3)"])
def test_no_layer_is_worse_than_rounding_and_the_output_is_better(format):
    model = network()
    _, found = gptq(model, default=format)
    for each in found["layers"].values():
        assert each["error"] <= each["rounding_error"]
    first = found["layers"]["conv"]
    assert first["error"] < 0.9 * first["rounding_error"]
    chosen = parse(first["format"])
    plain = F.conv2d(X, chosen.quantise(model.conv.weight), model.conv.bias, groups=2)
    expected = (plain - model.conv(X)).detach().double().square().mean()
    assert first["rounding_error"] == pytest.approx(float(expected), rel=1e-4)


def test_batches_of_data_are_all_heard():
    model, data = network(), [images(1), images(2)]
    together, _ = gptq(model, torch.cat(data), default="fixed(4,3)")
    apart, found = gptq(model, X, default="fixed(4,3)", data=data)
    assert found["inputs"] == "2 batches"
    alone, _ = gptq(model, X, default="fixed(4,3)", data=data, samples=1)
    for name, weight in together.module.named_parameters():
        if name.endswith("_gptq_weight"):
            assert torch.equal(apart.module.get_parameter(name), weight)
            assert not torch.equal(alone.module.get_parameter(name), weight)


def test_roundings_tell_the_format_so_that_metadata_knows_it():
    graph, _ = gptq(network(), default="mxint(3)")
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    weight = node_named(graph, "head").meta["mase"]["common"]["args"]["weight"]
    assert (weight["type"], weight["precision"]) == ("mxint", [3])


def weights_in(width, fraction_width):
    return {"config": {"name": "integer", "weight_width": width, "weight_frac_width": fraction_width}}


def test_weights_that_are_rounded_already_keep_their_format():
    model = network()
    wanted = {"linear": weights_in(4, 3), "conv2d": weights_in(5, 4)}
    plain, _ = passes.quantize_transform_pass(MaseGraph(model, {"x": X}), wanted)
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"x": X}), wanted)
    graph, found = passes.gptq_transform_pass(graph)
    assert {name: each["format"] for name, each in found["layers"].items()} == {
        "conv": "integer(5,4)", "head": "integer(4,3)",
    }  # fmt: skip
    assert torch.equal(fixed(graph.module.head_gptq_weight, 4, 3), graph.module.head_gptq_weight)
    with torch.no_grad():
        errors = [float((traced.model(X) - model(X)).square().mean()) for traced in (graph, plain)]
    assert errors[0] < errors[1]
    assert sum(node.target is quantise for node in graph.nodes) == sum(node.target is quantise for node in plain.nodes)


def test_half_precision_is_chosen_in_single_and_kept_in_half():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 8)).bfloat16(), torch.randn(64, 16) @ torch.randn(16, 16)
    graph = MaseGraph(copy.deepcopy(model), {"input": x.bfloat16()})
    graph, _ = passes.gptq_transform_pass(graph, {"default": "mxint(4)"})
    wide = MaseGraph(model.float(), {"input": x.bfloat16().float()})
    wide, _ = passes.gptq_transform_pass(wide, {"default": "mxint(4)"})
    weight = graph.module.get_parameter("_0_gptq_weight")
    assert weight.dtype == torch.bfloat16
    assert torch.equal(weight.float(), wide.module.get_parameter("_0_gptq_weight"))


def test_only_what_is_named_changes_and_a_configuration_tells_the_weights_format():
    config = {"config": {"name": "integer", "data_in_width": 8, "weight_width": 4, "weight_frac_width": 3}}
    graph, found = gptq(network(), by="type", linear=config, conv2d={"config": {"name": None}})
    assert list(found["layers"]) == ["head"]
    assert found["layers"]["head"]["format"] == "integer(4,3)"
    _, found = gptq(network(), only=["conv"])
    assert list(found["layers"]) == ["conv"]
    assert node_named(graph, "conv").op == "call_module"


def test_what_is_pruned_stays_pruned_and_is_made_up_for():
    model = network()
    graph, _ = passes.prune_transform_pass(MaseGraph(model, {"x": X}), {"weight": {"sparsity": 0.5}})
    masks = {name: buffer.clone() for name, buffer in graph.module.named_buffers()}
    graph, found = passes.gptq_transform_pass(graph, {"default": "fixed(6,5)"})
    weight = graph.module.head_gptq_weight
    assert (weight[masks["head_pruning_mask"] == 0] == 0).all()
    assert (weight != 0).sum() > 20
    assert found["layers"]["head"]["error"] <= found["layers"]["head"]["rounding_error"]
    passes.prune_detach_hook_transform_pass(graph)


def test_a_layer_that_is_called_twice_has_one_weight():
    layer, x = nn.Linear(8, 8), torch.randn(32, 8)
    graph = MaseGraph(nn.Sequential(layer, nn.ReLU(), layer), {"input": x})
    graph, found = passes.gptq_transform_pass(graph, {"default": "mxint(3)"})
    [weight] = [each for name, each in graph.module.named_parameters() if name.endswith("_gptq_weight")]
    assert len(found["layers"]) == 2
    assert torch.equal(graph.model(x), F.linear(F.linear(x, weight, layer.bias).relu(), weight, layer.bias))


def test_a_second_time_starts_from_the_first():
    graph, _ = gptq(network(), default="fixed(8,6)")
    graph, found = passes.gptq_transform_pass(graph, {"default": "fixed(4,3)", "only": ["head"]})
    assert list(found["layers"]) == ["head"]
    weight = graph.module.head_gptq_weight
    assert torch.equal(fixed(weight, 4, 3), weight)
    assert torch.equal(fixed(graph.module.conv_gptq_weight, 8, 6), graph.module.conv_gptq_weight)
    graph.fx_graph.lint()
    assert graph.model(X).isfinite().all()


def test_a_transformer_gets_better_by_it():
    model = bert_tiny()
    inputs = bert_inputs()
    graph, found = passes.gptq_transform_pass(MaseGraph(model, inputs), {"default": "mxint(3)"})
    plain, _ = passes.quantize_transform_pass(
        MaseGraph(model, inputs),
        {"linear": {"config": {"name": "mxint", "weight_width": 3, "weight_block_size": [32]}}},
    )
    with torch.no_grad():
        expected = model(**inputs).logits
        values = graph.knowledge.feed(graph.arguments)
        errors = [float((traced.model(*values)["logits"] - expected).square().mean()) for traced in (graph, plain)]
    assert len(found["layers"]) > 10
    assert errors[0] < errors[1]


def test_a_transformed_graph_trains_and_is_saved(tmp_path):
    graph, _ = gptq(network(), default="mxint(3)")
    graph.model(X).sum().backward()
    assert graph.module.head_gptq_weight.grad is not None
    graph.export(str(tmp_path / "chosen"))
    assert torch.equal(MaseGraph.from_checkpoint(str(tmp_path / "chosen")).model(X), graph.model(X))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"default": "ternary"}, "gptq: ternary has no fixed set of values"),
        ({"only": ["tail"]}, "only names 'tail'"),
        ({"default": "mxint(3)", "block": 0}, "gptq: block is 0"),
        ({"by": "colour", "default": "mxint(3)"}, "by is 'colour'"),
    ],
)
def test_what_cannot_be_done_is_told(given, text):
    with pytest.raises(ValueError, match=text):
        gptq(network(), **given)


def test_weights_on_meta_are_refused():
    with torch.device("meta"):
        model = network()
    with pytest.raises(ValueError, match=r"gptq needs the values of conv\.weight, which is on meta"):
        gptq(model, default="mxint(3)")
