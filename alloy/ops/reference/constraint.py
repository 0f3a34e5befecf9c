"""Constraint rows: Jacobian, impedance, reference acceleration. Base form, see physics/layout.py.

Source: MuJoCo manual, Computation, Constraint model (sections Parameters, Friction cones).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import tendon

if TYPE_CHECKING:
    from alloy.physics.layout import EqualityGroup
    from alloy.physics.model import Data, Model


def point_jacobian(m: Model, d: Data, point: Tensor, move: Tensor) -> Tensor:
    """Jacobian (W, n, nv, 3) of the velocity of points (W, n, 3) moved by dofs move (n, nv)."""
    arm = point.unsqueeze(2) - d.subtree_com[:, m.tree.dof_root].unsqueeze(1)
    turn, shift = d.cdof[:, None, :, :3], d.cdof[:, None, :, 3:]
    return (shift + torch.linalg.cross(turn, arm, dim=-1)) * move.unsqueeze(-1)


def _equality_connect(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    data = m.eq_data[:, eq.ids]
    p1 = d.xpos[:, eq.obj1] + math.rotate(d.xmat[:, eq.obj1], data[..., 0:3])
    p2 = d.xpos[:, eq.obj2] + math.rotate(d.xmat[:, eq.obj2], data[..., 3:6])
    jac = point_jacobian(m, d, p1, eq.move1) - point_jacobian(m, d, p2, eq.move2)
    return jac.transpose(-1, -2), p1 - p2


def _equality_weld(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    """Rows of a weld: translation as a connect, rotation by the vector part of the quaternion.

    Its derivative: half of q1 * relquat * (w1 - w2) * q2^-1, MuJoCo manual, Equality, weld.
    """
    data = m.eq_data[:, eq.ids]
    scale = data[..., 10:11]
    p1 = d.xpos[:, eq.obj1] + math.rotate(d.xmat[:, eq.obj1], data[..., 3:6])
    p2 = d.xpos[:, eq.obj2] + math.rotate(d.xmat[:, eq.obj2], data[..., 0:3])
    lin = point_jacobian(m, d, p1, eq.move1) - point_jacobian(m, d, p2, eq.move2)
    quat = math.quat_mul(d.xquat[:, eq.obj1], data[..., 6:10])
    back = math.quat_conj(d.xquat[:, eq.obj2])
    error = math.quat_mul(back, quat)[..., 1:] * scale
    turn = d.cdof[:, None, :, :3] * (eq.move1 - eq.move2).unsqueeze(-1)  # (W, n, nv, 3)
    turn = torch.cat([torch.zeros_like(turn[..., :1]), turn], -1)
    rate = math.quat_mul(math.quat_mul(back.unsqueeze(2), turn), quat.unsqueeze(2))[..., 1:]
    jac = torch.cat([lin, 0.5 * rate * scale.unsqueeze(2)], -1)
    return jac.transpose(-1, -2), torch.cat([p1 - p2, error], -1)


def _equality_joint(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    """One row: q1 - q1_0 = polynomial of (q2 - q2_0); alone, q1 - q1_0 = constant."""
    return polynomial_rows(m, eq, d.qpos - m.qpos0, eq.move1, eq.move2)


def _equality_tendon(m: Model, d: Data, eq: EqualityGroup) -> tuple[Tensor, Tensor]:
    """One row: as of joints, with lengths of tendons in place of positions."""
    jac = tendon.jacobian(m, d)
    return polynomial_rows(m, eq, d.ten_length - m.tendon_length0, eq.move1 @ jac, eq.move2 @ jac)


def polynomial_rows(
    m: Model, eq: EqualityGroup, moved: Tensor, jac1: Tensor, jac2: Tensor
) -> tuple[Tensor, Tensor]:
    """Row and error of: how far object 1 has moved is a polynomial of how far object 2 has."""
    alone = eq.move2.sum(-1) == 0
    x = torch.where(alone, 0.0, moved[:, eq.obj2])
    c0, c1, c2, c3, c4 = m.eq_data[:, eq.ids, :5].unbind(-1)
    poly = c0 + x * (c1 + x * (c2 + x * (c3 + x * c4)))
    slope = c1 + x * (2 * c2 + x * (3 * c3 + x * 4 * c4))
    jac = jac1 - slope.unsqueeze(-1) * jac2
    return jac.unsqueeze(-2), (moved[:, eq.obj1] - poly).unsqueeze(-1)


_EQUALITY = {
    "connect": _equality_connect,
    "weld": _equality_weld,
    "joint": _equality_joint,
    "tendon": _equality_tendon,
}
_DRIFTS = ("connect", "weld")  # whose rows carry Jdot qvel


def _limits(m: Model, d: Data) -> tuple[Tensor, Tensor]:
    """Jacobian (W, nl, nv) and distance (W, nl) of the limits of joints, then of tendons."""
    lay = m.efc
    jacs, dists = [], []
    if m.nlimit:
        assert lay.limit_dofs is not None and lay.limit_dofs_high is not None
        q = d.qpos[:, lay.limit_qpos]
        is_low, dist = _nearer(q, m.efc_range, lay.limit_side)
        jacs.append(torch.where(is_low.unsqueeze(-1), lay.limit_dofs, lay.limit_dofs_high))
        dists.append(dist)
    if lay.n_ball_limits:
        q = math.quat_normalize(d.qpos[:, lay.ball_qpos])
        axis, norm = math.normalize(q[..., 1:])
        angle = 2 * torch.atan2(norm.squeeze(-1), q[..., 0])
        wrapped = torch.where(angle > torch.pi, angle - 2 * torch.pi, angle)
        axis = axis * torch.where(wrapped < 0, -1.0, 1.0).unsqueeze(-1)
        jacs.append(-(axis.unsqueeze(-2) @ lay.ball_dofs).squeeze(-2))
        dists.append(m.jnt_range[:, lay.limit_joints[m.nlimit :]].amax(-1) - wrapped.abs())
    if lay.limit_tendons is not None:
        length, bounds = d.ten_length[:, lay.limit_tendons], m.tendon_range[:, lay.limit_tendons]
        is_low, dist = _nearer(length, bounds, lay.tendon_side)
        jac = d.ten_J[:, lay.limit_tendons]
        jacs.append(torch.where(is_low.unsqueeze(-1), jac, -jac))
        dists.append(dist)
    return _joined(jacs), _joined(dists)


def _nearer(x: Tensor, bounds: Tensor, side: Tensor | None) -> tuple[Tensor, Tensor]:
    """Whether the lower bound of x (W, n) is the one that counts, and the distance to that one."""
    low, high = bounds.unbind(-1)
    below, above = x - low, high - x
    is_low = below < above
    if side is not None:
        is_low = (side > 0) | ((side == 0) & is_low)
    return is_low, torch.where(is_low, below, above)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _contact_jacobian(m: Model, d: Data) -> Tensor:
    """Base Jacobians (W, rows, nv) of the contacts in row order.

    A row is a unit wrench at the contact, about the centre of mass of a moving side's tree, times
    the motion axes of the dofs.
    """
    frame, jac = d.contact_frame, None
    for side in m.efc.sides:
        arm = d.contact_pos - _centre(d, side.root)
        wrench = torch.cat([torch.linalg.cross(arm.unsqueeze(-2), frame, dim=-1), frame], -1)
        if m.efc.wrenches == 6:
            wrench = torch.cat([wrench, torch.nn.functional.pad(frame, (0, 3))], -2)
        wrench = wrench.flatten(1, 2)
        if m.efc.wrench_row is not None:
            wrench = wrench[:, m.efc.wrench_row]
        part = torch.bmm(wrench, d.cdof.mT) * side.move
        jac = part if jac is None else jac + part
    assert jac is not None
    return jac


def _centre(d: Data, root: Tensor) -> Tensor:
    """Centres of mass (W, ncon, 3) of the trees of root bodies (ncon,), or (W, ncon)."""
    if root.ndim == 1:
        return d.subtree_com[:, root]
    return d.subtree_com.gather(1, root.unsqueeze(-1).expand(*root.shape, 3))


def _impedance(m: Model, unit_pos: Tensor) -> Tensor:
    """Impedance of every unit (W, nunit) at distance unit_pos, MuJoCo manual, solimp.

    It rises from dmin as rise * x^power up to mid, and then to dmax as fall * (1 - x)^power.
    """
    dmin, dmax, per_width, mid, rise, fall, power = m.efc_imp.unbind(-1)
    x = (unit_pos.abs() * per_width).clamp(max=1.0)
    rest = 1 - x
    if m.efc.quadratic_imp:
        risen, falling = x * x, rest * rest
    else:
        risen, falling = x**power, rest**power
    return torch.where(x <= mid, torch.addcmul(dmin, rise, risen), dmax - fall * falling)


def friction_losses(m: Model) -> Tensor:
    """Friction loss of every row that has it, (1|W, nf): dofs, then tendons."""
    of_dofs = m.dof_frictionloss[:, m.efc.friction_dofs]
    if m.efc.loss_tendons is None:
        return of_dofs
    of_tendons = m.tendon_frictionloss[:, m.efc.loss_tendons]
    worlds = max(len(of_dofs), len(of_tendons))
    return torch.cat([x.expand(worlds, -1) for x in (of_dofs, of_tendons)], -1)


def rows(m: Model, d: Data) -> Data:
    """See `alloy.ops.rows`."""
    if not m.nefc:
        empty = d.qpos[:, :0]
        none = torch.zeros_like(empty, dtype=torch.bool)
        return replace(
            d, efc_J=empty.unsqueeze(-1).expand(-1, -1, m.nv), efc_pos=empty, efc_kip=empty,
            efc_D=empty, efc_active=none,
        )  # fmt: skip
    lay, zero = m.efc, math.constant_like(0.0, d.qpos)
    jac, unit_pos, always, eq_pos = [], [], [], []
    for eq in lay.equalities:
        j, error = _EQUALITY[eq.kind](m, d, eq)
        jac.append(j.flatten(1, 2))
        unit_pos.append(error.abs().squeeze(-1) if eq.dim == 1 else math.safe_norm(error))
        always.append(d.eq_active[:, eq.ids])
        eq_pos.append(error.flatten(1))
    if lay.nf:
        jac.append(m.derived["friction_rows"].expand(d.qpos.shape[0], -1, -1))
        if lay.loss_tendons is not None:
            jac.append(d.ten_J[:, lay.loss_tendons])
        losses = friction_losses(m).expand(d.qpos.shape[0], -1)
        unit_pos.append(torch.zeros_like(losses))
        always.append(losses > 0)
    if lay.nl:
        j, dist = _limits(m, d)
        jac.append(j)
        unit_pos.append(dist)
    if m.ncon:
        jac.append(_contact_jacobian(m, d))
        unit_pos.append(d.contact_dist)
    pos = _joined(unit_pos) - m.efc_margin
    if always:
        active = torch.cat([*always, pos[:, m.nunit - lay.nl - m.ncon :] < 0], 1)
    else:
        active = pos < 0
    imp = _impedance(m, pos)
    if lay.row_unit is not None:
        pos, active, imp = (x[:, lay.row_unit] for x in (pos, active, imp))
    if lay.row_normal is not None:
        pos = pos * lay.row_normal
    if lay.ne:
        pos = torch.cat([*eq_pos, pos[:, lay.ne :]], 1)
    resist = ((1 - imp) / imp * m.efc_diag).clamp(min=math.MINVAL)
    return replace(
        d,
        efc_J=torch.where(active.unsqueeze(-1), _joined(jac), zero),
        efc_pos=pos,
        efc_kip=m.efc_k * imp * pos,
        efc_D=torch.where(active, 1 / resist, zero),
        efc_active=active,
    )


def _drift_connect(d: Data, body: Tensor, point: Tensor, com: Tensor, cacc: Tensor) -> Tensor:
    """Acceleration (W, n, 3) at qacc = 0 of points fixed to bodies."""
    arm = point - com
    vel, acc = d.cvel[:, body], cacc[:, body]
    turn = vel[..., :3]
    speed = vel[..., 3:] + math.cross(turn, arm)
    return acc[..., 3:] + math.cross(acc[..., :3], arm) + math.cross(turn, speed)


def _equality_drift(m: Model, d: Data, eq: EqualityGroup, cacc: Tensor) -> Tensor:
    """Jdot * qvel of connect and weld rows, (W, n, dim): their acceleration at qacc = 0."""
    data = m.eq_data[:, eq.ids]
    anchors = (data[..., 0:3], data[..., 3:6])
    local = anchors if eq.kind == "connect" else anchors[::-1]
    drift = []
    for body, anchor in zip((eq.obj1, eq.obj2), local, strict=True):
        point = d.xpos[:, body] + math.rotate(d.xmat[:, body], anchor)
        com = d.subtree_com[:, m.tree.body_root[body]]
        drift.append(_drift_connect(d, body, point, com, cacc))
    lin = drift[0] - drift[1]
    if eq.kind == "connect":
        return lin

    def pure(x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x[..., :1]), x], -1)

    w1, w2 = (pure(d.cvel[:, body, :3]) for body in (eq.obj1, eq.obj2))
    alpha = pure(cacc[:, eq.obj1, :3] - cacc[:, eq.obj2, :3])
    w = w1 - w2
    # derivative of back * w * quat, with back' = -1/2 back w2 and quat' = 1/2 w1 quat
    inner = alpha + 0.5 * (math.quat_mul(w, w1) - math.quat_mul(w2, w))
    quat = math.quat_mul(d.xquat[:, eq.obj1], data[..., 6:10])
    back = math.quat_conj(d.xquat[:, eq.obj2])
    rot = 0.5 * data[..., 10:11] * math.quat_mul(math.quat_mul(back, inner), quat)[..., 1:]
    return torch.cat([lin, rot], -1)


def reference_acceleration(m: Model, d: Data) -> Data:
    """See `alloy.ops.reference_acceleration`."""
    if not m.nefc:
        return replace(d, efc_aref=d.efc_D)
    vel = torch.bmm(d.efc_J, d.qvel.unsqueeze(-1)).squeeze(-1)
    aref = -torch.addcmul(d.efc_kip, m.efc_b, vel)
    if any(eq.kind in _DRIFTS for eq in m.efc.equalities):
        cacc = m.tree.moves @ (d.cdof_dot * d.qvel.unsqueeze(-1))
        drifts = [
            _equality_drift(m, d, eq, cacc).flatten(1)
            if eq.kind in _DRIFTS
            else torch.zeros_like(aref[:, : eq.n])
            for eq in m.efc.equalities
        ]
        aref = torch.cat([aref[:, : m.efc.ne] - torch.cat(drifts, 1), aref[:, m.efc.ne :]], 1)
    return replace(d, efc_aref=torch.where(d.efc_active, aref, math.constant_like(0.0, aref)))
