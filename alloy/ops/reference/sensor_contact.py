"""Contact sensors: a fixed number of the contacts that match, or the sum of all that do.

A contact is one whose distance is below margin and gap; within the gap its force is zero.
Source: MuJoCo's manual, XML reference, sensor/contact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL, cross, dot, rotate, rotate_inv, safe_norm
from alloy.ops.reference.collide_shared import first

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import ContactSensors, SensorGroup, Zones

WIDTH = {
    "found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3,
    "linvel": 3, "angvel": 3,
}  # fmt: skip


def contact(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Fields of `num` contacts of each sensor, (W, sensors, num * width); zero without a contact.

    Forces, torques and velocities are in the contact's frame and those of the sensor's second side
    against its first, as its normal points.
    """
    t = g.contacts
    assert t is not None
    size = t.num * sum(WIDTH[name] for name in t.fields)
    worlds, sensors = d.qpos.shape[0], t.match.shape[0]
    if not t.slots.shape[0]:
        return d.qpos.new_zeros(worlds, sensors, size)
    near = d.contact_dist[:, t.slots] < (m.con_margin + m.con_gap)[:, t.slots]
    found = near.unsqueeze(1) & t.match  # (W, sensors, n)
    if t.zones is not None:
        found = found & inside(d, t.zones, d.contact_pos[:, t.slots].unsqueeze(1))
    wrench = None
    if {"force", "torque"} & set(t.fields) or t.reduce in ("maxforce", "netforce"):
        wrench = wrenches(m, d, t.wrench_order)[:, t.slots]
    if t.reduce == "netforce":
        assert wrench is not None
        one = _net(d, t, found, wrench)
        return torch.nn.functional.pad(one, (0, size - one.shape[-1]))
    out = _chosen(d, t, found, _criterion(d, t, wrench)) @ _values(m, d, t, near, wrench)
    if t.fields[0] == "found":
        count = found.sum(-1).to(out.dtype)[:, :, None, None]
        out = torch.cat([out[..., :1] * count, out[..., 1:]], -1)
    return torch.nn.functional.pad(out.flatten(2), (0, size - out.flatten(2).shape[-1]))


def wrenches(m: Model, d: Data, order: Tensor | None) -> Tensor:
    """Force and torque in the contacts' frames, (W, ncon, 6), zero where none acts."""
    lay, worlds = m.efc, d.qpos.shape[0]
    groups = [(1, lay.n_scalar - lay.n1, lay.n1)] if lay.n1 else []
    groups += [(cone.dim, cone.start, cone.n) for cone in lay.cones]
    parts = []
    for dim, start, n in groups:
        rows = slice(start, start + n * dim)
        force = torch.where(d.efc_active[:, rows], d.efc_force[:, rows], 0.0)
        parts.append(torch.nn.functional.pad(force.reshape(worlds, n, dim), (0, 6 - dim)))
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return out if order is None else out[:, order]


def _criterion(d: Data, t: ContactSensors, wrench: Tensor | None) -> Tensor | None:
    """What the contacts are sorted by, the smallest first, (W, n); None: by their order."""
    if t.reduce == "mindist":
        return d.contact_dist[:, t.slots]
    if t.reduce == "maxforce":
        assert wrench is not None
        return -dot(wrench, wrench)
    return None


def _chosen(d: Data, t: ContactSensors, found: Tensor, criterion: Tensor | None) -> Tensor:
    """Which contact each slot of each sensor reports, one-hot or zero; (W, sensors, num, n)."""
    count = min(t.num, t.slots.shape[0])
    if criterion is None:
        rank = found.cumsum(-1)
        picks = [found & (rank == k + 1) for k in range(count)]
    else:
        key, picks = torch.where(found, criterion.unsqueeze(1), torch.inf), []
        for _ in range(count):
            picks.append(first((key == key.amin(-1, keepdim=True)) & torch.isfinite(key)))
            key = torch.where(picks[-1], torch.inf, key)
    return torch.stack(picks, 2).to(d.qpos.dtype)


def _values(m: Model, d: Data, t: ContactSensors, near: Tensor, wrench: Tensor | None) -> Tensor:
    """Fields of every contact as each sensor sees them, (W, 1 | sensors, n, width)."""
    frame = d.contact_frame[:, t.slots]
    values = {
        "found": torch.ones_like(frame[..., 0, :1]), "dist": d.contact_dist[:, t.slots, None],
        "pos": d.contact_pos[:, t.slots], "normal": frame[..., 0, :], "tangent": frame[..., 1, :],
    }  # fmt: skip
    if wrench is not None:
        values |= {"force": wrench[..., :3], "torque": wrench[..., 3:]}
    if {"linvel", "angvel"} & set(t.fields):
        turn, shift = _relative_velocity(m, d, t)
        values |= {"linvel": rotate(frame, shift), "angvel": rotate(frame, turn)}
    out = torch.cat([values[name] for name in t.fields], -1)
    out = torch.where(near.unsqueeze(-1), out, 0.0).unsqueeze(1)
    return out if t.signs is None else out * t.signs


def _relative_velocity(m: Model, d: Data, t: ContactSensors) -> tuple[Tensor, Tensor]:
    """Angular and linear velocity of body 2 against body 1 where they touch, (W, n, 3) each."""
    con, parts = m.derived["contact"], []
    for body in (con.body1[t.slots], con.body2[t.slots]):
        rot, lin = d.cvel[:, body].split(3, -1)
        arm = d.contact_pos[:, t.slots] - d.subtree_com[:, m.tree.body_root[body]]
        parts.append((rot, lin + cross(rot, arm)))
    (rot1, lin1), (rot2, lin2) = parts
    return rot2 - rot1, lin2 - lin1


def _net(d: Data, t: ContactSensors, found: Tensor, wrench: Tensor) -> Tensor:
    """One contact in world axes that does what all do, where their forces' centre is."""
    frame, pos = d.contact_frame[:, t.slots], d.contact_pos[:, t.slots]
    force, torque = (rotate_inv(frame, part).unsqueeze(1) for part in wrench.split(3, -1))
    if t.back is not None:
        sign = torch.where(t.back, -1.0, 1.0).to(force.dtype).unsqueeze(-1)
        force, torque = sign * force, sign * torque
    mask, pos = found.unsqueeze(-1), pos.unsqueeze(1)
    force, torque = torch.where(mask, force, 0.0), torch.where(mask, torque, 0.0)
    weight = safe_norm(force, keepdim=True)
    total = weight.sum(-2).clamp(min=MINVAL)
    point = torch.where(mask, weight * pos, 0.0).sum(-2) / total
    arm = torch.where(mask, pos - point.unsqueeze(-2), 0.0)
    moment = (torque + cross(arm, force)).sum(-2)
    some = found.any(-1, keepdim=True).to(point.dtype)
    zero = torch.zeros_like(some)
    values = {
        "found": found.sum(-1, keepdim=True).to(point.dtype), "force": force.sum(-2),
        "torque": moment, "dist": zero, "pos": point, "normal": torch.cat([some, zero, zero], -1),
        "tangent": torch.cat([zero, some, zero], -1),
    }  # fmt: skip
    return torch.cat([values[name] for name in t.fields], -1)


def inside(d: Data, zones: Zones, points: Tensor) -> Tensor:
    """Whether points (W, n or 1, k, 3) are within each zone, its surface not; (W, n, k) bool."""
    origin, mat = d.site_xpos[:, zones.sites].unsqueeze(2), d.site_xmat[:, zones.sites].unsqueeze(2)
    at, size = rotate_inv(mat, points - origin), zones.size.unsqueeze(1)
    scaled = at / size
    radius2, half = size[..., 0] * size[..., 0], size[..., 1]
    across, height = dot(at[..., :2], at[..., :2]), at[..., 2].abs()
    beyond = (height - half).clamp(min=0.0)
    return zones.by_shape(
        dot(scaled, scaled) < 1.0,
        (at.abs() < size).all(-1),
        across + beyond * beyond < radius2,
        (across < radius2) & (height < half),
    )
