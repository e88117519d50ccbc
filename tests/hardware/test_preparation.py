"""What is rounded before hardware is made: also functions that a default of quantize leaves as they are."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import prepare_graph

FUNCTIONS = {
    "exp": torch.exp,
    "neg": torch.neg,
    "abs": torch.abs,
    "sum": lambda x: x.sum(-1),
    "amax": lambda x: x.amax(-1),
    "exp, log1p, clamp": lambda x: x.exp().log1p().clamp(0, 3),
    "neg, abs, sqrt": lambda x: (-x).abs().sqrt(),
    "sum of squares, sqrt": lambda x: (x * x).sum(-1, keepdim=True).sqrt(),
}


class Ends(nn.Module):
    """A layer, then functions up to the result."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 6), function

    def forward(self, x):
        return self.function(self.layer(x))


def graph(function):
    torch.manual_seed(0)
    return MaseGraph(Ends(function).eval(), {"x": torch.randn(3, 4)})


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_up_to_the_result_have_hardware_that_gives_what_the_graph_gives(function):
    prepared, steps, _ = prepare_graph(graph(function), Build())
    design = lower_graph(prepared)
    assert (design.unsupported, len(steps)) == ((), 1)
    values = torch.randn(50, 4) * 4
    given, (result,) = design.inputs[0].out.format.encode(values), design.outputs
    numbers = design.operations[result].out.format.decode(integer_graph(design).model(given))
    assert torch.equal(numbers.float(), prepared.model(values))


def test_the_step_says_which_further_operators_it_rounds():
    _, steps, _ = prepare_graph(graph(FUNCTIONS["exp, log1p, clamp"]), Build(precision="fixed(6,3)"))
    assert steps == ["quantize(default='fixed(6,3)', clamp='fixed(6,3)', exp='fixed(6,3)', log1p='fixed(6,3)')"]
    _, steps, _ = prepare_graph(graph(torch.relu), Build(precision="fixed(6,3)"))
    assert steps == ["quantize(default='fixed(6,3)')"]


def test_a_sign_that_changes_keeps_the_formats_that_a_person_chose():
    chosen, _ = passes.quantize_transform_pass(graph(torch.neg), {"default": "fixed(16,8)"})
    chosen.propagate()
    assert prepare_graph(chosen, Build(precision="fixed(4,2)"))[1] == []


def test_what_a_person_left_unrounded_is_rounded_and_nothing_else():
    chosen, _ = passes.quantize_transform_pass(graph(lambda x: x.exp().sin()), {"default": "fixed(16,8)"})
    chosen.propagate()
    assert prepare_graph(chosen, Build(precision="fixed(8,4)"))[1] == [
        "quantize(default='fixed(8,4)', exp='fixed(8,4)', sin='fixed(8,4)', only=['exp', 'sin'])"
    ]
