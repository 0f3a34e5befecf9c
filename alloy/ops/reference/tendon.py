"""Spatial tendons: the shortest way over sites, pulleys and around spheres and cylinders.

A tendon is a chain of pieces, each from one site to the next; a piece may be bent around a geom.
Wrapping is a problem in the plane: the circle of the geom, and the two ends of the piece.
Source: MuJoCo manual, Computation, Actuation model, Transmission; XML reference, spatial.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.math import MINVAL, constant_like, cross, dot, normalize, rotate, rotate_inv, safe_norm

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.passive import PassiveTables
    from alloy.physics.passive_tendon import Ends, SpatialTendons, Wraps

_NEWTON = 20  # iterations of the wrap inside a circle at most
_NEWTON_TOLERANCE = 1e-10  # and where they stop
_NEAR_ONE = 1 - 1e-7  # and where they begin


def jacobian(m: Model, d: Data) -> Tensor:
    """Jacobian of the tendons' lengths, constant (ntendon, nv) or (W, ntendon, nv)."""
    t: PassiveTables = m.derived["passive"]
    return t.tendon_J if t.spatial is None else d.ten_J


def pulled(m: Model, d: Data, tension: Tensor) -> Tensor:
    """Joint forces (W, nv) of forces along the tendons (W, ntendon)."""
    jac = jacobian(m, d)
    return tension @ jac if jac.ndim == 2 else (tension.unsqueeze(-2) @ jac).squeeze(-2)


def spatial(m: Model, d: Data, t: SpatialTendons) -> Data:
    """Add lengths and Jacobians of the spatial tendons to those of the fixed ones."""
    length, jac = d.ten_length, d.ten_J
    for pieces in (t.straight, t.wrapped):
        if pieces is not None:
            ends = pieces.ends
            first, last = d.site_xpos[:, ends.site1], d.site_xpos[:, ends.site2]
            if pieces.wraps is None:
                way, span = normalize(last - first)
                span, rows = span.squeeze(-1), _ends_jacobian(m, d, ends, first, last, way, way)
            else:
                span, rows = _wrapped(m, d, ends, pieces.wraps, first, last)
            length = length + span @ pieces.share
            jac = jac + math.constant_times(pieces.share.mT, rows)
    return replace(d, ten_length=length, ten_J=jac)


def site_jacobian(
    d: Data, point: Tensor, root: Tensor, move: Tensor, force: Tensor, torque: Tensor | None = None
) -> Tensor:
    """Joint forces (W, n, nv) of unit wrenches at points of bodies.

    Args:
        d: with kinematics.
        point: (W, n, 3) where they act.
        root: (n,) root body of the tree of what they act on.
        move: (n, nv) which dofs move it.
        force: (W, n, 3).
        torque: (W, n, 3).
    """
    about_com = cross(point - d.subtree_com[:, root], force)
    if torque is not None:
        about_com = about_com + torque
    return torch.bmm(torch.cat([about_com, force], -1), d.cdof.mT) * move


def _ends_jacobian(
    m: Model, d: Data, e: Ends, first: Tensor, last: Tensor, leaving: Tensor, arriving: Tensor
) -> Tensor:
    """Part of the pieces' Jacobians (W, n, nv) that comes from the motion of their ends."""
    at_last = site_jacobian(d, last, e.root2, e.move2, arriving)
    return at_last - site_jacobian(d, first, e.root1, e.move1, leaving)


class Way(NamedTuple):
    """The way of pieces that may bend around a geom; (W, n, 3) but where said."""

    bent: Tensor  # (W, n, 1) bool
    length: Tensor  # (W, n)
    leaving: Tensor  # unit direction at the first end
    arriving: Tensor  # at the last one
    touch1: Tensor  # where a bent piece meets the geom
    touch2: Tensor  # and leaves it


def way_around(m: Model, d: Data, w: Wraps, first: Tensor, last: Tensor) -> Way:
    """The shortest way between points (W, n, 3) past the geoms."""
    origin, mat = d.geom_xpos[:, w.geom], d.geom_xmat[:, w.geom]
    local = [rotate_inv(mat, x - origin) for x in (first, last)]
    side = None
    if w.side is not None:
        side = rotate_inv(mat, d.site_xpos[:, w.side] - origin)
    bends, arc, touch1, touch2 = _wrap(w, m.geom_size[:, w.geom, 0], local[0], local[1], side)
    touch1, touch2 = (rotate(mat, x) + origin for x in (touch1, touch2))
    direct, span = normalize(last - first)
    leaving, span1 = normalize(touch1 - first)
    arriving, span2 = normalize(last - touch2)
    around = span1.squeeze(-1) + arc + span2.squeeze(-1)
    length = torch.where(bends, around, span.squeeze(-1))
    bent = bends.unsqueeze(-1)
    leaving, arriving = (torch.where(bent, x, direct) for x in (leaving, arriving))
    return Way(bent, length, leaving, arriving, touch1, touch2)


def _wrapped(
    m: Model, d: Data, e: Ends, w: Wraps, first: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Lengths (W, n) and Jacobians (W, n, nv) of pieces that may bend around a geom."""
    way = way_around(m, d, w, first, last)
    rows = _ends_jacobian(m, d, e, first, last, way.leaving, way.arriving)
    held = site_jacobian(d, way.touch1, w.root, w.move, way.leaving)
    held = held - site_jacobian(d, way.touch2, w.root, w.move, way.arriving)
    return way.length, rows + torch.where(way.bent, held, 0.0)


def _wrap(
    w: Wraps, radius: Tensor, p0: Tensor, p1: Tensor, side: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether pieces bend (W, n), the arc's length, and where it begins and ends, (W, n, 3).

    All points are in the geoms' frames.
    """
    radius = radius.expand(p0.shape[:-1])
    axis0, axis1 = _plane(w, p0, p1)
    flat = [torch.stack([dot(p, axis0), dot(p, axis1)], -1) for p in (p0, p1)]
    toward = None
    if side is not None:
        toward = _unit2(torch.stack([dot(side, axis0), dot(side, axis1)], -1))
    bends, arc, q0, q1 = _around(flat[0], flat[1], radius, toward, w.has_side)
    if w.inside is not None:
        assert side is not None
        picked = [x[:, w.inside] for x in (flat[0], flat[1], radius)]
        touch, point = _inside(*picked)
        within = (safe_norm(side) < radius) & w.has_side
        may, at = (
            math.constant_times(w.inside_rows, touch.unsqueeze(-1).to(radius.dtype)),
            (math.constant_times(w.inside_rows, point)),
        )
        bends = torch.where(within, may.squeeze(-1) > 0, bends)
        arc = torch.where(within, 0.0, arc)
        q0, q1 = (torch.where(within.unsqueeze(-1), at, q) for q in (q0, q1))
    t0, t1 = (q[..., :1] * axis0 + q[..., 1:] * axis1 for q in (q0, q1))
    # far from the origin along a cylinder's axis the tendon is a helix: it rises evenly
    along0, along1 = safe_norm(p0[..., :2] - t0[..., :2]), safe_norm(p1[..., :2] - t1[..., :2])
    total = (along0 + arc + along1).clamp(min=MINVAL)
    low, high = p0[..., 2], p1[..., 2]
    z0 = low + (high - low) * along0 / total
    z1 = low + (high - low) * (along0 + arc) / total
    rise = z1 - z0
    arc = torch.where(w.is_cylinder, (arc * arc + rise * rise).clamp(min=MINVAL**2).sqrt(), arc)
    lift = [torch.where(w.is_cylinder, z, t[..., 2]) for z, t in ((z0, t0), (z1, t1))]
    t0, t1 = (
        torch.cat([t[..., :2], z.unsqueeze(-1)], -1) for t, z in zip((t0, t1), lift, strict=True)
    )
    origin = torch.minimum(safe_norm(p0), safe_norm(p1)) < MINVAL
    return bends & ~origin, arc, t0, t1


def _plane(w: Wraps, p0: Tensor, p1: Tensor) -> tuple[Tensor, Tensor]:
    """Axes of the plane of the problem: that of both points and a sphere's centre, or x and y."""
    x, y = (constant_like(v, p0).expand_as(p0) for v in ((1.0, 0, 0), (0, 1.0, 0)))
    axis0 = normalize(p0)[0]
    normal = cross(p0, p1)
    size = axis0.abs()
    largest = (size >= size.amax(-1, keepdim=True)).to(p0.dtype)
    spare = normalize(cross(axis0, 1 - largest))[0]
    normal = torch.where(safe_norm(normal, keepdim=True) < MINVAL, spare, normalize(normal)[0])
    axis1 = normalize(cross(normal, axis0))[0]
    turned = w.is_cylinder.unsqueeze(-1)
    return torch.where(turned, x, axis0), torch.where(turned, y, axis1)


def _unit2(v: Tensor) -> Tensor:
    """Unit vectors of the plane; x where there is no length."""
    length = safe_norm(v, keepdim=True)
    short = length < MINVAL
    return torch.where(short, constant_like((1.0, 0.0), v), v / torch.where(short, 1.0, length))


def _cross2(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _turned(v: Tensor) -> Tensor:
    return torch.stack([v[..., 1], -v[..., 0]], -1)


def _meet(a0: Tensor, a1: Tensor, b0: Tensor, b1: Tensor) -> Tensor:
    """Whether two segments of the plane intersect; parallel ones do not."""
    a, b = a1 - a0, b1 - b0
    det = _cross2(a, b)
    parallel = det.abs() < MINVAL
    det = torch.where(parallel, 1.0, det)
    s, t = _cross2(b0 - a0, b) / det, _cross2(b0 - a0, a) / det
    return ~parallel & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)


def _nearest(d0: Tensor, d1: Tensor) -> Tensor:
    """The point of a segment that is nearest to the origin."""
    way = d1 - d0
    share = -dot(way, d0) / dot(way, way).clamp(min=MINVAL)
    return d0 + share.clamp(0, 1).unsqueeze(-1) * way


def _around(
    d0: Tensor, d1: Tensor, radius: Tensor, toward: Tensor | None, has_side: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Wrap on the outside of circles: does it, arc, and the points of tangency (W, n, 2).

    Of the two ways around, that towards the side's point, or the shorter one.
    """
    square0, square1, square = dot(d0, d0), dot(d1, d1), radius * radius
    way = d1 - d0
    near = _nearest(d0, d1)
    clear = dot(near, near) > square
    if toward is not None:
        # a way that is clear is left only if the line through the side parts the two ends
        parted = _cross2(d0, toward) * _cross2(toward, d1) > 0
        clear = clear & (~has_side | (dot(toward, near) >= 0) | ~parted)
    outside = (square0 >= square) & (square1 >= square) & (radius >= MINVAL)
    bends = outside & (dot(way, way) >= MINVAL) & ~clear
    ways = []
    for sign in (1.0, -1.0):
        touch = []
        for point, length, turn in ((d0, square0, sign), (d1, square1, -sign)):
            reach = radius * (length - square).clamp(min=0).sqrt() * turn
            at = point * square.unsqueeze(-1) + _turned(point) * reach.unsqueeze(-1)
            touch.append(at / length.clamp(min=MINVAL).unsqueeze(-1))
        good = -dot(touch[0] - touch[1], touch[0] - touch[1])
        if toward is not None:
            favoured = radius * dot(_unit2(touch[0] + touch[1]), toward)
            good = torch.where(has_side, favoured, good)
        crossed = _meet(d0, touch[0], d1, touch[1])
        ways.append((torch.where(crossed, -10000.0, good), crossed, *touch))
    first = ways[0][0] > ways[1][0]
    crossed = torch.where(first, ways[0][1], ways[1][1])
    pick = first.unsqueeze(-1)
    q0, q1 = (torch.where(pick, a, b) for a, b in zip(ways[0][2:], ways[1][2:], strict=True))
    cosine = dot(_unit2(q0), _unit2(q1)).clamp(-1, 1)
    angle, turn = torch.acos(cosine), _cross2(q1, q0)
    long_way = ((turn > 0) & ~first) | ((turn < 0) & first)
    angle = torch.where(long_way, 2 * torch.pi - angle, angle)
    return bends & ~crossed, radius * angle, q0, q1


def _inside(d0: Tensor, d1: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Wrap on the inside of circles: does it, and the one point of contact (W, n, 2).

    The angles at the point are equal: asin(A z) + asin(B z) - 2 asin(z) + G = 0, by Newton's
    method from the right, where it is monotone. Where there is no such point it is the nearest one
    to the middle of the ends.
    """
    length0, length1 = safe_norm(d0), safe_norm(d1)
    way, near = d1 - d0, _nearest(d0, d1)
    share = -dot(way, d0)
    between = (share > 0) & (share < dot(way, way)) & (dot(way, way) > MINVAL)
    apart = (length0 > radius) & (length1 > radius) & (radius >= MINVAL)
    bends = apart & ~(between & (safe_norm(near) <= radius))
    middle = _unit2(0.5 * (d0 + d1)) * radius.unsqueeze(-1)

    safe0, safe1 = length0.clamp(min=MINVAL), length1.clamp(min=MINVAL)
    a, b = (radius / safe0).clamp(max=1.0), (radius / safe1).clamp(max=1.0)
    cosine = (length0 * length0 + length1 * length1 - dot(way, way)) / (2 * safe0 * safe1)
    bends = bends & (cosine >= -1 + MINVAL)
    failed = cosine > 1 - MINVAL
    gap = torch.acos(cosine.clamp(-1, 1))

    def value(z: Tensor) -> Tensor:
        return torch.asin(a * z) + torch.asin(b * z) - 2 * torch.asin(z) + gap

    def rate(c: Tensor | float, z: Tensor) -> Tensor:
        return c / (1 - (c * z) * (c * z)).clamp(min=MINVAL**2).sqrt()

    z = torch.full_like(a, _NEAR_ONE)
    f = value(z)
    failed = failed | (f > 0)
    for _ in range(_NEWTON):
        going = ~failed & (f.abs() > _NEWTON_TOLERANCE)
        slope = rate(a, z) + rate(b, z) - 2 * rate(1.0, z)
        step = f / torch.where(slope > -MINVAL, -1.0, slope)
        failed = failed | (going & ((slope > -MINVAL) | (step < 0)))
        z = torch.where(going & ~failed, (z - step).clamp(0, 1), z)
        f = torch.where(going & ~failed, value(z), f)
        failed = failed | (f > _NEWTON_TOLERANCE)
    failed = failed | (f.abs() > _NEWTON_TOLERANCE)
    ahead = _cross2(d0, d1) > 0
    start = _unit2(torch.where(ahead.unsqueeze(-1), d0, d1))
    angle = torch.asin(z) - torch.asin(torch.where(ahead, a, b) * z)
    cos, sin = torch.cos(angle), torch.sin(angle)
    x, y = start.unbind(-1)
    point = torch.stack([cos * x - sin * y, sin * x + cos * y], -1) * radius.unsqueeze(-1)
    return bends, torch.where(failed.unsqueeze(-1), middle, point)
