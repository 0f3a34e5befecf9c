"""Narrowphase collision of convex shapes that have no formula of their own; contract in `collide`.

One direction of least overlap or distance by GJK and an expanding polytope, made exact by Newton's
method where both surfaces are curved there; then, of shapes with faces, up to four contacts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_shared import (
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    FAR,
    SPHERE,
    Contacts,
    choose,
    dot,
    make_frame,
    on_plane,
    table,
    to_local,
)
from alloy.ops.reference.convex import (
    Convex,
    Mesh,
    convex_of,
    difference,
    rows,
    where_pairs,
)
from alloy.ops.reference.convex_clip import SLOTS, four_from
from alloy.ops.reference.convex_depth import Depth, overlap
from alloy.ops.reference.convex_faces import Manifold, has_faces, manifold
from alloy.ops.reference.convex_gjk import SHIFT, Apart, separate
from alloy.ops.reference.convex_polish import polish


def convex_slots(kind: tuple[int, int]) -> int:
    """Contact slots of a pair of convex shapes."""
    if not (has_faces(kind[0]) and has_faces(kind[1])):
        return 1
    return 2 if kind[0] == CAPSULE else SLOTS


def convex_collider(kind: tuple[int, int]) -> Callable[..., Contacts]:
    """The collider of two convex shapes, which takes their meshes after the margin."""

    def collide(
        pos1: Tensor, mat1: Tensor, size1: Tensor,
        pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
        mesh1: Mesh | None = None, mesh2: Mesh | None = None,
    ) -> Contacts:  # fmt: skip
        return _collide(kind, (pos1, mat1, size1, mesh1), (pos2, mat2, size2, mesh2), margin)

    return collide


def sets_of(
    kind: tuple[int, int], side1: tuple, side2: tuple
) -> tuple[Convex, Convex, Tensor, Tensor]:
    """Two sets (W, P) in double precision, from the first one's centre; a side is pos to mesh.

    And the radius (..., 1) that the first is to be grown by, and the size (...,) of both together.
    """
    (pos1, mat1, size1, mesh1), (pos2, mat2, size2, mesh2) = side1, side2
    lead = pos1.shape[:-1]
    wide = [x.double() for x in (pos2 - pos1, mat1, size1, mat2, size2)]
    apart, mat1, size1, mat2, size2 = (x.expand(*lead, *x.shape[2:]) for x in wide)
    one = convex_of(kind[0], torch.zeros_like(apart), mat1, size1, mesh1)
    two = convex_of(kind[1], apart, mat2, size2, mesh2)
    radius = size1[..., :1] if kind[0] in (SPHERE, CAPSULE) else torch.zeros_like(apart[..., :1])
    return one, two, radius, (reach(one) + reach(two)).clamp(min=math.MINVAL)


def _collide(kind: tuple[int, int], side1: tuple, side2: tuple, margin: Tensor) -> Contacts:
    pos1 = side1[0]
    dtype, lead = pos1.dtype, pos1.shape[:-1]
    one, two, radius, size = sets_of(kind, side1, side2)
    margin = margin.double().expand(lead).unsqueeze(-1)
    beyond = (margin + radius).squeeze(-1)
    near = (torch.linalg.vector_norm(two.pos, dim=-1) - size <= beyond) & (_gap(one, two) <= beyond)
    dist, point, normal = where_pairs(near, _contacts, one, two, radius, margin, size)
    dist = choose(near.unsqueeze(-1), dist, FAR)
    normal = torch.where(near.unsqueeze(-1), normal, table((1.0, 0.0, 0.0), normal))
    pos = pos1.unsqueeze(-2) + point.to(dtype)
    frame = make_frame(normal.to(dtype)).unsqueeze(-3)
    return dist.to(dtype), pos, frame.expand(*lead, convex_slots(kind), 3, 3)


def _gap(one: Convex, two: Convex) -> Tensor:
    """A lower bound (...,) of the distance of two sets: that of the boxes that hold them.

    Along the axes of the boxes, which are those of the sets' frames.
    """
    (middle1, half1), (middle2, half2) = bounds(one), bounds(two)
    apart = (middle2 - middle1).unsqueeze(-1)
    turn = (one.mat.mT @ two.mat).abs()
    along1 = (one.mat.mT @ apart).squeeze(-1).abs() - half1 - math.rotate(turn, half2)
    along2 = (two.mat.mT @ apart).squeeze(-1).abs() - half2 - math.rotate_inv(turn, half1)
    return torch.maximum(along1, along2).amax(-1)


def _contacts(
    on: Tensor, one: Convex, two: Convex, radius: Tensor, margin: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Dist (..., K), point (..., K, 3) and normal (..., 3) of the pairs that are on."""
    dist, point, normal, touch = single(one, two, on, radius, margin, size)
    point, count = point.unsqueeze(-2), convex_slots((one.kind, two.kind))
    if count == 1:
        return dist, point, normal

    def faces(
        on: Tensor, one: Convex, two: Convex,
        radius: Tensor, margin: Tensor, normal: Tensor, touch: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return manifold(one, two, radius, normal, margin, touch)

    near = (dist <= margin).squeeze(-1) & on
    many = Manifold(*where_pairs(near, faces, one, two, radius, margin, normal, touch))
    found = many.found & near.unsqueeze(-1)
    alone = torch.cat([dist, dist.new_full((*on.shape, count - 1), FAR)], -1)
    return (
        torch.where(found, many.dist[..., :count], alone),
        torch.where(found.unsqueeze(-1), many.point[..., :count, :], point),
        torch.where(found, many.normal, normal),
    )


def plane_mesh(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
    mesh1: Mesh | None, mesh2: Mesh,
) -> Contacts:  # fmt: skip
    """The lowest corner, and three more of the face there that looks down most; 4 slots.

    Of a face of more corners those that span a large area, as far as they lie below the mesh's
    centre. A corner that lies on an edge or in a face, up to rounding, is alone, as in MuJoCo.
    """
    normal = mat1[..., 2]
    down = to_local(mat2, -normal)
    row = mesh2.row.unsqueeze(-1)
    corners = mesh2.corners[mesh2.row]
    best = (corners @ down.unsqueeze(-1)).squeeze(-1).argmax(-1, keepdim=True)
    around = mesh2.around[row, best].squeeze(-2)
    along = (mesh2.face_normal[row, around] @ down.unsqueeze(-1)).squeeze(-1)
    face = around.gather(-1, along.argmax(-1, keepdim=True))
    alone = (mesh2.face_normal[row, face] == 0).all(-1)
    names = torch.where(alone, best, mesh2.face_corner[row, face].squeeze(-2))
    size = torch.where(alone, 1, mesh2.face_size[row, face])
    polygon = rows(corners, names)
    begin = (names == best).to(torch.int8).argmax(-1, keepdim=True)
    points = rows(polygon, four_from(polygon, size, begin))
    dist, pos, frame = on_plane(pos1, mat1, pos2, mat2, points)
    number = torch.arange(SLOTS, device=size.device)
    there = (points @ down.unsqueeze(-1)).squeeze(-1) >= 0
    there = (number == 0) | ((number < size) & there)
    return choose(there, dist, FAR), pos, frame


def reach(body: Convex) -> Tensor:
    """Radius (...,) about its centre of what holds the set."""
    if body.mesh is not None:
        far = body.mesh.extremes[:, 2].double()
        return torch.linalg.vector_norm(far, dim=-1)[body.rows_of_mesh]
    if body.kind == SPHERE:
        return torch.zeros_like(body.pos[..., 0])
    if body.kind == CAPSULE:
        return body.size[..., 1]
    if body.kind == CYLINDER:
        return torch.linalg.vector_norm(body.size[..., :2], dim=-1)
    if body.kind == ELLIPSOID:
        return body.size.amax(-1)
    return torch.linalg.vector_norm(body.size, dim=-1)


def bounds(body: Convex) -> tuple[Tensor, Tensor]:
    """Middle (..., 3) and half sizes (..., 3) of the box along its axes that holds the set."""
    size = body.size
    if body.mesh is not None:
        low, high = body.mesh.extremes[:, :2].double().unbind(1)
        middle, half = (x[body.rows_of_mesh] for x in (0.5 * (low + high), 0.5 * (high - low)))
        return body.pos + math.rotate(body.mat, middle), half
    if body.kind == SPHERE:
        return body.pos, torch.zeros_like(size)
    if body.kind == CAPSULE:
        return body.pos, size[..., 1:2] * table((0.0, 0.0, 1.0), size)
    if body.kind == CYLINDER:
        return body.pos, torch.cat([size[..., :1], size[..., :2]], -1)
    return body.pos, size


def single(
    one: Convex, two: Convex, on: Tensor, radius: Tensor, margin: Tensor, size: Tensor
) -> tuple[Tensor, ...]:
    """Contact dist (..., 1), point and unit normal (..., 3) of the pairs that are on.

    And the points (..., 2, 3, 3) of both sets that span what touches. The first set is grown by
    `radius`; `size` is that of both together. dist is FAR where it is known to be above the margin.
    """
    with torch.no_grad():
        shifted = two._replace(pos=two.pos + size.unsqueeze(-1) * table(SHIFT, two.pos))
        start = separate(one, shifted, on, margin + radius)
        deep = on & start.inside
        depth = _overlap(one, shifted, deep, start, size)
        inside = deep.unsqueeze(-1)
        normal = torch.where(inside, depth.normal, start.normal)
        point1 = torch.where(inside, depth.point1, start.point1)
        point2 = torch.where(inside, depth.point2, start.point2)
        touch = torch.where(inside[..., None, None], depth.touch, start.touch)
        normal, point1, point2 = polish(one, two, (normal, point1, point2), touch, size)
        near = (on & start.near).unsqueeze(-1)
    corner, _ = difference(one, two, normal)
    dist = choose(near, -dot(corner, normal) - radius, FAR)
    return dist, 0.5 * (point1 + radius * normal + point2), normal, touch


def _overlap(one: Convex, two: Convex, on: Tensor, start: Apart, size: Tensor) -> Depth:
    """`overlap` of the pairs that are on."""

    def body(
        on: Tensor, one: Convex, two: Convex, size: Tensor, *begin: Tensor
    ) -> tuple[Tensor, ...]:
        return overlap(one, two, on, Apart(*begin), size)

    return Depth(*where_pairs(on, body, one, two, size, *start))
