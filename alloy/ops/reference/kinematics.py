"""Forward kinematics by tree level. Source: MuJoCo manual, Computation, Forward kinematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.tree import Tree

# the world's own pose: rows of the homogeneous matrix, then the quaternion
_WORLD = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0))


def _moved(qpos: Tensor, qpos0: Tensor, tree: Tree) -> Tensor:
    """How far every hinge and slide is from its reference, in joint order; (W, n)."""
    moved = qpos - qpos0
    return moved if tree.scalar_qpos is None else moved[:, tree.scalar_qpos]


def _relative_poses(
    qpos: Tensor,
    moved: Tensor,
    slid: Tensor | None,
    mocap_pos: Tensor,
    mocap_quat: Tensor,
    jnt_axis: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor]:
    """Joint transforms of the links in group order: (W, nlink - 1, 3) and (W, nlink - 1, 4)."""
    worlds = qpos.shape[0]
    half = (moved * tree.scalar_half).unsqueeze(-1)
    axis = jnt_axis if tree.scalar_joint is None else jnt_axis[:, tree.scalar_joint]
    quats = [torch.cat([torch.cos(half), torch.sin(half) * axis], -1)]
    still = math.constant_like(0.0, qpos)
    positions = [still.expand(worlds, half.shape[1], 3) if slid is None else slid * axis]
    if tree.ball_qpos is not None:
        quats.append(math.quat_normalize(qpos[:, tree.ball_qpos]))
        positions.append(still.expand(*quats[-1].shape[:2], 3))
    if tree.pose_qpos is not None:
        pos, quat = qpos[:, tree.pose_qpos].split((3, 4), -1)
        quats.append(math.quat_normalize(quat))
        positions.append(pos)
    if tree.mocap is not None:
        quats.append(math.quat_normalize(mocap_quat[:, tree.mocap]))
        positions.append(mocap_pos[:, tree.mocap])
    if tree.n_fixed:
        identity = math.constant_like((1.0, 0.0, 0.0, 0.0), qpos)
        quats.append(identity.expand(worlds, tree.n_fixed, 4))
        positions.append(still.expand(worlds, tree.n_fixed, 3))
    if len(quats) == 1:
        return positions[0], quats[0]
    return torch.cat(positions, 1), torch.cat(quats, 1)


def _in_parent(
    pos: Tensor, quat: Tensor, body_pos: Tensor, body_quat: Tensor, jnt_pos: Tensor, tree: Tree
) -> tuple[Tensor, Tensor]:
    """Poses of the links in their parent links, in level order: turns about the joint's anchor."""
    if tree.rel_order is not None:
        pos, quat = pos[:, tree.rel_order], quat[:, tree.rel_order]
    if tree.has_offset:
        anchor = jnt_pos[:, tree.link_joint] * tree.link_turns
        pos = pos + anchor - math.rotate(math.quat_to_mat(quat), anchor)
    if tree.has_quat:
        turn = torch.addcmul(tree.link_later, body_quat[:, tree.link_body], tree.link_first)
        pos = math.rotate(math.quat_to_mat(turn), pos)
        quat = math.quat_mul(turn, quat)
    return torch.addcmul(pos, body_pos[:, tree.link_body], tree.link_first), quat


def _walk(factors: Tensor, tree: Tree) -> Tensor:
    """World poses (W, nlink, 4, 4) by level, the world's own first; see `math.link_factors`."""
    worlds = factors.shape[0]
    poses = [math.constant_like(_WORLD, factors).expand(worlds, 1, 4, 4)]
    for k, level in enumerate(factors.split(tree.level_size, 1)):
        if k == 0:
            poses.append(math.link_poses(level))
            continue
        up, parent = poses[-1], tree.level_parent[k]
        poses.append(math.moved_poses(up if parent is None else up[:, parent], level))
    return torch.cat(poses, 1)


def poses(
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
    """World pose of every body and joint: xpos, xquat, xmat, xanchor and xaxis.

    The axis of a ball or free joint is given after its rotation. Shapes are those of the fields of
    these names in Model and Data.
    """
    moved = _moved(qpos, qpos0, tree)
    slid = None if tree.scalar_slide is None else (moved * tree.scalar_slide).unsqueeze(-1)
    pos, quat = _relative_poses(qpos, moved, slid, mocap_pos, mocap_quat, jnt_axis, tree)
    pos, quat = _in_parent(pos, quat, body_pos, body_quat, jnt_pos, tree)
    poses = _walk(math.link_factors(pos, quat), tree)[:, tree.body_and_joint_link]
    frames, turns = poses.split((3, 1), -2)
    mats, places = frames.split((3, 1), -1)
    nbody = body_pos.shape[1]
    xquat = turns[:, :nbody, 0]
    xmat, joint_mat = mats.split((nbody, jnt_pos.shape[1]), 1)
    xpos, xanchor = places.squeeze(-1).split((nbody, jnt_pos.shape[1]), 1)
    xaxis = math.rotate(joint_mat, jnt_axis)
    if tree.has_offset:
        xanchor = xanchor + math.rotate(joint_mat, jnt_pos) * tree.joint_has_anchor
    if slid is not None:  # MuJoCo notes the anchor before the slide has moved it
        if tree.joint_scalar is not None:
            slid = slid[:, tree.joint_scalar] * tree.joint_is_slide
        xanchor = xanchor - xaxis * slid
    return xpos, xquat, xmat, xanchor, xaxis
