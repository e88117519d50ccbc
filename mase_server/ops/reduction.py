"""Reductions and scans: 1 operation for each element of the input; means and norms 1 more for each result.

Variances cost 3 for each element (subtract, square, add); log-sum-exp 4 (max, subtract, exp, add); sorting n elements
costs n * log2(n) comparisons along the sorted dimension; distances between rows 3 for each element compared.
"""

from __future__ import annotations

from mase_server.ops.costs import argument, each_input, input_elements, inputs, output_elements
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall


def averaged(call: OpCall) -> int:
    """An addition for each element of the input, a division for each of the result."""
    return input_elements(call) + output_elements(call)


def normed(call: OpCall) -> int:
    """A power and an addition for each element of the input, a root for each of the result."""
    return 2 * input_elements(call) + output_elements(call)


def sorted_(call: OpCall) -> int:
    """n * ceil(log2 n) comparisons for each row of n, the last dimension unless `dim` says another."""
    tensor = inputs(call)[0]
    dim = argument(call, 1, "dim", -1)
    length = (
        tensor.shape[dim]
        if tensor.shape and isinstance(dim, int) and -len(tensor.shape) <= dim < len(tensor.shape)
        else 1
    )
    return tensor.numel * max(length - 1, 0).bit_length()


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
        hash_tensor equal allclose logcumsumexp trapz trapezoid cumulative_trapezoid diff gradient segment_reduce
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
    *rows("reduction", sorted_, "sort argsort msort topk quantile nanquantile unique unique_consecutive"),
    *rows("reduction", searched, "searchsorted bucketize isin"),
    *rows("reduction", each_input(3), "pairwise_distance:PairwiseDistance"),
    *rows("reduction", each_input(6), "cosine_similarity:CosineSimilarity"),
    *rows("reduction", all_pairs, "cdist pdist"),
)
