"""Accelerations and forces of bodies, which nothing but some sensors and readers need."""

from __future__ import annotations

from alloy.ops.reference import body_forces
from alloy.physics.model import Data, Model


def forces(m: Model, d: Data) -> Data:
    """Sets cacc, cfrc_ext and cfrc_int (mj_rnePostConstraint), all (W, nbody, 6)."""
    return body_forces.forces(m, d)
