"""What the solver's kernel does with constraint rows, a unit at a time.

`rows` are the fields (jac, d, frictionloss, con_friction), `units` the tables (unit, dofs, slot,
loss, busy) of `plan`. Only units that are active in some world of the block are looked at. The
residuals x are those of base rows; forces and curvature of a unit are in `cone`.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.cone import (
    along,
    cone_force,
    cone_times,
    inner,
    load_rows,
    scalar_row,
    store_rows,
)
from alloy.ops.triton.lane import any_of, load, store, zeros


@triton.jit
def triangle(i):
    """Where row i of a lower triangle begins."""
    return i * (i + 1) // 2


@triton.jit
def find_busy(rows, units, force, n_scalar, groups, w, m, DIMS: tl.constexpr):
    """List the units that are active in some world of the block; the others have no force.

    Returns how many scalar units and, for each cone group, where its list ends.
    """
    unit_ptr, busy_ptr = units[0], units[4]
    zero, count = zeros(force, w), 0
    for unit in range(n_scalar):
        row = tl.load(unit_ptr + 3 * unit)
        store(force, row, w, m, zero)
        if any_of(load(rows[1], row, w, m) > 0):
            tl.store(busy_ptr + count, unit)
            count += 1
    ends = (count,)
    for g in tl.static_range(len(DIMS)):
        for unit in range(groups[g], groups[g + 1]):
            row = tl.load(unit_ptr + 3 * unit)
            for k in range(DIMS[g]):
                store(force, row + k, w, m, zero)
            if any_of(load(rows[1], row, w, m) > 0):
                tl.store(busy_ptr + count, unit)
                count += 1
        ends = ends + (count,)  # noqa: RUF005
    tl.debug_barrier()  # one thread has written the list that all of them read
    return ends


@triton.jit
def _unit(units, i):
    """First row of the i-th busy unit, the span of its support, and its index."""
    unit = tl.load(units[4] + i)
    at = units[0] + 3 * unit
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), unit


@triton.jit
def _friction(rows, units, unit, n_scalar, w, m, DIM: tl.constexpr):
    """Friction coefficients of a contact."""
    return load_rows(rows[3], 5 * tl.load(units[2] + unit - n_scalar), 1, w, m, DIM - 1)


@triton.jit
def _loss(rows, units, row, ne, nf, w, m):
    """Friction loss of a row, zero on rows of other kinds."""
    loss = zeros(rows[1], w)
    if (row >= ne) & (row < ne + nf):
        loss = load(rows[2], tl.load(units[3] + row - ne), w, m)
    return loss


@triton.jit
def times_jac(rows, units, ends, s, out, nv, w, m, DIMS: tl.constexpr):
    """Out = J s, for the rows of busy units."""
    jac = rows[0]
    for i in range(ends[0]):
        row, begin, end, unit = _unit(units, i)
        total = zeros(out, w)
        for at in range(begin, end):
            col = tl.load(units[1] + at)
            total += load(jac, row * nv + col, w, m) * load(s, col, w, m)
        store(out, row, w, m, total)
    for g in tl.static_range(len(DIMS)):
        for i in range(ends[g], ends[g + 1]):
            row, begin, end, unit = _unit(units, i)
            for k in range(DIMS[g]):
                total = zeros(out, w)
                for at in range(begin, end):
                    col = tl.load(units[1] + at)
                    total += load(jac, (row + k) * nv + col, w, m) * load(s, col, w, m)
                store(out, row + k, w, m, total)


@triton.jit
def gradient(
    rows, units, ends, x, r, force, grad, sizes, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Forces at residuals x, and grad = r - J' force; returns the square of its length."""
    nv, n_scalar, ne, nf = sizes
    jac, d = rows[0], rows[1]
    for i in range(nv):
        store(grad, i, w, m, load(r, i, w, m))
    for i in range(ends[0]):
        row, begin, end, unit = _unit(units, i)
        loss = _loss(rows, units, row, ne, nf, w, m)
        f, c = scalar_row(row, load(x, row, w, m), load(d, row, w, m), loss, ne, nf)
        store(force, row, w, m, f)
        for at in range(begin, end):
            col = tl.load(units[1] + at)
            pull = load(jac, row * nv + col, w, m) * f
            store(grad, col, w, m, load(grad, col, w, m) - pull)
    for g in tl.static_range(len(DIMS)):
        for i in range(ends[g], ends[g + 1]):
            row, begin, end, unit = _unit(units, i)
            mu = _friction(rows, units, unit, n_scalar, w, m, DIMS[g])
            xs, ds = load_rows(x, row, 1, w, m, DIMS[g]), load_rows(d, row, 1, w, m, DIMS[g])
            f = cone_force(xs, ds, mu, PYRAMIDAL, SHRINK, DIMS[g])
            store_rows(force, row, w, m, f, DIMS[g])
            for at in range(begin, end):
                col = tl.load(units[1] + at)
                pull = inner(load_rows(jac, row * nv + col, nv, w, m, DIMS[g]), f, DIMS[g])
                store(grad, col, w, m, load(grad, col, w, m) - pull)
    square = zeros(grad, w)
    for i in range(nv):
        square += load(grad, i, w, m) * load(grad, i, w, m)
    return square


@triton.jit
def hessian(
    mass, rows, units, ends, x, h, lower_ptr, columns_ptr, sizes, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """H = M + J' C J below and on the diagonal, where it is not zero."""
    nv, n_scalar, ne, nf = sizes
    jac, d = rows[0], rows[1]
    for i in range(nv):
        store(h, triangle(i) + i, w, m, load(mass, i * nv + i, w, m))
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            store(h, triangle(i) + j, w, m, load(mass, i * nv + j, w, m))
    for n in range(ends[0]):
        row, begin, end, unit = _unit(units, n)
        loss = _loss(rows, units, row, ne, nf, w, m)
        f, c = scalar_row(row, load(x, row, w, m), load(d, row, w, m), loss, ne, nf)
        for at in range(begin, end):
            i = tl.load(units[1] + at)
            bent = c * load(jac, row * nv + i, w, m)
            for below in range(begin, at + 1):
                j = tl.load(units[1] + below)
                entry = load(h, triangle(i) + j, w, m) + bent * load(jac, row * nv + j, w, m)
                store(h, triangle(i) + j, w, m, entry)
    for g in tl.static_range(len(DIMS)):
        for n in range(ends[g], ends[g + 1]):
            row, begin, end, unit = _unit(units, n)
            mu = _friction(rows, units, unit, n_scalar, w, m, DIMS[g])
            xs, ds = load_rows(x, row, 1, w, m, DIMS[g]), load_rows(d, row, 1, w, m, DIMS[g])
            for at in range(begin, end):
                i = tl.load(units[1] + at)
                ji = load_rows(jac, row * nv + i, nv, w, m, DIMS[g])
                bent = cone_times(xs, ds, mu, ji, PYRAMIDAL, SHRINK, DIMS[g])
                for below in range(begin, at + 1):
                    j = tl.load(units[1] + below)
                    jj = load_rows(jac, row * nv + j, nv, w, m, DIMS[g])
                    entry = load(h, triangle(i) + j, w, m) + inner(bent, jj, DIMS[g])
                    store(h, triangle(i) + j, w, m, entry)


@triton.jit
def _slope(
    rows, units, ends, x, v, alpha, sizes, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """First and second derivative of the constraints' cost at x + alpha v along v."""
    nv, n_scalar, ne, nf = sizes
    d = rows[1]
    first, second = zeros(x, w), zeros(x, w)
    for i in range(ends[0]):
        row, begin, end, unit = _unit(units, i)
        loss, vs = _loss(rows, units, row, ne, nf, w, m), load(v, row, w, m)
        f, c = scalar_row(row, load(x, row, w, m) + alpha * vs, load(d, row, w, m), loss, ne, nf)
        first -= f * vs
        second += c * vs * vs
    for g in tl.static_range(len(DIMS)):
        for i in range(ends[g], ends[g + 1]):
            row, begin, end, unit = _unit(units, i)
            mu = _friction(rows, units, unit, n_scalar, w, m, DIMS[g])
            vs, ds = load_rows(v, row, 1, w, m, DIMS[g]), load_rows(d, row, 1, w, m, DIMS[g])
            xs = along(load_rows(x, row, 1, w, m, DIMS[g]), alpha, vs, DIMS[g])
            first -= inner(cone_force(xs, ds, mu, PYRAMIDAL, SHRINK, DIMS[g]), vs, DIMS[g])
            bent = cone_times(xs, ds, mu, vs, PYRAMIDAL, SHRINK, DIMS[g])
            second += inner(bent, vs, DIMS[g])
    return first, second


@triton.jit
def line_search(
    rows, units, ends, x, v, slope0, curvature, steep, enough, max_iter, sizes, on, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Minimiser of the cost along the search direction: Newton's method kept inside a bracket.

    Zero where none was found: where it ends the cost must not be steeper than where it began.
    """
    low = zeros(x, w)
    d1 = low
    alpha, new, high = low + 1.0, low + 1.0, low + float("inf")
    go, i = on, 0
    while any_of(go) & (i <= max_iter):
        alpha = tl.where(go, new, alpha)
        d1, d2 = _slope(rows, units, ends, x, v, alpha, sizes, w, m, PYRAMIDAL, SHRINK, DIMS)
        d1, d2 = d1 + (slope0 + alpha * curvature), d2 + curvature
        go &= tl.abs(d1) > enough
        low, high = tl.where(go & (d1 < 0), alpha, low), tl.where(go & (d1 > 0), alpha, high)
        new = alpha - d1 / d2
        # without an upper bound yet, the far side of the bracket is twice the step
        middle = tl.minimum(0.5 * (low + high), 2 * alpha)
        new = tl.where((new > low) & (new < high), new, middle)
        i += 1
    return tl.where(tl.abs(d1) <= steep, alpha, 0.0)


@triton.jit
def move_rows(units, ends, x, v, alpha, w, m, DIMS: tl.constexpr):
    """X += alpha v, for the rows of busy units."""
    for i in range(ends[0]):
        row, begin, end, unit = _unit(units, i)
        store(x, row, w, m, load(x, row, w, m) + alpha * load(v, row, w, m))
    for g in tl.static_range(len(DIMS)):
        for i in range(ends[g], ends[g + 1]):
            row, begin, end, unit = _unit(units, i)
            for k in range(DIMS[g]):
                new = load(x, row + k, w, m) + alpha * load(v, row + k, w, m)
                store(x, row + k, w, m, new)
