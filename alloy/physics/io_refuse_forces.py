"""What the passive, actuation and sensor stages do not honour in an MjModel, named."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from alloy.physics.io_elements import Refusal, name_of, spelled
from alloy.physics.io_sensors import FRAME_KINDS, SUPPORTED, sensor_kind
from alloy.physics.io_sensors_geometry import refusals as geometry_refusals
from alloy.physics.io_sensors_tactile import refusals as tactile_refusals

_TRN, _DYN = mujoco.mjtTrn, mujoco.mjtDyn
_GAIN, _BIAS = mujoco.mjtGain, mujoco.mjtBias
_SCALAR = (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)

_TRANSMISSIONS = (
    _TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT, _TRN.mjTRN_TENDON, _TRN.mjTRN_SITE,
    _TRN.mjTRN_SLIDERCRANK, _TRN.mjTRN_BODY, _TRN.mjTRN_SO3,
)  # fmt: skip
_DYNAMICS = (
    _DYN.mjDYN_NONE, _DYN.mjDYN_INTEGRATOR, _DYN.mjDYN_FILTER, _DYN.mjDYN_FILTEREXACT,
    _DYN.mjDYN_MUSCLE, _DYN.mjDYN_DCMOTOR, _DYN.mjDYN_PID,
)  # fmt: skip
_GAINS = (
    _GAIN.mjGAIN_FIXED, _GAIN.mjGAIN_AFFINE, _GAIN.mjGAIN_MUSCLE, _GAIN.mjGAIN_DCMOTOR,
    _GAIN.mjGAIN_PID, _GAIN.mjGAIN_SO3,
)  # fmt: skip
_BIASES = (
    _BIAS.mjBIAS_NONE, _BIAS.mjBIAS_AFFINE, _BIAS.mjBIAS_MUSCLE, _BIAS.mjBIAS_DCMOTOR,
    _BIAS.mjBIAS_SO3,
)  # fmt: skip


def refusals(m: mujoco.MjModel) -> list[Refusal]:
    """Every unsupported element of these stages with its attribute and what to do about it."""
    found = {
        "joint": _joints(m), "actuator": _actuators(m), "sensor": _sensors(m),
    }  # fmt: skip
    return [Refusal(kind, i, text) for kind, some in found.items() for i, text in some]


def _joints(m: mujoco.MjModel) -> Iterator[tuple[int, str]]:
    for j in np.flatnonzero(m.jnt_actfrclimited).tolist():
        if int(m.jnt_type[j]) not in _SCALAR:
            yield j, f"{name_of(m, 'joint', j)} actuatorfrcrange: only for hinge and slide joints"


def _actuators(m: mujoco.MjModel) -> Iterator[tuple[int, str]]:
    for i in range(m.nactuator):
        name = name_of(m, "actuator", i)
        kind = int(m.actuator_trntype[i])
        if kind not in _TRANSMISSIONS:
            yield (
                i,
                f"{name}: transmission {spelled(_TRN, kind)!r}; use joint, tendon, site or body",
            )
        for field, allowed, enum in (
            ("dyntype", _DYNAMICS, _DYN), ("gaintype", _GAINS, _GAIN), ("biastype", _BIASES, _BIAS),
        ):  # fmt: skip
            value = int(getattr(m, f"actuator_{field}")[i])
            if value not in allowed:
                names = ", ".join(spelled(enum, a) for a in allowed)
                yield i, f"{name} {field}={spelled(enum, value)!r}; use one of {names}"
        several = m.actuator_actnum[i] > 1 or m.actuator_ctrlnum[i] != 1
        if several and not _takes_several(m, i):
            yield (
                i,
                (
                    f"{name}: {m.actuator_ctrlnum[i]} controls and {m.actuator_actnum[i]} "
                    f"activations; only of DC motors, PID controllers and orientation servos"
                ),
            )
        if m.actuator_gaintype[i] == _GAIN.mjGAIN_PID and m.actuator_actearly[i]:
            yield i, f"{name} actearly of a PID controller; leave it out"
        if m.actuator_dyntype[i] == _DYN.mjDYN_DCMOTOR and m.actuator_dynprm[i, 5] > 0:
            if m.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
                yield i, f"{name} lugre with integrator RK4; use Euler, implicit or implicitfast"
        if m.actuator_delay[i] and m.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
            yield i, f"{name} delay with integrator RK4; use Euler, implicit or implicitfast"
        if m.actuator_delay[i] and m.actuator_history[i, 1] and m.actuator_ctrlnum[i] == 4:
            if m.actuator_gaintype[i] == _GAIN.mjGAIN_SO3:
                yield i, f"{name} interp of a quaternion; use interp='zoh' or input='expmap'"
        for field in () if _takes_damping(m, i) else ("damping", "dampingpoly", "armature"):
            if np.any(getattr(m, f"actuator_{field}")[i]):
                what = "only on hinge and slide joints and on tendons; give it to what it acts on"
                yield i, f"{name} {field}: {what}"
        if m.actuator_plugin[i] >= 0:
            yield i, f"{name}: a plugin; use general, motor, position or velocity"


def _takes_several(m: mujoco.MjModel, actuator: int) -> bool:
    """Whether an actuator may have several controls and states, or none."""
    several = _GAIN.mjGAIN_DCMOTOR, _GAIN.mjGAIN_PID, _GAIN.mjGAIN_SO3
    return int(m.actuator_gaintype[actuator]) in several


def _takes_damping(m: mujoco.MjModel, actuator: int) -> bool:
    """Whether an actuator may give damping and armature to what it acts on."""
    if int(m.actuator_trntype[actuator]) == _TRN.mjTRN_TENDON:
        return True
    on_joint = int(m.actuator_trntype[actuator]) in _TRANSMISSIONS[:2]
    return on_joint and int(m.jnt_type[m.actuator_trnid[actuator, 0]]) in _SCALAR


def _sensors(m: mujoco.MjModel) -> Iterator[tuple[int, str]]:
    for i in range(m.nsensor):
        name, kind = name_of(m, "sensor", i), sensor_kind(m, i)
        if kind not in SUPPORTED:
            known = ", ".join(sorted(SUPPORTED))
            yield i, f"{name} of type {kind!r}; remove it or use one of {known}"
            continue
        felt = tactile_refusals(m, i) if kind == "tactile" else ()
        for text in (*geometry_refusals(m, i), *felt):
            yield i, f"{name} of type {kind!r}: {text}"
        zone = _zone(m, i, kind)
        if zone is not None and int(m.site_type[zone]) == mujoco.mjtGeom.mjGEOM_MESH:
            yield i, f"{name}: a zone of type 'mesh'; use a box, sphere or another primitive"
        framed = kind.startswith("frame")
        for what, value, given in (
            ("objtype", m.sensor_objtype[i], True),
            ("reftype", m.sensor_reftype[i], m.sensor_refid[i] >= 0),
        ):
            if framed and given and int(value) not in FRAME_KINDS:
                found = spelled(mujoco.mjtObj, int(value))
                yield i, f"{name} {what}={found!r}; use body, xbody, geom, site or camera"


def _zone(m: mujoco.MjModel, sensor: int, kind: str) -> int | None:
    """The site whose volume a sensor asks for."""
    if kind == "insidesite":
        return int(m.sensor_refid[sensor])
    by_site = m.sensor_objtype[sensor] == mujoco.mjtObj.mjOBJ_SITE
    return (
        int(m.sensor_objid[sensor]) if kind == "touch" or (kind == "contact" and by_site) else None
    )
