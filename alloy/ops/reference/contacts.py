"""Contacts of all pairs in their slots, by the colliders of `collide`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.ops.control import traced, where_on
from alloy.ops.reference import contact_order
from alloy.ops.reference.collide import COLLIDERS
from alloy.ops.reference.collide_shared import FAR, MESH, PLANE, Contacts, choose

if TYPE_CHECKING:
    from alloy.physics.layout import PairGroup
    from alloy.physics.model import Data, Model


MANY = 16  # pairs of a kind from which it pays to ask first which are near
SLACK = 1 + 1e-5  # of a distance that rounding has spoilt


def contacts(m: Model, d: Data) -> Data:
    """See `alloy.ops.contacts`."""
    dists, points, frames, dropped = [], [], [], []
    for group in m.pairs:
        margin = m.derived["pair_margin"][group.kind]
        geoms = (
            d.geom_xpos[:, group.geom1], d.geom_xmat[:, group.geom1], m.geom_size[:, group.geom1],
            d.geom_xpos[:, group.geom2], d.geom_xmat[:, group.geom2], m.geom_size[:, group.geom2],
        )  # fmt: skip
        near = _near(m, group, geoms, margin)
        if near is None:
            dist, pos, frame, *beyond = COLLIDERS[group.kind].fn(*geoms, margin, *group.shapes)
        else:
            (dist, pos, frame), beyond = _of_those(near, group, geoms, margin), ()
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


def _near(m: Model, group: PairGroup, geoms: tuple[Tensor, ...], margin: Tensor) -> Tensor | None:
    """Which pairs (W, P) have bounding spheres within the margin; None: do not ask.

    A traced program computes all pairs, and so does a GPU, whose step could not be recorded if it
    looked. So do few pairs; colliders that search ask more closely themselves, and other shapes on
    planes are as fast as this.
    """
    on_planes = PLANE in group.kind
    asks = MESH in group.kind if on_planes else len(group.geom1) >= MANY and not group.shapes
    pos1, mat1, _, pos2, *_ = geoms
    if traced() or pos1.device.type != "cpu" or not asks:
        return None
    reach = (m.geom_rbound[:, group.geom1] + m.geom_rbound[:, group.geom2] + margin) * SLACK
    apart = pos2 - pos1
    if on_planes:
        return (apart * mat1[..., 2]).sum(-1) <= reach
    return torch.linalg.vector_norm(apart, dim=-1) <= reach


def _of_those(
    near: Tensor, group: PairGroup, geoms: tuple[Tensor, ...], margin: Tensor
) -> Contacts:
    """The collider's contacts of the pairs that are near; the slots of others are empty."""
    mesh = group.shape2
    rows = () if mesh is None else (mesh.row,)

    def collide(_: Tensor, *pairs: Tensor) -> Contacts:
        shapes = () if mesh is None else (None, mesh._replace(row=pairs[-1].unsqueeze(1)))
        of_pairs = (x.unsqueeze(1) for x in pairs[: len(geoms) + 1])
        dist, pos, frame = COLLIDERS[group.kind].fn(*of_pairs, *shapes)
        return dist.squeeze(1), pos.squeeze(1), frame.squeeze(1)

    dist, pos, frame = where_on(near, collide, *geoms, margin, *rows)
    return choose(near.unsqueeze(-1), dist, FAR), pos, frame
