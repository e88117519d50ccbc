"""Costs by hand: FLOPs of what torch does not count, and bytes; then models and scopes."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from mase_server.ops.table import Cost, by_scope, cost_of, op_info, parameters_of, total_cost
from mase_server.ops.types import OpCall, TensorType
from ops.recording import call, f32, i64, module_call, run


def flops(made):
    return op_info(made.kind, made.target, made.module).flops(made)


def moved(made):
    return op_info(made.kind, made.target, made.module).bytes(made)


X = f32(2, 3, 4)  # 24 elements, 96 bytes


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(operator.add, X, 1, result=X), 24),
        (call(torch.add, X, f32(4), result=X), 24),
        (call("__rsub__", X, 1, result=X), 24),
        (call(torch.exp, X, result=X), 24),
        (call(torch.addcmul, X, X, X, result=X), 72),
        (call(F.gelu, X, result=X), 24),
        (call(F.softmax, X, -1, result=X), 120),
        (call(F.glu, X, result=f32(2, 3, 2)), 24),
        (call(F.layer_norm, X, (4,), result=X), 192),
        (call(F.batch_norm, X, result=X), 96),
        (call(F.rms_norm, X, (4,), result=X), 96),
        (call("sum", X, result=f32()), 24),
        (call("mean", X, -1, result=f32(2, 3)), 24 + 6),
        (call("var", X, -1, result=f32(2, 3)), 72),
        (call("argmax", X, -1, result=i64(2, 3)), 24),
        (call(torch.sort, f32(3, 8), result=(f32(3, 8), i64(3, 8))), 24 * 3),
        (call(torch.topk, f32(3, 9), 2, result=(f32(3, 2), i64(3, 2))), 27 * 4),
        (call(torch.mv, f32(3, 4), f32(4), result=f32(3)), 24),
        (call(torch.dot, f32(4), f32(4), result=f32()), 8),
        (call(torch.outer, f32(3), f32(4), result=f32(3, 4)), 12),
        (call(F.max_pool2d, f32(1, 2, 8, 8), 2, result=f32(1, 2, 4, 4)), 32 * 4),
        (call(F.avg_pool2d, f32(1, 2, 8, 8), (2, 4), result=f32(1, 2, 4, 2)), 16 * 8),
        (call(F.adaptive_avg_pool2d, f32(1, 2, 8, 8), 1, result=f32(1, 2, 1, 1)), 128),
        (module_call(nn.MaxPool2d(3), f32(1, 2, 9, 9), result=f32(1, 2, 3, 3)), 18 * 9),
        (call(F.interpolate, f32(1, 2, 4, 4), None, 2, result=f32(1, 2, 8, 8)), 0),
        (call(F.interpolate, f32(1, 2, 4, 4), None, 2, mode="bilinear", result=f32(1, 2, 8, 8)), 2 * 4 * 128),
        (
            module_call(nn.Upsample(scale_factor=2, mode="bicubic"), f32(1, 1, 2, 2), result=f32(1, 1, 4, 4)),
            2 * 16 * 16,
        ),
        (call(torch.reshape, X, (6, 4), result=f32(6, 4)), 0),
        (call(torch.cat, [X, X], 0, result=f32(4, 3, 4)), 0),
        (call(F.embedding, i64(2, 3), f32(10, 4), result=X), 0),
        (call(torch.zeros, 2, 3, result=f32(2, 3)), 0),
        (call(torch.arange, 5, result=i64(5)), 5),
        (call(F.cross_entropy, f32(8, 10), i64(8), result=f32()), 480),
        (call(F.mse_loss, X, X, result=f32()), 72),
        (call(torch.fft.fft, f32(3, 8), result=TensorType("complex64", (3, 8))), 5 * 24 * 3),
        (call(torch.fft.rfft2, f32(3, 4, 8), result=TensorType("complex64", (3, 4, 5))), 3 * round(2.5 * 32 * 5)),
        (call(torch.linalg.cholesky, f32(2, 6, 6), result=f32(2, 6, 6)), 2 * 72),
        (call(torch.linalg.inv, f32(4, 4), result=f32(4, 4)), 128),
        (call(torch.linalg.matrix_power, f32(4, 4), 5, result=f32(4, 4)), 128 * 3),
        (call(torch.linalg.solve_triangular, f32(4, 4), f32(4, 2), upper=True, result=f32(4, 2)), 16 * 2),
        (call(torch.cdist, f32(3, 4), f32(5, 4), result=f32(3, 5)), 180),
        (module_call(nn.Bilinear(3, 4, 5), f32(2, 3), f32(2, 4), result=f32(2, 5)), 2 * 10 * (12 + 4)),
        (call("scatter_add", f32(5), 0, i64(3), f32(3), result=f32(5)), 3),
        (module_call(nn.Dropout(), X, result=X), 0),
        (module_call(nn.Identity(), X, result=X), 0),
    ],
    ids=lambda value: (
        str(value)[:70] if isinstance(value, int) else getattr(value.target, "__name__", str(value.target))
    ),
)
def test_operations_counted_by_hand(made, expected):
    assert flops(made) == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(torch.add, X, X, result=X), 3 * 96),
        (call(torch.add, X, TensorType("bfloat16", (2, 3, 4)), result=X), 2 * 96 + 48),
        (call(torch.cat, [X, X], 0, result=f32(4, 3, 4)), 4 * 96),
        (call("view", X, 24, result=f32(24)), 0),
        (call("transpose", X, 0, 1, result=f32(3, 2, 4)), 0),
        (call("contiguous", X, result=X), 192),
        (call(operator.getitem, X, 0, result=f32(3, 4)), 0),
        (call(operator.getitem, X, (slice(None), i64(2)), result=f32(2, 2, 4)), 16 + 2 * 64),
        (call(F.embedding, i64(2, 3), f32(50_000, 4), result=X), 48 + 192),
        (call(F.linear, f32(2, 3), f32(4, 3), f32(4), result=f32(2, 4)), 24 + 48 + 16 + 32),
        (module_call(nn.Linear(3, 4), f32(2, 3), result=f32(2, 4)), 24 + 48 + 16 + 32),
        (module_call(nn.BatchNorm1d(3), f32(2, 3), result=f32(2, 3)), 24 + 4 * 12 + 8 + 24),
        (module_call(nn.Identity(), X, result=X), 0),
        (call("sum", X, result=f32()), 100),
        (OpCall("placeholder", "x", (), {}, X), 0),
    ],
    ids=lambda value: (
        str(value) if isinstance(value, int) else getattr(value.target, "__name__", str(value.target))[:30]
    ),
)
def test_bytes_counted_by_hand(made, expected):
    assert moved(made) == expected


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(["float32", "float16", "bool", "int64", "complex64"]))
def test_a_tensor_s_type_has_the_bytes_that_torch_says(shape, dtype):
    tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    assert TensorType.of(tensor) == TensorType(dtype, tuple(shape))
    assert TensorType.of(tensor).nbytes == tensor.nbytes


def test_an_element_type_that_torch_does_not_have_is_named_in_the_error():
    with pytest.raises(ValueError, match=r"^torch \S+ has no element type 'f32'; give its name, e\.g\. 'float32'$"):
        _ = TensorType("f32", (1,)).nbytes


CALLS_THAT_MAKE_LITTLE = [
    call(torch.matmul, f32(0, 3), f32(3, 4), result=f32(0, 4)),
    call(torch.einsum, "ij->i", f32(3, 4), result=f32(3)),
    call(torch.tensordot, f32(0, 3), f32(3, 0), result=f32(0, 0)),
    call(torch.fft.fft, f32(1), result=TensorType("complex64", (1,))),
    call(torch.sort, f32(), result=(f32(), i64())),
    call(torch.zeros, 0, result=f32(0)),
    call("item", f32(), result=1.0),
    call("some_unknown_method", f32(2), result=None),
]


@pytest.mark.parametrize(
    "made", CALLS_THAT_MAKE_LITTLE, ids=lambda made: getattr(made.target, "__name__", str(made.target))
)
def test_empty_and_scalar_tensors_cost_no_less_than_nothing(made):
    assert flops(made) >= 0
    assert moved(made) >= 0


def test_shared_parameters_count_once():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False), nn.Linear(4, 4).half())
    model[1].weight = model[0].weight
    assert parameters_of(model) == (40 + 20, 160 + 40)


def test_parameters_on_meta_count_and_lazy_ones_do_not():
    model = nn.Sequential(nn.Linear(3, 4, device="meta"), nn.LazyLinear(7))
    assert parameters_of(model) == (16, 64)


def test_a_layer_called_twice_costs_twice():
    layer = nn.Linear(3, 3, device="meta")
    calls, theirs = run(lambda: layer(layer(torch.empty(2, 3, device="meta"))), nn.Linear)
    assert total_cost(calls).matmul_flops == theirs == 2 * 36


def test_element_wise_work_is_not_in_what_torch_would_count():
    assert cost_of(call(torch.add, X, X, result=X)) == Cost(flops=24, matmul_flops=0, bytes=288)


def test_a_scope_costs_what_it_encloses():
    rolled = by_scope([("a.b", Cost(1, 1, 10)), ("a.b", Cost(2, 0, 20)), ("a.c", Cost(4, 4, 40)), ("", Cost(8, 0, 80))])
    assert rolled == {
        "": Cost(15, 5, 150),
        "a": Cost(7, 5, 70),
        "a.b": Cost(3, 1, 30),
        "a.c": Cost(4, 4, 40),
    }


def test_an_empty_model_costs_nothing():
    assert by_scope([]) == {"": Cost()}
    assert total_cost([]) == Cost()


def test_a_call_that_a_formula_does_not_understand_costs_nothing():
    assert flops(call(torch.mm, object(), None, result=X)) == 0
    assert flops(module_call(nn.LSTM(2, 2), object(), result=X)) == 0


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call("unique", f32(4, 8), result=f32(32)), 32 * 5),
        (call("unique", f32(4, 8), dim=1, result=f32(4, 8)), 32 * 3),
        (call("quantile", f32(4, 8), 0.5, result=f32()), 32 * 5),
        (call("msort", f32(4, 8), result=f32(4, 8)), 32 * 2),
        (call("sort", f32(4, 8), stable=True, dim=0, result=(f32(4, 8), i64(4, 8))), 32 * 2),
    ],
)
def test_sorting_counts_the_dimension_that_is_sorted(made, expected):
    assert flops(made) == expected


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped products")
def test_a_grouped_product_costs_each_token_once():
    assert flops(call(F.grouped_mm, f32(6, 4), f32(2, 4, 5), result=f32(6, 5))) == 2 * 6 * 4 * 5
    assert flops(call(F.grouped_mm, f32(6, 8), f32(8, 5), result=f32(2, 6, 5))) == 2 * 6 * 8 * 5
