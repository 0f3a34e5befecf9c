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
from alloy.ops.reference.convex import Apart, Convex, barycentric, difference

CORNERS = 48  # of the polytope; its faces are at most twice as many
_GROWTH = 1e-11  # of the size: D ends at a face that cannot move out by more
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
    lead, room = on.shape, CORNERS - 4
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

    def body(on: Tensor, *carry: Tensor) -> tuple[Tensor, ...]:
        return _grow(one, two, size, on, *carry)

    carry = (on, count, best, simplex[..., 0, :], corners, points, which, normal, offset)
    _, _, _, best_normal, corners, points, *faces = while_loop(body, carry, room)
    return _witness(best_normal, corners, points, _Faces(*faces))


def _planes(corners: Tensor, which: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """Unit normals (..., F, 3) and distances (..., F) of faces."""
    a, b, c = (_at(corners, which[..., k]) for k in range(3))
    normal = math.cross(b - a, c - a)
    length = torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
    thin = length < 1e-30
    normal = normal / choose(thin, 1.0, length)
    offset = (normal * a).sum(-1)
    return normal, choose(alive & ~thin.squeeze(-1), offset, float("inf"))


def _at(values: Tensor, index: Tensor) -> Tensor:
    """Rows (..., n, 3) of values (..., m, 3) by index (..., n)."""
    return values.gather(-2, index.unsqueeze(-1).expand(*index.shape, 3))


def _grow(
    one: Convex, two: Convex, size: Tensor, on: Tensor, count: Tensor, best: Tensor,
    best_normal: Tensor, corners: Tensor, points: Tensor, which: Tensor, normal: Tensor,
    offset: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Move the nearest face of every polytope out to a new corner."""
    least, nearest = offset.min(-1)
    way = _at(normal, nearest.unsqueeze(-1)).squeeze(-2)
    corner, point = difference(one, two, way)
    reach = (way * corner).sum(-1)
    better = on & (reach < best)
    best = torch.where(better, reach, best)
    best_normal = torch.where(better.unsqueeze(-1), way, best_normal)
    # the overlap is at least the nearest face's distance and at most the least reach so far
    on = on & (best - least > _GROWTH * size) & (reach - least > _SEEN * size)

    index = torch.arange(CORNERS, device=on.device)
    new = (on.unsqueeze(-1) & (index == count.unsqueeze(-1))).unsqueeze(-1)
    corners = torch.where(new, corner.unsqueeze(-2), corners)
    points = torch.where(new, point.unsqueeze(-2), points)
    sees = (normal @ corner.unsqueeze(-1)).squeeze(-1) > offset + _SEEN * size.unsqueeze(-1)
    sees = sees & on.unsqueeze(-1)
    which, fresh = _join(which, sees, offset, count)
    alive = (~sees & torch.isfinite(offset)) | fresh
    new_normal, new_offset = _planes(corners, which, alive)
    normal = torch.where(fresh.unsqueeze(-1), new_normal, normal)
    offset = torch.where(fresh, new_offset, choose(sees, float("inf"), offset))
    count = count + on
    return on, count, best, best_normal, corners, points, which, normal, offset


def _join(which: Tensor, sees: Tensor, offset: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Join the rim of the faces that see the new corner to it; which slots (..., F) are new.

    An edge of a face that goes is on the rim if no face that goes has it the other way round. The
    k-th edge of the rim makes the face in the k-th free slot.
    """
    begin, end = which, which.roll(-1, -1)  # edges (..., F, 3)
    going = sees.unsqueeze(-1).expand_as(begin)
    nowhere = CORNERS * CORNERS
    code = torch.where(going, begin * CORNERS + end, nowhere).flatten(-2)
    present = torch.zeros(*code.shape[:-1], nowhere + 1, dtype=torch.bool, device=code.device)
    present = present.scatter(-1, code, True)
    back = (end * CORNERS + begin).flatten(-2)
    rim = going.flatten(-2) & ~present.gather(-1, back)

    rank = rim.cumsum(-1)
    edges = torch.where(rim, rank - 1, rim.shape[-1])
    number = torch.arange(rim.shape[-1], device=rim.device).expand_as(edges)
    listed = torch.zeros(*edges.shape[:-1], edges.shape[-1] + 1, dtype=torch.int64,
                         device=rim.device).scatter(-1, edges, number)  # fmt: skip
    free = sees | ~torch.isfinite(offset)
    place = free.cumsum(-1)
    fresh = free & (place <= rank[..., -1:])
    edge = listed.gather(-1, (place - 1).clamp(0, rim.shape[-1] - 1))
    made = torch.stack(
        [
            begin.flatten(-2).gather(-1, edge),
            end.flatten(-2).gather(-1, edge),
            count.unsqueeze(-1).expand_as(edge),
        ],
        -1,
    )
    return torch.where(fresh.unsqueeze(-1), made, which), fresh


def _witness(best_normal: Tensor, corners: Tensor, points: Tensor, faces: _Faces) -> Depth:
    """Points of the sets under the origin's projection on the nearest face."""
    face = faces.offset.argmin(-1, keepdim=True)
    which = _at(faces.corner, face).squeeze(-2)
    abc, points = _at(corners, which), _at(points, which)
    s, t, _ = barycentric(*abc.unbind(-2))
    weights = torch.stack([1 - s - t, s, t], -1).unsqueeze(-1)
    point1 = (weights * points).sum(-2)
    return Depth(best_normal, point1, point1 - (weights * abc).sum(-2))
