"""Topology as small int32 tables, read by the kernels' loops; made once for each tree."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from alloy.physics.tree import Tree

FREE, BALL, SLIDE, HINGE = (tl.constexpr(k) for k in range(4))  # mjtJoint

# columns of the body table
BODY = tl.constexpr(7)
PARENT, ROOT, FIRST_JOINT, JOINTS, FIRST_DOF, DOFS, MOCAP = (tl.constexpr(k) for k in range(7))
# columns of the joint table
JOINT = tl.constexpr(3)
KIND, QPOS, QVEL = (tl.constexpr(k) for k in range(3))
# columns of the dof table
DOF = tl.constexpr(6)
DOF_BODY, DOF_JOINT, DOF_KIND, DOF_AXIS, DOF_STARTS, DOF_STILL = (tl.constexpr(k) for k in range(6))


@dataclass(frozen=True)
class TreeTables:
    """Tables of a kinematic tree, flat; the constants above name their columns."""

    nbody: int
    njnt: int
    nv: int
    body: Tensor  # (nbody * BODY,) parent, root, first joint, joints, first dof, dofs, mocap or -1
    joint: Tensor  # (njnt * JOINT,) kind, addresses in qpos and qvel
    # (nv * DOF,) body, joint, its kind, 0-2 within it, 1 where a rigid set of axes starts, 1 where
    # the axis never turns
    dof: Tensor
    above: Tensor  # (nv * nv,) 1 where the column dof is the row dof or above it in the tree


def table(values: np.ndarray | list, device: torch.device) -> Tensor:
    """A flat int32 table on the device; never empty, so that it always has an address."""
    flat = np.asarray(values, np.int32).reshape(-1)
    return torch.as_tensor(flat if flat.size else np.zeros(1, np.int32), device=device)


@lru_cache(maxsize=256)
def knows(names: frozenset[str], tables: Any) -> bool:
    """Whether a stage's tables hold nothing but what a kernel knows, by the names of their fields.

    A feature that the reference has and a kernel does not is a field that the kernel has never
    heard of; where it is set, the stage keeps the reference.
    """
    unknown = (getattr(tables, f.name) for f in fields(tables) if f.name not in names)
    return all(not isinstance(value, Tensor) and not value for value in unknown)


@lru_cache(maxsize=256)
def int32(index: Tensor) -> Tensor:
    """An index tensor as a table on its device."""
    return table(index.cpu().numpy(), index.device)


@lru_cache(maxsize=64)
def tree_tables(tree: Tree) -> TreeTables:
    """The tables of a tree, on its device."""
    parent, device = np.array(tree.body_parent), tree.body_root.device
    nbody, njnt, nv = len(parent), len(tree.joint_qpos), len(tree.dof_anchor)
    dof_joint, joint_qpos = tree.dof_anchor.cpu().numpy(), tree.joint_qpos.cpu().numpy()
    kind = _joint_kinds(tree, joint_qpos)
    link_body = np.concatenate([[0], tree.link_body.cpu().numpy()])
    joint_body = link_body[tree.joint_link.cpu().numpy()]
    dof_body = joint_body[dof_joint]

    body = np.zeros((nbody, int(BODY)), int)
    body[:, 0], body[:, 1] = parent.clip(0), tree.body_root.cpu().numpy()
    for first, count, owner in ((2, 3, joint_body), (4, 5, dof_body)):
        body[:, count] = np.bincount(owner, minlength=nbody)
        body[:, first] = np.cumsum(body[:, count]) - body[:, count]
    body[:, 6] = _mocap_ids(tree, link_body, nbody)

    first_dof = np.searchsorted(dof_joint, np.arange(njnt))
    within = np.arange(nv) - first_dof[dof_joint]
    of_free = kind[dof_joint] == int(FREE)
    starts = np.where(of_free, within % 3 == 0, within == 0)
    still = of_free & (within < 3)
    dof = np.stack([dof_body, dof_joint, kind[dof_joint], within % 3, starts, still], 1)
    above = tree.m_lower.cpu().numpy() != 0
    joint = np.stack([kind, joint_qpos, first_dof], 1)
    flat = [table(x, device) for x in (body, joint, dof, above)]
    return TreeTables(nbody, njnt, nv, *flat)


def _joint_kinds(tree: Tree, joint_qpos: np.ndarray) -> np.ndarray:
    """MjtJoint of every joint."""
    kind = np.full(len(joint_qpos), int(HINGE))
    if tree.joint_is_slide is not None:
        kind[tree.joint_is_slide.cpu().numpy()[:, 0] != 0] = int(SLIDE)
    for code, adr in ((BALL, tree.ball_qpos), (FREE, tree.pose_qpos)):
        if adr is not None:
            kind[np.isin(joint_qpos, adr[:, 0].cpu().numpy())] = int(code)
    return kind


def _mocap_ids(tree: Tree, link_body: np.ndarray, nbody: int) -> np.ndarray:
    """Mocap id of every body, -1 for the others: the links are grouped by kind, then ordered."""
    mocap = np.full(nbody, -1)
    if tree.mocap is None:
        return mocap
    ids, links = tree.mocap.cpu().numpy(), len(link_body) - 1
    place = np.arange(links) if tree.rel_order is None else tree.rel_order.cpu().numpy()
    first = links - tree.n_fixed - len(ids)
    for link, group_place in enumerate(place):
        if first <= group_place < first + len(ids):
            mocap[link_body[link + 1]] = ids[group_place - first]
    return mocap
