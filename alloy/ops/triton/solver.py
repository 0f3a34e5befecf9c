"""Newton's method on MuJoCo's primal cost. Twin of `alloy.ops.reference.solver`.

One program solves a block of worlds and loops until its own worlds have converged; a world that is
done is frozen by a mask. Everything is kept by world in global buffers: acceleration a, momentum
r = M a - qfrc_smooth, residuals x = J a - aref, the factor of H = M + J' C J in its own sparsity.
Units that push in no world of the block are skipped: they would add exact zeros.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import BLOCK, any_of, empty, launch, load, store, worlds_of, zeros
from alloy.ops.triton.plan import plan_of
from alloy.ops.triton.solver_rows import (
    find_busy,
    gradient,
    hessian,
    line_search,
    move_rows,
    times_jac,
    triangle,
)

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout
    from alloy.physics.tree import Tree

# units in the last place below which these are zero, as in the reference
GRADIENT_NOISE = 8.0
STEP_NOISE = 64.0


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
def factor(h, lower_ptr, columns_ptr, nv, w, m):
    """H = L' D L in place: D on the diagonal, L below it, eliminating the last row first.

    Returns whether H was positive definite, which is whether D is.
    """
    positive = m
    for step in range(nv):
        i = nv - 1 - step
        row = triangle(i)
        pivot = load(h, row + i, w, m)
        positive &= pivot > 0
        inverse = 1.0 / pivot
        begin, end = tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)
        for back in range(end - begin):
            last = end - 1 - back
            j = tl.load(columns_ptr + last)
            share = load(h, row + j, w, m) * inverse
            for at in range(begin, last + 1):
                k = tl.load(columns_ptr + at)
                entry = triangle(j) + k
                store(h, entry, w, m, load(h, entry, w, m) - share * load(h, row + k, w, m))
            store(h, row + j, w, m, share)
    return positive


@triton.jit
def factor_solve(h, x, lower_ptr, columns_ptr, nv, w, m):
    """Solve L' D L x = x in place."""
    for step in range(nv):
        i = nv - 1 - step
        xi = load(x, i, w, m)
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            store(x, j, w, m, load(x, j, w, m) - load(h, triangle(i) + j, w, m) * xi)
    for i in range(nv):
        xi = load(x, i, w, m) / load(h, triangle(i) + i, w, m)
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            xi -= load(h, triangle(i) + j, w, m) * load(x, j, w, m)
        store(x, i, w, m, xi)


@triton.jit
def _twice_energy(mass, x, lower_ptr, columns_ptr, nv, w, m):
    """Product x' M x, M symmetric and read below its diagonal only."""
    total = zeros(x, w)
    for i in range(nv):
        xi = load(x, i, w, m)
        side = 0.5 * load(mass, i * nv + i, w, m) * xi
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            side += load(mass, i * nv + j, w, m) * load(x, j, w, m)
        total += 2.0 * side * xi
    return total


@triton.jit
def _direction(mass, h, grad, search, diagonal, lower_ptr, columns_ptr, nv, w, m):
    """Search = -H^-1 grad, h factored in place.

    Where rounding left H indefinite, where that is no way down, or so long that it is noise (of a
    solution g'u = u'H u, and H exceeds M), each dof goes by itself: search_i = -grad_i / H_ii.
    """
    for k in range(nv):
        store(diagonal, k, w, m, load(h, triangle(k) + k, w, m))
        store(search, k, w, m, -load(grad, k, w, m))
    falls = factor(h, lower_ptr, columns_ptr, nv, w, m)
    factor_solve(h, search, lower_ptr, columns_ptr, nv, w, m)
    decrease = zeros(search, w)
    for k in range(nv):
        decrease -= load(grad, k, w, m) * load(search, k, w, m)
    energy = _twice_energy(mass, search, lower_ptr, columns_ptr, nv, w, m)
    alone = ~(falls & (2.0 * decrease > energy))
    for k in range(nv):
        store(search, k, w, m & alone, -load(grad, k, w, m) / load(diagonal, k, w, m))


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
        threshold = tl.maximum(threshold, noise * tl.maximum(tl.abs(momentum), tl.abs(force)))
        store(r, i, w, m, momentum - force)
    times_jac(rows, units, ends, qacc, x, nv, w, m, DIMS)
    move_rows(units, ends, x, aref, zeros(r, w) - 1.0, w, m, DIMS)
    return threshold


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
    groups, nunit, nv, n_scalar, ne, nf, iterations, ls_iterations, noise, step_noise, ls_tolerance,
    floor, PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIMS: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Minimise 1/2 a' M a - a' qfrc_smooth + sum of s(J a - aref) over a.

    Step: H search = -grad, alpha by the line search. It ends when the gradient vanishes or when a
    step could not gain more than tolerance or rounding. Source: MuJoCo
    manual, Solver algorithms, Newton.
    """
    w, m = worlds_of(n_world, BLOCK)
    busy_ptr += tl.program_id(0) * nunit
    rows = (jac, d, frictionloss, con_friction)
    units = (unit_ptr, dofs_ptr, slot_ptr, loss_ptr, busy_ptr)
    sizes = (nv, n_scalar, ne, nf)
    ends = find_busy(rows, units, force, n_scalar, groups, w, m, DIMS)
    threshold = _start(
        mass, qfrc_smooth, aref, warmstart, qacc, r, x, rows, units, ends, lower_ptr, columns_ptr,
        nv, noise, floor, w, m, DIMS,
    )  # fmt: skip
    on, go, square = m, any_of(m), zeros(r, w)
    count, i = tl.full(w.shape, 0, tl.int64), 0
    while go:
        square = gradient(
            rows, units, ends, x, r, force, grad, sizes, w, m, PYRAMIDAL, SHRINK, DIMS
        )
        on = on & (tl.sqrt(square) > threshold)
        go = any_of(on) & (i < iterations)
        if go:
            hessian(
                mass, rows, units, ends, x, h, lower_ptr, columns_ptr, sizes, w, m,
                PYRAMIDAL, SHRINK, DIMS,
            )  # fmt: skip
            _direction(mass, h, grad, search, mv, lower_ptr, columns_ptr, nv, w, m)
            _times_mass(mass, search, mv, lower_ptr, columns_ptr, nv, w, m)
            times_jac(rows, units, ends, search, v, nv, w, m, DIMS)
            zero = zeros(r, w)
            first, slope0, curvature, size = zero, zero, zero, zero
            for k in range(nv):
                step = load(search, k, w, m)
                fall, power, bend = load(grad, k, w, m), load(r, k, w, m), load(mv, k, w, m)
                fall, power, bend = fall * step, power * step, bend * step
                size += tl.abs(fall) + tl.abs(power) + tl.abs(bend)
                first, slope0, curvature = first + fall, slope0 + power, curvature + bend
            rounding = step_noise * size
            alpha = line_search(
                rows, units, ends, x, v, slope0, curvature, -first, rounding - ls_tolerance * first,
                ls_iterations, sizes, on, w, m, PYRAMIDAL, SHRINK, DIMS,
            )  # fmt: skip
            alpha = tl.where(on, alpha, 0.0)
            for k in range(nv):
                step, gone = load(search, k, w, m), load(mv, k, w, m)
                store(qacc, k, w, m & on, load(qacc, k, w, m) + alpha * step)
                store(r, k, w, m & on, load(r, k, w, m) + alpha * gone)
            move_rows(units, ends, x, v, alpha, w, m & on, DIMS)
            count += on.to(tl.int64)
            on = on & (-first > tl.maximum(rounding, 2.0 * floor)) & (alpha > 0)
        i += 1
    # no iteration starts from a gradient that is NaN; the warm start would pass for the answer
    lost = ~(tl.sqrt(square) < float("inf"))
    for k in range(nv):
        store(qacc, k, w, m & lost, zeros(qacc, w) + float("nan"))
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
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `alloy.ops.solve`."""
    worlds, nefc, nv = jac.shape
    plan = plan_of(layout, tree)
    tolerance, ls_tolerance, iterations, ls_iterations = opt
    qacc, qfrc, r, grad, search, mv = (empty(worlds, nv, like=jac) for _ in range(6))
    force, x, v = (empty(worlds, nefc, like=jac) for _ in range(3))
    niter = empty(worlds, 1, like=jac, dtype=torch.int64)
    h = empty(worlds, nv * (nv + 1) // 2, like=jac)
    nunit, eps = plan.groups[-1], torch.finfo(mass.dtype).eps
    busy = torch.empty(nunit * triton.cdiv(worlds, BLOCK), dtype=torch.int32, device=jac.device)
    launch(
        _solve_kernel, worlds, mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction,
        warmstart, qacc, qfrc, force, niter, r, grad, search, mv, x, v, h,
        plan.unit, plan.dofs, plan.slot, plan.loss, busy, plan.lower, plan.columns,
        plan.groups, nunit, nv, layout.n_scalar, layout.ne, layout.nf, iterations, ls_iterations,
        GRADIENT_NOISE * eps, STEP_NOISE * eps, ls_tolerance, tolerance / scale,
        PYRAMIDAL=layout.pyramidal, SHRINK=max(impratio, 1e-15) ** -0.5, DIMS=plan.dims,
    )  # fmt: skip
    return qacc, qfrc, force, niter[:, 0]
