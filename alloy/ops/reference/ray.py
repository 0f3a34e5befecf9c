"""Rays: how far it is along a ray to the surface of the first geom. Source: MuJoCo's mj_ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.ops.reference.ray_hfield import hfield
from alloy.ops.reference.ray_shapes import INTERSECT, finite, mesh, nearest_of, normal_at

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import Rays


def nearest(
    m: Model, d: Data, rays: Rays, pnt: Tensor, vec: Tensor, normals: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Distance (W, N) from pnt along vec, (W, N, 3) each, and the surface's normal there.

    The normal (W, N, 3) points outwards, and is zero where nothing is hit.
    """
    dists, directions = [], []
    for group in rays.groups:
        mat = d.geom_xmat[:, group.geoms]
        # in the geoms' frames, (W, N, n, 3): rows times a matrix, for all rays at once
        apart = pnt.unsqueeze(1) - d.geom_xpos[:, group.geoms].unsqueeze(2)
        start, along = ((x @ mat).transpose(1, 2) for x in (apart, vec.unsqueeze(1)))
        size = m.geom_size[:, group.geoms].unsqueeze(1)
        across = None
        if group.triangles is not None:
            dist, across = mesh(start, along, group.triangles)
        elif group.field is not None:
            dist, across = hfield(start, along, group.field)
        else:
            dist = INTERSECT[group.kind](start, along, size)  # (W, N, n)
        if group.seen is not None:
            dist = torch.where(group.seen, dist, torch.inf)
        dists.append(dist)
        if normals:
            if across is None:
                hit = finite(dist).unsqueeze(-1)
                across = normal_at(group.kind, start + hit * along, size)
            directions.append((across.transpose(1, 2) @ mat.mT).transpose(1, 2))
    if not dists:
        none = torch.full_like(pnt[..., 0], torch.inf)
        return none, torch.zeros_like(pnt) if normals else None
    if not normals:
        return torch.cat(dists, -1).amin(-1), None
    return nearest_of(torch.cat(dists, -1), torch.cat(directions, 2))
