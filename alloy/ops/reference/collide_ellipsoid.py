"""Narrowphase collision of ellipsoids with spheres, capsules and boxes; contract in `collide`.

MuJoCo searches for the direction of least overlap. Here it comes from the point of an ellipsoid
nearest to a point, inside or outside, which is one root (Eberly 2013, Distance from a point to an
ellipse, an ellipsoid).
"""

from __future__ import annotations

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_shared import (
    Contacts,
    choose,
    clip,
    dot,
    first,
    make_frame,
    root,
    sign,
    table,
    to_local,
    to_world,
)

_SIGNS = (-1.0, 1.0)
_CORNERS = tuple((x, y, z) for x in _SIGNS for y in _SIGNS for z in _SIGNS)
# of the four edges along x, then y, then z
_MIDDLES = (
    *((0.0, y, z) for y in _SIGNS for z in _SIGNS),
    *((x, 0.0, z) for x in _SIGNS for z in _SIGNS),
    *((x, y, 0.0) for x in _SIGNS for y in _SIGNS),
)


def sphere_ellipsoid(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The point of the ellipsoid nearest to the sphere's centre; 1 slot."""
    center = to_local(mat2, pos1 - pos2)
    normal = -_outward(center, size2)
    return _contact(center, normal, size1[..., :1], pos2, mat2, size2)


def capsule_ellipsoid(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The direction of least overlap of segment and ellipsoid; 1 slot.

    Either an end of the segment is what touches, or the direction is at right angles to it: then
    segment and ellipsoid are seen along the segment, as a point and an ellipse.
    """
    pos, axis = to_local(mat2, pos1 - pos2), to_local(mat2, mat1[..., 2])
    half, size = size1[..., 1:2], size2.unsqueeze(-2)
    ends = pos.unsqueeze(-2) + half.unsqueeze(-2) * axis.unsqueeze(-2) * table(
        ((1.0,), (-1.0,)), pos
    )
    beside = _beside(pos, axis, size2).unsqueeze(-2)
    normals = -torch.cat([_outward(ends, size), _outward(ends, size, other=True), beside], -2)
    along = dot(normals, axis.unsqueeze(-2))
    depth = torch.linalg.vector_norm(size * normals, dim=-1, keepdim=True)
    overlap = dot(normals, pos.unsqueeze(-2)) + half.unsqueeze(-2) * along.abs() + depth
    overlap = overlap.squeeze(-1).detach()
    won = first(overlap <= overlap.amin(-1, keepdim=True)).unsqueeze(-1)
    normal = choose(won, normals, 0.0).sum(-2)

    along = choose(won, along, 0.0).sum(-2)
    reach = torch.linalg.vector_norm(size2 * normal, dim=-1, keepdim=True)
    touch = clip(-dot(size2 * size2 * normal / reach + pos, axis), half)
    at = torch.where(won[..., 4, :], touch, half * sign(along > 0, along))
    return _contact(pos + at * axis, normal, size1[..., :1], pos2, mat2, size2)


def ellipsoid_box(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The direction of least overlap, by what of the box touches: corner, edge or face; 1 slot."""
    pos, axes = to_local(mat1, pos2 - pos1).unsqueeze(-2), mat2.mT @ mat1  # rows: axes of the box
    arms, size = size2.unsqueeze(-1) * axes, size1.unsqueeze(-2)
    corners, middles = pos + table(_CORNERS, pos) @ arms, pos + table(_MIDDLES, pos) @ arms
    along = axes.unsqueeze(-2).expand(*axes.shape[:-1], 4, 3).flatten(-3, -2)
    nearest = [_outward(corners, size, other) for other in (False, True)]
    nearest += [_beside(middles, along, size, other) for other in (False, True)]
    normals = torch.cat([*nearest, axes, -axes], -2)  # (..., 46, 3)

    reach = torch.linalg.vector_norm(size * normals, dim=-1)
    overlap = reach - dot(normals, pos).squeeze(-1) + (normals @ arms.mT).abs().sum(-1)
    won = first(overlap.detach() <= overlap.detach().amin(-1, keepdim=True))
    normal = choose(won.unsqueeze(-1), normals, 0.0).sum(-2)
    dist = -choose(won, overlap, 0.0).sum(-1, keepdim=True)
    place = size1 * size1 * normal / choose(won, reach, 0.0).sum(-1, keepdim=True)
    point = pos1 + to_world(mat1, place + 0.5 * dist * normal)
    return dist, point.unsqueeze(-2), make_frame(to_world(mat1, normal)).unsqueeze(-3)


def _contact(
    center: Tensor, normal: Tensor, radius: Tensor, pos2: Tensor, mat2: Tensor, size2: Tensor
) -> Contacts:
    """Contact of a sphere at `center` along `normal`, both in the ellipsoid's frame."""
    reach = torch.linalg.vector_norm(size2 * normal, dim=-1, keepdim=True)
    dist = -dot(center, normal) - reach - radius
    pos = pos2 + to_world(mat2, center + normal * (0.5 * dist + radius))
    return dist, pos.unsqueeze(-2), make_frame(to_world(mat2, normal)).unsqueeze(-3)


def _outward(point: Tensor, size: Tensor, other: bool = False) -> Tensor:
    """Unit normal, out of the ellipsoid or ellipse, at its place nearest to a point (..., 2|3).

    That place is size^2 point / (t + size^2) for the one t above -min(size)^2 that puts it on the
    surface. The largest t below is the nearest place on the other side, as seen from within, of
    the plane across the shortest axis; any direction comes back where there is none.

    A coordinate of zero would hide the place where the point is on a plane of symmetry, so none is
    smaller than rounding.
    """
    small = size * (1e-9 if point.dtype == torch.float64 else 1e-5)
    point = torch.where(point.abs() < small, small * sign(point >= 0, point), point)
    square, weight = size * size, size * point
    least = square.amin(-1, keepdim=True)
    offset = square - least

    def beyond(step: Tensor) -> tuple[Tensor, Tensor]:
        place = offset - step if other else offset + step
        ratio = weight / place
        length = torch.linalg.vector_norm(ratio, dim=-1, keepdim=True)
        slope = (ratio * ratio / place).sum(-1, keepdim=True) / length**3
        return 1 / length - 1, -slope if other else slope

    with torch.no_grad():
        low = choose(square <= least, weight.abs(), 0.0).amax(-1, keepdim=True)
        high = torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
        found = root(beyond, low, high, low if other else None)
    value, slope = beyond(found)
    step = found - value / slope.detach()
    normal = point / (offset - step if other else offset + step)
    return normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)


def _beside(pos: Tensor, axis: Tensor, size: Tensor, other: bool = False) -> Tensor:
    """As _outward where the ellipsoid is seen along the axis; (..., 3), normal to the axis."""
    level = axis[..., 2:].abs() < 0.5
    spare = torch.where(level, table((0.0, 0.0, 1.0), pos), table((1.0, 0.0, 0.0), pos))
    u = math.cross(axis, spare)
    u = u / torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    v = math.cross(axis, u)
    su, sv = size * u, size * v
    a, b, c = dot(su, su), dot(su, sv), dot(sv, sv)
    # turn u and v to the axes of the ellipse, whose squares are the eigenvalues of (a b; b c)
    r = math.safe_norm(torch.cat([0.5 * (a - c), b], -1), keepdim=True)
    round_ = r <= math.MINVAL
    cos2 = choose(round_, 1.0, 0.5 * (a - c) / choose(round_, 1.0, r))
    cos = (0.5 * (1 + cos2)).clamp(min=math.MINVAL).sqrt()
    sin = (0.5 * (1 - cos2)).clamp(min=math.MINVAL).sqrt() * sign(b >= 0, b)
    u, v = cos * u + sin * v, cos * v - sin * u
    seen = torch.cat([dot(pos, u), dot(pos, v)], -1)
    axes = torch.cat([0.5 * (a + c) + r, 0.5 * (a + c) - r], -1).clamp(min=math.MINVAL).sqrt()
    normal = _outward(seen, axes, other)
    return normal[..., :1] * u + normal[..., 1:] * v
