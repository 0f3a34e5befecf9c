"""Narrowphase collision of boxes with planes, spheres and capsules; contract in `collide`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_shared import (
    FAR,
    Contacts,
    choose,
    clip,
    dot,
    first,
    make_frame,
    on_plane,
    sign,
    table,
    to_local,
    to_world,
    tolerance,
)

# one end of each of the four diagonals of a box
_DIAGONALS = ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0))

# the 12 edges of a box, (axis, edge, 3): its middle in units of the half sizes, MuJoCo's order
_EDGES = (
    ((0.0, -1.0, -1.0), (0.0, 1.0, -1.0), (0.0, -1.0, 1.0), (0.0, 1.0, 1.0)),
    ((-1.0, 0.0, -1.0), (1.0, 0.0, -1.0), (-1.0, 0.0, 1.0), (1.0, 0.0, 1.0)),
    ((-1.0, -1.0, 0.0), (1.0, -1.0, 0.0), (-1.0, 1.0, 0.0), (1.0, 1.0, 0.0)),
)
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def plane_box(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The lower end of each diagonal; 4 slots."""
    normal = to_local(mat2, mat1[..., 2])
    corners = size2.unsqueeze(-2) * table(_DIAGONALS, size2)  # (1|W, P, 4, 3)
    above = dot(corners, normal.unsqueeze(-2)) > 0
    return on_plane(pos1, mat1, pos2, mat2, torch.where(above, -corners, corners))


def sphere_box(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The nearest point of the box, or the nearest face if the centre is inside; 1 slot."""
    center = to_local(mat2, pos1 - pos2)
    dist, pos, normal = _sphere_in_box_frame(center, size1[..., :1], size2)
    pos = pos2 + to_world(mat2, pos)
    return dist, pos.unsqueeze(-2), make_frame(to_world(mat2, normal)).unsqueeze(-3)


def _sphere_in_box_frame(
    center: Tensor, radius: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Contact dist (..., 1), pos and normal (..., 3) of spheres given in the frame of the box."""
    to_box = clip(center, size) - center
    length = torch.linalg.vector_norm(to_box, dim=-1, keepdim=True)
    outside = length > math.MINVAL

    depth = size - center.abs()
    nearest = depth.amin(-1, keepdim=True)
    inward = sign(center <= 0, center) * first(depth <= nearest)

    normal = torch.where(outside, to_box, inward) / choose(outside, length, 1.0)
    gap = torch.where(outside, length, -nearest)
    return gap - radius, center + normal * (0.5 * (gap + radius)), normal


def capsule_box(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The sphere of the capsule nearest to the box, and a second one further along it; 2 slots.

    The second is as far along the capsule as this still runs above the face, or along the edge,
    that the first touches; there is none if the capsule points away from the box or is inside it.
    """
    pos, axis = to_local(mat2, pos1 - pos2), to_local(mat2, mat1[..., 2])
    radius, half = size1[..., :1], size1[..., 1:2]
    halfaxis = half * axis
    near = _nearest(pos, halfaxis, half, radius, size2, margin.unsqueeze(-1))
    step, has_second = _second(near, pos, axis, halfaxis, size2)

    along = near.along + step * table((0.0, 1.0), pos)  # (W, P, 2)
    center = pos.unsqueeze(-2) + along.unsqueeze(-1) * halfaxis.unsqueeze(-2)
    dist, point, normal = _sphere_in_box_frame(center, radius.unsqueeze(-2), size2.unsqueeze(-2))
    found = torch.cat([near.found, has_second & near.found], -1)
    mat = mat2.unsqueeze(-3)
    point, normal = pos2.unsqueeze(-2) + to_world(mat, point), to_world(mat, normal)
    return choose(found, dist.squeeze(-1), FAR), point, make_frame(normal)


class _Nearest(NamedTuple):
    """Where a capsule's segment is nearest to the surface of a box; flags and one-hots are bool."""

    found: Tensor  # (W, P, 1), False where nothing is within reach
    along: Tensor  # (W, P, 1) on the segment, in [-1, 1]
    on_edge: Tensor  # (W, P, 1) nearest to an edge of the box, its corners included
    inner: Tensor  # (W, P, 1) between the corners of that edge
    edge: Tensor  # (W, P, 3) axis of that edge
    corner: Tensor  # (W, P, 3) the corner: is it on the positive side of each axis?
    on_box: Tensor  # (W, P, 1) where on that edge, in [-1, 1]
    face: Tensor  # (W, P, 3) axis of the face that an end is above; none if the end is inside


def _nearest(
    pos: Tensor, halfaxis: Tensor, half: Tensor, radius: Tensor, size: Tensor, margin: Tensor
) -> _Nearest:
    """The best of the two ends of the segment above faces, and of all 12 edges of the box.

    The first that is not beaten wins, in MuJoCo's order.
    """
    ends = table((-1.0, 1.0), pos)
    end = pos.unsqueeze(-2) + table(((-1.0,), (1.0,)), pos) * halfaxis.unsqueeze(-2)
    beyond = end.abs() - size.unsqueeze(-2)
    above = beyond > 0  # (W, P, 2, 3)
    beyond = beyond.clamp(min=0.0)
    end_dist2, end_ok = (beyond * beyond).sum(-1), above.sum(-1) <= 1

    edge_dist2, edge_ok, along, on_box, inner, upper = _edges(pos, halfaxis, half, size)

    reach = margin + 2 * (radius + half + size.sum(-1, keepdim=True))
    dist2 = torch.cat([end_dist2, edge_dist2.flatten(-2)], -1)  # (W, P, 14)
    ok = torch.cat([end_ok, edge_ok.expand_as(edge_dist2).flatten(-2)], -1) & (dist2 < reach)
    best = choose(ok, dist2, FAR).amin(-1, keepdim=True)
    slack = math.MINVAL + 4 * torch.finfo(pos.dtype).eps * (best + half * half)
    won = first(ok & (dist2 <= best + slack))
    won_end, won_edge = won[..., :2], won[..., 2:].unflatten(-1, (3, 4))

    middles, identity = table(_EDGES, pos), table(_IDENTITY, pos)
    corner = middles + sign(upper, pos).unsqueeze(-1) * identity.unsqueeze(-2)
    won_flat = won_edge.flatten(-2)
    return _Nearest(
        found=won.any(-1, keepdim=True),
        along=_pick(won_end, ends) + _pick(won_flat, along.flatten(-2)),
        on_edge=won_flat.any(-1, keepdim=True),
        inner=(won_edge & inner).flatten(-2).any(-1, keepdim=True),
        edge=won_edge.any(-1),
        corner=choose(won_edge.unsqueeze(-1), corner, 0.0).sum((-2, -3)) > 0,
        on_box=_pick(won_flat, on_box.flatten(-2)),
        face=(won_end.unsqueeze(-1) & above).any(-2),
    )


def _pick(won: Tensor, value: Tensor) -> Tensor:
    return choose(won, value, 0.0).sum(-1, keepdim=True)


def _edges(pos: Tensor, halfaxis: Tensor, half: Tensor, size: Tensor) -> tuple[Tensor, ...]:
    """The segment against the 12 edges, by axis and edge (W, P, 3, 4).

    Returns the squared distance, whether it counts (not if parallel), the nearest points on segment
    and edge in [-1, 1], and whether the latter is between the edge's ends, or at the upper one.
    """
    middles, identity = table(_EDGES, pos), table(_IDENTITY, pos)
    apart = middles * size[..., None, None, :] - pos[..., None, None, :]  # (W, P, 3, 4, 3)
    ma, mb, mc = size * size, -size * halfaxis, half * half
    det = ma * mc - mb * mb
    ok = det.abs() >= math.MINVAL + tolerance(pos).box_edge * ma * mc
    det = choose(ok, det, 1.0).unsqueeze(-1)
    ma, mb, mc = ma.unsqueeze(-1), mb.unsqueeze(-1), mc.unsqueeze(-1).clamp(min=math.MINVAL)
    u = (size * pos).unsqueeze(-1)
    v = (apart * halfaxis[..., None, None, :]).sum(-1)

    # the lines' nearest points, clipped to the edge (x1), then the segment (x2), then the edge
    x1 = (mc * u - mb * v) / det
    out1 = x1.abs() > 1
    x2 = torch.where(out1, (v - clip(x1, 1.0) * mb) / mc, (ma * v - mb * u) / det)
    out2, x2_in = x2.abs() > 1, clip(x2, 1.0)
    again = (u - x2_in * mb) / ma
    # MuJoCo remembers the first clip even where the second clip brings x1 back inside
    out_again = out2 & (again.abs() > 1)
    inner = ~(out1 | out_again)
    upper = torch.where(out_again, again, x1) > 1
    x1, x2 = clip(torch.where(out2, again, x1), 1.0), x2_in

    gap = apart - x2.unsqueeze(-1) * halfaxis[..., None, None, :]
    gap = gap + (x1 * size.unsqueeze(-1)).unsqueeze(-1) * identity.unsqueeze(-2)
    return (gap * gap).sum(-1), ok.unsqueeze(-1), x2, x1, inner, upper


def _second(
    near: _Nearest, pos: Tensor, axis: Tensor, halfaxis: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """How far along the segment from the nearest point the second one is, and if there is one."""
    moves = halfaxis.abs() > 0
    length = choose(moves, halfaxis, 1.0)
    across = choose(moves, 2 * size / length.abs(), FAR)  # segment that crosses the box
    positive = halfaxis > 0
    turned = positive ^ near.corner  # axes along which the segment runs back over the box

    # at a corner: follow the edge to whose axis the segment is close, or else the face
    count = turned.sum(-1, keepdim=True)
    single = count == 1
    lead = turned == single
    way = sign(single, pos)
    follow = _pick(lead, axis * axis) > 0.5
    by_edge = torch.minimum(1 - way * near.along, _least(lead, across)) * way
    by_face = torch.minimum(1 + way * near.along, _least(~lead, across)) * -way
    at_corner = torch.where(follow, by_edge, by_face)

    # on an edge: over the face to which the segment is closer, to the end of the face or the edge
    other = turned & ~near.edge
    steep = axis.abs()
    next1, next2 = near.edge.roll(1, -1), near.edge.roll(2, -1)
    over = torch.where(_pick(next1, steep) > _pick(next2, steep), next1, next2)
    ahead = (other & over).any(-1, keepdim=True)
    way = sign(ahead, pos)
    to_end = sign((positive & near.edge).any(-1, keepdim=True) ^ ahead, pos)
    along_edge = 0.5 * (1 + to_end * near.on_box) * _least(near.edge, across)
    on_edge = torch.minimum(1 - way * near.along, _least(over, across))
    on_edge = torch.minimum(on_edge, along_edge) * way

    # above a face: towards the other end, as far as the face goes
    way = -near.along
    start = pos + near.along * halfaxis
    bounds = torch.stack([size - start, -size - start], -2) * (way / length).unsqueeze(-2)
    counts = (moves & ~near.face).unsqueeze(-2) & (bounds > 0)
    over_face = choose(counts, bounds, 2.0).amin((-1, -2)).clamp(max=2.0).unsqueeze(-1) * way

    any_corner = (count == 1) | (count == 2)
    any_edge = other.sum(-1, keepdim=True) == 1
    step = torch.where(near.inner, on_edge, at_corner)
    step = torch.where(near.on_edge, step, over_face)
    found = torch.where(near.inner, any_edge, any_corner)
    found = torch.where(near.on_edge, found, near.face.any(-1, keepdim=True))
    return choose(found, step, 0.0), found


def _least(mask: Tensor, value: Tensor) -> Tensor:
    return choose(mask, value, FAR).amin(-1, keepdim=True)
