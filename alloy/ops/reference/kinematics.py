"""Forward kinematics by tree level. Source: MuJoCo manual, Computation, Forward kinematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.tree import Tree


def _scalar_links(
    qpos: Tensor, qpos0: Tensor, jnt_pos: Tensor, jnt_axis: Tensor, tree: Tree
) -> tuple[Tensor, Tensor]:
    """Joint transforms (pos, quat) of hinges and slides: turn about the anchor, or move along."""
    angle = qpos[:, tree.scalar_qpos] - qpos0[:, tree.scalar_qpos]  # (W, n)
    axis = jnt_axis[:, tree.scalar_joint]
    quat = math.quat_from_axis_angle(axis, angle * tree.scalar_is_hinge)
    pos = (angle * (1 - tree.scalar_is_hinge)).unsqueeze(-1) * axis
    return pos, quat


def relative_poses(
    qpos: Tensor,
    qpos0: Tensor,
    mocap_pos: Tensor,
    mocap_quat: Tensor,
    body_pos: Tensor,
    body_quat: Tensor,
    jnt_pos: Tensor,
    jnt_axis: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor]:
    """Pose of every link in its parent link: (W, nlink - 1, 3) and (W, nlink - 1, 4)."""
    worlds = qpos.shape[0]
    pos, quat = _scalar_links(qpos, qpos0, jnt_pos, jnt_axis, tree)
    anchor = jnt_pos[:, tree.scalar_joint] if tree.has_offset else None
    parts = [(pos, quat)]
    if tree.ball_qpos is not None:
        q = math.quat_normalize(qpos[:, tree.ball_qpos])
        parts.append((torch.zeros_like(q[..., :3]), q))
    if tree.pose_qpos is not None:
        pose = qpos[:, tree.pose_qpos]
        parts.append((pose[..., :3], math.quat_normalize(pose[..., 3:])))
    if tree.mocap is not None:
        parts.append((mocap_pos[:, tree.mocap], math.quat_normalize(mocap_quat[:, tree.mocap])))
    if tree.n_fixed:
        identity = torch.zeros_like(qpos[:, :1]).unsqueeze(-1).expand(worlds, tree.n_fixed, 4)
        identity = identity + _identity_quat(qpos)
        parts.append((torch.zeros_like(identity[..., :3]), identity))
    if len(parts) > 1:
        pos, quat = torch.cat([p for p, _ in parts], 1), torch.cat([q for _, q in parts], 1)
    if tree.rel_order is not None:
        pos, quat = pos[:, tree.rel_order], quat[:, tree.rel_order]
    if anchor is not None:
        anchor = jnt_pos[:, tree.link_joint] * tree.link_turns
        pos = pos + anchor - math.rotate(math.quat_to_mat(quat), anchor)
    return _with_body_offset(pos, quat, body_pos, body_quat, tree)


def _with_body_offset(
    pos: Tensor, quat: Tensor, body_pos: Tensor, body_quat: Tensor, tree: Tree
) -> tuple[Tensor, Tensor]:
    offset = body_pos[:, tree.link_body] * tree.link_first
    if tree.has_quat:
        turn = body_quat[:, tree.link_body] * tree.link_first + tree.link_later
        pos = math.rotate(math.quat_to_mat(turn), pos)
        quat = math.quat_mul(turn, quat)
    return pos + offset, quat


def _identity_quat(like: Tensor) -> Tensor:
    return torch.eye(1, 4, dtype=like.dtype, device=like.device)[0]


def _walk(pos: Tensor, quat: Tensor, tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """World pose of every link by level: (W, nlink, 3), (W, nlink, 4), (W, nlink, 3, 3)."""
    worlds = pos.shape[0]
    mat = math.quat_to_mat(quat)
    identity = _identity_quat(pos)
    poses = [
        (
            torch.zeros_like(pos[:, :1]),
            identity.expand(worlds, 1, 4),
            torch.eye(3, dtype=pos.dtype, device=pos.device).expand(worlds, 1, 3, 3),
        )
    ]
    levels = zip(*(x.split(list(tree.level_size), 1) for x in (pos, quat, mat)), strict=True)
    for k, ((p, q, r), parent) in enumerate(zip(levels, tree.level_parent, strict=True)):
        up = poses[-1]
        if k > 0:
            up = up if parent is None else tuple(x[:, parent] for x in up)
            p, q, r = up[0] + math.rotate(up[2], p), math.quat_mul(up[1], q), math.compose(up[2], r)
        poses.append((p, q, r))
    p, q, r = (torch.cat(x, 1) for x in zip(*poses, strict=True))
    return p, q, r


def kinematics(
    qpos: Tensor,
    qpos0: Tensor,
    mocap_pos: Tensor,
    mocap_quat: Tensor,
    body_pos: Tensor,
    body_quat: Tensor,
    jnt_pos: Tensor,
    jnt_axis: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `alloy.ops.kinematics`."""
    pos, quat = relative_poses(
        qpos, qpos0, mocap_pos, mocap_quat, body_pos, body_quat, jnt_pos, jnt_axis, tree
    )
    link_pos, link_quat, link_mat = _walk(pos, quat, tree)
    body = tree.body_link
    joint_mat = link_mat[:, tree.joint_link]
    xaxis = math.rotate(joint_mat, jnt_axis)
    xanchor = link_pos[:, tree.joint_link]
    if tree.has_offset:
        xanchor = xanchor + math.rotate(joint_mat, jnt_pos) * tree.joint_has_anchor
    if tree.joint_is_slide is not None:  # MuJoCo notes the anchor before the slide has moved it
        moved = (qpos - qpos0)[:, tree.joint_qpos].unsqueeze(-1)
        xanchor = xanchor - xaxis * (moved * tree.joint_is_slide)
    return link_pos[:, body], link_quat[:, body], link_mat[:, body], xanchor, xaxis
