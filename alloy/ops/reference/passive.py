"""Passive forces: springs, dampers, fixed tendons, gravity compensation and the fluid's drag.

Source: MuJoCo manual, Computation, Passive forces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.math import MINVAL, cross, dot, quat_conj, quat_mul, quat_normalize, quat_to_rotvec
from alloy.ops.reference import fluid_ellipsoid, plastic
from alloy.ops.reference.tendon import pulled, spatial

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.passive import PassiveTables


def passive(m: Model, d: Data) -> Data:
    """See `alloy.ops.passive`."""
    t: PassiveTables = m.derived["passive"]
    zero = torch.zeros_like(d.qvel)
    spring = damper = gravcomp = fluid = total = zero
    if not all_disabled(m):
        if (t.spring or t.tendon_spring) and "spring" not in m.opt.disable:
            spring = _springs(m, d, t)
        if (t.damper or t.tendon_damper) and "damper" not in m.opt.disable:
            damper = _dampers(m, d, t)
        if t.gravcomp and "gravity" not in m.opt.disable:
            gravcomp = _gravity_compensation(m, d)
        if t.fluid:
            fluid = _fluid(m, d, t)
        felt = gravcomp
        if t.passive_gravcomp is not None:
            felt = gravcomp * t.passive_gravcomp
        parts = [part for part in (spring, damper, felt, fluid) if part is not zero]
        total = sum(parts[1:], parts[0]) if parts else zero
    return replace(
        d,
        qfrc_spring=spring,
        qfrc_damper=damper,
        qfrc_gravcomp=gravcomp,
        qfrc_fluid=fluid,
        qfrc_passive=total,
    )


def tendon(m: Model, d: Data) -> Data:
    """See `alloy.ops.tendon`."""
    if not m.ntendon:
        none = d.qvel[:, :0]
        jac = none.unsqueeze(-1).expand(-1, -1, m.nv)
        return replace(d, ten_length=d.qpos[:, :0], ten_velocity=none, ten_J=jac)
    t: PassiveTables = m.derived["passive"]
    jac = t.tendon_J.expand(d.qpos.shape[0], -1, -1)
    d = replace(d, ten_length=d.qpos @ t.tendon_q, ten_J=jac)
    if t.spatial is None:
        return replace(d, ten_velocity=d.qvel @ t.tendon_J.mT)
    d = spatial(m, d, t.spatial)
    return replace(d, ten_velocity=(d.ten_J @ d.qvel.unsqueeze(-1)).squeeze(-1))


def all_disabled(m: Model) -> bool:
    """Whether springs and dampers are off, which turns every passive force off."""
    return {"spring", "damper"} <= m.opt.disable


def _joint_springs(m: Model, d: Data, t: PassiveTables) -> tuple[Tensor, Tensor]:
    """Stiffness (1|W, nv) and displacement towards rest (W, nv) of the joints' springs."""
    rest, _ = plastic.springs_at_rest(m, d)
    offset = rest - d.qpos
    if t.spring_quat is not None:
        turn = quat_mul(quat_conj(rest[:, t.spring_quat]), quat_normalize(d.qpos[:, t.spring_quat]))
        offset = torch.cat([offset, -quat_to_rotvec(turn).flatten(-2)], -1)
    if t.spring_place is not None:
        offset = offset @ t.spring_place
    stiffness = m.jnt_stiffness
    if t.dof_joint is not None:
        stiffness = stiffness[:, t.dof_joint]
    return stiffness, offset


def _tendon_stretch(m: Model, d: Data) -> Tensor:
    """How far tendons are from rest (W, ntendon); the dead band is all rest."""
    low, high = plastic.springs_at_rest(m, d)[1].unbind(-1)
    return torch.clamp(d.ten_length, low, high) - d.ten_length


def energy_of_springs(m: Model, d: Data) -> Tensor:
    """Energy (W,) stored in the springs of joints and tendons."""
    t: PassiveTables = m.derived["passive"]
    energy = torch.zeros_like(d.qpos[..., :1]).sum(-1)
    if "spring" in m.opt.disable:
        return energy
    if t.spring:
        stiffness, offset = _joint_springs(m, d, t)
        if t.spring_poly:
            stiffness = stiffness + _stiffening(m, offset, t, ENERGY)
        energy = energy + 0.5 * (stiffness * offset * offset).sum(-1)
    if t.tendon_spring:
        stretch, stiffness = _tendon_stretch(m, d), m.tendon_stiffness
        if t.tendon_spring_poly:
            stiffness = stiffness + polynomial(m.tendon_stiffnesspoly, -stretch, ENERGY)
        energy = energy + 0.5 * (stiffness * stretch * stretch).sum(-1)
    return energy


FORCE, SLOPE, ENERGY = (1.0, 1.0), (2.0, 3.0), (2 / 3, 0.5)  # how the terms enter each of these


def polynomial(poly: Tensor, x: Tensor, weights: tuple[float, float]) -> Tensor:
    """What terms beyond the linear one, poly (1|W, n, 2), add to a coefficient at x (W, n).

    With the weights FORCE it times x is their force, SLOPE makes it the force's derivative, ENERGY
    half of it times x^2 the integral.
    """
    first, second = poly.unbind(-1)
    return weights[0] * first * x + weights[1] * second * x * x


def _stiffening(m: Model, offset: Tensor, t: PassiveTables, weights: tuple[float, float]) -> Tensor:
    """What polynomial stiffness adds to the linear one; (W, nv).

    Hinges and slides take it by their signed displacement, rotations and free translations by its
    length.
    """
    stretch = -offset
    if t.spring_vectors is not None:
        square = (offset * offset) @ t.spring_vectors
        inside = square > 0
        length = torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)
        stretch = torch.where(t.spring_vectors.sum(0) > 0, length, stretch)
    poly = m.jnt_stiffnesspoly
    if t.dof_joint is not None:
        poly = poly[:, t.dof_joint]
    return polynomial(poly, stretch, weights)


def damping(m: Model, d: Data, t: PassiveTables, weights: tuple[float, float]) -> Tensor:
    """Damping coefficients of the dofs (1|W, nv), or with SLOPE minus their force's derivative."""
    if not t.damper_poly:
        return m.dof_damping
    return m.dof_damping + polynomial(m.dof_dampingpoly, d.qvel.abs(), weights)


def tendon_damping(m: Model, d: Data, t: PassiveTables, weights: tuple[float, float]) -> Tensor:
    """The same of the tendons, (1|W, ntendon)."""
    if not t.tendon_damper_poly:
        return m.tendon_damping
    return m.tendon_damping + polynomial(m.tendon_dampingpoly, d.ten_velocity.abs(), weights)


def _springs(m: Model, d: Data, t: PassiveTables) -> Tensor:
    """Joint and tendon springs; (W, nv)."""
    force = None
    if t.spring:
        stiffness, offset = _joint_springs(m, d, t)
        if t.spring_poly:
            stiffness = stiffness + _stiffening(m, offset, t, FORCE)
        force = stiffness * offset
    if t.tendon_spring:
        along = pulled(m, d, tendon_springs(m, d, t))
        force = along if force is None else force + along
    assert force is not None
    return force


def tendon_springs(m: Model, d: Data, t: PassiveTables) -> Tensor:
    """Forces of the tendons' springs along them, (W, ntendon); positive ones lengthen."""
    stretch, stiffness = _tendon_stretch(m, d), m.tendon_stiffness
    if t.tendon_spring_poly:
        stiffness = stiffness + polynomial(m.tendon_stiffnesspoly, -stretch, FORCE)
    return stiffness * stretch


def _dampers(m: Model, d: Data, t: PassiveTables) -> Tensor:
    """Dof and tendon dampers; (W, nv)."""
    force = None
    if t.damper:
        force = -damping(m, d, t, FORCE) * d.qvel
    if t.tendon_damper:
        along = pulled(m, d, tendon_damping(m, d, t, FORCE) * d.ten_velocity)
        force = -along if force is None else force - along
    assert force is not None
    return force


def offset_from_com(m: Model, d: Data) -> Tensor:
    """From what spatial vectors are about to each body's centre of mass; (W, nbody, 3)."""
    return d.xipos - d.subtree_com[:, m.tree.body_root]


def _joint_force(m: Model, d: Data, torque: Tensor | None, force: Tensor) -> Tensor:
    """Joint forces of world-frame forces (and torques) on the bodies' centres of mass; (W, nv)."""
    about_com = cross(offset_from_com(m, d), force)
    if torque is not None:
        about_com = about_com + torque
    wrench = torch.cat([about_com, force.expand_as(about_com)], -1)
    return dot(m.tree.moves.mT @ wrench, d.cdof)


def _gravity_compensation(m: Model, d: Data) -> Tensor:
    weight = (m.body_mass * m.body_gravcomp).unsqueeze(-1)
    return _joint_force(m, d, None, -weight * m.gravity.unsqueeze(-2))


def fluid_velocity(m: Model, d: Data) -> Tensor:
    """Each body's velocity against the medium in its inertial frame, (W, nbody, [rot, lin], 3)."""
    rot, lin = d.cvel[..., :3], d.cvel[..., 3:]
    lin = lin + cross(rot, offset_from_com(m, d)) - m.wind.unsqueeze(-2)
    return torch.stack([rot, lin], -2) @ d.ximat


def drag_coefficients(m: Model, t: PassiveTables) -> tuple[Tensor, Tensor]:
    """Drag of the inertia box, linear and quadratic in velocity; two of (1|W, nbody, 2, 3).

    Viscous drag is Stokes' for the sphere whose diameter is the box's mean edge; the quadratic part
    is that of the box's faces (MuJoCo documentation, Computation, Fluid forces).
    """
    mass = m.body_mass.unsqueeze(-1)
    edge = ((m.body_inertia @ t.box).clamp(min=MINVAL) * 6 / mass.clamp(min=MINVAL)).sqrt()
    solid = (mass >= MINVAL).unsqueeze(-1).to(mass.dtype)
    if t.ellipsoids is not None:
        solid = solid * t.ellipsoids.boxes.reshape(-1, 1, 1)
    diameter = edge.mean(-1, keepdim=True)
    stokes = 3 * torch.pi * m.opt.viscosity * diameter
    linear = torch.stack([stokes * diameter * diameter / 3, stokes], -2) * solid
    face = edge.roll(1, -1) * edge.roll(-1, -1)
    paddle = edge * (edge**4 @ t.others) / 64
    quadratic = torch.stack([paddle, face / 2], -2) * (m.opt.density * solid)
    return linear, quadratic


def _fluid(m: Model, d: Data, t: PassiveTables) -> Tensor:
    linear, quadratic = drag_coefficients(m, t)
    velocity = fluid_velocity(m, d)
    drag = -(linear + quadratic * velocity.abs()) * velocity
    torque, force = (drag @ d.ximat.mT).unbind(-2)
    joint = _joint_force(m, d, torque, force)
    if t.ellipsoids is None:
        return joint
    wrench = fluid_ellipsoid.wrenches(m, d, t.ellipsoids)
    return joint + dot(math.constant_times(m.tree.moved_by, wrench), d.cdof)
