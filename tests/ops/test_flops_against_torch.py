"""FLOPs equal torch.utils.flop_counter's on real modules and functions, run on meta tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mase_server.ops.table import op_info, total_cost
from mase_server.ops.types import OpCall
from ops.recording import meta, run, typed

SIZE = st.integers(1, 9)


def counted_by_torch(function, *args, **kwargs):
    """Torch's count of one call, and ours."""
    calls, theirs = run(lambda: function(*args, **kwargs))
    ours = sum(op_info(c.kind, c.target).flops(c) for c in calls if op_info(c.kind, c.target).is_matmul_like)
    return theirs, ours


def leaf(module, *args, **kwargs):
    """Torch's count of a module's eager run, and ours of the module as one call."""
    calls, theirs = run(lambda: module(*args, **kwargs), type(module))
    assert [c.kind for c in calls] == ["call_module"]
    return theirs, total_cost(calls).matmul_flops


@settings(deadline=None, max_examples=30)
@given(m=SIZE, k=SIZE, n=SIZE, b=SIZE)
def test_products_of_any_size_cost_what_torch_counts(m, k, n, b):
    for function, shapes in (
        (torch.mm, [(m, k), (k, n)]),
        (torch.addmm, [(m, n), (m, k), (k, n)]),
        (torch.addmm, [(n,), (m, k), (k, n)]),
        (torch.bmm, [(b, m, k), (b, k, n)]),
        (torch.baddbmm, [(b, m, n), (b, m, k), (b, k, n)]),
        (torch.matmul, [(b, m, k), (k, n)]),
        (torch.matmul, [(b, 1, m, k), (b, k, n)]),
        (F.linear, [(b, m, k), (n, k), (n,)]),
        (F.linear, [(m, k), (n, k)]),
    ):
        theirs, ours = counted_by_torch(function, *(meta(*shape) for shape in shapes))
        assert (
            ours
            == theirs
            == 2 * k * m * n * (b if max(map(len, shapes)) > 2 else 1) * (b if len(shapes[0]) == 4 else 1)
        )


def test_a_matmul_sign_costs_what_the_function_does():
    assert counted_by_torch(lambda: meta(5, 3, 4) @ meta(4, 7)) == (2 * 5 * 3 * 4 * 7,) * 2


def test_a_reversed_matmul_method_takes_its_inner_size_from_the_right_operand():
    call = OpCall("call_method", "__rmatmul__", typed((meta(4, 7), meta(3, 4))), {}, typed(meta(3, 7)))
    assert op_info("call_method", "__rmatmul__").flops(call) == 2 * 3 * 4 * 7


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 4), (2, 3, 6, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("i,ij->j", [(3,), (3, 4)]),
        ("bi,oij,bj->bo", [(2, 3), (7, 3, 4), (2, 4)]),
    ],
)
def test_einsum_costs_what_its_products_do(equation, shapes):
    with torch.backends.opt_einsum.flags(enabled=False):
        theirs, ours = counted_by_torch(torch.einsum, equation, *(meta(*s) for s in shapes))
    assert ours == theirs > 0


def test_einsum_takes_its_operands_as_a_list_too():
    theirs, ours = counted_by_torch(torch.einsum, "ij,jk->ik", [meta(3, 4), meta(4, 5)])
    assert ours == theirs == 2 * 3 * 4 * 5


def test_an_outer_product_by_einsum_multiplies_once_for_each_element():
    call = OpCall("call_function", torch.einsum, ("i,j->ij", *typed((meta(3), meta(4)))), {}, typed(meta(3, 4)))
    assert op_info("call_function", torch.einsum).flops(call) == 12


def test_tensordot_costs_its_product():
    theirs, ours = counted_by_torch(torch.tensordot, meta(2, 3, 4), meta(4, 3, 5), dims=([1, 2], [1, 0]))
    assert ours == theirs == 2 * 2 * 12 * 5


def test_multi_dot_takes_the_cheapest_order():
    matrices = [meta(10, 100), meta(100, 5), meta(5, 50)]
    calls, theirs = run(lambda: torch.linalg.multi_dot(matrices))
    assert total_cost(calls).matmul_flops == theirs == 2 * (10 * 100 * 5 + 10 * 5 * 50)


CONVOLUTIONS = [
    (nn.Conv1d(4, 6, 3), (2, 4, 11)),
    (nn.Conv1d(4, 6, 3), (4, 11)),
    (nn.Conv2d(4, 6, (3, 5), stride=2, padding=1), (2, 4, 9, 12)),
    (nn.Conv2d(4, 8, 3, groups=4, bias=False), (2, 4, 9, 9)),
    (nn.Conv2d(4, 8, 3, dilation=2, padding="same", padding_mode="circular"), (2, 4, 9, 9)),
    (nn.Conv3d(2, 3, 2), (2, 2, 4, 5, 6)),
    (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 11)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 6)),
    (nn.ConvTranspose2d(4, 8, 3, groups=2), (4, 5, 6)),
    (nn.ConvTranspose3d(2, 3, 2), (2, 2, 4, 5, 6)),
]


@pytest.mark.parametrize(("module", "shape"), CONVOLUTIONS, ids=lambda value: str(value))
def test_a_convolution_costs_the_same_as_module_and_as_function(module, shape):
    module = module.to("meta")
    theirs, ours = leaf(module, meta(*shape))
    assert ours == theirs > 0
    assert counted_by_torch(module, meta(*shape)) == (theirs, theirs)


@settings(deadline=None, max_examples=25)
@given(q=SIZE, k=SIZE, d=st.integers(1, 6), v=st.integers(1, 6), heads=st.integers(1, 3), causal=st.booleans())
def test_attention_costs_two_products_whatever_the_mask(q, k, d, v, heads, causal):
    tensors = meta(2, heads, q, d), meta(2, heads, k, d), meta(2, heads, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        theirs, ours = counted_by_torch(F.scaled_dot_product_attention, *tensors, is_causal=causal)
    assert ours == theirs == 2 * 2 * heads * q * k * (d + v)


def test_grouped_query_attention_counts_the_query_heads():
    tensors = meta(2, 8, 5, 4), meta(2, 2, 7, 4), meta(2, 2, 7, 4)
    with sdpa_kernel(SDPBackend.MATH):
        theirs, ours = counted_by_torch(F.scaled_dot_product_attention, *tensors, enable_gqa=True)
    assert ours == theirs


RECURRENT = [
    nn.LSTM(5, 7),
    nn.LSTM(5, 7, num_layers=3, bidirectional=True, batch_first=True),
    nn.LSTM(5, 7, proj_size=3, num_layers=2),
    nn.GRU(5, 7, num_layers=2, bias=False),
    nn.RNN(5, 7, nonlinearity="relu", bidirectional=True),
]


@pytest.mark.parametrize("module", RECURRENT, ids=str)
def test_a_recurrent_network_costs_what_its_steps_do(module):
    theirs, ours = leaf(module.to("meta"), meta(4, 3, 5))
    assert ours == theirs > 0
    assert counted_by_torch(module, meta(4, 3, 5)) == (theirs, theirs)


def test_a_packed_sequence_costs_its_real_tokens():
    module = nn.LSTM(5, 7)
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 2, 5), [4, 1])
    calls, _ = run(lambda: module(packed), nn.LSTM)
    matrices = 4 * 7 * 5 + 4 * 7 * 7
    assert total_cost(calls).matmul_flops == 2 * (4 + 1) * matrices


@pytest.mark.parametrize("module", [nn.LSTMCell(5, 7), nn.GRUCell(5, 7), nn.RNNCell(5, 7)], ids=str)
def test_a_cell_costs_one_step(module):
    theirs, ours = leaf(module.to("meta"), meta(3, 5))
    assert ours == theirs > 0
    assert counted_by_torch(module, meta(3, 5)) == (theirs, theirs)


MULTIHEAD = [
    ({"embed_dim": 12, "num_heads": 3}, (5, 2, 12), (5, 2, 12), (5, 2, 12)),
    ({"embed_dim": 12, "num_heads": 3, "batch_first": True}, (2, 5, 12), (2, 7, 12), (2, 7, 12)),
    ({"embed_dim": 12, "num_heads": 3, "kdim": 4, "vdim": 6, "bias": False}, (5, 2, 12), (7, 2, 4), (7, 2, 6)),
    ({"embed_dim": 12, "num_heads": 3, "add_bias_kv": True, "add_zero_attn": True}, (5, 2, 12), (7, 2, 12), (7, 2, 12)),
    ({"embed_dim": 12, "num_heads": 3, "batch_first": True}, (5, 12), (7, 12), (7, 12)),
]


@pytest.mark.parametrize(("options", "query", "key", "value"), MULTIHEAD)
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_costs_its_projections_and_products(options, query, key, value, need_weights):
    module = nn.MultiheadAttention(**options).to("meta").train()
    arguments = meta(*query), meta(*key), meta(*value)
    with sdpa_kernel(SDPBackend.MATH):
        theirs, ours = leaf(module, *arguments, need_weights=need_weights)
    assert ours == theirs > 0


def test_the_attention_function_costs_what_the_module_does():
    module = nn.MultiheadAttention(12, 3).to("meta").train()
    theirs, ours = counted_by_torch(module, meta(5, 2, 12), meta(7, 2, 12), meta(7, 2, 12))
    assert ours == theirs > 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_transformers_cost_what_their_parts_do(batch_first):
    options = {"d_model": 12, "nhead": 3, "dim_feedforward": 20, "batch_first": batch_first}
    source = meta(2, 5, 12)
    target = meta(2, 7, 12) if batch_first else meta(9, 5, 12)
    encoder = nn.TransformerEncoderLayer(**options).to("meta")
    decoder = nn.TransformerDecoderLayer(**options).to("meta")
    stack = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
    whole = nn.Transformer(num_decoder_layers=1, custom_encoder=stack, **options).to("meta")
    with sdpa_kernel(SDPBackend.MATH):
        for module, arguments in (
            (encoder, (source,)),
            (nn.TransformerEncoder(encoder, 3, enable_nested_tensor=False), (source,)),
            (decoder, (target, source)),
            (nn.TransformerDecoder(decoder, 2), (target, source)),
            (whole, (source, target)),
        ):
            theirs, ours = leaf(module, *arguments)
            assert ours == theirs > 0, type(module).__name__


class Block(nn.Module):
    """Convolutions, norms, attention and a head: what a model is made of."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.BatchNorm2d(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.up(self.stem(x)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + (q @ k.mT * 8**-0.5).softmax(-1) @ v
        return self.head(x.mean(1))


def test_a_whole_model_costs_the_same_by_functions_and_by_leaf_modules():
    model = Block().to("meta").eval()
    by_function, theirs = run(lambda: model(meta(2, 3, 32, 32)))
    by_module, again = run(lambda: model(meta(2, 3, 32, 32)), nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.BatchNorm2d)
    assert theirs == again == total_cost(by_function).matmul_flops == total_cost(by_module).matmul_flops
    assert total_cost(by_function).flops == total_cost(by_module).flops > theirs
