"""The medium's forces on geoms that count as ellipsoids: added mass, drag, lift, viscosity.

Everything is in the geom's frame, whose axes are the ellipsoid's. A twist is [w, v] and a wrench
[torque, force], at the geom's centre. Acceleration of the medium with the body is left out, as in
MuJoCo. Source: MuJoCo manual, Computation, Fluid forces, Ellipsoid model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy.math import MINVAL, cross, cross_matrix, dot, safe_norm

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


@dataclass(frozen=True)
class EllipsoidTables:
    """The geoms that count as ellipsoids; built by io_tables."""

    geom: Tensor  # (n,)
    body: Tensor  # (n,)
    axes: Tensor  # (n, 3, 3) geom_size to semi-axes
    place: Tensor  # (nbody, n) one-hot
    boxes: Tensor  # (nbody,) 1 where the body has none of them: there its inertia box counts


class _Shape(NamedTuple):
    """What follows from sizes and coefficients, (1|W, n, ...)."""

    mass: Tensor  # (3,) added mass by direction
    inertia: Tensor  # (3,) added moment of inertia by axis
    blunt: Tensor  # (1,) these three: force over squared velocity and area
    slender: Tensor  # (1,)
    kutta: Tensor  # (1,)
    magnus: Tensor  # (1,) force over w x v
    largest: Tensor  # (1,) area of the largest projection
    normal: Tensor  # (3,) velocity to the normal of the section that it projects
    swirl: Tensor  # (3,) torque of the drag of rotation over squared velocity, by axis
    viscous: Tensor  # (2,) of rotation, of translation


def _shape(m: Model, t: EllipsoidTables) -> _Shape:
    rho, prm = m.opt.density, m.geom_fluid[:, t.geom]
    axes = (t.axes @ m.geom_size[:, t.geom].unsqueeze(-1)).squeeze(-1)
    scale, blunt, slender, angular, kutta, magnus = prm[..., :6].split(1, -1)
    low, high = axes.amin(-1, keepdim=True), axes.amax(-1, keepdim=True)
    middle = axes.sum(-1, keepdim=True) - low - high
    one, two = axes.roll(-1, -1), axes.roll(1, -1)
    swept = 8 / 15 * torch.pi * axes * torch.maximum(one, two) ** 4
    widest = swept.amax(-1, keepdim=True)
    radius = axes.sum(-1, keepdim=True) / 3
    stokes = torch.cat([8 * radius**3, 6 * radius], -1) * (torch.pi * m.opt.viscosity)
    volume = 4 / 3 * torch.pi * axes.prod(-1, keepdim=True)
    solid = (m.body_mass[:, t.body] >= MINVAL).unsqueeze(-1).to(axes.dtype)
    scale = scale * solid
    dense = rho * scale
    return _Shape(
        mass=dense * prm[..., 6:9],
        inertia=dense * prm[..., 9:12],
        blunt=dense * blunt,
        slender=dense * slender,
        kutta=dense * kutta,
        magnus=dense * magnus * volume,
        largest=torch.pi * high * middle,
        normal=(one * two) ** 2,
        swirl=dense * (angular * swept + slender * (widest - swept)),
        viscous=scale * stokes,
    )


class _Flow(NamedTuple):
    """The velocity and the section that it projects, (W, n, ...); nothing divides by the speed."""

    speed: Tensor  # (1,)
    way: Tensor  # (3,) unit direction; 0 at rest
    normal: Tensor  # (3,) of the section, not of unit length
    along: Tensor  # (1,) the direction's part along it; 1 at rest
    square: Tensor  # (1,) its length squared; 1 at rest
    area: Tensor  # (1,) of the projection


def _flow(s: _Shape, v: Tensor) -> _Flow:
    speed = safe_norm(v, keepdim=True)
    still = speed <= 0
    way = v / torch.where(still, 1.0, speed)
    normal = s.normal * way
    along, square = dot(normal, way).unsqueeze(-1), dot(normal, normal).unsqueeze(-1)
    along, square = (torch.where(still, 1.0, x) for x in (along, square))
    return _Flow(speed, way, normal, along, square, torch.pi * (square / along).sqrt())


def _drag(s: _Shape, f: _Flow) -> Tensor:
    """Force over squared velocity, (W, n, 1)."""
    return s.blunt * f.area + s.slender * (s.largest - f.area)


def _lift(s: _Shape, f: _Flow) -> tuple[Tensor, Tensor]:
    """Kutta's lift over squared velocity: a factor, and its direction, -(way x (normal x way))."""
    return s.kutta * f.area * f.along / f.square, f.along * f.way - f.normal


def _local(m: Model, d: Data, t: EllipsoidTables) -> Tensor:
    """Twists against the medium in the geoms' frames, (W, n, [w, v], 3)."""
    w, v = d.cvel[:, t.body].split(3, -1)
    v = v + cross(w, offset(m, d, t)) - m.wind.unsqueeze(-2)
    return torch.stack([w, v], -2) @ d.geom_xmat[:, t.geom]


def offset(m: Model, d: Data, t: EllipsoidTables) -> Tensor:
    """From what spatial vectors are about to the geoms' centres, (W, n, 3)."""
    return d.geom_xpos[:, t.geom] - d.subtree_com[:, m.tree.body_root[t.body]]


def wrenches(m: Model, d: Data, t: EllipsoidTables) -> Tensor:
    """Of the medium on every body, in world axes about the tree's centre of mass; (W, nbody, 6)."""
    s, (w, v) = _shape(m, t), _local(m, d, t).unbind(-2)
    f = _flow(s, v)
    momentum, spin = s.mass * v, s.inertia * w
    size, lift = _lift(s, f)
    force = cross(momentum, w) + s.magnus * cross(w, v) + f.speed * f.speed * size * lift
    force = force - (f.speed * _drag(s, f) + s.viscous[..., 1:]) * v
    swirl = safe_norm(s.swirl * w, keepdim=True) + s.viscous[..., :1]
    torque = cross(momentum, v) + cross(spin, w) - swirl * w
    torque, force = (torch.stack([torque, force], -2) @ d.geom_xmat[:, t.geom].mT).unbind(-2)
    about_com = torch.cat([torque + cross(offset(m, d, t), force), force], -1)
    return torch.bmm(t.place.expand(len(about_com), -1, -1), about_com)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(-1) * b.unsqueeze(-2)


def derivative(m: Model, d: Data, t: EllipsoidTables) -> Tensor:
    """Of the wrenches by the twists in the geoms' frames, (W, n, 6, 6)."""
    s, (w, v) = _shape(m, t), _local(m, d, t).unbind(-2)
    f = _flow(s, v)
    eye = torch.eye(3, dtype=v.dtype, device=v.device)
    momentum, spin = cross_matrix(s.mass * v), cross_matrix(s.inertia * w)
    turning, moving = cross_matrix(w), cross_matrix(v)
    # logarithmic derivatives of along, square and area, times the speed
    along, square = 2 * f.normal / f.along, 2 * s.normal * f.normal / f.square
    area = 0.5 * (square - along)
    drag, (size, lift) = _drag(s, f), _lift(s, f)
    on_drag = drag * f.way + (s.blunt - s.slender) * f.area * area
    resist = f.speed * drag + s.viscous[..., 1:]
    on_lift = _outer(lift, area + along - f.way - square) + f.along.unsqueeze(-1) * eye
    on_lift = on_lift + 2 * (_outer(f.way, f.normal) - _outer(f.normal, f.way))
    on_lift = (f.speed * size).unsqueeze(-1) * (on_lift - torch.diag_embed(s.normal))
    force_by_v = s.magnus.unsqueeze(-1) * turning - turning * s.mass.unsqueeze(-2) + on_lift
    force_by_v = force_by_v - _outer(v, on_drag) - resist.unsqueeze(-1) * eye
    force_by_w = momentum - s.magnus.unsqueeze(-1) * moving
    torque_by_v = momentum - moving * s.mass.unsqueeze(-2)
    swirl = safe_norm(s.swirl * w, keepdim=True)
    on_swirl = s.swirl * s.swirl * w / swirl.clamp(min=MINVAL)
    torque_by_w = spin - turning * s.inertia.unsqueeze(-2) - _outer(w, on_swirl)
    torque_by_w = torque_by_w - (swirl + s.viscous[..., :1]).unsqueeze(-1) * eye
    rows = ([torque_by_w, torque_by_v], [force_by_w, force_by_v])
    return torch.cat([torch.cat(row, -1) for row in rows], -2)
