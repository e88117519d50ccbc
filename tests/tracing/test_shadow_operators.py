"""Every operator of torch's own database: on meta it has the type that eager has, or says why it cannot."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from mase_server.tracing.recording.calling import iterate_leaf_tensors, map_leaves
from mase_server.tracing.recording.rungs import needs_values
from mase_server.tracing.recording.shadow import SHADOW_LIMIT, MetaMode, Shadows

pytestmark = pytest.mark.slow

SAMPLES = 3
#: Random, or of contents that nobody set: types are compared, values are not.
WITHOUT_VALUES = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "bernoulli", "cauchy",
    "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "pca_lowrank", "svd_lowrank", "nn.functional.gumbel_softmax",
}  # fmt: skip
#: For graphics cards alone.
OPERATORS = [op for op in op_db if op.supported_dtypes("cpu") and not op.name.startswith("jiterator")]
#: Their third result, of which eager makes nothing in eval mode, has a size on meta.
NO_STATISTICS = {"native_batch_norm", "_native_batch_norm_legit", "nn.functional.batch_norm-without_cudnn"}


def dtype_of(op):
    """An element type that the operator takes, float32 if it can be."""
    supported = op.supported_dtypes("cpu")
    return next(d for d in (torch.float32, torch.int64, torch.complex64, torch.bool, *supported) if d in supported)


def samples(op):
    """Some calls of an operator: ((input, args, kwargs), eager result)."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(op.sample_inputs("cpu", dtype_of(op)), SAMPLES):
            call = (sample.input, sample.args, sample.kwargs)
            if all(type(t) is torch.Tensor and t.layout is torch.strided for t in iterate_leaf_tensors(call)):
                torch.manual_seed(0)
                found.append((call, op(sample.input, *sample.args, **sample.kwargs)))
    return found


def run(op, call, *, known):
    """The same call on meta."""
    shadows = Shadows()

    def change(value):
        return shadows.twin(value, known=known) if isinstance(value, torch.Tensor) else value

    value, args, kwargs = map_leaves(call, change)
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad(), MetaMode(shadows):
        warnings.simplefilter("ignore")
        return op(value, *args, **kwargs), shadows


def outcome(op, call):
    """(result, None) on unknown tensors, or (None, what was raised)."""
    try:
        return run(op, call, known=False)[0], None
    except (RuntimeError, ValueError, TypeError) as error:
        return None, error


def types(value):
    return [(t.dtype, tuple(t.shape)) for t in iterate_leaf_tensors(value)]


def ids(op):
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


@pytest.mark.parametrize("op", OPERATORS, ids=ids)
def test_values_of_known_and_types_of_unknown_tensors_are_eagers(op):
    for call, eager in samples(op):
        check_known(op, call, eager)
        check_unknown(op, call, eager)


def check_known(op, call, eager):
    """On tensors whose values are known, the result has eager's types and values."""
    out, shadows = run(op, call, known=True)
    assert types(out) == types(eager)
    if op.name in WITHOUT_VALUES:
        return
    for symbolic, real in zip(iterate_leaf_tensors(out), iterate_leaf_tensors(eager), strict=True):
        known = shadows.get(symbolic) if symbolic.is_meta else symbolic
        if known is None:
            assert symbolic.numel() > SHADOW_LIMIT or symbolic.numel() == 0
            continue
        torch.testing.assert_close(known, real, rtol=0, atol=0, equal_nan=True)


def check_unknown(op, call, eager):
    """On tensors without values, the result has eager's types, or there is none because it depends on values."""
    out, error = outcome(op, call)
    if error is not None:
        assert needs_values(error), error
        return
    if ids(op) in NO_STATISTICS:
        out, eager = out[0], eager[0]
    assert types(out) == types(eager)
    assert all(tensor.is_meta for tensor in iterate_leaf_tensors(out) if tensor.layout is torch.strided)


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [((8, 12), (4, 12, 20), True), ((8, 16), (4, 16, 32), True), ((2, 16, 12), (2, 12, 20), False)],
)
def test_a_grouped_product_needs_the_alignment_of_its_own_type(first, second, groups):
    """12 floats are a multiple of 16 bytes, 12 halves are not: the meta kernel takes halves alone."""
    offsets = torch.tensor([2, 4, 6, 8], dtype=torch.int32) if groups else None
    real = torch._grouped_mm(torch.randn(first), torch.randn(second), offs=offsets)
    with MetaMode(Shadows()):
        out = torch._grouped_mm(torch.randn(first), torch.randn(second), offs=offsets)
        assert (out.shape, out.dtype) == (real.shape, real.dtype)


def test_a_grouped_product_that_eager_refuses_is_refused():
    first, second, offsets = torch.randn(8, 7), torch.randn(4, 7, 20), torch.tensor([2, 4, 6, 8], dtype=torch.int32)
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch._grouped_mm(first, second, offs=offsets)
    with MetaMode(Shadows()), pytest.raises(RuntimeError, match="16 bytes"):
        torch._grouped_mm(torch.randn(8, 7), torch.randn(4, 7, 20), offs=offsets)
