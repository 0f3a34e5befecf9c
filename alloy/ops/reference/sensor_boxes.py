"""How far apart two boxes are, or how deep one is in the other, and the nearest points.

Contacts of boxes lie where their faces overlap, which need not be where they are nearest; so these
are searched here: apart, among all corners and pairs of edges, inside each other, among the
directions in which two boxes can be separated.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from alloy.math import cross, dot, rotate, rotate_inv
from alloy.ops.reference.collide_shared import clip, first, sign, table, tolerance

_CORNERS = tuple(product((-1.0, 1.0), repeat=3))
# edges: the corner where each begins, and the axis along which it goes
_EDGES = tuple((axis, c) for axis in range(3) for c in _CORNERS if c[axis] < 0)
_STARTS = tuple(c for _, c in _EDGES)
_ALONG = tuple(tuple(2.0 * (axis == k) for k in range(3)) for axis, _ in _EDGES)

Segment = tuple[Tensor, Tensor, Tensor]  # length (W, P), negative inside; two points (W, P, 3)


def box_box_segment(
    pos1: Tensor, mat1: Tensor, size1: Tensor, pos2: Tensor, mat2: Tensor, size2: Tensor
) -> Segment:
    """Signed distance of pairs of boxes, and the nearest points of box 1 and of box 2."""
    apart = pos2 - pos1
    far, far1, far2 = _outside(mat1, size1, apart, mat2, size2)
    deep, deep1, deep2 = _within(mat1, size1, apart, mat2, size2)
    inside = deep <= 0
    pick = inside.unsqueeze(-1)
    near1, near2 = torch.where(pick, deep1, far1), torch.where(pick, deep2, far2)
    return torch.where(inside, deep, far), pos1 + near1, pos1 + near2


def _outside(mat1: Tensor, size1: Tensor, apart: Tensor, mat2: Tensor, size2: Tensor) -> Segment:
    """Of boxes that do not meet: a corner and a box, or two edges. Points relative to box 1."""
    corner1 = rotate(mat1.unsqueeze(-3), _signed(size1, _CORNERS))  # (W, P, 8, 3)
    corner2 = rotate(mat2.unsqueeze(-3), _signed(size2, _CORNERS)) + apart.unsqueeze(-2)
    on1 = _into(mat1, size1, corner2)
    shift = apart.unsqueeze(-2)
    on2 = _into(mat2, size2, corner1 - shift) + shift
    edge1, edge2 = _edges(mat1, size1, apart, mat2, size2)
    point1 = torch.cat([on1, corner1, edge1], -2)
    point2 = torch.cat([corner2, on2, edge2], -2)
    square = dot(point2 - point1, point2 - point1)
    chosen = first(square == square.amin(-1, keepdim=True)).unsqueeze(-1)
    point1, point2 = (torch.where(chosen, p, 0.0).sum(-2) for p in (point1, point2))
    return torch.linalg.vector_norm(point2 - point1, dim=-1), point1, point2


def _signed(size: Tensor, signs: tuple) -> Tensor:
    return size.unsqueeze(-2) * table(signs, size)


def _into(mat: Tensor, size: Tensor, points: Tensor) -> Tensor:
    """The nearest points (W, P, k, 3) of a box about the origin."""
    mat = mat.unsqueeze(-3)
    return rotate(mat, clip(rotate_inv(mat, points), size.unsqueeze(-2)))


def _edges(
    mat1: Tensor, size1: Tensor, apart: Tensor, mat2: Tensor, size2: Tensor
) -> tuple[Tensor, Tensor]:
    """The nearest points of every two edges, (W, P, 144, 3) each (Ericson 2005, 5.1.9)."""
    start1 = rotate(mat1.unsqueeze(-3), _signed(size1, _STARTS)).unsqueeze(-2)
    along1 = rotate(mat1.unsqueeze(-3), _signed(size1, _ALONG)).unsqueeze(-2)  # (W, P, 12, 1, 3)
    start2 = rotate(mat2.unsqueeze(-3), _signed(size2, _STARTS)) + apart.unsqueeze(-2)
    start2 = start2.unsqueeze(-3)
    along2 = rotate(mat2.unsqueeze(-3), _signed(size2, _ALONG)).unsqueeze(-3)  # (W, P, 1, 12, 3)
    between = start1 - start2
    a, b, e = dot(along1, along1), dot(along1, along2), dot(along2, along2)
    c, f = dot(along1, between), dot(along2, between)
    square = a * e - b * b
    skew = square > tolerance(a).parallel * a * e
    s = torch.where(skew, (b * f - c * e) / torch.where(skew, square, 1.0), 0.0).clamp(0.0, 1.0)
    t = ((b * s + f) / e).clamp(0.0, 1.0)
    s = ((b * t - c) / a).clamp(0.0, 1.0)
    point1 = start1 + s.unsqueeze(-1) * along1
    point2 = start2 + t.unsqueeze(-1) * along2
    return point1.flatten(-3, -2), point2.flatten(-3, -2)


def _within(mat1: Tensor, size1: Tensor, apart: Tensor, mat2: Tensor, size2: Tensor) -> Segment:
    """Of boxes that meet: the direction of least overlap, of 15; positive where there is none.

    It is a face's normal, with the other box's deepest corner, or across two edges, with the points
    where these are nearest.
    """
    edge = cross(mat1.mT.unsqueeze(-2), mat2.mT.unsqueeze(-3)).flatten(-3, -2)  # (W, P, 9, 3)
    square = dot(edge, edge)
    skew = square > tolerance(square).cross
    edge = edge / torch.where(skew, square, 1.0).sqrt().unsqueeze(-1)
    axes = torch.cat([mat1.mT, mat2.mT, edge], -2)  # (W, P, 15, 3)
    ahead = dot(axes, apart.unsqueeze(-2))
    axes = torch.where((ahead < 0).unsqueeze(-1), -axes, axes)
    reach1, reach2 = (
        (axes @ mat).abs() @ size.unsqueeze(-1) for mat, size in ((mat1, size1), (mat2, size2))
    )
    gap = ahead.abs() - (reach1 + reach2).squeeze(-1)
    real = torch.cat([torch.ones_like(skew[..., :6]), skew], -1)
    gap = torch.where(real, gap, -torch.inf)
    best = gap.amax(-1, keepdim=True)
    chosen = first(gap == best)
    normal = torch.where(chosen.unsqueeze(-1), axes, 0.0).sum(-2)

    # the deepest corners of each box, and the middles of their deepest edges
    local1, local2 = rotate_inv(mat1, normal), rotate_inv(mat2, normal)
    deep1 = rotate(mat1, size1 * sign(local1 >= 0, normal))
    deep2 = apart - rotate(mat2, size2 * sign(local2 >= 0, normal))
    by_edges = chosen[..., 6:].unflatten(-1, (3, 3))
    dir1 = torch.where(by_edges.any(-1).unsqueeze(-1), mat1.mT, 0.0).sum(-2)
    dir2 = torch.where(by_edges.any(-2).unsqueeze(-1), mat2.mT, 0.0).sum(-2)
    between = deep1 - deep2
    b, c, f = dot(dir1, dir2), dot(dir1, between), dot(dir2, between)
    crossed = chosen[..., 6:].any(-1)
    s = torch.where(crossed, (b * f - c) / torch.where(crossed, 1 - b * b, 1.0), 0.0)
    on_edge1 = deep1 + s.unsqueeze(-1) * dir1
    offset = best * normal
    point2 = torch.where(chosen[..., :3].any(-1, keepdim=True), deep2, deep1 + offset)
    point2 = torch.where(crossed.unsqueeze(-1), on_edge1 + offset, point2)
    return best.squeeze(-1), point2 - offset, point2
