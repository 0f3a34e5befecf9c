"""Contacts of all pairs in their slots, by the colliders of `collide`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from alloy.ops.reference import contact_order
from alloy.ops.reference.collide import COLLIDERS

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


def contacts(m: Model, d: Data) -> Data:
    """See `alloy.ops.contacts`."""
    dists, points, frames, dropped = [], [], [], []
    for group in m.pairs:
        margin = m.derived["pair_margin"][group.kind]
        geoms = (
            d.geom_xpos[:, group.geom1], d.geom_xmat[:, group.geom1], m.geom_size[:, group.geom1],
            d.geom_xpos[:, group.geom2], d.geom_xmat[:, group.geom2], m.geom_size[:, group.geom2],
        )  # fmt: skip
        dist, pos, frame, *beyond = COLLIDERS[group.kind].fn(*geoms, margin, *group.shapes)
        if m.derived["noslip"] is not None:
            dist, pos, frame = contact_order.ordered(group.kind, geoms, (dist, pos, frame))
        dropped += [x.sum(-1) for x in beyond]
        dists.append(dist.flatten(1))
        points.append(pos.flatten(1, 2))
        frames.append(frame.flatten(1, 2))
    dist, pos, frame = (x[0] if len(x) == 1 else torch.cat(x, 1) for x in (dists, points, frames))
    order = m.derived["contact"].order
    if order is not None:
        dist, pos, frame = dist[:, order], pos[:, order], frame[:, order]
    d = replace(d, contact_dist=dist, contact_pos=pos, contact_frame=frame)
    return replace(d, contact_dropped=sum(dropped[1:], dropped[0])) if dropped else d
