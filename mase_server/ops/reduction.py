"""Reductions and scans: 1 operation for each element of the input; means and norms 1 more for each result.

Variances cost 3 for each element (subtract, square, add); log-sum-exp 4 (max, subtract, exp, add); sorting n elements
costs n * log2(n) comparisons along the sorted dimension; distances between rows 3 for each element compared.
"""

from __future__ import annotations

from mase_server.ops.costs import argument, each_input, input_elements, inputs, output_elements
from mase_server.ops.rows import rows
from mase_server.ops.types import Formula, OpCall


def averaged(call: OpCall) -> int:
    """An addition for each element of the input, a division for each of the result."""
    return input_elements(call) + output_elements(call)


def normed(call: OpCall) -> int:
    """A power and an addition for each element of the input, a root for each of the result."""
    return 2 * input_elements(call) + output_elements(call)


def sorting(position: int, default: int | None = -1) -> Formula:
    """n * ceil(log2 n) comparisons for each row of n; `dim` is argument `position`, None means all."""

    def flops(call: OpCall) -> int:
        tensor = inputs(call)[0]
        dim = argument(call, position, "dim", default)
        length = tensor.shape[dim] if tensor.shape and dim is not None else tensor.numel
        return tensor.numel * max(length - 1, 0).bit_length()

    return flops


def msort(call: OpCall) -> int:
    """Sorted along the first dimension."""
    tensor = inputs(call)[0]
    return tensor.numel * max(tensor.shape[0] - 1, 0).bit_length() if tensor.shape else 0


def searched(call: OpCall) -> int:
    """log2 of the boundaries for each value looked up."""
    given = inputs(call)
    length = max((t.shape[-1] for t in given if t.shape), default=1)
    return output_elements(call) * length.bit_length()


def all_pairs(call: OpCall) -> int:
    """Subtract, square and add for each element of each pair of rows."""
    return 3 * output_elements(call) * int(inputs(call)[0].shape[-1])


ROWS = (
    *rows(
        "reduction",
        each_input(1),
        """sum nansum prod max=max,builtins.max min=min,builtins.min amax amin aminmax argmax argmin all any cumsum
        cumprod cummax cummin count_nonzero median nanmedian mode kthvalue trace histc histogram histogramdd bincount
        hash_tensor equal allclose logcumsumexp unique_consecutive
        trapz trapezoid cumulative_trapezoid diff gradient segment_reduce
        sum_to_size=Tensor.sum_to_size sum=builtins.sum cov corrcoef""",
    ),
    *rows("reduction", averaged, "mean nanmean"),
    *rows("reduction", each_input(3), "std var std_mean var_mean"),
    *rows("reduction", each_input(4), "logsumexp=logsumexp,special.logsumexp"),
    *rows(
        "reduction",
        normed,
        "norm linalg.norm linalg.vector_norm frobenius_norm nuclear_norm norm_except_dim native_norm",
    ),
    *rows("reduction", sorting(1), "sort argsort"),
    *rows("reduction", sorting(2), "topk"),
    *rows("reduction", sorting(3, None), "unique"),
    *rows("reduction", sorting(2, None), "quantile nanquantile"),
    *rows("reduction", msort, "msort"),
    *rows("reduction", searched, "searchsorted bucketize isin"),
    *rows("reduction", each_input(3), "pairwise_distance:PairwiseDistance"),
    *rows("reduction", each_input(6), "cosine_similarity:CosineSimilarity"),
    *rows("reduction", all_pairs, "cdist pdist"),
)
