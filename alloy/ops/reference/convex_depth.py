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
from alloy.ops.control import where_on, while_loop
from alloy.ops.reference.collide_shared import choose, dot
from alloy.ops.reference.convex import Apart, Convex, barycentric, difference, rows

CORNERS = 48  # of the polytope; its faces are at most twice as many
_ROUNDS = (4, 6, CORNERS - 14)  # of corners at a time
# of the size: D ends at a face that cannot move out by more; where it is curved, others go on
_GROWTH, _GROWTH_CURVED = 1e-11, 1e-5
_SEEN = 1e-13  # of the size: a face sees a corner that is farther out than this
_OUTWARD = ((0, 1, 2), (0, 3, 1), (0, 2, 3), (1, 3, 2))  # faces of a tetrahedron


class Depth(NamedTuple):
    """The least overlap of each pair that meets."""

    normal: Tensor  # (..., 3) unit; set 2 leaves set 1 on the shortest way along it
    point1: Tensor  # (..., 3) of set 1 and of set 2, as far apart as the sets overlap
    point2: Tensor


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
    lead, room = on.shape, CORNERS - len(_OUTWARD)
    a, b, c, d = start.simplex.unbind(-2)
    mirrored = dot(math.cross(b - a, c - a), d - a) > 0  # then the faces look inward
    swap = mirrored.unsqueeze(-1)
    order = math.constant((1, 0, 2, 3), torch.int64, on.device)
    simplex = torch.where(swap, start.simplex[..., order, :], start.simplex)
    simplex1 = torch.where(swap, start.simplex1[..., order, :], start.simplex1)
    corners = torch.cat([simplex, simplex.new_zeros(*lead, room, 3)], -2)
    points = torch.cat([simplex1, simplex.new_zeros(*lead, room, 3)], -2)

    which = math.constant(_OUTWARD, torch.int64, on.device).expand(*lead, 4, 3)
    which = torch.cat([which, which.new_zeros(*lead, 2 * CORNERS - 4, 3)], -2)
    alive = torch.arange(2 * CORNERS, device=on.device) < 4
    normal, offset = _planes(corners, which, alive.expand(*lead, -1))
    count = torch.full(lead, 4, device=on.device)
    best = torch.full(lead, float("inf"), dtype=corners.dtype, device=on.device)

    carry = (count, best, simplex[..., 0, :], corners, points, which, normal, offset)
    _, _, best_normal, corners, points, *faces = _grown(one, two, size, on, carry, _ROUNDS)
    return _witness(best_normal, corners, points, _Faces(*faces))


def _grown(
    one: Convex, two: Convex, size: Tensor, on: Tensor, carry: tuple[Tensor, ...],
    rounds: tuple[int, ...],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Grow the polytopes in rounds, so that after each only those are looked at that still grow."""

    def body(on: Tensor, *carry: Tensor) -> tuple[Tensor, ...]:
        return _grow(one, two, size, on, *carry)

    on, *carry_new = while_loop(body, (on, *carry), rounds[0])
    if len(rounds) == 1:
        return tuple(carry_new)
    parts1, parts2 = one.parts(), two.parts()

    def later(on: Tensor, size: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        sets, rest = tensors[: len(parts1) + len(parts2)], tensors[len(parts1) + len(parts2) :]
        first, second = sets[: len(parts1)], sets[len(parts1) :]
        return _grown(one.with_parts(*first), two.with_parts(*second), size, on, rest, rounds[1:])

    grown = where_on(on, later, size, *parts1, *parts2, *carry_new)
    return tuple(
        torch.where(on.reshape(*on.shape, *([1] * (old.ndim - on.ndim))), new, old)
        for new, old in zip(grown, carry_new, strict=True)
    )


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

    index = torch.arange(CORNERS, device=on.device)
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
    none = torch.zeros(*count.shape, CORNERS, dtype=torch.int64, device=count.device)
    ahead, behind = end * going, begin * going
    gap = none.scatter_add(-1, begin, ahead) - none.scatter_add(-1, end, behind)
    square = none.scatter_add(-1, begin, ahead * end) - none.scatter_add(-1, end, behind * begin)
    on_rim = gap != 0
    after = (torch.where(on_rim, square // torch.where(on_rim, gap, 1), 0) + gap) // 2

    free = sees | ~torch.isfinite(faces.offset)
    slots = _listed(free, CORNERS)
    order = _listed(on_rim, CORNERS)
    used = torch.arange(CORNERS, device=free.device) < on_rim.sum(-1, keepdim=True)
    new = torch.stack([order, after.gather(-1, order), count.unsqueeze(-1).expand_as(order)], -1)
    normal, distance = _planes(corners, new, used)
    offset = choose(sees, float("inf"), faces.offset)
    place = torch.where(used, slots, 2 * CORNERS)
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
    return Depth(best_normal, point1, point1 - (weights * abc).sum(-2))
