"""Newton's method on MuJoCo's primal cost, with an exact line search.

minimise over a:  1/2 a' M a - a' qfrc_smooth + sum of s(J a - aref)
Source: MuJoCo manual, Computation, Solver algorithms, Newton.

The iterate is carried as one tensor [a, r, x]: acceleration, r = M a - qfrc_smooth, residuals x of
the faces. All three are linear in a, so that a step is one multiply-add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import dot
from alloy.ops import control
from alloy.ops.reference import cone, linear

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout

ROUNDOFF = 4.0  # a gradient below this many units in the last place of its terms is zero


def _times(a: Tensor, x: Tensor) -> Tensor:
    return torch.bmm(a, x.unsqueeze(-1)).squeeze(-1)


def line_search(
    rows: cone.Rows,
    x: Tensor,
    v: Tensor,
    smooth: tuple[Tensor, Tensor],
    enough: Tensor,
    max_iter: int,
) -> Tensor:
    """Minimiser (W,) of the cost at x + alpha v, by Newton's method kept inside a bracket.

    Args:
        rows: the constraint rows.
        x: (W, n) residuals.
        v: (W, n) their change along the search direction.
        smooth: (W,), (W,) derivatives of the quadratic part: its slope at 0 and its curvature.
        enough: (W,) stop when the slope is below this.
        max_iter: bound on evaluations.

    The first try is 1: exact unless a face changes between pushing and not.
    """

    def go_on(alpha: Tensor, low: Tensor, high: Tensor, d1: Tensor, d2: Tensor) -> Tensor:
        del alpha, low, high, d2
        return d1.abs() > enough

    def body(alpha: Tensor, low: Tensor, high: Tensor, d1: Tensor, d2: Tensor) -> control.Carry:
        low, high = torch.where(d1 < 0, alpha, low), torch.where(d1 > 0, alpha, high)
        new = alpha - d1 / d2
        # without an upper bound yet, the far side of the bracket is twice the step
        middle = torch.minimum(0.5 * (low + high), 2 * alpha)
        new = torch.where((new > low) & (new < high), new, middle)
        d1, d2 = cone.slope(rows, x + new.unsqueeze(-1) * v, v)
        return new, low, high, d1 + (smooth[0] + new * smooth[1]), d2 + smooth[1]

    one = torch.ones_like(enough)
    d1, d2 = cone.slope(rows, x + v, v)
    d1, d2 = d1 + (smooth[0] + smooth[1]), d2 + smooth[1]
    start = (one, torch.zeros_like(one), torch.full_like(one, torch.inf), d1, d2)
    return control.while_loop(go_on, body, start, max_iter)[0]


def _newton(
    state: Tensor,
    mass: Tensor,
    jac: Tensor,
    rows: cone.Rows,
    threshold: Tensor,
    scale: float,
    opt: tuple[float, float, int, int],
) -> tuple[Tensor, Tensor]:
    """Newton iterations from state [a, r, x]; the state at the minimum and their number."""
    nv = mass.shape[-1]
    tolerance, ls_tolerance, iterations, ls_iterations = opt
    split = (nv, nv, state.shape[-1] - 2 * nv)
    linear_map, jac_t = torch.cat([mass, jac], 1), jac.mT
    noise = ROUNDOFF * torch.finfo(mass.dtype).eps

    def gradient(r: Tensor, x: Tensor) -> Tensor:
        return r - _times(jac_t, cone.collect(rows, cone.force(rows, x)))

    def go_on(state: Tensor, grad: Tensor, on: Tensor, count: Tensor) -> Tensor:
        del state, grad, count
        return on

    def body(state: Tensor, grad: Tensor, on: Tensor, count: Tensor) -> control.Carry:
        _, r, x = state.split(split, -1)
        hessian = mass + torch.bmm(jac_t, cone.curvature(rows, x, jac))
        search = linear.solve(linear.factor(hessian), -grad)
        mv, jv = _times(linear_map, search).split((nv, jac.shape[1]), -1)
        v = cone.spread(rows, jv)
        first = dot(grad, search)
        power = r * search
        smooth = power.sum(-1), dot(mv, search)
        enough = power.abs().sum(-1) * noise - ls_tolerance * first
        alpha = line_search(rows, x, v, smooth, enough, ls_iterations)
        state = state + alpha.unsqueeze(-1) * torch.cat([search, mv, v], -1)
        _, r, x = state.split(split, -1)
        grad = gradient(r, x)
        # stop when the gradient vanishes, or when this step could not gain more than the tolerance
        on = (torch.linalg.vector_norm(grad, dim=-1) > threshold) & (first < -2 * tolerance / scale)
        return state, grad, on, count + 1

    _, r, x = state.split(split, -1)
    grad = gradient(r, x)
    on = torch.linalg.vector_norm(grad, dim=-1) > threshold
    count = torch.zeros_like(on, dtype=torch.int64)
    state, _, _, count = control.while_loop(go_on, body, (state, grad, on, count), iterations)
    return state, count


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
    wants_grad = torch.is_grad_enabled() and any(
        t.requires_grad for t in (mass, qfrc_smooth, jac, aref, d)
    )
    with torch.set_grad_enabled(False) if wants_grad else _nothing():
        momentum = _times(mass, warmstart)
        x = cone.spread(rows, _times(jac, warmstart) - aref)
        state = torch.cat([warmstart, momentum - qfrc_smooth, x], -1)
        noise = ROUNDOFF * torch.finfo(mass.dtype).eps * (momentum.abs() + qfrc_smooth.abs())
        threshold = noise.amax(-1).clamp(min=opt[0] / scale)
        state, count = _newton(state, mass, jac, rows, threshold, scale, opt)
    nv = mass.shape[-1]
    qacc, x = state[:, :nv], state[:, 2 * nv :]
    if wants_grad:
        qacc, x = _implicit_step(qacc, x, mass, qfrc_smooth, jac, aref, rows)
    force = cone.collect(rows, cone.force(rows, x))
    return qacc, _times(jac.mT, force), force, count


class _nothing:  # contextlib.nullcontext is not traceable with fullgraph
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _implicit_step(
    qacc: Tensor,
    x: Tensor,
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    rows: cone.Rows,
) -> tuple[Tensor, Tensor]:
    """One Newton step with a constant Hessian.

    At the minimum it moves nothing but carries the minimiser's derivative (implicit function
    theorem).
    """
    hessian = mass + torch.bmm(jac.mT, cone.curvature(rows, x, jac))
    chol = linear.factor(hessian.detach())
    x = cone.spread(rows, _times(jac, qacc) - aref)
    pull = _times(jac.mT, cone.collect(rows, cone.force(rows, x)))
    qacc = qacc - linear.solve(chol, _times(mass, qacc) - qfrc_smooth - pull)
    return qacc, cone.spread(rows, _times(jac, qacc) - aref)
