"""Factor and solve from the leaves to the root. Twin of `alloy.ops.reference.linear`."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import empty, launch, load, store, worlds_of, zeros


@triton.jit
def _factor_kernel(
    # in
    a,
    # out
    lower,
    # sizes
    n, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Cholesky factor of `a` with rows and columns reversed: L_ij = (a_ij - L_i . L_j) / L_jj.

    Reversed, the last row is eliminated first. Source: Golub and Van Loan (2013), section 4.2.
    """
    w, m = worlds_of(n_world, BLOCK)
    zero = zeros(lower, w)
    for i in range(n):
        for j in range(i + 1):
            total = load(a, (n - 1 - i) * n + n - 1 - j, w, m)
            for k in range(j):
                total -= load(lower, i * n + k, w, m) * load(lower, j * n + k, w, m)
            if i == j:
                total = tl.sqrt(total)
            else:
                total = total / load(lower, j * n + j, w, m)
            store(lower, i * n + j, w, m, total)
        for j in range(i + 1, n):
            store(lower, i * n + j, w, m, zero)


@triton.jit
def _factor_solve_kernel(
    # in
    lower, b,
    # out
    x,
    # sizes
    n, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Forward and back substitution, L y = b reversed and L' x = y.

    Source: Golub and Van Loan (2013), section 3.1.
    """
    w, m = worlds_of(n_world, BLOCK)
    for i in range(n):
        total = load(b, n - 1 - i, w, m)
        for k in range(i):
            total -= load(lower, i * n + k, w, m) * load(x, n - 1 - k, w, m)
        store(x, n - 1 - i, w, m, total / load(lower, i * n + i, w, m))
    for step in range(n):
        i = n - 1 - step
        total = load(x, n - 1 - i, w, m)
        for k in range(i + 1, n):
            total -= load(lower, k * n + i, w, m) * load(x, n - 1 - k, w, m)
        store(x, n - 1 - i, w, m, total / load(lower, i * n + i, w, m))


@triton.jit
def _eliminate_kernel(
    # in
    a, b,
    # scratch, out
    u, x,
    # sizes
    n, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gaussian elimination, the last row first: a_i -= (a_ik / a_kk) a_k for all i < k.

    What is left is lower triangular. Without pivots: enough where the symmetric part is positive
    definite. Source: Golub and Van Loan (2013), sections 3.2 and 4.1.
    """
    w, m = worlds_of(n_world, BLOCK)
    for i in range(n * n):
        store(u, i, w, m, load(a, i, w, m))
    for i in range(n):
        store(x, i, w, m, load(b, i, w, m))
    for step in range(n):
        k = n - 1 - step
        pivot, known = load(u, k * n + k, w, m), load(x, k, w, m)
        for i in range(k):
            ratio = load(u, i * n + k, w, m) / pivot
            for j in range(k):
                rest = load(u, i * n + j, w, m) - ratio * load(u, k * n + j, w, m)
                store(u, i * n + j, w, m, rest)
            store(x, i, w, m, load(x, i, w, m) - ratio * known)
    for i in range(n):
        total = load(x, i, w, m)
        for j in range(i):
            total -= load(u, i * n + j, w, m) * load(x, j, w, m)
        store(x, i, w, m, total / load(u, i * n + i, w, m))


def factor(a: Tensor) -> Tensor:
    """See `alloy.ops.factor`; one factor in memory if `a` is shared by all worlds."""
    out = empty(a.shape[0], *a.shape[1:], like=a)
    launch(_factor_kernel, a.shape[0], a, out, a.shape[-1])
    return out


def solve(chol: Tensor, b: Tensor) -> Tensor:
    """See `alloy.ops.factor_solve`."""
    out = empty(b.shape[0], b.shape[-1], like=b)
    launch(_factor_solve_kernel, b.shape[0], chol, b, out, b.shape[-1])
    return out


def eliminate(a: Tensor, b: Tensor) -> Tensor:
    """See `alloy.ops.eliminate`."""
    worlds, n = b.shape
    scratch, out = empty(worlds, n, n, like=b), empty(worlds, n, like=b)
    launch(_eliminate_kernel, worlds, a, b, scratch, out, n)
    return out
