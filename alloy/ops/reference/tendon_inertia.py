"""Inertia of tendons: what their armature adds to M and to the bias force.

A tendon of armature a has the kinetic energy a (J qvel)^2 / 2. Where its Jacobian moves with the
joints, there is a bias force J' a (Jdot qvel) as well. MuJoCo has no armature on tendons that wrap.
Source: MuJoCo manual, XML reference, tendon armature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.tendon import jacobian, pulled

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.passive_tendon import Ends


@dataclass(frozen=True)
class TendonInertia:
    """What a model with armature on tendons has beforehand; built by io_tendons."""

    pattern: Tensor | None  # (nv, nv) pairs of dofs that M has; None: all that tendons couple


def inertia(m: Model, d: Data) -> Tensor | None:
    """Their part of M, (1|W, nv, nv), without what couples dofs of separate branches; or None."""
    t: TendonInertia | None = m.derived["tendon_inertia"]
    if t is None:
        return None
    rows = jacobian(m, d)
    out = (rows.mT * m.tendon_armature.unsqueeze(-2)) @ rows
    return out if t.pattern is None else out * t.pattern


def with_bias(m: Model, d: Data) -> Data:
    """Their part added to qfrc_bias; needs body velocities."""
    pieces = m.derived["passive"].spatial
    if m.derived["tendon_inertia"] is None or pieces is None or pieces.straight is None:
        return d
    return replace(d, qfrc_bias=d.qfrc_bias + pulled(m, d, m.tendon_armature * drift(m, d)))


def drift(m: Model, d: Data) -> Tensor:
    """Jdot qvel (W, ntendon): how the tendons' velocities grow at constant qvel."""
    pieces = m.derived["passive"].spatial
    if pieces is None or pieces.straight is None:
        return torch.zeros_like(d.ten_length)
    return _drift(m, d, pieces.straight.ends) @ pieces.straight.share


def _drift(m: Model, d: Data, ends: Ends) -> Tensor:
    """Jdot qvel (W, n) of the lengths of straight pieces: their growth at constant qvel."""
    spin = math.constant_times(m.tree.moves, d.cdof_dot * d.qvel.unsqueeze(-1))
    motion = [_motion(m, d, spin, site) for site in (ends.site1, ends.site2)]
    way, span = math.normalize(motion[1][0] - motion[0][0])
    apart, growing = motion[1][1] - motion[0][1], motion[1][2] - motion[0][2]
    along = math.dot(way, apart).unsqueeze(-1)
    across = apart - along * way
    span = span.squeeze(-1)
    short = span < math.MINVAL
    turning = math.dot(across, across) / torch.where(short, 1.0, span)
    return torch.where(short, 0.0, turning) + math.dot(way, growing)


def _motion(m: Model, d: Data, spin: Tensor, site: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Position, velocity, and acceleration at constant qvel, of sites; (W, n, 3) each.

    Args:
        m: the model.
        d: with body velocities.
        spin: (W, nbody, 6) accelerations of the bodies at constant qvel, without gravity.
        site: (n,).
    """
    body, point = m.derived["site_bodyid"][site], d.site_xpos[:, site]
    arm = point - d.subtree_com[:, m.tree.body_root[body]]
    w, v = d.cvel[:, body].split(3, -1)
    angular, linear = spin[:, body].split(3, -1)
    velocity = v + math.cross(w, arm)
    return point, velocity, linear + math.cross(angular, arm) + math.cross(w, velocity)
