"""Newton's method on MuJoCo's primal cost, with an exact line search.

minimise over a:  1/2 a' M a - a' qfrc_smooth + sum of s(J a - aref)
Source: MuJoCo manual, Computation, Solver algorithms, Newton.

The iterate is carried as one column [a, r, x]: acceleration, r = M a - qfrc_smooth, residuals x of
the faces. All three are linear in a, so that a step is one multiply-add. Dofs are in reverse order,
from the leaves to the root, so that factors fill in no more than M and J make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.ops import control
from alloy.ops.reference import cone, linear

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout

# units in the last place of their terms below which these are zero
GRADIENT_NOISE = 8.0
STEP_NOISE = 64.0  # gain of a step, slope in the line search: stiff rows amplify rounding


def line_search(
    rows: cone.Rows,
    x: Tensor,
    v: Tensor,
    smooth: tuple[Tensor, Tensor],
    steep: Tensor,
    enough: Tensor,
    on: Tensor,
    max_iter: int,
) -> Tensor:
    """Minimiser (W, 1, 1) of the cost at x + step * v, by Newton's method kept inside a bracket.

    Zero where none was found: where it ends the cost must not be steeper than where it began.

    Args:
        rows: the constraint rows.
        x: (W, n, 1) residuals.
        v: (W, n, 1) their change along the search direction, which points uphill.
        smooth: (W, 1, 1) each, derivatives of the quadratic part: its slope at 0, its curvature.
        steep: (W, 1, 1) slope of the whole at 0.
        enough: (W, 1, 1) stop when the slope is below this.
        on: (W, 1, 1) bool, worlds that search.
        max_iter: bound on evaluations.

    The first try is -1: exact unless a face changes between pushing and not.
    """

    def body(
        on: Tensor, step: Tensor, low: Tensor, high: Tensor, d1: Tensor, d2: Tensor
    ) -> control.Carry:
        uphill = d1 > 0
        low, high = torch.where(uphill, low, step), torch.where(uphill, step, high)
        new = torch.addcdiv(step, d1, d2, value=-1.0)
        # without a lower bound yet, the far side of the bracket is twice the step
        middle = torch.maximum(0.5 * (low + high), 2.0 * step)
        new = torch.where((new > low) & (new < high), new, middle)
        step = torch.where(on, new, step)
        d1, d2 = cone.slope(rows, torch.addcmul(x, step, v), v)
        d1, d2 = torch.addcmul(d1 + smooth[0], step, smooth[1]), d2 + smooth[1]
        return on & (d1.abs() > enough), step, low, high, d1, d2

    d1, d2 = cone.slope(rows, x - v, v)
    d1, d2 = d1 + (smooth[0] - smooth[1]), d2 + smooth[1]
    one = torch.ones_like(enough)
    start = (on & (d1.abs() > enough), -one, -torch.inf * one, torch.zeros_like(one), d1, d2)
    _, step, _, _, d1, _ = control.while_loop(body, start, max_iter)
    return torch.where(d1.abs() <= steep, step, torch.zeros_like(step))


def _newton(
    start: Tensor,
    mass: Tensor,
    smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    rows: cone.Rows,
    scale: float,
    opt: tuple[float, float, int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Newton iterations: state [a, r, x] at the minimum, its gradient, their number (W, 1, 1).

    Everything comes with dofs in reverse order. What a loop closes over must not alias, as torch's
    loop operator has it.
    """
    nv = mass.shape[-1]
    tolerance, ls_tolerance, iterations, ls_iterations = opt
    split = (nv, nv, rows.faces + sum(e.cone.n * e.cone.dim for e in rows.elliptic))
    jac_normal = cone.normal_rows(rows, jac)
    linear_map = torch.cat([mass, jac], 1)
    eps = torch.finfo(mass.dtype).eps

    def gradient(r: Tensor, x: Tensor, jac_t: Tensor) -> Tensor:
        return torch.baddbmm(r, jac_t, cone.collect(rows, cone.gradient(rows, x)))

    def body(on: Tensor, state: Tensor, grad: Tensor, count: Tensor) -> control.Carry:
        jac_t = jac.transpose(1, 2)
        _, r, x = state.split(split, 1)
        hessian = torch.baddbmm(mass, jac_t, cone.curvature(rows, x, jac, jac_normal))
        uphill = torch.cholesky_solve(grad, torch.linalg.cholesky_ex(hessian).L)
        # where rounding left the Hessian indefinite (mu near 0 in float32): each dof by itself. Of
        # a solution g'u = u'H u, and H exceeds M; one that is noise is too long for that
        rises = ((2.0 * grad - torch.bmm(mass, uphill)) * uphill).sum(1, keepdim=True) > 0
        uphill = torch.where(rises, uphill, grad / hessian.diagonal(dim1=1, dim2=2).unsqueeze(-1))
        mv, jv = torch.bmm(linear_map, uphill).split((nv, jac.shape[1]), 1)
        v = cone.spread(rows, jv)
        terms = torch.cat([grad, r, mv], -1) * uphill
        decrease, power, bend = terms.sum(1, keepdim=True).split(1, -1)
        rounding = STEP_NOISE * eps * torch.linalg.vector_norm(terms, 1, (1, 2), keepdim=True)
        enough = torch.add(rounding, decrease, alpha=ls_tolerance)
        both = (power, bend.clone())
        step = line_search(rows, x, v, both, decrease, enough, on, ls_iterations)
        moved = torch.addcmul(state, step, torch.cat([uphill, mv, v], 1))
        state = torch.where(on, moved, state)
        _, r, x = state.split(split, 1)
        grad = gradient(r, x, jac_t)
        # stop when the gradient vanishes, or this step cannot gain more than tolerance or rounding
        gain = rounding.clamp(min=2 * tolerance / scale)
        more = (_length(grad) > threshold) & (decrease > gain) & (step < 0)
        return on & more, state, grad, count + on

    momentum, base = torch.bmm(linear_map, start).split((nv, jac.shape[1]), 1)
    r, x = momentum - smooth, cone.spread(rows, base - aref)
    state = torch.cat([start, r, x], 1)
    grad = gradient(r, x, jac.transpose(1, 2))
    largest = torch.linalg.vector_norm(
        torch.cat([momentum, smooth], 1), torch.inf, (1, 2), keepdim=True
    )
    threshold = (GRADIENT_NOISE * eps * largest).clamp(min=tolerance / scale)
    on = _length(grad) > threshold
    carry = (on, state, grad, torch.zeros_like(on, dtype=torch.int64))
    return control.while_loop(body, carry, iterations)[1:]  # type: ignore[return-value]


def _length(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, 2, (1, 2), keepdim=True)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `alloy.ops.solve`."""
    rows = cone.make_rows(layout, d, frictionloss, con_friction, impratio)
    leaves = (mass, qfrc_smooth, jac, aref, d, frictionloss, con_friction)
    if torch.is_grad_enabled() and any(x.requires_grad for x in leaves):
        return _differentiable(mass, qfrc_smooth, jac, aref, rows, warmstart, scale, opt)
    state, grad, count = _minimum(mass, qfrc_smooth, jac, aref, rows, warmstart, scale, opt)
    nv = mass.shape[-1]
    qacc, r, x = state.split((nv, nv, state.shape[1] - 2 * nv), 1)
    # no iteration starts from a gradient that is NaN; the warm start would pass for the answer
    qacc = torch.where(_length(grad) < torch.inf, qacc, torch.nan)
    force = -cone.collect(rows, cone.gradient(rows, x))
    qacc, qfrc_constraint = (y.squeeze(-1).flip(-1) for y in (qacc, r - grad))
    return qacc, qfrc_constraint, force.squeeze(-1), count.reshape(-1)


def _minimum(
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    rows: cone.Rows,
    warmstart: Tensor,
    scale: float,
    opt: tuple[float, float, int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """As `_newton`, from dofs in their own order."""
    start, smooth = (y.flip(-1).unsqueeze(-1) for y in (warmstart, qfrc_smooth))
    mass, jac = mass.flip(1, 2), jac.flip(2)
    return _newton(start, mass, smooth, jac, aref.unsqueeze(-1), rows, scale, opt)


def _differentiable(
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    rows: cone.Rows,
    warmstart: Tensor,
    scale: float,
    opt: tuple[float, float, int, int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The minimum, then one Newton step with a constant Hessian.

    At the minimum it moves nothing but carries the minimiser's derivative (implicit function
    theorem).
    """
    nv = mass.shape[-1]
    with torch.no_grad():
        state, _, count = _minimum(mass, qfrc_smooth, jac, aref, rows, warmstart, scale, opt)
        qacc, x = state[:, :nv].flip(1), state[:, 2 * nv :]
        curvature = cone.curvature(rows, x, jac, cone.normal_rows(rows, jac))
        chol = linear.factor(torch.baddbmm(mass, jac.mT, curvature))
    residual = torch.bmm(jac, qacc) - aref.unsqueeze(-1)
    push = torch.bmm(jac.mT, cone.collect(rows, cone.gradient(rows, cone.spread(rows, residual))))
    left = torch.bmm(mass, qacc) - qfrc_smooth.unsqueeze(-1) + push
    qacc = qacc - linear.solve(chol, left.squeeze(-1)).unsqueeze(-1)
    x = cone.spread(rows, torch.bmm(jac, qacc) - aref.unsqueeze(-1))
    force = -cone.collect(rows, cone.gradient(rows, x))
    qfrc_constraint = torch.bmm(jac.mT, force)
    return qacc.squeeze(-1), qfrc_constraint.squeeze(-1), force.squeeze(-1), count.reshape(-1)
