"""Tactile sensors: how deep the vertices of a mesh are in what touches, and how they slide there.

Source: MuJoCo's manual, XML reference, sensor/tactile; distances from Quilez, Distance functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL, cross, dot, rotate, rotate_inv, safe_norm
from alloy.ops.reference.collide_shared import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    PLANE,
    SPHERE,
    clip,
)

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import SensorGroup


def tactile(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Depth of every taxel, then its speeds along its two tangents, (W, 3, taxels).

    A geom is felt while it has a contact with the sensor's body or with one welded to it, wherever
    that is. Of several geoms the deepest counts, and the speeds add up.
    """
    t = g.tactile
    assert t is not None
    mat = d.geom_xmat[:, t.geom]  # (W, 1, 3, 3)
    place = d.geom_xpos[:, t.geom] + rotate(mat, t.taxels)  # (W, taxels, 3)
    own = _velocity(m, d, t.body, place.unsqueeze(1))
    out = d.qpos.new_zeros(d.qpos.shape[0], 3, t.taxels.shape[0])
    for side in t.sides:
        near = d.contact_dist[:, side.slots] < (m.con_margin + m.con_gap)[:, side.slots]
        touches = (near.unsqueeze(1) & side.match).any(-1)  # (W, geoms)
        apart = place.unsqueeze(1) - d.geom_xpos[:, side.geoms].unsqueeze(2)
        local = rotate_inv(d.geom_xmat[:, side.geoms].unsqueeze(2), apart)
        size = m.geom_size[:, side.geoms].unsqueeze(2)
        depth = -DISTANCE[side.kind](local, size)  # (W, geoms, taxels)
        felt = touches.unsqueeze(-1) & (depth > 0)
        parts = [torch.maximum(out[:, 0], torch.where(felt, depth, 0.0).amax(1))]
        slide = rotate_inv(mat.unsqueeze(1), own - _velocity(m, d, side.body, place.unsqueeze(1)))
        for k in range(2):
            speed = torch.zeros_like(parts[0])
            if t.tangents is not None:
                along = dot(slide, t.tangents[k]).abs()
                speed = torch.where(felt, along, 0.0).sum(1)
            parts.append(out[:, k + 1] + speed)
        out = torch.stack(parts, 1)
    return out


def _velocity(m: Model, d: Data, body: Tensor, at: Tensor) -> Tensor:
    """Linear velocity of what moves with bodies (k,) at points (W, 1, n, 3); (W, k, n, 3)."""
    rot, lin = (x.unsqueeze(2) for x in d.cvel[:, body].split(3, -1))
    arm = at - d.subtree_com[:, m.tree.body_root[body]].unsqueeze(2)
    return lin + cross(rot.expand_as(arm), arm)


def _plane(at: Tensor, size: Tensor) -> Tensor:
    return at[..., 2]


def _sphere(at: Tensor, size: Tensor) -> Tensor:
    return safe_norm(at) - size[..., 0]


def _capsule(at: Tensor, size: Tensor) -> Tensor:
    height = at[..., 2] - clip(at[..., 2], size[..., 1])
    return safe_norm(torch.cat([at[..., :2], height.unsqueeze(-1)], -1)) - size[..., 0]


def _ellipsoid(at: Tensor, size: Tensor) -> Tensor:
    """About the distance: exact on the surface only, as MuJoCo has it."""
    ratio = safe_norm(at / size)
    return ratio * (ratio - 1) / safe_norm(at / (size * size)).clamp(min=MINVAL)


def _cylinder(at: Tensor, size: Tensor) -> Tensor:
    across, along = safe_norm(at[..., :2]) - size[..., 0], at[..., 2].abs() - size[..., 1]
    outside = safe_norm(torch.stack([across, along], -1).clamp(min=0.0))
    return torch.maximum(across, along).clamp(max=0.0) + outside


def _box(at: Tensor, size: Tensor) -> Tensor:
    """Inside it is how far it is along a ray that turns from the middle's to the faces' normals."""
    beyond = at.abs() - size
    inside = (beyond < 0).all(-1, keepdim=True)
    to_face = torch.where(inside, -beyond, 1.0)
    steep = size / to_face
    way = (to_face / steep).amin(-1) * safe_norm(steep)
    return torch.where(inside.squeeze(-1), -way, safe_norm(beyond.clamp(min=0.0)))


DISTANCE = {
    PLANE: _plane, SPHERE: _sphere, CAPSULE: _capsule, ELLIPSOID: _ellipsoid, CYLINDER: _cylinder,
    BOX: _box,
}  # fmt: skip
