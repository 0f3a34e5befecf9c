"""The direction of least overlap of two convex sets to rounding, where what touches is curved.

The overlap is smooth where both surfaces are curved at what touches, and Newton's method on the
sphere finds its least. Where an edge touches, it has a kink across the circle of directions at
right angles to the edge and is smooth along it; where two do, their common normal is the place. Of
a mesh of many faces the search before leaves other corners than those that touch in the end; then
all this is done again from where it came to.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import while_loop
from alloy.ops.reference.collide_shared import choose, dot, make_frame, sign
from alloy.ops.reference.convex import Convex, difference

_NEWTON = 6  # steps
_NEAR_EDGE = 0.3  # cosine of the angle to an edge below which it may be what touches
_ROUNDS = 10  # of a mesh
_GAIN = 1e-13  # of the size: less is none


class Found(NamedTuple):
    """A direction and how far the sets overlap along it."""

    normal: Tensor  # (..., 3) unit, from set 1 to set 2
    point1: Tensor  # (..., 3) where each set touches a plane across it
    point2: Tensor
    overlap: Tensor  # (..., 1)


def polish(
    one: Convex, two: Convex, found: tuple[Tensor, Tensor, Tensor], touch: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, or what has less overlap nearby.

    Args:
        one: a set.
        two: another one.
        found: (..., 3) direction and points where a search ended, close to the least overlap.
        touch: (..., 2, 3, 3) points of both sets that span what touched there.
        size: (...,) of both sets together.
    """
    if not (one.curved or two.curved):
        return found
    begin = Found(*found, dot(difference(one, two, found[0])[0], found[0]))
    if not (one.many_corners or two.many_corners):
        return _round(one, two, begin, touch, size)[:3]

    def body(on: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        old = Found(*values)
        new = _round(one, two, old, touch, size)
        better = on.unsqueeze(-1) & (old.overlap - new.overlap > _GAIN * size.unsqueeze(-1))
        # one that ends here keeps what it had or what is as good: no one's rounds count for others
        kept = (torch.where(on.unsqueeze(-1), x, y) for x, y in zip(new, old, strict=True))
        return better.squeeze(-1), *kept

    on = torch.ones_like(size, dtype=torch.bool)
    _, normal, point1, point2, _ = while_loop(body, (on, *begin), _ROUNDS)
    return normal, point1, point2


def _round(one: Convex, two: Convex, found: Found, touch: Tensor, size: Tensor) -> Found:
    """Try faces, edges and the surfaces themselves, each from where the one before came to."""
    normal, (touch1, touch2) = found.normal, touch.unbind(-3)
    sides = ((one, normal, touch1, False), (two, -normal, touch2, True))
    for body, way, its_touch, of_two in sides:
        for facet in body.facets(way, its_touch):
            found = _on_facet(one, two, -facet if of_two else facet, of_two, size, found)
    edges1, edges2 = one.edges(normal), two.edges(-normal)
    for edges, of_two in ((edges1, False), (edges2, True)):
        for edge, end in edges:
            found = _along_edge(one, two, edge, end, of_two, size, found, 0.0)
    lines = [(*line, False) for line in one.lines(touch1)]
    lines += [(*line, True) for line in two.lines(touch2)]
    for line, end, of_two in lines:
        # what is no edge may be level with a face, and be as good, but not where the sets touch
        found = _along_edge(one, two, line, end, of_two, size, found, -_slack(size))
    for edge1, _ in edges1:
        for edge2, _ in edges2:
            found = _between(one, two, edge1, edge2, size, found)
    for _, end, of_two in lines:
        found = _at_corner(one, two, end, of_two, size, found)
    for _ in range(_NEWTON):
        corner, _ = difference(one, two, found.normal)
        curved, moved = _newton(one, two, corner, found.normal, size)
        corner, at = difference(one, two, moved)
        new = Found(moved, at, at - corner, dot(moved, corner))
        found = _keep(curved, new, found)
    return found


def _keep(mask: Tensor, new: Found, found: Found, slack: Tensor | float = 0.0) -> Found:
    """`found`, or what is new where the mask holds and the overlap along it is no larger."""
    better = mask & (new.overlap <= found.overlap + slack)
    return Found(*(torch.where(better, x, old) for x, old in zip(new, found, strict=True)))


def _corner(one: Convex, two: Convex, normal: Tensor, end: Tensor | None, of_two: bool) -> Tensor:
    """The difference of the farthest points, that of one set being `end` if there is one."""
    if end is None:
        return difference(one, two, normal)[0]
    return one.support(normal) - end if of_two else end - two.support(-normal)


def _newton(
    one: Convex, two: Convex, corner: Tensor, normal: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """One step on the sphere: whether the overlap has a least value nearby, and the direction."""
    limit = 1e-6 * size.unsqueeze(-1)
    tangents = make_frame(normal)[..., 1:, :].mT  # (..., 3, 2)
    height = dot(normal, corner)
    hessian = tangents.mT @ (one.curvature(normal) + two.curvature(normal)) @ tangents
    a, b, c = hessian[..., 0, 0:1] - height, hessian[..., 0, 1:2], hessian[..., 1, 1:2] - height
    det = a * c - b * b
    curved = (det > limit * limit) & (a + c > 2 * limit)
    slope = tangents.mT @ corner.unsqueeze(-1)
    g, h = slope[..., 0, :], slope[..., 1, :]
    over = 1.0 / choose(curved, det, 1.0)
    step = -torch.cat([(c * g - b * h) * over, (a * h - b * g) * over], -1)
    moved = normal + (tangents @ choose(curved, step, 0.0).unsqueeze(-1)).squeeze(-1)
    return curved, moved / torch.linalg.vector_norm(moved, dim=-1, keepdim=True)


def _at_corner(
    one: Convex, two: Convex, end: Tensor, of_two: bool, size: Tensor, found: Found
) -> Found:
    """Newton's method for a corner (..., 3) of a set, and whether it is what touches."""
    normal = found.normal
    for _ in range(_NEWTON):
        corner = _corner(one, two, normal, end, of_two)
        curved, normal = _newton(one, two, corner, normal, size)
    return _keep(curved, _opposite(one, two, normal, of_two), found, -_slack(size))


def _on_facet(
    one: Convex, two: Convex, normal: Tensor, of_two: bool, size: Tensor, found: Found
) -> Found:
    """The normal (..., 3) of a face of a set, as a direction from set 1 to set 2."""
    near = dot(normal, found.normal) > 1 - _NEAR_EDGE**2
    return _keep(near, _opposite(one, two, normal, of_two), found, _slack(size))


def _opposite(one: Convex, two: Convex, normal: Tensor, of_two: bool) -> Found:
    """Where a set touches with an edge or a face: opposite the other's farthest point."""
    corner, at = difference(one, two, normal)
    overlap = dot(normal, corner)
    apart = overlap * normal
    point1, point2 = (at, at - apart) if of_two else (at - corner + apart, at - corner)
    return Found(normal, point1, point2, overlap)


def _slack(size: Tensor) -> Tensor:
    """How much more overlap is rounding."""
    return 1e-13 * size.unsqueeze(-1)


def _along_edge(
    one: Convex, two: Convex, edge: Tensor, end: Tensor | None, of_two: bool, size: Tensor,
    found: Found, slack: Tensor | float,
) -> Found:  # fmt: skip
    """Newton's method on the circle of directions at right angles to an edge (..., 3) of a set.

    `end` is a point of the edge, where there are others in its direction.
    """
    off = dot(found.normal, edge)
    near = (off.abs() < _NEAR_EDGE) & (dot(edge, edge) > 0)
    normal = found.normal - off * edge
    normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp(min=0.5)
    for _ in range(_NEWTON):
        corner = _corner(one, two, normal, end, of_two)
        along = math.cross(edge, normal)
        bend = (one.curvature(normal) + two.curvature(normal)) @ along.unsqueeze(-1)
        steep = dot(along, bend.squeeze(-1)) - dot(normal, corner)
        curved = steep > 1e-6 * size.unsqueeze(-1)
        step = -dot(along, corner) / choose(curved, steep, 1.0)
        moved = normal + choose(curved & near, step, 0.0).clamp(-0.1, 0.1) * along
        normal = moved / torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
    return _keep(near & curved, _opposite(one, two, normal, of_two), found, slack)


def _between(
    one: Convex, two: Convex, edge1: Tensor, edge2: Tensor, size: Tensor, found: Found
) -> Found:
    """The common normal of two edges, and where they cross."""
    across = math.cross(edge1, edge2)
    sine2 = dot(across, across)
    crossing = sine2 > 1e-12
    normal = across / choose(crossing, sine2, 1.0).sqrt()
    normal = normal * sign(dot(normal, found.normal) >= 0, normal)
    near = crossing & (dot(normal, found.normal) > 1 - _NEAR_EDGE**2)
    corner, at = difference(one, two, normal)
    # from edge 1's line to edge 2's along the normal: at + t edge1 - s edge2 - (at - corner)
    overlap = dot(normal, corner)
    flat = corner - overlap * normal
    along1 = dot(math.cross(edge2, flat), across) / choose(crossing, sine2, 1.0)
    point1 = at + along1 * edge1
    point2 = point1 - overlap * normal
    # it is as good as a direction on either edge's circle, up to rounding
    return _keep(near, Found(normal, point1, point2, overlap), found, _slack(size))
