"""Actuators, and the sum of all forces that are no constraint. Twin of the reference's."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.activation import (
    ACT,
    EARLY,
    OWNER,
    activation_rate,
    activation_tables,
    next_activation,
)
from alloy.ops.triton.inertia import to_dofs
from alloy.ops.triton.lane import empty, launch, load, load3, load4, store, store6, worlds_of, zeros
from alloy.ops.triton.tables import BODY, ROOT, knows, table, tree_tables
from alloy.ops.triton.vector import (
    add,
    cross,
    dot,
    quat_normalize,
    quat_to_mat,
    quat_to_rotvec,
    rotate_inv,
    sub,
)

if TYPE_CHECKING:
    from alloy.physics.actuation import ActuationTables
    from alloy.physics.model import Data, Model

# columns of the actuator table: where its lists of qpos addresses and dofs begin and end; 1 on a
# ball, 2 on a free joint; address of that quaternion, first of those dofs, gear turns with the
# parent; flags; activation and limited tendon, -1: none
ACTUATOR = tl.constexpr(15)
Q_BEGIN, Q_END, V_BEGIN, V_END, TURN, QUAT, TURN_DOF, IN_PARENT = (
    tl.constexpr(k) for k in range(8)
)
ENABLED, CTRL_LIMIT, FORCE_LIMIT, GAIN, BIAS, INPUT, TENDON = (
    tl.constexpr(k) for k in range(8, 15)
)


@dataclass(frozen=True)
class _Tables:
    actuator: Tensor  # (nu * ACTUATOR,)
    lists: Tensor  # qpos addresses and dofs of scalar transmissions
    limited: Tensor  # (nv,) joint whose total force is limited, -1: not
    compensated: Tensor  # (nv,) 1 where actuators compensate gravity


@lru_cache(maxsize=64)
def _tables(t: ActuationTables) -> _Tables:
    """The tables of a model's actuators."""
    length, moment = t.length.cpu().numpy(), t.moment.cpu().numpy()
    nu, nv = moment.shape  # one control and one force each
    rows, lists = np.zeros((nu, ACTUATOR.value), int), []
    for u in range(nu):
        for begin, entries in ((0, length[:, u]), (2, moment[u])):
            rows[u, begin] = len(lists)
            lists += np.flatnonzero(entries).tolist()
            rows[u, begin + 1] = len(lists)
    if t.turn is not None:
        for n, u in enumerate(t.turn.actuator.tolist()):
            first = int(t.turn.place[n].any(0).nonzero()[0, 0])
            ball = bool(t.turn.is_ball[n, 0])
            turns = t.turn.in_parent is not None and bool(t.turn.in_parent[n, 0])
            rows[u, 4:8] = 1 if ball else 2, int(t.turn.quat[n, 0]), first, turns

    def flags(mask: Tensor | None) -> np.ndarray | int:
        return 1 if mask is None else mask.cpu().numpy().astype(int)

    rows[:, 8] = flags(t.enabled)
    rows[:, 9] = 0 if t.ctrl_limit is None else flags(t.ctrl_limit.mask)
    rows[:, 10] = 0 if t.force_limit is None else flags(t.force_limit.mask)
    rows[:, 11] = 0 if not t.gain_affine else flags(t.gain_mask if t.gain_mask is None
                                                     else t.gain_mask[:, 1])  # fmt: skip
    rows[:, 12] = 0 if not t.bias_affine else flags(t.bias_mask if t.bias_mask is None
                                                     else t.bias_mask[:, 1])  # fmt: skip
    rows[:, 13] = -1 if t.input is None else (t.input.cpu().numpy() - nu).clip(-1)
    rows[:, 14] = -1
    if t.tendon_actuators is not None:
        pulls = t.tendon_actuators.cpu().numpy()
        rows[:, 14] = np.where(pulls.any(1), pulls.argmax(1), -1)
    joint = t.dof_joint.cpu().numpy()
    some = 0 if t.joint_limit is None else flags(t.joint_limit.mask)
    limited = np.where(np.broadcast_to(some, nv) == 1, joint, -1)
    compensated = np.zeros(nv) if t.gravcomp is None else t.gravcomp.cpu().numpy()
    return _Tables(*(table(x, t.length.device) for x in (rows, lists, limited, compensated)))


# ------------------------------------------------------------------ transmission


@triton.jit
def _turning_gear(u, row, qpos, gear, w, m):
    """Translational and rotational gear on a ball or free joint, and the length of a ball's."""
    at, kind = 6 * u, tl.load(row + TURN)
    shift = load(gear, at, w, m), load(gear, at + 1, w, m), load(gear, at + 2, w, m)
    at += 3 * (kind - 1)
    turn = load(gear, at, w, m), load(gear, at + 1, w, m), load(gear, at + 2, w, m)
    quat = quat_normalize(load4(qpos, tl.load(row + QUAT), w, m))
    length = zeros(qpos, w)
    if kind == 1:
        length = dot(quat_to_rotvec(quat), turn)
    if tl.load(row + IN_PARENT) == 1:
        turn = rotate_inv(quat_to_mat(quat), turn)
    return shift, turn, length


@triton.jit
def _transmission(
    u, row, lists_ptr, qpos, qvel, gear, unit_length, unit_moment, length, velocity, nu, nv, w, m
):  # fmt: skip
    """Length and velocity: gear times a combination of qpos, and moment times qvel."""
    reach, speed = zeros(length, w), zeros(length, w)
    for at in range(tl.load(row + Q_BEGIN), tl.load(row + Q_END)):
        q = tl.load(lists_ptr + at)
        reach += load(qpos, q, w, m) * load(unit_length, q * nu + u, w, m)
    for at in range(tl.load(row + V_BEGIN), tl.load(row + V_END)):
        v = tl.load(lists_ptr + at)
        speed += load(qvel, v, w, m) * load(unit_moment, u * nv + v, w, m)
    first = load(gear, 6 * u, w, m)
    reach, speed = reach * first, speed * first
    kind, dof = tl.load(row + TURN), tl.load(row + TURN_DOF)
    if kind > 0:
        shift, turn, angle = _turning_gear(u, row, qpos, gear, w, m)
        reach += angle
        for k in tl.static_range(3):
            if kind == 2:
                speed += shift[k] * load(qvel, dof + k, w, m)
            speed += turn[k] * load(qvel, dof + 3 * (kind - 1) + k, w, m)
    store(length, u, w, m, reach)
    store(velocity, u, w, m, speed)


@triton.jit
def _push(u, row, lists_ptr, force, qpos, gear, unit_moment, joint, nv, w, m):
    """Joint forces += moment' force."""
    pull = force * load(gear, 6 * u, w, m)
    for at in range(tl.load(row + V_BEGIN), tl.load(row + V_END)):
        v = tl.load(lists_ptr + at)
        total = load(joint, v, w, m) + pull * load(unit_moment, u * nv + v, w, m)
        store(joint, v, w, m, total)
    kind, dof = tl.load(row + TURN), tl.load(row + TURN_DOF)
    if kind > 0:
        shift, turn, angle = _turning_gear(u, row, qpos, gear, w, m)
        for k in tl.static_range(3):
            if kind == 2:
                store(joint, dof + k, w, m, load(joint, dof + k, w, m) + force * shift[k])
            at = dof + 3 * (kind - 1) + k
            store(joint, at, w, m, load(joint, at, w, m) + force * turn[k])


# ------------------------------------------------------------------ forces


@triton.jit
def _control(u, row, ctrl, ctrlrange, w, m, CLAMP: tl.constexpr):
    value = load(ctrl, u, w, m)
    if CLAMP:
        if tl.load(row + CTRL_LIMIT) == 1:
            value = tl.maximum(value, load(ctrlrange, 2 * u, w, m))
            value = tl.minimum(value, load(ctrlrange, 2 * u + 1, w, m))
    return value


@triton.jit
def _affine(prm, u, length, velocity, w, m):
    at = 10 * u
    value = load(prm, at, w, m) + load(prm, at + 1, w, m) * length
    return value + load(prm, at + 2, w, m) * velocity


@triton.jit
def _force(u, row, value, length, velocity, gainprm, biasprm, w, m):
    """Gain times the control or activation, plus bias; none of a disabled actuator."""
    reach, speed = load(length, u, w, m), load(velocity, u, w, m)
    gain, bias = load(gainprm, 10 * u, w, m), zeros(gainprm, w)
    if tl.load(row + GAIN) == 1:
        gain = _affine(gainprm, u, reach, speed, w, m)
    if tl.load(row + BIAS) == 1:
        bias = _affine(biasprm, u, reach, speed, w, m)
    force = gain * value + bias
    if tl.load(row + ENABLED) == 0:
        force = zeros(gainprm, w)
    return force


@triton.jit
def _limit_tendon(t, force, tendon_range, actuator_ptr, nu, w, m):
    """Scale the forces on a tendon down to its limit on their total."""
    total = zeros(force, w)
    for u in range(nu):
        if tl.load(actuator_ptr + u * ACTUATOR + TENDON) == t:
            total += load(force, u, w, m)
    low, high = load(tendon_range, 2 * t, w, m), load(tendon_range, 2 * t + 1, w, m)
    clamped = tl.minimum(tl.maximum(total, low), high)
    outside = clamped != total
    size = tl.where(outside, clamped / tl.where(outside, total, 1.0), 1.0)
    for u in range(nu):
        if tl.load(actuator_ptr + u * ACTUATOR + TENDON) == t:
            store(force, u, w, m, load(force, u, w, m) * size)


@triton.jit
def _applied(
    xfrc_applied, xipos, subtree_com, cdof, wrench, out, body_ptr, dof_ptr, nbody, nv, w, m
):  # fmt: skip
    """Joint forces of the wrenches (force, torque) applied to bodies at their centres of mass."""
    for body in range(nbody):
        force, torque = load3(xfrc_applied, 2 * body, w, m), load3(xfrc_applied, 2 * body + 1, w, m)
        root = tl.load(body_ptr + body * BODY + ROOT)
        arm = sub(load3(xipos, body, w, m), load3(subtree_com, root, w, m))
        store6(wrench, body, w, m, (add(torque, cross(arm, force)), force))
    to_dofs(wrench, cdof, out, body_ptr, dof_ptr, nbody, nv, w, m)


@triton.jit
def _actuation_kernel(
    # in: state and inputs
    qpos, qvel, act, ctrl, qfrc_applied, xfrc_applied,
    # in: forces so far and poses
    qfrc_passive, qfrc_bias, qfrc_gravcomp, xipos, subtree_com, cdof,
    # in: parameters
    gear, gainprm, biasprm, dynprm, ctrlrange, forcerange, actrange, jnt_actfrcrange,
    unit_length, unit_moment, tendon_range,
    # out
    length, velocity, act_dot, actuator_force, joint, smooth,
    # scratch
    wrench,
    # tables and sizes
    actuator_ptr, lists_ptr, limited_ptr, compensated_ptr, act_ptr, body_ptr, dof_ptr,
    nu, na, nv, nbody, ntendon, DT: tl.constexpr, CLAMP: tl.constexpr, ON: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Force = gain(l, v) * input + bias(l, v), clamped; joint forces are moment' force, clamped.

    Then qfrc_smooth = passive - bias + actuators + applied. Source: MuJoCo manual, Computation,
    Actuation model.
    """
    w, m = worlds_of(n_world, BLOCK)
    zero = zeros(smooth, w)
    for dof in range(nv):
        store(joint, dof, w, m, zero)
    for a in range(na):
        rate = zero
        if ON:
            u = tl.load(act_ptr + a * ACT + OWNER)
            control = _control(u, actuator_ptr + u * ACTUATOR, ctrl, ctrlrange, w, m, CLAMP)
            rate = activation_rate(act, control, a, dynprm, act_ptr, w, m)
        store(act_dot, a, w, m, rate)
    for u in range(nu):
        row = actuator_ptr + u * ACTUATOR
        _transmission(
            u, row, lists_ptr, qpos, qvel, gear, unit_length, unit_moment, length, velocity, nu,
            nv, w, m,
        )  # fmt: skip
        force = zero
        if ON:
            value, a = _control(u, row, ctrl, ctrlrange, w, m, CLAMP), tl.load(row + INPUT)
            if a >= 0:
                value = load(act, a, w, m)
                if tl.load(act_ptr + a * ACT + EARLY) == 1:
                    rate = load(act_dot, a, w, m)
                    value = next_activation(act, rate, a, dynprm, actrange, act_ptr, w, m, DT, ON)
            force = _force(u, row, value, length, velocity, gainprm, biasprm, w, m)
        else:
            store(velocity, u, w, m, zero)
        store(actuator_force, u, w, m, force)
    if ON:
        for t in range(ntendon):
            _limit_tendon(t, actuator_force, tendon_range, actuator_ptr, nu, w, m)
        for u in range(nu):
            row = actuator_ptr + u * ACTUATOR
            force = load(actuator_force, u, w, m)
            if tl.load(row + FORCE_LIMIT) == 1:
                force = tl.maximum(force, load(forcerange, 2 * u, w, m))
                force = tl.minimum(force, load(forcerange, 2 * u + 1, w, m))
            store(actuator_force, u, w, m, force)
            _push(u, row, lists_ptr, force, qpos, gear, unit_moment, joint, nv, w, m)
    _applied(
        xfrc_applied, xipos, subtree_com, cdof, wrench, smooth, body_ptr, dof_ptr, nbody, nv, w, m
    )
    for dof in range(nv):
        force = load(joint, dof, w, m)
        if ON:
            if tl.load(compensated_ptr + dof) == 1:
                force += load(qfrc_gravcomp, dof, w, m)
            bounded = tl.load(limited_ptr + dof)
            if bounded >= 0:
                force = tl.maximum(force, load(jnt_actfrcrange, 2 * bounded, w, m))
                force = tl.minimum(force, load(jnt_actfrcrange, 2 * bounded + 1, w, m))
            store(joint, dof, w, m, force)
        free = load(qfrc_passive, dof, w, m) - load(qfrc_bias, dof, w, m)
        applied = load(qfrc_applied, dof, w, m) + load(smooth, dof, w, m)
        store(smooth, dof, w, m, free + force + applied)


KNOWN = frozenset(
    "length moment turn ctrl_limit force_limit joint_limit dof_joint joint_actuators tendon_range "
    "tendon_actuators enabled gain_affine gain_mask bias_affine bias_mask gravcomp pattern input "
    "act_actuator act_filter act_exact act_early act_limit act_enabled".split()
)
KNOWN_TURNS = frozenset("actuator quat is_ball in_parent place rows".split())


def has_kernel(m: Model) -> bool:
    """Whether all actuators of a model are of kinds that the kernel knows."""
    t: ActuationTables = m.derived["actuation"]
    return knows(KNOWN, t) and (t.turn is None or knows(KNOWN_TURNS, t.turn))


def actuation(m: Model, d: Data) -> Data:
    """See `alloy.ops.actuation`."""
    p: ActuationTables = m.derived["actuation"]
    t, tables, like = tree_tables(m.tree), _tables(p), d.qpos
    worlds, limits = like.shape[0], p.tendon_range
    sizes = {
        "actuator_length": m.nu, "actuator_velocity": m.nu, "act_dot": m.na,
        "actuator_force": m.nu, "qfrc_actuator": m.nv, "qfrc_smooth": m.nv,
    }  # fmt: skip
    out = {name: empty(worlds, n, like=like) for name, n in sizes.items()}
    limits = like[:1, :0] if limits is None else limits.unsqueeze(0)
    launch(
        _actuation_kernel, worlds, d.qpos, d.qvel, d.act, d.ctrl, d.qfrc_applied, d.xfrc_applied,
        d.qfrc_passive, d.qfrc_bias, d.qfrc_gravcomp, d.xipos, d.subtree_com, d.cdof,
        m.actuator_gear, m.actuator_gainprm, m.actuator_biasprm, m.actuator_dynprm,
        m.actuator_ctrlrange, m.actuator_forcerange, m.actuator_actrange, m.jnt_actfrcrange,
        p.length.unsqueeze(0), p.moment.unsqueeze(0), limits, *out.values(),
        empty(worlds, t.nbody, 6, like=like), tables.actuator, tables.lists, tables.limited,
        tables.compensated, activation_tables(p, m.na, like.device), t.body, t.dof, m.nu, m.na,
        m.nv, t.nbody, limits.shape[1], DT=m.opt.timestep, CLAMP="clampctrl" not in m.opt.disable,
        ON=m.nu > 0 and "actuation" not in m.opt.disable,
    )  # fmt: skip
    return replace(d, **out)
