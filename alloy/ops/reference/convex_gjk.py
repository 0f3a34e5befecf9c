"""How far two convex sets are apart, and whether they meet.

Source: Gilbert, Johnson, Keerthi (1988), A fast procedure for computing the distance between
complex objects. A simplex of corners of D (`convex`) moves towards the origin, until nothing of D
is nearer or the simplex holds it. The loop stops where no pair goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import while_loop
from alloy.ops.reference.collide_shared import choose, dot, first, sign, table
from alloy.ops.reference.convex import Convex, difference, rows

ITERATIONS = 60  # of GJK; a dozen is usual
_CONVERGED = 1e-12  # relative progress below which GJK has arrived
_ON_PLANE = 1e-13  # of the size: the origin is on a triangle up to rounding
_FLAT = 1e-14  # squared sine, relative, below which a triangle or tetrahedron has no inside
# a shift, by size, that keeps the origin off faces and edges of D; see `separate`
SHIFT = (0.57735e-10, 0.21132e-10, 0.78868e-10)
_ASIDE = (0.57735, 0.21132, 0.78868)


class Apart(NamedTuple):
    """What GJK found of each pair."""

    inside: Tensor  # (...,) bool: the sets meet and `simplex` holds the origin
    near: Tensor  # (...,) bool: not beyond the cutoff
    gap: Tensor  # (..., 1) distance where they are apart
    normal: Tensor  # (..., 3) unit, from set 1 to set 2, where they are apart
    point1: Tensor  # (..., 3) the nearest points
    point2: Tensor
    simplex: Tensor  # (..., 4, 3) corners of D
    simplex1: Tensor  # (..., 4, 3) the points of set 1 that they are differences of
    touch: Tensor  # (..., 2, 3, 3) the points of set 1 and of set 2 that what is nearest spans


# sub-simplices of four corners
_EDGES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
_FACES = ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
_FIRST = (1.0, 0.0, 0.0, 0.0)


def separate(one: Convex, two: Convex, on: Tensor, cutoff: Tensor) -> Apart:
    """GJK.

    Where the origin lies on an edge or face of D, as it does between boxes that are lined up, no
    tetrahedron holds it. So callers shift set 2 by SHIFT, a direction that no geometry has.

    Args:
        one: a set near the origin.
        two: another one.
        on: (...,) bool, pairs to look at.
        cutoff: (..., 1) distance beyond which a pair does not matter.
    """
    start = two.pos - one.pos
    # not along the line of centres, which two balls have all their corners on
    length = torch.linalg.vector_norm(start, dim=-1, keepdim=True)
    start = start + 0.1 * length * table(_ASIDE, start)
    start = torch.where(dot(start, start) > 0, start, table((1.0, 0.0, 0.0), start))
    corner, point = difference(one, two, start)
    blank = torch.zeros_like(corner).unsqueeze(-2).expand(*corner.shape[:-1], 3, 3)
    corners = torch.cat([corner.unsqueeze(-2), blank], -2)
    points = torch.cat([point.unsqueeze(-2), blank], -2)
    weights = table(_FIRST, corner).expand(*corner.shape[:-1], 4)
    inside = torch.zeros_like(on)

    def body(on: Tensor, *carry: Tensor) -> tuple[Tensor, ...]:
        return _closer(one, two, cutoff, on, *carry)

    carry = (on, inside, ~inside, corner, corners, points, weights)
    _, inside, near, nearest, corners, points, weights = while_loop(body, carry, ITERATIONS)
    length = torch.linalg.vector_norm(nearest, dim=-1, keepdim=True)
    point1 = (weights.unsqueeze(-1) * points).sum(-2)
    normal = -nearest / length.clamp(min=math.MINVAL)
    used, which = weights.topk(3, -1)
    which = torch.where(used > 0, which, which[..., :1])  # fewer: the first one again
    touch1, corner = rows(points, which), rows(corners, which)
    touch = torch.stack([touch1, touch1 - corner], -3)
    return Apart(inside, near, length, normal, point1, point1 - nearest, corners, points, touch)


def _closer(
    one: Convex, two: Convex, cutoff: Tensor, on: Tensor, inside: Tensor, near: Tensor,
    nearest: Tensor, corners: Tensor, points: Tensor, weights: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """One step of GJK: a corner of D towards the origin, and what of the simplex is nearest.

    Where a triangle holds the origin up to rounding, as it does where D is a ball, whose corners on
    the way all lie in one plane with the origin, the next corner is one off that plane.
    """
    square = dot(nearest, nearest)
    away, lies_on = _off_plane(two.pos - one.pos, corners, weights, square)
    corner, point = difference(one, two, torch.where(lies_on, away, -nearest))
    ahead = dot(nearest, corner)
    length = square.sqrt()
    far = (ahead > cutoff * length).squeeze(-1)
    arrived = (square - ahead <= _CONVERGED * square).squeeze(-1)
    spare = first(weights == 0).unsqueeze(-1)
    corners_new = torch.where(spare, corner.unsqueeze(-2), corners)
    points_new = torch.where(spare, point.unsqueeze(-2), points)
    used = (weights > 0) | spare.squeeze(-1)
    weights_new, holds = _nearest_of(corners_new, used)
    nearest_new = (weights_new.unsqueeze(-1) * corners_new).sum(-2)
    better = (dot(nearest_new, nearest_new) < square).squeeze(-1)

    on_plane = lies_on.squeeze(-1)
    far, arrived = far & ~on_plane, arrived & ~on_plane
    move = on & ~far & ~arrived & (holds | better)
    inside = inside | (move & holds)
    near = near & ~(on & far)
    step = move.unsqueeze(-1)
    wide = step.unsqueeze(-1)
    return (
        move & ~holds, inside, near, torch.where(step, nearest_new, nearest),
        torch.where(wide, corners_new, corners), torch.where(wide, points_new, points),
        torch.where(step, weights_new, weights),
    )  # fmt: skip


def _off_plane(
    center: Tensor, corners: Tensor, weights: Tensor, square: Tensor
) -> tuple[Tensor, Tensor]:
    """Normal of the triangle that is nearest, to the side where D is; whether the origin is on it.

    Args:
        center: (..., 3) of set 2 from that of set 1; D's is opposite.
        corners: (..., 4, 3) of D.
        weights: (..., 4) of the nearest point.
        square: (..., 1) of its distance.
    """
    held, order = weights.topk(3, -1)
    a, b, c = rows(corners, order).unbind(-2)
    normal = math.cross(b - a, c - a)
    normal = normal * sign(dot(normal, center) < 0, normal)
    scale = (corners * corners).sum(-1).amax(-1, keepdim=True)
    return normal, (held[..., 2:] > 0) & (square <= _ON_PLANE**2 * scale)


def _nearest_of(corners: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (..., 4) of the point of a simplex nearest to the origin; whether it is the origin.

    The nearest point of each corner, edge and face that has it within; the nearest of these.
    """
    candidates, valid = [], []
    eye = torch.eye(4, dtype=corners.dtype, device=corners.device)
    candidates.append(eye.expand(*corners.shape[:-2], 4, 4))
    valid.append(used)

    start, end = (math.constant(i, torch.int64, corners.device) for i in zip(*_EDGES, strict=True))
    along = corners[..., end, :] - corners[..., start, :]
    square = (along * along).sum(-1)
    t = -(corners[..., start, :] * along).sum(-1) / square.clamp(min=1e-300)
    candidates.append((1 - t).unsqueeze(-1) * eye[start] + t.unsqueeze(-1) * eye[end])
    valid.append((t > 0) & (t < 1) & used[..., start] & used[..., end])

    i, j, k = (math.constant(i, torch.int64, corners.device) for i in zip(*_FACES, strict=True))
    s, t, within = barycentric(corners[..., i, :], corners[..., j, :], corners[..., k, :])
    weights = (1 - s - t).unsqueeze(-1) * eye[i] + s.unsqueeze(-1) * eye[j]
    candidates.append(weights + t.unsqueeze(-1) * eye[k])
    valid.append(within & used[..., i] & used[..., j] & used[..., k])

    weights, valid = torch.cat(candidates, -2), torch.cat(valid, -1)
    points = weights @ corners
    square = choose(valid, (points * points).sum(-1), float("inf"))
    best = first(square <= square.amin(-1, keepdim=True)).unsqueeze(-1)
    nearest = choose(best, weights, 0.0).sum(-2)

    volumes = _volumes(corners)
    total = volumes.sum(-1, keepdim=True)
    bound = (corners * corners).sum(-1).amax(-1, keepdim=True) ** 1.5 * _FLAT
    holds = (volumes * total > -_ON_PLANE * total * total).all(-1) & used.all(-1)
    holds = holds & (total.abs() > bound).squeeze(-1)
    inner = volumes / choose(total == 0, 1.0, total)
    return torch.where(holds.unsqueeze(-1), inner, nearest), holds


def barycentric(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of b and c in the origin's projection on triangles (..., 3); whether it is within."""
    u, v = b - a, c - a
    uu, uv, vv = (u * u).sum(-1), (u * v).sum(-1), (v * v).sum(-1)
    au, av = (a * u).sum(-1), (a * v).sum(-1)
    det = uu * vv - uv * uv
    flat = det <= _FLAT * uu * vv
    over = choose(flat, 0.0, 1.0 / choose(flat, 1.0, det))
    s, t = (uv * av - vv * au) * over, (uv * au - uu * av) * over
    return s, t, ~flat & (s > 0) & (t > 0) & (s + t < 1)


def _volumes(corners: Tensor) -> Tensor:
    """Six times the signed volumes (..., 4) of the origin with the faces: the corners' weights."""
    a, b, c, d = corners.unbind(-2)
    cd, ab = math.cross(c, d), math.cross(a, b)
    return torch.cat([dot(b, cd), -dot(a, cd), dot(d, ab), -dot(c, ab)], -1)
