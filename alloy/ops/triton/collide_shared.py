"""What the colliders' kernels share: the empty slot, contact frames, writing a contact.

Twin of `alloy.ops.reference.collide_shared`. A geom is (pos, mat, size) of one pair per lane.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.lane import store, store3, store9
from alloy.ops.triton.vector import MINVAL, axpy, column, cross, dot, scale, sub, where

FAR = tl.constexpr(1e10)  # dist of an empty slot
STEPS = tl.constexpr(16)  # of a search in one dimension
# the tolerances that kernels get as a tuple TOL: those of the reference, the rounding of a squared
# distance, and the distance, relative to the sizes, below which surfaces count as touching
TOLERANCES = 11
(
    ALIGNED, PARALLEL, BOX_EDGE, CROSS, SEPARATION, NOISE, DUPLICATE, SLOPE, CLIP, SLACK, TOUCHING,
) = (tl.constexpr(k) for k in range(TOLERANCES))  # fmt: skip


@triton.constexpr_function
def entry(values, k):
    """Entry k of a constexpr tuple, itself a constexpr also in Triton 3.6."""
    return values[k]


@triton.jit
def put(out, slot, w, m, dist, pos, frame):
    """Write a contact to its slot."""
    store(out[0], slot, w, m, dist)
    store3(out[1], slot, w, m, pos)
    store9(out[2], slot, w, m, frame)


@triton.jit
def clip(x, limit):
    """A number limited to [-limit, limit]."""
    return tl.maximum(tl.minimum(x, limit), -limit)


@triton.jit
def sign(mask, like):
    """1 where the mask is true and -1 elsewhere, in the dtype of a block."""
    return tl.where(mask, 1.0, tl.full(like.shape, -1.0, like.dtype))


@triton.jit
def length_of(v):
    """Length of a vector."""
    return tl.sqrt(dot(v, v))


@triton.jit
def pick(v, i):
    """Component i of a vector, where i differs by world or is counted by a loop."""
    return tl.where(i == 0, v[0], tl.where(i == 1, v[1], v[2]))


@triton.jit
def row_at(mat, i):
    """Row i of a matrix, i as in `pick`."""
    return pick(column(mat, 0), i), pick(column(mat, 1), i), pick(column(mat, 2), i)


@triton.jit
def column_at(mat, i):
    """Column i of a matrix, i as in `pick`."""
    return pick(mat[0], i), pick(mat[1], i), pick(mat[2], i)


@triton.jit
def make_frame(normal):
    """Normal and two tangents: from y, or from z where the normal is close to y."""
    zero = 0.0 * normal[0]
    near_y = tl.abs(normal[1]) < 0.5
    hint = (zero, tl.where(near_y, 1.0, zero), tl.where(near_y, zero, 1.0))
    tangent = axpy(-dot(normal, hint), normal, hint)
    tangent = scale(1.0 / length_of(tangent), tangent)
    return normal, tangent, cross(normal, tangent)


@triton.jit
def unit_or(v, spare):
    """Unit vector along v, or spare if v has no length, or else x; and the length of v."""
    length = length_of(v)
    v = where(length > MINVAL, v, spare)
    norm = length_of(v)
    long = norm > MINVAL
    inverse, zero = 1.0 / tl.where(long, norm, 1.0), 0.0 * norm
    unit = where(long, scale(inverse, v), (zero + 1.0, zero, zero))
    return unit, length


@triton.jit
def narrower(low, high, at, value, slope):
    """A step towards the root of a function that grows from low to high, and the new bracket.

    Newton's method where it stays in the bracket, else its middle.
    """
    before = value < 0
    low, high = tl.where(before, at, low), tl.where(before, high, at)
    steep = slope > MINVAL
    newton = at - value / tl.where(steep, slope, 1.0)
    inside = steep & (newton >= low) & (newton <= high)
    return low, high, tl.where(inside, newton, 0.5 * (low + high))


@triton.jit
def spare_normal(a, b):
    """Direction of MuJoCo's normal where centres coincide: across both z axes."""
    return cross(column(a[1], 2), column(b[1], 2))


@triton.jit
def ball_contact(center, radius, normal, gap, out, slot, w, m):
    """Contact of a sphere whose centre is `gap` from a surface in direction `normal`."""
    dist = gap - radius
    put(out, slot, w, m, dist, axpy(0.5 * dist + radius, normal, center), make_frame(normal))


@triton.jit
def on_plane(plane, center, frame, out, slot, w, m):
    """Contact of a plane with a point."""
    dist = dot(sub(center, plane[0]), frame[0])
    put(out, slot, w, m, dist, axpy(-0.5 * dist, frame[0], center), frame)
