"""Narrowphase collision of two boxes; contract in `collide`.

The separating axis test picks the axis of least penetration among the 6 face normals and the 9
cross products of edges. An edge axis gives one contact, between the two supporting edges. A face
gives the vertices of the overlap of that face and the most opposed face of the other box. This
overlap of two convex quadrilaterals has at most 8 sides, each a part of a side of one of them, so
each of the 8 sides owns a slot for the point where its part begins: no list to compact.
Source: the contact sets of MuJoCo 4.0, including its preferences between nearly equal axes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alloy.ops.reference.collide_shared import (
    FAR,
    Contacts,
    choose,
    clip,
    dot,
    first,
    make_frame,
    sign,
    table,
    to_local,
    to_world,
    tolerance,
)

_EDGE_BIAS = 1e-6  # an edge axis must be better than the best face by this fraction
_ALIAS_COS = 0.99  # an edge axis this close to the best face's normal...
_ALIAS_GAIN = 0.05  # ... must be better by this fraction


def _cross_entry(row: int, col: int, i: int, j: int, c: int) -> float:
    """Entry (row, col) of a rotation in component c of e_i x (column j)."""
    if j != col or {i, c, row} != {0, 1, 2}:
        return 0.0
    return 1.0 if (c - i) % 3 == 2 else -1.0


_3 = range(3)
_CROSS = tuple(
    tuple(_cross_entry(row, col, i, j, c) for i in _3 for j in _3 for c in _3)
    for row in _3
    for col in _3
)
# the cross product is normal to axis j of box 2, also in rounding
_NOT_J = tuple(tuple(float(k != j) for k in _3) for _ in _3 for j in _3)

# cyclic permutations that bring axis a to z: rows (a + 1, a + 2, a)
TO_Z = tuple(tuple(float(c == (a + 1 + r) % 3) for r in _3 for c in _3) for a in _3)
_TO_XY = tuple(rows[:6] for rows in TO_Z)

# the square [-1, 1]^2, counter-clockwise: the 4 starts of its sides, then their directions
_SQUARE = (
    (-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0),
    (2.0, 0.0), (0.0, 2.0), (-2.0, 0.0), (0.0, -2.0),
)  # fmt: skip
_IS_START = ((1.0,),) * 4 + ((0.0,),) * 4
# (a, b, c, d) -> (d, -b, -c, a), the adjugate
_ADJUGATE = (
    (0.0, 0.0, 0.0, 1.0), (0.0, -1.0, 0.0, 0.0), (0.0, 0.0, -1.0, 0.0), (1.0, 0.0, 0.0, 0.0),
)  # fmt: skip
_EARLIER = tuple(tuple(float(j < k) for j in range(8)) for k in range(8))


def box_box(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """One contact of two edges or the overlap of two faces; 8 slots."""
    apart = pos2 - pos1
    rot = mat1.mT @ mat2
    at1, at2 = to_local(mat1, apart), to_local(mat2, -apart)  # the other's centre
    margin = margin.unsqueeze(-1)
    axis = _separating_axis(rot, at1, at2, size1, size2, margin)

    edge_dist, edge_pos, edge_normal = _edge_contact(axis, rot, at1, size1, size2)
    edge_pos, edge_normal = pos1 + to_world(mat1, edge_pos), to_world(mat1, edge_normal)

    box1 = axis.face[..., :3].any(-1, keepdim=True)  # box 1 owns the face
    box1_mat = box1.unsqueeze(-1)
    points, to_face, used = _face_contacts(
        torch.where(box1, axis.face[..., :3], axis.face[..., 3:]),
        torch.where(box1_mat, rot, rot.mT),
        torch.where(box1, at1, at2),
        torch.where(box1, size1, size2),
        torch.where(box1, size2, size1),
        margin,
    )
    axes = to_face @ torch.where(box1_mat, mat1, mat2).mT
    dist, half = points[..., 2], points * table((1.0, 1.0, 0.5), points)
    reach = dot(to_face[..., 2, :].abs(), torch.where(box1, size1, size2))  # centre to face
    face = torch.where(box1, pos1, pos2) + reach * axes[..., 2, :]
    face_pos = face.unsqueeze(-2) + half @ axes
    face_normal = axes[..., 2, :] * sign(box1, axes)

    edge = axis.is_edge
    slot0 = table((1.0,) + (0.0,) * 7, dist).bool()
    used = torch.where(edge, slot0 & (edge_dist <= axis.limit), used) & axis.touch
    dist = choose(used, torch.where(edge, edge_dist, dist), FAR)
    pos = torch.where(edge.unsqueeze(-1), edge_pos.unsqueeze(-2), face_pos)
    frame = make_frame(torch.where(edge, edge_normal, face_normal))
    return dist, pos, frame.unsqueeze(-3).expand(*pos.shape, 3)


class _Axis(NamedTuple):
    """The axis of least penetration."""

    touch: Tensor  # (W, P, 1) no axis separates the boxes
    limit: Tensor  # (1|W, P, 1) separation up to which they touch: margin and rounding
    face: Tensor  # (W, P, 6) best face normal, one-hot: of box 1, of box 2
    is_edge: Tensor  # (W, P, 1) an edge axis is better than that
    edge: Tensor  # (W, P, 3, 3) best edge axis, one-hot by edge of box 1 and of box 2
    normal: Tensor  # (W, P, 6) that edge axis in the frame of box 1 and of box 2, either way


def _separating_axis(
    rot: Tensor, at1: Tensor, at2: Tensor, size1: Tensor, size2: Tensor, margin: Tensor
) -> _Axis:
    tol = tolerance(rot)
    size = torch.cat(torch.broadcast_tensors(size1, size2), -1)
    scale = size.sum(-1, keepdim=True)
    limit = margin + tol.separation * scale

    absrot = rot.abs()
    reach = torch.cat([to_world(absrot, size2), to_local(absrot, size1)], -1)
    sep_face = torch.cat([at1, at2], -1).abs() - size - reach
    best_face = sep_face.amax(-1, keepdim=True)
    face = first(sep_face >= best_face)

    # the 9 unit edge axes in both frames (W, P, 9, 6); parallel edges have none
    cross = (rot.flatten(-2) @ table(_CROSS, rot)).unflatten(-1, (9, 3))
    square = dot(cross, cross)
    valid = square >= tol.cross
    cross = cross / choose(valid, square, 1.0).sqrt()
    both = torch.cat([cross, (cross @ rot) * table(_NOT_J, rot)], -1)
    reach = (both.abs() * size.unsqueeze(-2)).sum(-1)
    sep_edge = (cross * at1.unsqueeze(-2)).sum(-1).abs() - reach
    sep_edge = choose(valid.squeeze(-1), sep_edge, -FAR)

    best_edge = sep_edge.amax(-1, keepdim=True)
    beaten = best_edge - _EDGE_BIAS * best_edge.abs()
    edge = first(sep_edge >= beaten)
    normal = choose(edge.unsqueeze(-1), both, 0.0).sum(-2)
    alias = choose(face, normal.abs(), 0.0).sum(-1, keepdim=True)
    gain = _ALIAS_GAIN * best_face.abs() + tol.noise * scale.clamp(min=1.0)
    keep_face = (alias > _ALIAS_COS) & (best_edge < best_face + gain)
    return _Axis(
        touch=torch.maximum(best_face, best_edge) <= limit,
        limit=limit,
        face=face,
        is_edge=(beaten > best_face) & ~keep_face,
        edge=edge.unflatten(-1, (3, 3)),
        normal=normal,
    )


def _edge_contact(
    axis: _Axis, rot: Tensor, at1: Tensor, size1: Tensor, size2: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Contact of the two supporting edges in the frame of box 1: dist, pos, normal."""
    normal = axis.normal * sign(dot(axis.normal[..., :3], at1) >= 0, rot)
    out1, out2 = (normal * table((1.0, 1.0, 1.0, -1.0, -1.0, -1.0), rot) >= 0).split(3, -1)
    edge = axis.edge.to(rot.dtype)
    edge1, edge2 = edge.sum(-1), edge.sum(-2)  # directions in frames 1 and 2
    normal = normal[..., :3]
    middle1 = torch.where(out1, size1, -size1) * (1 - edge1)
    middle2 = at1 + to_world(rot, torch.where(out2, size2, -size2) * (1 - edge2))
    along2 = to_world(rot, edge2)
    half1, half2 = dot(size1, edge1), dot(size2, edge2)

    # nearest points of the lines, then clipped to one edge, the other, and the first again
    gap = middle2 - middle1
    cosine, gap1, gap2 = dot(edge1, along2), dot(edge1, gap), dot(along2, gap)
    sine2 = (1 - cosine * cosine).clamp(min=tolerance(rot).cross)
    s = clip((gap1 - cosine * gap2) / sine2, half1)
    t = clip(cosine * s - gap2, half2)
    s = clip(gap1 + cosine * t, half1)
    point1, point2 = middle1 + s * edge1, middle2 + t * along2
    return dot(point2 - point1, normal), 0.5 * (point1 + point2), normal


def _face_contacts(
    face: Tensor, rot: Tensor, at: Tensor, size: Tensor, other: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Overlap of a face of one box, its owner, with the most opposed face of the other box.

    In the owner's frame `face` is the one-hot axis of the face, rot and at are the other box's
    pose; `size` are the owner's and `other` the other's half sizes. Returns points (W, P, 8, 3) of
    the other box in the face's frame (x, y in the face, z its outward normal, origin on the face),
    the rotation to that frame from the owner's (W, P, 3, 3), and which points are contacts.
    """
    hot = face.to(rot.dtype)
    normal = hot * sign(dot(hot, at) >= 0, rot)  # towards the other box
    to_face = torch.cat([hot @ table(_TO_XY, rot), normal], -1).unflatten(-1, (3, 3))
    size = to_world(to_face, size).abs()
    rot = to_face @ rot

    slant = rot[..., 2, :]
    facing = first(slant.abs() >= slant.abs().amax(-1, keepdim=True)).to(rot.dtype)
    last = (facing @ table(TO_Z, rot)).unflatten(-1, (3, 3))
    sides = last @ (rot * other.unsqueeze(-2)).mT  # rows: half sides u, v of its face, its normal
    down = sides[..., 2, :] * sign(sides[..., 2, 2:] <= 0, rot)
    center = to_world(to_face, at) + down - size * table((0.0, 0.0, 1.0), size)

    # both outlines counter-clockwise
    u, v = sides[..., 0, :], sides[..., 1, :]
    det = u[..., :1] * v[..., 1:2] - u[..., 1:2] * v[..., :1]
    spread = torch.stack([u, v * sign(det >= 0, rot)], -2)  # (W, P, 2, 3)
    uv, used = _overlap(center[..., :2], spread[..., :2], det.abs(), size[..., :2])
    points = center.unsqueeze(-2) + uv @ spread
    used = used & (points[..., 2] <= margin)
    return points, to_face, used & ~_repeated(points[..., :2], used, size[..., :2])


def _overlap(center: Tensor, spread: Tensor, det: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Vertices of the overlap of a parallelogram and a rectangle, both counter-clockwise.

    The parallelogram is center (..., 2) + [-1, 1] u + [-1, 1] v, with u, v the rows of spread and
    det > 0 their determinant; the rectangle has half sizes `size` about the origin. Returns where
    the overlap runs into each of the 4 + 4 sides, in (u, v) (..., 8, 2), and if it does (..., 8).
    """
    square, center, box = table(_SQUARE, center), center.unsqueeze(-2), size.unsqueeze(-2)
    center = center * table(_IS_START, center)
    inverse = (spread.flatten(-2) @ table(_ADJUGATE, spread) / det).unflatten(-1, (2, 2))

    # each outline in units in which the other is the square [-1, 1]^2
    in_box = (center + square @ spread) / box
    in_uv = (square * box - center) @ inverse
    start, step = torch.stack([in_box, in_uv], -3).split(4, -2)  # (W, P, 2, 4, 2)
    enter, used = _enter_square(start, step)

    start, step = torch.stack([square.expand_as(in_uv), in_uv], -3).split(4, -2)
    return (start + enter * step).flatten(-3, -2), used.flatten(-2)


def _enter_square(start: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Where in [0, 1] a segment enters [-1, 1]^2 (..., n, 1), and if it does at all (..., n)."""
    tol = tolerance(start)
    level = step.abs() <= tol.slope
    within = start.abs() <= 1 + tol.clip
    towards = sign(step >= 0, step)
    length = choose(level, 1.0, step)
    enter = torch.where(level, choose(within, 0.0, 2.0), (-towards - start) / length)
    leave = torch.where(level, choose(within, 1.0, -1.0), (towards - start) / length)
    enter = enter.amax(-1, keepdim=True).clamp(min=0.0)
    leave = leave.amin(-1).clamp(max=1.0)
    return enter.clamp(max=1.0), enter.squeeze(-1) <= leave + tol.clip


def _repeated(points: Tensor, used: Tensor, size: Tensor) -> Tensor:
    """Whether a point (..., 8, 2) is the same as an earlier one in use; (..., 8)."""
    apart = points.unsqueeze(-2) - points.unsqueeze(-3)
    near = (apart * apart).sum(-1) < tolerance(points).duplicate * dot(size, size).unsqueeze(-1)
    return (near & used.unsqueeze(-2) & table(_EARLIER, points).bool()).any(-1)
