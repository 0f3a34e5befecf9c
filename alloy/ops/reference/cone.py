"""Forces, curvature and cost of constraint rows, for both friction cones.

Base rows (normal, tangents, spin, roll of a contact) are what J and aref know. The penalty acts on
*faces*: equality, friction loss, limit and frictionless rows are their own face, a pyramid has the
edges normal +- mu * tangent. A face at residual x costs d/2 x^2 inside (bottom, top), nothing
beyond 0 where it is one-sided, and grows linearly beyond +-R * frictionloss where it is Huber's.
An elliptic cone acts on its base rows together; those follow behind the faces. Everything by row is
a column, (W, n, 1).
Source: MuJoCo manual, Computation, Constraint model; Todorov 2014, eq. 15 for the elliptic cone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.layout import ConeGroup, ConstraintLayout, PyramidTables


@dataclass(frozen=True)
class Elliptic:
    """One group of elliptic contacts: where its base rows are, and their parameters."""

    cone: ConeGroup
    d: Tensor  # (W, n, dim)
    scale: Tensor  # (1|W, n, dim) regularised mu, then the friction coefficients
    mu: Tensor  # (1|W, n, 1) friction of the regularised cone


@dataclass(frozen=True)
class Rows:
    """What the solver needs of the rows besides J and aref."""

    d: Tensor  # (W, faces, 1) inverse regularisation, zero where not active
    top: Tensor  # (1|W, faces, 1) a face pushes below this residual
    loss: Tensor | None  # (1|W, faces, 1) friction loss, zero on other faces; None: there is none
    bottom: Tensor | None  # (W, faces, 1) minus R * frictionloss, -inf on other faces
    slope: Tensor | None  # (1|W, faces, 1) +-mu of a pyramid's edge, zero on other faces
    tables: PyramidTables | None
    elliptic: tuple[Elliptic, ...]
    nothing: Tensor  # (W, nefc, 1) zeros
    zero: Tensor  # () zero

    @property
    def faces(self) -> int:
        """Number of faces; elliptic base rows follow behind them."""
        return self.d.shape[1]


def make_rows(
    layout: ConstraintLayout, d: Tensor, frictionloss: Tensor, con_friction: Tensor, impratio: float
) -> Rows:
    """Faces and cones of the constraint rows.

    Args:
        layout: what each row is.
        d: (W, nefc) inverse regularisation of the base rows, zero where not active.
        frictionloss: (1|W, nv).
        con_friction: (1|W, ncon, 5).
        impratio: ratio of frictional to normal impedance.
    """
    tables, slope, elliptic = layout.pyramid, None, ()
    face_d = d
    if tables is not None:
        face_d = d[:, tables.normal]
        friction = con_friction.flatten(1)[:, tables.friction]
        slope = (friction * tables.sign).unsqueeze(-1)
    elif layout.cones:
        # a copy, as of each cone: what a loop closes over must not alias
        face_d = d[:, : layout.n_scalar].clone()
        elliptic = tuple(_elliptic_group(c, d, con_friction, impratio) for c in layout.cones)
    loss = bottom = None
    top = layout.face_top.unsqueeze(-1)
    if layout.nf:
        loss = (frictionloss @ layout.loss_place).unsqueeze(-1)
        reach = loss / face_d.unsqueeze(-1).clamp(min=math.MINVAL)
        is_loss = layout.is_loss.unsqueeze(-1)
        bottom = torch.where(is_loss, -reach, -torch.inf)
        top = torch.where(is_loss, reach, top)
    nothing, zero = torch.zeros_like(d).unsqueeze(-1), math.constant_like(0.0, d)
    return Rows(face_d.unsqueeze(-1), top, loss, bottom, slope, tables, elliptic, nothing, zero)


def _elliptic_group(cone: ConeGroup, d: Tensor, con_friction: Tensor, impratio: float) -> Elliptic:
    slots = slice(None) if cone.slots is None else cone.slots
    friction = con_friction[:, slots, : cone.dim - 1]
    mu = friction[..., :1] * max(impratio, math.MINVAL) ** -0.5
    rows = d[:, cone.start : cone.start + cone.n * cone.dim].clone()
    return Elliptic(cone, rows.unflatten(1, (cone.n, cone.dim)), torch.cat([mu, friction], -1), mu)


# ------------------------------------------------------------------ base rows and faces


def spread(rows: Rows, base: Tensor) -> Tensor:
    """Residuals of faces (and elliptic rows) (W, n, 1) from those of base rows (W, nefc, 1)."""
    if rows.tables is None:
        return base
    return torch.addcmul(base[:, rows.tables.normal], rows.slope, base[:, rows.tables.tangent])


def collect(rows: Rows, x: Tensor) -> Tensor:
    """Of base rows (W, nefc, 1) from what faces carry: the transpose of `spread`."""
    if rows.tables is None:
        return x
    straight = rows.nothing.index_add(1, rows.tables.normal, x)
    return straight.index_add(1, rows.tables.tangent, rows.slope * x)


def weights(rows: Rows, x: Tensor) -> Tensor:
    """Second derivative (W, faces, 1) of every face at x: d where it pushes, else zero."""
    x = x[:, : rows.faces] if rows.elliptic else x
    inside = x < rows.top
    if rows.bottom is not None:
        inside = inside & (x > rows.bottom)
    return torch.where(inside, rows.d, rows.zero)


def gradient(rows: Rows, x: Tensor) -> Tensor:
    """Derivative of the cost by the residuals x of faces and elliptic rows: minus their forces."""
    xf = x[:, : rows.faces] if rows.elliptic else x
    g = weights(rows, x) * xf
    if rows.loss is not None:
        g = g + rows.loss * ((xf >= rows.top).to(g.dtype) - (xf <= rows.bottom).to(g.dtype))
    if not rows.elliptic:
        return g
    return torch.cat([g, *(_elliptic_gradient(e, x) for e in rows.elliptic)], 1)


def slope(rows: Rows, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """First and second derivative (W, 1, 1) of the cost at x along v."""
    vf = v[:, : rows.faces] if rows.elliptic else v
    push = weights(rows, x) * vf
    second = _total(push * vf)
    if not rows.elliptic and rows.loss is None:
        return _total(push * x), second
    for e in rows.elliptic:
        ve = _of_cone(v, e.cone)
        bend = math.rotate(_elliptic_block(e, x), ve.squeeze(-1)).unsqueeze(-1)
        second = second + _total((bend * ve).flatten(1, 2))
    return _total(gradient(rows, x) * v), second


def _total(x: Tensor) -> Tensor:
    return x.sum((1, 2), keepdim=True)


def curvature(rows: Rows, x: Tensor, jac: Tensor, jac_normal: Tensor | None) -> Tensor:
    """Second derivative of the cost times the base Jacobian: H = M + J' curvature; (W, nefc, nv).

    Args:
        rows: the constraint rows.
        x: (W, n, 1) residuals.
        jac: (W, nefc, nv).
        jac_normal: `normal_rows` of it.
    """
    w = weights(rows, x)
    if rows.tables is not None:
        t = rows.tables
        mixed = rows.slope * w
        straight = rows.nothing.index_add(1, t.normal, w)
        diagonal = straight.index_add(1, t.tangent, rows.slope * mixed)
        couple = rows.nothing.index_add(1, t.tangent, mixed)
        out = torch.addcmul(diagonal * jac, couple, jac_normal)
        return out.index_add(1, t.base_normal, couple * jac)
    if not rows.elliptic:
        return w * jac
    parts = [w * jac[:, : rows.faces]]
    for e in rows.elliptic:
        parts.append((_elliptic_block(e, x) @ _of_cone(jac, e.cone)).flatten(1, 2))
    return torch.cat(parts, 1)


def normal_rows(rows: Rows, jac: Tensor) -> Tensor | None:
    """The normal's row beside each row of a pyramid's Jacobian (W, nefc, nv)."""
    return None if rows.tables is None else jac[:, rows.tables.base_normal]


def cost(rows: Rows, x: Tensor) -> Tensor:
    """Constraint cost (W,) at residuals x (W, n, 1)."""
    xf = x[:, : rows.faces] if rows.elliptic else x
    total = 0.5 * (weights(rows, x) * xf * xf).sum((1, 2))
    if rows.loss is not None:
        beyond = (xf <= rows.bottom) | (xf >= rows.top)
        linear = rows.loss * (xf.abs() - 0.5 * rows.loss / rows.d.clamp(min=math.MINVAL))
        total = total + torch.where(beyond & (rows.loss > 0), linear, 0.0).sum((1, 2))
    for e in rows.elliptic:
        xe = _of_cone(x, e.cone).squeeze(-1)
        _, gap, _, _, top, bottom, dm = _zones(e, xe)
        quad = 0.5 * (e.d * xe * xe).sum(-1, keepdim=True)
        side = torch.where(top, 0.0, 0.5 * dm * gap * gap)
        total = total + torch.where(bottom, quad, side).flatten(1).sum(-1)
    return total


# ------------------------------------------------------------------ the elliptic cone


def _of_cone(x: Tensor, cone: ConeGroup) -> Tensor:
    """Rows (W, n, dim, k) of one cone group from (W, rows, k)."""
    return x[:, cone.start : cone.start + cone.n * cone.dim].unflatten(1, (cone.n, cone.dim))


def _zones(e: Elliptic, x: Tensor) -> tuple[Tensor, ...]:
    """Scaled residual, gap to the cone's surface, slip, its direction, zones and stiffness."""
    u = x * e.scale
    normal, slip = u[..., :1], math.safe_norm(u[..., 1:], keepdim=True)
    top = normal >= e.mu * slip
    bottom = (e.mu * normal + slip <= 0) & ~top
    dm = e.d[..., :1] / (e.mu * e.mu * (1 + e.mu * e.mu)).clamp(min=math.MINVAL)
    safe = torch.where(slip <= 0, 1.0, slip)
    return u, normal - e.mu * slip, safe, u[..., 1:] / safe, top, bottom, dm


def _elliptic_gradient(e: Elliptic, x: Tensor) -> Tensor:
    """(W, n * dim, 1)."""
    xe = _of_cone(x, e.cone).squeeze(-1)
    _, gap, _, direction, top, bottom, dm = _zones(e, xe)
    outward = torch.cat([torch.ones_like(gap), -e.mu * direction], -1)
    side = torch.where(top, 0.0, dm * gap * outward * e.scale)
    return torch.where(bottom, e.d * xe, side).flatten(1).unsqueeze(-1)


def _elliptic_block(e: Elliptic, x: Tensor) -> Tensor:
    """(W, n, dim, dim) curvature: diagonal inside the dual cone, curved on the cone's side."""
    xe = _of_cone(x, e.cone).squeeze(-1)
    _, gap, slip, direction, top, bottom, dm = _zones(e, xe)
    outward = torch.cat([torch.ones_like(gap), -e.mu * direction], -1)
    tangents = range(xe.shape[-1] - 1)
    eye = math.constant_like(tuple(tuple(float(i == j) for j in tangents) for i in tangents), xe)
    flat = eye - direction.unsqueeze(-1) * direction.unsqueeze(-2)
    bend = -(e.mu * gap / slip).unsqueeze(-1) * flat
    curve = outward.unsqueeze(-1) * outward.unsqueeze(-2)
    curve = curve + torch.nn.functional.pad(bend, (1, 0, 1, 0))
    curve = dm.unsqueeze(-1) * e.scale.unsqueeze(-1) * curve * e.scale.unsqueeze(-2)
    side = ~(top | bottom)
    diagonal = torch.diag_embed(torch.where(bottom, e.d, 0.0))
    return diagonal + torch.where(side.unsqueeze(-1), curve, 0.0)
