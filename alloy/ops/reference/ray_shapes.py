"""Where rays meet shapes, in the shapes' frames.

A surface is seen from inside, too; a plane only from above and within its rectangle, a triangle
from both sides. Distances are in lengths of the ray's vector, and infinite where nothing is hit.
Source: MuJoCo's mju_rayGeom and mj_rayMesh.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alloy.math import MINVAL, constant, cross, dot, normalize, safe_norm
from alloy.ops.control import repeat
from alloy.ops.reference.collide_shared import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    PLANE,
    SPHERE,
    first,
)

_ACROSS = ((True, False, False), (False, True, False), (False, False, True))  # face by axis


def ahead(x: Tensor) -> Tensor:
    """The values that are not behind the ray's origin, infinity for the others."""
    return torch.where(x >= 0, x, torch.inf)


def finite(x: Tensor) -> Tensor:
    """Zero where a distance is infinite, so that what follows from it is a number."""
    return torch.where(torch.isfinite(x), x, 0.0)


def _roots(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Roots of a x^2 + 2 b x + c for positive a, the lower one first; infinite without any."""
    det = b * b - a * c
    some = det >= MINVAL
    root, a = torch.where(some, det, 1.0).sqrt(), torch.where(some, a, 1.0)
    return (
        torch.where(some, (-b - root) / a, torch.inf),
        torch.where(some, (-b + root) / a, torch.inf),
    )


def _first_root(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    low, high = _roots(a, b, c)
    return torch.minimum(ahead(low), ahead(high))


def plane(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """The front side, within the rectangle that is drawn; a size of zero is without bound."""
    down = vec[..., 2] <= -MINVAL
    dist = ahead(-pnt[..., 2] / torch.where(down, vec[..., 2], -1.0))
    at = pnt[..., :2] + finite(dist).unsqueeze(-1) * vec[..., :2]
    within = ((at.abs() <= size[..., :2]) | (size[..., :2] <= 0)).all(-1)
    return torch.where(down & within, dist, torch.inf)


def sphere(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """A ball's surface."""
    radius = size[..., 0]
    return _first_root(dot(vec, vec), dot(vec, pnt), dot(pnt, pnt) - radius * radius)


def ellipsoid(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """A stretched ball's surface."""
    scale = 1 / (size * size)
    a, b, c = dot(scale * vec, vec), dot(scale * vec, pnt), dot(scale * pnt, pnt) - 1.0
    return _first_root(a, b, c)


def _side(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """The round side of a cylinder."""
    p, v, radius = pnt[..., :2], vec[..., :2], size[..., 0]
    dist = _first_root(dot(v, v), dot(v, p), dot(p, p) - radius * radius)
    height = pnt[..., 2] + finite(dist) * vec[..., 2]
    return torch.where(height.abs() <= size[..., 1], dist, torch.inf)


def cylinder(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """The round side and two flat ends."""
    radius, half = size[..., 0], size[..., 1]
    steep = vec[..., 2].abs() > MINVAL
    slope = torch.where(steep, vec[..., 2], 1.0)
    out = _side(pnt, vec, size)
    for end in (-half, half):
        dist = ahead((end - pnt[..., 2]) / slope)
        at = pnt[..., :2] + finite(dist).unsqueeze(-1) * vec[..., :2]
        met = steep & (dot(at, at) <= radius * radius)
        out = torch.minimum(out, torch.where(met, dist, torch.inf))
    return out


def capsule(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """The round side and the outer halves of two balls."""
    radius, half = size[..., 0], size[..., 1]
    height, rise = pnt[..., 2], vec[..., 2]
    out = _side(pnt, vec, size)
    flat_b, flat_c = dot(vec[..., :2], pnt[..., :2]), dot(pnt[..., :2], pnt[..., :2])
    for end in (1.0, -1.0):
        above = height - end * half
        b, c = flat_b + rise * above, flat_c + above * above - radius * radius
        for dist in _roots(dot(vec, vec), b, c):
            there = height + finite(dist) * rise
            out = torch.minimum(out, torch.where(end * there >= half, ahead(dist), torch.inf))
    return out


def box(pnt: Tensor, vec: Tensor, size: Tensor) -> Tensor:
    """Six rectangles."""
    steep = vec.abs() > MINVAL
    slope = torch.where(steep, vec, 1.0)
    across = constant(_ACROSS, torch.bool, pnt.device)
    out = torch.full_like(pnt[..., 0], torch.inf)
    for side in (-1.0, 1.0):
        dist = ahead((side * size - pnt) / slope)  # (..., 3) by axis
        reach = finite(dist).unsqueeze(-1)
        at = pnt.unsqueeze(-2) + reach * vec.unsqueeze(-2)  # (..., axis, 3)
        within = ((at.abs() <= size.unsqueeze(-2)) | across).all(-1)
        out = torch.minimum(out, torch.where(steep & within, dist, torch.inf).amin(-1))
    return out


def triangle(pnt: Tensor, vec: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Distance to triangles with corners a, b, c (..., 3), seen from both sides; their normals.

    Source: Moeller and Trumbore (1997), Fast, minimum storage ray-triangle intersection.
    """
    one, two = b - a, c - a
    face = cross(one, two)
    det = -dot(face, vec)
    steep = det.abs() > MINVAL
    det = torch.where(steep, det, 1.0)
    offset = pnt - a
    turned = cross(offset, vec)
    u, v, dist = dot(two, turned) / det, -dot(one, turned) / det, dot(face, offset) / det
    met = steep & (u >= 0) & (v >= 0) & (u + v <= 1)
    return torch.where(met, ahead(dist), torch.inf), normalize(face)[0]


def nearest_of(dist: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """The least of distances (..., n) and its normal of normals (..., n, 3), zero if infinite."""
    near = dist.amin(-1)
    chosen = first((dist == near.unsqueeze(-1)) & torch.isfinite(dist))
    return near, torch.where(chosen.unsqueeze(-1), normal, 0.0).sum(-2)


def mesh(pnt: Tensor, vec: Tensor, triangles: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of triangles (blocks, n, 3, 3) and its normal, by the order of its corners.

    Block by block, so that neither memory nor a compiled program grows with all of them.
    """
    starts, ways = pnt.unsqueeze(-2), vec.unsqueeze(-2)

    def body(i: int | Tensor, near: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(i, int):
            block = triangles[i]
        else:
            block = triangles.index_select(0, i.reshape(1)).squeeze(0)
        dist, across = nearest_of(*triangle(starts, ways, *block.unbind(1)))
        closer = dist < near
        return torch.where(closer, dist, near), torch.where(closer.unsqueeze(-1), across, normal)

    none = torch.full_like(pnt[..., 0], torch.inf)
    near, normal = repeat(triangles.shape[0], body, (none, torch.zeros_like(pnt)))
    return near, normal


INTERSECT = {
    PLANE: plane, SPHERE: sphere, CAPSULE: capsule, ELLIPSOID: ellipsoid, CYLINDER: cylinder,
    BOX: box,
}  # fmt: skip


def normal_at(kind: int, at: Tensor, size: Tensor) -> Tensor:
    """Outward normal at a point (..., 3) of the surface, in the geom's frame."""
    zero, up = torch.zeros_like(at[..., :1]), torch.ones_like(at[..., :1])
    if kind == PLANE:
        return torch.cat([zero, zero, up], -1)
    if kind == ELLIPSOID:
        return normalize(at / (size * size))[0]
    half, height = size[..., 1:2], at[..., 2:]
    if kind == CAPSULE:
        middle = torch.maximum(torch.minimum(height, half), -half)
        return normalize(torch.cat([at[..., :2], height - middle], -1))[0]
    if kind == BOX:
        depth = (at.abs() - size).abs()  # zero across the face that the point is on
        face = first(depth == depth.amin(-1, keepdim=True))
        return torch.where(face, torch.where(at < 0, -1.0, 1.0), 0.0).to(at.dtype)
    if kind == CYLINDER:
        flat = torch.cat([zero, zero, torch.where(height < 0, -up, up)], -1)
        side = normalize(torch.cat([at[..., :2], zero], -1))[0]
        rho = safe_norm(at[..., :2], keepdim=True)
        on_end = (height.abs() - half).abs() < (rho - size[..., :1]).abs()
        return torch.where(on_end, flat, side)
    return normalize(at)[0]
