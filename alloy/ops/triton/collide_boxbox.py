"""Contacts of two boxes. Twin of `alloy.ops.reference.collide_boxbox`, which explains the method.

A choice that the reference makes with a one-hot mask is an index here, different in every world.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.collide_shared import (
    CLIP,
    CROSS,
    DUPLICATE,
    FAR,
    NOISE,
    SEPARATION,
    SLOPE,
    clip,
    column_at,
    make_frame,
    pick,
    put,
    row_at,
    sign,
)
from alloy.ops.triton.lane import load, store, store3
from alloy.ops.triton.vector import (
    add,
    axpy,
    column,
    compose,
    dot,
    rotate,
    rotate_inv,
    scale,
    sub,
    where,
)

EDGE_BIAS = tl.constexpr(1e-6)  # an edge axis must be better than the best face by this fraction
ALIAS_COS = tl.constexpr(0.99)  # an edge axis this close to the best face's normal...
ALIAS_GAIN = tl.constexpr(0.05)  # ... must be better by this fraction


@triton.jit
def box_box(a, b, margin, out, slot, w, m, TOL: tl.constexpr):
    """One contact of two edges or the overlap of two faces."""
    rot = compose(transposed(a[1]), b[1])
    apart = sub(b[0], a[0])
    at1, at2 = rotate_inv(a[1], apart), rotate_inv(b[1], scale(-1.0, apart))
    size1, size2 = a[2], b[2]
    summed = size1[0] + size1[1] + size1[2] + size2[0] + size2[1] + size2[2]
    limit = margin + TOL[SEPARATION] * summed

    best_face, face = _face_axis(rot, at1, at2, size1, size2)
    best_edge, beaten, i, j = _edge_axis(rot, at1, size1, size2, TOL)
    touch = tl.maximum(best_face, best_edge) <= limit
    normal1, normal2, _valid = _across(rot, i, j, TOL)
    alias = tl.abs(tl.where(face < 3, pick(normal1, face), pick(normal2, face - 3)))
    gain = tl.abs(best_face) * ALIAS_GAIN + TOL[NOISE] * tl.maximum(summed, 1.0)
    keep_face = (alias > ALIAS_COS) & (best_edge < best_face + gain)
    is_edge = (beaten > best_face) & ~keep_face
    dist, edge_pos, edge_normal = _edge_contact(normal1, normal2, i, j, rot, at1, size1, size2, TOL)
    dist = tl.where(is_edge & touch & (dist <= limit), dist, FAR)
    edge_pos, edge_normal = add(a[0], rotate(a[1], edge_pos)), rotate(a[1], edge_normal)

    # the box that owns the face, and the other one in its frame
    own1, axis = face < 3, face % 3
    turned = transposed(rot)
    rot = (
        where(own1, rot[0], turned[0]), where(own1, rot[1], turned[1]),
        where(own1, rot[2], turned[2]),
    )  # fmt: skip
    at, pos = where(own1, at1, at2), where(own1, a[0], b[0])
    size, other = where(own1, size1, size2), where(own1, size2, size1)
    up, size = _face_contacts(
        axis, rot, at, size, other, margin, touch & ~is_edge, dist, out, slot, w, m, TOL
    )

    x = where(own1, column_at(a[1], (axis + 1) % 3), column_at(b[1], (axis + 1) % 3))
    y = where(own1, column_at(a[1], (axis + 2) % 3), column_at(b[1], (axis + 2) % 3))
    z = scale(up, where(own1, column_at(a[1], axis), column_at(b[1], axis)))
    pos = axpy(size[2], z, pos)
    normal = where(is_edge, edge_normal, scale(sign(own1, up), z))
    frame = make_frame(normal)
    for k in range(8):
        at_k = 3 * (slot + k)
        px, py = load(out[1], at_k, w, m), load(out[1], at_k + 1, w, m)
        point = axpy(0.5 * load(out[1], at_k + 2, w, m), z, pos)
        point = where(is_edge, edge_pos, axpy(px, x, axpy(py, y, point)))
        put(out, slot + k, w, m, load(out[0], slot + k, w, m), point, frame)


@triton.jit
def transposed(mat):
    """The transposed matrix."""
    return column(mat, 0), column(mat, 1), column(mat, 2)


# ------------------------------------------------------------------ separating axes


@triton.jit
def _reach(normal, size):
    """Half the extent of a box along a vector."""
    return tl.abs(normal[0]) * size[0] + tl.abs(normal[1]) * size[1] + tl.abs(normal[2]) * size[2]


@triton.jit
def _face_axis(rot, at1, at2, size1, size2):
    """Separation along the best of the 6 face normals, and its index: of box 1, then of box 2."""
    best = 0.0 * size1[0] - FAR
    face = tl.full(best.shape, 0, tl.int32)
    for k in range(3):
        gap = tl.abs(pick(at1, k)) - pick(size1, k) - _reach(row_at(rot, k), size2)
        face, best = tl.where(gap > best, k, face), tl.maximum(best, gap)
    for k in range(3):
        gap = tl.abs(pick(at2, k)) - pick(size2, k) - _reach(column_at(rot, k), size1)
        face, best = tl.where(gap > best, k + 3, face), tl.maximum(best, gap)
    return best, face


@triton.jit
def _across(rot, i, j, TOL: tl.constexpr):
    """Unit normal of edge i of box 1 and edge j of box 2 in both frames, and whether it exists."""
    along = column_at(rot, j)
    zero = 0.0 * along[0]
    normal = (
        tl.where(i == 0, zero, tl.where(i == 1, along[2], -along[1])),
        tl.where(i == 0, -along[2], tl.where(i == 1, zero, along[0])),
        tl.where(i == 0, along[1], tl.where(i == 1, -along[0], zero)),
    )
    square = dot(normal, normal)
    valid = square >= TOL[CROSS]
    normal = scale(1.0 / tl.sqrt(tl.where(valid, square, 1.0)), normal)
    turned = rotate_inv(rot, normal)
    turned = (  # normal to axis j, also in rounding
        tl.where(j == 0, zero, turned[0]),
        tl.where(j == 1, zero, turned[1]),
        tl.where(j == 2, zero, turned[2]),
    )
    return normal, turned, valid


@triton.jit
def _edge_axis(rot, at1, size1, size2, TOL: tl.constexpr):
    """The first of the 9 edge axes that reaches the best separation, but for a bias.

    Round 0 finds the best, round 1 who reaches it. Returns the best separation, what reaches it,
    and the edges of box 1 and of box 2.
    """
    best = 0.0 * size1[0] - FAR
    enough, i, j = -best, tl.full(best.shape, -1, tl.int32), tl.full(best.shape, 0, tl.int32)
    for _round in range(2):
        for k in range(9):
            normal, turned, valid = _across(rot, k // 3, k % 3, TOL)
            gap = tl.abs(dot(normal, at1)) - (_reach(normal, size1) + _reach(turned, size2))
            gap = tl.where(valid, gap, -FAR)
            best = tl.maximum(best, gap)
            won = (gap >= enough) & (i < 0)
            i, j = tl.where(won, k // 3, i), tl.where(won, k % 3, j)
        enough = best - tl.abs(best) * EDGE_BIAS
    return best, enough, i, j


# ------------------------------------------------------------------ two edges


@triton.jit
def _edge_contact(normal1, normal2, i, j, rot, at1, size1, size2, TOL: tl.constexpr):
    """Contact of the two supporting edges in the frame of box 1: dist, pos, normal."""
    way = sign(dot(normal1, at1) >= 0, at1[0])
    normal1, normal2 = scale(way, normal1), scale(-way, normal2)
    along = column_at(rot, j)
    middle1 = _supporting(normal1, i, size1)
    middle2 = add(at1, rotate(rot, _supporting(normal2, j, size2)))
    half1, half2 = pick(size1, i), pick(size2, j)

    # nearest points of the lines, then clipped to one edge, the other, and the first again
    gap = sub(middle2, middle1)
    cosine, gap1, gap2 = pick(along, i), pick(gap, i), dot(along, gap)
    sine2 = tl.maximum(1.0 - cosine * cosine, TOL[CROSS])
    s = clip((gap1 - cosine * gap2) / sine2, half1)
    t = clip(cosine * s - gap2, half2)
    s = clip(gap1 + cosine * t, half1)
    point1 = (
        tl.where(i == 0, s, middle1[0]),
        tl.where(i == 1, s, middle1[1]),
        tl.where(i == 2, s, middle1[2]),
    )
    point2 = axpy(t, along, middle2)
    return dot(sub(point2, point1), normal1), scale(0.5, add(point1, point2)), normal1


@triton.jit
def _supporting(normal, i, size):
    """The middle of the edge along axis i that is furthest in direction normal."""
    return (
        tl.where(i == 0, 0.0, tl.where(normal[0] >= 0, size[0], -size[0])),
        tl.where(i == 1, 0.0, tl.where(normal[1] >= 0, size[1], -size[1])),
        tl.where(i == 2, 0.0, tl.where(normal[2] >= 0, size[2], -size[2])),
    )


# ------------------------------------------------------------------ two faces


@triton.jit
def _face_contacts(
    axis, rot, at, size, other, margin, on, edge_dist, out, slot, w, m, TOL: tl.constexpr
):
    """Overlap of a face of one box, its owner, with the most opposed face of the other box.

    The arguments are in the owner's frame, `axis` is that of the face. Writes dist, and as pos the
    points of the other box in the face's frame (x, y in the face, z its outward normal, origin on
    the face). Where it is not on, the first dist is edge_dist and the others are empty. Returns
    the sign of the outward normal and the half sizes in the face's frame.
    """
    next1, next2 = (axis + 1) % 3, (axis + 2) % 3
    up = sign(pick(at, axis) >= 0, at[0])
    size = (pick(size, next1), pick(size, next2), pick(size, axis))
    at = (pick(at, next1), pick(at, next2), up * pick(at, axis) - size[2])
    rot = (row_at(rot, next1), row_at(rot, next2), scale(up, row_at(rot, axis)))

    slant = (tl.abs(rot[2][0]), tl.abs(rot[2][1]), tl.abs(rot[2][2]))
    most = tl.maximum(tl.maximum(slant[0], slant[1]), slant[2])
    facing = tl.where(slant[0] >= most, 0, tl.where(slant[1] >= most, 1, 2))
    next1, next2 = (facing + 1) % 3, (facing + 2) % 3
    u = scale(pick(other, next1), column_at(rot, next1))
    v = scale(pick(other, next2), column_at(rot, next2))
    down = scale(pick(other, facing), column_at(rot, facing))
    center = axpy(sign(down[2] <= 0, up), down, at)

    # both outlines counter-clockwise
    det = u[0] * v[1] - u[1] * v[0]
    v, det = scale(sign(det >= 0, det), v), tl.abs(det)
    # each outline in units in which the other is the square [-1, 1]^2: matrix and centre
    box = (u[0] / size[0], v[0] / size[0], u[1] / size[1], v[1] / size[1])
    box_at = (center[0] / size[0], center[1] / size[1])
    inverse = (v[1] / det, -v[0] / det, -u[1] / det, u[0] / det)
    uv = (
        inverse[0] * size[0], inverse[1] * size[1], inverse[2] * size[0], inverse[3] * size[1],
    )  # fmt: skip
    uv_at = (
        -(inverse[0] * center[0] + inverse[1] * center[1]),
        -(inverse[2] * center[0] + inverse[3] * center[1]),
    )
    same = TOL[DUPLICATE] * (size[0] * size[0] + size[1] * size[1])
    # along the square's sides, counter-clockwise
    sx, sy, dx, dy = -1.0 + 0.0 * up, -1.0 + 0.0 * up, 2.0 + 0.0 * up, 0.0 * up
    used = tl.full(up.shape, 0, tl.int32)
    for k in range(8):
        own = k < 4  # the other box's side enters the owner's face
        xx, xy = tl.where(own, box[0], uv[0]), tl.where(own, box[1], uv[1])
        yx, yy = tl.where(own, box[2], uv[2]), tl.where(own, box[3], uv[3])
        x = tl.where(own, box_at[0], uv_at[0]) + xx * sx + xy * sy
        y = tl.where(own, box_at[1], uv_at[1]) + yx * sx + yy * sy
        step_x, step_y = xx * dx + xy * dy, yx * dx + yy * dy
        enter, enters = _enter_square(x, y, step_x, step_y, TOL)
        at_u = tl.where(own, sx, x) + enter * tl.where(own, dx, step_x)
        at_v = tl.where(own, sy, y) + enter * tl.where(own, dy, step_y)
        point = axpy(at_u, u, axpy(at_v, v, center))
        store3(out[1], slot + k, w, m, point)
        enters &= point[2] <= margin
        fresh = enters & on
        for j in range(k):
            px = point[0] - load(out[1], 3 * (slot + j), w, m)
            py = point[1] - load(out[1], 3 * (slot + j) + 1, w, m)
            fresh &= (px * px + py * py >= same) | (((used >> j) & 1) == 0)
        used |= enters.to(tl.int32) << k
        dist = tl.where(fresh, point[2], tl.where((k == 0) & ~on, edge_dist, FAR))
        store(out[0], slot + k, w, m, dist)
        sx, sy = sx + dx, sy + dy
        dx, dy = -dy, dx
    return up, size


@triton.jit
def _enter_square(x, y, step_x, step_y, TOL: tl.constexpr):
    """Where in [0, 1] a segment enters [-1, 1]^2, and if it does at all."""
    enter_x, leave_x = _enter_strip(x, step_x, TOL)
    enter_y, leave_y = _enter_strip(y, step_y, TOL)
    enter = tl.maximum(tl.maximum(enter_x, enter_y), 0.0)
    leave = tl.minimum(tl.minimum(leave_x, leave_y), 1.0)
    return tl.minimum(enter, 1.0), enter <= leave + TOL[CLIP]


@triton.jit
def _enter_strip(start, step, TOL: tl.constexpr):
    """Where the line start + s step enters [-1, 1] and leaves it; beyond [0, 1] if never."""
    level = tl.abs(step) <= TOL[SLOPE]
    within = tl.abs(start) <= 1.0 + TOL[CLIP]
    towards = sign(step >= 0, step)
    inverse = 1.0 / tl.where(level, 1.0, step)
    enter = tl.where(level, tl.where(within, 0.0, 2.0), (-towards - start) * inverse)
    leave = tl.where(level, tl.where(within, 1.0, -1.0), (towards - start) * inverse)
    return enter, leave
