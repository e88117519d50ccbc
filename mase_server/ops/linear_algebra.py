"""Matrix products, linear layers, einsum, dense linear algebra and Fourier transforms: their rows and cost formulas.

Products count 2 operations per multiply-accumulate, biases and scalings not counted. torch.utils.flop_counter counts
mm, addmm, bmm and baddbmm so; products with a vector (mv, dot) follow the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any

from mase_server.ops.rows import (
    cost_nothing,
    each_input,
    each_output,
    get_argument,
    input_tensors,
    output_elements,
    parse_rows,
)
from mase_server.ops.types import Formula, OpCall, TensorType, iterate_tensors


def contraction_formula(position: int, name: str) -> Formula:
    """2 * elements of the result * inner size, where argument `position` is the left matrix (its last dimension)."""

    def flops(call: OpCall) -> int:
        left: TensorType = get_argument(call, position, name)
        return 2 * output_elements(call) * (left.shape[-1] if left.shape else 1)

    return flops


def reversed_matmul(call: OpCall) -> int:
    """`other @ self`, called as a method of self."""
    right = input_tensors(call)[0]
    return 2 * output_elements(call) * right.shape[-2 if len(right.shape) > 1 else -1]


def grouped_matmul_flops(call: OpCall) -> int:
    """Each token times its group's matrix, 2 * tokens * k * n; two plain matrices split their inner size between the
    groups.

    torch.utils.flop_counter counts nothing here, because it does not know grouped products.
    """
    left, right = input_tensors(call)[:2]
    if len(left.shape) == len(right.shape) == 2:
        return 2 * left.numel * right.shape[-1]
    return 2 * output_elements(call) * left.shape[-1]


def summed_batches(call: OpCall) -> int:
    """addbmm: every batch's product: 2 * b * n * m * p."""
    return contraction_formula(1, "batch1")(call) * int(get_argument(call, 1, "batch1").shape[0])


def linear_flops(call: OpCall) -> int:
    """2 * tokens * in_features * out_features."""
    return 2 * output_elements(call) * int(get_argument(call, 0, "input").shape[-1])


def bilinear_flops(call: OpCall) -> int:
    """x1 A x2 for each output feature: 2 * outputs * in1 * in2, and 2 * outputs * in2 for the second product."""
    first: TensorType = get_argument(call, 0, "input1")
    second: TensorType = get_argument(call, 1, "input2")
    return 2 * output_elements(call) * second.shape[-1] * (first.shape[-1] + 1)


def tensordot_flops(call: OpCall) -> int:
    """2 * elements of the result * contracted size; the operands' sizes give the latter: a*b = result * k**2."""
    left, right = input_tensors(call)[:2]
    result = output_elements(call)
    contracted = round((left.numel * right.numel / result) ** 0.5) if result else 0
    return 2 * result * contracted


def chain_matmul_flops(call: OpCall) -> int:
    """The best order of multiplication, as multi_dot chooses it: the classic dynamic programme over the sizes."""
    sizes = _chain_sizes(input_tensors(call))
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


def einsum_flops(call: OpCall) -> int:
    """The cost of contracting from left to right: each pair costs 2 * the product of its sizes, or 1 * if nothing is
    summed."""
    equation = get_argument(call, 0, "equation")
    operands = input_tensors(call)
    if not isinstance(equation, str) or not operands:
        return 0
    terms, output = _einsum_labels(equation, operands)
    sizes = {
        label: size
        for term, t in zip(terms, operands, strict=True)
        for label, size in zip(term, t.shape, strict=True)
        if size != 1
    }
    return _contract_pairwise(terms, output, sizes)


def _contract_pairwise(terms: list[list[str]], output: list[str], sizes: dict[str, int]) -> int:
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
    terms = [_dimension_labels(term, len(t.shape)) for term, t in zip(left.split(","), operands, strict=True)]
    if arrow:
        return terms, _dimension_labels(right, max(len(t.shape) for t in operands) + right.count("."), loose=True)
    counts: dict[str, int] = {}
    for label in (label for term in terms for label in term):
        counts[label] = counts.get(label, 0) + 1
    return terms, [label for label, count in counts.items() if count == 1 or label.startswith(".")]


def _dimension_labels(term: str, dimensions: int, loose: bool = False) -> list[str]:
    """One label for each dimension; those of an ellipsis are ".1", ".2" ... from the right."""
    before, dots, after = term.partition("...")
    hidden = dimensions - len(before) - len(after) if dots else 0
    return [*before, *(f".{index}" for index in range(max(hidden, 0), 0, -1)), *after]


MATMUL = "matmul=matmul,linalg.matmul,operator.matmul,operator.imatmul,Tensor.__matmul__,Tensor.__imatmul__"

ROWS = (
    *parse_rows("matmul", contraction_formula(0, "input"), f"{MATMUL} mm bmm mv dot vdot inner hspmm smm"),
    *parse_rows("matmul", reversed_matmul, "matmul=Tensor.__rmatmul__"),
    *parse_rows("matmul", contraction_formula(1, "mat1"), "addmm addmv sspaddmm baddbmm _addmm_activation"),
    *parse_rows("matmul", summed_batches, "addbmm"),
    *parse_rows("matmul", linear_flops, "linear:Linear,LazyLinear"),
    *parse_rows("matmul", linear_flops, "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation"),
    *parse_rows("matmul", linear_flops, "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation"),
    *parse_rows(
        "shape", cost_nothing, "fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix"
    ),
    *parse_rows("matmul", contraction_formula(0, "input"), "mkldnn_linear_backward_weights"),
    *parse_rows("matmul", bilinear_flops, "bilinear:Bilinear"),
    *parse_rows("matmul", tensordot_flops, "tensordot"),
    *parse_rows("matmul", chain_matmul_flops, "chain_matmul linalg.multi_dot"),
    *parse_rows("matmul", einsum_flops, "einsum"),
    *parse_rows("matmul", contraction_formula(0, "input"), "scaled_mm=F.scaled_mm,torch._scaled_mm"),
    *parse_rows("matmul", grouped_matmul_flops, "grouped_mm=F.grouped_mm,torch._grouped_mm scaled_grouped_mm"),
    *parse_rows("matmul", each_input(2), "linalg.vecdot"),
    *parse_rows("elementwise", each_output(1), "outer ger kron"),
    *parse_rows("elementwise", each_output(2), "addr"),
)


# Dense linear algebra: leading terms of the usual algorithms on m by n matrices (Golub and Van Loan), times the batch.
#
# Cholesky n^3/3; LU and determinants 2n^3/3; solving adds 2n^2 for each right-hand side (a triangle n^2); inverse 2n^3;
# QR 2mn^2 - 2n^3/3, doubled for forming Q; symmetric eigenproblem 9n^3, general 25n^3, values alone 4n^3/3 and 10n^3;
# SVD 14mn^2 + 8n^3, singular values alone 4mn^2 - 4n^3/3; products of k factors 2n^3 each.

Leading = Callable[[int, int], float]


def matrix_formula(leading: Leading) -> Formula:
    """`leading(m, n)` with m >= n, for each matrix of the batch."""

    def flops(call: OpCall) -> int:
        shape = next((t.shape for t in input_tensors(call) if len(t.shape) >= 2), (0, 0))
        large, small = max(shape[-2:]), min(shape[-2:])
        return round(prod(shape[:-2]) * leading(large, small))

    return flops


def solving_formula(leading: Leading, each: float) -> Formula:
    """The factorisation, and `each` * n^2 for each column of the result."""
    factorise = matrix_formula(leading)

    def flops(call: OpCall) -> int:
        size = next((t.shape[-1] for t in input_tensors(call) if len(t.shape) >= 2), 0)
        return factorise(call) + round(each * size * each_output(1)(call))

    return flops


def matrix_power_flops(call: OpCall) -> int:
    """Square and multiply: 2n^3 for each of the floor(log2 k) squarings, and for each further bit set."""
    exponent = get_argument(call, 1, "n", 1)
    bits = abs(int(exponent)) if isinstance(exponent, int) else 1
    products = max(bits.bit_length() - 1 + bits.bit_count() - 1, 0)
    return matrix_formula(lambda m, n: 2 * m * n * n * products)(call)


def lu_flops(_: int, n: int) -> float:
    """2n^3/3."""
    return 2 * n**3 / 3


def svd_flops(m: int, n: int) -> float:
    """14mn^2 + 8n^3."""
    return 14 * m * n**2 + 8 * n**3


DECOMPOSITION_ROWS = (
    *parse_rows("other", matrix_formula(lambda _, n: n**3 / 3), "cholesky linalg.cholesky linalg.cholesky_ex"),
    *parse_rows("other", matrix_formula(lambda _, n: n**3), "cholesky_inverse"),
    *parse_rows(
        "other", matrix_formula(lu_flops), "det logdet slogdet linalg.det linalg.slogdet lu linalg.lu linalg.lu_factor"
    ),
    *parse_rows("other", matrix_formula(lu_flops), "linalg.lu_factor_ex linalg.ldl_factor linalg.ldl_factor_ex"),
    *parse_rows("other", matrix_formula(lambda _, n: 0.0), "lu_unpack"),
    *parse_rows("other", solving_formula(lu_flops, 2), "linalg.solve linalg.solve_ex linalg.tensorsolve solve"),
    *parse_rows(
        "other", solving_formula(lambda m, n: 0.0, 2), "cholesky_solve lu_solve linalg.lu_solve linalg.ldl_solve"
    ),
    *parse_rows("other", solving_formula(lambda m, n: 0.0, 1), "linalg.solve_triangular triangular_solve"),
    *parse_rows("other", matrix_formula(lambda _, n: 2 * n**3), "inverse linalg.inv linalg.inv_ex linalg.tensorinv"),
    *parse_rows(
        "other",
        matrix_formula(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3),
        "qr linalg.qr linalg.householder_product orgqr ormqr",
    ),
    *parse_rows("other", matrix_formula(lambda m, n: 2 * m * n**2 - 2 * n**3 / 3), "geqrf lstsq linalg.lstsq"),
    *parse_rows(
        "other", matrix_formula(svd_flops), "svd linalg.svd svd_lowrank pca_lowrank pinverse linalg.pinv lobpcg"
    ),
    *parse_rows(
        "other",
        matrix_formula(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3),
        "linalg.svdvals linalg.matrix_rank matrix_rank linalg.cond linalg.matrix_norm",
    ),
    *parse_rows("other", matrix_formula(lambda _, n: 9 * n**3), "linalg.eigh symeig"),
    *parse_rows("other", matrix_formula(lambda _, n: 4 * n**3 / 3), "linalg.eigvalsh"),
    *parse_rows("other", matrix_formula(lambda _, n: 25 * n**3), "eig linalg.eig"),
    *parse_rows("other", matrix_formula(lambda _, n: 10 * n**3), "linalg.eigvals"),
    *parse_rows("other", matrix_formula(lambda _, n: 20 * n**3), "matrix_exp linalg.matrix_exp"),
    *parse_rows("other", matrix_power_flops, "matrix_power linalg.matrix_power"),
    *parse_rows("other", each_output(3), "cross linalg.cross"),
)


# Fourier transforms: 5 * n * log2(n) operations for a complex transform of n points, half of that for a real one.
#
# n is the product of the transformed dimensions: the last, the last two, or all, unless `dim` says otherwise.


def fourier_formula(default_dims: int | None, scale: float) -> Formula:
    """`scale` * elements * log2(points), on the larger of input and result."""

    def flops(call: OpCall) -> int:
        tensor = max((*input_tensors(call)[:1], *iterate_tensors(call.result)), key=lambda t: t.numel)
        points = prod(tensor.shape[d] for d in _transformed_dimensions(call, tensor, default_dims))
        return tensor.numel // points * round(scale * points * log2(points)) if points > 1 else 0

    return flops


def _transformed_dimensions(call: OpCall, tensor: TensorType, default: int | None) -> tuple[int, ...]:
    dim: Any = get_argument(call, 2, "dim")
    if isinstance(dim, int):
        return (dim,)
    if dim is not None:
        return tuple(dim)
    return tuple(range(len(tensor.shape)))[-default if default else None :]


def short_time(call: OpCall) -> int:
    """A transform of n_fft points for each frame, and the window: half of 5 * n * log2(n), and n."""
    size = int(get_argument(call, 1, "n_fft"))
    given = max((*input_tensors(call)[:1], *iterate_tensors(call.result)), key=lambda t: t.numel)
    frames = given.numel // max(size // 2 + 1, 1)
    return frames * (round(2.5 * size * log2(size)) + size) if size > 1 else 0


FFT_ROWS = (
    *parse_rows("fft", fourier_formula(1, 5.0), "fft.fft fft.ifft"),
    *parse_rows("fft", fourier_formula(1, 2.5), "fft.rfft fft.irfft fft.hfft fft.ihfft"),
    *parse_rows("fft", fourier_formula(2, 5.0), "fft.fft2 fft.ifft2"),
    *parse_rows("fft", fourier_formula(2, 2.5), "fft.rfft2 fft.irfft2 fft.hfft2 fft.ihfft2"),
    *parse_rows("fft", fourier_formula(None, 5.0), "fft.fftn fft.ifftn"),
    *parse_rows("fft", fourier_formula(None, 2.5), "fft.rfftn fft.irfftn fft.hfftn fft.ihfftn"),
    *parse_rows("fft", short_time, "stft istft"),
)
