"""Smooth stages: kinematics, inertia, velocities and the bias force."""

from __future__ import annotations

from dataclasses import replace

from alloy import ops
from alloy.ops.reference.smooth import applied_force
from alloy.physics.model import Data, Model

__all__ = ["applied_force", "kinematics", "mass_matrix", "velocity"]


def kinematics(m: Model, d: Data) -> Data:
    """World poses of bodies, joints, geoms and sites, and everything about centres of mass."""
    return ops.kinematics(m, d)


def mass_matrix(m: Model, d: Data) -> Data:
    """Joint-space inertia matrix."""
    return replace(d, M=ops.mass_matrix(d.cinert, d.cdof, m.dof_armature, m.tree))


def velocity(m: Model, d: Data) -> Data:
    """Spatial velocities and the bias force."""
    return ops.velocity(m, d)
