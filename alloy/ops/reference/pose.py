"""Integration of positions. Source: MuJoCo manual, Computation, Numerical integration."""

from __future__ import annotations

import torch
from torch import Tensor

from alloy import math


def integrate_quat(quat: Tensor, omega: Tensor, dt: float) -> Tensor:
    """See `alloy.ops.integrate_quat`."""
    axis, speed = math.normalize(omega)
    turn = math.quat_from_axis_angle(axis, dt * speed.squeeze(-1))
    return math.quat_normalize(math.quat_mul(math.quat_normalize(quat), turn))


def integrate_pos(
    qpos: Tensor,
    qvel: Tensor,
    dt: float,
    linear_qpos: Tensor | None,
    linear_dof: Tensor | None,
    quat_qpos: Tensor | None,
    quat_dof: Tensor | None,
    order: Tensor | None,
) -> Tensor:
    """See `alloy.ops.integrate_pos`."""
    if quat_qpos is None:
        return qpos + dt * qvel
    turned = integrate_quat(qpos[:, quat_qpos], qvel[:, quat_dof], dt).flatten(1)
    if linear_qpos is None:
        return turned if order is None else turned[:, order]
    moved = qpos[:, linear_qpos] + dt * qvel[:, linear_dof]
    return torch.cat([moved, turned], 1)[:, order]
