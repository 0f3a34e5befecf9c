"""Inertia about the tree's centre of mass, the mass matrix and the bias force.

Source: Featherstone, Rigid Body Dynamics Algorithms (2008), sections 5.3 and 6.2, in MuJoCo's
com-based coordinates, where sums over subtrees and paths are products with constant matrices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.tree import Tree

_ROWS, _COLS = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)  # of cinert's first six numbers


def _spatial_table() -> tuple[tuple[float, ...], ...]:
    """Constant (10, 36) that takes cinert to the 6 x 6 spatial inertia."""
    full = [[0.0] * 36 for _ in range(10)]
    for k, (i, j) in enumerate(zip(_ROWS, _COLS, strict=True)):
        full[k][6 * i + j] = full[k][6 * j + i] = 1.0
    for k, i, j in ((2, 0, 1), (0, 1, 2), (1, 2, 0)):  # m r as a cross product matrix
        full[6 + k][6 * i + 3 + j] = full[6 + k][6 * (3 + j) + i] = -1.0
        full[6 + k][6 * j + 3 + i] = full[6 + k][6 * (3 + i) + j] = 1.0
    for k in range(3, 6):
        full[9][7 * k] = 1.0
    return tuple(tuple(row) for row in full)


_SPATIAL = _spatial_table()
# products r_i r_j in the same order to |r|^2 - r r'
_STEINER = (
    (0, 1, 1, 0, 0, 0), (1, 0, 1, 0, 0, 0), (1, 1, 0, 0, 0, 0),
    (0, 0, 0, -1, 0, 0), (0, 0, 0, 0, -1, 0), (0, 0, 0, 0, 0, -1),
)  # fmt: skip


def spatial_inertia(cinert: Tensor) -> Tensor:
    """6 x 6 spatial inertia of cinert (..., 10): inertia, mass times offset, mass."""
    return (cinert @ math.constant_like(_SPATIAL, cinert)).unflatten(-1, (6, 6))


def _subtree_com(xipos: Tensor, mass: Tensor, subtreemass: Tensor, tree: Tree) -> Tensor:
    """Centres of mass (W, nbody, 3) of the subtrees; without mass, of the body itself."""
    moment, total = math.constant_times(tree.subtree, mass * xipos), subtreemass.unsqueeze(-1)
    if not tree.massless:
        return moment / total
    return torch.where(total < math.MINVAL, xipos, moment / total.clamp(min=math.MINVAL))


def com(
    xpos: Tensor,
    xmat: Tensor,
    xanchor: Tensor,
    xaxis: Tensor,
    body_ipos: Tensor,
    body_imat: Tensor,
    body_mass: Tensor,
    body_subtreemass: Tensor,
    body_inertia: Tensor,
    tree: Tree,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Xipos, ximat, subtree_com, cinert and cdof (mj_comPos), shapes as in Data."""
    worlds, mass = xpos.shape[0], body_mass.unsqueeze(-1)
    xipos = xpos + math.rotate(xmat, body_ipos)
    ximat = math.compose(xmat, body_imat)
    subtree_com = _subtree_com(xipos, mass, body_subtreemass, tree)

    rows, cols = (math.constant(x, torch.int64, xpos.device) for x in (_ROWS, _COLS))
    r = xipos - subtree_com[:, tree.body_root]
    steiner = (r[..., rows] * r[..., cols]) @ math.constant_like(_STEINER, r)
    own = (ximat[..., rows, :] * ximat[..., cols, :] * body_inertia.unsqueeze(-2)).sum(-1)
    about_com = torch.addcmul(own, steiner, mass)
    cinert = torch.cat([about_com, mass * r, mass.expand(worlds, -1, 1)], -1)

    axis, anchor = xaxis, xanchor
    if not tree.simple_axes:
        columns = xmat.transpose(-1, -2).flatten(1, 2)
        eye = math.constant_like(math.EYE3, xpos).expand(worlds, 3, 3)
        axis = torch.cat([xaxis, columns, eye], 1)[:, tree.dof_axis]
        anchor = xanchor[:, tree.dof_anchor]
    arm = subtree_com[:, tree.dof_root] - anchor
    if tree.dof_is_slide is None:
        cdof = torch.cat([axis, torch.linalg.cross(axis, arm, dim=-1)], -1)
    else:
        turn = axis * tree.dof_is_rot
        shift = torch.addcmul(torch.linalg.cross(turn, arm, dim=-1), axis, tree.dof_is_slide)
        cdof = torch.cat([turn, shift], -1)
    return xipos, ximat, subtree_com, cinert, cdof


def mass_matrix(cinert: Tensor, cdof: Tensor, dof_armature: Tensor, tree: Tree) -> Tensor:
    """See `alloy.ops.mass_matrix`."""
    # (W, nv, 6, 6) of each dof's subtree
    composite = spatial_inertia(math.constant_times(tree.moved_by, cinert))
    product = torch.bmm(math.rotate(composite, cdof), cdof.mT)
    return torch.addcmul(
        torch.addcmul(torch.diag_embed(dof_armature), product, tree.m_lower),
        product.mT,
        tree.m_upper,
    )


def velocity(cdof: Tensor, qvel: Tensor, tree: Tree) -> tuple[Tensor, Tensor]:
    """Spatial velocities cvel (W, nbody, 6) and cdof_dot (W, nv, 6) (mj_comVel)."""
    sums = math.constant_times(tree.before_and_moves, cdof * qvel.unsqueeze(-1))
    before, cvel = sums.split((cdof.shape[1], sums.shape[1] - cdof.shape[1]), 1)
    return cvel, math.cross_motion(before, cdof)


def bias(
    cinert: Tensor,
    cdof: Tensor,
    cdof_dot: Tensor,
    cvel: Tensor,
    qvel: Tensor,
    gravity: Tensor,
    tree: Tree,
) -> Tensor:
    """Coriolis, centrifugal and gravity force (W, nv) (mj_rne without acceleration)."""
    cacc = math.constant_times(tree.moves, cdof_dot * qvel.unsqueeze(-1))
    cacc = cacc - torch.nn.functional.pad(gravity, (3, 0)).unsqueeze(-2)
    inertia = spatial_inertia(cinert)
    force, momentum = math.rotate(inertia, cacc), math.rotate(inertia, cvel)
    force = force + math.cross_force(cvel, momentum)
    return math.dot(cdof, math.constant_times(tree.moved_by, force))


def bias_derivative(
    cinert: Tensor, cdof: Tensor, cdof_dot: Tensor, cvel: Tensor, qvel: Tensor, tree: Tree
) -> Tensor:
    """Derivative of `bias` by qvel, (W, nv, nv), not symmetric.

    A unit of dof j's velocity gives the bodies it moves the velocity cdof_j, and the acceleration
    twice = cdof_dot_j + u_j x cdof_j, less v x cdof_j, where u_j is the velocity just behind the
    dof and v the body's. So each body has one 6 x 6 matrix, and pairs of dofs take that of the
    subtree of the lower one.
    """
    inertia = spatial_inertia(cinert)
    w, v = (math.cross_matrix(x) for x in cvel.split(3, -1))
    torque, force = (math.cross_matrix(x) for x in math.rotate(inertia, cvel).split(3, -1))
    none = torch.zeros_like(w)
    motion = torch.cat([torch.cat([w, none], -1), torch.cat([v, w], -1)], -2)
    on_momentum = torch.cat([torch.cat([torque, force], -1), torch.cat([force, none], -1)], -2)
    own = -(motion.mT @ inertia + on_momentum + inertia @ motion)
    own = math.constant_times(tree.moved_by, own.flatten(-2)).unflatten(-1, (6, 6))
    composite = spatial_inertia(math.constant_times(tree.moved_by, cinert))

    up_to = tree.m_lower + tree.m_upper * (1 - tree.before.mT)  # a ball's dofs turn together
    behind = math.constant_times(up_to, cdof * qvel.unsqueeze(-1))
    twice = cdof_dot + math.cross_motion(behind, cdof)
    above = math.rotate_inv(own, cdof) @ cdof.mT + math.rotate(composite, cdof) @ twice.mT
    below = cdof @ (math.rotate(own, cdof) + math.rotate(composite, twice)).mT
    return above * tree.m_lower + below * tree.m_upper
