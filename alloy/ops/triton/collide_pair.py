"""Contacts of one pair of geoms, each (pos, mat, size), written to the pair's slots.

Twins of the colliders in `alloy.ops.reference.collide` and `collide_box`, whose names they have.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.lane import store, store3, store9
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
    where,
)

FAR = tl.constexpr(1e10)  # dist of an empty slot
SQRT3_2 = tl.constexpr(3**0.5 / 2)


# ------------------------------------------------------------------ shared


@triton.jit
def _put(out, slot, w, m, dist, pos, frame):
    store(out[0], slot, w, m, dist)
    store3(out[1], slot, w, m, pos)
    store9(out[2], slot, w, m, frame)


@triton.jit
def _clip(x, limit):
    return tl.maximum(tl.minimum(x, limit), -limit)


@triton.jit
def _length(v):
    return tl.sqrt(dot(v, v))


@triton.jit
def _frame(normal):
    """Normal and two tangents: from y, or from z where the normal is close to y."""
    zero = 0.0 * normal[0]
    near_y = tl.abs(normal[1]) < 0.5
    hint = (zero, tl.where(near_y, 1.0, zero), tl.where(near_y, zero, 1.0))
    tangent = axpy(-dot(normal, hint), normal, hint)
    tangent = scale(1.0 / _length(tangent), tangent)
    return normal, tangent, cross(normal, tangent)


@triton.jit
def _unit_or(v, spare):
    """Unit vector along v, or spare if v has no length, or else x; and the length of v."""
    length = _length(v)
    v = where(length > MINVAL, v, spare)
    norm = _length(v)
    long = norm > MINVAL
    inverse, zero = 1.0 / tl.where(long, norm, 1.0), 0.0 * norm
    unit = where(long, scale(inverse, v), (zero + 1.0, zero, zero))
    return unit, length


@triton.jit
def _ball(center, radius, normal, gap, out, slot, w, m):
    """Contact of a sphere whose centre is `gap` from a surface in direction `normal`."""
    dist = gap - radius
    _put(out, slot, w, m, dist, axpy(0.5 * dist + radius, normal, center), _frame(normal))


@triton.jit
def _point(plane, center, frame, out, slot, w, m):
    """Contact of a plane with a point."""
    dist = dot(sub(center, plane[0]), frame[0])
    _put(out, slot, w, m, dist, axpy(-0.5 * dist, frame[0], center), frame)


# ------------------------------------------------------------------ planes


@triton.jit
def plane_sphere(plane, ball, out, slot, w, m):
    """The lowest point of the sphere."""
    normal, radius = column(plane[1], 2), ball[2][0]
    dist = dot(sub(ball[0], plane[0]), normal) - radius
    pos = axpy(-(0.5 * dist + radius), normal, ball[0])
    _put(out, slot, w, m, dist, pos, _frame(normal))


@triton.jit
def plane_capsule(plane, capsule, out, slot, w, m, ALIGNED: tl.constexpr):
    """The lowest points of the two end spheres, frames aligned with the capsule."""
    normal, axis, radius = column(plane[1], 2), column(capsule[1], 2), capsule[2][0]
    tangent = axpy(-dot(normal, axis), normal, axis)
    length = _length(tangent)
    tilted = length > ALIGNED
    inverse = 1.0 / tl.where(tilted, length, 1.0)
    tangent = where(tilted, scale(inverse, tangent), column(plane[1], 0))
    frame = (normal, tangent, cross(normal, tangent))
    for end in tl.static_range(2):
        center = axpy((1.0 - 2.0 * end) * capsule[2][1], axis, capsule[0])
        dist = dot(sub(center, plane[0]), normal) - radius
        _put(out, slot + end, w, m, dist, axpy(-(0.5 * dist + radius), normal, center), frame)


@triton.jit
def plane_ellipsoid(plane, ball, out, slot, w, m):
    """The lowest point of the ellipsoid."""
    normal, size = column(plane[1], 2), ball[2]
    down = rotate_inv(ball[1], normal)
    down = (-size[0] * down[0], -size[1] * down[1], -size[2] * down[2])
    unit = scale(1.0 / _length(down), down)
    point = (size[0] * unit[0], size[1] * unit[1], size[2] * unit[2])
    _point(plane, add(ball[0], rotate(ball[1], point)), _frame(normal), out, slot, w, m)


@triton.jit
def plane_cylinder(plane, cylinder, out, slot, w, m):
    """The lowest point of both caps and two more that make a triangle of the lower cap."""
    normal = column(plane[1], 2)
    local, radius, half = rotate_inv(cylinder[1], normal), cylinder[2][0], cylinder[2][1]
    length = tl.sqrt(local[0] * local[0] + local[1] * local[1])
    tilted = length > MINVAL
    reach = -radius / tl.where(tilted, length, 1.0)
    x, y = tl.where(tilted, local[0], -1.0) * reach, tl.where(tilted, local[1], 0.0) * reach
    cap = tl.where(local[2] > 0, -half, half)
    points = (
        (x, y, cap),
        (x, y, -cap),
        (SQRT3_2 * y - 0.5 * x, -0.5 * y - SQRT3_2 * x, cap),
        (-0.5 * x - y * SQRT3_2, x * SQRT3_2 - 0.5 * y, cap),
    )
    frame = _frame(normal)
    for k in tl.static_range(4):
        center = add(cylinder[0], rotate(cylinder[1], points[k]))
        _point(plane, center, frame, out, slot + k, w, m)


@triton.jit
def plane_box(plane, box, out, slot, w, m):
    """The lower end of each diagonal."""
    normal, size = column(plane[1], 2), box[2]
    local, frame = rotate_inv(box[1], normal), _frame(normal)
    for k in tl.static_range(4):
        x = -size[0] if k == 1 else size[0]
        y = -size[1] if k == 2 else size[1]
        z = -size[2] if k == 3 else size[2]
        above = x * local[0] + y * local[1] + z * local[2] > 0
        corner = (tl.where(above, -x, x), tl.where(above, -y, y), tl.where(above, -z, z))
        center = add(box[0], rotate(box[1], corner))
        _point(plane, center, frame, out, slot + k, w, m)


# ------------------------------------------------------------------ spheres


@triton.jit
def sphere_sphere(a, b, out, slot, w, m):
    """The nearest points of two spheres."""
    spare = cross(column(a[1], 2), column(b[1], 2))
    normal, length = _unit_or(sub(b[0], a[0]), spare)
    _ball(a[0], a[2][0], normal, length - b[2][0], out, slot, w, m)


@triton.jit
def sphere_capsule(ball, capsule, out, slot, w, m):
    """The sphere against the nearest sphere of the capsule."""
    axis = column(capsule[1], 2)
    along = _clip(dot(axis, sub(ball[0], capsule[0])), capsule[2][1])
    nearest = axpy(along, axis, capsule[0])
    normal, length = _unit_or(sub(nearest, ball[0]), cross(column(ball[1], 2), axis))
    _ball(ball[0], ball[2][0], normal, length - capsule[2][0], out, slot, w, m)


@triton.jit
def sphere_box(ball, box, out, slot, w, m):
    """The nearest point of the box, or the nearest face if the centre is inside."""
    size, radius = box[2], ball[2][0]
    center = rotate_inv(box[1], sub(ball[0], box[0]))
    clipped = (_clip(center[0], size[0]), _clip(center[1], size[1]), _clip(center[2], size[2]))
    to_box = sub(clipped, center)
    length = _length(to_box)
    outside = length > MINVAL

    x, y = size[0] - tl.abs(center[0]), size[1] - tl.abs(center[1])
    z = size[2] - tl.abs(center[2])
    nearest = tl.minimum(tl.minimum(x, y), z)
    is_x = x <= nearest
    is_y = (y <= nearest) & ~is_x
    zero = 0.0 * length
    inward = (
        tl.where(is_x, tl.where(center[0] <= 0, 1.0, -1.0), zero),
        tl.where(is_y, tl.where(center[1] <= 0, 1.0, -1.0), zero),
        tl.where(is_x | is_y, zero, tl.where(center[2] <= 0, 1.0, -1.0)),
    )
    normal = where(outside, scale(1.0 / tl.where(outside, length, 1.0), to_box), inward)
    gap = tl.where(outside, length, -nearest)
    pos = add(box[0], rotate(box[1], axpy(0.5 * (gap + radius), normal, center)))
    _put(out, slot, w, m, gap - radius, pos, _frame(rotate(box[1], normal)))


# ------------------------------------------------------------------ capsules


@triton.jit
def capsule_capsule(a, b, out, slot, w, m, PARALLEL: tl.constexpr):
    """The nearest points of the two segments; both ends of their overlap if parallel.

    Skew lines are clipped to segment 1, then 2, then 1 again. On parallel ones, an end of segment 2
    that lies beyond segment 1 gives way to the end there.
    """
    axis1, axis2, apart = column(a[1], 2), column(b[1], 2), sub(b[0], a[0])
    radius1, half1, radius2, half2 = a[2][0], a[2][1], b[2][0], b[2][1]
    across = cross(axis1, axis2)
    sine2, cosine = dot(across, across), dot(axis1, axis2)
    ahead1, ahead2 = dot(axis1, apart), dot(axis2, apart)
    parallel = sine2 < PARALLEL
    skew1 = dot(cross(apart, axis2), across) / tl.where(parallel, 1.0, sine2)
    for end in tl.static_range(2):
        end2 = (1.0 - 2.0 * end) * half2
        end1 = ahead1 + cosine * end2
        along1 = _clip(tl.where(parallel, end1, skew1), half1)
        along2 = _clip(cosine * along1 - ahead2, half2)
        along2 = tl.where(parallel & (tl.abs(end1) <= half1), end2, along2)
        along1 = tl.where(parallel, along1, _clip(ahead1 + cosine * along2, half1))
        point1, point2 = axpy(along1, axis1, a[0]), axpy(along2, axis2, b[0])
        normal, length = _unit_or(sub(point2, point1), across)
        dist = length - (radius1 + radius2)
        pos = axpy(0.5 * dist + radius1, normal, point1)
        dist = dist if end == 0 else tl.where(parallel, dist, FAR)
        _put(out, slot + end, w, m, dist, pos, _frame(normal))
