"""How deep two convex sets are inside each other: the expanding polytope algorithm.

Source: van den Bergen (2001), Proximity queries and penetration depth computation on 3D game
objects. A polytope within the Minkowski difference D grows from the tetrahedron that holds the
origin: its face nearest to the origin moves out to D's corner in that direction, until D ends
there. A face that sees the new corner goes, and the rim of what went is joined to the corner.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import while_loop
from alloy.ops.reference.collide_shared import choose, dot
from alloy.ops.reference.convex import (
    Convex,
    difference,
    rows,
    where_pairs,
)
from alloy.ops.reference.convex_gjk import Apart, barycentric

# corners of the polytope: room for so many is made in turn; its faces are at most twice as many
_ROOM = (8, 16, 48, 160)
# of the size: D ends at a face that cannot move out by more; where it is curved, others go on
_GROWTH, _GROWTH_CURVED = 1e-11, 1e-5
_SEEN = 1e-13  # of the size: a face sees a corner that is farther out than this
_OUTWARD = ((0, 1, 2), (0, 3, 1), (0, 2, 3), (1, 3, 2))  # faces of a tetrahedron


class Depth(NamedTuple):
    """The least overlap of each pair that meets."""

    normal: Tensor  # (..., 3) unit; set 2 leaves set 1 on the shortest way along it
    point1: Tensor  # (..., 3) of set 1 and of set 2, as far apart as the sets overlap
    point2: Tensor
    touch: Tensor  # (..., 2, 3, 3) the points of set 1 and of set 2 that span the nearest face


class _Faces(NamedTuple):
    corner: Tensor  # (..., F, 3) which corners, counter-clockwise from outside
    normal: Tensor  # (..., F, 3) unit, outward
    offset: Tensor  # (..., F) distance from the origin; infinite where there is no face


def overlap(one: Convex, two: Convex, on: Tensor, start: Apart, size: Tensor) -> Depth:
    """Directions and points of least overlap of the pairs that are `on`.

    Args:
        one: a set near the origin.
        two: another one.
        on: (...,) bool; where it is false the result means nothing.
        start: what GJK left: a tetrahedron that holds the origin.
        size: (...,) of both sets together, which the tolerances are relative to.
    """
    lead = on.shape
    a, b, c, d = start.simplex.unbind(-2)
    mirrored = dot(math.cross(b - a, c - a), d - a) > 0  # then the faces look inward
    swap = mirrored.unsqueeze(-1)
    order = math.constant((1, 0, 2, 3), torch.int64, on.device)
    corners = torch.where(swap, start.simplex[..., order, :], start.simplex)
    points = torch.where(swap, start.simplex1[..., order, :], start.simplex1)
    which = math.constant(_OUTWARD, torch.int64, on.device).expand(*lead, 4, 3)
    normal, offset = _planes(corners, which, torch.ones_like(which[..., 0], dtype=torch.bool))
    count = torch.full(lead, 4, device=on.device)
    best = torch.full(lead, float("inf"), dtype=corners.dtype, device=on.device)
    grown = (count, best, corners[..., 0, :], corners, points, which, normal, offset)
    return _grown(one, two, size, on, grown, _ROOM)


def _grown(
    one: Convex, two: Convex, size: Tensor, on: Tensor, grown: tuple[Tensor, ...],
    room: tuple[int, ...],
) -> Depth:  # fmt: skip
    """Grow polytopes in rounds with more and more room; each takes only those that need it."""
    count, best, best_normal, corners, points, which, normal, offset = grown
    had = corners.shape[-2]
    more, faces = room[0] - had, 2 * room[0] - which.shape[-2]
    carry = (
        on, count, best, best_normal, _longer(corners, more), _longer(points, more),
        _longer(which, faces), _longer(normal, faces),
        _longer(offset.unsqueeze(-1), faces, float("inf")).squeeze(-1),
    )  # fmt: skip

    def body(on: Tensor, *carry: Tensor) -> tuple[Tensor, ...]:
        return _grow(one, two, size, on, *carry)

    on, *grown_new = while_loop(body, carry, room[0] - had)
    found = _witness(grown_new[2], grown_new[3], grown_new[4], _Faces(*grown_new[5:]))
    if len(room) == 1:
        return found

    def later(
        on: Tensor, one: Convex, two: Convex, size: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        return _grown(one, two, size, on, rest, room[1:])

    deeper = where_pairs(on, later, one, two, size, *grown_new)
    masks = (on.reshape(*on.shape, *([1] * (x.ndim - on.ndim))) for x in found)
    return Depth(
        *(torch.where(mask, x, y) for mask, x, y in zip(masks, deeper, found, strict=True))
    )


def _longer(values: Tensor, more: int, fill: float = 0.0) -> Tensor:
    """Values (..., n, k) with more rows."""
    room = values.new_full((*values.shape[:-2], more, values.shape[-1]), fill)
    return torch.cat([values, room], -2)


def _planes(corners: Tensor, which: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """Unit normals (..., F, 3) and distances (..., F) of faces."""
    a, b, c = (rows(corners, which[..., k]) for k in range(3))
    normal = math.cross(b - a, c - a)
    length = torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
    thin = length < 1e-30
    normal = normal / choose(thin, 1.0, length)
    offset = (normal * a).sum(-1)
    return normal, choose(alive & ~thin.squeeze(-1), offset, float("inf"))


def _grow(
    one: Convex, two: Convex, size: Tensor, on: Tensor, count: Tensor, best: Tensor,
    best_normal: Tensor, corners: Tensor, points: Tensor, which: Tensor, normal: Tensor,
    offset: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Move the nearest face of every polytope out to a new corner."""
    least, nearest = offset.min(-1)
    way = rows(normal, nearest.unsqueeze(-1)).squeeze(-2)
    corner, point = difference(one, two, way)
    reach = (way * corner).sum(-1)
    better = on & (reach < best)
    best = torch.where(better, reach, best)
    best_normal = torch.where(better.unsqueeze(-1), way, best_normal)
    # the overlap is at least the nearest face's distance and at most the least reach so far
    growth = _GROWTH_CURVED if one.curved or two.curved else _GROWTH
    on = on & (best - least > growth * size) & (reach - least > _SEEN * size)

    index = torch.arange(corners.shape[-2], device=on.device)
    new = (on.unsqueeze(-1) & (index == count.unsqueeze(-1))).unsqueeze(-1)
    corners = torch.where(new, corner.unsqueeze(-2), corners)
    points = torch.where(new, point.unsqueeze(-2), points)
    sees = (normal @ corner.unsqueeze(-1)).squeeze(-1) > offset + _SEEN * size.unsqueeze(-1)
    sees = sees & on.unsqueeze(-1)
    faces = _join(_Faces(which, normal, offset), sees, corners, count)
    return on, count + on, best, best_normal, corners, points, *faces


def _join(faces: _Faces, sees: Tensor, corners: Tensor, count: Tensor) -> _Faces:
    """Join the rim of the faces (..., F) that see the new corner to it.

    From each corner u of the rim one edge goes on to v and one comes from t, and they make a face
    each, in the free slots in turn. Inside the rim every edge is there both ways, so that the sums
    over all edges of the faces that go, of what each corner's edges lead to less what comes to it,
    are v - t, and v^2 - t^2 of the squares.
    """
    begin, end = faces.corner.flatten(-2), faces.corner.roll(-1, -1).flatten(-2)
    going = sees.unsqueeze(-1).expand_as(faces.corner).flatten(-2).to(torch.int64)
    most = corners.shape[-2]
    none = torch.zeros(*count.shape, most, dtype=torch.int64, device=count.device)
    ahead, behind = end * going, begin * going
    gap = none.scatter_add(-1, begin, ahead) - none.scatter_add(-1, end, behind)
    square = none.scatter_add(-1, begin, ahead * end) - none.scatter_add(-1, end, behind * begin)
    on_rim = gap != 0
    after = (torch.where(on_rim, square // torch.where(on_rim, gap, 1), 0) + gap) // 2

    free = sees | ~torch.isfinite(faces.offset)
    slots = _listed(free, most)
    order = _listed(on_rim, most)
    used = torch.arange(most, device=free.device) < on_rim.sum(-1, keepdim=True)
    new = torch.stack([order, after.gather(-1, order), count.unsqueeze(-1).expand_as(order)], -1)
    normal, distance = _planes(corners, new, used)
    offset = choose(sees, float("inf"), faces.offset)
    place = torch.where(used, slots, 2 * most)
    return _Faces(
        _put(faces.corner, place, new),
        _put(faces.normal, place, normal),
        _put(offset.unsqueeze(-1), place, distance.unsqueeze(-1)).squeeze(-1),
    )


def _listed(mask: Tensor, most: int) -> Tensor:
    """The first places (..., most) where a mask (..., n) holds, in order; others are any."""
    rank = torch.where(mask, mask.to(torch.int64).cumsum(-1) - 1, most).clamp(max=most)
    number = torch.arange(mask.shape[-1], device=mask.device).expand_as(rank)
    room = torch.zeros(*rank.shape[:-1], most + 1, dtype=torch.int64, device=mask.device)
    return room.scatter(-1, rank, number)[..., :-1]


def _put(values: Tensor, place: Tensor, new: Tensor) -> Tensor:
    """Rows of values (..., F, k) replaced by new ones (..., n, k) at places (..., n); F: none."""
    room = torch.cat([values, values[..., :1, :]], -2)
    return room.scatter(-2, place.unsqueeze(-1).expand_as(new), new)[..., :-1, :]


def _witness(best_normal: Tensor, corners: Tensor, points: Tensor, faces: _Faces) -> Depth:
    """Points of the sets under the origin's projection on the nearest face."""
    face = faces.offset.argmin(-1, keepdim=True)
    which = rows(faces.corner, face).squeeze(-2)
    abc, points = rows(corners, which), rows(points, which)
    s, t, _ = barycentric(*abc.unbind(-2))
    weights = torch.stack([1 - s - t, s, t], -1).unsqueeze(-1)
    point1 = (weights * points).sum(-2)
    touch = torch.stack([points, points - abc], -3)
    return Depth(best_normal, point1, point1 - (weights * abc).sum(-2), touch)
