"""Products, factorisations and solves on object arrays, skipping structural zeros.

Factorisations assume what their callers do: a symmetric positive definite matrix. Pivots come from
`rsqrt`, so a matrix that is not positive definite gives NaN in that world's lane.
"""

from __future__ import annotations

import numpy as np

from alloy.lanes.ops import Array, each, op
from alloy.lanes.scalar import Graph, Node, Value


def is_zero(x: Value) -> bool:
    """A structural zero."""
    return not isinstance(x, Node) and x == 0


def dot(g: Graph, xs: Array, ys: Array) -> Value:
    """Sum of products without the terms that are structurally zero."""
    terms = [g.mul(x, y) for x, y in zip(xs, ys, strict=True) if not (is_zero(x) or is_zero(y))]
    return g.total(terms) if terms else 0.0


@op("mm.default", "bmm.default", "matmul.default")
def matmul(g: Graph, a: Array, b: Array) -> Array:
    """Matrix product of (..., n, k) and (..., k, m)."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    out = np.empty((*lead, a.shape[-2], b.shape[-1]), dtype=object)
    for i in np.ndindex(*out.shape):
        out[i] = dot(g, a[i[:-1]], b[(*i[:-2], slice(None), i[-1])])
    return out


@op("mv.default")
def _mv(g: Graph, a: Array, b: Array) -> Array:
    return matmul(g, a, b[:, None])[:, 0]


@op("dot.default", "vdot.default")
def _dot(g: Graph, a: Array, b: Array) -> Array:
    return matmul(g, a[None, :], b[:, None])[0, :].reshape(())


@op("addmm.default", "baddbmm.default", "addbmm.default")
def _addmm(g: Graph, c: Array, a: Array, b: Array, beta: float = 1, alpha: float = 1) -> Array:
    return each(
        lambda x, y: g.add(g.mul(x, beta) if beta else 0.0, g.mul(y, alpha)), c, matmul(g, a, b)
    )


@op("addmv.default")
def _addmv(g: Graph, c: Array, a: Array, b: Array, beta: float = 1, alpha: float = 1) -> Array:
    return (
        _addmm(g, c, a, b[:, None], beta, alpha)[:, 0]
        if c.ndim == 2
        else each(lambda x, y: g.add(g.mul(x, beta), g.mul(y, alpha)), c, _mv(g, a, b))
    )


@op("linalg_cross.default")
def _cross(g: Graph, a: Array, b: Array, dim: int = -1) -> Array:
    a, b = np.broadcast_arrays(a, b)
    x, y = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    parts = [
        each(lambda p, q, r, s: g.sub(g.mul(p, q), g.mul(r, s)), x[i], y[j], x[j], y[i])
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return np.moveaxis(np.stack(parts), 0, dim)


def _rsqrt(g: Graph, x: Value) -> Value:
    return g.node("rsqrt", "f", x) if isinstance(x, Node) else g.div(1.0, g.unary("sqrt", x))


def _factor(g: Graph, a: Array) -> Array:
    """Lower Cholesky factor of one matrix, column by column; reads the lower triangle."""
    n = len(a)
    out = np.full((n, n), 0.0, dtype=object)
    for j in range(n):
        d = g.sub(a[j, j], dot(g, out[j, :j], out[j, :j]))
        inverse = _rsqrt(g, d)
        out[j, j] = g.mul(d, inverse)
        for i in range(j + 1, n):
            rest = g.sub(a[i, j], dot(g, out[i, :j], out[j, :j]))
            out[i, j] = g.mul(rest, inverse)
    return out


def _inverse_pivot(g: Graph, x: Value) -> Value:
    """1/x; the inverse square root itself where x is a pivot d * rsqrt(d)."""
    if isinstance(x, Node) and x.op == "mul":
        for d, r in (x.args, x.args[::-1]):
            if isinstance(r, Node) and r.op == "rsqrt" and r.args[0] is d:
                return r
    return g.div(1.0, x)


def _substitute(g: Graph, t: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Solve t x = b for one triangular matrix and (n, m) right-hand sides."""
    n = len(t)
    x = np.full(b.shape, 0.0, dtype=object)
    for i in range(n) if lower else range(n - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, n)
        inverse = 1.0 if unit else _inverse_pivot(g, t[i, i])
        for k in range(b.shape[1]):
            rest = g.sub(b[i, k], dot(g, t[i, known], x[known, k]))
            x[i, k] = g.mul(rest, inverse)
    return x


def _batched(fn, *arrays: Array) -> Array:  # noqa: ANN001 (fn of matrices)
    lead = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    arrays = tuple(np.broadcast_to(a, (*lead, *a.shape[-2:])) for a in arrays)
    first = None
    for i in np.ndindex(*lead):
        part = fn(*(a[i] for a in arrays))
        if first is None:
            first = np.empty((*lead, *part.shape), dtype=object)
        first[i] = part
    return first


def _mirror(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


@op("cholesky.default", "linalg_cholesky.default")
def cholesky(g: Graph, a: Array, upper: bool = False) -> Array:
    """Cholesky factor of (..., n, n)."""
    out = _batched(lambda m: _factor(g, m), _mirror(a) if upper else a)
    return _mirror(out) if upper else out


@op("linalg_cholesky_ex.default")
def _cholesky_ex(
    g: Graph, a: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, Array]:
    return cholesky(g, a, upper), np.full(a.shape[:-2], 0, dtype=object)


@op("cholesky_solve.default")
def _cholesky_solve(g: Graph, b: Array, factor: Array, upper: bool = False) -> Array:
    low = _mirror(factor) if upper else factor

    def solve(l_: Array, r: Array) -> Array:
        return _substitute(g, l_.T, _substitute(g, l_, r, True, False), False, False)

    return _batched(solve, low, b)


@op("cholesky_inverse.default")
def _cholesky_inverse(g: Graph, factor: Array, upper: bool = False) -> Array:
    eye = np.eye(factor.shape[-1]).astype(object)
    return _cholesky_solve(g, eye, factor, upper)


@op("linalg_solve_triangular.default")
def _solve_triangular(
    g: Graph, a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    if not left:
        return _mirror(_solve_triangular(
            g, _mirror(a), _mirror(b), upper=not upper, unitriangular=unitriangular))  # fmt: skip
    return _batched(lambda t, r: _substitute(g, t, r, not upper, unitriangular), a, b)


@op("triangular_solve.default")
def _triangular_solve(
    g: Graph,
    b: Array,
    a: Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Array, Array]:
    t = _mirror(a) if transpose else a
    lower = upper if transpose else not upper
    return _batched(lambda t, r: _substitute(g, t, r, lower, unitriangular), t, b), a


@op("linalg_inv_ex.default")
def _inv_ex(g: Graph, a: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    """Inverse of matrices up to 4x4 by cofactors."""
    if a.shape[-1] > 4:
        raise NotImplementedError("the inverse of a matrix larger than 4x4; factorise instead")
    return _batched(lambda m: _cofactor_inverse(g, m), a), np.full(a.shape[:-2], 0, dtype=object)


@op("_linalg_det.default")
def _det(g: Graph, a: Array) -> tuple[Array, Array, Array]:
    """Determinant by cofactors, up to 4x4 (the factors that torch also returns are not made)."""
    if a.shape[-1] > 4:
        raise NotImplementedError("the determinant of a matrix larger than 4x4")
    out = np.empty(a.shape[:-2], dtype=object)
    for i in np.ndindex(*out.shape):
        out[i] = _minor_det(g, a[i])
    return out, a, np.full(a.shape[:-1], 0, dtype=object)


def _minor_det(g: Graph, m: Array) -> Value:
    if len(m) == 1:
        return m[0, 0]
    terms = []
    for j in range(len(m)):
        if not is_zero(m[0, j]):
            minor = _minor_det(g, np.delete(m[1:], j, axis=1))
            term = g.mul(m[0, j], minor)
            terms.append(g.neg(term) if j % 2 else term)
    return g.total(terms) if terms else 0.0


def _cofactor_inverse(g: Graph, m: Array) -> Array:
    n = len(m)
    inverse = g.div(1.0, _minor_det(g, m))
    if n == 1:
        return np.array([[inverse]], dtype=object)
    out = np.empty((n, n), dtype=object)
    for i in range(n):
        for j in range(n):
            c = _minor_det(g, np.delete(np.delete(m, j, axis=0), i, axis=1))
            out[i, j] = g.mul(g.neg(c) if (i + j) % 2 else c, inverse)
    return out
