"""Newton's method on MuJoCo's primal cost, with an exact line search.

minimise over a:  1/2 (a - a0)' M (a - a0) + sum of s(J a - aref)
Source: MuJoCo manual, Computation, Solver algorithms, Newton.
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

ROUNDOFF = 4.0  # gradients below this many units in the last place of their terms are zero


def _times(a: Tensor, x: Tensor) -> Tensor:
    return (a @ x.unsqueeze(-1)).squeeze(-1)


def _transposed_times(a: Tensor, x: Tensor) -> Tensor:
    return (x.unsqueeze(-2) @ a).squeeze(-2)


def newton_direction(mass: Tensor, jac: Tensor, rows: cone.Rows, x: Tensor, grad: Tensor) -> Tensor:
    """-H^-1 grad with H = M + J' curvature(x) J."""
    hessian = mass + jac.transpose(-1, -2) @ cone.curvature(rows, x, jac)
    return -linear.solve(linear.factor(hessian), grad)


def line_search(
    rows: cone.Rows,
    x: Tensor,
    v: Tensor,
    smooth: tuple[Tensor, Tensor],
    first: Tensor,
    tolerance: float,
    max_iter: int,
) -> Tensor:
    """Minimiser (W,) of the cost at x + alpha v, by Newton's method kept inside a bracket.

    Args:
        rows: the constraint rows.
        x: (W, nefc) residuals.
        v: (W, nefc) their change along the search direction.
        smooth: (W,), (W,) derivatives of the quadratic part: its slope at 0 and its curvature.
        first: (W,) slope of the whole cost at 0, negative.
        tolerance: stop when the slope has fallen to this share of `first`.
        max_iter: bound on evaluations.
    """
    enough = tolerance * first.abs()

    def derivatives(alpha: Tensor) -> tuple[Tensor, Tensor]:
        d1, d2 = cone.slope(rows, x + alpha.unsqueeze(-1) * v, v)
        return d1 + smooth[0] + alpha * smooth[1], d2 + smooth[1]

    def go_on(alpha: Tensor, low: Tensor, high: Tensor, d1: Tensor, d2: Tensor) -> Tensor:
        del low, high, d2
        return (d1.abs() > enough) & (alpha > 0)

    def body(alpha: Tensor, low: Tensor, high: Tensor, d1: Tensor, d2: Tensor) -> control.Carry:
        low, high = torch.where(d1 < 0, alpha, low), torch.where(d1 > 0, alpha, high)
        new = alpha - d1 / d2
        bounded = torch.isfinite(high)
        middle = torch.where(bounded, 0.5 * (low + torch.where(bounded, high, low)), 2 * alpha)
        new = torch.where((new > low) & (new < high), new, middle)
        return (new, low, high, *derivatives(new))

    one = torch.ones_like(first)
    start = (one, torch.zeros_like(one), torch.full_like(one, torch.inf), *derivatives(one))
    return control.while_loop(go_on, body, start, max_iter)[0]


def _start(
    mass: Tensor,
    smooth: tuple[Tensor, Tensor],
    jac: Tensor,
    aref: Tensor,
    rows: cone.Rows,
    warmstart: Tensor | None,
) -> control.Carry:
    """Acceleration, residual and M a of the cheaper one of qacc_smooth and the warm start."""
    qfrc_smooth, qacc_smooth = smooth
    x0 = _times(jac, qacc_smooth) - aref
    if warmstart is None:
        return qacc_smooth, x0, qfrc_smooth
    x1, ma = _times(jac, warmstart) - aref, _times(mass, warmstart)
    gauss = 0.5 * dot(ma - qfrc_smooth, warmstart - qacc_smooth)
    better = (gauss + cone.cost(rows, x1) < cone.cost(rows, x0)).unsqueeze(-1)
    return (
        torch.where(better, warmstart, qacc_smooth),
        torch.where(better, x1, x0),
        torch.where(better, ma, qfrc_smooth),
    )


def _iterate(
    start: control.Carry,
    mass: Tensor,
    qfrc_smooth: Tensor,
    jac: Tensor,
    rows: cone.Rows,
    scale: float,
    opt: tuple[float, float, int, int],
) -> control.Carry:
    """Newton iterations from (qacc, x, M a); the number of them behind."""
    tolerance, ls_tolerance, iterations, ls_iterations = opt
    roundoff = ROUNDOFF * torch.finfo(mass.dtype).eps

    def gradient(x: Tensor, ma: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient and whether it is above both the tolerance and its own rounding error."""
        pull = _transposed_times(jac, cone.force(rows, x))
        grad = ma - qfrc_smooth - pull
        noise = roundoff * (ma.abs() + qfrc_smooth.abs() + pull.abs()).amax(-1)
        norm = torch.linalg.vector_norm(grad, dim=-1)
        return grad, (scale * norm > tolerance) & (norm > noise)

    def go_on(qacc: Tensor, x: Tensor, ma: Tensor, grad: Tensor, on: Tensor, n: Tensor) -> Tensor:
        del qacc, x, ma, grad, n
        return on

    def body(
        qacc: Tensor, x: Tensor, ma: Tensor, grad: Tensor, on: Tensor, n: Tensor
    ) -> control.Carry:
        del on
        search = newton_direction(mass, jac, rows, x, grad)
        first = dot(grad, search)
        mv, jv = _times(mass, search), _times(jac, search)
        quadratic = dot(ma - qfrc_smooth, search), dot(mv, search)
        alpha = line_search(rows, x, jv, quadratic, first, ls_tolerance, ls_iterations)
        alpha = alpha.unsqueeze(-1)
        qacc, x, ma = qacc + alpha * search, x + alpha * jv, ma + alpha * mv
        grad, on = gradient(x, ma)
        return qacc, x, ma, grad, on & (-0.5 * scale * first > tolerance), n + 1

    qacc, x, ma = start
    grad, on = gradient(x, ma)
    count = torch.zeros_like(on, dtype=torch.int64)
    qacc, x, ma, _, _, count = control.while_loop(
        go_on, body, (qacc, x, ma, grad, on, count), iterations
    )
    return qacc, x, ma, count


def solve(
    mass: Tensor,
    qfrc_smooth: Tensor,
    qacc_smooth: Tensor,
    jac: Tensor,
    aref: Tensor,
    d: Tensor,
    frictionloss: Tensor,
    con_friction: Tensor,
    warmstart: Tensor | None,
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
    if not wants_grad:
        start = _start(mass, (qfrc_smooth, qacc_smooth), jac, aref, rows, warmstart)
        qacc, x, _, count = _iterate(start, mass, qfrc_smooth, jac, rows, scale, opt)
    else:
        # implicit function theorem: at the minimum, one Newton step has the minimiser's derivative
        with torch.no_grad():
            start = _start(mass, (qfrc_smooth, qacc_smooth), jac, aref, rows, warmstart)
            qacc, x, _, count = _iterate(start, mass, qfrc_smooth, jac, rows, scale, opt)
            hessian = mass + jac.transpose(-1, -2) @ cone.curvature(rows, x, jac)
            chol = linear.factor(hessian)
        x = _times(jac, qacc) - aref
        grad = _times(mass, qacc) - qfrc_smooth - _transposed_times(jac, cone.force(rows, x))
        qacc = qacc - linear.solve(chol, grad)
        x = _times(jac, qacc) - aref
    force = cone.force(rows, x)
    return qacc, _transposed_times(jac, force), force, count
