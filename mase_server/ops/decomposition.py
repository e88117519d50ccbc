"""Dense linear algebra: leading terms of the usual algorithms on m by n matrices (Golub and Van Loan), times the batch.

Cholesky n^3/3; LU and determinants 2n^3/3; solving adds 2n^2 for each right-hand side (a triangle n^2); inverse 2n^3;
QR 2mn^2 - 2n^3/3, doubled for forming Q; symmetric eigenproblem 9n^3, general 25n^3, values alone 4n^3/3 and 10n^3;
SVD 14mn^2 + 8n^3, singular values alone 4mn^2 - 4n^3/3; products of k factors 2n^3 each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from mase_server.ops.costs import argument, each_output, inputs
from mase_server.ops.rows import rows
from mase_server.ops.types import Formula, OpCall

Leading = Callable[[int, int], float]


def matrix(leading: Leading) -> Formula:
    """`leading(m, n)` with m >= n, for each matrix of the batch."""

    def flops(call: OpCall) -> int:
        shape = next((t.shape for t in inputs(call) if len(t.shape) >= 2), (0, 0))
        large, small = max(shape[-2:]), min(shape[-2:])
        return round(prod(shape[:-2]) * leading(large, small))

    return flops


def solving(leading: Leading, each: float) -> Formula:
    """The factorisation, and `each` * n^2 for each column of the result."""
    factorise = matrix(leading)

    def flops(call: OpCall) -> int:
        size = next((t.shape[-1] for t in inputs(call) if len(t.shape) >= 2), 0)
        return factorise(call) + round(each * size * each_output(1)(call))

    return flops


def power(call: OpCall) -> int:
    """Square and multiply: 2n^3 for each of the floor(log2 k) squarings, and for each further bit set."""
    exponent = argument(call, 1, "n", 1)
    bits = abs(int(exponent)) if isinstance(exponent, int) else 1
    products = max(bits.bit_length() - 1 + bits.bit_count() - 1, 0)
    return matrix(lambda m, n: 2 * m * n * n * products)(call)


def lu(_: int, n: int) -> float:
    """2n^3/3."""
    return 2 * n**3 / 3


def svd(m: int, n: int) -> float:
    """14mn^2 + 8n^3."""
    return 14 * m * n**2 + 8 * n**3


ROWS = (
    *rows("other", matrix(lambda _, n: n**3 / 3), "cholesky linalg.cholesky linalg.cholesky_ex"),
    *rows("other", matrix(lambda _, n: n**3), "cholesky_inverse"),
    *rows("other", matrix(lu), "det logdet slogdet linalg.det linalg.slogdet lu linalg.lu linalg.lu_factor"),
    *rows("other", matrix(lu), "linalg.lu_factor_ex linalg.ldl_factor linalg.ldl_factor_ex"),
    *rows("other", matrix(lambda _, n: 0.0), "lu_unpack"),
    *rows("other", solving(lu, 2), "linalg.solve linalg.solve_ex linalg.tensorsolve solve"),
    *rows("other", solving(lambda m, n: 0.0, 2), "cholesky_solve lu_solve linalg.lu_solve linalg.ldl_solve"),
    *rows("other", solving(lambda m, n: 0.0, 1), "linalg.solve_triangular triangular_solve"),
    *rows("other", matrix(lambda _, n: 2 * n**3), "inverse linalg.inv linalg.inv_ex linalg.tensorinv"),
    *rows(
        "other", matrix(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3), "qr linalg.qr linalg.householder_product orgqr ormqr"
    ),
    *rows("other", matrix(lambda m, n: 2 * m * n**2 - 2 * n**3 / 3), "geqrf lstsq linalg.lstsq"),
    *rows("other", matrix(svd), "svd linalg.svd svd_lowrank pca_lowrank pinverse linalg.pinv lobpcg"),
    *rows(
        "other",
        matrix(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3),
        "linalg.svdvals linalg.matrix_rank matrix_rank linalg.cond linalg.matrix_norm",
    ),
    *rows("other", matrix(lambda _, n: 9 * n**3), "linalg.eigh symeig"),
    *rows("other", matrix(lambda _, n: 4 * n**3 / 3), "linalg.eigvalsh"),
    *rows("other", matrix(lambda _, n: 25 * n**3), "eig linalg.eig"),
    *rows("other", matrix(lambda _, n: 10 * n**3), "linalg.eigvals"),
    *rows("other", matrix(lambda _, n: 20 * n**3), "matrix_exp linalg.matrix_exp"),
    *rows("other", power, "matrix_power linalg.matrix_power"),
    *rows("other", each_output(3), "cross linalg.cross"),
)
