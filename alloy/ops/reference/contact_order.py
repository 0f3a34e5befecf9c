"""Contacts of a pair in the order in which MuJoCo finds them, for sweeps that depend on it.

A plane looks at the corners of a box in turn. Of two boxes, the face that is clipped is walked
around from the corner that is positive along both of its axes, those after its normal's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alloy.ops.reference.collide_boxbox import TO_Z
from alloy.ops.reference.collide_shared import (
    BOX,
    FAR,
    PLANE,
    Contacts,
    choose,
    first,
    sign,
    table,
    to_local,
)
from alloy.ops.reference.convex_clip import cut_side

_NEARLY_ONE = 1 - 1e-9  # cosine of a normal with the axis that it is
_CORNERS = ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (-1.0, -1.0, 1.0), (1.0, -1.0, 1.0))
_BITS = (1.0, 2.0, 4.0)


def ordered(kind: tuple[int, int], geoms: tuple[Tensor, ...], found: Contacts) -> Contacts:
    """The slots of each pair in MuJoCo's order; `geoms` are the collider's first six arguments."""
    dist, pos, frame = found
    if kind == (PLANE, BOX):
        rank = _plane_box(geoms, dist, pos, frame)
    elif kind == (BOX, BOX):
        rank = _box_box(geoms, dist, pos, frame)
    else:
        return found
    order = choose(dist < FAR, rank.to(dist.dtype), FAR).argsort(dim=-1, stable=True)
    place = order.unsqueeze(-1).expand(*order.shape, 3)
    axes = place.unsqueeze(-1).expand(*place.shape, 3)
    return dist.gather(-1, order), pos.gather(-2, place), frame.gather(-3, axes)


def _surface(dist: Tensor, pos: Tensor, normal: Tensor) -> Tensor:
    """Points (W, P, n, 3) half of the distances along normals (W, P, 3) from the contacts."""
    half = 0.5 * choose(dist < FAR, dist, 0.0)
    return pos + half.unsqueeze(-1) * normal.unsqueeze(-2)


def _plane_box(geoms: tuple[Tensor, ...], dist: Tensor, pos: Tensor, frame: Tensor) -> Tensor:
    """Which corner (W, P, n) each contact is, x fastest."""
    _, _, _, pos2, mat2, _ = geoms
    corner = _surface(dist, pos, frame[..., 0, 0, :]) - pos2.unsqueeze(-2)
    above = to_local(mat2.unsqueeze(-3), corner) > 0
    return (above * table(_BITS, pos)).sum(-1)


def _box_box(geoms: tuple[Tensor, ...], dist: Tensor, pos: Tensor, frame: Tensor) -> Tensor:
    """The place (W, P, n) of each contact on the clipped face."""
    pos1, mat1, size1, pos2, mat2, size2 = geoms
    normal = frame[..., 0, 0, :]
    lead = normal.shape[:-1]
    own = to_local(mat1, normal).abs().amax(-1, keepdim=True) > _NEARLY_ONE  # box 1 has the face
    outward = torch.where(own, normal, -normal)
    sides = [(pos1, mat1, size1), (pos2, mat2, size2)]
    sides = [tuple(x.expand(*lead, *x.shape[2:]) for x in side) for side in sides]
    owner, other = (
        [torch.where(own if x.ndim == own.ndim else own.unsqueeze(-1), x, y)
         for x, y in zip(one, two, strict=True)]
        for one, two in (sides, sides[::-1])
    )  # fmt: skip
    flat, wide = _frame(owner, outward)
    level, half = _frame(other, -outward)
    down = sign((level[..., 2, :] * outward).sum(-1, keepdim=True) < 0, half)
    tilted = torch.cat([half[..., :2], half[..., 2:] * down], -1).unsqueeze(-2)
    quad = table(_CORNERS, pos) * tilted @ level + (other[0] - owner[0]).unsqueeze(-2)
    points = _surface(dist, pos, outward) - owner[0].unsqueeze(-2)
    polygon, count = _clipped(quad @ flat.mT, wide)
    gap = torch.cdist((points @ flat.mT)[..., :2], polygon[..., :2])
    there = torch.arange(polygon.shape[-2], device=gap.device) < count
    return choose(there.unsqueeze(-2), gap, FAR).argmin(-1)


def _frame(side: list[Tensor], out: Tensor) -> tuple[Tensor, Tensor]:
    """The axis of a box that is most along a direction, after the two that follow it.

    As rows (W, P, 3, 3), and the half sizes (W, P, 3) along them.
    """
    _, mat, size = side
    along = to_local(mat, out).abs()
    axis = first(along >= along.amax(-1, keepdim=True)).to(out.dtype)
    order = (axis @ table(TO_Z, out)).unflatten(-1, (3, 3))
    return order @ mat.mT, (order @ size.unsqueeze(-1)).squeeze(-1)


def _clipped(polygon: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """A quadrilateral (..., 4, 3) cut off at a rectangle's sides; up to 8 corners, and count."""
    room = polygon.new_zeros(*polygon.shape[:-2], 4, 3)
    polygon = torch.cat([polygon, room], -2)
    count = torch.full_like(half[..., :1], 4).long()
    for axis in range(2):
        for way in (1.0, -1.0):
            inside = half[..., axis : axis + 1] - way * polygon[..., axis]
            polygon, count = cut_side(polygon, count, inside, begins=True)
    return polygon, count
