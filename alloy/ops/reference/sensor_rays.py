"""Rangefinders: what a ray along the z axis of a site meets first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.ops.reference import ray

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import SensorGroup

WIDTH = {"dist": 1, "dir": 3, "origin": 3, "point": 3, "normal": 3, "depth": 1}


def rangefinder(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Fields of each ray one after another; where nothing is hit, -1 for lengths and else zeros."""
    assert g.rays is not None and g.index is not None
    origin, vec = d.site_xpos[:, g.index], d.site_xmat[:, g.index][..., 2]
    dist, normal = ray.nearest(m, d, g.rays, origin, vec, "normal" in g.fields)
    dist = dist.unsqueeze(-1)
    hit = torch.isfinite(dist)
    length = torch.where(hit, dist, -1.0)
    values = {
        "dist": length,
        "dir": torch.where(hit, vec, 0.0),
        "origin": origin,
        "point": torch.where(hit, origin + length * vec, 0.0),
        "normal": normal,
        "depth": length,
    }
    return torch.cat([values[name] for name in g.fields], -1)
