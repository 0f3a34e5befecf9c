"""Transmissions: lengths of actuators, and their moments, which turn forces into joint forces.

Source: MuJoCo manual, Computation, Actuation model, Transmission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import (
    constant_times,
    cross,
    dot,
    quat_conj,
    quat_mul,
    quat_normalize,
    quat_to_mat,
    quat_to_rotvec,
    rotate,
    rotate_inv,
)
from alloy.ops.reference.tendon import site_jacobian

if TYPE_CHECKING:
    from alloy.physics.actuation import (
        ActuationTables,
        AdhesionTables,
        CrankTables,
        SiteTables,
        TurnTables,
    )
    from alloy.physics.model import Data, Model


def transmission(m: Model, d: Data, t: ActuationTables) -> tuple[Tensor, Tensor, Tensor | None]:
    """Lengths and velocities (W, nactuator), and moments (W, nactuator, nv) unless constant.

    Of orientation servos, which stand beside, they are zero.
    """
    gear = m.actuator_gear[..., 0]
    length = (d.qpos @ t.length) * gear
    parts = []
    if t.turn is not None:
        parts.append((t.turn.rows, *_turns(m, d, t.turn)))
    if t.sites is not None:
        parts.append((t.sites.rows, *_sites(m, d, t.sites)))
    if t.cranks is not None:
        parts.append((t.cranks.rows, *_cranks(m, d, t.cranks)))
    if t.adhesion is not None:
        parts.append((t.adhesion.rows, *_adhesion(m, d, t.adhesion)))
    if not parts and t.tendons is None:
        return length, (d.qvel @ t.moment.mT) * gear, None
    unit = t.moment
    if t.tendons is not None:
        length = length + (d.ten_length @ t.tendons.mT) * gear
        unit = unit + constant_times(t.tendons, d.ten_J)
    moment = gear.unsqueeze(-1) * unit
    for rows, own_length, own_moment in parts:
        length = length + own_length @ rows.mT
        moment = moment + rows @ own_moment
    return length, (moment @ d.qvel.unsqueeze(-1)).squeeze(-1), moment


def _turns(m: Model, d: Data, r: TurnTables) -> tuple[Tensor, Tensor]:
    """Lengths (W, n) and moments (W, n, nv) on ball and free joints; a free joint has length 0."""
    gear = m.actuator_gear[:, r.actuator]
    shift, turn = gear[..., :3], torch.where(r.is_ball, gear[..., :3], gear[..., 3:])
    quat = quat_normalize(d.qpos[:, r.quat])
    length = torch.where(r.is_ball.squeeze(-1), dot(quat_to_rotvec(quat), turn), 0.0)
    if r.in_parent is not None:
        turn = torch.where(r.in_parent, rotate_inv(quat_to_mat(quat), turn), turn)
    both = torch.cat([shift.expand_as(turn), turn], -1)
    return length, (both.unsqueeze(-2) @ r.place).squeeze(-2)


def _sites(m: Model, d: Data, s: SiteTables) -> tuple[Tensor, Tensor]:
    """Lengths and moments of wrenches on sites, in the site's frame or that of a reference site.

    Against a reference the length is the displacement and rotation from it along the gear, and dofs
    that move both sites feel nothing.
    """
    gear = m.actuator_gear[:, s.actuator]
    frame, point = d.site_xmat[:, s.frame], d.site_xpos[:, s.site]
    force, torque = rotate(frame, gear[..., :3]), rotate(frame, gear[..., 3:])
    moment = site_jacobian(d, point, s.root, s.move, force, torque)
    if s.ref_move is None:
        return torch.zeros_like(point[..., 0]), moment
    base = d.site_xpos[:, s.frame]
    moment = moment - site_jacobian(d, base, s.ref_root, s.ref_move, force, torque)
    shift = rotate_inv(frame, point - base)
    quat = quat_mul(d.xquat[:, s.body], m.site_quat[:, s.site])
    ref = quat_mul(d.xquat[:, s.frame_body], m.site_quat[:, s.frame])
    turn = quat_to_rotvec(quat_mul(quat_conj(ref), quat))
    length = dot(shift, gear[..., :3]) + dot(turn, gear[..., 3:])
    return torch.where(s.has_ref, length, 0.0), moment


def _cranks(m: Model, d: Data, c: CrankTables) -> tuple[Tensor, Tensor]:
    """Lengths and moments of slider-cranks: how far the slider is along its site's z axis.

    The rod's length closes the triangle; where it is too short the slider is the point of the axis
    that is nearest to the pin.
    """
    gear = m.actuator_gear[:, c.actuator, :1]
    rod = m.actuator_cranklength[:, c.actuator]
    pin, base = d.site_xpos[:, c.site], d.site_xpos[:, c.slider]
    axis, arm = d.site_xmat[:, c.slider, :, 2], pin - base
    along = dot(arm, axis)
    det = along * along + rod * rod - dot(arm, arm)
    reached = det > 0
    root = torch.where(reached, det, 1.0).sqrt()
    length = torch.where(reached, along - root, along)
    inverse = torch.where(reached, 1 / root, 0.0).unsqueeze(-1)
    ratio = 1 - along.unsqueeze(-1) * inverse
    by_arm, by_axis = axis * ratio + arm * inverse, arm * ratio
    moment = site_jacobian(d, pin, c.root, c.move, by_arm)
    turned = cross(axis, by_axis)
    moment = moment + site_jacobian(d, base, c.slider_root, c.slider_move, -by_arm, turned)
    return length * gear.squeeze(-1), moment * gear


def _adhesion(m: Model, d: Data, a: AdhesionTables) -> tuple[Tensor, Tensor]:
    """Moments of bodies' adhesion: the mean of the normals of their contacts, pulling.

    Contacts that are within margin and gap count, also those that push nothing yet.
    """
    near = (d.contact_dist < m.con_margin + m.con_gap).to(d.qpos.dtype)
    share = near.unsqueeze(1) * a.touches
    count = share.sum(-1, keepdim=True)
    share = share / torch.where(count > 0, count, 1.0)
    normal = d.contact_frame[:, :, 0]
    rows = None
    for root, move in a.sides:
        part = site_jacobian(d, d.contact_pos, root, move, normal)
        rows = part if rows is None else rows + part
    assert rows is not None
    return torch.zeros_like(count.squeeze(-1)), -(share @ rows)
