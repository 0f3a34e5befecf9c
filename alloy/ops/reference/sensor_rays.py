"""Rangefinders: what a ray meets first that goes along the z axis of a site, or through a pixel.

Source: MuJoCo's mj_sensorPos and mj_multiRay.
"""

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
    assert g.rays is not None
    if g.frames is None:
        origin, vec = d.site_xpos[:, g.index], d.site_xmat[:, g.index][..., 2]
    else:
        origin, vec = _through_pixels(d, g)
    dist, normal = ray.nearest(m, d, g.rays, origin, vec, "normal" in g.fields)
    dist = dist.unsqueeze(-1)
    hit = torch.isfinite(dist)
    length = torch.where(hit, dist, -1.0)
    along = 1.0 if g.select is None else -g.select[:, 2:3]  # of the ray, to the camera's front
    values = {
        "dist": length,
        "dir": torch.where(hit, vec, 0.0),
        "origin": origin,
        "point": torch.where(hit, origin + length * vec, 0.0),
        "normal": normal,
        "depth": torch.where(hit, length * along, -1.0),
    }
    return torch.cat([values[name] for name in g.fields], -1)


def _through_pixels(d: Data, g: SensorGroup) -> tuple[Tensor, Tensor]:
    """Where the rays of a camera begin and their directions, (W, rays, 3) each."""
    assert g.frames is not None and g.select is not None
    back = g.frames.mat(d).squeeze(1).mT
    direction, offset = g.select.split(3, -1)
    return g.frames.pos(d) + offset @ back, direction @ back
