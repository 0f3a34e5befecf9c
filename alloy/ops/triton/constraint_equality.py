"""Rows of equality constraints, and how connect and weld rows drift."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.constraint_tables import AT, ID, ONE, ROW, SIDE, TWO
from alloy.ops.triton.lane import load, load3, load4, load6, load9, store, zeros
from alloy.ops.triton.tables import BODY, ROOT
from alloy.ops.triton.vector import add, axpy, cross, dot, quat_conj, quat_mul, rotate, scale, sub


@triton.jit
def _anchor(xpos, xmat, body, eq_data, at, w, m):
    """World position of an anchor at address `at` of eq_data, fixed to a body."""
    local = load(eq_data, at, w, m), load(eq_data, at + 1, w, m), load(eq_data, at + 2, w, m)
    return add(load3(xpos, body, w, m), rotate(load9(xmat, body, w, m), local))


@triton.jit
def _point_rows(one, two, subtree_com, cdof, jac, row, at, dof_root_ptr, nv, w, m):
    """J of point one on object 1 less point two on object 2, three rows."""
    for dof in range(nv):
        first, second = tl.load(at + dof), tl.load(at + nv + dof)
        if (first != 0) | (second != 0):
            com = load3(subtree_com, tl.load(dof_root_ptr + dof), w, m)
            axis = load6(cdof, dof, w, m)
            arm = sub(scale(first, sub(one, com)), scale(second, sub(two, com)))
            speed = add(scale(first - second, axis[1]), cross(axis[0], arm))
            for k in tl.static_range(3):
                store(jac, (row + k) * nv + dof, w, m, speed[k])


@triton.jit
def connect(bodies, eq_data, jac, pos, unit_row, move_ptr, dof_root_ptr, nv, w, m):
    """Three rows: anchor on body 1 less anchor on body 2. Returns their distance."""
    xpos, xquat, xmat, subtree_com, cdof = bodies
    row, at, data = tl.load(unit_row + ROW), tl.load(unit_row + AT), 11 * tl.load(unit_row + ID)
    one = _anchor(xpos, xmat, tl.load(unit_row + ONE), eq_data, data, w, m)
    two = _anchor(xpos, xmat, tl.load(unit_row + TWO), eq_data, data + 3, w, m)
    _point_rows(one, two, subtree_com, cdof, jac, row, move_ptr + at, dof_root_ptr, nv, w, m)
    error = sub(one, two)
    for k in tl.static_range(3):
        store(pos, row + k, w, m, error[k])
    return tl.sqrt(dot(error, error))


@triton.jit
def _frame(xquat, unit_row, eq_data, data, w, m):
    """Quaternion q1 * relquat of a weld, and the inverse of q2."""
    quat = quat_mul(load4(xquat, 4 * tl.load(unit_row + ONE), w, m), load4(eq_data, data + 6, w, m))
    return quat, quat_conj(load4(xquat, 4 * tl.load(unit_row + TWO), w, m))


@triton.jit
def weld(bodies, eq_data, jac, pos, unit_row, move_ptr, dof_root_ptr, nv, w, m):
    """As connect, and three rows of rotation: scale times the vector part of q2^-1 q1 relquat.

    Their rate is scale / 2 q2^-1 w q1 relquat. Source: MuJoCo manual, Equality, weld.
    """
    xpos, xquat, xmat, subtree_com, cdof = bodies
    row, data = tl.load(unit_row + ROW), 11 * tl.load(unit_row + ID)
    at = move_ptr + tl.load(unit_row + AT)
    one = _anchor(xpos, xmat, tl.load(unit_row + ONE), eq_data, data + 3, w, m)
    two = _anchor(xpos, xmat, tl.load(unit_row + TWO), eq_data, data, w, m)
    _point_rows(one, two, subtree_com, cdof, jac, row, at, dof_root_ptr, nv, w, m)
    quat, back = _frame(xquat, unit_row, eq_data, data, w, m)
    size, zero = load(eq_data, data + 10, w, m), zeros(pos, w)
    turned = quat_mul(back, quat)
    error = sub(one, two)
    square = dot(error, error)
    for k in tl.static_range(3):
        store(pos, row + k, w, m, error[k])
        store(pos, row + 3 + k, w, m, size * turned[k + 1])
        square += (size * turned[k + 1]) * (size * turned[k + 1])
    for dof in range(nv):
        share = tl.load(at + dof) - tl.load(at + nv + dof)
        if share != 0:
            turn = scale(share, load3(cdof, 2 * dof, w, m))
            rate = quat_mul(quat_mul(back, (zero, turn[0], turn[1], turn[2])), quat)
            for k in tl.static_range(3):
                store(jac, (row + 3 + k) * nv + dof, w, m, 0.5 * size * rate[k + 1])
    return tl.sqrt(square)


@triton.jit
def joint(qpos, qpos0, eq_data, jac, pos, unit_row, nv, w, m):
    """One row: q1 - q1_0 less a polynomial of q2 - q2_0; its constant where there is no joint 2."""
    row, data = tl.load(unit_row + ROW), 11 * tl.load(unit_row + ID)
    one, two = tl.load(unit_row + ONE), tl.load(unit_row + TWO)
    dof, other = tl.load(unit_row + AT), tl.load(unit_row + SIDE)
    x = zeros(pos, w)
    if other >= 0:
        x = load(qpos, two, w, m) - load(qpos0, two, w, m)
    c1, c2 = load(eq_data, data + 1, w, m), load(eq_data, data + 2, w, m)
    c3, c4 = load(eq_data, data + 3, w, m), load(eq_data, data + 4, w, m)
    value = load(eq_data, data, w, m) + x * (c1 + x * (c2 + x * (c3 + x * c4)))
    error = load(qpos, one, w, m) - load(qpos0, one, w, m) - value
    store(pos, row, w, m, error)
    store(jac, row * nv + dof, w, m, zeros(jac, w) + 1.0)
    if other >= 0:
        slope = c1 + x * (2.0 * c2 + x * (3.0 * c3 + x * 4.0 * c4))
        store(jac, row * nv + other, w, m, -slope)
    return tl.abs(error)


# ------------------------------------------------------------------ drift


@triton.jit
def _body_acceleration(cdof_dot, qvel, at, nv, w, m):
    """Spatial acceleration of a body at qacc = 0: sum of cdof_dot qvel over its dofs."""
    zero = zeros(qvel, w)
    turn, shift = (zero, zero, zero), (zero, zero, zero)
    for dof in range(nv):
        if tl.load(at + dof) != 0:
            rate, speed = load6(cdof_dot, dof, w, m), load(qvel, dof, w, m)
            turn, shift = axpy(speed, rate[0], turn), axpy(speed, rate[1], shift)
    return turn, shift


@triton.jit
def _point_drift(bodies, body, eq_data, data, at, body_ptr, nv, w, m):
    """Acceleration at qacc = 0 of an anchor fixed to a body."""
    xpos, xquat, xmat, subtree_com, cvel, cdof_dot, qvel = bodies
    point = _anchor(xpos, xmat, body, eq_data, data, w, m)
    arm = sub(point, load3(subtree_com, tl.load(body_ptr + body * BODY + ROOT), w, m))
    vel, acc = load6(cvel, body, w, m), _body_acceleration(cdof_dot, qvel, at, nv, w, m)
    speed = add(vel[1], cross(vel[0], arm))
    return add(add(acc[1], cross(acc[0], arm)), cross(vel[0], speed))


@triton.jit
def body_drift(bodies, eq_data, unit_row, move_ptr, body_ptr, nv, w, m):
    """Jdot qvel of the rows of anchors; a weld (unit kind 1) keeps its anchors the other way."""
    swap = 3 * tl.load(unit_row)
    at, data = move_ptr + tl.load(unit_row + AT), 11 * tl.load(unit_row + ID)
    one, two = tl.load(unit_row + ONE), tl.load(unit_row + TWO)
    return sub(
        _point_drift(bodies, one, eq_data, data + swap, at, body_ptr, nv, w, m),
        _point_drift(bodies, two, eq_data, data + 3 - swap, at + nv, body_ptr, nv, w, m),
    )


@triton.jit
def rotation_drift(bodies, eq_data, unit_row, move_ptr, nv, w, m):
    """Jdot qvel of a weld's rotation: derivative of scale / 2 q2^-1 w q1 relquat at qacc = 0."""
    xpos, xquat, xmat, subtree_com, cvel, cdof_dot, qvel = bodies
    at, data = move_ptr + tl.load(unit_row + AT), 11 * tl.load(unit_row + ID)
    zero = zeros(qvel, w)
    a = load3(cvel, 2 * tl.load(unit_row + ONE), w, m)
    b = load3(cvel, 2 * tl.load(unit_row + TWO), w, m)
    one = _body_acceleration(cdof_dot, qvel, at, nv, w, m)
    two = _body_acceleration(cdof_dot, qvel, at + nv, nv, w, m)
    alpha, c = sub(one[0], two[0]), sub(a, b)
    left = quat_mul((zero, c[0], c[1], c[2]), (zero, a[0], a[1], a[2]))
    right = quat_mul((zero, b[0], b[1], b[2]), (zero, c[0], c[1], c[2]))
    inner = (
        0.5 * (left[0] - right[0]),
        alpha[0] + 0.5 * (left[1] - right[1]),
        alpha[1] + 0.5 * (left[2] - right[2]),
        alpha[2] + 0.5 * (left[3] - right[3]),
    )
    quat, back = _frame(xquat, unit_row, eq_data, data, w, m)
    turned = quat_mul(quat_mul(back, inner), quat)
    return scale(0.5 * load(eq_data, data + 10, w, m), (turned[1], turned[2], turned[3]))
