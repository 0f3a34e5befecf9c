"""Passive forces: what a model has of them, their stage, and their derivative by velocity.

Which features a model has is decided once, from the compiled model: a stiffness, damping or
gravity compensation that is zero for every joint there costs nothing here, and does not come to
life when a world's parameter is changed later.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alloy import ops
from alloy.math import cross
from alloy.ops.reference import fluid_ellipsoid
from alloy.ops.reference.fluid_ellipsoid import EllipsoidTables
from alloy.ops.reference.passive import (
    SLOPE,
    all_disabled,
    damping,
    drag_coefficients,
    fluid_velocity,
    offset_from_com,
    tendon_damping,
)
from alloy.ops.reference.plastic import PlasticTables
from alloy.ops.reference.tendon import jacobian as tendon_jacobian
from alloy.physics.model import Data, Model
from alloy.physics.passive_tendon import SpatialTendons


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
    tendon_J: Tensor  # (ntendon, nv) constant Jacobian of the fixed tendons, zero for others
    spatial: SpatialTendons | None
    tendon_spring: bool
    tendon_damper: bool
    # whether some stiffness or damping has terms beyond the linear one
    spring_poly: bool
    damper_poly: bool
    tendon_spring_poly: bool
    tendon_damper_poly: bool
    spring_vectors: Tensor | None  # (nv, nv) 1 between dofs of one rotation or free translation
    plastic: PlasticTables | None  # springs that yield
    pattern: Tensor | None  # (nv, nv) pairs that implicitfast keeps; None: all that tendons couple
    ellipsoids: EllipsoidTables | None  # geoms to the fluid; None: every body is its inertia box
    others: Tensor  # (3, 3) one off the diagonal
    box: Tensor  # (3, 3) principal inertias to squared half-edges


def passive(m: Model, d: Data) -> Data:
    """All passive joint forces; needs kinematics, body velocities and tendons."""
    return ops.passive(m, d)


def tendon(m: Model, d: Data) -> Data:
    """Length, Jacobian and velocity of every tendon."""
    return ops.tendon(m, d)


def damping_derivative(m: Model, d: Data) -> Tensor:
    """Derivative of qfrc_passive by qvel as MuJoCo's implicitfast takes it; (1|W, nv, nv).

    Pairs of dofs of which neither is above the other in the tree are left out, as MuJoCo does.
    """
    t: PassiveTables = m.derived["passive"]
    out = torch.diag_embed(-damping(m, d, t, SLOPE))
    if "damper" in m.opt.disable:
        out = torch.zeros_like(out)
    elif t.tendon_damper:
        rows = tendon_jacobian(m, d)
        coupled = (rows.mT * tendon_damping(m, d, t, SLOPE).unsqueeze(-2)) @ rows
        out = out - (coupled if t.pattern is None else coupled * t.pattern)
    if t.fluid and not all_disabled(m):
        # Drag is diagonal in the body's inertial frame, so the product below is symmetric
        linear, quadratic = drag_coefficients(m, t)
        slope = linear + 2 * quadratic * fluid_velocity(m, d).abs()  # (W, nbody, 2, 3)
        jacobian = _local_jacobian(d, offset_from_com(m, d), d.ximat, m.tree.moves)
        weighted = jacobian * slope.flatten(-2).unsqueeze(-1)
        out = out - (jacobian.mT @ weighted).sum(-3)
        if t.ellipsoids is not None:
            out = out + _ellipsoid_derivative(m, d, t.ellipsoids)
    return out


def _ellipsoid_derivative(m: Model, d: Data, e: EllipsoidTables) -> Tensor:
    """Of the forces on geoms that count as ellipsoids (W, nv, nv); implicitfast's is symmetric."""
    slope = fluid_ellipsoid.derivative(m, d, e)
    if m.opt.integrator == "implicitfast":
        slope = 0.5 * (slope + slope.mT)
    frame, moves = d.geom_xmat[:, e.geom], m.tree.moves[e.body]
    jacobian = _local_jacobian(d, fluid_ellipsoid.offset(m, d, e), frame, moves)
    return (jacobian.mT @ slope @ jacobian).sum(-3)


def euler_damping(m: Model, d: Data) -> Tensor | None:
    """Damping (1|W, nv) that Euler's method takes at the end of the step, if it is not linear."""
    t: PassiveTables = m.derived["passive"]
    if not (t.damper_poly and m.derived["euler_damping"]):
        return None
    return damping(m, d, t, SLOPE)


def _local_jacobian(d: Data, offset: Tensor, frame: Tensor, moves: Tensor) -> Tensor:
    """Jacobian of the velocity of points that move with bodies, rotation first.

    Args:
        d: with kinematics.
        offset: (W, n, 3) points from what spatial vectors are about.
        frame: (W, n, 3, 3) axes in which the velocity is.
        moves: (n, nv) which dofs move them.

    Returns:
        (W, n, 6, nv).
    """
    rot, lin = d.cdof[:, None, :, :3], d.cdof[:, None, :, 3:]
    offset = offset.unsqueeze(-2)  # (W, n, 1, 3)
    world = torch.stack([rot.expand_as(lin + offset), lin + cross(rot, offset)], -3)
    local = world @ frame.unsqueeze(-3)  # (W, n, 2, nv, 3)
    return (local.mT.flatten(-3, -2)) * moves.unsqueeze(-2)
