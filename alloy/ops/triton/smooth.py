"""The smooth stages, one kernel each. Twin of `alloy.ops.reference.smooth`.

What a kernel writes the same thread reads back (`lane`), so that a stage is its parts in a row.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from alloy.ops.triton.inertia import bias_forces, centres, velocities
from alloy.ops.triton.kinematics import attach, walk
from alloy.ops.triton.lane import empty, launch, worlds_of
from alloy.ops.triton.tables import int32, tree_tables

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


@triton.jit
def _kinematics_kernel(
    # in
    qpos, qpos0, mocap_pos, mocap_quat, body_pos, body_quat, jnt_pos, jnt_axis,
    body_ipos, body_imat, body_mass, body_subtreemass, body_inertia,
    geom_pos, geom_mat, site_pos, site_mat,
    # out
    xpos, xquat, xmat, xanchor, xaxis, xipos, ximat, subtree_com, cinert, cdof,
    geom_xpos, geom_xmat, site_xpos, site_xmat,
    # tables and sizes
    body_ptr, joint_ptr, dof_ptr, geom_ptr, site_ptr, nbody, nv, ngeom, nsite,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Poses from the root to the leaves, then all about centres of mass, then geoms and sites."""
    w, m = worlds_of(n_world, BLOCK)
    walk(
        qpos, qpos0, mocap_pos, mocap_quat, body_pos, body_quat, jnt_pos, jnt_axis,
        xpos, xquat, xmat, xanchor, xaxis, body_ptr, joint_ptr, nbody, w, m,
    )  # fmt: skip
    centres(
        xpos, xmat, xanchor, xaxis, body_ipos, body_imat, body_mass, body_subtreemass,
        body_inertia, xipos, ximat, subtree_com, cinert, cdof, body_ptr, dof_ptr, nbody, nv, w, m,
    )  # fmt: skip
    attach(xpos, xmat, geom_pos, geom_mat, geom_xpos, geom_xmat, geom_ptr, ngeom, w, m)
    attach(xpos, xmat, site_pos, site_mat, site_xpos, site_xmat, site_ptr, nsite, w, m)


def kinematics(m: Model, d: Data) -> Data:
    """See `alloy.ops.kinematics`."""
    t, like = tree_tables(m.tree), d.qpos
    shapes = {
        "xpos": (t.nbody, 3), "xquat": (t.nbody, 4), "xmat": (t.nbody, 3, 3),
        "xanchor": (t.njnt, 3), "xaxis": (t.njnt, 3), "xipos": (t.nbody, 3),
        "ximat": (t.nbody, 3, 3), "subtree_com": (t.nbody, 3), "cinert": (t.nbody, 10),
        "cdof": (t.nv, 6), "geom_xpos": (m.ngeom, 3), "geom_xmat": (m.ngeom, 3, 3),
        "site_xpos": (m.nsite, 3), "site_xmat": (m.nsite, 3, 3),
    }  # fmt: skip
    out = {name: empty(like.shape[0], *shape, like=like) for name, shape in shapes.items()}
    launch(
        _kinematics_kernel, like.shape[0], d.qpos, m.qpos0, d.mocap_pos, d.mocap_quat, m.body_pos,
        m.body_quat, m.jnt_pos, m.jnt_axis, m.body_ipos, m.body_imat, m.body_mass,
        m.body_subtreemass, m.body_inertia, m.geom_pos, m.geom_mat, m.site_pos, m.site_mat,
        *out.values(), t.body, t.joint, t.dof, int32(m.derived["geom_bodyid"]),
        int32(m.derived["site_bodyid"]), t.nbody, t.nv, m.ngeom, m.nsite,
    )  # fmt: skip
    return replace(d, **out)


@triton.jit
def _velocity_kernel(
    # in
    cinert, cdof, qvel, gravity,
    # out
    cvel, cdof_dot, qfrc_bias,
    # scratch
    cacc, cfrc,
    # tables and sizes
    body_ptr, dof_ptr, nbody, nv, GRAVITY: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Velocities from the root to the leaves, then the forces that keep qacc = 0."""
    w, m = worlds_of(n_world, BLOCK)
    velocities(cdof, qvel, cvel, cdof_dot, body_ptr, dof_ptr, nbody, w, m)
    bias_forces(
        cinert, cdof, cdof_dot, cvel, qvel, gravity, qfrc_bias, cacc, cfrc, body_ptr, dof_ptr,
        nbody, nv, w, m, GRAVITY,
    )  # fmt: skip


def velocity(m: Model, d: Data) -> Data:
    """See `alloy.ops.velocity`."""
    t, like = tree_tables(m.tree), d.qvel
    worlds = like.shape[0]
    cvel, cacc, cfrc = (empty(worlds, t.nbody, 6, like=like) for _ in range(3))
    cdof_dot, bias = empty(worlds, t.nv, 6, like=like), empty(worlds, t.nv, like=like)
    launch(
        _velocity_kernel, worlds, d.cinert, d.cdof, d.qvel, m.gravity, cvel, cdof_dot, bias, cacc,
        cfrc, t.body, t.dof, t.nbody, t.nv, GRAVITY="gravity" not in m.opt.disable,
    )  # fmt: skip
    return replace(d, cvel=cvel, cdof_dot=cdof_dot, qfrc_bias=bias)
