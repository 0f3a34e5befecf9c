"""Contacts of a capsule with a cylinder, written to the pair's slots.

Twin of `alloy.ops.reference.collide_cylinder`, which explains the method.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from math import cos, pi, sin

import triton
import triton.language as tl

from alloy.ops.triton.collide_shared import (
    ALIGNED,
    FAR,
    PARALLEL,
    STEPS,
    TOUCHING,
    clip,
    entry,
    length_of,
    make_frame,
    narrower,
    put,
    sign,
)
from alloy.ops.triton.vector import (
    MINVAL,
    PI,
    add,
    axpy,
    column,
    cross,
    dot,
    number,
    rotate,
    rotate_inv,
    scale,
    sub,
    where,
)

# across each pair of opposite sides of a regular polygon of 16 sides with a corner on x
ACROSS_X = tl.constexpr(tuple(cos((k + 0.5) * pi / 8) for k in range(8)))
ACROSS_Y = tl.constexpr(tuple(sin((k + 0.5) * pi / 8) for k in range(8)))
INSCRIBED = tl.constexpr(cos(pi / 16))
PARTS = tl.constexpr(32)  # of a circle, a direction in the middle of each
PART = tl.constexpr(2 * pi / 32)
LEVEL = tl.constexpr(1e-6)  # sine of the angle at which a normal is at right angles to a cap's
EDGE_ALIGNED = tl.constexpr(0.0888)  # MuJoCo's mjEDGE_TOL, about 5.1 degrees


@triton.jit
def capsule_cylinder(capsule, cylinder, margin, out, slot, w, m, TOL: tl.constexpr):
    """The direction of least overlap, or both ends of the capsule's lowest line on a cap."""
    pos = rotate_inv(cylinder[1], sub(capsule[0], cylinder[0]))
    axis = rotate_inv(cylinder[1], column(capsule[1], 2))
    radius, half, size = capsule[2][0], capsule[2][1], cylinder[2]
    dist, point, normal = _single(pos, axis, radius, half, size, TOL)
    up = sign(normal[2] > 0, half)
    lies, dist0, dist1, point0, point1 = _on_cap(
        pos, axis, radius, half, size, normal, up, margin, TOL
    )
    lies = lies & (dist <= margin)
    zero = 0.0 * half
    normal = where(lies, (zero, zero, up), normal)
    frame = make_frame(rotate(cylinder[1], normal))
    point0 = add(cylinder[0], rotate(cylinder[1], where(lies, point0, point)))
    point1 = add(cylinder[0], rotate(cylinder[1], where(lies, point1, point)))
    put(out, slot, w, m, tl.where(lies, dist0, dist), point0, frame)
    put(out, slot + 1, w, m, tl.where(lies, dist1, FAR), point1, frame)


@triton.jit
def _single(pos, axis, radius, half, size, TOL: tl.constexpr):
    """Contact dist, point and normal of a capsule in the cylinder's frame."""
    inner = axpy(_nearest_along(pos, axis, half, size, TOL), axis, pos)
    gap = sub(_into(inner, size), inner)
    length = length_of(gap)
    apart = length > TOL[TOUCHING] * (size[0] + size[1])
    overlap, deep_normal, deep_point = _deep(pos, axis, half, size, TOL)
    normal = where(apart, scale(1.0 / tl.where(apart, length, 1.0), gap), deep_normal)
    dist = tl.where(apart, length, -overlap) - radius
    point = where(apart, inner, deep_point)
    return dist, axpy(0.5 * dist + radius, normal, point), normal


# ------------------------------------------------------------------ apart


@triton.jit
def _into(point, size):
    """The nearest point of the cylinder, in its frame."""
    rho = tl.sqrt(point[0] * point[0] + point[1] * point[1])
    shrink = tl.where(rho > size[0], size[0] / tl.maximum(rho, MINVAL), 1.0)
    return point[0] * shrink, point[1] * shrink, clip(point[2], size[1])


@triton.jit
def _slope(point, axis, size):
    """Derivative along `axis` of half the squared distance to the cylinder, and its derivative."""
    gap = sub(point, _into(point, size))
    rho2 = tl.maximum(point[0] * point[0] + point[1] * point[1], MINVAL)
    square = axis[0] * axis[0] + axis[1] * axis[1]
    across = point[0] * axis[0] + point[1] * axis[1]
    radial = square - size[0] / tl.sqrt(rho2) * (square - across * across / rho2)
    beside = (tl.abs(gap[0]) > 0) | (tl.abs(gap[1]) > 0)
    steep = tl.where(beside, radial, 0.0) + tl.where(tl.abs(gap[2]) > 0, axis[2] * axis[2], 0.0)
    return dot(gap, axis), steep


@triton.jit
def _nearest_along(pos, axis, half, size, TOL: tl.constexpr):
    """Where on the capsule's segment the cylinder is nearest, in [-half, half].

    The slope of the squared distance has a root, or is zero along a stretch: both ends of that are
    found and their middle counts.
    """
    limit = TOL[TOUCHING] * (half + (size[0] + size[1]))
    total = 0.0 * half
    for end in range(2):
        low, high, at = -half, half, 0.0 * half
        for _step in range(STEPS):
            slope, steep = _slope(axpy(at, axis, pos), axis, size)
            low, high, at = narrower(low, high, at, slope - limit * (2.0 * end - 1.0), steep)
        total += at
    along = 0.5 * total
    slope, steep = _slope(axpy(along, axis, pos), axis, size)
    runs = steep > TOL[PARALLEL]
    return clip(along - slope / tl.where(runs, steep, FAR), half)


# ------------------------------------------------------------------ segment inside


@triton.jit
def _deep(pos, axis, half, size, TOL: tl.constexpr):
    """Least overlap of segment and cylinder that meet, its normal, the segment's point.

    The overlap along n is n . pos + half |n . axis| + R |n_xy| + H |n_z|. Its least is along the
    cylinder, or across it, or across both a rim and the segment.
    """
    zero = 0.0 * half
    one = zero + 1.0
    # across the cylinder: the point of the segment nearest to its axis
    square = axis[0] * axis[0] + axis[1] * axis[1]
    crossing = -(pos[0] * axis[0] + pos[1] * axis[1]) / tl.maximum(square, MINVAL)
    near = clip(crossing, half)
    x, y = pos[0] + near * axis[0], pos[1] + near * axis[1]
    slanted = square > TOL[PARALLEL]
    off_axis = x * x + y * y > MINVAL * MINVAL
    x = tl.where(off_axis, -x, tl.where(slanted, -axis[1], one))
    y = tl.where(off_axis, -y, tl.where(slanted, axis[0], zero))
    inverse = 1.0 / tl.sqrt(x * x + y * y)
    ways = (
        (zero, zero, one), (zero, zero, -one), (x * inverse, y * inverse, zero),
        _across_rim(pos, axis, size, slanted),
    )  # fmt: skip
    least, normal, on_rim = zero + FAR, ways[0], half < 0
    for k in tl.static_range(4):
        way = ways[k]
        overlap = dot(way, pos) + half * tl.abs(dot(way, axis))
        overlap += size[0] * tl.sqrt(way[0] * way[0] + way[1] * way[1]) + size[1] * tl.abs(way[2])
        better = overlap < least
        least, normal = tl.where(better, overlap, least), where(better, way, normal)
        on_rim = better if k == 3 else on_rim

    # the segment's end, or where it crosses what it touches: a side line, or a point of the rim
    along = dot(normal, axis)
    flat = tl.sqrt(normal[0] * normal[0] + normal[1] * normal[1])
    reach = least - size[0] / tl.maximum(flat, LEVEL)
    touch = (
        reach * normal[0], reach * normal[1],
        least * normal[2] - size[1] * sign(normal[2] > 0, half),
    )  # fmt: skip
    on_rim &= tl.abs(normal[2]) > LEVEL
    at = tl.where(on_rim, dot(sub(touch, pos), axis), tl.where(slanted, crossing, -dot(pos, axis)))
    level = tl.abs(along) < TOL[ALIGNED]
    at = tl.where(level, clip(at, half), half * sign(along > 0, half))
    return least, normal, axpy(at, axis, pos)


@triton.jit
def _across_rim(pos, axis, size, slanted):
    """Direction of least overlap among those at right angles to the segment."""
    zero = 0.0 * slanted.to(pos[0].dtype)
    x, y = tl.where(slanted, axis[1], zero + 1.0), tl.where(slanted, -axis[0], zero)
    inverse = 1.0 / tl.sqrt(x * x + y * y)
    level = (x * inverse, y * inverse, zero)
    rise = cross(axis, level)
    seen = dot(pos, level), dot(pos, rise), tl.abs(axis[2]), size[1] * tl.abs(rise[2])

    best, start = zero + FAR, zero
    for k in range(PARTS):
        angle = zero + PART * (k + 0.5)
        _c, _s, value, _slope, _curve = _toward(angle, seen, size[0])
        better = value < best
        best, start = tl.where(better, value, best), tl.where(better, angle, start)
    half_turn = number(PI, zero)
    below = start > half_turn
    low = tl.maximum(start - PART, tl.where(below, half_turn, zero))
    high = tl.minimum(start + PART, tl.where(below, 2.0 * half_turn, half_turn))
    angle = 0.5 * (low + high)
    for _step in range(STEPS):
        _c, _s, _value, slope, curve = _toward(angle, seen, size[0])
        low, high, angle = narrower(low, high, angle, slope, curve)
    c, s, _value, _slope, _curve = _toward(angle, seen, size[0])
    return axpy(c, level, scale(s, rise))


@triton.jit
def _toward(angle, seen, radius):
    """Direction (c, s) that touches the rim at an angle, its overlap, slope and curvature."""
    p1, p2, thin, lift = seen
    sine2 = thin * thin
    c, s = thin * tl.cos(angle), tl.sin(angle)
    norm = tl.sqrt(tl.maximum(c * c + s * s, 1e-12))
    c, s = c / norm, s / norm
    root = tl.sqrt(tl.maximum(c * c + sine2 * s * s, 1e-12))
    up = lift * sign(s > 0, s)
    value = c * p1 + s * p2 + radius * root + up * s
    slope = c * p2 - s * p1 + up * c + radius * (sine2 - 1.0) * c * s / root
    curve = (radius * sine2 / (root * root * root) - value) * thin / (norm * norm)
    return c, s, value, slope, curve


# ------------------------------------------------------------------ along a cap


@triton.jit
def _on_cap(pos, axis, radius, half, size, normal, up, margin, TOL: tl.constexpr):
    """Whether the capsule lies along a cap; two dist and two points there.

    The line of the capsule's surface nearest to the cap, cut off where it leaves the cap's polygon.
    MuJoCo clips a polygon of two corners: where a cut end is the only contact it appears twice.
    """
    lies = (tl.abs(axis[2]) < EDGE_ALIGNED) & (tl.abs(normal[2]) > LEVEL)
    inflated = 0.5 * margin  # MuJoCo grows both geoms by half the margin
    # across the axis, and so by less than the radius where the normal leans along it, as there
    middle = axpy(radius + inflated, axpy(-dot(normal, axis), axis, normal), pos)

    enter, leave = 0.0 * half - FAR, 0.0 * half + FAR
    for k in tl.static_range(8):
        offset = middle[0] * entry(ACROSS_X, k) + middle[1] * entry(ACROSS_Y, k)
        slope = axis[0] * entry(ACROSS_X, k) + axis[1] * entry(ACROSS_Y, k)
        runs = tl.abs(slope) > TOL[ALIGNED]
        steep = tl.where(runs, slope, 1.0)
        at, within = -offset / steep, size[0] * INSCRIBED
        spread = within / tl.abs(steep)
        inside = tl.abs(offset) <= within
        enter = tl.maximum(enter, tl.where(runs, at - spread, tl.where(inside, -FAR, FAR)))
        leave = tl.minimum(leave, tl.where(runs, at + spread, tl.where(inside, FAR, -FAR)))
    end0, end1 = tl.maximum(enter, -half), tl.minimum(leave, half)
    lies &= end0 <= end1

    point0, point1 = axpy(end0, axis, middle), axpy(end1, axis, middle)
    dist0 = inflated - point0[2] * up - size[1]
    dist1 = inflated - point1[2] * up - size[1]
    kept0, kept1 = (dist0 <= margin) & lies, (dist1 <= margin) & lies
    both, either = kept0 & kept1, kept0 | kept1
    twice = (kept0 & (enter > -half)) | (kept1 & (leave < half))
    lone = tl.where(kept0, dist0, dist1)
    lone_point = where(kept0, point0, point1)
    dist0 = tl.where(both, dist0, lone)
    dist1 = tl.where(both, dist1, tl.where(twice, lone, FAR))
    point0, point1 = where(both, point0, lone_point), where(both, point1, lone_point)
    lift0 = 0.5 * (dist0 - 2.0 * inflated) * up
    lift1 = 0.5 * (tl.where(dist1 < 0.5 * FAR, dist1, 0.0) - 2.0 * inflated) * up
    point0 = (point0[0], point0[1], point0[2] + lift0)
    point1 = (point1[0], point1[1], point1[2] + lift1)
    return either, dist0, dist1, point0, point1
