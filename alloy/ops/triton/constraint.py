"""Constraint rows, a unit of rows and a block of worlds per program. Twin of the reference's.

A unit is an equality, a dof with friction loss, a limit or a contact. The grid's second axis runs
over them; a table says of each what it is, which rows are its own, and where it hangs.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from alloy.ops.triton.constraint_equality import body_drift, connect, joint, rotation_drift, weld
from alloy.ops.triton.constraint_tables import (
    AT,
    BALL_LIMIT,
    COLUMNS,
    CONNECT,
    CONTACT,
    FRICTION,
    ID,
    JOINT_EQUALITY,
    KIND,
    LIMIT,
    ONE,
    ROW,
    ROWS,
    SIDE,
    TWO,
    WELD,
    has_kernel,
    unit_tables,
)
from alloy.ops.triton.lane import (
    empty,
    launch,
    load,
    load3,
    load4,
    load6,
    load9,
    store,
    worlds_of,
    zeros,
)
from alloy.ops.triton.tables import tree_tables
from alloy.ops.triton.vector import (
    MINVAL,
    PI,
    add,
    cross,
    dot,
    half_angle,
    quat_normalize,
    scale,
    sub,
)

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

__all__ = ["has_kernel", "reference_acceleration", "rows"]


# ------------------------------------------------------------------ impedance and rows


@triton.jit
def _power(x, power, QUADRATIC: tl.constexpr):
    if QUADRATIC:
        return x * x
    return tl.where(x > 0, tl.exp(power * tl.log(tl.where(x > 0, x, 1.0))), 0.0)


@triton.jit
def _impedance(pos, efc_imp, unit, w, m, QUADRATIC: tl.constexpr):
    """Dmin + rise x^power up to mid, then dmax - fall (1 - x)^power; x is |pos| / width, at most 1.

    Source: MuJoCo manual, Computation, Solver parameters, solimp.
    """
    at = 7 * unit
    dmin, dmax = load(efc_imp, at, w, m), load(efc_imp, at + 1, w, m)
    x = tl.minimum(tl.abs(pos) * load(efc_imp, at + 2, w, m), 1.0)
    mid, power = load(efc_imp, at + 3, w, m), load(efc_imp, at + 6, w, m)
    risen = dmin + load(efc_imp, at + 4, w, m) * _power(x, power, QUADRATIC)
    falling = dmax - load(efc_imp, at + 5, w, m) * _power(1.0 - x, power, QUADRATIC)
    return tl.where(x <= mid, risen, falling)


@triton.jit
def _put_row(row, pos, imp, active, constants, out, w, m):
    """Distance, stiffness times impedance times distance, and inverse mass of a row."""
    efc_k, efc_diag = constants
    resist = tl.maximum((1.0 - imp) / imp * load(efc_diag, row, w, m), MINVAL)
    store(out[1], row, w, m, pos)
    store(out[2], row, w, m, load(efc_k, row, w, m) * imp * pos)
    store(out[3], row, w, m, tl.where(active, 1.0 / resist, 0.0))
    store(out[4], row, w, m, active)


@triton.jit
def _clear(jac, row, nv, w, m):
    zero = zeros(jac, w)
    for dof in range(nv):
        store(jac, row * nv + dof, w, m, zero)


# ------------------------------------------------------------------ limits and contacts


@triton.jit
def _limit(qpos, efc_range, jac, unit_row, row, nv, w, m):
    """Distance to the nearer bound, or to the one of its side; J writes before it is masked."""
    index, side = tl.load(unit_row + ID), tl.load(unit_row + SIDE)
    q = load(qpos, tl.load(unit_row + ONE), w, m)
    below = q - load(efc_range, 2 * index, w, m)
    above = load(efc_range, 2 * index + 1, w, m) - q
    is_low = ((side == 0) & (below < above)) | ((side > 0) & m)
    store(jac, row * nv + tl.load(unit_row + AT), w, m, tl.where(is_low, 1.0, -1.0))
    return tl.where(is_low, below, above)


@triton.jit
def _ball_limit(qpos, jnt_range, jac, unit_row, row, nv, w, m):
    """Largest angle less the joint's angle from its reference; J is minus the axis."""
    q = quat_normalize(load4(qpos, tl.load(unit_row + ONE), w, m))
    norm = tl.sqrt(q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    angle = 2.0 * half_angle(norm, q[0])
    wrapped = tl.where(angle > PI, angle - 2.0 * PI, angle)
    short = norm < MINVAL
    size = tl.where(wrapped < 0, 1.0, -1.0) / tl.where(short, 1.0, norm)
    at = row * nv + tl.load(unit_row + AT)
    store(jac, at, w, m, size * tl.where(short, 1.0, q[1]))
    store(jac, at + 1, w, m, size * tl.where(short, 0.0, q[2]))
    store(jac, at + 2, w, m, size * tl.where(short, 0.0, q[3]))
    joint_id = 2 * tl.load(unit_row + ID)
    most = tl.maximum(load(jnt_range, joint_id, w, m), load(jnt_range, joint_id + 1, w, m))
    return most - tl.abs(wrapped)


@triton.jit
def _contact_jacobian(
    contact_pos, contact_frame, subtree_com, cdof, jac, unit_row, move_ptr, active, nv, w, m
):  # fmt: skip
    """Rows of a contact: velocities along the frame's axes, then rotations about them.

    The sides are trees; move says how much of a dof's motion the second geom has more of.
    """
    row, rows = tl.load(unit_row + ROW), tl.load(unit_row + ROWS)
    slot, at = tl.load(unit_row + ID), move_ptr + tl.load(unit_row + AT)
    point, frame = load3(contact_pos, slot, w, m), load9(contact_frame, slot, w, m)
    one = sub(point, load3(subtree_com, tl.load(unit_row + ONE), w, m))
    two = sub(point, load3(subtree_com, tl.load(unit_row + TWO), w, m))
    zero = zeros(jac, w)
    for dof in range(nv):
        first, second = tl.load(at + dof), tl.load(at + nv + dof)
        speed, turn = (zero, zero, zero), (zero, zero, zero)
        if (first != 0) | (second != 0):
            axis = load6(cdof, dof, w, m)
            turn = scale(first + second, axis[0])
            arm = add(scale(first, one), scale(second, two))
            speed = add(scale(first + second, axis[1]), cross(axis[0], arm))
        for k in tl.static_range(3):
            if rows > k:
                value = tl.where(active, dot(frame[k], speed), 0.0)
                store(jac, (row + k) * nv + dof, w, m, value)
            if rows > k + 3:
                value = tl.where(active, dot(frame[k], turn), 0.0)
                store(jac, (row + k + 3) * nv + dof, w, m, value)


# ------------------------------------------------------------------ the stage


@triton.jit
def _rows_kernel(
    # in: state and poses
    qpos, qpos0, eq_active, xpos, xquat, xmat, subtree_com, cdof, contact_dist, contact_pos,
    contact_frame,
    # in: parameters
    eq_data, dof_frictionloss, jnt_range, efc_range, efc_margin, efc_imp, efc_k, efc_diag,
    # out
    jac, pos, kip, d, active,
    # tables and sizes
    unit_ptr, move_ptr, dof_root_ptr, nv, HAS: tl.constexpr, QUADRATIC: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """J, efc_pos = distance - margin, K imp pos and D = 1 / R, R = (1 - imp) / imp diag.

    Source: MuJoCo manual, Computation, Constraint model.
    """
    w, m = worlds_of(n_world, BLOCK)
    unit = tl.program_id(1)
    unit_row = unit_ptr + unit * COLUMNS
    kind, row, rows = tl.load(unit_row + KIND), tl.load(unit_row + ROW), tl.load(unit_row + ROWS)
    out, constants = (jac, pos, kip, d, active), (efc_k, efc_diag)
    bodies = (xpos, xquat, xmat, subtree_com, cdof)
    distance = zeros(pos, w)
    is_active = w < 0
    if kind != CONTACT:
        for k in range(rows):
            _clear(jac, row + k, nv, w, m)
    # distances of equalities are noted row by row, and J as if it were active
    if HAS[CONNECT]:
        if kind == CONNECT:
            distance = connect(
                bodies, eq_data, jac, pos, unit_row, move_ptr, dof_root_ptr, nv, w, m
            )
    if HAS[WELD]:
        if kind == WELD:
            distance = weld(bodies, eq_data, jac, pos, unit_row, move_ptr, dof_root_ptr, nv, w, m)
    if HAS[JOINT_EQUALITY]:
        if kind == JOINT_EQUALITY:
            distance = joint(qpos, qpos0, eq_data, jac, pos, unit_row, nv, w, m)
    if HAS[FRICTION]:
        if kind == FRICTION:
            store(jac, row * nv + tl.load(unit_row + AT), w, m, zeros(jac, w) + 1.0)
    if HAS[LIMIT]:
        if kind == LIMIT:
            distance = _limit(qpos, efc_range, jac, unit_row, row, nv, w, m)
    if HAS[BALL_LIMIT]:
        if kind == BALL_LIMIT:
            distance = _ball_limit(qpos, jnt_range, jac, unit_row, row, nv, w, m)
    if kind == CONTACT:
        distance = load(contact_dist, tl.load(unit_row + ID), w, m)
    distance -= load(efc_margin, unit, w, m)
    imp = _impedance(distance, efc_imp, unit, w, m, QUADRATIC)
    if kind < FRICTION:
        is_active = load(eq_active, tl.load(unit_row + ID), w, m) != 0
    elif kind == FRICTION:
        is_active = load(dof_frictionloss, tl.load(unit_row + AT), w, m) > 0
    else:
        is_active = distance < 0
    for k in range(rows):
        value = distance
        if kind < FRICTION:
            value = load(pos, row + k, w, m)
        elif k > 0:
            value = 0.0 * distance
        _put_row(row + k, value, imp, is_active, constants, out, w, m)
    if kind == CONTACT:
        _contact_jacobian(
            contact_pos, contact_frame, subtree_com, cdof, jac, unit_row, move_ptr, is_active,
            nv, w, m,
        )  # fmt: skip
    else:
        for at in range(row * nv, (row + rows) * nv):
            store(jac, at, w, m, tl.where(is_active, load(jac, at, w, m), 0.0))


def rows(m: Model, d: Data) -> Data:
    """See `alloy.ops.rows`."""
    worlds, like = d.qpos.shape[0], d.qpos
    t = unit_tables(m.efc, m.tree)
    out = {name: empty(worlds, m.nefc, like=like) for name in ("efc_pos", "efc_kip", "efc_D")}
    out["efc_active"] = empty(worlds, m.nefc, like=like, dtype=torch.bool)
    jac = empty(worlds, m.nefc, m.nv, like=like)
    launch(
        _rows_kernel, worlds, d.qpos, m.qpos0, d.eq_active, d.xpos, d.xquat, d.xmat,
        d.subtree_com, d.cdof, d.contact_dist, d.contact_pos, d.contact_frame, m.eq_data,
        m.dof_frictionloss, m.jnt_range, m.efc_range, m.efc_margin, m.efc_imp, m.efc_k, m.efc_diag,
        jac, *out.values(), t.unit, t.move, t.dof_root, m.nv, programs=m.nunit, HAS=t.has,
        QUADRATIC=m.efc.quadratic_imp,
    )  # fmt: skip
    return replace(d, efc_J=jac, **out)


@triton.jit
def _reference_kernel(
    # in
    qvel, efc_b, jac, kip, active, eq_data, xpos, xquat, xmat, subtree_com, cvel, cdof_dot,
    # out
    aref,
    # tables and sizes
    unit_ptr, move_ptr, body_ptr, nv, HAS: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Aref = -(K imp pos + B J qvel) - Jdot qvel, zero where the row is not active.

    Only connect and weld rows drift. Source: MuJoCo manual, Computation, Reference.
    """
    w, m = worlds_of(n_world, BLOCK)
    unit_row = unit_ptr + tl.program_id(1) * COLUMNS
    kind, row, rows = tl.load(unit_row + KIND), tl.load(unit_row + ROW), tl.load(unit_row + ROWS)
    zero = zeros(aref, w)
    for k in range(rows):
        speed = zero
        for dof in range(nv):
            speed += load(jac, (row + k) * nv + dof, w, m) * load(qvel, dof, w, m)
        value = -(load(kip, row + k, w, m) + load(efc_b, row + k, w, m) * speed)
        store(aref, row + k, w, m, value)
    bodies = (xpos, xquat, xmat, subtree_com, cvel, cdof_dot, qvel)
    if HAS[CONNECT] or HAS[WELD]:
        if kind <= WELD:
            drift = body_drift(bodies, eq_data, unit_row, move_ptr, body_ptr, nv, w, m)
            for j in tl.static_range(3):
                store(aref, row + j, w, m, load(aref, row + j, w, m) - drift[j])
    if HAS[WELD]:
        if kind == WELD:
            drift = rotation_drift(bodies, eq_data, unit_row, move_ptr, nv, w, m)
            for j in tl.static_range(3):
                store(aref, row + 3 + j, w, m, load(aref, row + 3 + j, w, m) - drift[j])
    for k in range(rows):
        value = tl.where(load(active, row + k, w, m) != 0, load(aref, row + k, w, m), 0.0)
        store(aref, row + k, w, m, value)


def reference_acceleration(m: Model, d: Data) -> Data:
    """See `alloy.ops.reference_acceleration`."""
    worlds, t = d.qvel.shape[0], unit_tables(m.efc, m.tree)
    aref = empty(worlds, m.nefc, like=d.qvel)
    launch(
        _reference_kernel, worlds, d.qvel, m.efc_b, d.efc_J, d.efc_kip, d.efc_active, m.eq_data,
        d.xpos, d.xquat, d.xmat, d.subtree_com, d.cvel, d.cdof_dot, aref, t.unit, t.move,
        tree_tables(m.tree).body, m.nv, programs=m.nunit, HAS=t.has,
    )  # fmt: skip
    return replace(d, efc_aref=aref)
