"""Calls whose result is told without a meta kernel: eager makes the same tensor of the same call, or none is told."""

import itertools
from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from mase_server.tracing.recording.rules import RULES, make_plain_result

TYPES = torch.float32, torch.bfloat16, torch.int64


def tensors(shape, dtype):
    """Contiguous, transposed, with channels last, and a part of a larger one."""
    yield torch.ones(shape).to(dtype)
    if len(shape) > 1:
        yield torch.ones((*shape[:-2], shape[-1], shape[-2])).to(dtype).transpose(-1, -2)
        yield torch.ones((*shape[:-1], shape[-1] + 1)).to(dtype)[..., :-1]
    if len(shape) == 4:
        yield torch.ones(shape).to(dtype).contiguous(memory_format=torch.channels_last)


def inputs():
    shapes = (8,), (4, 8), (2, 4, 8), (2, 8, 3, 8), (0, 8), (1, 8), (2, 4, 3)
    return [each for shape in shapes for dtype in TYPES for each in tensors(shape, dtype)]


def weights(*shapes):
    return [None, *(torch.ones(shape, dtype=dtype) for shape in shapes for dtype in (torch.float32, torch.bfloat16))]


def calls():
    for x in inputs():
        for func in (torch.relu, torch.Tensor.relu, F.relu, F.silu, F.gelu):
            yield func, (x,), {}
        yield F.relu, (x,), {"inplace": False}
        yield F.gelu, (x,), {"approximate": "tanh"}
        for weight, bias in itertools.product(weights((5, 8), (8,), (5, 3)), weights((5,), (8,), ())):
            yield F.linear, (x, weight, bias), {}
        for shape, weight in itertools.product(((8,), (3, 8), 8, (), (2, 4, 8, 8, 8)), weights((8,), (3, 8))):
            yield F.layer_norm, (x, shape), {"weight": weight, "bias": weight, "eps": 1e-5}
        for mean, weight in itertools.product(weights((8,), (4,)), weights((8,), (4,))):
            for training in (False, True):
                yield F.batch_norm, (x, mean, mean, weight, weight, training, 0.1, 1e-5), {}
                yield F.batch_norm, (x, mean, mean), {"weight": weight, "bias": None, "training": training}
        for func in (torch.add, torch.Tensor.add, torch.Tensor.mul, torch.Tensor.div, torch.Tensor.sub):
            for other in (2, 0.5, True, *(each for each in inputs() if each.numel() <= x.numel())):
                yield func, (x, other), {}
            yield func, (x, x), {"alpha": 2}
        for other in inputs():
            for func in (torch.matmul, torch.Tensor.matmul):
                yield func, (x, other), {}
                yield func, (x, other.transpose(-1, -2) if other.dim() > 1 else other), {}
        for dtype, size, options in itertools.product((torch.int64, torch.int32), (2, 4), ({}, {"reduction": "none"})):
            yield F.cross_entropy, (x, torch.zeros(size, dtype=dtype)), options
            yield F.cross_entropy, (x, torch.zeros(size, dtype=dtype)), options | {"label_smoothing": 0.1}
            yield F.cross_entropy, (x, torch.zeros(size, 8)), options
    yield from convolutions()


def convolutions():
    options = list(itertools.product((1, 2, (1, 2)), (0, 1, "same"), (1, 2), (1, 2, 4)))
    sizes = (2, 4, 6, 7), (1, 1, 5, 5), (2, 4, 1, 1), (2, 1, 1, 1), (4, 6, 6), (1, 3, 1, 8)
    kernels = (8, 4, 3, 3), (8, 1, 1, 1), (4, 1, 3, 3), (8, 2, 1, 2), (8, 3, 1, 1)
    for size, kernel, dtype in itertools.product(sizes, kernels, (torch.float32, torch.bfloat16)):
        for x, (stride, padding, dilation, groups) in itertools.product(tensors(size, dtype), options):
            for bias in weights((8,)):
                yield F.conv2d, (x, torch.ones(kernel), bias, stride, padding, dilation, groups), {}
            yield F.conv2d, (x, torch.ones(kernel)), {"stride": stride, "groups": groups}


@torch.no_grad()
def test_what_is_told_is_what_eager_makes():
    told = Counter[object]()
    for func, args, kwargs in calls():
        found = make_plain_result(func, *torch.utils._pytree.tree_map_only(torch.Tensor, on_meta, (args, kwargs)))
        if found is None:
            continue
        told[func] += 1
        made = func(*args, **kwargs)
        seen = found.shape, found.stride(), found.dtype, found.is_meta
        assert seen == (made.shape, made.stride(), made.dtype, True), (func, args, kwargs)
    assert len(told) == 17, told
    assert told.pop(F.cross_entropy), "one shape alone has a class for each row"
    assert min(told.values()) > 5, told


def on_meta(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


@pytest.mark.parametrize("grad", [False, True])
def test_a_call_that_autograd_records_is_left_to_the_kernel(grad):
    with torch.set_grad_enabled(grad):
        found = make_plain_result(F.linear, (torch.ones(4, 8, device="meta"), torch.ones(5, 8, device="meta")), {})
    assert (found is None) == grad


def heads(batch, count, length, width, dtype):
    """As a linear layer's output is split into heads, and contiguous."""
    yield torch.ones(batch, length, count, width, dtype=dtype).transpose(1, 2)
    yield torch.ones(batch, count, length, width, dtype=dtype)


@torch.no_grad()
def test_attention_is_told_as_eager_makes_it():
    told = 0
    sizes = itertools.product((1, 2), (1, 3), (1, 5), (1, 4), (1, 8), (8, 7), (torch.float32, torch.float16))
    for batch, count, length, other, width, last, dtype in sizes:
        queries, keys = heads(batch, count, length, width, dtype), heads(batch, count, other, width, dtype)
        values = heads(batch, count, other, last, dtype)
        for args, options in itertools.product(
            itertools.product(queries, keys, values),
            ({}, {"is_causal": True}, {"attn_mask": torch.ones(length, other, dtype=torch.bool)}, {"enable_gqa": True}),
        ):
            given = torch.utils._pytree.tree_map_only(torch.Tensor, on_meta, (args, options))
            found = RULES[F.scaled_dot_product_attention](None, lambda *args, **kwargs: None, *given)
            if found is not None:
                made = F.scaled_dot_product_attention(*args, **options)
                assert (found.shape, found.stride(), found.dtype) == (made.shape, made.stride(), made.dtype)
                told += 1
    assert told > 100
