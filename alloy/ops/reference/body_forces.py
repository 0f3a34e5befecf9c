"""Accelerations and forces of bodies: what acts on each, and what each passes to its parent.

No other stage needs them, so they are computed where somebody reads them. As in MuJoCo, wrenches
are torque then force in world axes, taken at the centre of mass of the body's tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import tendon_forces
from alloy.ops.reference.inertia import spatial_inertia

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


def body_acceleration(m: Model, d: Data) -> Tensor:
    """Spatial acceleration about the tree's com, gravity as an upward one; (W, nbody, 6)."""
    joint = d.cdof_dot * d.qvel.unsqueeze(-1) + d.cdof * d.qacc.unsqueeze(-1)
    cacc = m.tree.moves @ joint
    if "gravity" in m.opt.disable:
        return cacc
    return cacc - torch.nn.functional.pad(m.gravity, (3, 0)).unsqueeze(-2)


def forces(m: Model, d: Data) -> Data:
    """Sets cacc, cfrc_ext and cfrc_int (mj_rnePostConstraint), all (W, nbody, 6).

    cfrc_ext is the wrench of applied forces, contacts, connect and weld constraints and spatial
    tendons on a body, cfrc_int that of its parent on it.
    Source: Featherstone, Rigid Body Dynamics Algorithms (2008), 5.3.
    """
    cacc = body_acceleration(m, d).expand(d.qpos.shape[0], -1, -1)
    external = _external(m, d)
    inertia = spatial_inertia(d.cinert)
    momentum = math.rotate(inertia, d.cvel)
    needed = math.rotate(inertia, cacc) + math.cross_force(d.cvel, momentum) - external
    internal = math.constant_times(m.tree.subtree, _not_world(needed))
    return replace(d, cacc=cacc, cfrc_ext=external, cfrc_int=internal)


def _external(m: Model, d: Data) -> Tensor:
    force, torque = d.xfrc_applied.split(3, -1)
    arm = d.xipos - d.subtree_com[:, m.tree.body_root]
    total = torch.cat([torque + math.cross(arm, force), force], -1)
    actions = (*_contacts(m, d), *_equalities(m, d), *tendon_forces.pulls(m, d))
    for first, second, point1, point2, wrench in actions:
        total = total + _on_bodies(m, d, second, point2, wrench)
        total = total - _on_bodies(m, d, first, point1, wrench)
    return _not_world(total)


def _not_world(x: Tensor) -> Tensor:
    """The same with zeros for the world, which nothing moves."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], 1)


def _on_bodies(m: Model, d: Data, bodies: Tensor, point: Tensor, wrench: Tensor) -> Tensor:
    """Sum (W, nbody, 6) of wrenches (W, n, 6) that act at points (W, n, 3) of bodies (n,)."""
    torque, force = wrench.split(3, -1)
    arm = point - d.subtree_com[:, m.tree.body_root[bodies]]
    about_com = torch.cat([torque + math.cross(arm, force), force], -1)
    every = torch.arange(m.nbody, device=bodies.device).unsqueeze(-1)
    return math.constant_times((every == bodies).to(force.dtype), about_com)


Action = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Bodies 1 and 2 (n,), points (W, n, 3) on them, wrench (W, n, 6) on body 2, against body 1."""


def _contacts(m: Model, d: Data) -> Iterator[Action]:
    """Contacts by condim; inactive ones exert nothing."""
    if not m.ncon:
        return
    con, worlds = m.derived["contact"], d.qpos.shape[0]
    groups = [(1, m.efc.n_scalar - m.efc.n1, m.efc.n1, m.efc.frictionless)] if m.efc.n1 else []
    groups += [(cone.dim, cone.start, cone.n, cone.slots) for cone in m.efc.cones]
    for dim, start, n, slots in groups:
        pick = slice(None) if slots is None else slots
        force = d.efc_force[:, start : start + n * dim].reshape(worlds, n, dim)
        active = d.efc_active[:, start : start + n * dim : dim].unsqueeze(-1)
        point, frame = d.contact_pos[:, pick], d.contact_frame[:, pick]
        if dim == 1:
            push, twist = force * frame[..., 0, :], torch.zeros_like(point)
        else:
            push, twist = math.rotate_inv(frame, force[..., :3]), torch.zeros_like(point)
        if dim > 3:
            twist = math.rotate_inv(frame[..., : dim - 3, :], force[..., 3:])
        wrench = torch.where(active, torch.cat([twist, push], -1), 0.0)
        yield con.body1[pick], con.body2[pick], point, point, wrench


def _equalities(m: Model, d: Data) -> Iterator[Action]:
    """Connect and weld constraints."""
    start = 0
    for eq in m.efc.equalities:
        force = d.efc_force[:, start : start + eq.n * eq.dim].reshape(-1, eq.n, eq.dim)
        start += eq.n * eq.dim
        if eq.kind in ("joint", "tendon"):  # they act along joints
            continue
        data = m.eq_data[:, eq.ids]
        first, second = (data[..., 0:3], data[..., 3:6])[:: 1 if eq.kind == "connect" else -1]
        point1 = d.xpos[:, eq.obj1] + math.rotate(d.xmat[:, eq.obj1], first)
        point2 = d.xpos[:, eq.obj2] + math.rotate(d.xmat[:, eq.obj2], second)
        push = force[..., :3]
        twist = torch.zeros_like(push)
        if eq.kind == "weld":
            # transposed, the map of the rows' rate, scale / 2 back * w * quat, gives the torque
            quat = math.quat_mul(d.xquat[:, eq.obj1], data[..., 6:10])
            pure = torch.cat([torch.zeros_like(force[..., :1]), force[..., 3:]], -1)
            turned = math.quat_mul(math.quat_mul(d.xquat[:, eq.obj2], pure), math.quat_conj(quat))
            twist = 0.5 * data[..., 10:11] * turned[..., 1:]
        # a positive force drives body 1 along the row, body 2 against it
        yield eq.obj1, eq.obj2, point1, point2, -torch.cat([twist, push], -1)
