"""Forces and curvature of one constraint unit. Twin of `alloy.ops.reference.cone`.

A unit is a scalar row or a contact with a friction cone. The penalty of a residual x has the force
f = -s'(x) and the curvature C = s''(x), a small matrix that is only ever applied to a vector.
Source: MuJoCo manual, Computation, Constraint model; Todorov 2014, eq. 15 for the elliptic cone.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# Tuples grow by adding, which is what Triton compiles.
# ruff: noqa: ANN001, ANN201, ANN202, RUF005

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.lane import load, store
from alloy.ops.triton.vector import MINVAL


@triton.jit
def load_rows(x, first, step, w, m, DIM: tl.constexpr):
    """Values at first, first + step, ...: one for each row of a contact."""
    out = ()
    for k in tl.static_range(DIM):
        out = out + (load(x, first + k * step, w, m),)
    return out


@triton.jit
def store_rows(x, first, w, m, values, DIM: tl.constexpr):
    """Set the values at first, first + 1, ...: one for each row of a contact."""
    for k in tl.static_range(DIM):
        store(x, first + k, w, m, values[k])


@triton.jit
def along(x, alpha, v, DIM: tl.constexpr):
    """Residuals x + alpha v."""
    out = ()
    for k in tl.static_range(DIM):
        out = out + (x[k] + alpha * v[k],)
    return out


@triton.jit
def inner(a, b, DIM: tl.constexpr):
    """Inner product."""
    total = a[0] * b[0]
    for k in tl.static_range(1, DIM):
        total += a[k] * b[k]
    return total


@triton.jit
def scalar_row(row, x, d, loss, ne, nf):
    """Force and curvature: equalities always push, friction loss up to its bound, others if x < 0.

    A friction loss row is quadratic within +- loss / d and linear beyond.
    """
    f, c = -d * x, d
    if row >= ne:
        if row < ne + nf:
            reach = loss / tl.maximum(d, MINVAL)
            inside = (x < reach) & (x > -reach)
            c = tl.where(inside, d, 0.0)
            f = tl.where(inside, f, tl.where(x >= reach, -loss, tl.where(x <= -reach, loss, 0.0)))
        else:
            c = tl.where(x < 0, d, 0.0)
            f = -c * x
    return f, c


@triton.jit
def cone_force(x, d, mu, PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIM: tl.constexpr):
    """Forces on the base rows of a contact; mu are its friction coefficients.

    The elliptic cone is regularised with mu * SHRINK, where SHRINK = impratio ** -0.5.
    """
    if PYRAMIDAL:
        normal, out = 0.0 * x[0], ()
        for k in tl.static_range(1, DIM):
            up, down = x[0] + mu[k - 1] * x[k], x[0] - mu[k - 1] * x[k]
            up = tl.where(up < 0, d[0], 0.0) * up
            down = tl.where(down < 0, d[0], 0.0) * down
            normal -= up + down
            out = out + (mu[k - 1] * (down - up),)
        return (normal,) + out
    scale, gap, slip, ratio, top, bottom, dm = _zones(x, d, mu, SHRINK, DIM)
    push = -dm * gap
    out = (tl.where(bottom, -d[0] * x[0], tl.where(top, 0.0, push * ratio)),)
    for k in tl.static_range(1, DIM):
        side = push * (-ratio * (x[k] * scale[k] / slip)) * scale[k]
        out = out + (tl.where(bottom, -d[k] * x[k], tl.where(top, 0.0, side)),)
    return out


@triton.jit
def cone_times(x, d, mu, y, PYRAMIDAL: tl.constexpr, SHRINK: tl.constexpr, DIM: tl.constexpr):
    """Curvature at x times y.

    The pyramid sums d e e' over its edges e = normal +- mu tangent that push. The elliptic cone is
    diagonal inside its dual, and curved along and across the slip on its side.
    """
    if PYRAMIDAL:
        normal, out = 0.0 * x[0], ()
        for k in tl.static_range(1, DIM):
            edge = mu[k - 1] * x[k]
            up = tl.where(x[0] + edge < 0, d[0], 0.0) * (y[0] + mu[k - 1] * y[k])
            down = tl.where(x[0] - edge < 0, d[0], 0.0) * (y[0] - mu[k - 1] * y[k])
            normal += up + down
            out = out + (mu[k - 1] * (up - down),)
        return (normal,) + out
    scale, gap, slip, ratio, top, bottom, dm = _zones(x, d, mu, SHRINK, DIM)
    turned, stretch = ratio * y[0], 0.0 * x[0]
    for k in tl.static_range(1, DIM):
        stretch += (x[k] * scale[k] / slip) * (scale[k] * y[k])
    turned -= ratio * stretch
    bend = ratio * gap / slip
    side = ~(top | bottom)
    out = (tl.where(side, dm * ratio * turned, tl.where(bottom, d[0] * y[0], 0.0)),)
    for k in tl.static_range(1, DIM):
        direction = x[k] * scale[k] / slip
        curved = -ratio * direction * turned - bend * (scale[k] * y[k] - direction * stretch)
        value = tl.where(side, dm * scale[k] * curved, tl.where(bottom, d[k] * y[k], 0.0))
        out = out + (value,)
    return out


@triton.jit
def _zones(x, d, mu, SHRINK: tl.constexpr, DIM: tl.constexpr):
    """Scales of the rows, gap to the cone's surface, slip, its friction, zones and stiffness.

    With u = scale * x: on top N >= mu T nothing pushes, below mu N + T <= 0 all rows do.
    """
    ratio = mu[0] * SHRINK
    square, scale = 0.0 * x[0], (ratio,)
    for k in tl.static_range(1, DIM):
        scale = scale + (mu[k - 1],)
        square += (mu[k - 1] * x[k]) * (mu[k - 1] * x[k])
    slip, normal = tl.sqrt(square), ratio * x[0]
    top = normal >= ratio * slip
    bottom = (ratio * normal + slip <= 0) & ~top
    dm = d[0] / tl.maximum(ratio * ratio * (1.0 + ratio * ratio), MINVAL)
    return scale, normal - ratio * slip, tl.where(slip <= 0, 1.0, slip), ratio, top, bottom, dm
