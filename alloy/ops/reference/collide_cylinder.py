"""Narrowphase collision of capsules with cylinders; contract in `collide`.

MuJoCo has no formula for this pair: its convex solver finds the direction of least overlap, and a
clip of the capsule's lowest line against a cap, which it takes for a polygon of 16 sides, gives a
second contact. Here that direction has a closed form but for one search in one dimension.
"""

from __future__ import annotations

from math import cos, pi, sin

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_shared import (
    EDGE_ALIGNED,
    FAR,
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
    tolerance,
)

_SIDES = 16
# across each pair of opposite sides of a regular polygon of 16 sides with a corner on x
_ACROSS = tuple((cos((k + 0.5) * pi / 8), sin((k + 0.5) * pi / 8), 0.0) for k in range(8))
_INSCRIBED = cos(pi / _SIDES)
# directions around a circle, one in the middle of each of 32 parts
_AROUND = tuple((k + 0.5) * pi / 16 for k in range(32))
_LEVEL = 1e-6  # sine of the angle below which a normal is at right angles to a cap's


def _touching(like: Tensor) -> float:
    """Distance, relative to the sizes, below which segment and cylinder count as touching."""
    return 1e-9 if like.dtype == torch.float64 else 1e-5


def capsule_cylinder(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The direction of least overlap, or both ends of the capsule's lowest line on a cap; 2 slots.

    The second holds where the capsule lies along a cap that it faces (within 5.1 degrees).
    """
    pos, axis = to_local(mat2, pos1 - pos2), to_local(mat2, mat1[..., 2])
    radius, half = size1[..., :1], size1[..., 1:2]
    dist, point, normal = _single(pos, axis, radius, half, size2)
    lies, flat_dist, flat_point = _on_cap(pos, axis, radius, half, size2, normal, margin)
    lies = lies & (dist <= margin.unsqueeze(-1))

    down = table((0.0, 0.0, 1.0), normal) * sign(normal[..., 2:] > 0, normal)
    normal = torch.where(lies, down, normal)
    alone = choose(table((1.0, 0.0), dist).bool(), dist, FAR)
    point = torch.where(lies.unsqueeze(-1), flat_point, point.unsqueeze(-2))
    pos = pos2.unsqueeze(-2) + to_world(mat2.unsqueeze(-3), point)
    frame = make_frame(to_world(mat2, normal)).unsqueeze(-3)
    dist = torch.where(lies, flat_dist, alone)
    return dist, pos, frame.expand(*dist.shape, 3, 3)


def _single(
    pos: Tensor, axis: Tensor, radius: Tensor, half: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Contact dist (..., 1), point and normal (..., 3) of a capsule in the cylinder's frame."""
    along = _nearest_along(pos, axis, half, size)
    inner = pos + along * axis
    gap = _into(inner, size) - inner
    length = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    apart = length > _touching(pos) * size[..., :2].sum(-1, keepdim=True)
    overlap, deep_normal, deep_point = _deep(pos, axis, half, size)
    normal = torch.where(apart, gap, deep_normal) / choose(apart, length, 1.0)
    dist = torch.where(apart, length, -overlap) - radius
    point = torch.where(apart, inner, deep_point)
    return dist, point + normal * (0.5 * dist + radius), normal


def _into(point: Tensor, size: Tensor) -> Tensor:
    """The nearest point of the cylinder, in its frame."""
    flat = point[..., :2]
    rho = math.safe_norm(flat, keepdim=True)
    shrink = choose(rho > size[..., :1], size[..., :1] / rho.clamp(min=math.MINVAL), 1.0)
    return torch.cat([flat * shrink, clip(point[..., 2:], size[..., 1:2])], -1)


def _nearest_along(pos: Tensor, axis: Tensor, half: Tensor, size: Tensor) -> Tensor:
    """Where on the capsule's segment the cylinder is nearest, (..., 1) in [-half, half].

    The squared distance is convex along the segment: its slope has a root, or is zero along a
    stretch. Both ends of that are found and their middle counts. A last step of Newton's method
    carries the derivatives.
    """
    with torch.no_grad():
        limit = _touching(pos) * (half + size[..., :2].sum(-1, keepdim=True))
        aims = limit * table((-1.0, 1.0), pos)  # (..., 2)
        points, axes, sizes = (x.unsqueeze(-2) for x in (pos, axis, size))

        def above(along: Tensor) -> tuple[Tensor, Tensor]:
            slope, steep = _slope(points + along.unsqueeze(-1) * axes, axes, sizes)
            return slope.squeeze(-1) - aims, steep.squeeze(-1)

        far = half.expand(*pos.shape[:-1], 2)
        along = 0.5 * root(above, -far, far).sum(-1, keepdim=True)
    slope, steep = _slope(pos + along * axis, axis, size)
    runs = steep > tolerance(pos).parallel
    return clip(along - slope / choose(runs, steep, FAR).detach(), half)


def _slope(point: Tensor, axis: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Derivative along `axis` of half the squared distance to the cylinder, and its derivative."""
    gap = point - _into(point, size)
    flat, flat_axis, outside = point[..., :2], axis[..., :2], gap.abs() > 0
    rho2 = dot(flat, flat).clamp(min=math.MINVAL)
    square, across = dot(flat_axis, flat_axis), dot(flat, flat_axis)
    shrink = size[..., :1] / rho2.sqrt()
    radial = square - shrink * (square - across * across / rho2)
    steep = choose(outside[..., :2].any(-1, keepdim=True), radial, 0.0)
    return dot(gap, axis), steep + choose(outside[..., 2:], axis[..., 2:].square(), 0.0)


def _deep(pos: Tensor, axis: Tensor, half: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Least overlap (..., 1) of segment and cylinder that meet, its normal, the segment's point.

    The overlap along n is n . pos + half |n . axis| + R |n_xy| + H |n_z|. Where it is positive its
    minima have no free curvature: n is along the cylinder, or across it, or across both a rim and
    the segment.
    """
    radius, height = size[..., :1], size[..., 1:2]
    up = table(((0.0, 0.0, 1.0), (0.0, 0.0, -1.0)), pos).expand(*pos.shape[:-1], 2, 3)

    # across the cylinder: the point of the segment nearest to its axis
    flat, flat_axis = pos[..., :2], axis[..., :2]
    square = dot(flat_axis, flat_axis)
    crossing = -dot(flat, flat_axis) / square.clamp(min=math.MINVAL)
    near = flat + clip(crossing, half) * flat_axis
    slanted = square > tolerance(pos).parallel
    side = torch.stack([-axis[..., 1], axis[..., 0]], -1)
    side = torch.where(slanted, side, table((1.0, 0.0), pos))
    off_axis = dot(near, near) > math.MINVAL**2
    side = torch.where(off_axis, -near, side)
    side = side / torch.linalg.vector_norm(side, dim=-1, keepdim=True)
    side = torch.cat([side, table((0.0,), side).expand_as(side[..., :1])], -1)

    rim = _across_rim(pos, axis, size, slanted)
    normals = torch.cat([up, side.unsqueeze(-2), rim.unsqueeze(-2)], -2)  # (..., 4, 3)
    flat_length = math.safe_norm(normals[..., :2])
    along = (normals @ axis.unsqueeze(-1)).squeeze(-1)
    overlap = (normals @ pos.unsqueeze(-1)).squeeze(-1) + half * along.abs()
    overlap = overlap + radius * flat_length + height * normals[..., 2].abs()
    best = overlap.detach().amin(-1, keepdim=True)
    won = first(overlap.detach() <= best)
    normal = choose(won.unsqueeze(-1), normals, 0.0).sum(-2)
    least = choose(won, overlap, 0.0).sum(-1, keepdim=True)
    along = choose(won, along, 0.0).sum(-1, keepdim=True)

    # the segment's end, or where it crosses what it touches: a side line, or a point of the rim
    level = along.abs() < tolerance(pos).aligned
    touch = normal[..., :2] * (
        -radius / math.safe_norm(normal[..., :2], keepdim=True).clamp(min=1e-6)
    )
    touch = torch.cat([touch, height * -sign(normal[..., 2:] > 0, normal)], -1) + least * normal
    on_rim = dot(touch - pos, axis)
    rim = won[..., 3:] & (normal[..., 2:].abs() > _LEVEL)
    at = torch.where(rim, on_rim, torch.where(slanted, crossing, -dot(pos, axis)))
    at = torch.where(level, clip(at, half), half * sign(along > 0, along))
    return least, normal, pos + at * axis


def _across_rim(pos: Tensor, axis: Tensor, size: Tensor, slanted: Tensor) -> Tensor:
    """Direction (..., 3) of least overlap among those at right angles to the segment."""
    with torch.no_grad():
        level = torch.stack([axis[..., 1], -axis[..., 0]], -1)
        level = torch.where(slanted, level, table((1.0, 0.0), pos))
        level = level / torch.linalg.vector_norm(level, dim=-1, keepdim=True)
        level = torch.cat([level, table((0.0,), level).expand_as(level[..., :1])], -1)
        rise = math.cross(axis, level)
        p1, p2, sine2 = dot(pos, level), dot(pos, rise), axis[..., 2:].square()
        radius, lift = size[..., :1], size[..., 1:2] * rise[..., 2:].abs()

        def toward(angle: Tensor) -> tuple[Tensor, ...]:
            """Direction that touches the rim at an angle, its overlap, slope and curvature."""
            thin = axis[..., 2:].abs()
            c, s = thin * angle.cos(), angle.sin()
            norm = (c * c + s * s).clamp(min=1e-12).sqrt()
            c, s = c / norm, s / norm
            root = (c * c + sine2 * s * s).clamp(min=1e-12).sqrt()
            up = lift * sign(s > 0, s)
            value = c * p1 + s * p2 + radius * root + up * s
            slope = c * p2 - s * p1 + up * c + radius * (sine2 - 1) * c * s / root
            curve = (radius * sine2 / (root * root * root) - value) * thin / (norm * norm)
            return torch.stack([c, s], -1), value, slope, curve

        grid = table(_AROUND, pos)
        value = toward(grid)[1]
        start = choose(first(value <= value.amin(-1, keepdim=True)), grid, 0.0)
        start, part = start.sum(-1, keepdim=True), 2 * pi / len(_AROUND)
        below = start > pi
        low = torch.maximum(start - part, choose(below, pi, table(0.0, start)))
        high = torch.minimum(start + part, choose(below, 2 * pi, table(pi, start)))
        turn = toward(root(lambda angle: toward(angle)[2:], low, high))[0].squeeze(-2)
    return turn[..., :1] * level + turn[..., 1:] * rise


def _on_cap(
    pos: Tensor, axis: Tensor, radius: Tensor, half: Tensor, size: Tensor, normal: Tensor,
    margin: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Whether the capsule lies along a cap (..., 1); dist (..., 2) and point (..., 2, 3) there.

    The line of the capsule's surface nearest to the cap, cut off where it leaves the cap's polygon.
    MuJoCo clips a polygon of two corners: where a cut end is the only contact it appears twice.
    """
    facing = normal[..., 2:].abs() > _LEVEL
    lies = (axis[..., 2:].abs() < EDGE_ALIGNED) & facing
    inflated = 0.5 * margin.unsqueeze(-1)  # MuJoCo grows both geoms by half the margin
    # across the axis, and so by less than the radius where the normal leans along it, as there
    middle = pos + (radius + inflated) * (normal - dot(normal, axis) * axis)

    ways = table(_ACROSS, pos)
    offset = (middle.unsqueeze(-2) * ways).sum(-1)  # (..., 8)
    slope = (axis.unsqueeze(-2) * ways).sum(-1)
    runs = slope.abs() > tolerance(pos).aligned
    steep = choose(runs, slope, 1.0)
    reach = _INSCRIBED * size[..., :1]
    inside = offset.abs() <= reach
    enter = choose(
        runs, -offset / steep - reach / steep.abs(), choose(inside, -FAR, table(FAR, pos))
    )
    leave = choose(
        runs, -offset / steep + reach / steep.abs(), choose(inside, FAR, table(-FAR, pos))
    )
    enter, leave = enter.amax(-1, keepdim=True), leave.amin(-1, keepdim=True)
    cut = torch.cat([enter > -half, leave < half], -1)
    ends = torch.cat([torch.maximum(enter, -half), torch.minimum(leave, half)], -1)

    way = sign(normal[..., 2:] > 0, normal)  # down onto the upper cap is negative
    point = middle.unsqueeze(-2) + ends.unsqueeze(-1) * axis.unsqueeze(-2)
    dist = inflated - point[..., 2] * way - size[..., 1:2]
    kept = (dist <= margin.unsqueeze(-1)) & lies & (ends[..., :1] <= ends[..., 1:])
    both = kept.all(-1, keepdim=True)
    lone = choose(kept, dist, 0.0).sum(-1, keepdim=True)
    twice = (kept & cut).any(-1, keepdim=True)
    alone = torch.cat([lone, choose(twice, lone, FAR)], -1)
    lone_point = choose(kept.unsqueeze(-1), point, 0.0).sum(-2, keepdim=True)
    point = torch.where(both.unsqueeze(-1), point, lone_point)
    dist = torch.where(both, dist, alone)
    depth = (choose(dist < 0.5 * FAR, dist, 0.0) - 2 * inflated) * way
    up = table((0.0, 0.0, 1.0), pos)
    return kept.any(-1, keepdim=True), dist, point + 0.5 * depth.unsqueeze(-1) * up
