"""Matrix products, einsum and linear layers: 2 operations per multiply-accumulate, biases and scalings not counted.

torch.utils.flop_counter counts mm, addmm, bmm and baddbmm so; products with a vector (mv, dot) follow the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mase_server.ops.costs import argument, each_input, each_output, free, inputs, output_elements
from mase_server.ops.rows import rows
from mase_server.ops.types import Formula, OpCall, TensorType


def contracting(position: int, name: str) -> Formula:
    """2 * elements of the result * inner size, where argument `position` is the left matrix (its last dimension)."""

    def flops(call: OpCall) -> int:
        left: TensorType = argument(call, position, name)
        return 2 * output_elements(call) * (left.shape[-1] if left.shape else 1)

    return flops


def reversed_matmul(call: OpCall) -> int:
    """`other @ self`, called as a method of self."""
    right = inputs(call)[0]
    return 2 * output_elements(call) * right.shape[-2 if len(right.shape) > 1 else -1]


def grouped(call: OpCall) -> int:
    """Each token by its group's matrix, 2 * tokens * k * n; two plain matrices share out their inner size.

    This is more than torch.utils.flop_counter says, which does not know grouped products.
    """
    left, right = inputs(call)[:2]
    if len(left.shape) == len(right.shape) == 2:
        return 2 * left.numel * right.shape[-1]
    return 2 * output_elements(call) * left.shape[-1]


def summed_batches(call: OpCall) -> int:
    """addbmm: every batch's product: 2 * b * n * m * p."""
    return contracting(1, "batch1")(call) * int(argument(call, 1, "batch1").shape[0])


def linear(call: OpCall) -> int:
    """2 * tokens * in_features * out_features."""
    return 2 * output_elements(call) * int(argument(call, 0, "input").shape[-1])


def bilinear(call: OpCall) -> int:
    """x1 A x2 for each output feature: 2 * outputs * in1 * in2, and 2 * outputs * in2 for the second product."""
    first: TensorType = argument(call, 0, "input1")
    second: TensorType = argument(call, 1, "input2")
    return 2 * output_elements(call) * second.shape[-1] * (first.shape[-1] + 1)


def tensordot(call: OpCall) -> int:
    """2 * elements of the result * contracted size; the operands' sizes give the latter: a*b = result * k**2."""
    left, right = inputs(call)[:2]
    result = output_elements(call)
    contracted = round((left.numel * right.numel / result) ** 0.5) if result else 0
    return 2 * result * contracted


def chain(call: OpCall) -> int:
    """The best order of multiplication, as multi_dot chooses it: the classic dynamic programme over the sizes."""
    sizes = _chain_sizes(inputs(call))
    count = len(sizes) - 1
    best = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for start in range(count - span):
            end = start + span
            best[start][end] = min(
                best[start][cut] + best[cut + 1][end] + sizes[start] * sizes[cut + 1] * sizes[end + 1]
                for cut in range(start, end)
            )
    return 2 * best[0][-1] if count else 0


def _chain_sizes(operands: Sequence[TensorType]) -> list[int]:
    shapes = [t.shape for t in operands]
    if len(shapes[0]) == 1:
        shapes[0] = (1, *shapes[0])
    if len(shapes[-1]) == 1:
        shapes[-1] = (*shapes[-1], 1)
    return [shape[0] for shape in shapes] + [shapes[-1][-1]]


def einsum(call: OpCall) -> int:
    """Contracted from left to right: each pair costs 2 * the product of its sizes, or 1 * where nothing is summed."""
    equation = argument(call, 0, "equation")
    operands = inputs(call)
    if not isinstance(equation, str) or not operands:
        return 0
    terms, output = _einsum_labels(equation, operands)
    sizes = {
        label: size
        for term, t in zip(terms, operands, strict=True)
        for label, size in zip(term, t.shape, strict=True)
        if size != 1
    }
    return _contract(terms, output, sizes)


def _contract(terms: list[list[str]], output: list[str], sizes: dict[str, int]) -> int:
    total, left = 0, terms[0]
    for index, right in enumerate(terms[1:], 1):
        needed = set(output).union(*terms[index + 1 :])
        kept_left = {label for label in left if label in needed or label in right}
        kept_right = {label for label in right if label in needed or label in left}
        joined = kept_left | kept_right
        summed = (kept_left & kept_right) - needed
        total += (2 if summed else 1) * prod(sizes.get(label, 1) for label in joined)
        left = [label for label in joined if label in needed]
    return total


def _einsum_labels(equation: str, operands: Sequence[TensorType]) -> tuple[list[list[str]], list[str]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_labels(term, len(t.shape)) for term, t in zip(left.split(","), operands, strict=True)]
    if arrow:
        return terms, _labels(right, max(len(t.shape) for t in operands) + right.count("."), loose=True)
    counts: dict[str, int] = {}
    for label in (label for term in terms for label in term):
        counts[label] = counts.get(label, 0) + 1
    return terms, [label for label, count in counts.items() if count == 1 or label.startswith(".")]


def _labels(term: str, dimensions: int, loose: bool = False) -> list[str]:
    """One label a dimension; those of an ellipsis are ".1", ".2" ... from the right."""
    before, dots, after = term.partition("...")
    hidden = dimensions - len(before) - len(after) if dots else 0
    return [*before, *(f".{index}" for index in range(max(hidden, 0), 0, -1)), *after]


MATMUL = "matmul=matmul,linalg.matmul,operator.matmul,operator.imatmul,Tensor.__matmul__,Tensor.__imatmul__"

ROWS = (
    *rows("matmul", contracting(0, "input"), f"{MATMUL} mm bmm mv dot vdot inner hspmm smm"),
    *rows("matmul", reversed_matmul, "matmul=Tensor.__rmatmul__"),
    *rows("matmul", contracting(1, "mat1"), "addmm addmv sspaddmm baddbmm _addmm_activation"),
    *rows("matmul", summed_batches, "addbmm"),
    *rows("matmul", linear, "linear:Linear,LazyLinear"),
    *rows("matmul", linear, "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation"),
    *rows("matmul", linear, "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation"),
    *rows("shape", free, "fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix"),
    *rows("matmul", contracting(0, "input"), "mkldnn_linear_backward_weights"),
    *rows("matmul", bilinear, "bilinear:Bilinear"),
    *rows("matmul", tensordot, "tensordot"),
    *rows("matmul", chain, "chain_matmul linalg.multi_dot"),
    *rows("matmul", einsum, "einsum"),
    *rows("matmul", contracting(0, "input"), "scaled_mm=F.scaled_mm,torch._scaled_mm"),
    *rows("matmul", grouped, "grouped_mm=F.grouped_mm,torch._grouped_mm scaled_grouped_mm"),
    *rows("matmul", each_input(2), "linalg.vecdot"),
    *rows("elementwise", each_output(1), "outer ger kron"),
    *rows("elementwise", each_output(2), "addr"),
)
