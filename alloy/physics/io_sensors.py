"""Static tables of the sensor stage, read from an MjModel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

import mujoco
import numpy as np
from torch import Tensor

from alloy.physics.io_delays import histories
from alloy.physics.io_elements import spelled
from alloy.physics.io_sensors_cameras import camera_mode, cameras, lenses, pixels
from alloy.physics.io_sensors_contact import contact_sensors, contact_spec, zones
from alloy.physics.io_sensors_geometry import DISTANCES, distances, ray_fields, rays
from alloy.physics.io_sensors_tactile import tactile
from alloy.physics.layout import ConstraintLayout
from alloy.physics.sensor import (
    FramePart,
    Frames,
    SensorGroup,
    SensorNoise,
    SensorTables,
    TouchTables,
)

Put = Callable[..., Tensor]
Array = np.ndarray

_OBJ = mujoco.mjtObj

# objects that carry a frame, by MuJoCo's id, and the name of that kind of frame in sensor.py
FRAME_KINDS = {
    int(_OBJ.mjOBJ_BODY): "inertia",
    int(_OBJ.mjOBJ_XBODY): "body",
    int(_OBJ.mjOBJ_GEOM): "geom",
    int(_OBJ.mjOBJ_SITE): "site",
    int(_OBJ.mjOBJ_CAMERA): "camera",
}
# sensors that are entries of a field of Data: its name, and where the object's entry is
_DIRECT: dict[str, tuple[str, Callable[[mujoco.MjModel, int], int]]] = {
    "jointpos": ("qpos", lambda m, i: m.jnt_qposadr[i]),
    "jointvel": ("qvel", lambda m, i: m.jnt_dofadr[i]),
    "jointactfrc": ("qfrc_actuator", lambda m, i: m.jnt_dofadr[i]),
    "ballangvel": ("qvel", lambda m, i: m.jnt_dofadr[i]),
    "actuatorpos": ("actuator_length", lambda m, i: m.actuator_outadr[i]),
    "actuatorvel": ("actuator_velocity", lambda m, i: m.actuator_outadr[i]),
    "actuatorfrc": ("actuator_force", lambda m, i: m.actuator_outadr[i]),
    "tendonpos": ("ten_length", lambda m, i: i),
    "tendonvel": ("ten_velocity", lambda m, i: i),
    "subtreecom": ("subtree_com", lambda m, i: 3 * i),
    "clock": ("time", lambda m, i: 0),
}
_AXES = {"framexaxis": 0, "frameyaxis": 1, "framezaxis": 2}
_BY_FRAME = {
    "framepos", "framequat", "frameaxis", "framelinvel", "frameangvel", "framelinacc",
    "frameangacc", "accelerometer", "gyro", "velocimeter", "magnetometer",
}  # fmt: skip
_LIMITS = {
    f"{kind}limit{what}": (kind, f"limit{what}")
    for kind in ("joint", "tendon")
    for what in ("pos", "vel", "frc")
}
_FORCES = {"force", "torque"}
_ENERGIES = {"e_potential", "e_kinetic"}
_ACCELERATIONS = {"accelerometer", "framelinacc", "frameangacc"}
SUPPORTED = (
    set(_DIRECT) | set(_AXES) | (_BY_FRAME - {"frameaxis"}) | _FORCES | _ENERGIES | set(_LIMITS)
    | {"tendonactfrc", "ballquat", "subtreelinvel", "subtreeangmom", "touch", "rangefinder"}
    | {"contact", "insidesite", "camprojection", "tactile"} | set(DISTANCES)
)  # fmt: skip


def sensor_kind(m: mujoco.MjModel, i: int) -> str:
    """Name of a sensor's type: mjtSensor without its prefix, lower case."""
    return mujoco.mjtSensor(m.sensor_type[i]).name.removeprefix("mjSENS_").lower()


def sensor_tables(m: mujoco.MjModel, put: Put, layout: ConstraintLayout) -> SensorTables:
    """Sensors grouped by what is evaluated together, and where each entry goes."""
    members: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for i in range(m.nsensor):
        members[_together(m, i)].append(i)
    for (kind, _), ids in members.items():
        if kind == "distance":
            ids.sort(key=lambda i: DISTANCES.index(sensor_kind(m, i)))
    groups = tuple(_group(m, put, layout, kind, ids) for (kind, _), ids in members.items())
    columns = np.concatenate(
        [np.arange(m.sensor_dim[i]) + m.sensor_adr[i] for ids in members.values() for i in ids]
        or [np.zeros(0, int)]
    )
    kinds = {kind for kind, _ in members}
    touch = m.sensor_objid[m.sensor_type == mujoco.mjtSensor.mjSENS_TOUCH]
    return SensorTables(
        groups=groups,
        order=None if (np.diff(columns) == 1).all() else put(np.argsort(columns)),
        cutoff=_cutoff(m, put),
        touch=_touch(m, put, touch) if len(touch) else None,
        acceleration=not _ACCELERATIONS.isdisjoint(kinds),
        forces=not _FORCES.isdisjoint(kinds),
        magnetic=put(m.opt.magnetic),
        history=histories(m, put),
        noise=tuple(
            SensorNoise(float(std), spelled(mujoco.mjtDataType, int(kind)))
            for std, kind in zip(m.sensor_noise, m.sensor_datatype, strict=True)
        ),
    )


def _together(m: mujoco.MjModel, i: int) -> tuple[str, Hashable]:
    """Kind of a sensor's group, and what else its members have in common."""
    kind = sensor_kind(m, i)
    if kind == "rangefinder":
        by_site = m.sensor_objtype[i] == _OBJ.mjOBJ_SITE  # each camera by itself
        return kind, (ray_fields(m, i), -1 if by_site else i)
    if kind == "contact":
        return kind, contact_spec(m, i)
    if kind == "tactile":
        return kind, i
    if kind in _DIRECT:
        return "direct", None
    return ("frameaxis" if kind in _AXES else "distance" if kind in DISTANCES else kind), None


def _limit_rows(
    m: mujoco.MjModel, put: Put, layout: ConstraintLayout, kind: str, ids: list[int]
) -> SensorGroup:
    """Where the rows of each sensor's limit are: one, or one for each side; or none."""
    target, name = _LIMITS[kind]
    joints, tendons = (
        [] if x is None else x.tolist() for x in (layout.limit_joints, layout.limit_tendons)
    )
    first = layout.ne + layout.nf + (len(joints) if target == "tendon" else 0)
    owners = np.array(tendons if target == "tendon" else joints, int)
    rows = [first + np.flatnonzero(owners == i) for i in m.sensor_objid[ids]]
    if not any(len(r) for r in rows):
        return SensorGroup(name, count=len(ids))
    there = np.array([float(len(r) > 0) for r in rows])
    index = np.array([[r[0], r[-1]] if len(r) else [0, 0] for r in rows])
    return SensorGroup(name, index=put(index), select=put(there))


def _group(
    m: mujoco.MjModel, put: Put, layout: ConstraintLayout, kind: str, ids: list[int]
) -> SensorGroup:
    objects = m.sensor_objid[ids]
    if kind == "direct":
        return _direct(m, put, ids)
    if kind == "rangefinder":
        return _rangefinders(m, put, ids)
    if kind == "distance":
        return SensorGroup(kind, distances=distances(m, put, ids))
    if kind == "contact":
        return SensorGroup(kind, contacts=contact_sensors(m, put, layout, ids))
    if kind == "tactile":
        return SensorGroup(kind, tactile=tactile(m, put, ids[0]))
    if kind == "insidesite":
        frames = _frames(m, put, m.sensor_objtype[ids], objects)
        return SensorGroup(kind, frames, zones=zones(m, put, m.sensor_refid[ids]))
    if kind == "camprojection":
        eyes = _frames(m, put, m.sensor_reftype[ids], m.sensor_refid[ids])
        lens = put(lenses(m, m.sensor_refid[ids]))
        return SensorGroup(kind, reference=eyes, index=put(objects), select=lens)
    if kind == "tendonactfrc":
        on_tendon = m.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON
        pulls = on_tendon[:, None] & (m.actuator_trnid[:, :1] == objects)
        pulls = np.repeat(pulls, m.actuator_outnum, axis=0)
        return SensorGroup(kind, select=put(pulls.astype(float)))
    if kind == "ballquat":
        return SensorGroup(kind, index=put(m.jnt_qposadr[objects][:, None] + np.arange(4)))
    if kind in _ENERGIES:
        return SensorGroup(kind, count=len(ids))
    if kind in _LIMITS:
        return _limit_rows(m, put, layout, kind, ids)
    if kind not in _BY_FRAME | _FORCES:
        return SensorGroup(kind, index=put(objects))
    index = None
    if kind == "frameaxis":
        index = put(np.array([_AXES[sensor_kind(m, i)] for i in ids]).reshape(1, -1, 1, 1))
    reference = None
    given = m.sensor_refid[ids] >= 0
    # a sensor without a reference among others is measured in the world body's frame; so are
    # cameras: of them no kernel knows, nor of references
    if given.any() or (m.sensor_objtype[ids] == _OBJ.mjOBJ_CAMERA).any():
        types = np.where(given, m.sensor_reftype[ids], int(_OBJ.mjOBJ_XBODY))
        reference = _frames(m, put, types, np.where(given, m.sensor_refid[ids], 0))
    return SensorGroup(
        kind, _frames(m, put, m.sensor_objtype[ids], objects), reference, index=index
    )


def _rangefinders(m: mujoco.MjModel, put: Put, ids: list[int]) -> SensorGroup:
    """Rays of sites; or of a camera, with their directions and where they begin in `select`."""
    objects, fields = m.sensor_objid[ids], ray_fields(m, ids[0])
    if m.sensor_objtype[ids[0]] == _OBJ.mjOBJ_SITE:
        seen = rays(m, put, m.site_bodyid[objects])
        return SensorGroup("rangefinder", fields=fields, index=put(objects), rays=seen)
    through = pixels(m, int(objects[0]))
    return SensorGroup(
        "rangefinder",
        _frames(m, put, m.sensor_objtype[ids], objects),
        fields=fields,
        select=put(through),
        rays=rays(m, put, m.cam_bodyid[objects]),  # all see the same
    )


def _direct(m: mujoco.MjModel, put: Put, ids: list[int]) -> SensorGroup:
    sizes = {
        "qpos": m.nq, "qvel": m.nv, "qfrc_actuator": m.nv, "actuator_length": m.nout,
        "actuator_velocity": m.nout, "actuator_force": m.nout, "ten_length": m.ntendon,
        "ten_velocity": m.ntendon, "subtree_com": 3 * m.nbody, "time": 1,
    }  # fmt: skip
    fields = list(dict.fromkeys(_DIRECT[sensor_kind(m, i)][0] for i in ids))
    start = dict(zip(fields, np.cumsum([0] + [sizes[f] for f in fields]), strict=False))
    index = []
    for i in ids:
        field, address = _DIRECT[sensor_kind(m, i)]
        first = start[field] + address(m, m.sensor_objid[i])
        index.append(first + np.arange(m.sensor_dim[i]))
    return SensorGroup("direct", fields=tuple(fields), index=put(np.concatenate(index)))


def _frames(m: mujoco.MjModel, put: Put, types: Array, ids: Array) -> Frames:
    """Frames of objects given by mjtObj and id."""
    parts, places = [], []
    bodies = np.zeros(len(ids), int)
    members = defaultdict(list)
    for k, (type_, i) in enumerate(zip(types.tolist(), ids.tolist(), strict=True)):
        kind = FRAME_KINDS[type_]
        members[kind, camera_mode(m, i) if kind == "camera" else ""].append(k)
    owners = {"geom": m.geom_bodyid, "site": m.site_bodyid, "camera": m.cam_bodyid}
    for (kind, mode), chosen in members.items():
        bodies[chosen] = owners.get(kind, np.arange(m.nbody))[ids[chosen]]
        moving = cameras(m, put, mode, ids[chosen]) if kind == "camera" else None
        parts.append(FramePart(kind, put(ids[chosen]), put(bodies[chosen]), moving))
        places.append(chosen)
    order = None if len(parts) == 1 else put(np.argsort(np.concatenate(places)))
    return Frames(tuple(parts), order, put(bodies), put(m.body_rootid[bodies]))


def _cutoff(m: mujoco.MjModel, put: Put) -> tuple[Tensor, Tensor] | None:
    low, high = np.full(m.nsensordata, -np.inf), np.full(m.nsensordata, np.inf)
    for i in range(m.nsensor):
        entries = slice(m.sensor_adr[i], m.sensor_adr[i] + m.sensor_dim[i])
        real = m.sensor_datatype[i] == mujoco.mjtDataType.mjDATATYPE_REAL
        positive = m.sensor_datatype[i] == mujoco.mjtDataType.mjDATATYPE_POSITIVE
        clipped = sensor_kind(m, i) not in ("contact", "geomfromto")
        if m.sensor_cutoff[i] > 0 and (real or positive) and clipped:
            high[entries] = m.sensor_cutoff[i]
            if real:
                low[entries] = -m.sensor_cutoff[i]
    return (put(low), put(high)) if np.isfinite(high).any() else None


def _touch(m: mujoco.MjModel, put: Put, sites: Array) -> TouchTables:
    return TouchTables(zones(m, put, sites), put(m.site_bodyid[sites][:, None]))
