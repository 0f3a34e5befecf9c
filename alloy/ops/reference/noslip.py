"""Forces of friction without slip, once the solver has found the normal ones.

The solver's friction is regularised, and so yields a little: things creep. Here its forces are
found again without the regularisation, with the normal forces held. That minimises
1/2 f' A f + f' (J a0 - aref) over the friction forces f within their bounds, where A is the inverse
inertia that the rows see and a0 the acceleration without f, by sweeps that improve one force at a
time (a pyramid's tangent, a friction loss) or those of one elliptic contact together.
Source: MuJoCo manual, Computation, Solver algorithms, Noslip solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL, dot, safe_norm
from alloy.ops import control
from alloy.ops.reference import cone, linear

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout

_WORSE = 1e-10  # change of the cost that undoes an improvement
_BALL_ITERATIONS = 20  # of Newton's method for the multiplier in a ball, as in MuJoCo
_BALL_TOLERANCE = 1e-10  # of the squared force, and where it ends


@dataclass(frozen=True)
class NoslipPlan:
    """The order of a sweep, in base rows; built by io_tables.noslip_plan."""

    losses: tuple[int, ...]  # rows of friction loss
    contacts: tuple[tuple[int, int, int], ...]  # first row, condim and slot, in MuJoCo's order


@dataclass(frozen=True)
class _Problem:
    """What does not change from sweep to sweep; columns are base rows."""

    jac: Tensor  # (W, nefc, nv)
    aref: Tensor  # (W, nefc)
    answer: Tensor  # (W, nv, nefc) acceleration by a unit of each row's force
    bound: Tensor  # (W, nefc) of each force that has bounds of its own
    friction: Tensor  # (1|W, ncon, 5)
    pyramidal: bool

    def residual(self, acc: Tensor, rows: slice) -> Tensor:
        """J a - aref of some rows (W, n), without their regularisation."""
        return torch.bmm(self.jac[:, rows], acc.unsqueeze(-1)).squeeze(-1) - self.aref[:, rows]

    def block(self, rows: slice) -> Tensor:
        """A of some rows, (W, n, n)."""
        return torch.bmm(self.jac[:, rows], self.answer[:, :, rows])


def noslip(
    mass: Tensor,
    qacc: Tensor,
    jac: Tensor,
    aref: Tensor,
    d: Tensor,
    frictionloss: Tensor,
    con_friction: Tensor,
    layout: ConstraintLayout,
    impratio: float,
    scale: float,
    plan: NoslipPlan,
    opt: tuple[float, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Acceleration and forces with friction that does not slip, from those of the solver.

    Args:
        mass: (W, nv, nv); this and all others but these two as in `alloy.ops.solve`.
        qacc: (W, nv) the solver's result.
        jac: (W, nefc, nv).
        aref: (W, nefc).
        d: (W, nefc).
        frictionloss: (1|W, nv or nv + ntendon).
        con_friction: (1|W, ncon, 5).
        layout: what each row is.
        impratio: ratio of frictional to normal impedance.
        scale: makes the tolerance dimensionless.
        plan: in what order forces are improved.
        opt: sweeps end where they gain less than the first, and after the second.

    Returns:
        qacc (W, nv), qfrc_constraint (W, nv) and base-row forces (W, nefc).
    """
    tolerance, iterations = opt
    rows = cone.make_rows(layout, d, frictionloss, con_friction, impratio)
    faces = -cone.gradient(
        rows, cone.spread(rows, torch.bmm(jac, qacc.unsqueeze(-1)) - aref.unsqueeze(-1))
    )
    force = cone.collect(rows, faces).squeeze(-1)
    chol, down = linear.factor(mass), jac.mT
    answer = torch.cholesky_solve(down.flip(1), chol).flip(1)
    problem = _Problem(
        jac, aref, answer, _bounds(rows, layout, faces), con_friction, layout.pyramidal
    )
    acc = qacc  # not anew from the forces: of a stiff row these are known less well
    # what the first sweep gains for not being charged for the regularisation
    stiff = rows.d if not rows.elliptic else d.unsqueeze(-1)
    waived = 0.5 * (faces * faces / stiff.clamp(min=MINVAL)).sum((1, 2)).unsqueeze(-1)

    def body(on: Tensor, acc: Tensor, force: Tensor, bonus: Tensor) -> control.Carry:
        new_acc, new_force, gain = _sweep(problem, plan, acc, force)
        more = (gain + bonus) * scale >= tolerance
        new = torch.where(on, new_acc, acc), torch.where(on, new_force, force)
        return on & more, *new, torch.zeros_like(bonus)

    on = torch.ones_like(waived, dtype=torch.bool)
    acc, force = control.while_loop(body, (on, acc, force, waived), iterations)[1:3]
    return acc, torch.bmm(down, force.unsqueeze(-1)).squeeze(-1), force


def _bounds(rows: cone.Rows, layout: ConstraintLayout, faces: Tensor) -> Tensor:
    """Bounds (W, nefc) of a pyramid's tangents, by its present edges, and of friction losses."""
    bound = rows.nothing
    if rows.tables is not None:
        bound = bound.index_add(1, rows.tables.tangent, rows.slope.abs() * faces)
    if rows.loss is not None:
        span = slice(layout.ne, layout.ne + layout.nf)
        lost = rows.loss[:, span].expand(len(bound), -1, -1)
        bound = torch.cat([bound[:, : span.start], lost, bound[:, span.stop :]], 1)
    return bound.squeeze(-1)


def _sweep(
    p: _Problem, plan: NoslipPlan, acc: Tensor, force: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Improve every force once: acceleration (W, nv), forces (W, nefc), what it gains (W, 1)."""
    columns = list(force.split(1, -1))
    gain = torch.zeros_like(columns[0])
    blocks = [(row, 1, 0, 0) for row in plan.losses]
    for first, dim, slot in plan.contacts:
        if p.pyramidal:
            blocks += [(first + axis, 1, 0, 0) for axis in range(1, dim)]
        else:
            blocks.append((first + 1, dim - 1, first, slot))
    for first, n, normal, slot in blocks:
        rows = slice(first, first + n)
        old, residual, block = torch.cat(columns[rows], -1), p.residual(acc, rows), p.block(rows)
        if n == 1:
            new = _in_interval(old, residual, block.squeeze(-1), p.bound[:, rows])
        else:
            new = _in_ellipsoid(old, residual, block, columns[normal], p.friction[:, slot, :n])
        step = new - old
        cost = dot(step, residual + 0.5 * (block @ step.unsqueeze(-1)).squeeze(-1)).unsqueeze(-1)
        step, cost = (torch.where(cost > _WORSE, 0.0, x) for x in (step, cost))
        acc = acc + torch.bmm(p.answer[:, :, rows], step.unsqueeze(-1)).squeeze(-1)
        columns[rows] = (old + step).split(1, -1)
        gain = gain - cost
    return acc, torch.cat(columns, -1), gain


def _in_interval(old: Tensor, residual: Tensor, own: Tensor, bound: Tensor) -> Tensor:
    """The force within +-bound, (W, 1), at which the residual is nearest to zero."""
    new = old - residual / own.clamp(min=MINVAL)
    return torch.where(own < MINVAL, 0.0, torch.minimum(torch.maximum(new, -bound), bound))


def _in_ellipsoid(
    old: Tensor, residual: Tensor, block: Tensor, normal: Tensor, friction: Tensor
) -> Tensor:
    """The forces (W, n) of least cost with sum of (f / friction)^2 at most normal^2."""
    pull = (residual - (block @ old.unsqueeze(-1)).squeeze(-1)) * friction
    scaled = friction.unsqueeze(-1) * block * friction.unsqueeze(-2)
    # directions in which nothing moves have no force; of those that move together, the least
    own = scaled.diagonal(dim1=-2, dim2=-1)
    dead = own < MINVAL
    ridge = torch.where(dead, 1.0, 0.1 * torch.finfo(own.dtype).eps ** 0.5 * own)
    scaled = scaled + torch.diag_embed(ridge)
    pull = torch.where(dead, 0.0, pull)
    eye = torch.eye(old.shape[-1], dtype=old.dtype, device=old.device)
    holds = normal >= MINVAL
    radius = torch.where(holds, normal, 1.0)
    square = radius * radius
    enough = (4 * torch.finfo(own.dtype).eps * square).clamp(min=_BALL_TOLERANCE)

    def body(on: Tensor, multiplier: Tensor, y: Tensor) -> control.Carry:
        lower = torch.linalg.cholesky_ex(scaled + multiplier.unsqueeze(-1) * eye).L
        half = torch.linalg.solve_triangular(lower, -pull.unsqueeze(-1), upper=False)
        y = torch.where(on, _back(lower, half), y)
        over = dot(y, y).unsqueeze(-1) - square
        on = on & (over > enough)
        slope = torch.linalg.solve_triangular(lower, y.unsqueeze(-1), upper=False).squeeze(-1)
        more = over / (2 * dot(slope, slope)).unsqueeze(-1).clamp(min=MINVAL)
        return on, torch.where(on, multiplier + more, multiplier), y

    start = (holds, torch.zeros_like(normal), torch.zeros_like(pull))
    y = control.while_loop(body, start, _BALL_ITERATIONS)[2]
    length = safe_norm(y, keepdim=True)
    y = y * torch.where(length > radius, radius / length.clamp(min=MINVAL), 1.0)
    return torch.where(holds, y * friction, 0.0)


def _back(lower: Tensor, half: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(lower.mT, half, upper=True).squeeze(-1)
