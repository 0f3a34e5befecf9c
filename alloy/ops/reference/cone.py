"""Forces, curvature and cost of constraint rows in base form, for both friction cones.

Every row's penalty is convex; written by its dual, a scalar row with force bounds [lo, hi] has
f = clamp(-D x, lo, hi) and cost -f x - f^2 / (2 D): equality, Huber friction loss and one-sided
limit differ in their bounds only. A pyramid is a set of one-sided edges normal +- mu * tangent.
Source: MuJoCo manual, Computation, Constraint model; Todorov 2014, eq. 15 for the elliptic cone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.layout import ConeGroup, ConstraintLayout


@dataclass(frozen=True)
class Rows:
    """What the solver needs of the rows: all (W, nefc) in base form, friction by contact."""

    layout: ConstraintLayout
    d: Tensor  # (W, nefc) inverse regularisation, zero where not active
    low: Tensor  # (1|W, n_scalar) bounds of the scalar rows' forces
    high: Tensor
    friction: tuple[Tensor, ...]  # by cone group: (1|W, n, dim - 1)
    mu: tuple[Tensor, ...]  # by cone group: (1|W, n, 1) of the regularised cone


def make_rows(
    layout: ConstraintLayout, d: Tensor, frictionloss: Tensor, con_friction: Tensor, impratio: float
) -> Rows:
    """Bounds and friction coefficients of the rows."""
    worlds = frictionloss.shape[0]
    inf = frictionloss.new_full((worlds, 1), torch.inf)
    loss = frictionloss[:, layout.friction_dofs] if layout.nf else frictionloss[:, :0]
    one_sided = layout.nl + layout.n1
    low = torch.cat([-inf.expand(-1, layout.ne), -loss, 0 * loss.new_ones(worlds, one_sided)], 1)
    high = torch.cat([inf.expand(-1, layout.ne), loss, inf.expand(-1, one_sided)], 1)
    friction = tuple(
        con_friction[:, slice(None) if c.slots is None else c.slots, : c.dim - 1]
        for c in layout.cones
    )
    scale = max(impratio, math.MINVAL) ** -0.5
    return Rows(layout, d, low, high, friction, tuple(f[..., :1] * scale for f in friction))


def _of_cone(x: Tensor, cone: ConeGroup) -> Tensor:
    """Entries (W, n, dim) of one cone group from (W, nefc)."""
    return x[:, cone.start : cone.start + cone.n * cone.dim].unflatten(1, (cone.n, cone.dim))


def _edges(x: Tensor, friction: Tensor) -> Tensor:
    """Both edges of every friction axis, (W, n, 2, dim - 1), of base values (W, n, dim)."""
    slope = friction * x[..., 1:]
    return x[..., :1].unsqueeze(-2) + torch.stack([slope, -slope], -2)


def _base(x: Tensor, friction: Tensor) -> Tensor:
    """Base values (W, n, dim) of edge values (W, n, 2, dim - 1): the transpose of `_edges`."""
    up, down = x.unbind(-2)
    return torch.cat([(up + down).sum(-1, keepdim=True), friction * (up - down)], -1)


def _elliptic(x: Tensor, d: Tensor, friction: Tensor, mu: Tensor) -> tuple[Tensor, ...]:
    """Zones and coordinates of the elliptic cone for base residuals x (W, n, dim)."""
    scale = torch.cat([mu, friction.expand(mu.shape[0], *friction.shape[1:])], -1)
    u = x * scale
    normal, slip = u[..., :1], math.safe_norm(u[..., 1:], keepdim=True)
    top = normal >= mu * slip
    bottom = mu * normal + slip <= 0
    dm = d[..., :1] / (mu * mu * (1 + mu * mu)).clamp(min=math.MINVAL)
    safe = torch.where(slip <= 0, 1.0, slip)
    return scale, u, normal, safe, top, bottom & ~top, dm


def force(rows: Rows, x: Tensor) -> Tensor:
    """Base-row forces (W, nefc) of residuals x = J a - aref."""
    lay = rows.layout
    s = slice(0, lay.n_scalar)
    parts = [torch.clamp(-rows.d[:, s] * x[:, s], rows.low, rows.high)] if lay.n_scalar else []
    for cone, friction, mu in zip(lay.cones, rows.friction, rows.mu, strict=True):
        xc, dc = _of_cone(x, cone), _of_cone(rows.d, cone)
        if lay.pyramidal:
            push = (-dc[..., :1].unsqueeze(-2) * _edges(xc, friction)).clamp(min=0)
            parts.append(_base(push, friction).flatten(1))
        else:
            scale, u, normal, slip, top, bottom, dm = _elliptic(xc, dc, friction, mu)
            gap = dm * (normal - mu * slip)
            middle = -scale * gap * torch.cat([torch.ones_like(gap), -mu / slip * u[..., 1:]], -1)
            f = torch.where(bottom, -dc * xc, torch.where(top, 0.0, middle))
            parts.append(f.flatten(1))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def curvature(rows: Rows, x: Tensor, jac: Tensor) -> Tensor:
    """Second derivative of the cost times the Jacobian, (W, nefc, nv): H = M + J' curvature."""
    lay = rows.layout
    s = slice(0, lay.n_scalar)
    parts = []
    if lay.n_scalar:
        f = -rows.d[:, s] * x[:, s]
        inside = (f > rows.low) & (f < rows.high)
        parts.append(torch.where(inside, rows.d[:, s], 0.0).unsqueeze(-1) * jac[:, s])
    for cone, friction, mu in zip(lay.cones, rows.friction, rows.mu, strict=True):
        xc, dc = _of_cone(x, cone), _of_cone(rows.d, cone)
        jc = jac[:, cone.start : cone.start + cone.n * cone.dim]
        jc = jc.unflatten(1, (cone.n, cone.dim))  # (W, n, dim, nv)
        block = _pyramid_block if lay.pyramidal else _elliptic_block
        parts.append((block(xc, dc, friction, mu) @ jc).flatten(1, 2))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _pyramid_block(x: Tensor, d: Tensor, friction: Tensor, mu: Tensor) -> Tensor:
    """(W, n, dim, dim) curvature: active edges, each an outer product of its base coefficients."""
    del mu
    push = torch.where(_edges(x, friction) < 0, d[..., :1].unsqueeze(-2), 0.0)
    up, down = push.unbind(-2)
    mixed = friction * (up - down)
    corner = (up + down).sum(-1, keepdim=True)
    side = torch.diag_embed(friction * friction * (up + down))
    top = torch.cat([corner, mixed], -1).unsqueeze(-2)
    return torch.cat([top, torch.cat([mixed.unsqueeze(-1), side], -1)], -2)


def _elliptic_block(x: Tensor, d: Tensor, friction: Tensor, mu: Tensor) -> Tensor:
    """(W, n, dim, dim) curvature of the elliptic cone: diagonal below, curved on its side."""
    scale, u, normal, slip, top, bottom, dm = _elliptic(x, d, friction, mu)
    slope = -mu / slip * u[..., 1:]  # derivative of -mu * slip
    gradient = torch.cat([torch.ones_like(slip), slope], -1)
    gap = (normal - mu * slip).unsqueeze(-1)
    direction = (u[..., 1:] / slip).unsqueeze(-1)
    eye = torch.eye(x.shape[-1] - 1, dtype=x.dtype, device=x.device)
    bend = -(mu / slip).unsqueeze(-1) * gap * (eye - direction * direction.transpose(-1, -2))
    curve = gradient.unsqueeze(-1) * gradient.unsqueeze(-2)
    curve = curve + torch.nn.functional.pad(bend, (1, 0, 1, 0))
    curve = dm.unsqueeze(-1) * scale.unsqueeze(-1) * curve * scale.unsqueeze(-2)
    flat = torch.where(bottom, d, 0.0)
    side = ~(top | bottom)
    return torch.diag_embed(flat) + torch.where(side.unsqueeze(-1), curve, 0.0)


def cost(rows: Rows, x: Tensor) -> Tensor:
    """Constraint cost (W,) of residuals x."""
    lay = rows.layout
    total = torch.zeros_like(x[:, 0])
    if lay.n_scalar:
        s = slice(0, lay.n_scalar)
        f = torch.clamp(-rows.d[:, s] * x[:, s], rows.low, rows.high)
        total = total - (f * (x[:, s] + 0.5 * f / rows.d[:, s].clamp(min=math.MINVAL))).sum(-1)
    for cone, friction, mu in zip(lay.cones, rows.friction, rows.mu, strict=True):
        xc, dc = _of_cone(x, cone), _of_cone(rows.d, cone)
        if lay.pyramidal:
            below = _edges(xc, friction).clamp(max=0)
            total = total + 0.5 * (dc[..., :1].unsqueeze(-2) * below * below).flatten(1).sum(-1)
        else:
            _, _, normal, slip, top, bottom, dm = _elliptic(xc, dc, friction, mu)
            gap = normal - mu * slip
            quad = 0.5 * (dc * xc * xc).sum(-1, keepdim=True)
            side = torch.where(top, 0.0, 0.5 * dm * gap * gap)
            total = total + torch.where(bottom, quad, side).flatten(1).sum(-1)
    return total


def slope(rows: Rows, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """First and second derivative (W,) of the cost at x along v."""
    first = -math.dot(force(rows, x), v)
    second = math.dot(curvature(rows, x, v.unsqueeze(-1)).squeeze(-1), v)
    return first, second
