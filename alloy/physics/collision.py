"""Collision: every enabled pair of geoms through its collider, into fixed contact slots."""

from __future__ import annotations

from dataclasses import replace

from alloy import ops
from alloy.physics.model import Data, Model


def collision(m: Model, d: Data) -> Data:
    """Distance, position and frame of every contact slot (mj_collision)."""
    if m.ncon:
        d = ops.contacts(m, d)
    else:
        d = replace(
            d, contact_dist=d.qpos[:, :0], contact_pos=d.xpos[:, :0], contact_frame=d.xmat[:, :0]
        )
    return replace(d, contact_least=d.contact_dist)
