"""Contacts of a box with a plane, a sphere or a capsule, written to the pair's slots.

Twins of the colliders in `alloy.ops.reference.collide_box`, whose names they have. A choice that
the reference makes with a one-hot mask is an index here.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.collide_shared import (
    BOX_EDGE,
    FAR,
    SLACK,
    clip,
    length_of,
    make_frame,
    on_plane,
    pick,
    put,
    sign,
)
from alloy.ops.triton.vector import (
    MINVAL,
    add,
    axpy,
    column,
    dot,
    rotate,
    rotate_inv,
    scale,
    sub,
    where,
)


@triton.jit
def plane_box(plane, box, out, slot, w, m):
    """The lower end of each diagonal."""
    normal, size = column(plane[1], 2), box[2]
    local, frame = rotate_inv(box[1], normal), make_frame(normal)
    for k in tl.static_range(4):
        x = -size[0] if k == 1 else size[0]
        y = -size[1] if k == 2 else size[1]
        z = -size[2] if k == 3 else size[2]
        above = x * local[0] + y * local[1] + z * local[2] > 0
        corner = (tl.where(above, -x, x), tl.where(above, -y, y), tl.where(above, -z, z))
        center = add(box[0], rotate(box[1], corner))
        on_plane(plane, center, frame, out, slot + k, w, m)


@triton.jit
def sphere_box(ball, box, out, slot, w, m):
    """The nearest point of the box, or the nearest face if the centre is inside."""
    center = rotate_inv(box[1], sub(ball[0], box[0]))
    dist, pos, normal = _sphere_in_box_frame(center, ball[2][0], box[2])
    pos = add(box[0], rotate(box[1], pos))
    put(out, slot, w, m, dist, pos, make_frame(rotate(box[1], normal)))


@triton.jit
def _sphere_in_box_frame(center, radius, size):
    """Contact dist, pos and normal of a sphere given in the frame of the box."""
    clipped = (clip(center[0], size[0]), clip(center[1], size[1]), clip(center[2], size[2]))
    to_box = sub(clipped, center)
    length = length_of(to_box)
    outside = length > MINVAL

    x, y = size[0] - tl.abs(center[0]), size[1] - tl.abs(center[1])
    z = size[2] - tl.abs(center[2])
    nearest = tl.minimum(tl.minimum(x, y), z)
    is_x = x <= nearest
    is_y = (y <= nearest) & ~is_x
    zero = 0.0 * length
    inward = (
        tl.where(is_x, sign(center[0] <= 0, zero), zero),
        tl.where(is_y, sign(center[1] <= 0, zero), zero),
        tl.where(is_x | is_y, zero, sign(center[2] <= 0, zero)),
    )
    normal = where(outside, scale(1.0 / tl.where(outside, length, 1.0), to_box), inward)
    gap = tl.where(outside, length, -nearest)
    return gap - radius, axpy(0.5 * (gap + radius), normal, center), normal


# ------------------------------------------------------------------ capsule


@triton.jit
def capsule_box(capsule, box, margin, out, slot, w, m, TOL: tl.constexpr):
    """The sphere of the capsule nearest to the box, and a second one further along it.

    The second is as far along the capsule as this still runs above the face, or along the edge,
    that the first touches; there is none if the capsule points away from the box or is inside it.
    """
    pos = rotate_inv(box[1], sub(capsule[0], box[0]))
    axis = rotate_inv(box[1], column(capsule[1], 2))
    radius, half, size = capsule[2][0], capsule[2][1], box[2]
    halfaxis = scale(half, axis)
    reach = margin + 2.0 * (radius + half + (size[0] + size[1] + size[2]))
    found, along, near = _nearest(pos, halfaxis, half, size, reach, TOL)
    step, has_second = _second(along, near, pos, axis, halfaxis, size)
    for k in range(2):
        center = axpy(along + k * step, halfaxis, pos)
        dist, point, normal = _sphere_in_box_frame(center, radius, size)
        dist = tl.where(found & ((k == 0) | has_second), dist, FAR)
        point = add(box[0], rotate(box[1], point))
        put(out, slot + k, w, m, dist, point, make_frame(rotate(box[1], normal)))


@triton.jit
def _nearest(pos, halfaxis, half, size, reach, TOL: tl.constexpr):
    """The best of the two ends of the segment above faces, and of all 12 edges of the box.

    The first that is not beaten by more than rounding wins, in MuJoCo's order: round 0 finds the
    best distance, round 1 who reaches it. Returns whether one is within reach, where on the segment
    in [-1, 1], and what it is: axis of its edge or -1, whether it is between the edge's ends, where
    on the edge in [-1, 1], the corner (is it on the positive side of each axis?), and the axis of
    the face that an end is above or -1.
    """
    zero = 0.0 * half
    none = tl.full(half.shape, -1, tl.int32)
    best, limit, along, on_box, x, y, z = zero + FAR, zero - 1.0, zero, zero, zero, zero, zero
    found = zero > 1.0
    inner, edge, face = found, none, none
    for _round in range(2):
        for k in range(2):
            end = axpy(2.0 * k - 1.0, halfaxis, pos)
            dist2, faces, over = _beyond(end, size, none)
            ok = (faces <= 1) & (dist2 < reach)
            best = tl.minimum(best, tl.where(ok, dist2, FAR))
            won = ok & (dist2 <= limit) & ~found
            found |= won
            along, face = tl.where(won, 2.0 * k - 1.0, along), tl.where(won, over, face)
        for k in range(12):
            a = k // 4
            dist2, ok, on_segment, on_edge, within, corner = _edge(
                a, k % 4, pos, halfaxis, half, size, TOL
            )
            ok = ok & (dist2 < reach)
            best = tl.minimum(best, tl.where(ok, dist2, FAR))
            won = ok & (dist2 <= limit) & ~found
            found |= won
            along, on_box = tl.where(won, on_segment, along), tl.where(won, on_edge, on_box)
            edge, inner = tl.where(won, a, edge), tl.where(won, within, inner)
            x, y = tl.where(won, corner[0], x), tl.where(won, corner[1], y)
            z = tl.where(won, corner[2], z)
        limit = best + (TOL[SLACK] * (best + half * half) + MINVAL)
    return found, along, (edge, inner, on_box, (x > 0, y > 0, z > 0), face)


@triton.jit
def _beyond(end, size, none):
    """Squared distance of a point from the box, how many faces it is above, the axis of one."""
    x, y = tl.abs(end[0]) - size[0], tl.abs(end[1]) - size[1]
    z = tl.abs(end[2]) - size[2]
    count = (x > 0).to(tl.int32) + (y > 0).to(tl.int32) + (z > 0).to(tl.int32)
    over = tl.where(x > 0, 0, tl.where(y > 0, 1, tl.where(z > 0, 2, none)))
    x, y, z = tl.maximum(x, 0.0), tl.maximum(y, 0.0), tl.maximum(z, 0.0)
    return x * x + y * y + z * z, count, over


@triton.jit
def _edge(a, e, pos, halfaxis, half, size, TOL: tl.constexpr):
    """The segment against edge e of the four along axis a.

    Returns the squared distance, whether it counts (not if parallel), the nearest points on segment
    and edge in [-1, 1], whether the latter is between the edge's ends, and the nearest end in units
    of the half sizes.
    """
    low, high = 2.0 * (e % 2) - 1.0, 2.0 * (e // 2) - 1.0
    middle = (
        tl.where(a == 0, 0.0, low),
        tl.where(a == 1, 0.0, tl.where(a == 0, low, high)),
        tl.where(a == 2, 0.0, high),
    )
    length = pick(size, a)
    apart = sub((middle[0] * size[0], middle[1] * size[1], middle[2] * size[2]), pos)
    ma, mb, mc = length * length, -length * pick(halfaxis, a), half * half
    det = ma * mc - mb * mb
    ok = tl.abs(det) >= TOL[BOX_EDGE] * (ma * mc) + MINVAL
    det, mc = tl.where(ok, det, 1.0), tl.maximum(mc, MINVAL)
    u, v = length * pick(pos, a), dot(apart, halfaxis)

    # the lines' nearest points, clipped to the edge (x1), then the segment (x2), then the edge
    x1 = (mc * u - mb * v) / det
    out1 = tl.abs(x1) > 1
    x2 = tl.where(out1, (v - clip(x1, 1.0) * mb) / mc, (ma * v - mb * u) / det)
    out2, x2 = tl.abs(x2) > 1, clip(x2, 1.0)
    again = (u - x2 * mb) / ma
    # MuJoCo remembers the first clip even where the second clip brings x1 back inside
    out_again = out2 & (tl.abs(again) > 1)
    inner = ~(out1 | out_again)
    end = sign(tl.where(out_again, again, x1) > 1, half)
    x1 = clip(tl.where(out2, again, x1), 1.0)

    gap, on_edge = axpy(-x2, halfaxis, apart), x1 * length
    gap = (
        gap[0] + tl.where(a == 0, on_edge, 0.0),
        gap[1] + tl.where(a == 1, on_edge, 0.0),
        gap[2] + tl.where(a == 2, on_edge, 0.0),
    )
    corner = (
        tl.where(a == 0, end, middle[0]),
        tl.where(a == 1, end, middle[1]),
        tl.where(a == 2, end, middle[2]),
    )
    return dot(gap, gap), ok, x2, x1, inner, corner


@triton.jit
def _second(along, near, pos, axis, halfaxis, size):
    """How far along the segment from the nearest point the second one is, and if there is one."""
    edge, inner, on_box, corner, face = near
    moves = (tl.abs(halfaxis[0]) > 0, tl.abs(halfaxis[1]) > 0, tl.abs(halfaxis[2]) > 0)
    length = (
        tl.where(moves[0], halfaxis[0], 1.0),
        tl.where(moves[1], halfaxis[1], 1.0),
        tl.where(moves[2], halfaxis[2], 1.0),
    )
    across = (  # segment that crosses the box
        tl.where(moves[0], 2.0 * size[0] / tl.abs(length[0]), FAR),
        tl.where(moves[1], 2.0 * size[1] / tl.abs(length[1]), FAR),
        tl.where(moves[2], 2.0 * size[2] / tl.abs(length[2]), FAR),
    )
    # axes along which the segment runs back over the box
    turned = (
        (halfaxis[0] > 0) ^ corner[0], (halfaxis[1] > 0) ^ corner[1], (halfaxis[2] > 0) ^ corner[2],
    )  # fmt: skip
    at_corner, any_corner = _from_corner(along, axis, across, turned)

    # on an edge: over the face to which the segment is closer, to the end of the face or the edge
    next1, next2 = (edge + 1) % 3, (edge + 2) % 3
    steep1, steep2 = tl.abs(pick(axis, next1)), tl.abs(pick(axis, next2))
    over = tl.where(steep1 > steep2, next1, next2)
    ahead = pick(turned, over)
    way = sign(ahead, along)
    to_end = sign((pick(halfaxis, edge) > 0) ^ ahead, along)
    on_edge = tl.minimum(1.0 - way * along, pick(across, over))
    on_edge = tl.minimum(on_edge, 0.5 * (1.0 + to_end * on_box) * pick(across, edge)) * way
    any_edge = pick(turned, next1) ^ pick(turned, next2)

    over_face = 0.0 * along + 2.0
    for c in tl.static_range(3):
        start, pace = pos[c] + along * halfaxis[c], -along / length[c]
        counts = moves[c] & (face != c)
        for k in tl.static_range(2):
            bound = ((size[c] if k == 0 else -size[c]) - start) * pace
            closer = counts & (bound > 0)
            over_face = tl.where(closer, tl.minimum(over_face, bound), over_face)
    # above a face: towards the other end, as far as the face goes
    over_face *= -along

    is_edge = edge >= 0
    step = tl.where(is_edge, tl.where(inner, on_edge, at_corner), over_face)
    found = tl.where(is_edge, tl.where(inner, any_edge, any_corner), face >= 0)
    return tl.where(found, step, 0.0), found


@triton.jit
def _from_corner(along, axis, across, turned):
    """At a corner: follow the edge to whose axis the segment is close, or else the face."""
    count = turned[0].to(tl.int32) + turned[1].to(tl.int32) + turned[2].to(tl.int32)
    single = count == 1
    way = sign(single, along)
    close, lead, others = 0.0 * along, 0.0 * along + FAR, 0.0 * along + FAR
    for c in tl.static_range(3):
        leads = ~(turned[c] ^ single)
        close += tl.where(leads, axis[c] * axis[c], 0.0)
        lead = tl.where(leads, tl.minimum(lead, across[c]), lead)
        others = tl.where(leads, others, tl.minimum(others, across[c]))
    by_edge = tl.minimum(1.0 - way * along, lead) * way
    by_face = tl.minimum(1.0 + way * along, others) * -way
    return tl.where(close > 0.5, by_edge, by_face), single | (count == 2)
