"""Distances of geoms, by the colliders; the normal and the segment between the nearest points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import normalize
from alloy.ops.reference.collide import COLLIDERS, CONVEX_KINDS
from alloy.ops.reference.collide_convex import sets_of, single
from alloy.ops.reference.collide_shared import BOX, CAPSULE, CYLINDER, FAR, HFIELD, MESH, first
from alloy.ops.reference.sensor_boxes import box_box_segment

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import GeomPairs, SensorGroup


def measured(kind: tuple[int, int]) -> bool:
    """Whether it is known where two shapes are nearest."""
    return kind in COLLIDERS and kind[0] != HFIELD


def distances(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Distances (n,), then normals (n, 3), then segments (n, 6) of the sensors, flattened.

    Beyond the cutoff, which is the largest distance, normals and segments are zero. The normal is
    that of the segment, so it points the other way in penetration. Source: mj_geomDistance.
    """
    t = g.distances
    assert t is not None
    dist, segment = _nearest(m, d, g)
    normal = segment[..., 3:] - segment[..., :3]
    apart = (normal != 0).any(-1, keepdim=True)
    normal = torch.where(apart, normalize(normal)[0], 0.0)
    parts = (dist[:, t.dist], normal[:, t.normal], segment[:, t.fromto])
    return torch.cat([part.flatten(1) for part in parts], 1)


def _nearest(m: Model, d: Data, g: SensorGroup) -> tuple[Tensor, Tensor]:
    """Distance (W, queries) and segment (W, queries, 6) of each query."""
    t = g.distances
    assert t is not None
    found = [_between(m, d, pairs) for pairs in t.pairs]
    dist = torch.cat([one for one, _ in found], 1)[:, t.choices]  # (W, queries, most)
    segment = torch.cat([one for _, one in found], 1)[:, t.choices]
    near = dist.amin(-1, keepdim=True)
    chosen = first(dist == near).unsqueeze(-1)
    within = near < t.cutoff.unsqueeze(-1)
    segment = torch.where(within, torch.where(chosen, segment, 0.0).sum(-2), 0.0)
    return torch.minimum(near.squeeze(-1), t.cutoff), segment


def _between(m: Model, d: Data, p: GeomPairs) -> tuple[Tensor, Tensor]:
    """Distance (W, n) of each pair of geoms, and the segment (W, n, 6) between them."""
    geoms = (
        d.geom_xpos[:, p.geom1], d.geom_xmat[:, p.geom1], m.geom_size[:, p.geom1],
        d.geom_xpos[:, p.geom2], d.geom_xmat[:, p.geom2], m.geom_size[:, p.geom2],
    )  # fmt: skip
    if p.kind == (BOX, BOX):
        near, one, two = box_box_segment(*geoms)
    elif p.kind in CONVEX_KINDS:  # their contacts need not be where they are nearest
        near, one, two = _between_convex(p, *geoms)
    else:
        # a negative margin keeps to the direction of least overlap: nothing lies along a cap
        margin = torch.full_like(p.margin, -FAR) if p.kind == (CAPSULE, CYLINDER) else p.margin
        meshes = (p.mesh1, p.mesh2) if MESH in p.kind else ()
        near, one, two = _nearest_contact(*COLLIDERS[p.kind].fn(*geoms, margin, *meshes))
    if p.back is not None:
        one, two = torch.where(p.back, two, one), torch.where(p.back, one, two)
    return near, torch.cat([one, two], -1)


def _nearest_contact(dist: Tensor, point: Tensor, frame: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least distance (W, n) of a pair's contacts, and its points on the two surfaces."""
    near = dist.amin(-1)
    chosen = first(dist == near.unsqueeze(-1)).unsqueeze(-1)
    middle = torch.where(chosen, point, 0.0).sum(-2)
    half = 0.5 * near.unsqueeze(-1) * torch.where(chosen, frame[..., 0, :], 0.0).sum(-2)
    return near, middle - half, middle + half


def _between_convex(
    p: GeomPairs, pos1: Tensor, mat1: Tensor, size1: Tensor, pos2: Tensor, mat2: Tensor,
    size2: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Distance (W, n) of convex shapes and the nearest points, as their collider begins."""
    lead, sides = pos1.shape[:-1], ((pos1, mat1, size1, p.mesh1), (pos2, mat2, size2, p.mesh2))
    one, two, radius, size = sets_of(p.kind, *sides)
    margin = p.margin.double().expand(lead).unsqueeze(-1)
    every = torch.ones(lead, dtype=torch.bool, device=pos1.device)
    dist, point, normal, _ = single(one, two, every, radius, margin, size)
    half = 0.5 * dist * normal
    dist, first_point, second_point = (x.to(pos1.dtype) for x in (dist, point - half, point + half))
    return dist.squeeze(-1), pos1 + first_point, pos1 + second_point
