"""Collision: every enabled pair of geoms through its collider, into fixed contact slots."""

from __future__ import annotations

from dataclasses import replace

import torch

from alloy import ops
from alloy.physics.model import Data, Model


def collision(m: Model, d: Data) -> Data:
    """Distance, position and frame of every contact slot (mj_collision)."""
    if not m.ncon:
        return replace(
            d, contact_dist=d.qpos[:, :0], contact_pos=d.xpos[:, :0], contact_frame=d.xmat[:, :0]
        )
    dists, points, frames = [], [], []
    for group in m.pairs:
        margin = m.derived["pair_margin"][group.kind]
        dist, pos, frame = ops.collide(
            group.kind,
            d.geom_xpos[:, group.geom1], d.geom_xmat[:, group.geom1], m.geom_size[:, group.geom1],
            d.geom_xpos[:, group.geom2], d.geom_xmat[:, group.geom2], m.geom_size[:, group.geom2],
            margin,
        )  # fmt: skip
        dists.append(dist.flatten(1))
        points.append(pos.flatten(1, 2))
        frames.append(frame.flatten(1, 2))
    dist, pos, frame = (x[0] if len(x) == 1 else torch.cat(x, 1) for x in (dists, points, frames))
    order = m.derived["contact"].order
    if order is not None:
        dist, pos, frame = dist[:, order], pos[:, order], frame[:, order]
    return replace(d, contact_dist=dist, contact_pos=pos, contact_frame=frame)
