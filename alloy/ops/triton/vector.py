"""Vectors, rotations and spatial vectors of one world per lane: tuples of blocks.

The formulas of `alloy.math`, written out. A vector is (x, y, z), a quaternion (w, x, y, z), a
matrix its three rows, a spatial vector (rotation, translation).
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

MINVAL = tl.constexpr(1e-15)  # mjMINVAL
PI = tl.constexpr(3.141592653589793)


@triton.jit
def number(x, like):
    """A number in the dtype of a block, where plain ones may be rounded to float32 first."""
    return tl.full(like.shape, x, like.dtype)


@triton.jit
def add(a, b):
    """Sum of vectors."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@triton.jit
def sub(a, b):
    """Difference of vectors."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@triton.jit
def scale(s, a):
    """A number times a vector."""
    return s * a[0], s * a[1], s * a[2]


@triton.jit
def times(a, b):
    """Products of the components."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2]


@triton.jit
def axpy(s, a, b):
    """Sum of s a and b."""
    return s * a[0] + b[0], s * a[1] + b[1], s * a[2] + b[2]


@triton.jit
def where(mask, a, b):
    """Vector a where the mask is true, else b."""
    return tl.where(mask, a[0], b[0]), tl.where(mask, a[1], b[1]), tl.where(mask, a[2], b[2])


@triton.jit
def dot(a, b):
    """Inner product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@triton.jit
def cross(a, b):
    """Cross product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@triton.jit
def rotate(mat, v):
    """Matrix times vector."""
    return dot(mat[0], v), dot(mat[1], v), dot(mat[2], v)


@triton.jit
def rotate_inv(mat, v):
    """Transposed matrix times vector."""
    return axpy(v[0], mat[0], axpy(v[1], mat[1], scale(v[2], mat[2])))


@triton.jit
def compose(a, b):
    """Product of two matrices."""
    return rotate_inv(b, a[0]), rotate_inv(b, a[1]), rotate_inv(b, a[2])


@triton.jit
def column(mat, k):
    """Column k of a matrix, k a number known when the kernel is compiled."""
    return mat[0][k], mat[1][k], mat[2][k]


@triton.jit
def quat_mul(a, b):
    """Hamilton product."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@triton.jit
def quat_conj(q):
    """Conjugate, the inverse of a unit quaternion."""
    return q[0], -q[1], -q[2], -q[3]


@triton.jit
def quat_normalize(q):
    """Unit quaternion; one shorter than MINVAL becomes the identity."""
    norm = tl.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    tiny = norm < MINVAL
    inverse = 1.0 / tl.where(tiny, 1.0, norm)
    return (
        tl.where(tiny, 1.0, q[0] * inverse),
        tl.where(tiny, 0.0, q[1] * inverse),
        tl.where(tiny, 0.0, q[2] * inverse),
        tl.where(tiny, 0.0, q[3] * inverse),
    )


@triton.jit
def quat_to_mat(q):
    """Rotation matrix of a unit quaternion."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    return (
        (w * w + x * x - y * y - z * z, 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)),
        (2.0 * (x * y + w * z), w * w - x * x + y * y - z * z, 2.0 * (y * z - w * x)),
        (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), w * w - x * x - y * y + z * z),
    )


@triton.jit
def quat_from_axis_angle(axis, angle):
    """Quaternion that turns by angle about a unit axis."""
    sine = tl.sin(0.5 * angle)
    return tl.cos(0.5 * angle), sine * axis[0], sine * axis[1], sine * axis[2]


@triton.jit
def half_angle(sine, cosine):
    """Angle in 0 .. pi whose sine and cosine these are, of any common length, sine not negative.

    A polynomial to 1e-5, then one Newton step on the sine of what is left, which cubes the error.
    Source: Abramowitz and Stegun (1964), 4.4.49.
    """
    size = tl.abs(cosine)
    x = tl.minimum(sine, size) / tl.maximum(tl.maximum(sine, size), MINVAL)
    y = x * x
    angle = x * (0.999866 + y * (-0.3302995 + y * (0.180141 + y * (-0.085133 + y * 0.0208351))))
    angle = tl.where(sine > size, -angle + 0.5 * PI, angle)
    angle = tl.where(cosine < 0, -angle + PI, angle)
    norm = tl.maximum(tl.sqrt(sine * sine + cosine * cosine), MINVAL)
    return angle + (sine * tl.cos(angle) - cosine * tl.sin(angle)) / norm


@triton.jit
def quat_to_rotvec(q):
    """Axis times angle of a unit quaternion, the angle within -pi .. pi."""
    sine = tl.sqrt(q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    angle = 2.0 * half_angle(sine, q[0])
    angle = tl.where(angle > PI, angle - 2.0 * PI, angle)
    tiny = sine < MINVAL
    ratio = tl.where(tiny, 2.0, angle / tl.where(tiny, 1.0, sine))
    return q[1] * ratio, q[2] * ratio, q[3] * ratio


@triton.jit
def cross_motion(vel, motion):
    """Spatial cross product of two motions (Featherstone 2008, eq. 2.31)."""
    return cross(vel[0], motion[0]), add(cross(vel[0], motion[1]), cross(vel[1], motion[0]))


@triton.jit
def cross_force(vel, force):
    """Spatial cross product of a motion and a force (Featherstone 2008, eq. 2.32)."""
    return add(cross(vel[0], force[0]), cross(vel[1], force[1])), cross(vel[0], force[1])
