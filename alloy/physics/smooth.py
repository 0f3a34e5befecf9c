"""Smooth stages: kinematics, inertia, velocities and the bias force."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from alloy import ops
from alloy.ops.reference import inertia, tendon_inertia
from alloy.ops.reference.smooth import applied_force
from alloy.physics.model import Data, Model

__all__ = ["applied_force", "bias_derivative", "kinematics", "mass_matrix", "velocity"]


def kinematics(m: Model, d: Data) -> Data:
    """World poses of bodies, joints, geoms and sites, and everything about centres of mass."""
    return ops.kinematics(m, d)


def mass_matrix(m: Model, d: Data) -> Data:
    """Joint-space inertia matrix."""
    mass = ops.mass_matrix(d.cinert, d.cdof, m.dof_armature, m.tree)
    of_tendons = tendon_inertia.inertia(m, d)
    return replace(d, M=mass if of_tendons is None else mass + of_tendons)


def velocity(m: Model, d: Data) -> Data:
    """Spatial velocities and the bias force."""
    return tendon_inertia.with_bias(m, ops.velocity(m, d))


def bias_derivative(m: Model, d: Data) -> Tensor:
    """Derivative of qfrc_bias by qvel, (W, nv, nv); needs body velocities."""
    return inertia.bias_derivative(d.cinert, d.cdof, d.cdof_dot, d.cvel, d.qvel, m.tree)
