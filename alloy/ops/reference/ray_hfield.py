"""Where rays meet height fields: square by square, so that the cost follows what a ray passes.

Source: Amanatides and Woo (1987), A fast voxel traversal algorithm for ray tracing; the shape is
that of MuJoCo's mj_rayHfield.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import EYE3, MINVAL, constant_like
from alloy.ops.control import while_loop
from alloy.ops.reference.collide_shared import BOX, first
from alloy.ops.reference.ray_shapes import ahead, box, finite, nearest_of, normal_at, triangle

if TYPE_CHECKING:
    from alloy.physics.sensor import HeightField

_UP = (0.0, 0.0, 1.0)


def hfield(pnt: Tensor, vec: Tensor, field: HeightField) -> tuple[Tensor, Tensor]:
    """The hills, the sides below their rims, and the box that they stand on."""
    middle = constant_like(_UP, pnt) * (0.5 * field.size[3])
    size = torch.cat([field.size[:2], 0.5 * field.size[3:]])
    under = box(pnt + middle, vec, size)
    at = pnt + middle + finite(under).unsqueeze(-1) * vec
    parts = [(under, normal_at(BOX, at, size)), *_rims(pnt, vec, field), _hills(pnt, vec, field)]
    dists, normals = zip(*parts, strict=True)
    return nearest_of(torch.stack(dists, -1), torch.stack(normals, -2))


def _grid(field: HeightField, axis: int) -> tuple[Tensor, int]:
    """Distance of samples along x or y, and how many there are."""
    count = (field.columns, field.rows)[axis]
    return 2 * field.size[axis] / (count - 1), count


def _height(f: HeightField, sample: Tensor) -> Tensor:
    """Height of samples (...), m."""
    heights = f.heights.expand(*sample.shape, -1).gather(-1, sample.unsqueeze(-1))
    return heights.squeeze(-1) * f.size[2]


def _rims(pnt: Tensor, vec: Tensor, f: HeightField) -> Iterator[tuple[Tensor, Tensor]]:
    """Four sides that stand on the box, as high as the outermost samples."""
    for axis, side in ((0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)):
        steep = vec[..., axis].abs() > MINVAL
        slope = torch.where(steep, vec[..., axis], 1.0)
        dist = ahead((side * f.size[axis] - pnt[..., axis]) / slope)
        at = pnt + finite(dist).unsqueeze(-1) * vec
        step, count = _grid(f, 1 - axis)
        along = (at[..., 1 - axis] + f.size[1 - axis]) / step
        sample = along.detach().floor().clamp(0, count - 2).to(torch.int64)
        last = (f.columns if axis == 0 else f.rows) - 1
        where = (last if side > 0 else 0) * (1 if axis == 0 else f.columns)
        stride = f.columns if axis == 0 else 1
        low, high = (_height(f, where + stride * (sample + k)) for k in (0, 1))
        rim = low + (along - sample) * (high - low)
        met = steep & (along >= 0) & (along <= count - 1)
        met = met & (at[..., 2] >= 0) & (at[..., 2] < rim)
        normal = side * constant_like(EYE3[axis], pnt)
        yield torch.where(met, dist, torch.inf), normal.expand_as(pnt)


def _hills(pnt: Tensor, vec: Tensor, f: HeightField) -> tuple[Tensor, Tensor]:
    """Two triangles in every square of the grid, square by square along the ray."""
    steps = torch.stack([_grid(f, 0)[0], _grid(f, 1)[0]])
    start, way = (pnt[..., :2] + f.size[:2]) / steps, vec[..., :2] / steps  # in squares
    counts = constant_like((f.columns - 1.0, f.rows - 1.0), pnt)
    begin, end = _span(start, way, counts)
    low, high = _span(pnt[..., 2:], vec[..., 2:], f.size[2:3])
    begin, end = torch.maximum(begin, low).clamp(min=0.0), torch.minimum(end, high)
    entry = start + finite(begin).unsqueeze(-1) * way
    square = torch.minimum(entry.floor(), counts - 1).clamp(min=0.0)
    moves = way.abs() > MINVAL
    direction = torch.where(moves, torch.where(way > 0, 1.0, -1.0), 0.0).to(pnt.dtype)
    slope = torch.where(moves, way, 1.0)

    def body(on: Tensor, square: Tensor, near: Tensor, normal: Tensor) -> tuple[Tensor, ...]:
        dist, across = nearest_of(*_square(pnt, vec, f, steps, square))
        met = on & torch.isfinite(dist)
        # where the ray leaves this square
        edge = torch.where(moves, (square + (direction > 0) - start) / slope, torch.inf)
        leaves = edge.amin(-1)
        turn = first(edge == leaves.unsqueeze(-1))
        after = square + torch.where(turn, direction, 0.0)
        within = ((after >= 0) & (after < counts)).all(-1)
        goes_on = on & ~met & (leaves <= end) & within
        return (
            goes_on, torch.where(goes_on.unsqueeze(-1), after, square),
            torch.where(met, dist, near), torch.where(met.unsqueeze(-1), across, normal),
        )  # fmt: skip

    none = torch.full_like(begin, torch.inf)
    carry = (begin <= end, square, none, torch.zeros_like(pnt))
    _, _, near, normal = while_loop(body, carry, f.columns + f.rows)
    return near, normal


def _span(start: Tensor, way: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Where a line is within 0 and size in all of its k axes (..., k): the interval (...)."""
    moves = way.abs() > MINVAL
    slope = torch.where(moves, way, 1.0)
    one, two = -start / slope, (size - start) / slope
    inside = torch.where((start >= 0) & (start <= size), torch.inf, -torch.inf).to(start.dtype)
    low = torch.where(moves, torch.minimum(one, two), -inside)
    high = torch.where(moves, torch.maximum(one, two), inside)
    return low.amax(-1), high.amin(-1)


def _square(
    pnt: Tensor, vec: Tensor, f: HeightField, steps: Tensor, square: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances (..., 2) and normals (..., 2, 3) of the triangles of a square of the grid."""
    column, row = square.to(torch.int64).unbind(-1)
    first_sample = row * f.columns + column
    corners = []
    for x, y in ((0, 0), (1, 0), (1, 1), (0, 1)):
        place = (square + constant_like((float(x), float(y)), square)) * steps - f.size[:2]
        height = _height(f, first_sample + y * f.columns + x)
        corners.append(torch.cat([place, height.unsqueeze(-1)], -1))
    a, b, c, d = corners
    second, third = torch.stack([b, c], -2), torch.stack([c, d], -2)
    return triangle(pnt.unsqueeze(-2), vec.unsqueeze(-2), a.unsqueeze(-2), second, third)
