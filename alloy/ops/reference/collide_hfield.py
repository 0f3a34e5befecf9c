"""Narrowphase collision of height fields with convex shapes; contract in `collide`.

A height field is the prisms below its triangles, down to its base: two to a cell of the grid, cut
along the diagonal from its second row to its second column. The prisms under a shape's bounding box
collide with it as convex sets, one contact each (`collide_convex`), as in MuJoCo. But where the
centre of a shape is below the surface, the contacts push it out upwards: the least overlap with a
prism would often be towards the next one, and a fast ball would stay in the ground.

Where more prisms touch than there are slots, the deepest and those that reach out farthest around
the shape are kept, so that what rests on a fine grid does not tip, and then the next deepest; the
others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin
from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import where_on
from alloy.ops.reference.collide_convex import reach, single
from alloy.ops.reference.collide_shared import (
    CAPSULE,
    FAR,
    MESH,
    SPHERE,
    choose,
    make_frame,
    table,
    to_local,
    to_world,
)
from alloy.ops.reference.convex import Convex, Mesh, convex_of, extremes

SLOTS = 12  # contacts of a pair
_AROUND = tuple(
    (cos(2 * pi * k / (SLOTS - 1)), sin(2 * pi * k / (SLOTS - 1))) for k in range(SLOTS - 1)
)
_AXES = tuple(tuple(float(i == k) * s for i in range(3)) for k in range(3) for s in (1, -1))
# corners of the two prisms of a cell, as (row, column) in it
_TRIANGLES = (((1, 0), (0, 0), (1, 1)), ((0, 0), (1, 1), (0, 1)))
# corners 0, 1, 2 at the base and 3, 4, 5 above them: faces, those around each corner, edges
_FACES = ((0, 2, 1, 1), (3, 4, 5, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))
_COUNTS = (3, 3, 4, 4, 4)
_HOLDS = ((0, 2, 4), (0, 2, 3), (0, 3, 4), (1, 2, 4), (1, 2, 3), (1, 3, 4))
_EDGES = ((1, 2, 3), (0, 2, 4), (0, 1, 5), (0, 4, 5), (1, 3, 5), (2, 3, 4))


class Field(NamedTuple):
    """The height fields of P pairs; each pair looks at a window of rows and columns of cells."""

    heights: Tensor  # (P, most) of the grid points, row after row, above the geom's centre
    shape: Tensor  # (P, 2) rows and columns of grid points
    size: Tensor  # (P, 4) half sizes along x and y, largest height, depth of the base
    window: Tensor  # (rows, columns) of cells, as the shape of an empty tensor


def hfield_collider(kind: int) -> Callable[..., tuple[Tensor, ...]]:
    """The collider of height fields with a kind of convex shape; it counts what has no slot."""

    def collide(
        pos1: Tensor, mat1: Tensor, size1: Tensor,
        pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
        field: Field, mesh2: Mesh | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        lead, dtype = pos2.shape[:-1], pos2.dtype
        frame = mat1.double()
        pos = to_local(frame, (pos2 - pos1).double())
        size = size2.double().expand(*lead, 3)
        body = convex_of(kind, pos, frame.mT @ mat2.double(), size, mesh2)
        radius = size[..., :1] if kind in (SPHERE, CAPSULE) else torch.zeros_like(size[..., :1])
        margin = margin.double().expand(lead).unsqueeze(-1)
        dist, point, normal, beyond = _prisms(body, radius, margin, field)
        chosen, there = _chosen(dist <= margin, dist, point)
        dropped = (dist <= margin).sum(-1) - there.sum(-1) + beyond
        dist = choose(there, dist.gather(-1, chosen), FAR)
        place = chosen.unsqueeze(-1).expand(*chosen.shape, 3)
        up = table((0.0, 0.0, 1.0), normal)
        normal = torch.where(there.unsqueeze(-1), normal.gather(-2, place), up)
        point = choose(there.unsqueeze(-1), point.gather(-2, place), 0.0)
        world = mat1.unsqueeze(-3)
        contact = pos1.unsqueeze(-2) + to_world(world, point.to(dtype))
        return dist.to(dtype), contact, make_frame(to_world(world, normal.to(dtype))), dropped

    return collide


def _prisms(
    body: Convex, radius: Tensor, margin: Tensor, field: Field
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Contacts dist (..., n), point and normal (..., n, 3) of the prisms in the window.

    In the field's frame. And 1 where the shape reaches beyond the window, which is made for the
    nominal sizes.
    """
    high, low = _bounds(body, radius)
    grid = field.shape.flip(-1) - 1  # cells along x and y
    half = field.size[..., :2].double()
    scale = grid / (2 * half)
    begin = ((low[..., :2] - margin + half) * scale).floor().clamp(min=0)
    end = torch.minimum(((high[..., :2] + margin + half) * scale).ceil(), grid.to(half.dtype))
    n_rows, n_columns = field.window.shape
    device = begin.device
    row, column, kind = (
        x.flatten()
        for x in torch.meshgrid(
            torch.arange(n_rows, device=device), torch.arange(n_columns, device=device),
            torch.arange(2, device=device), indexing="ij",
        )
    )  # fmt: skip
    row = begin[..., 1:].long() + row
    column = begin[..., :1].long() + column
    inside = (row < end[..., 1:]) & (column < end[..., :1])
    offsets = math.constant(_TRIANGLES, torch.int64, device)[kind]  # (n, 3, 2)
    r, c = row.unsqueeze(-1) + offsets[..., 0], column.unsqueeze(-1) + offsets[..., 1]
    at = torch.where(inside.unsqueeze(-1), r * field.shape[:, 1, None, None] + c, 0)
    heights = field.heights.double().expand(*at.shape[:-2], -1).gather(-1, at.flatten(-2))
    heights = heights.unflatten(-1, at.shape[-2:])
    x, y = (k / scale[..., None, i, None] - half[..., None, i, None] for i, k in ((0, c), (1, r)))
    base = -field.size[..., 3:].double()
    near = inside & (heights.amax(-1) >= low[..., 2:] - margin) & (high[..., 2:] + margin >= base)
    top = torch.stack(torch.broadcast_tensors(x, y, heights), -1)  # (..., n, 3, 3)
    parts = body.parts()
    base = base.unsqueeze(-1).expand(*near.shape, 1)

    sunk = (below_surface(body.pos, top) & inside).any(-1)

    def search(
        on: Tensor, top: Tensor, base: Tensor, sunk: Tensor, radius: Tensor, margin: Tensor,
        *parts: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        prism, shape = _prism(top, base), body.with_parts(*parts)
        size = reach(prism) + reach(shape)
        found = single(shape, prism, on, radius, margin, size)[:3]
        out = _upwards(shape, top, radius)
        use = sunk.unsqueeze(-1) & (found[0] <= margin)
        dist, point, normal = (torch.where(use, a, b) for a, b in zip(out, found, strict=True))
        return dist, point, -normal

    each = (radius.unsqueeze(-2), margin.unsqueeze(-2), *(x.unsqueeze(2) for x in parts))
    dist, point, normal = where_on(near, search, top, base, sunk.unsqueeze(-1), *each)
    window = table((float(n_columns), float(n_rows)), begin)
    beyond = (end - begin > window).any(-1).long()
    return choose(near, dist.squeeze(-1), FAR), point, normal, beyond


def _normal_up(top: Tensor) -> Tensor:
    """Upward unit normals (..., 3) of triangles (..., 3, 3)."""
    a, b, c = top.unbind(-2)
    normal = math.cross(b - a, c - a)
    normal = normal * choose(normal[..., 2:] >= 0, 1.0, -torch.ones_like(normal))
    return normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)


def below_surface(point: Tensor, top: Tensor) -> Tensor:
    """Whether points (..., 3) are right below triangles (..., n, 3, 3) of the surface; (..., n)."""
    gap = point[..., None, None, :] - top
    x, y, following = gap[..., 0], gap[..., 1], gap.roll(-1, -2)
    turns = x * following[..., 1] - y * following[..., 0]
    within = (turns >= 0).all(-1) | (turns <= 0).all(-1)
    return within & ((gap[..., 0, :] * _normal_up(top)).sum(-1) < 0)


def _upwards(shape: Convex, top: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The contact straight out of a triangle's plane, as `single` of the shape and the prism."""
    up = _normal_up(top)
    lowest = shape.support(-up) - radius * up
    dist = ((lowest - top[..., 0, :]) * up).sum(-1, keepdim=True)
    return dist, lowest - 0.5 * dist * up, -up


def _bounds(body: Convex, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Highest and lowest coordinates (..., 3) of a set grown by its radius."""
    ends = [
        body.support(table(axis, body.pos).expand_as(body.pos))[..., k // 2]
        for k, axis in enumerate(_AXES)
    ]
    return torch.stack(ends[::2], -1) + radius, torch.stack(ends[1::2], -1) - radius


def _prism(top: Tensor, base: Tensor) -> Convex:
    """The set below triangles (..., 3, 3) down to a height (..., 1), about its own middle."""
    floor = torch.cat([top[..., :2], base.unsqueeze(-2).expand(*top.shape[:-1], 1)], -1)
    corners = torch.cat([floor, top], -2)
    middle = corners.mean(-2)
    corners = corners - middle.unsqueeze(-2)
    lead, device = middle.shape[:-1], middle.device

    count = middle[..., 0].numel()

    def tables(values: tuple) -> Tensor:
        fixed = math.constant(values, torch.int64, device)
        return fixed.expand(count, *fixed.shape)

    faces = math.constant(_FACES, torch.int64, device).expand(*lead, 5, 4)
    a, b, c = (corners.gather(-2, faces[..., k, None].expand(*lead, 5, 3)) for k in range(3))
    normals = math.cross(b - a, c - a)
    normals = normals / torch.linalg.vector_norm(normals, dim=-1, keepdim=True)
    # which way round the triangles are seen differs; outward is away from the middle
    normals = normals * choose((normals * a).sum(-1, keepdim=True) >= 0, 1.0, -torch.ones_like(a))
    every = torch.arange(count, device=device)
    flat = corners.reshape(count, 6, 3)
    mesh = Mesh(
        flat, extremes(flat), normals.reshape(count, 5, 3), tables(_FACES), tables(_COUNTS),
        tables(_HOLDS), tables(_EDGES), every,
    )  # fmt: skip
    eye = torch.eye(3, dtype=top.dtype, device=device).expand(*lead, 3, 3)
    none = torch.zeros_like(middle)
    return Convex(MESH, middle, eye, none, every.reshape(lead), mesh, corners)


def _chosen(touch: Tensor, dist: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Which contacts (..., SLOTS) of n are kept, in their order, and which slots are filled."""
    n = touch.shape[-1]
    far_out = point.detach()[..., :2] @ table(_AROUND, point).mT  # (..., n, SLOTS - 1)
    outer = choose(touch.unsqueeze(-1), far_out, -FAR).argmax(-2)
    depth = choose(touch, dist.detach(), FAR)
    deepest = depth.argmin(-1, keepdim=True)
    before = depth.scatter(-1, torch.cat([deepest, outer], -1), -FAR)  # others follow by depth
    rank = choose(touch, before, FAR).argsort(dim=-1, stable=True).argsort(-1)
    kept = touch & (rank < SLOTS)
    slot = torch.where(kept, kept.long().cumsum(-1) - 1, SLOTS).clamp(max=SLOTS)
    room = torch.zeros(*touch.shape[:-1], SLOTS + 1, dtype=torch.int64, device=touch.device)
    number = torch.arange(n, device=touch.device).expand_as(slot)
    chosen = room.scatter(-1, slot, number)[..., :-1]
    slots = torch.arange(SLOTS, device=touch.device)
    return chosen, slots < kept.sum(-1, keepdim=True)
