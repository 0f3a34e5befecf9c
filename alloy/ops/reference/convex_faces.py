"""Several contacts of two convex sets that lie on each other: a face or an edge, clipped by a face.

MuJoCo takes the faces that look along the direction of least overlap. If they face each other
within 5.1 degrees, the second is clipped by the first; or else an edge is clipped by a face that it
lies along so closely. At most four points are kept, those that span the largest area. A cylinder's
caps count as polygons of 16 sides with a corner on x, its side as the line that touches, a capsule
as such a line.
"""

from __future__ import annotations

from math import cos, pi, sin
from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_shared import (
    BOX,
    CAPSULE,
    CYLINDER,
    EDGE_ALIGNED,
    FAR,
    MESH,
    choose,
    dot,
    sign,
    table,
)
from alloy.ops.reference.convex import Convex, rows
from alloy.ops.reference.convex_clip import SLOTS, clipped, cut, flat, four, packed

_FACING = 0.996  # cosine
_SIDES = 16
_CAP = tuple((cos(2 * pi * k / _SIDES), sin(2 * pi * k / _SIDES)) for k in range(_SIDES))
# corners of the faces +x, -x, +y, -y, +z, -z of a cube, clockwise from outside, in MuJoCo's order
_CUBE = (
    ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, -1.0, -1.0), (1.0, -1.0, 1.0)),
    ((-1.0, 1.0, -1.0), (-1.0, 1.0, 1.0), (-1.0, -1.0, 1.0), (-1.0, -1.0, -1.0)),
    ((-1.0, 1.0, -1.0), (1.0, 1.0, -1.0), (1.0, 1.0, 1.0), (-1.0, 1.0, 1.0)),
    ((-1.0, -1.0, 1.0), (1.0, -1.0, 1.0), (1.0, -1.0, -1.0), (-1.0, -1.0, -1.0)),
    ((-1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (-1.0, -1.0, 1.0)),
    ((1.0, 1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, -1.0), (1.0, -1.0, -1.0)),
)
_LEVEL = 1e-6  # cosine below which a normal is at right angles to a cylinder's axis


class Manifold(NamedTuple):
    """Up to four contacts of each pair."""

    found: Tensor  # (..., 1) bool: they replace the single contact
    dist: Tensor  # (..., 4) FAR where there is none
    point: Tensor  # (..., 4, 3)
    normal: Tensor  # (..., 3)


def has_faces(kind: int) -> bool:
    """Whether a shape has faces or edges that contacts can share."""
    return kind in (CAPSULE, CYLINDER, BOX, MESH)


class _Feature(NamedTuple):
    """What of a set touches along a direction: the faces that hold it, and its edges.

    A corner is in several faces and has several edges, an edge is in two faces, and a face is none
    but itself. Faces are in the order in which they are tried.
    """

    dim: Tensor  # (..., 1) corners that touch: 1, 2, or 3 for more
    normals: Tensor  # (..., K, 3) of its faces
    is_face: Tensor  # (..., K) bool
    faces: Tensor  # (..., K) which ones
    begin: Tensor  # (..., 3) the corner that its edges begin at
    ends: Tensor  # (..., M, 3)
    is_edge: Tensor  # (..., M) bool
    cap: Tensor  # (..., 1) bool: of a cylinder, whose edge is then at no place of its own


def manifold(
    one: Convex, two: Convex, radius: Tensor, normal: Tensor, margin: Tensor, touch: Tensor
) -> Manifold:  # fmt: skip
    """Contacts of faces and edges.

    Args:
        one: a set; it may be a capsule's segment.
        two: another one.
        radius: (..., 1) that the segment is grown by, 0 for other sets.
        normal: (..., 3) of the single contact, from set 1 to set 2.
        margin: (..., 1)
        touch: (..., 2, 3, 3) points of both sets that span what touches.
    """
    first_, second = (
        _feature(body, way, points)
        for body, way, points in zip((one, two), (normal, -normal), touch.unbind(-3), strict=True)
    )
    lift = torch.zeros_like(margin)
    if one.kind == CAPSULE:
        axis = one.mat[..., 2]
        lift = 0.5 * margin  # MuJoCo grows both geoms by half the margin
        # across the axis, and so by less than the radius where the normal leans along it, as there
        out = (radius + lift) * (normal - dot(normal, axis) * axis)
        first_ = first_._replace(begin=first_.begin + out, ends=first_.ends + out.unsqueeze(-2))
    edge1, face2, met = _level(first_, second)
    met = met & (first_.dim <= second.dim)
    normal2, polygon2 = _polygon(two, second, face2)
    options = [(met & ~first_.cap, _on_face(edge1, lift, normal2, polygon2, margin), -normal2)]
    if one.kind != CAPSULE:
        edge2, face1, met2 = _level(second, first_)
        met2 = met2 & ~met & (second.dim < 3)
        normal1, polygon1 = _polygon(one, first_, face1)
        options.append((met2, _on_face(edge2, lift, normal1, polygon1, margin), normal1))
        face1, face2, facing = _facing(first_, second)
        options = [(met & ~facing, way, n) for met, way, n in options]
        normal1, polygon1 = _polygon(one, first_, face1)
        normal2, polygon2 = _polygon(two, second, face2)
        both = _face_on_face(normal1, polygon1, normal2, polygon2, margin)
        options.append((facing, both, -normal2))
    return _chosen(options)


def _chosen(options: list[tuple[Tensor, tuple[Tensor, Tensor], Tensor]]) -> Manifold:
    """The option that holds and has a contact; no two hold."""
    found = torch.zeros_like(options[0][0])
    (dist, point), normal = options[0][1], options[0][2]
    for holds, (its_dist, its_point), its_normal in options:
        holds = holds & (its_dist < FAR).any(-1, keepdim=True)
        dist = torch.where(holds, its_dist, dist)
        point = torch.where(holds.unsqueeze(-1), its_point, point)
        normal = torch.where(holds, its_normal, normal)
        found = found | holds
    return Manifold(found, dist, point, normal)


def _level(edged: _Feature, faced: _Feature) -> tuple[Tensor, Tensor, Tensor]:
    """The first face that one of the edges lies along: edge (..., 2, 3), face (..., 1), if any."""
    along = edged.ends - edged.begin.unsqueeze(-2)
    length = torch.linalg.vector_norm(along, dim=-1, keepdim=True)
    along = along / length.clamp(min=1e-30)
    slope = (faced.normals @ along.mT).abs()  # (..., K, M)
    fits = (slope < EDGE_ALIGNED) & faced.is_face.unsqueeze(-1) & edged.is_edge.unsqueeze(-2)
    fits, count = fits.flatten(-2), along.shape[-2]
    place = fits.to(torch.int8).argmax(-1, keepdim=True)
    end = rows(edged.ends, place % count)
    edge = torch.cat([edged.begin.unsqueeze(-2).expand_as(end), end], -2)
    return edge, place // count, fits.any(-1, keepdim=True)


def _facing(one: _Feature, two: _Feature) -> tuple[Tensor, Tensor, Tensor]:
    """The two faces (..., 1) that face each other most, if any do."""
    cosine = one.normals @ two.normals.mT
    faces = one.is_face.unsqueeze(-1) & two.is_face.unsqueeze(-2)
    cosine, count = choose(faces, cosine, 0.0).flatten(-2), two.normals.shape[-2]
    place = cosine.argmin(-1, keepdim=True)
    return place // count, place % count, cosine.gather(-1, place) < -_FACING


def _feature(body: Convex, way: Tensor, touch: Tensor) -> _Feature:
    local = math.rotate_inv(body.mat, way)
    if body.kind == BOX:
        out = _box_feature(body, local)
    elif body.kind == CYLINDER:
        out = _cylinder_feature(body, local)
    elif body.kind == CAPSULE:
        out = _capsule_feature(body, local)
    else:
        out = _mesh_feature(body, local, touch)
    corners = torch.cat([out.begin.unsqueeze(-2), out.ends], -2)
    corners = body.pos.unsqueeze(-2) + math.rotate(body.mat.unsqueeze(-3), corners)
    return out._replace(
        normals=math.rotate(body.mat.unsqueeze(-3), out.normals),
        begin=corners[..., 0, :],
        ends=corners[..., 1:, :],
    )


def _box_feature(body: Convex, way: Tensor) -> _Feature:
    """Its normal has a component along the axis of every face that it is in."""
    across = way.abs() > _LEVEL
    side = sign(way >= 0, way)
    corner = body.size * side
    eye = torch.eye(3, dtype=way.dtype, device=way.device)
    dim = (~across).sum(-1, keepdim=True) + 1
    # an edge is along the axis that the normal has nothing of; a corner has all three
    is_edge = (~across | (dim == 1)) & (dim < 3)
    axis = torch.arange(3, device=way.device)
    faces = torch.where(side > 0, 2 * axis, 2 * axis + 1)
    ends = corner.unsqueeze(-2) * (1 - 2 * eye)
    cap = torch.zeros_like(is_edge[..., :1])
    return _Feature(dim, side.unsqueeze(-1) * eye, across, faces, corner, ends, is_edge, cap)


def _cylinder_feature(body: Convex, way: Tensor) -> _Feature:
    """A cap, its rim, or the side; MuJoCo takes each for one corner, with a line along the side.

    Of a cap that line begins where the search ended. MuJoCo still looks whether a face is level
    with it, and then not whether an edge lies on the cap.
    """
    flat = way[..., :2]
    length = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
    edge = body.size[..., :1] * flat / length.clamp(min=math.MINVAL)
    up = sign(way[..., 2:] >= 0, way)
    high = up * body.size[..., 1:2]
    facing = way[..., 2:].abs() > _LEVEL
    cap = length <= _LEVEL
    dim = torch.ones_like(up).to(torch.int64)
    normal = torch.cat([torch.zeros_like(flat), up], -1).unsqueeze(-2)
    faces = torch.where(up > 0, dim - 1, dim)
    begin, end = torch.cat([edge, high], -1), torch.cat([edge, -high], -1)
    return _Feature(dim, normal, facing, faces, begin, end.unsqueeze(-2), torch.ones_like(cap), cap)


def _capsule_feature(body: Convex, way: Tensor) -> _Feature:
    """Its line, whatever touches."""
    half = body.size[..., 1:2] * table((0.0, 0.0, 1.0), way)
    dim = torch.ones_like(way[..., :1]).to(torch.int64)
    none = torch.zeros_like(dim, dtype=torch.bool)
    half = half.expand_as(way)
    return _Feature(
        dim, torch.zeros_like(way).unsqueeze(-2), none, dim, half, -half.unsqueeze(-2), ~none, none
    )


def _mesh_feature(body: Convex, way: Tensor, touch: Tensor) -> _Feature:
    """The corners that touch, by their points (..., 3, 3), and the faces that have all of them.

    Which corners these are decides, not how level they lie: the faces of a mesh that comes from a
    file are plane up to single precision only.
    """
    corners = body.hull
    points = math.rotate_inv(body.mat.unsqueeze(-3), touch - body.pos.unsqueeze(-2))
    # some corners are 1e-8 m from each other: no squares less products here
    apart = torch.cdist(points, corners, compute_mode="donot_use_mm_for_euclid_dist")
    one, two, three = apart.argmin(-1).split(1, -1)
    two = torch.where(two == one, three, two)
    single, edge = two == one, (three == one) | (three == two)
    dim = torch.where(single, 1, torch.where(edge, 2, 3))
    faces, others, thirds = (body.table("around", k).squeeze(-2) for k in (one, two, three))
    normals = body.table("face_normal", faces)
    holds = (faces.unsqueeze(-1) == others.unsqueeze(-2)).any(-1)
    # MuJoCo looks at two faces of an edge, and at one of three corners; some meshes have more
    holds = holds & ((holds.cumsum(-1) <= 2) | (dim == 1))
    holds = holds & ((faces.unsqueeze(-1) == thirds.unsqueeze(-2)).any(-1) | (dim < 3))
    holds = holds & ((holds.cumsum(-1) == 1) | (dim < 3))
    facing = (normals @ way.unsqueeze(-1)).squeeze(-1) > _LEVEL
    around = body.table("neighbours", one).squeeze(-2)
    ends = rows(corners, torch.where(dim == 2, two, around))
    # of a corner that lies on an edge or in a face MuJoCo knows neither faces nor edges
    known = (normals != 0).any(-1).any(-1, keepdim=True)
    is_edge = ((dim == 2) | ((dim == 1) & known)).expand_as(faces)
    cap = torch.zeros_like(dim, dtype=torch.bool)
    begin = rows(corners, one).squeeze(-2)
    return _Feature(dim, normals, holds & facing, faces, begin, ends, is_edge, cap)


def _polygon(body: Convex, feature: _Feature, face: Tensor) -> tuple[Tensor, ...]:
    """Normal (..., 3) and corners (..., E, 3) of a feature's face (..., 1)."""
    normal = rows(feature.normals, face).squeeze(-2)
    face = feature.faces.gather(-1, face)
    if body.kind == BOX:
        corners = table(_CUBE, normal)[face.squeeze(-1)] * body.size.unsqueeze(-2)
    elif body.kind == CYLINDER:
        up = (1.0 - 2.0 * face).unsqueeze(-2)
        rim, cap = body.size[..., None, :1] * table(_CAP, normal), body.size[..., None, 1:2] * up
        corners = torch.cat(torch.broadcast_tensors(rim[..., :1], -up * rim[..., 1:], cap), -1)
    else:
        names = body.table("face_corner", face).squeeze(-2).flip(-1)
        corners = rows(body.hull, names)
    return normal, body.pos.unsqueeze(-2) + math.rotate(body.mat.unsqueeze(-3), corners)


def _on_face(
    edge: Tensor, lift: Tensor, face: Tensor, polygon: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor]:
    """Contacts of an edge (..., 2, 3) on a face: dist (..., 4), point (..., 4, 3).

    `lift` is how much farther out than its geom the edge lies.
    """
    along = edge[..., 1, :] - edge[..., 0, :]
    level = flat(torch.cat([polygon, edge], -2), polygon[..., 0, :], face)
    corners, ends = level[..., :-2, :], level[..., -2:, :]
    enter, leave, meets = clipped(ends[..., :1, :], ends[..., 1:, :], corners)
    at = torch.cat([enter, leave], -1)  # (..., 2)
    point = edge[..., :1, :] + at.unsqueeze(-1) * along.unsqueeze(-2)
    high = ((point - polygon[..., :1, :]) * face.unsqueeze(-2)).sum(-1)
    dist = high + lift
    kept = meets & (dist <= margin)
    # MuJoCo cuts a polygon of two corners: where a cut end is the only contact it appears twice
    cut = torch.cat([enter > 0, leave < 1], -1)
    both = kept.all(-1, keepdim=True)
    twice = (kept & cut).any(-1, keepdim=True) & ~both
    alone = choose(kept.unsqueeze(-1), point, 0.0).sum(-2, keepdim=True)
    point = torch.where((twice & ~both).unsqueeze(-1), alone, point)
    dist = torch.where(twice, choose(kept, dist, 0.0).sum(-1, keepdim=True), dist)
    kept = kept | twice
    dist = choose(kept, dist, FAR)
    point = point + (lift - 0.5 * choose(kept, dist, 0.0)).unsqueeze(-1) * face.unsqueeze(-2)
    pad = dist.new_full((*dist.shape[:-1], SLOTS - 2), FAR)
    room = point.new_zeros(*point.shape[:-2], SLOTS - 2, 3)
    return torch.cat([dist, pad], -1), torch.cat([point, room], -2)


def _face_on_face(
    face1: Tensor, polygon1: Tensor, face2: Tensor, polygon2: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor]:
    """Contacts of face 2 within the sides of face 1: dist (..., 4), point (..., 4, 3)."""
    polygon, count = cut(polygon2, polygon1, face1)
    origin = polygon1[..., :1, :]
    above = ((polygon - origin) * face1.unsqueeze(-2)).sum(-1)
    number = torch.arange(polygon.shape[-2], device=polygon.device)
    kept = (number < count) & (above <= margin)
    place = torch.where(kept, kept.to(torch.int64).cumsum(-1) - 1, number.shape[0])
    polygon, count = packed(polygon, place), kept.sum(-1, keepdim=True)
    point = rows(polygon, four(polygon, count))
    # MuJoCo's points lie on face 1, and it measures the way there, along that one's normal, along
    # face 2's: of a polygon that is plane up to single precision only, this is not to its plane
    above = ((point - origin) * face1.unsqueeze(-2)).sum(-1, keepdim=True)
    base = point - above * face1.unsqueeze(-2)
    dist = -above * dot(face1, face2).unsqueeze(-2)
    there = torch.arange(SLOTS, device=point.device) < count
    return choose(there, dist.squeeze(-1), FAR), base - 0.5 * dist * face2.unsqueeze(-2)
