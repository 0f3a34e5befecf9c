"""Passive forces: springs, dampers, fixed tendons, gravity compensation and the fluid's drag.

Which features a model has is decided once, from the compiled model: a stiffness, damping or
gravity compensation that is zero for every joint there costs nothing here, and does not come to
life when a world's parameter is changed later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from alloy.math import MINVAL, cross, dot, quat_conj, quat_mul, quat_normalize, quat_to_rotvec
from alloy.physics.model import Data, Model


@dataclass(frozen=True)
class PassiveTables:
    """What the passive stage knows of a model beforehand; built by io_tables.passive_tables."""

    spring: bool  # some joint has a spring
    damper: bool  # some dof has damping
    gravcomp: bool  # some body is compensated
    fluid: bool  # density or viscosity of the medium is above zero
    dof_joint: Tensor | None  # (nv,) joint of each dof; None: one to one
    spring_place: Tensor | None  # (nq + 3 nrot, nv) displacements to dofs; None: one to one
    spring_quat: Tensor | None  # (nrot, 4) qpos addresses of quaternions with a spring
    passive_gravcomp: Tensor | None  # (nv,) 0 where actuators compensate gravity; None: nowhere
    tendon_q: Tensor  # (nq, ntendon) tendon coefficients by qpos
    tendon_J: Tensor  # (ntendon, nv) constant Jacobian of the fixed tendons
    tendon_spring: bool
    tendon_damper: bool
    pattern: Tensor | None  # (nv, nv) pairs that implicitfast keeps; None: all that tendons couple
    others: Tensor  # (3, 3) one off the diagonal
    box: Tensor  # (3, 3) principal inertias to squared half-edges


def passive(m: Model, d: Data) -> Data:
    """All passive joint forces; needs kinematics, body velocities and tendons.

    Sets qfrc_spring, qfrc_damper, qfrc_gravcomp, qfrc_fluid and their sum qfrc_passive, without the
    gravity compensation that goes through actuators. Disabling both springs and dampers disables
    every passive force, as in MuJoCo.
    """
    t: PassiveTables = m.derived["passive"]
    zero = torch.zeros_like(d.qvel)
    spring = damper = gravcomp = fluid = total = zero
    if not _all_disabled(m):
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
    """Length and velocity of every fixed tendon; the Jacobian is the constant `tendon_J`."""
    if not m.ntendon:
        return replace(d, ten_length=d.qpos[:, :0], ten_velocity=d.qvel[:, :0])
    t: PassiveTables = m.derived["passive"]
    return replace(d, ten_length=d.qpos @ t.tendon_q, ten_velocity=d.qvel @ t.tendon_J.mT)


def damping_derivative(m: Model, d: Data) -> Tensor:
    """Derivative of qfrc_passive by qvel as MuJoCo's implicitfast takes it; (1|W, nv, nv).

    Pairs of dofs of which neither is above the other in the tree are left out, as MuJoCo does.
    """
    t: PassiveTables = m.derived["passive"]
    out = torch.diag_embed(-m.dof_damping)
    if "damper" in m.opt.disable:
        out = torch.zeros_like(out)
    elif t.tendon_damper:
        coupled = (t.tendon_J.mT * m.tendon_damping.unsqueeze(-2)) @ t.tendon_J
        out = out - (coupled if t.pattern is None else coupled * t.pattern)
    if t.fluid and not _all_disabled(m):
        # Drag is diagonal in the body's inertial frame, so the product below is symmetric
        linear, quadratic = _drag_coefficients(m, t)
        slope = linear + 2 * quadratic * _fluid_velocity(m, d).abs()  # (W, nbody, 2, 3)
        jacobian = _inertial_jacobian(m, d)  # (W, nbody, 6, nv)
        weighted = jacobian * slope.flatten(-2).unsqueeze(-1)
        out = out - (jacobian.mT @ weighted).sum(-3)
    return out


def _all_disabled(m: Model) -> bool:
    return {"spring", "damper"} <= m.opt.disable


def _springs(m: Model, d: Data, t: PassiveTables) -> Tensor:
    """Joint and tendon springs; (W, nv)."""
    force = None
    if t.spring:
        offset = m.qpos_spring - d.qpos
        if t.spring_quat is not None:
            rest = m.qpos_spring[:, t.spring_quat]
            turn = quat_mul(quat_conj(rest), quat_normalize(d.qpos[:, t.spring_quat]))
            offset = torch.cat([offset, -quat_to_rotvec(turn).flatten(-2)], -1)
        if t.spring_place is not None:
            offset = offset @ t.spring_place
        stiffness = m.jnt_stiffness
        if t.dof_joint is not None:
            stiffness = stiffness[:, t.dof_joint]
        force = stiffness * offset
    if t.tendon_spring:
        low, high = m.tendon_lengthspring.unbind(-1)
        # inside the dead band the nearest rest length is the length itself
        stretch = torch.clamp(d.ten_length, low, high) - d.ten_length
        along = (m.tendon_stiffness * stretch) @ t.tendon_J
        force = along if force is None else force + along
    assert force is not None
    return force


def _dampers(m: Model, d: Data, t: PassiveTables) -> Tensor:
    """Dof and tendon dampers; (W, nv)."""
    force = None
    if t.damper:
        force = -m.dof_damping * d.qvel
    if t.tendon_damper:
        along = (m.tendon_damping * d.ten_velocity) @ t.tendon_J
        force = -along if force is None else force - along
    assert force is not None
    return force


def _offset_from_com(m: Model, d: Data) -> Tensor:
    """From what spatial vectors are about to each body's centre of mass; (W, nbody, 3)."""
    return d.xipos - d.subtree_com[:, m.tree.body_root]


def _joint_force(m: Model, d: Data, torque: Tensor | None, force: Tensor) -> Tensor:
    """Joint forces of world-frame forces (and torques) on the bodies' centres of mass; (W, nv)."""
    about_com = cross(_offset_from_com(m, d), force)
    if torque is not None:
        about_com = about_com + torque
    wrench = torch.cat([about_com, force.expand_as(about_com)], -1)
    return dot(m.tree.moves.mT @ wrench, d.cdof)


def _gravity_compensation(m: Model, d: Data) -> Tensor:
    weight = (m.body_mass * m.body_gravcomp).unsqueeze(-1)
    return _joint_force(m, d, None, -weight * m.gravity.unsqueeze(-2))


def _fluid_velocity(m: Model, d: Data) -> Tensor:
    """Each body's velocity against the medium in its inertial frame, (W, nbody, [rot, lin], 3)."""
    rot, lin = d.cvel[..., :3], d.cvel[..., 3:]
    lin = lin + cross(rot, _offset_from_com(m, d)) - m.wind.unsqueeze(-2)
    return torch.stack([rot, lin], -2) @ d.ximat


def _drag_coefficients(m: Model, t: PassiveTables) -> tuple[Tensor, Tensor]:
    """Drag of the inertia box, linear and quadratic in velocity; two of (1|W, nbody, 2, 3).

    Viscous drag is Stokes' for the sphere whose diameter is the box's mean edge; the quadratic part
    is that of the box's faces (MuJoCo documentation, Computation, Fluid forces).
    """
    mass = m.body_mass.unsqueeze(-1)
    edge = ((m.body_inertia @ t.box).clamp(min=MINVAL) * 6 / mass.clamp(min=MINVAL)).sqrt()
    solid = (mass >= MINVAL).unsqueeze(-1).to(mass.dtype)
    diameter = edge.mean(-1, keepdim=True)
    stokes = 3 * torch.pi * m.opt.viscosity * diameter
    linear = torch.stack([stokes * diameter * diameter / 3, stokes], -2) * solid
    face = edge.roll(1, -1) * edge.roll(-1, -1)
    paddle = edge * (edge**4 @ t.others) / 64
    quadratic = torch.stack([paddle, face / 2], -2) * (m.opt.density * solid)
    return linear, quadratic


def _fluid(m: Model, d: Data, t: PassiveTables) -> Tensor:
    linear, quadratic = _drag_coefficients(m, t)
    velocity = _fluid_velocity(m, d)
    drag = -(linear + quadratic * velocity.abs()) * velocity
    torque, force = (drag @ d.ximat.mT).unbind(-2)
    return _joint_force(m, d, torque, force)


def _inertial_jacobian(m: Model, d: Data) -> Tensor:
    """Jacobian of each body's velocity at its centre of mass, in its inertial frame.

    Returns (W, nbody, 6, nv), rotation first.
    """
    rot, lin = d.cdof[:, None, :, :3], d.cdof[:, None, :, 3:]
    offset = _offset_from_com(m, d).unsqueeze(-2)  # (W, nbody, 1, 3)
    world = torch.stack([rot.expand_as(lin + offset), lin + cross(rot, offset)], -3)
    local = world @ d.ximat.unsqueeze(-3)  # (W, nbody, 2, nv, 3)
    return (local.mT.flatten(-3, -2)) * m.tree.moves.unsqueeze(-2)
