"""Sensors: sensordata from everything a substep has computed, those of one kind together.

Noise is a number that MuJoCo stores and never applies; so it is here. With sensors disabled
sensordata is zero. Source: MuJoCo's mj_sensorPos, mj_sensorVel, mj_sensorAcc.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import (
    MINVAL,
    cross,
    dot,
    quat_conj,
    quat_mul,
    quat_normalize,
    rotate,
    rotate_inv,
)
from alloy.ops.reference.body_forces import body_acceleration, forces
from alloy.ops.reference.passive import energy_of_springs
from alloy.ops.reference.sensor_cameras import camprojection
from alloy.ops.reference.sensor_contact import contact, inside
from alloy.ops.reference.sensor_distance import distances
from alloy.ops.reference.sensor_rays import rangefinder
from alloy.ops.reference.sensor_tactile import tactile

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import Frames, SensorGroup, SensorTables, TouchTables, Zones


def sensor(m: Model, d: Data) -> Data:
    """See `alloy.ops.sensor`."""
    t: SensorTables = m.derived["sensor"]
    if not m.nsensordata:
        return replace(d, sensordata=d.qpos[:, :0])
    if not t.groups or "sensor" in m.opt.disable:
        zero = d.qpos.new_zeros(m.nsensordata, d.qpos.shape[0]).mT
        return replace(d, sensordata=zero)
    cacc = body_acceleration(m, d) if t.acceleration else None
    if t.forces:
        d = forces(m, d)
    parts = []
    for group in t.groups:
        if group.kind in _ACCELERATIONS:
            assert cacc is not None
            value = _ACCELERATIONS[group.kind](d, group, cacc)
        else:
            value = _EVALUATE[group.kind](m, d, group)
        parts.append(value.flatten(1))
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    if t.order is not None:
        out = out[:, t.order]
    if t.cutoff is not None:
        out = torch.clamp(out, *t.cutoff)
    return replace(d, sensordata=out)


def _frames(g: SensorGroup) -> Frames:
    assert g.frames is not None
    return g.frames


def _direct(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Entries of fields of Data."""
    parts = [
        (d.step_count * m.opt.timestep).to(d.qpos.dtype).unsqueeze(1)
        if name == "time"
        else getattr(d, name).flatten(1)
        for name in g.fields
    ]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, 1))[:, g.index]


def _tendon_force(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Total actuator force on each tendon."""
    return d.actuator_force @ g.select


def _ball_quat(m: Model, d: Data, g: SensorGroup) -> Tensor:
    return quat_normalize(d.qpos[:, g.index])


def _frame_pos(m: Model, d: Data, g: SensorGroup) -> Tensor:
    pos = _frames(g).pos(d)
    if g.reference is None:
        return pos
    return rotate_inv(g.reference.mat(d), pos - g.reference.pos(d))


def _frame_quat(m: Model, d: Data, g: SensorGroup) -> Tensor:
    quat = _frames(g).quat(m, d)
    if g.reference is None:
        return quat
    return quat_mul(quat_conj(g.reference.quat(m, d)), quat)


def _frame_axis(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Axes x, y or z as columns of the orientation; index (1, n, 1, 1) says which."""
    mat = _frames(g).mat(d)
    axis = torch.take_along_dim(mat, g.index, -1).squeeze(-1)
    return axis if g.reference is None else rotate_inv(g.reference.mat(d), axis)


def _shifted(d: Data, f: Frames, spatial: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    """Rotational and translational part at the frames' origins of motion about the trees' coms."""
    value = spatial[:, f.body]
    rot = value[..., :3]
    return rot, value[..., 3:] + cross(rot, pos - d.subtree_com[:, f.root])


def _frame_velocity(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Linear or angular velocity in the reference frame, seen from it as it moves and turns."""
    pos = _frames(g).pos(d)
    rot, lin = _shifted(d, _frames(g), d.cvel, pos)
    angular = g.kind == "frameangvel"
    if g.reference is None:
        return rot if angular else lin
    base = g.reference.pos(d)
    base_rot, base_lin = _shifted(d, g.reference, d.cvel, base)
    seen = rot - base_rot if angular else lin - base_lin - cross(base_rot, pos - base)
    return rotate_inv(g.reference.mat(d), seen)


def _gyro(m: Model, d: Data, g: SensorGroup) -> Tensor:
    return rotate_inv(_frames(g).mat(d), d.cvel[:, _frames(g).body, :3])


def _velocimeter(m: Model, d: Data, g: SensorGroup) -> Tensor:
    lin = _shifted(d, _frames(g), d.cvel, _frames(g).pos(d))[1]
    return rotate_inv(_frames(g).mat(d), lin)


def _magnetometer(m: Model, d: Data, g: SensorGroup) -> Tensor:
    return rotate_inv(_frames(g).mat(d), m.derived["sensor"].magnetic)


def _subtree_velocity(m: Model, d: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Velocity of each body's and each subtree's centre of mass, and the bodies' masses."""
    rot, about = d.cvel[..., :3], d.xipos - d.subtree_com[:, m.tree.body_root]
    vel = d.cvel[..., 3:] + cross(rot, about)
    mass = m.body_mass.unsqueeze(-1)
    total = m.body_subtreemass.unsqueeze(-1).clamp(min=MINVAL)
    return vel, (m.tree.subtree @ (mass * vel)) / total, mass


def _subtree_linvel(m: Model, d: Data, g: SensorGroup) -> Tensor:
    return _subtree_velocity(m, d)[1][:, g.index]


def _subtree_angmom(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Angular momentum of a subtree about its own centre of mass."""
    vel, com_vel, mass = _subtree_velocity(m, d)
    local = rotate_inv(d.ximat, d.cvel[..., :3])
    spin = rotate(d.ximat, m.body_inertia * local)
    about_origin = m.tree.subtree @ (spin + cross(d.xipos, mass * vel))
    total = m.body_subtreemass.unsqueeze(-1)
    return (about_origin - cross(d.subtree_com, total * com_vel))[:, g.index]


def _linear_acceleration(d: Data, f: Frames, cacc: Tensor) -> Tensor:
    """Acceleration of the frames' origins in world axes; spatial less the rotating frame's part."""
    pos = f.pos(d)
    rot, lin = _shifted(d, f, d.cvel, pos)
    return _shifted(d, f, cacc, pos)[1] + cross(rot, lin)


def _accelerometer(d: Data, g: SensorGroup, cacc: Tensor) -> Tensor:
    return rotate_inv(_frames(g).mat(d), _linear_acceleration(d, _frames(g), cacc))


def _frame_linacc(d: Data, g: SensorGroup, cacc: Tensor) -> Tensor:
    return _linear_acceleration(d, _frames(g), cacc)


def _frame_angacc(d: Data, g: SensorGroup, cacc: Tensor) -> Tensor:
    return cacc[:, _frames(g).body, :3]


def _contact_normals(m: Model, d: Data) -> tuple[Tensor, Tensor]:
    """Slots and normal forces of all contacts, in the order of the constraint rows."""
    parts, slots = [], []
    if m.efc.n1:
        start = m.efc.ne + m.efc.nf + m.efc.nl
        parts.append(d.efc_force[:, start : start + m.efc.n1])
        slots.append(m.efc.frictionless)
    for cone in m.efc.cones:
        parts.append(d.efc_force[:, cone.start : cone.start + cone.n * cone.dim : cone.dim])
        every = torch.arange(cone.n, device=d.qpos.device)
        slots.append(every if cone.slots is None else cone.slots)
    return torch.cat(slots), torch.cat(parts, 1)


def _touch(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Normal forces of the body's contacts whose force, drawn as a ray, meets the site's volume."""
    t: TouchTables = m.derived["sensor"].touch
    if not m.ncon:
        return d.qpos.new_zeros(d.qpos.shape[0], t.zones.size.shape[0])
    slots, force = _contact_normals(m, d)
    contact = m.derived["contact"]
    second = t.body == contact.body2[slots]  # (n, ncon)
    mine = second | (t.body == contact.body1[slots])
    sign = torch.where(second, -1.0, 1.0).to(force.dtype).unsqueeze(-1)
    mat, origin = d.site_xmat[:, t.zones.sites], d.site_xpos[:, t.zones.sites]
    # points and rays in the sites' frames, (W, n, ncon, 3): rows times a matrix
    point = (d.contact_pos[:, slots].unsqueeze(1) - origin.unsqueeze(2)) @ mat
    ray = (d.contact_frame[:, slots, 0].unsqueeze(1) * sign) @ mat
    felt = mine & (force > 0).unsqueeze(1) & _ray_meets(t.zones, point, ray)
    return torch.where(felt, force.unsqueeze(1), 0.0).sum(-1)


def _ray_meets(t: Zones, point: Tensor, ray: Tensor) -> Tensor:
    """Whether the half-line from point along ray meets each site's convex volume; (W, n, ncon)."""
    size = t.size.unsqueeze(1)
    inf = torch.full_like(point[..., 0], torch.inf)

    def quadric(p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Where the line is within the unit ball: the interval, empty as (inf, -inf)."""
        a, b, c = dot(v, v), dot(p, v), dot(p, p) - 1.0
        det = b * b - a * c
        hit = (det >= MINVAL) & (a > 0)
        root, a = torch.where(hit, det, 0.0).sqrt(), torch.where(hit, a, 1.0)
        return torch.where(hit, (-b - root) / a, inf), torch.where(hit, (-b + root) / a, -inf)

    def slab(p: Tensor, v: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
        """Where the line is within half of the middle, axis by axis."""
        flat = v.abs() < MINVAL
        within = torch.where(p.abs() <= half, torch.inf, -torch.inf).to(p.dtype)
        slope = torch.where(flat, 1.0, v)
        one, two = (-half - p) / slope, (half - p) / slope
        low, high = torch.minimum(one, two), torch.maximum(one, two)
        return torch.where(flat, -within, low), torch.where(flat, within, high)

    def meets(low: Tensor, high: Tensor) -> Tensor:
        return (low <= high) & (high >= 0)

    round_hit = meets(*quadric(point / size, ray / size))
    low, high = slab(point, ray, size)
    box_hit = meets(low.amax(-1), high.amin(-1))
    radius, half = size[..., :1], size[..., 1:2]
    side = quadric(point[..., :2] / radius, ray[..., :2] / radius)
    along = dot(point[..., :2], point[..., :2]) <= (radius * radius).squeeze(-1)
    still = dot(ray[..., :2], ray[..., :2]) < MINVAL  # parallel to the axis: inside or outside
    side_low = torch.where(still & along, -inf, side[0])
    side_high = torch.where(still & along, inf, side[1])
    caps = slab(point[..., 2:], ray[..., 2:], half)
    side_low = torch.maximum(side_low, caps[0].squeeze(-1))
    cylinder_hit = meets(side_low, torch.minimum(side_high, caps[1].squeeze(-1)))
    shift = torch.nn.functional.pad(half, (2, 0))
    capsule_hit = cylinder_hit
    for end in (shift, -shift):
        capsule_hit = capsule_hit | meets(*quadric((point - end) / radius, ray / radius))
    return t.by_shape(round_hit, box_hit, capsule_hit, cylinder_hit)


def _inside_site(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """1 where the origin of a frame is within the site's volume, else 0."""
    assert g.zones is not None
    return inside(d, g.zones, _frames(g).pos(d).unsqueeze(2)).to(d.qpos.dtype)


def _site_wrench(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Force or torque at a site between its body and the parent, in the site's frame."""
    frames = _frames(g)
    torque, force = d.cfrc_int[:, frames.body].split(3, -1)
    if g.kind == "force":
        return rotate_inv(frames.mat(d), force)
    arm = frames.pos(d) - d.subtree_com[:, frames.root]
    return rotate_inv(frames.mat(d), torque - cross(arm, force))


def _limit(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Distance, velocity or force of limits: of the first row (of two, index) that is active."""
    if g.index is None:
        return d.qpos.new_zeros(d.qpos.shape[0], 1).expand(-1, g.count)
    if g.kind == "limitpos":
        value = d.efc_pos[:, g.index]
    elif g.kind == "limitvel":
        value = (d.efc_J[:, g.index] @ d.qvel[:, None, :, None]).squeeze(-1)
    else:
        value = d.efc_force[:, g.index]
    value = torch.where(d.efc_active[:, g.index], value, 0.0)
    first = d.efc_active[:, g.index[:, 0]]
    return torch.where(first, value[..., 0], value[..., 1]) * g.select


def _potential(m: Model, d: Data, g: SensorGroup) -> Tensor:
    """Energy of gravity and springs."""
    energy = energy_of_springs(m, d)
    if "gravity" not in m.opt.disable:
        height = dot(d.xipos, m.gravity.unsqueeze(-2))
        energy = energy - (m.body_mass * height)[:, 1:].sum(-1)
    return energy.unsqueeze(-1).expand(-1, g.count)


def _kinetic(m: Model, d: Data, g: SensorGroup) -> Tensor:
    momentum = (d.M @ d.qvel.unsqueeze(-1)).squeeze(-1)
    return 0.5 * dot(momentum, d.qvel).unsqueeze(-1).expand(-1, g.count)


_EVALUATE = {
    "force": _site_wrench,
    "torque": _site_wrench,
    "limitpos": _limit,
    "limitvel": _limit,
    "limitfrc": _limit,
    "e_potential": _potential,
    "e_kinetic": _kinetic,
    "direct": _direct,
    "tendonactfrc": _tendon_force,
    "ballquat": _ball_quat,
    "framepos": _frame_pos,
    "framequat": _frame_quat,
    "frameaxis": _frame_axis,
    "framelinvel": _frame_velocity,
    "frameangvel": _frame_velocity,
    "gyro": _gyro,
    "velocimeter": _velocimeter,
    "magnetometer": _magnetometer,
    "subtreelinvel": _subtree_linvel,
    "subtreeangmom": _subtree_angmom,
    "touch": _touch,
    "rangefinder": rangefinder,
    "distance": distances,
    "contact": contact,
    "insidesite": _inside_site,
    "camprojection": camprojection,
    "tactile": tactile,
}


_ACCELERATIONS = {
    "accelerometer": _accelerometer,
    "framelinacc": _frame_linacc,
    "frameangacc": _frame_angacc,
}
