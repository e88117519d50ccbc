"""Arguments carry MASE's names: the seed documents' examples first, then what else torch lets a caller write."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import OpCall
from ops.recording import call, f32, i64, module_call


def names(target):
    return op_info("call_function", target).arg_names


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (F.linear, ("data_in_0", "weight", "bias")),
        (F.relu, ("data_in_0", "inplace")),
        (torch.flatten, ("data_in_0", "start_dim", "end_dim")),
        (F.conv2d, ("data_in_0", "weight", "bias", "stride", "padding", "dilation", "groups")),
        (F.layer_norm, ("data_in_0", "normalized_shape", "weight", "bias", "eps")),
        (torch.matmul, ("data_in_0", "data_in_1")),
        (torch.bmm, ("data_in_0", "data_in_1")),
        (torch.addmm, ("data_in_0", "data_in_1", "data_in_2", "beta", "alpha")),
        (torch.transpose, ("data_in_0", "dim_0", "dim_1")),
        (torch.gather, ("data_in_0", "dim", "index", "sparse_grad")),
        (torch.where, ("condition", "data_in_0", "data_in_1")),
        (operator.getitem, ("data_in_0", "select")),
        (torch.max, ("data_in_0",)),
        (F.embedding, ("data_in_0", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")),
    ],
)
def test_parameters_have_mases_names(target, expected):
    assert names(target) == expected


def test_attention_numbers_its_tensors_and_keeps_its_settings():
    assert names(F.scaled_dot_product_attention)[:6] == (
        *(f"data_in_{i}" for i in range(4)),
        "dropout_p",
        "is_causal",
    )


def test_a_reversed_method_swaps_its_operands():
    assert op_info("call_method", "__rsub__").arg_names == ("data_in_1", "data_in_0")
    assert op_info("call_method", "__sub__").arg_names[:2] == ("data_in_0", "data_in_1")
    assert op_info("call_method", "__rshift__").arg_names[:2] == ("data_in_0", "data_in_1")


def test_the_left_operand_of_a_reversed_method_comes_first():
    bound = named_arguments(call("__rsub__", f32(2), f32(3)))
    assert bound == {"data_in_0": f32(3), "data_in_1": f32(2)}


def test_a_module_s_parameters_follow_its_inputs():
    layer = nn.Linear(3, 4)
    assert op_info("call_module", layer).arg_names == ("data_in_0", "weight", "bias")
    assert named_arguments(module_call(layer, f32(2, 3))) == {
        "data_in_0": f32(2, 3),
        "weight": f32(4, 3),
        "bias": f32(4),
    }


def test_a_layer_without_a_bias_has_none():
    assert op_info("call_module", nn.Linear(3, 4, bias=False)).arg_names == ("data_in_0", "weight")


def test_a_nested_parameter_s_dots_become_underscores():
    bound = named_arguments(module_call(nn.MultiheadAttention(4, 2), f32(5, 2, 4), f32(5, 2, 4), f32(5, 2, 4)))
    assert list(bound) == [
        "data_in_0", "data_in_1", "data_in_2", "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias",
    ]  # fmt: skip


def test_a_list_of_tensors_takes_a_number_each():
    assert named_arguments(call(torch.cat, [f32(1), f32(2), f32(3)], 0)) == {
        "data_in_0": f32(1),
        "data_in_1": f32(2),
        "data_in_2": f32(3),
        "dim": 0,
    }


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((2, 3, 4), {"shape_0": 2, "shape_1": 3, "shape_2": 4}),
        (((2, 3, 4),), {"shape": (2, 3, 4)}),
        ((-1,), {"shape_0": -1}),
    ],
)
def test_sizes_given_one_by_one_are_numbered(sizes, expected):
    assert named_arguments(call("view", f32(24), *sizes)) == {"data_in_0": f32(24), **expected}


def test_permute_and_expand_number_their_dimensions():
    assert list(named_arguments(call("permute", f32(2, 3), 1, 0))) == ["data_in_0", "dim_0", "dim_1"]
    assert list(named_arguments(call("expand", f32(1, 3), 2, -1))) == ["data_in_0", "size_0", "size_1"]


def test_a_number_in_a_tensor_s_place_has_torch_s_name():
    assert named_arguments(call(operator.add, f32(2), 1)) == {"data_in_0": f32(2), "other": 1}


def test_the_overload_that_fits_names_the_arguments():
    assert named_arguments(call("max", f32(2, 3), 1)) == {"data_in_0": f32(2, 3), "dim": 1}
    assert named_arguments(call("max", f32(2), f32(2))) == {"data_in_0": f32(2), "data_in_1": f32(2)}
    assert named_arguments(call("sum", f32(2), dim=0)) == {"data_in_0": f32(2), "dim": 0}


def test_keywords_are_numbered_in_the_signature_s_order():
    bound = named_arguments(call(F.scaled_dot_product_attention, f32(1), value=f32(3), key=f32(2), is_causal=True))
    assert bound == {"data_in_0": f32(1), "data_in_1": f32(2), "data_in_2": f32(3), "is_causal": True}


def test_the_input_by_keyword_is_data_too():
    assert named_arguments(call(torch.flatten, input=f32(2, 3), start_dim=1)) == {
        "data_in_0": f32(2, 3),
        "start_dim": 1,
    }


def test_indices_and_conditions_keep_their_names():
    assert named_arguments(call("gather", f32(2, 3), 1, i64(2, 1))) == {
        "data_in_0": f32(2, 3),
        "dim": 1,
        "index": i64(2, 1),
    }


def test_an_index_tensor_is_what_getitem_selects():
    assert list(named_arguments(call(operator.getitem, f32(2, 3), i64(4)))) == ["data_in_0", "select"]


def test_an_unknown_function_numbers_its_tensors_and_names_the_rest():
    def fused(x, y, *, alpha=1):
        return x

    assert named_arguments(call(fused, f32(2), f32(3), alpha=4)) == {
        "data_in_0": f32(2),
        "data_in_1": f32(3),
        "alpha": 4,
    }


def test_a_callable_without_a_signature_numbers_what_it_gets():
    assert named_arguments(call(dict.fromkeys, f32(2), 7)) == {"data_in_0": f32(2), "value": 7}


def test_inputs_and_outputs_of_the_graph_have_no_arguments():
    assert named_arguments(OpCall("output", "output", (f32(2),), {}, f32(2))) == {}
