"""Inertia about the tree's centre of mass, the mass matrix and the bias force.

Source: Featherstone, Rigid Body Dynamics Algorithms (2008), sections 5.3 and 6.2, in MuJoCo's
com-based coordinates, where sums over subtrees and paths are products with constant matrices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math

if TYPE_CHECKING:
    from alloy.physics.tree import Tree

_SYM = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # order of cinert's first six numbers


@lru_cache(maxsize=16)
def _tables(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Constants: 3 x 3 to six numbers (9, 6), and cinert to the 6 x 6 spatial inertia (10, 36)."""
    six = torch.zeros(9, 6, dtype=dtype)
    full = torch.zeros(10, 6, 6, dtype=dtype)
    for k, (i, j) in enumerate(_SYM):
        six[3 * i + j, k] = 1
        full[k, i, j] = full[k, j, i] = 1
    for k, i, j in ((2, 0, 1), (0, 1, 2), (1, 2, 0)):  # m r as a cross product matrix
        full[6 + k, i, 3 + j], full[6 + k, j, 3 + i] = -1, 1
        full[6 + k, 3 + i, j], full[6 + k, 3 + j, i] = 1, -1
    full[9, 3:, 3:] = torch.eye(3, dtype=dtype)
    return six.to(device), full.reshape(10, 36).to(device)


def spatial_inertia(cinert: Tensor) -> Tensor:
    """6 x 6 spatial inertia of cinert (..., 10): inertia, mass times offset, mass."""
    table = _tables(cinert.dtype, str(cinert.device))[1]
    return (cinert @ table).unflatten(-1, (6, 6))


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
    """See `alloy.ops.com`."""
    xipos = xpos + math.rotate(xmat, body_ipos)
    ximat = math.compose(xmat, body_imat)
    mass = body_mass.unsqueeze(-1)
    total = body_subtreemass.unsqueeze(-1)
    subtree_com = math.constant_times(tree.subtree, mass * xipos) / total.clamp(min=math.MINVAL)
    subtree_com = torch.where(total < math.MINVAL, xipos, subtree_com)

    r = xipos - subtree_com[:, tree.body_root]
    inertia = math.compose(ximat * body_inertia.unsqueeze(-2), ximat.mT)
    eye = torch.eye(3, dtype=r.dtype, device=r.device)
    steiner = math.dot(r, r)[..., None, None] * eye - r.unsqueeze(-1) * r.unsqueeze(-2)
    six = _tables(r.dtype, str(r.device))[0]
    about_com = (inertia + mass.unsqueeze(-1) * steiner).flatten(-2) @ six
    cinert = torch.cat([about_com, mass * r, mass.expand_as(r[..., :1])], -1)

    axis, anchor = xaxis, xanchor
    if not tree.simple_axes:
        columns = xmat.transpose(-1, -2).flatten(1, 2)
        axis = torch.cat([xaxis, columns, eye.expand(xpos.shape[0], 3, 3)], 1)[:, tree.dof_axis]
        anchor = xanchor[:, tree.dof_anchor]
    arm = subtree_com[:, tree.dof_root] - anchor
    turn = axis * tree.dof_is_rot
    cdof = torch.cat([turn, torch.linalg.cross(turn, arm, dim=-1) + (axis - turn)], -1)
    return xipos, ximat, subtree_com, cinert, cdof


def mass_matrix(cinert: Tensor, cdof: Tensor, dof_armature: Tensor, tree: Tree) -> Tensor:
    """See `alloy.ops.mass_matrix`."""
    composite = spatial_inertia(
        math.constant_times(tree.moves.T, cinert)
    )  # (W, nv, 6, 6) of each dof's subtree
    momentum = math.rotate(composite, cdof)
    lower = torch.bmm(momentum, cdof.mT) * tree.m_lower
    upper = (lower * tree.m_strict).mT
    return lower + upper + torch.diag_embed(dof_armature)


def velocity(cdof: Tensor, qvel: Tensor, tree: Tree) -> tuple[Tensor, Tensor]:
    """See `alloy.ops.velocity`."""
    motion = cdof * qvel.unsqueeze(-1)
    before = math.constant_times(tree.before, motion)
    return math.constant_times(tree.moves, motion), math.cross_motion(before, cdof)


def bias(
    cinert: Tensor,
    cdof: Tensor,
    cdof_dot: Tensor,
    cvel: Tensor,
    qvel: Tensor,
    gravity: Tensor,
    tree: Tree,
) -> Tensor:
    """See `alloy.ops.bias`."""
    gravity6 = torch.cat([torch.zeros_like(gravity), -gravity], -1)
    cacc = math.constant_times(tree.moves, cdof_dot * qvel.unsqueeze(-1))
    cacc = cacc + gravity6.unsqueeze(-2)
    inertia = spatial_inertia(cinert)
    force, momentum = math.rotate(inertia, cacc), math.rotate(inertia, cvel)
    force = force + math.cross_force(cvel, momentum)
    wrench = math.constant_times(tree.moves.T, force)
    return math.dot(cdof, wrench)
