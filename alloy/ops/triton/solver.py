"""Newton's method on MuJoCo's primal cost. Twin of `alloy.ops.reference.solver`.

One program solves a block of worlds and loops until its own worlds have converged; a world that is
done is frozen by a mask. Everything is kept by world in global buffers: acceleration a, momentum
r = M a - qfrc_smooth, residuals x = J a - aref, the factor of H = M + J' C J in its own sparsity.
Units that push in no world of the block are skipped: they would add exact zeros.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.cone import (
    along,
    cone_force,
    cone_times,
    inner,
    load_rows,
    scalar_row,
)
from alloy.ops.triton.lane import BLOCK, any_of, empty, launch, load, store, worlds_of, zeros
from alloy.ops.triton.plan import Plan, dense_plan

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout

ROUNDOFF = 4.0  # as in the reference


@triton.jit
def _triangle(i):
    """Where row i of a lower triangle begins."""
    return i * (i + 1) // 2


# ------------------------------------------------------------------ H, factored from the leaves


@triton.jit
def _times_mass(mass, x, out, lower_ptr, columns_ptr, nv, w, m):
    """Out = M x, M symmetric and read below its diagonal only."""
    for i in range(nv):
        xi = load(x, i, w, m)
        total = load(mass, i * nv + i, w, m) * xi
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            entry = load(mass, i * nv + j, w, m)
            total += entry * load(x, j, w, m)
            store(out, j, w, m, load(out, j, w, m) + entry * xi)
        store(out, i, w, m, total)


@triton.jit
def _factor(h, lower_ptr, columns_ptr, nv, w, m):
    """H = L' D L in place: D on the diagonal, L below it, eliminating the last row first."""
    for step in range(nv):
        i = nv - 1 - step
        row = _triangle(i)
        inverse = 1.0 / load(h, row + i, w, m)
        begin, end = tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)
        for back in range(end - begin):
            last = end - 1 - back
            j = tl.load(columns_ptr + last)
            share = load(h, row + j, w, m) * inverse
            for at in range(begin, last + 1):
                k = tl.load(columns_ptr + at)
                entry = _triangle(j) + k
                store(h, entry, w, m, load(h, entry, w, m) - share * load(h, row + k, w, m))
            store(h, row + j, w, m, share)


@triton.jit
def _factor_solve(h, x, lower_ptr, columns_ptr, nv, w, m):
    """Solve L' D L x = x in place."""
    for step in range(nv):
        i = nv - 1 - step
        xi = load(x, i, w, m)
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            store(x, j, w, m, load(x, j, w, m) - load(h, _triangle(i) + j, w, m) * xi)
    for i in range(nv):
        xi = load(x, i, w, m) / load(h, _triangle(i) + i, w, m)
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            xi -= load(h, _triangle(i) + j, w, m) * load(x, j, w, m)
        store(x, i, w, m, xi)


# ------------------------------------------------------------------ rows
#
# rows: fields (jac, d, frictionloss, con_friction); units: tables (unit, dofs, slot, loss, busy)


@triton.jit
def _find_busy(rows, units, force, n_scalar, groups, w, m, DIMS: tl.constexpr):
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
def _times_jac(rows, units, ends, s, out, nv, w, m, DIMS: tl.constexpr):
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
def _gradient(
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
            for k in tl.static_range(DIMS[g]):
                store(force, row + k, w, m, f[k])
            for at in range(begin, end):
                col = tl.load(units[1] + at)
                pull = inner(load_rows(jac, row * nv + col, nv, w, m, DIMS[g]), f, DIMS[g])
                store(grad, col, w, m, load(grad, col, w, m) - pull)
    square = zeros(grad, w)
    for i in range(nv):
        square += load(grad, i, w, m) * load(grad, i, w, m)
    return square


@triton.jit
def _hessian(
    mass, rows, units, ends, x, h, lower_ptr, columns_ptr, sizes, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """H = M + J' C J below and on the diagonal, where it is not zero."""
    nv, n_scalar, ne, nf = sizes
    jac, d = rows[0], rows[1]
    for i in range(nv):
        store(h, _triangle(i) + i, w, m, load(mass, i * nv + i, w, m))
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            store(h, _triangle(i) + j, w, m, load(mass, i * nv + j, w, m))
    for n in range(ends[0]):
        row, begin, end, unit = _unit(units, n)
        loss = _loss(rows, units, row, ne, nf, w, m)
        f, c = scalar_row(row, load(x, row, w, m), load(d, row, w, m), loss, ne, nf)
        for at in range(begin, end):
            i = tl.load(units[1] + at)
            bent = c * load(jac, row * nv + i, w, m)
            for below in range(begin, at + 1):
                j = tl.load(units[1] + below)
                entry = load(h, _triangle(i) + j, w, m) + bent * load(jac, row * nv + j, w, m)
                store(h, _triangle(i) + j, w, m, entry)
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
                    entry = load(h, _triangle(i) + j, w, m) + inner(bent, jj, DIMS[g])
                    store(h, _triangle(i) + j, w, m, entry)


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
def _line_search(
    rows, units, ends, x, v, slope0, curvature, enough, max_iter, sizes, on, w, m,
    PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Minimiser of the cost along the search direction: Newton's method kept inside a bracket."""
    low = zeros(x, w)
    alpha, high = low + 1.0, low + float("inf")
    d1, d2 = _slope(rows, units, ends, x, v, alpha, sizes, w, m, PYRAMIDAL, SHRINK, DIMS)
    d1, d2 = d1 + (slope0 + curvature), d2 + curvature
    go, i = on & (tl.abs(d1) > enough), 0
    while any_of(go) & (i < max_iter):
        low, high = tl.where(go & (d1 < 0), alpha, low), tl.where(go & (d1 > 0), alpha, high)
        new = alpha - d1 / d2
        # without an upper bound yet, the far side of the bracket is twice the step
        middle = tl.minimum(0.5 * (low + high), 2 * alpha)
        new = tl.where((new > low) & (new < high), new, middle)
        alpha = tl.where(go, new, alpha)
        e1, e2 = _slope(rows, units, ends, x, v, alpha, sizes, w, m, PYRAMIDAL, SHRINK, DIMS)
        d1 = tl.where(go, e1 + (slope0 + alpha * curvature), d1)
        d2 = tl.where(go, e2 + curvature, d2)
        go &= tl.abs(d1) > enough
        i += 1
    return alpha


# ------------------------------------------------------------------ the whole solve


@triton.jit
def _start(
    mass, qfrc_smooth, aref, warmstart, qacc, r, x, rows, units, ends, lower_ptr, columns_ptr,
    nv, noise, floor, w, m, DIMS: tl.constexpr,
):  # fmt: skip
    """A = warmstart, r = M a - qfrc_smooth, x = J a - aref; the gradient that counts as zero."""
    for i in range(nv):
        store(qacc, i, w, m, load(warmstart, i, w, m))
    _times_mass(mass, qacc, r, lower_ptr, columns_ptr, nv, w, m)
    threshold = zeros(r, w) + floor
    for i in range(nv):
        momentum, force = load(r, i, w, m), load(qfrc_smooth, i, w, m)
        threshold = tl.maximum(threshold, noise * (tl.abs(momentum) + tl.abs(force)))
        store(r, i, w, m, momentum - force)
    _times_jac(rows, units, ends, qacc, x, nv, w, m, DIMS)
    _move_rows(units, ends, x, aref, zeros(r, w) - 1.0, w, m, DIMS)
    return threshold


@triton.jit
def _move_rows(units, ends, x, v, alpha, w, m, DIMS: tl.constexpr):
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


@triton.jit
def _solve_kernel(
    # in
    mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction, warmstart,
    # out
    qacc, qfrc_constraint, force, niter,
    # scratch
    r, grad, search, mv, x, v, h,
    # tables
    unit_ptr, dofs_ptr, slot_ptr, loss_ptr, busy_ptr, lower_ptr, columns_ptr,
    # sizes and options
    groups, nunit, nv, n_scalar, ne, nf, iterations, ls_iterations, noise, ls_tolerance, floor,
    gain, PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Minimise 1/2 a' M a - a' qfrc_smooth + sum of s(J a - aref) over a.

    Step: H search = -grad, alpha by the line search. It ends when the gradient vanishes or when a
    step could not gain more than the tolerance. Source: MuJoCo manual, Solver algorithms, Newton.
    """
    w, m = worlds_of(n_world, BLOCK)
    busy_ptr += tl.program_id(0) * nunit
    rows = (jac, d, frictionloss, con_friction)
    units = (unit_ptr, dofs_ptr, slot_ptr, loss_ptr, busy_ptr)
    sizes = (nv, n_scalar, ne, nf)
    ends = _find_busy(rows, units, force, n_scalar, groups, w, m, DIMS)
    threshold = _start(
        mass, qfrc_smooth, aref, warmstart, qacc, r, x, rows, units, ends, lower_ptr, columns_ptr,
        nv, noise, floor, w, m, DIMS,
    )  # fmt: skip
    square = _gradient(rows, units, ends, x, r, force, grad, sizes, w, m, PYRAMIDAL, SHRINK, DIMS)
    on = m & (tl.sqrt(square) > threshold)
    count, i = tl.full(w.shape, 0, tl.int64), 0
    while any_of(on) & (i < iterations):
        _hessian(
            mass, rows, units, ends, x, h, lower_ptr, columns_ptr, sizes, w, m,
            PYRAMIDAL, SHRINK, DIMS,
        )  # fmt: skip
        _factor(h, lower_ptr, columns_ptr, nv, w, m)
        for k in range(nv):
            store(search, k, w, m, -load(grad, k, w, m))
        _factor_solve(h, search, lower_ptr, columns_ptr, nv, w, m)
        _times_mass(mass, search, mv, lower_ptr, columns_ptr, nv, w, m)
        _times_jac(rows, units, ends, search, v, nv, w, m, DIMS)
        zero = zeros(r, w)
        first, slope0, curvature, size = zero, zero, zero, zero
        for k in range(nv):
            step, power = load(search, k, w, m), load(r, k, w, m) * load(search, k, w, m)
            first += load(grad, k, w, m) * step
            slope0, size = slope0 + power, size + tl.abs(power)
            curvature += load(mv, k, w, m) * step
        alpha = _line_search(
            rows, units, ends, x, v, slope0, curvature, size * noise - ls_tolerance * first,
            ls_iterations, sizes, on, w, m, PYRAMIDAL, SHRINK, DIMS,
        )  # fmt: skip
        alpha = tl.where(on, alpha, 0.0)
        for k in range(nv):
            step, gone = load(search, k, w, m), load(mv, k, w, m)
            store(qacc, k, w, m & on, load(qacc, k, w, m) + alpha * step)
            store(r, k, w, m & on, load(r, k, w, m) + alpha * gone)
        _move_rows(units, ends, x, v, alpha, w, m & on, DIMS)
        square = _gradient(
            rows, units, ends, x, r, force, grad, sizes, w, m, PYRAMIDAL, SHRINK, DIMS
        )
        count += on.to(tl.int64)
        on = on & (tl.sqrt(square) > threshold) & (first < gain)
        i += 1
    for k in range(nv):
        store(qfrc_constraint, k, w, m, load(r, k, w, m) - load(grad, k, w, m))
    store(niter, 0, w, m, count)


def solve(
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    d: Tensor,
    frictionloss: Tensor,
    con_friction: Tensor,
    warmstart: Tensor,
    layout: ConstraintLayout,
    impratio: float,
    scale: float,
    opt: tuple[float, float, int, int],
    plan: Plan | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `alloy.ops.solve`; without a plan every entry of J and M counts as nonzero."""
    worlds, nefc, nv = jac.shape
    plan = plan or dense_plan(layout, nefc, nv, jac.device)
    tolerance, ls_tolerance, iterations, ls_iterations = opt
    qacc, qfrc, r, grad, search, mv = (empty(worlds, nv, like=jac) for _ in range(6))
    force, x, v = (empty(worlds, nefc, like=jac) for _ in range(3))
    niter = empty(worlds, 1, like=jac, dtype=torch.int64)
    h = empty(worlds, nv * (nv + 1) // 2, like=jac)
    nunit = plan.groups[-1]
    busy = torch.empty(nunit * triton.cdiv(worlds, BLOCK), dtype=torch.int32, device=jac.device)
    launch(
        _solve_kernel, worlds, mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction,
        warmstart, qacc, qfrc, force, niter, r, grad, search, mv, x, v, h,
        plan.unit, plan.dofs, plan.slot, plan.loss, busy, plan.lower, plan.columns,
        plan.groups, nunit, nv, layout.n_scalar, layout.ne, layout.nf, iterations, ls_iterations,
        ROUNDOFF * torch.finfo(mass.dtype).eps, ls_tolerance, tolerance / scale,
        -2 * tolerance / scale, PYRAMIDAL=layout.pyramidal,
        SHRINK=max(impratio, 1e-15) ** -0.5, DIMS=plan.dims,
    )  # fmt: skip
    return qacc, qfrc, force, niter[:, 0]
