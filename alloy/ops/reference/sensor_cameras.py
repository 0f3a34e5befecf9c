"""Cameras: where they are as bodies move, and the pixel in which one sees a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL, constant_like, cross, normalize, rotate, rotate_inv

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import Cameras, SensorGroup


def camera_pos(d: Data, c: Cameras) -> Tensor:
    """World positions of cameras of one mode, (W, n, 3). Source: mj_camlight."""
    if c.mode == "trackcom":
        return d.subtree_com[:, c.body] + c.pos
    origin = d.xpos[:, c.body]
    return origin + (c.pos if c.mode == "track" else rotate(d.xmat[:, c.body], c.pos))


def camera_mat(d: Data, c: Cameras) -> Tensor:
    """World orientations of cameras of one mode, (W, n, 3, 3). Source: mj_camlight.

    A camera looks along its -z axis. One that looks at a body keeps its x axis level.
    """
    if c.mode == "fixed":
        return d.xmat[:, c.body] @ c.mat
    if c.target is None:  # one that tracks its body does not turn with it
        return c.mat.expand(d.xpos.shape[0], *c.mat.shape)
    target = d.xpos if c.mode == "targetbody" else d.subtree_com
    z = normalize(camera_pos(d, c) - target[:, c.target])[0]
    x = normalize(cross(constant_like((0.0, 0.0, 1.0), z).expand_as(z), z))[0]
    y = normalize(cross(z, x))[0]
    return torch.stack([x, y, z], -1)


def camprojection(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Pixel coordinates of sites on the cameras' pictures, from the upper left; (W, n, 2).

    Also of what is behind a camera or beyond the picture's edge. As in MuJoCo the principal point
    and orthographic projection have no part in it. Source: MuJoCo's mj_sensorPos.
    """
    assert g.reference is not None and g.index is not None and g.select is not None
    apart = d.site_xpos[:, g.index] - g.reference.pos(d)
    across, depth = rotate_inv(g.reference.mat(d), apart).split((2, 1), -1)
    focal, middle = g.select.split(2, -1)
    least = constant_like(MINVAL, depth)
    least = torch.where(depth < 0, -least, least)
    depth_or_least = torch.where(depth.abs() < MINVAL, least, depth)
    return (focal * across + middle * depth) / depth_or_least
