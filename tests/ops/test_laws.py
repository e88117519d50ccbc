"""What holds for every operator, whatever its formula: costs grow with the batch, and asking changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from mase_server.ops.table import ROWS, Cost, by_scope, cost_of, named_arguments, op_info, total_cost
from mase_server.ops.types import OpCall, iterate_tensors
from ops.recording import meta, run

#: Each takes a batch of images [B, 4, 6, 6] and treats the images alike.
PER_IMAGE = [
    nn.Conv2d(4, 8, 3),
    nn.Conv2d(4, 4, 3, groups=4, padding=1),
    nn.ConvTranspose2d(4, 2, 2, stride=2),
    nn.Linear(6, 5),
    nn.BatchNorm2d(4),
    nn.GroupNorm(2, 4),
    nn.LayerNorm(6),
    nn.ReLU(),
    nn.Softmax(-1),
    nn.MaxPool2d(2),
    nn.AdaptiveAvgPool2d(1),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.PixelShuffle(2),
    nn.Flatten(),
    nn.Identity(),
]

FUNCTIONS = [
    torch.exp,
    torch.sum,
    torch.fft.fft,
    lambda x: x @ x.mT,
    lambda x: torch.einsum("bchw,bcwk->bchk", x, x),
    lambda x: x.softmax(-1) + x,
    lambda x: F.scaled_dot_product_attention(x, x, x),
    lambda x: torch.cat([x, x]),
    lambda x: x.sort(-1),
]


def cost(function, batch):
    """The cost of one run, and how many calls it took."""
    images = meta(batch, 4, 6, 6)
    calls, _ = run(lambda: function(images), nn.Module)
    return total_cost(calls), len(calls)


@settings(deadline=None, max_examples=10)
@given(batch=st.integers(2, 7))
@pytest.mark.parametrize("module", PER_IMAGE, ids=lambda module: type(module).__name__)
def test_a_module_s_operations_grow_with_its_batch(module, batch):
    module = copy.deepcopy(module).to("meta").eval()
    one, calls = cost(module, 1)
    many, _ = cost(module, batch)
    assert calls == 1
    assert many.flops == batch * one.flops
    assert many.matmul_flops == batch * one.matmul_flops
    assert one.bytes <= many.bytes <= batch * one.bytes


@settings(deadline=None, max_examples=10)
@given(batch=st.integers(2, 7))
@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_a_function_s_operations_grow_with_its_batch(function, batch):
    assert cost(function, batch)[0].flops == batch * cost(function, 1)[0].flops


@pytest.mark.parametrize("module", PER_IMAGE, ids=lambda module: type(module).__name__)
def test_asking_twice_gives_the_same_answer(module):
    module, images = copy.deepcopy(module).to("meta").eval(), meta(2, 4, 6, 6)
    (call,), _ = run(lambda: module(images), nn.Module)
    assert cost_of(call) == cost_of(call)
    assert named_arguments(call) == named_arguments(call)
    assert op_info(call.kind, call.target) == op_info(call.kind, call.target)


@pytest.mark.parametrize("module", PER_IMAGE, ids=lambda module: type(module).__name__)
def test_asking_changes_nothing_in_the_module(module):
    module = module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    call = OpCall("call_module", module, (), {}, None, module)
    cost_of(call)
    named_arguments(call)
    assert module.training
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert {name: value.tolist() for name, value in before.items()} == {
        name: value.tolist() for name, value in module.state_dict().items()
    }


def test_a_call_without_arguments_or_result_costs_nothing_and_raises_nothing():
    calls = [(row, OpCall("call_function", target)) for row in ROWS for target in row.targets()]
    assert [f"{row.family}-{row.mase_op}" for row, call in calls if row.flops(call) or row.bytes(call)] == []


COSTS = st.builds(Cost, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(".".join)


@given(st.lists(st.tuples(PATHS, COSTS), max_size=8))
def test_the_whole_model_is_the_sum_of_its_parts(parts):
    rolled = by_scope(parts)
    assert rolled[""] == sum((cost for _, cost in parts), Cost())
    for path in rolled:
        inside = [cost for place, cost in parts if place == path or not path or place.startswith(f"{path}.")]
        assert rolled[path] == sum(inside, Cost())


def test_results_in_tuples_count_all_their_bytes():
    rows = meta(3, 8)
    (call,), _ = run(lambda: rows.sort(-1))
    values, indices = iterate_tensors(call.result)
    assert cost_of(call).bytes == 3 * 8 * 4 + values.nbytes + indices.nbytes == 96 + 96 + 192
