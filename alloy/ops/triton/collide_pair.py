"""Contacts of one pair of geoms, each (pos, mat, size), written to the pair's slots.

Twins of the colliders in `alloy.ops.reference.collide`, whose names they have.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.collide_shared import (
    ALIGNED,
    FAR,
    PARALLEL,
    ball_contact,
    clip,
    length_of,
    make_frame,
    on_plane,
    put,
    sign,
    spare_normal,
    unit_or,
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
    where,
)

SQRT3_2 = tl.constexpr(3**0.5 / 2)


# ------------------------------------------------------------------ planes


@triton.jit
def plane_sphere(plane, ball, out, slot, w, m):
    """The lowest point of the sphere."""
    normal, radius = column(plane[1], 2), ball[2][0]
    dist = dot(sub(ball[0], plane[0]), normal) - radius
    pos = axpy(-(0.5 * dist + radius), normal, ball[0])
    put(out, slot, w, m, dist, pos, make_frame(normal))


@triton.jit
def plane_capsule(plane, capsule, out, slot, w, m, TOL: tl.constexpr):
    """The lowest points of the two end spheres, frames aligned with the capsule."""
    normal, axis, radius = column(plane[1], 2), column(capsule[1], 2), capsule[2][0]
    tangent = axpy(-dot(normal, axis), normal, axis)
    length = length_of(tangent)
    tilted = length > TOL[ALIGNED]
    inverse = 1.0 / tl.where(tilted, length, 1.0)
    tangent = where(tilted, scale(inverse, tangent), column(plane[1], 0))
    frame = (normal, tangent, cross(normal, tangent))
    for end in tl.static_range(2):
        center = axpy((1.0 - 2.0 * end) * capsule[2][1], axis, capsule[0])
        dist = dot(sub(center, plane[0]), normal) - radius
        put(out, slot + end, w, m, dist, axpy(-(0.5 * dist + radius), normal, center), frame)


@triton.jit
def plane_ellipsoid(plane, ball, out, slot, w, m):
    """The lowest point of the ellipsoid."""
    normal, size = column(plane[1], 2), ball[2]
    down = rotate_inv(ball[1], normal)
    down = (-size[0] * down[0], -size[1] * down[1], -size[2] * down[2])
    unit = scale(1.0 / length_of(down), down)
    point = (size[0] * unit[0], size[1] * unit[1], size[2] * unit[2])
    on_plane(plane, add(ball[0], rotate(ball[1], point)), make_frame(normal), out, slot, w, m)


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
    frame = make_frame(normal)
    for k in tl.static_range(4):
        center = add(cylinder[0], rotate(cylinder[1], points[k]))
        on_plane(plane, center, frame, out, slot + k, w, m)


# ------------------------------------------------------------------ spheres


@triton.jit
def sphere_sphere(a, b, out, slot, w, m):
    """The nearest points of two spheres."""
    normal, length = unit_or(sub(b[0], a[0]), spare_normal(a, b))
    ball_contact(a[0], a[2][0], normal, length - b[2][0], out, slot, w, m)


@triton.jit
def sphere_capsule(ball, capsule, out, slot, w, m):
    """The sphere against the nearest sphere of the capsule."""
    axis = column(capsule[1], 2)
    along = clip(dot(axis, sub(ball[0], capsule[0])), capsule[2][1])
    nearest = axpy(along, axis, capsule[0])
    normal, length = unit_or(sub(nearest, ball[0]), spare_normal(ball, capsule))
    ball_contact(ball[0], ball[2][0], normal, length - capsule[2][0], out, slot, w, m)


@triton.jit
def sphere_cylinder(ball, cylinder, out, slot, w, m):
    """The sphere against side, cap or rim, whichever is nearest."""
    axis, radius, half = column(cylinder[1], 2), cylinder[2][0], cylinder[2][1]
    center = sub(ball[0], cylinder[0])
    height = dot(axis, center)
    radial = axpy(-height, axis, center)
    rho = length_of(radial)
    up = sign(height > 0, height)
    depth_cap, depth_side = half - up * height, radius - rho
    in_height, in_radius = depth_cap > 0, depth_side > 0
    cap_wins = depth_cap < depth_side
    side = in_height & ~(in_radius & cap_wins)
    cap = in_radius & ~(in_height & ~cap_wins)
    # from the sphere's centre to the axis, straight to the cap, or to the rim
    shrink = tl.where(side, 1.0, 1.0 - radius / tl.where(in_radius, radius, rho))
    to_rim = axpy(tl.where(side, 0.0, up * depth_cap), axis, scale(-shrink, radial))
    to_surface = where(cap, scale(-up, axis), to_rim)
    normal, length = unit_or(to_surface, spare_normal(ball, cylinder))
    gap = tl.where(side, length - radius, tl.where(cap, -depth_cap, length))
    ball_contact(ball[0], ball[2][0], normal, gap, out, slot, w, m)


# ------------------------------------------------------------------ capsules


@triton.jit
def capsule_capsule(a, b, out, slot, w, m, TOL: tl.constexpr):
    """The nearest points of the two segments; both ends of their overlap if parallel.

    Skew lines are clipped to segment 1, then 2, then 1 again. On parallel ones, an end of segment 2
    that lies beyond segment 1 gives way to the end there.
    """
    axis1, axis2, apart = column(a[1], 2), column(b[1], 2), sub(b[0], a[0])
    radius1, half1, radius2, half2 = a[2][0], a[2][1], b[2][0], b[2][1]
    across = cross(axis1, axis2)
    sine2, cosine = dot(across, across), dot(axis1, axis2)
    ahead1, ahead2 = dot(axis1, apart), dot(axis2, apart)
    parallel = sine2 < TOL[PARALLEL]
    skew1 = dot(cross(apart, axis2), across) / tl.where(parallel, 1.0, sine2)
    for end in tl.static_range(2):
        end2 = (1.0 - 2.0 * end) * half2
        end1 = ahead1 + cosine * end2
        along1 = clip(tl.where(parallel, end1, skew1), half1)
        along2 = clip(cosine * along1 - ahead2, half2)
        along2 = tl.where(parallel & (tl.abs(end1) <= half1), end2, along2)
        along1 = tl.where(parallel, along1, clip(ahead1 + cosine * along2, half1))
        point1, point2 = axpy(along1, axis1, a[0]), axpy(along2, axis2, b[0])
        normal, length = unit_or(sub(point2, point1), across)
        dist = length - (radius1 + radius2)
        pos = axpy(0.5 * dist + radius1, normal, point1)
        dist = dist if end == 0 else tl.where(parallel, dist, FAR)
        put(out, slot + end, w, m, dist, pos, make_frame(normal))
