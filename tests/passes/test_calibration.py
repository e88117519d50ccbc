"""Calibration: what data choose, against a search by hand over everything that there is to choose from."""

import math
import re

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.formats import parse
from mase_server.passes.data import load
from mase_server.passes.error import measure, original_of
from mase_server.passes.quantize.calibration import Method, Ranges, of_tensors
from tests.ir.models import bert_inputs, bert_tiny


def quantised(model, inputs, **pass_args):
    return passes.quantize_transform_pass(MaseGraph(model, inputs), pass_args)


def formats_of(graph):
    """The text of each rounding by what it rounds: an input, a parameter's path, or a node's name."""
    found = {}
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") == "quantise":
            source = node.args[0]
            named = source.op in ("get_attr", "placeholder")
            found[str(source.target) if named else source.name] = node.args[1]
    return found


def fixed(x, width, fraction_width):
    high = 2 ** (width - 1) - 1
    return torch.fake_quantize_per_tensor_affine(x, 2.0**-fraction_width, 0, -high - 1, high)


def best(x, width):
    """The fraction width with the least squared error, by trying all of them."""
    errors = {fraction: float((fixed(x, width, fraction) - x).double().square().sum()) for fraction in range(-8, 24)}
    return min(errors, key=errors.__getitem__)


def smallest_that_holds(x, width):
    """The finest fraction width with which the largest values are no more than half a step off."""
    return max(
        fraction
        for fraction in range(-8, 24)
        if float((fixed(x, width, fraction) - x).abs().max()) <= 2.0 ** -(fraction + 1) * (1 + 1e-6)
    )


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize(("method", "by_hand"), [("mse", best), ("minmax", smallest_that_holds)])
def test_every_tensor_gets_what_a_search_by_hand_finds(width, method, by_hand):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(64, 16) * 3
    with torch.no_grad():
        model[2].weight.mul_(7)
        hidden, out = model[0](x), model(x)
    graph, found = quantised(model, {"input": x}, default=f"fixed({width},auto)", calibrate=method)
    values = {"input": x, "_0": hidden, "_1": hidden.relu(), "_2": out, **dict(model.named_parameters())}
    expected = {name: f"fixed({width},{by_hand(value.detach(), width)})" for name, value in values.items()}
    assert formats_of(graph) == expected
    assert found["calibrated"] == "the example inputs"


def test_a_percentile_holds_that_share_of_the_values():
    torch.manual_seed(0)
    x = torch.randn(100_000) * 2
    x[::500] = 50.0
    chosen = of_tensors(parse("fixed(8,auto)"), [x], Method("percentile", 99.8))
    low, high = numpy.percentile(x.numpy(), [0.1, 99.9])
    assert high == 50.0, "one in five hundred is too many to leave out"
    assert str(chosen) == "fixed(8,1)"
    chosen = of_tensors(parse("fixed(8,auto)"), [x], Method("percentile", 99.0))
    low, high = numpy.percentile(x.numpy(), [0.5, 99.5])
    assert 4 < -low < high < 7.9
    assert str(chosen) == "fixed(8,4)"


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.9, 100.0])
@pytest.mark.parametrize("shift", [0.0, 3.0, -200.0])
def test_percentiles_of_the_histogram_are_numpys_to_three_percent(percentile, shift):
    torch.manual_seed(1)
    parts = [torch.randn(5000) * scale + shift for scale in (0.1, 1.0, 10.0)]
    ranges = Ranges(counted=True)
    for part in parts:
        ranges.add(part)
    low, high = ranges.limits(Method("percentile", percentile))
    outside = (100 - percentile) / 2
    expected = numpy.percentile(torch.cat(parts).numpy(), [outside, 100 - outside], method="inverted_cdf")
    assert low == pytest.approx(min(expected[0], 0.0), rel=2.0**-5, abs=1e-30)
    assert high == pytest.approx(max(expected[1], 0.0), rel=2.0**-5, abs=1e-30)


def test_what_is_not_finite_decides_nothing():
    x = torch.tensor([1.0, -2.0, math.inf, -math.inf, math.nan])
    for method in ("mse", "minmax", "percentile"):
        assert of_tensors(parse("fixed(8,auto)"), [x], Method(method)) == of_tensors(
            parse("fixed(8,auto)"), [torch.tensor([1.0, -2.0])], Method(method)
        )


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile"])
def test_batches_choose_what_their_union_chooses(method):
    torch.manual_seed(0)
    parts = [torch.randn(1000) * scale for scale in (0.5, 4.0, 1.0)]
    one = of_tensors(parse("fixed(6,auto)"), [torch.cat(parts)], Method(method))
    assert of_tensors(parse("fixed(6,auto)"), parts, Method(method)) == one


def test_all_batches_of_the_data_count():
    model = nn.Sequential(nn.Linear(4, 4))
    data = [torch.randn(2, 4), torch.randn(2, 4) * 100, torch.randn(2, 4)]
    pass_args = {"default": "fixed(8,auto)", "calibrate": "minmax", "data": data}
    graph, found = quantised(model, {"input": data[0]}, **pass_args)
    assert formats_of(graph)["input"] == f"fixed(8,{smallest_that_holds(torch.cat(data), 8)})"
    assert found["calibrated"] == "3 batches"


def test_random_inputs_are_said_to_be_random():
    graph, found = passes.quantize_transform_pass(MaseGraph(nn.Linear(4, 4)))
    assert found["calibrated"] == "random inputs"
    assert all(re.fullmatch(r"fixed\(8,-?\d+\)", text) for text in formats_of(graph).values())


def test_a_file_is_what_it_was_calibrated_on(tmp_path):
    torch.save(torch.randn(8, 4) * 30, tmp_path / "rows.pt")
    pass_args = {"default": "fixed(8,auto)", "data": str(tmp_path / "rows.pt")}
    _, found = quantised(nn.Sequential(nn.Linear(4, 4)), {"input": torch.randn(2, 4)}, **pass_args)
    assert found["calibrated"] == f"4 batches of {tmp_path}/rows.pt"


def test_nothing_is_run_where_nothing_is_left_to_data():
    def never():
        raise AssertionError("the data were asked for")

    _, found = quantised(nn.Sequential(nn.Linear(4, 4)), {"input": torch.randn(2, 4)}, default="fixed(8,4)", data=never)
    assert found["calibrated"] is None


def test_on_meta_formats_stay_open_and_are_annotated():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    graph, found = quantised(model, {"input": torch.randn(2, 4, device="meta")}, default="fixed(8,auto)")
    assert found["calibrated"] is None
    assert set(formats_of(graph).values()) == {"fixed(8,auto)"}
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    (linear,) = [node for node in graph.nodes if node.name == "_0"]
    result = linear.meta["mase"]["common"]["results"]["data_out_0"]
    assert (result["type"], result["precision"]) == ("fixed", [8])


def test_a_configuration_may_leave_each_argument_to_data():
    config = {
        "name": "integer", "data_in_width": 8, "data_in_frac_width": "auto", "weight_width": 6,
        "weight_frac_width": "auto", "data_out_width": 12, "data_out_frac_width": "auto",
    }  # fmt: skip
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4)), torch.randn(20, 4)
    graph, _ = quantised(model, {"input": x}, default={"config": config})
    found = formats_of(graph)
    with torch.no_grad():
        assert found["0.weight"] == f"integer(6,{best(model[0].weight, 6)})"
        assert found["_0"] == f"integer(12,{best(model(x), 12)})"
    assert "0.bias" not in found


def test_a_value_is_rounded_once_however_many_read_it():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            y = torch.relu(x)
            return self.first(y) + self.second(y)

    graph, _ = quantised(Twice(), {"x": torch.randn(8, 4)})
    readers = [node for node in graph.nodes if node.all_input_nodes and node.all_input_nodes[0].name == "relu"]
    assert len(readers) == 1


def test_a_second_time_nothing_is_added():
    graph, _ = quantised(bert_tiny(), dict(bert_inputs()))
    before = formats_of(graph)
    graph, _ = passes.quantize_transform_pass(graph)
    assert formats_of(graph) == before


def test_only_what_is_selected_is_rounded():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(2, 4)
    _, found = quantised(model, {"input": x}, default="fixed(8,auto)", only=["2"])
    assert list(found["quantised"]) == ["_2"]
    with pytest.raises(ValueError, match="only names '3'"):
        quantised(model, {"input": x}, only=["3"])


@pytest.mark.parametrize(
    "text", ["fixed(8,auto)", "scale_integer(8,scale=auto)", "minifloat_ieee(8,3,exponent_bias=auto)"]
)
def test_calibrated_formats_are_near_the_model_that_uncalibrated_ones_lose(text):
    def error(**pass_args):
        graph = MaseGraph(bert_tiny(), dict(bert_inputs()))
        original = original_of(graph)
        graph, _ = passes.quantize_transform_pass(graph, pass_args)
        return measure(original, graph.model, graph.knowledge.feed(graph.arguments)).output.sqnr

    assert error(default=text) > 15 > error(default="fixed(8,4)")


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile"])
def test_eight_bits_are_as_accurate_as_float_to_one_percent(method):
    """A small network, trained on generated data: two spirals."""
    torch.manual_seed(0)
    inputs, labels = spirals(1000)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    tests, truth = spirals(2000)
    graph, found = passes.quantize_transform_pass(
        MaseGraph(model.eval(), {"input": inputs[:50]}),
        {"default": "fixed(8,auto)", "calibrate": method, "data": inputs},
    )
    assert found["calibrated"] == "20 batches"
    with torch.no_grad():
        plain = (model(tests).argmax(1) == truth).float().mean().item()
        rounded = (graph.model(tests).argmax(1) == truth).float().mean().item()
    assert plain > 0.95, "it has learned"
    assert rounded >= plain - 0.01


def spirals(count):
    """Points on two interleaved spirals, with some noise."""
    labels = torch.randint(2, (count,))
    distance = torch.rand(count).sqrt() * 2
    angle = distance * 3 + labels * math.pi
    points = torch.stack([distance * angle.cos(), distance * angle.sin()], 1)
    return points + torch.randn(count, 2) * 0.05, labels


ERRORS = [
    ({"calibrate": "median"}, "quantize: calibrate is 'median', expected one of minmax, percentile, mse"),
    ({"percentile": 30.0}, "quantize: percentile is 30.0, expected a number from 50 to 100"),
    ({"data": "nothing.pt"}, "data: there is no file /"),
]


@pytest.mark.parametrize(("pass_args", "message"), ERRORS)
def test_what_cannot_be_read_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quantised(nn.Sequential(nn.Linear(4, 4)), {"input": torch.randn(2, 4)}, **pass_args)


def test_data_that_a_graph_was_made_for_fit_it():
    graph = MaseGraph(bert_tiny(), dict(bert_inputs()))
    (values,) = load(graph, dict(bert_inputs())).feeds(graph)
    with torch.no_grad():
        graph.model(*values)
