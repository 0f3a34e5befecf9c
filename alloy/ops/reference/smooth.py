"""The smooth stages: kinematics, inertia, velocities and the bias force, and forces applied.

Source: MuJoCo manual, Computation, Forward dynamics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import inertia
from alloy.ops.reference.kinematics import poses

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


def kinematics(m: Model, d: Data) -> Data:
    """See `alloy.ops.kinematics`."""
    xpos, xquat, xmat, xanchor, xaxis = poses(
        d.qpos, m.qpos0, d.mocap_pos, d.mocap_quat, m.body_pos, m.body_quat, m.jnt_pos,
        m.jnt_axis, m.tree,
    )  # fmt: skip
    xipos, ximat, subtree_com, cinert, cdof = inertia.com(
        xpos, xmat, xanchor, xaxis, m.body_ipos, m.body_imat, m.body_mass, m.body_subtreemass,
        m.body_inertia, m.tree,
    )  # fmt: skip
    d = replace(
        d, xpos=xpos, xquat=xquat, xmat=xmat, xanchor=xanchor, xaxis=xaxis, xipos=xipos,
        ximat=ximat, subtree_com=subtree_com, cinert=cinert, cdof=cdof,
    )  # fmt: skip
    for kind in ("geom", "site"):
        if getattr(m, f"n{kind}"):
            d = replace(d, **_attached(m, xpos, xmat, kind))
        else:
            d = replace(d, **{f"{kind}_xpos": xpos[:, :0], f"{kind}_xmat": xmat[:, :0]})
    return d


def _attached(m: Model, xpos: Tensor, xmat: Tensor, kind: str) -> dict[str, Tensor]:
    """World poses of the geoms or sites."""
    body = m.derived[f"{kind}_bodyid"]
    mat = xmat[:, body]
    return {
        f"{kind}_xpos": xpos[:, body] + math.rotate(mat, getattr(m, f"{kind}_pos")),
        f"{kind}_xmat": math.compose(mat, getattr(m, f"{kind}_mat")),
    }


def velocity(m: Model, d: Data) -> Data:
    """See `alloy.ops.velocity`."""
    cvel, cdof_dot = inertia.velocity(d.cdof, d.qvel, m.tree)
    gravity = torch.zeros_like(m.gravity) if "gravity" in m.opt.disable else m.gravity
    qfrc_bias = inertia.bias(d.cinert, d.cdof, cdof_dot, cvel, d.qvel, gravity, m.tree)
    return replace(d, cvel=cvel, cdof_dot=cdof_dot, qfrc_bias=qfrc_bias)


def applied_force(m: Model, d: Data) -> Tensor:
    """Generalised force (W, nv) of qfrc_applied and of the wrenches xfrc_applied on bodies."""
    force, torque = d.xfrc_applied.split(3, -1)
    arm = d.xipos - d.subtree_com[:, m.tree.body_root]
    wrench = torch.cat([torque + math.cross(arm, force), force], -1)
    return d.qfrc_applied + math.dot(d.cdof, math.constant_times(m.tree.moved_by, wrench))
