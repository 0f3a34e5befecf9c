"""The kinematic tree as constants: levels for the one walk, 0/1 matrices for every other recursion.

With spatial quantities about the tree's centre of mass, a sum over a subtree or along a path is a
product with a constant matrix (design.md, section 5), so only forward kinematics walks the tree.
A body with several joints becomes a chain of links, one for each joint, so that all relative poses
are computed at once and the walk is a chain of products by level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from alloy.math import MINVAL

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint


@dataclass(frozen=True)
class Tree:
    """Topology of a model. Matrices are float constants of the model's dtype, indices are int64."""

    # links in level order; link 0 is the world
    level_size: tuple[int, ...]  # links in each level, without the world
    # parent within the previous level; None: one to one, or one to all
    level_parent: tuple[Tensor | None, ...]
    link_body: Tensor  # (nlink - 1,) body whose offset the link starts with
    link_first: Tensor  # (nlink - 1, 1) 1 where the link carries its body's offset
    link_later: Tensor  # (nlink - 1, 4) identity quaternion where it does not
    link_joint: Tensor  # (nlink - 1,) joint of the link, 0 for none
    link_turns: Tensor  # (nlink - 1, 1) 1 where that joint turns about its anchor
    scalar_joint: Tensor | None  # (n,) joints (hinge, slide) of the scalar links; None: all joints
    scalar_qpos: Tensor | None  # (n,) their addresses in qpos; None: all of qpos
    scalar_half: Tensor  # (n,) 1/2 hinge, 0 slide: angle to half angle
    scalar_slide: Tensor | None  # (n,) 1 slide, 0 hinge; None without slides
    ball_qpos: Tensor | None  # (n, 4) addresses of ball quaternions
    pose_qpos: Tensor | None  # (n, 7) addresses of free joints
    mocap: Tensor | None  # (n,) mocap ids of the mocap links
    rel_order: Tensor | None  # [scalar, ball, free, mocap, fixed] -> level order; None: same order
    n_fixed: int
    joint_link: Tensor  # (njnt,) link that ends with the joint
    body_and_joint_link: Tensor  # (nbody + njnt,) link of each body's frame, then joint_link
    joint_scalar: Tensor | None  # (njnt,) place among scalar_joint, 0 for others; None: the same
    joint_is_slide: Tensor | None  # (njnt, 1), None without slides
    joint_qpos: Tensor  # (njnt,) first qpos address of each joint
    joint_has_anchor: Tensor  # (njnt, 1) 0 for free joints, whose anchor is the body's origin
    has_offset: bool  # some joint anchor is not at the body's origin
    has_quat: bool  # some body is turned against its parent
    # sums: rows x columns
    subtree: Tensor  # (nbody, nbody) 1 where the column body is in the row body's subtree
    moves: Tensor  # (nbody, nv) 1 where the dof moves the body
    moved_by: Tensor  # (nv, nbody) its transpose, contiguous
    before: Tensor  # (nv, nv) dofs whose motion turns the row dof's axis
    before_and_moves: Tensor  # (nv + nbody, nv) both of them
    m_lower: Tensor  # (nv, nv) 1 where the column dof is an ancestor of the row dof or itself
    m_upper: Tensor  # (nv, nv) its transpose without the diagonal
    # indices
    body_root: Tensor  # (nbody,)
    dof_root: Tensor  # (nv,) root body of the dof's tree
    dof_is_rot: Tensor  # (nv, 1)
    dof_axis: Tensor  # (nv,) into [xaxis of joints, columns of xmat, unit axes]
    dof_anchor: Tensor  # (nv,) joint
    dof_is_slide: Tensor | None  # (nv, 1) its complement; None where all rotate
    simple_axes: bool  # every dof is its joint's axis: no ball and no free joint
    massless: bool  # some body's subtree has no mass
    body_parent: tuple[int, ...]  # for reports and tests


@dataclass(frozen=True)
class _Link:
    body: int
    joint: int  # -1: none
    parent: int
    level: int


def _make_links(topo: dict[str, np.ndarray]) -> tuple[list[_Link], list[int]]:
    """Links of every body in body order (world first) and the last link of each body."""
    links = [_Link(0, -1, -1, 0)]
    last = [0]
    for body in range(1, len(topo["body_parentid"])):
        parent = last[topo["body_parentid"][body]]
        adr, num = topo["body_jntadr"][body], topo["body_jntnum"][body]
        for joint in range(adr, adr + num) if num else (-1,):
            links.append(_Link(body, int(joint), parent, links[parent].level + 1))
            parent = len(links) - 1
        last.append(parent)
    return links, last


def _dof_tables(topo: dict[str, np.ndarray], nv: int) -> dict[str, Any]:
    """0/1 matrices over bodies and dofs, by MuJoCo's rules for each joint type."""
    nbody = len(topo["body_parentid"])
    subtree = np.eye(nbody)
    moves = np.zeros((nbody, nv))
    for body in range(1, nbody):
        up = body
        while up > 0:
            up = topo["body_parentid"][up]
            subtree[up, body] = 1
        moves[body] = moves[topo["body_parentid"][body]]
        adr = topo["body_dofadr"][body]
        moves[body, adr : adr + topo["body_dofnum"][body]] = 1
    m_lower = np.tril(moves[topo["dof_bodyid"]]) if nv else np.zeros((0, 0))
    before = np.zeros((nv, nv))
    for dof in range(nv):
        joint = topo["dof_jntid"][dof]
        first = topo["jnt_dofadr"][joint]
        row = moves[topo["dof_bodyid"][dof]].copy()
        if topo["jnt_type"][joint] == FREE:
            # translation does not turn with anything; rotation sees the translation only
            row[first + 3 :] = 0
            before[dof] = row if dof >= first + 3 else 0
        else:
            row[first:] = 0
            before[dof] = row
    return {
        "subtree": subtree, "moves": moves, "moved_by": moves.T, "before": before,
        "before_and_moves": np.vstack([before, moves]), "m_lower": m_lower,
        "m_upper": np.tril(m_lower, -1).T,
    }  # fmt: skip


def _dof_axes(topo: dict[str, np.ndarray], nv: int) -> dict[str, np.ndarray]:
    """Where each dof finds its axis, and whether it rotates."""
    njnt, nbody = len(topo["jnt_type"]), len(topo["body_parentid"])
    axis, rot = np.zeros(nv, int), np.zeros((nv, 1))
    for dof in range(nv):
        joint = topo["dof_jntid"][dof]
        kind, k = topo["jnt_type"][joint], dof - topo["jnt_dofadr"][joint]
        if kind in (SLIDE, HINGE):
            axis[dof], rot[dof] = joint, kind == HINGE
        elif kind == FREE and k < 3:
            axis[dof] = njnt + 3 * nbody + k
        else:
            axis[dof], rot[dof] = njnt + 3 * topo["jnt_bodyid"][joint] + k % 3, 1
    return {"dof_axis": axis, "dof_is_rot": rot}


def _levels(
    links: list[_Link], order: list[int]
) -> tuple[tuple[int, ...], list[np.ndarray | None]]:
    """Links in each level, and each link's parent in the level above (None: see Tree)."""
    levels: list[list[int]] = [[] for _ in range(max((x.level for x in links), default=0))]
    for i in order:
        levels[links[i].level - 1].append(i)
    parents: list[np.ndarray | None] = []
    for k, level in enumerate(levels):
        above = {link: n for n, link in enumerate(levels[k - 1])} if k else {0: 0}
        index = np.array([above[links[i].parent] for i in level])
        one = len(above) == 1  # broadcasts over its children
        same = len(index) == len(above) and (index == np.arange(len(index))).all()
        parents.append(None if one or same else index)
    return tuple(len(level) for level in levels), parents


def _scalars(topo: dict[str, np.ndarray], joints: np.ndarray) -> dict[str, np.ndarray | None]:
    """Fields of Tree about the hinges and slides among the joints."""
    kinds = topo["jnt_type"]
    place = np.searchsorted(joints, np.arange(len(kinds))).clip(0, max(len(joints) - 1, 0))
    every, slide = len(joints) == len(kinds), (kinds[joints] == SLIDE).astype(float)
    return {
        "scalar_joint": None if every else joints,
        "scalar_qpos": None if every else topo["jnt_qposadr"][joints],
        "scalar_half": 0.5 * (1 - slide),
        "scalar_slide": slide if slide.any() else None,
        "joint_scalar": None if every else place,
        "joint_is_slide": (kinds == SLIDE).astype(float)[:, None] if slide.any() else None,
    }


def make_tree(topo: dict[str, np.ndarray], nv: int, put: Callable[[np.ndarray], Tensor]) -> Tree:
    """Build the constants of a topology.

    Args:
        topo: MuJoCo's integer arrays by name (body_parentid, jnt_type, ...), with jnt_pos,
            body_quat and body_subtreemass to see which offsets and masses are there at all.
        nv: number of degrees of freedom.
        put: moves an array to the model's device: floats to its dtype, integers to int64.
    """
    links, last = _make_links(topo)
    order = sorted(range(1, len(links)), key=lambda i: (links[i].level, i))
    position = {0: 0} | {link: k + 1 for k, link in enumerate(order)}
    level_size, level_parent = _levels(links, order)

    def kind(i: int) -> int:
        link = links[i]
        if link.joint >= 0:
            return {SLIDE: 0, HINGE: 0, BALL: 1, FREE: 2}[int(topo["jnt_type"][link.joint])]
        return 3 if topo["body_mocapid"][link.body] >= 0 else 4

    groups = [[i for i in order if kind(i) == k] for k in range(5)]
    groups[0].sort(key=lambda i: links[i].joint)
    grouped = [i for group in groups for i in group]
    rel_order = np.array([grouped.index(i) for i in order], int)
    qadr = topo["jnt_qposadr"]
    scalar = np.array([links[i].joint for i in groups[0]], int)
    span = lambda group, n: np.array([qadr[links[i].joint] + np.arange(n) for i in group], int)  # noqa: E731
    on_joint = {link.joint: position[i] for i, link in enumerate(links) if link.joint >= 0}
    joint_link = np.array([on_joint[j] for j in sorted(on_joint)], int)
    above = topo["body_parentid"]
    carries = lambda i: links[i].parent == last[above[links[i].body]] and kind(i) not in (2, 3)  # noqa: E731
    first = np.array([carries(i) for i in order], float)[:, None]
    identity = np.array([1.0, 0, 0, 0])
    link_joint = np.array([links[i].joint for i in order], int)
    turns = np.isin(topo["jnt_type"][link_joint], (HINGE, BALL)) if len(topo["jnt_type"]) else 0
    body_link = [position[i] for i in last]
    axes = _dof_axes(topo, nv)
    tables = _dof_tables(topo, nv) | _scalars(topo, scalar)
    return Tree(
        level_size=level_size,
        level_parent=tuple(None if p is None else put(p) for p in level_parent),
        link_body=put(np.array([links[i].body for i in order], int)),
        link_first=put(first),
        link_later=put((1 - first) * identity),
        link_joint=put(link_joint.clip(0)),
        link_turns=put(((link_joint >= 0) & turns).astype(float)[:, None]),
        ball_qpos=put(span(groups[1], 4)) if groups[1] else None,
        pose_qpos=put(span(groups[2], 7)) if groups[2] else None,
        mocap=put(topo["body_mocapid"][[links[i].body for i in groups[3]]]) if groups[3] else None,
        rel_order=None if (rel_order == np.arange(len(order))).all() else put(rel_order),
        n_fixed=len(groups[4]),
        joint_link=put(joint_link),
        body_and_joint_link=put(np.concatenate([body_link, joint_link]).astype(int)),
        joint_qpos=put(qadr.astype(int)),
        joint_has_anchor=put((topo["jnt_type"] != FREE).astype(float)[:, None]),
        has_offset=bool((np.abs(topo["jnt_pos"]) > 0).any()),
        has_quat=bool((topo["body_quat"] != identity).any()),
        **{name: None if value is None else put(value) for name, value in tables.items()},
        body_root=put(topo["body_rootid"].astype(int)),
        dof_root=put(topo["body_rootid"][topo["dof_bodyid"]].astype(int)),
        dof_is_rot=put(axes["dof_is_rot"]),
        dof_is_slide=None if axes["dof_is_rot"].all() else put(1 - axes["dof_is_rot"]),
        dof_axis=put(axes["dof_axis"]),
        dof_anchor=put(topo["dof_jntid"].astype(int)),
        simple_axes=bool((axes["dof_axis"] < len(topo["jnt_type"])).all()),
        massless=bool((topo["body_subtreemass"] < MINVAL).any()),
        body_parent=tuple(int(p) for p in topo["body_parentid"]),
    )
