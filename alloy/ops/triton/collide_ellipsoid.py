"""Contacts of an ellipsoid with a sphere, a capsule or a box, written to the pair's slots.

Twins of the colliders in `alloy.ops.reference.collide_ellipsoid`, which explains the method. The
directions that the reference lays out side by side are tried one after another here.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.collide_shared import (
    FAR,
    STEPS,
    TOUCHING,
    clip,
    length_of,
    make_frame,
    narrower,
    pick,
    put,
    sign,
)
from alloy.ops.triton.vector import (
    MINVAL,
    add,
    axpy,
    column,
    cross,
    dot,
    rotate,
    rotate_inv,
    scale,
    sub,
    times,
    where,
)


@triton.jit
def sphere_ellipsoid(ball, egg, out, slot, w, m, TOL: tl.constexpr):
    """The point of the ellipsoid nearest to the sphere's centre."""
    center = rotate_inv(egg[1], sub(ball[0], egg[0]))
    normal = scale(-1.0, _outward(center, egg[2], 1.0, False, TOL))
    _contact(center, normal, ball[2][0], egg, out, slot, w, m)


@triton.jit
def capsule_ellipsoid(capsule, egg, out, slot, w, m, TOL: tl.constexpr):
    """The direction of least overlap: away from an end of the segment, or at right angles to it."""
    pos = rotate_inv(egg[1], sub(capsule[0], egg[0]))
    axis = rotate_inv(egg[1], column(capsule[1], 2))
    half, size = capsule[2][1], egg[2]
    normal = scale(-1.0, pos)
    best = 0.0 * half + FAR
    for k in range(4):  # to both ends, on their side of the ellipsoid and on the other
        end = axpy(half * (1.0 - 2.0 * (k % 2)), axis, pos)
        way = scale(-1.0, _outward(end, size, 1.0 - 2.0 * (k // 2), False, TOL))
        overlap = _overlap(way, pos, half, axis, size)
        better = overlap < best
        best, normal = tl.where(better, overlap, best), where(better, way, normal)
    way = scale(-1.0, _beside(pos, axis, size, 1.0, TOL))
    beside = _overlap(way, pos, half, axis, size) < best
    normal = where(beside, way, normal)

    along, reach = dot(normal, axis), length_of(times(size, normal))
    lowest = scale(1.0 / reach, times(times(size, size), normal))
    touch = clip(-dot(add(lowest, pos), axis), half)
    at = tl.where(beside, touch, half * sign(along > 0, along))
    _contact(axpy(at, axis, pos), normal, capsule[2][0], egg, out, slot, w, m)


@triton.jit
def ellipsoid_box(egg, box, out, slot, w, m, TOL: tl.constexpr):
    """The direction of least overlap, by what of the box touches: corner, edge or face."""
    pos, size = rotate_inv(egg[1], sub(box[0], egg[0])), egg[2]
    x, y, z = (
        rotate_inv(egg[1], column(box[1], 0)), rotate_inv(egg[1], column(box[1], 1)),
        rotate_inv(egg[1], column(box[1], 2)),
    )  # fmt: skip
    arms = scale(box[2][0], x), scale(box[2][1], y), scale(box[2][2], z)
    normal = x
    best = 0.0 * pos[0] + FAR
    for k in range(16):  # its corners, on their side of the ellipsoid, then on the other
        corner = _around(pos, arms, 2.0 * (k // 4 % 2) - 1.0, 2.0 * (k // 2 % 2) - 1.0,
                         2.0 * (k % 2) - 1.0)  # fmt: skip
        way = _outward(corner, size, 1.0 - 2.0 * (k // 8), False, TOL)
        best, normal = _better(way, best, normal, pos, arms, size)
    for k in range(24):  # its edges, 4 along each axis, given by their middles
        along, first, second = k // 4 % 3, 2.0 * (k // 2 % 2) - 1.0, 2.0 * (k % 2) - 1.0
        is_x, is_z = along == 0, along == 2
        middle = _around(
            pos, arms, tl.where(is_x, 0.0, first),
            tl.where(is_x, first, tl.where(is_z, second, 0.0)), tl.where(is_z, 0.0, second),
        )  # fmt: skip
        axis = where(is_x, x, where(is_z, z, y))
        way = _beside(middle, axis, size, 1.0 - 2.0 * (k // 12), TOL)
        best, normal = _better(way, best, normal, pos, arms, size)
    for k in range(6):  # its faces
        way = (pick((x[0], y[0], z[0]), k % 3), pick((x[1], y[1], z[1]), k % 3),
               pick((x[2], y[2], z[2]), k % 3))  # fmt: skip
        way = scale(1.0 - 2.0 * (k // 3), way)
        best, normal = _better(way, best, normal, pos, arms, size)

    reach = length_of(times(size, normal))
    place = scale(1.0 / reach, times(times(size, size), normal))
    point = add(egg[0], rotate(egg[1], axpy(-0.5 * best, normal, place)))
    put(out, slot, w, m, -best, point, make_frame(rotate(egg[1], normal)))


@triton.jit
def _contact(center, normal, radius, egg, out, slot, w, m):
    """Contact of a sphere at `center` along `normal`, both in the ellipsoid's frame."""
    dist = -dot(center, normal) - length_of(times(egg[2], normal)) - radius
    pos = add(egg[0], rotate(egg[1], axpy(0.5 * dist + radius, normal, center)))
    put(out, slot, w, m, dist, pos, make_frame(rotate(egg[1], normal)))


@triton.jit
def _overlap(normal, pos, half, axis, size):
    """Overlap of a segment and the ellipsoid along a direction."""
    return dot(normal, pos) + half * tl.abs(dot(normal, axis)) + length_of(times(size, normal))


@triton.jit
def _better(way, best, normal, pos, arms, size):
    """The smaller of the overlap of box and ellipsoid along `way` and the best; its direction."""
    spread = tl.abs(dot(way, arms[0])) + tl.abs(dot(way, arms[1])) + tl.abs(dot(way, arms[2]))
    overlap = length_of(times(size, way)) - dot(way, pos) + spread
    better = overlap < best
    return tl.where(better, overlap, best), where(better, way, normal)


@triton.jit
def _around(pos, arms, x, y, z):
    """A point of a box, -1, 0 or 1 of its half extents away from the middle."""
    return axpy(x, arms[0], axpy(y, arms[1], axpy(z, arms[2], pos)))


# ------------------------------------------------------------------ the nearest place


@triton.jit
def _outward(point, size, side, FLAT: tl.constexpr, TOL: tl.constexpr):
    """Unit normal, out of the ellipsoid, at its place nearest to a point; an ellipse if FLAT.

    side is 1, or -1 for the nearest place on the other side of the plane across the shortest axis.
    Source: Eberly 2013, Distance from a point to an ellipse, an ellipsoid.
    """
    x = _beyond_rounding(point[0], size[0] * TOL[TOUCHING])
    y, z = _beyond_rounding(point[1], size[1] * TOL[TOUCHING]), point[2]
    if not FLAT:
        z = _beyond_rounding(z, size[2] * TOL[TOUCHING])
    square, weight = times(size, size), times(size, (x, y, z))
    least = tl.minimum(tl.minimum(square[0], square[1]), square[2])
    offset = square[0] - least, square[1] - least, square[2] - least
    low = tl.where(square[0] <= least, tl.abs(weight[0]), 0.0)
    low = tl.maximum(low, tl.where(square[1] <= least, tl.abs(weight[1]), 0.0))
    low = tl.maximum(low, tl.where(square[2] <= least, tl.abs(weight[2]), 0.0))
    high = length_of(weight)
    at = tl.where(side < 0, low, 0.5 * (low + high))
    for _step in range(STEPS):
        value, slope = _surface(weight, offset, at, side)
        low, high, at = narrower(low, high, at, value, slope)
    value, slope = _surface(weight, offset, at, side)
    at = at - value / slope
    normal = (
        x / (offset[0] + side * at), y / (offset[1] + side * at), z / (offset[2] + side * at)
    )  # fmt: skip
    return scale(1.0 / length_of(normal), normal)


@triton.jit
def _beyond_rounding(x, small):
    """A coordinate that does not hide the nearest place as one of a plane of symmetry would."""
    return tl.where(tl.abs(x) < small, small * sign(x >= 0, x), x)


@triton.jit
def _surface(weight, offset, step, side):
    """A function of the step that is zero where the place is on the surface, and its slope."""
    place = offset[0] + side * step, offset[1] + side * step, offset[2] + side * step
    ratio = weight[0] / place[0], weight[1] / place[1], weight[2] / place[2]
    length = length_of(ratio)
    slope = (
        ratio[0] * ratio[0] / place[0] + ratio[1] * ratio[1] / place[1]
        + ratio[2] * ratio[2] / place[2]
    )  # fmt: skip
    return 1.0 / length - 1.0, side * slope / (length * length * length)


@triton.jit
def _beside(pos, axis, size, side, TOL: tl.constexpr):
    """As _outward where the ellipsoid is seen along the axis; normal to the axis."""
    zero = 0.0 * axis[0]
    level = tl.abs(axis[2]) < 0.5
    u = cross(axis, (tl.where(level, zero, zero + 1.0), zero, tl.where(level, zero + 1.0, zero)))
    u = scale(1.0 / length_of(u), u)
    v = cross(axis, u)
    su, sv = times(size, u), times(size, v)
    a, b, c = dot(su, su), dot(su, sv), dot(sv, sv)
    # turn u and v to the axes of the ellipse, whose squares are the eigenvalues of (a b; b c)
    half = 0.5 * (a - c)
    r = tl.sqrt(half * half + b * b)
    is_round = r <= MINVAL
    cos2 = tl.where(is_round, zero + 1.0, half / tl.where(is_round, zero + 1.0, r))
    cos = tl.sqrt(tl.maximum(0.5 * (cos2 + 1.0), MINVAL))
    sin = tl.sqrt(tl.maximum(0.5 * (1.0 - cos2), MINVAL)) * sign(b >= 0, b)
    u, v = axpy(cos, u, scale(sin, v)), axpy(cos, v, scale(-sin, u))
    longer = tl.sqrt(tl.maximum(0.5 * (a + c) + r, MINVAL))
    shorter = tl.sqrt(tl.maximum(0.5 * (a + c) - r, MINVAL))
    seen = dot(pos, u), dot(pos, v), zero
    normal = _outward(seen, (longer, shorter, longer), side, True, TOL)
    return axpy(normal[0], u, scale(normal[1], v))
