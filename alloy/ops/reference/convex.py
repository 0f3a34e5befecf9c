"""Convex sets by their support points.

The Minkowski difference D of two sets holds the differences of their points, and the origin where
the sets meet. Apart, the distance is that of D's nearest point (`convex_gjk`); inside each other it
is that of D's nearest face (`convex_depth`).

Everything here works on pairs in any leading shape (..., ), in double precision: which corners
matter is a yes or no that rounding must not turn round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.ops.control import Carry, where_on
from alloy.ops.reference.collide_shared import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MESH,
    SPHERE,
    choose,
    first,
    sign,
    table,
)

_FEW = 16  # corners of a mesh


class Mesh(NamedTuple):
    """The hulls of M meshes; rows are filled up by repeating what is there."""

    corners: Tensor  # (M, V, 3)
    extremes: Tensor  # (M, 3, 3) see `extremes`
    face_normal: Tensor  # (M, F, 3) outward, zero where there is no face
    face_corner: Tensor  # (M, F, E) the corners of each face, counter-clockwise from outside
    face_size: Tensor  # (M, F) how many there are
    around: Tensor  # (M, V, D) the faces of each corner; one without normal where it has none
    neighbours: Tensor  # (M, V, D) the corner before it in each of these, or those next to it
    row: Tensor  # (P,) which of them the geoms of P pairs have


def extremes(corners: Tensor) -> Tensor:
    """Of corners (..., V, 3) the lowest and the highest coordinates, and the farthest one.

    (..., 3, 3); they hold the mesh, and do not change from step to step.
    """
    far = torch.linalg.vector_norm(corners, dim=-1).argmax(-1, keepdim=True)
    ends = torch.stack([corners.amin(-2), corners.amax(-2)], -2)
    return torch.cat([ends, rows(corners, far)], -2)


def rows(values: Tensor, index: Tensor) -> Tensor:
    """Rows (..., n, k) of values (..., m, k) by index (..., n)."""
    values = values.expand(*index.shape[:-1], *values.shape[-2:])
    return values.gather(-2, index.unsqueeze(-1).expand(*index.shape, values.shape[-1]))


class Convex(NamedTuple):
    """A convex set: what is left of a geom without its radius, which is added to distances."""

    kind: int  # mjtGeom; a sphere is its centre, a capsule its segment
    pos: Tensor  # (..., 3)
    mat: Tensor  # (..., 3, 3)
    size: Tensor  # (..., 3)
    pair: Tensor | None = None  # (...,) which row of the tables of `mesh` it has
    mesh: Mesh | None = None  # the tables of all: they are not taken along, see `parts`
    corners: Tensor | None = None  # (..., V, 3) of its mesh, in its frame, where they are at hand

    def parts(self) -> tuple[Tensor, ...]:
        """The tensors that it is made of; `with_parts` puts others in their place."""
        own = (self.pos, self.mat, self.size)
        return own if self.mesh is None else (*own, self.rows_of_mesh)

    def with_parts(self, *parts: Tensor) -> Convex:
        """A set of the same kind made of other tensors, with its corners at hand."""
        if self.mesh is None:
            return Convex(self.kind, *parts)
        pos, mat, size, pair = parts
        return Convex(self.kind, pos, mat, size, pair, self.mesh, self.mesh.corners[pair].double())

    @property
    def hull(self) -> Tensor:
        """Corners (..., V, 3) of a mesh."""
        assert self.mesh is not None
        if self.corners is not None:
            return self.corners
        return self.mesh.corners[self.rows_of_mesh].double()

    @property
    def rows_of_mesh(self) -> Tensor:
        """Row (...,) of a mesh in the tables of all."""
        assert self.pair is not None
        return self.pair

    def table(self, name: str, index: Tensor) -> Tensor:
        """Rows (..., n, k) of a table of its mesh by index (..., n)."""
        values = getattr(self.mesh, name)[self.rows_of_mesh.unsqueeze(-1), index]
        return values.double() if values.is_floating_point() else values

    def support(self, direction: Tensor) -> Tensor:
        """A point (..., 3) farthest in a direction (..., 3), which need not have unit length."""
        local = math.rotate_inv(self.mat, direction)
        return self.pos + math.rotate(self.mat, self._local_support(local))

    def _local_support(self, way: Tensor) -> Tensor:
        size = self.size
        if self.kind == SPHERE:
            return torch.zeros_like(way)
        if self.kind == CAPSULE:
            end = size[..., 1:2] * sign(way[..., 2:] >= 0, way)
            return torch.cat([torch.zeros_like(way[..., :2]), end], -1)
        if self.kind == ELLIPSOID:
            scaled = size * way
            length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
            return size * scaled / length.clamp(min=math.MINVAL)
        if self.kind == CYLINDER:
            flat = way[..., :2]
            length = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
            rim = size[..., :1] * flat / length.clamp(min=math.MINVAL)
            return torch.cat([rim, size[..., 1:2] * sign(way[..., 2:] >= 0, way)], -1)
        if self.kind == BOX:
            return size * sign(way >= 0, way)
        return rows(self.hull, self._top(way)).squeeze(-2)

    def _top(self, way: Tensor) -> Tensor:
        """Which corner (..., 1) of a mesh is farthest along a direction in its frame."""
        return (self.hull @ way.unsqueeze(-1)).squeeze(-1).argmax(-1, keepdim=True)

    def curvature(self, normal: Tensor) -> Tensor:
        """Derivative (..., 3, 3) of the support point by a unit direction; zero where flat."""
        way = math.rotate_inv(self.mat, normal)
        if self.kind == ELLIPSOID:
            square = self.size * self.size
            length = torch.linalg.vector_norm(self.size * way, dim=-1, keepdim=True)
            point = (square * way / length).unsqueeze(-1)
            local = (torch.diag_embed(square) - point @ point.mT) / length.unsqueeze(-1)
        elif self.kind == CYLINDER:
            flat = way * table((1.0, 1.0, 0.0), way)
            length = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
            upright = length < 1e-9
            flat = flat / choose(upright, 1.0, length)
            around = torch.diag(table((1.0, 1.0, 0.0), way)) - flat.unsqueeze(-1) * flat.unsqueeze(
                -2
            )
            bend = choose(upright, 0.0, self.size[..., :1] / choose(upright, 1.0, length))
            local = around * bend.unsqueeze(-1)
        else:
            return torch.zeros_like(self.mat)
        return self.mat @ local @ self.mat.mT

    @property
    def many_corners(self) -> bool:
        """Whether it is a mesh whose faces may be small."""
        return self.mesh is not None and self.mesh.corners.shape[-2] > _FEW

    @property
    def curved(self) -> bool:
        """Whether some of the surface is curved."""
        return self.kind in (ELLIPSOID, CYLINDER)

    def edges(self, way: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Unit directions (..., 3) of edges that may touch what comes from a direction.

        Of a mesh, the two at its farthest corner that are most level, and that corner.
        """
        if self.kind in (CAPSULE, CYLINDER):
            return [(self.mat[..., 2], None)]
        if self.kind == BOX:
            return [(axis, None) for axis in self.mat.unbind(-1)]
        if self.kind != MESH:
            return []
        local = math.rotate_inv(self.mat, way)
        best = self._top(local)
        corner = rows(self.hull, best)
        along = rows(self.hull, self.table("neighbours", best).squeeze(-2)) - corner
        along = along / torch.linalg.vector_norm(along, dim=-1, keepdim=True)
        steep = (along @ local.unsqueeze(-1)).squeeze(-1).abs()
        level = rows(along, steep.topk(2, -1, largest=False).indices)
        end = self.pos + math.rotate(self.mat, corner.squeeze(-2))
        return [(edge, end) for edge in math.rotate(self.mat.unsqueeze(-3), level).unbind(-2)]

    def lines(self, touch: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Unit directions (..., 3) between the points (..., 3, 3) of a mesh that span what touches.

        And the point that each begins at. Zero between the same; they need not be edges. None of a
        mesh of few corners, whose edges say as much.
        """
        if not self.many_corners:
            return []
        along = touch.roll(-1, -2) - touch
        length = torch.linalg.vector_norm(along, dim=-1, keepdim=True)
        along = along / length.clamp(min=math.MINVAL)
        return list(zip(along.unbind(-2), touch.unbind(-2), strict=True))

    def facets(self, way: Tensor, touch: Tensor) -> list[Tensor]:
        """Unit normals (..., 3) of faces that may look along a direction, if there are any.

        Of a mesh, the one at its farthest corner that looks most along it, and that of the points
        (..., 3, 3) that span what touches, which MuJoCo's faces may lack; zero if they are in line.
        """
        local = math.rotate_inv(self.mat, way)
        if self.kind == BOX:
            axis = first(local.abs() >= local.abs().amax(-1, keepdim=True)).to(local.dtype)
            return [math.rotate(self.mat, axis * sign(local >= 0, local))]
        if self.kind == CYLINDER:
            return [self.mat[..., 2] * sign(local[..., 2:] >= 0, local)]
        if self.kind != MESH:
            return []
        around = self.table("around", self._top(local)).squeeze(-2)
        normals = self.table("face_normal", around)
        best = (normals @ local.unsqueeze(-1)).squeeze(-1).argmax(-1, keepdim=True)
        a, b, c = touch.unbind(-2)
        across = math.cross(b - a, c - a)
        across = across * sign((across * way).sum(-1, keepdim=True) >= 0, across)
        length = torch.linalg.vector_norm(across, dim=-1, keepdim=True)
        across = across / length.clamp(min=math.MINVAL)
        return [math.rotate(self.mat, rows(normals, best).squeeze(-2)), across]


def convex_of(
    kind: int, pos: Tensor, mat: Tensor, size: Tensor, mesh: Mesh | None = None
) -> Convex:
    """Sets (W, P) in double precision; a mesh has the tables that the P pairs share."""
    if mesh is None:
        return Convex(kind, pos, mat, size)
    return Convex(kind, pos, mat, size, mesh.row.expand(pos.shape[:-1]), mesh)


def where_pairs(
    on: Tensor, body: Callable[..., Carry], one: Convex, two: Convex, *tensors: Tensor
) -> Carry:
    """`where_on` of pairs of sets: `body(on, one, two, *tensors)` of those that are on."""
    parts1, parts2 = one.parts(), two.parts()

    def of_parts(on: Tensor, *values: Tensor) -> Carry:
        rest, values = values[: len(tensors)], values[len(tensors) :]
        sets1, sets2 = values[: len(parts1)], values[len(parts1) :]
        return body(on, one.with_parts(*sets1), two.with_parts(*sets2), *rest)

    return where_on(on, of_parts, *tensors, *parts1, *parts2)


def difference(one: Convex, two: Convex, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The corner of D farthest in a direction, and the point of set 1 in it; (..., 3) each."""
    point = one.support(direction)
    return point - two.support(-direction), point
