"""Static tables of the passive, actuation and sensor stages, read from an MjModel.

Sensors are in io_sensors; what these stages do not honour is refused in io_refuse_forces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.fluid_ellipsoid import EllipsoidTables
from alloy.ops.reference.noslip import NoslipPlan
from alloy.ops.reference.tendon_inertia import TendonInertia
from alloy.physics import io_transmissions
from alloy.physics.actuation import ActuationTables, Limit
from alloy.physics.io_delays import delays
from alloy.physics.io_motors import dc_motors, pid_controllers
from alloy.physics.io_orientations import orientations
from alloy.physics.io_plastic import plastic_tables
from alloy.physics.io_refuse_forces import refusals
from alloy.physics.io_sensors import sensor_tables
from alloy.physics.io_tendons import spatial_tendons, tendon_coefficients, tendon_support
from alloy.physics.io_transmissions import ON_JOINT, is_scalar
from alloy.physics.layout import ConstraintLayout
from alloy.physics.passive import PassiveTables

__all__ = ["all_tables", "refusals"]

Put = Callable[..., Tensor]
Array = np.ndarray

_JOINT, _TRN, _DYN = mujoco.mjtJoint, mujoco.mjtTrn, mujoco.mjtDyn
_GEOM = mujoco.mjtGeom
_GAIN, _BIAS = mujoco.mjtGain, mujoco.mjtBias


def all_tables(m: mujoco.MjModel, put: Put, layout: ConstraintLayout) -> dict[str, Any]:
    """Tables for Model.derived by stage; `put` moves a constant to the model's dtype and device."""
    return {
        "passive": passive_tables(m, put),
        "actuation": actuation_tables(m, put),
        "sensor": sensor_tables(m, put, layout),
        "tendon_inertia": _tendon_inertia(m, put),
        "noslip": noslip_plan(layout) if m.opt.noslip_iterations else None,
    }


def _tendon_inertia(m: mujoco.MjModel, put: Put) -> TendonInertia | None:
    heavy = m.tendon_armature != 0
    if not heavy.any():
        return None
    support = tendon_support(m)[heavy]
    return TendonInertia(_pattern(m, put, support.T @ support))


def noslip_plan(layout: ConstraintLayout) -> NoslipPlan:
    """Rows of friction: losses, then contacts by slot."""
    contacts = []
    for cone in layout.cones:
        slots = range(cone.n) if cone.slots is None else cone.slots.tolist()
        contacts += [(slot, cone.start + k * cone.dim, cone.dim) for k, slot in enumerate(slots)]
    return NoslipPlan(
        losses=tuple(range(layout.ne, layout.ne + layout.nf)),
        contacts=tuple((row, dim, slot) for slot, row, dim in sorted(contacts)),
    )


def passive_tables(m: mujoco.MjModel, put: Put) -> PassiveTables:
    """Which passive forces there are, and where displacements and velocities go."""
    spring_poly = (m.jnt_stiffnesspoly != 0).any(1)
    stiff = (m.jnt_stiffness != 0) | spring_poly
    place, quats = _spring_place(m, stiff)
    one_to_one = m.nq == m.nv and not quats and (place == np.eye(m.nv)).all()
    tendon_q, tendon_J = tendon_coefficients(m)
    tendon_damper = (m.tendon_damping != 0) | m.tendon_dampingpoly.any(1)
    support = tendon_support(m)[tendon_damper]
    through_actuators = m.jnt_actgravcomp.astype(bool)[m.dof_jntid]
    return PassiveTables(
        spring=bool(stiff.any()),
        damper=bool(m.dof_damping.any() or m.dof_dampingpoly.any()),
        gravcomp=bool(m.body_gravcomp.any()),
        fluid=bool(m.opt.density > 0 or m.opt.viscosity > 0),
        dof_joint=None if m.nv == m.njnt else put(m.dof_jntid),
        spring_place=None if one_to_one else put(place),
        spring_quat=put(np.array(quats)) if quats else None,
        passive_gravcomp=put(1.0 - through_actuators) if through_actuators.any() else None,
        tendon_q=put(tendon_q),
        tendon_J=put(tendon_J),
        spatial=spatial_tendons(m, put),
        tendon_spring=bool(m.tendon_stiffness.any() or m.tendon_stiffnesspoly.any()),
        tendon_damper=bool(tendon_damper.any()),
        spring_poly=bool(spring_poly.any()),
        damper_poly=bool(m.dof_dampingpoly.any()),
        tendon_spring_poly=bool(m.tendon_stiffnesspoly.any()),
        tendon_damper_poly=bool(m.tendon_dampingpoly.any()),
        spring_vectors=_spring_vectors(m, put) if spring_poly.any() else None,
        plastic=plastic_tables(m, put),
        pattern=_pattern(m, put, support.T @ support),
        ellipsoids=_ellipsoids(m, put),
        others=put(1.0 - np.eye(3)),
        box=put(1.0 - 2.0 * np.eye(3)),
    )


def actuation_tables(m: mujoco.MjModel, put: Put) -> ActuationTables:
    """Transmissions, limits and dynamics of the actuators."""
    length, moment = io_transmissions.scalar_transmissions(m)
    group = m.actuator_group.astype(int)
    in_range = (group >= 0) & (group <= 30)
    enabled = ~(in_range & ((m.opt.disableactuator >> group.clip(0, 30)) & 1).astype(bool))
    through_actuators = m.jnt_actgravcomp.astype(bool)[m.dof_jntid]
    limited_dof = m.jnt_actfrclimited.astype(bool)[m.dof_jntid]
    limited_tendon = np.flatnonzero(m.tendon_actfrclimited)
    on_joint = np.isin(m.actuator_trntype, ON_JOINT)
    same_joint = m.dof_jntid[:, None] == m.actuator_trnid[None, :, 0]
    gain_terms, bias_terms = _affine_terms(m)
    tables, arms = io_transmissions.transmissions(m, put)
    arms = arms + np.abs(moment)
    servos = orientations(m, put, enabled, arms)
    return ActuationTables(
        length=put(length),
        moment=put(moment),
        **tables,
        ctrl_limit=_limit(put, m.actuator_ctrllimited),
        force_limit=_limit(put, m.actuator_forcelimited),
        joint_limit=_limit(put, limited_dof),
        dof_joint=put(m.dof_jntid),
        joint_actuators=put((same_joint & on_joint & limited_dof[:, None]).astype(float)),
        tendon_range=put(m.tendon_actfrcrange[limited_tendon]) if len(limited_tendon) else None,
        tendon_actuators=put(_pulls(m, limited_tendon)) if len(limited_tendon) else None,
        enabled=None if enabled.all() else put(enabled),
        gain_affine=bool((m.actuator_gaintype == _GAIN.mjGAIN_AFFINE).any()),
        gain_mask=None if gain_terms.all() else put(gain_terms.astype(float)),
        bias_affine=bool((m.actuator_biastype == _BIAS.mjBIAS_AFFINE).any()),
        bias_mask=None if bias_terms.all() else put(bias_terms.astype(float)),
        muscle_gain=_if_any(put, m.actuator_gaintype == _GAIN.mjGAIN_MUSCLE),
        muscle_bias=_if_any(put, m.actuator_biastype == _BIAS.mjBIAS_MUSCLE),
        dcmotor=dc_motors(m, put),
        pid=pid_controllers(m, put),
        servos=servos,
        delay=delays(m, put),
        gravcomp=put(through_actuators.astype(float)) if through_actuators.any() else None,
        pattern=_pattern(m, put, arms.T @ arms),
        **_activation_tables(m, put, enabled),
    )


def _activation_tables(m: mujoco.MjModel, put: Put, enabled: Array) -> dict[str, Any]:
    owner = np.zeros(m.na, int)
    stateful = np.flatnonzero(m.actuator_actadr >= 0)
    for i in stateful:
        owner[m.actuator_actadr[i] : m.actuator_actadr[i] + m.actuator_actnum[i]] = i
    source = np.arange(m.nactuator)
    source[stateful] = m.nactuator + m.actuator_actadr[stateful]
    first = np.where(m.actuator_ctrlnum > 0, m.actuator_ctrladr, m.nu)
    one_to_one = m.na == m.nactuator and (owner == np.arange(m.nactuator)).all()
    kind = m.actuator_dyntype[owner]
    is_filter = np.isin(kind, [_DYN.mjDYN_FILTER, _DYN.mjDYN_FILTEREXACT])
    return {
        "first_ctrl": None if (m.actuator_ctrlnum == 1).all() else put(first),
        "input": put(source) if m.na else None,
        "act_actuator": None if one_to_one else put(owner),
        "act_filter": _if_any(put, is_filter),
        "act_exact": _if_any(put, kind == _DYN.mjDYN_FILTEREXACT),
        "act_muscle": _if_any(put, kind == _DYN.mjDYN_MUSCLE),
        "act_early": _if_any(put, m.actuator_actearly.astype(bool)[owner]),
        "act_limit": _limit(put, m.actuator_actlimited.astype(bool)[owner]),
        "act_enabled": None if enabled[owner].all() else put(enabled[owner]),
    }


def _affine_terms(m: mujoco.MjModel) -> tuple[Array, Array]:
    """Which of const, length and velocity count in each gain and bias, (nactuator, 3) bool each."""
    gain = np.repeat((m.actuator_gaintype == _GAIN.mjGAIN_AFFINE)[:, None], 3, 1)
    gain[:, 0] = True
    bias = np.repeat((m.actuator_biastype == _BIAS.mjBIAS_AFFINE)[:, None], 3, 1)
    return gain, bias


def _pulls(m: mujoco.MjModel, tendons: Array) -> Array:
    """1 where the actuator (row) pulls the tendon (column)."""
    on_tendon = m.actuator_trntype == _TRN.mjTRN_TENDON
    return (on_tendon[:, None] & (m.actuator_trnid[:, :1] == tendons)).astype(float)


def _spring_place(m: mujoco.MjModel, stiff: Array) -> tuple[Array, list[Array]]:
    """Where displacements act, (nq + 3 n, nv), and qpos addresses of the n sprung quaternions."""
    rows = np.zeros((m.nq, m.nv))
    turns, quats = [], []
    for joint in range(m.njnt):
        q, v = m.jnt_qposadr[joint], m.jnt_dofadr[joint]
        if is_scalar(m, joint):
            rows[q, v] = 1.0
            continue
        if m.jnt_type[joint] == _JOINT.mjJNT_FREE:
            rows[q : q + 3, v : v + 3] = np.eye(3)
            q, v = q + 3, v + 3
        if stiff[joint]:
            quats.append(np.arange(4) + q)
            turn = np.zeros((3, m.nv))
            turn[:, v : v + 3] = np.eye(3)
            turns.append(turn)
    return np.concatenate([rows, *turns]), quats


def _ellipsoids(m: mujoco.MjModel, put: Put) -> EllipsoidTables | None:
    """Geoms that are ellipsoids to the fluid, with their semi-axes by size."""
    chosen = np.flatnonzero((m.geom_fluid[:, 0] > 0) & (m.geom_bodyid > 0))
    if not len(chosen) or not (m.opt.density > 0 or m.opt.viscosity > 0):
        return None
    axes = np.tile(np.eye(3), (len(chosen), 1, 1))
    round_by_kind = {
        _GEOM.mjGEOM_SPHERE: [[1, 0, 0], [1, 0, 0], [1, 0, 0]],
        _GEOM.mjGEOM_CAPSULE: [[1, 0, 0], [1, 0, 0], [1, 1, 0]],
        _GEOM.mjGEOM_CYLINDER: [[1, 0, 0], [1, 0, 0], [0, 1, 0]],
    }
    for kind, by_size in round_by_kind.items():
        axes[m.geom_type[chosen] == kind] = by_size
    body = m.geom_bodyid[chosen]
    place = np.arange(m.nbody)[:, None] == body
    return EllipsoidTables(
        geom=put(chosen),
        body=put(body),
        axes=put(axes),
        place=put(place.astype(float)),
        boxes=put(1.0 - place.any(1)),
    )


def _spring_vectors(m: mujoco.MjModel, put: Put) -> Tensor | None:
    """1 between dofs of one ball joint, and among a free joint's translations and its rotations."""
    group = np.arange(m.nv)
    for joint in range(m.njnt):
        v = m.jnt_dofadr[joint]
        if not is_scalar(m, joint):
            group[v : v + 3] = v
        if m.jnt_type[joint] == _JOINT.mjJNT_FREE:
            group[v + 3 : v + 6] = v + 3
    vector = ~np.isin(m.jnt_type[m.dof_jntid], (_JOINT.mjJNT_SLIDE, _JOINT.mjJNT_HINGE))
    return _if_any(put, ((group[:, None] == group) & vector).astype(float))


def _pattern(m: mujoco.MjModel, put: Put, coupled: Array) -> Tensor | None:
    """Pairs of dofs one above the other, (nv, nv) 0/1, unless nothing else is coupled."""
    keep = np.eye(m.nv, dtype=bool)
    for dof in range(m.nv):
        up = m.dof_parentid[dof]
        while up >= 0:
            keep[dof, up] = keep[up, dof] = True
            up = m.dof_parentid[up]
    return put(keep.astype(float)) if (coupled.astype(bool) & ~keep).any() else None


def _limit(put: Put, mask: Array) -> Limit | None:
    mask = mask.astype(bool)
    if not mask.any():
        return None
    return Limit(None if mask.all() else put(mask))


def _if_any(put: Put, values: Array) -> Tensor | None:
    return put(values) if values.any() else None
