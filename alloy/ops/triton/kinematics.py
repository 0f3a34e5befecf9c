"""Forward kinematics, body by body. Twin of `alloy.ops.reference.kinematics`, for `smooth`."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

from alloy.ops.triton.lane import (
    load,
    load3,
    load4,
    load9,
    store,
    store3,
    store9,
)
from alloy.ops.triton.tables import (
    BALL,
    BODY,
    FIRST_JOINT,
    FREE,
    JOINT,
    JOINTS,
    KIND,
    MOCAP,
    PARENT,
    QPOS,
    SLIDE,
)
from alloy.ops.triton.vector import (
    add,
    axpy,
    compose,
    quat_from_axis_angle,
    quat_mul,
    quat_normalize,
    quat_to_mat,
    rotate,
    sub,
)


@triton.jit
def _store_body(xpos, xquat, xmat, body, w, m, pos, quat):
    store3(xpos, body, w, m, pos)
    store9(xmat, body, w, m, quat_to_mat(quat))
    for k in tl.static_range(4):
        store(xquat, 4 * body + k, w, m, quat[k])


@triton.jit
def _move(joint_ptr, joint, qpos, qpos0, jnt_pos, jnt_axis, w, m, pos, quat):
    """Pose of a body after one of its joints, and that joint's anchor and axis in the world."""
    kind, adr = tl.load(joint_ptr + joint * JOINT + KIND), tl.load(joint_ptr + joint * JOINT + QPOS)
    offset, axis = load3(jnt_pos, joint, w, m), load3(jnt_axis, joint, w, m)
    mat = quat_to_mat(quat)
    anchor, direction = add(pos, rotate(mat, offset)), rotate(mat, axis)
    if kind == FREE:
        pos = load(qpos, adr, w, m), load(qpos, adr + 1, w, m), load(qpos, adr + 2, w, m)
        quat = quat_normalize(load4(qpos, adr + 3, w, m))
        anchor, direction = pos, rotate(quat_to_mat(quat), axis)
    elif kind == SLIDE:
        pos = axpy(load(qpos, adr, w, m) - load(qpos0, adr, w, m), direction, pos)
    else:
        if kind == BALL:
            turn = quat_normalize(load4(qpos, adr, w, m))
        else:
            turn = quat_from_axis_angle(axis, load(qpos, adr, w, m) - load(qpos0, adr, w, m))
        quat = quat_mul(quat, turn)
        mat = quat_to_mat(quat)
        pos, direction = sub(anchor, rotate(mat, offset)), rotate(mat, axis)
    return pos, quat, anchor, direction


@triton.jit
def walk(
    # in
    qpos, qpos0, mocap_pos, mocap_quat, body_pos, body_quat, jnt_pos, jnt_axis,
    # out
    xpos, xquat, xmat, xanchor, xaxis,
    # tables and sizes
    body_ptr, joint_ptr, nbody, w, m,
):  # fmt: skip
    """X_body = X_parent * offset * product of the joints' motions.

    A slide moves along its axis, a hinge or ball turns about its anchor, a free joint is the pose
    itself. Source: MuJoCo manual, Computation, Forward kinematics.
    """
    for k in tl.static_range(3):
        store(xpos, k, w, m, 0.0)
        for j in tl.static_range(3):
            store(xmat, 3 * k + j, w, m, 1.0 if j == k else 0.0)
    for k in tl.static_range(4):
        store(xquat, k, w, m, 1.0 if k == 0 else 0.0)
    for body in range(1, nbody):
        row = body_ptr + body * BODY
        mocap = tl.load(row + MOCAP)
        if mocap >= 0:
            pos = load3(mocap_pos, mocap, w, m)
            quat = quat_normalize(load4(mocap_quat, 4 * mocap, w, m))
        else:
            parent = tl.load(row + PARENT)
            up = load9(xmat, parent, w, m)
            pos = add(load3(xpos, parent, w, m), rotate(up, load3(body_pos, body, w, m)))
            turn = load4(body_quat, 4 * body, w, m)
            quat = quat_mul(load4(xquat, 4 * parent, w, m), turn)
        first = tl.load(row + FIRST_JOINT)
        for joint in range(first, first + tl.load(row + JOINTS)):
            pos, quat, anchor, axis = _move(
                joint_ptr, joint, qpos, qpos0, jnt_pos, jnt_axis, w, m, pos, quat
            )
            store3(xanchor, joint, w, m, anchor)
            store3(xaxis, joint, w, m, axis)
        _store_body(xpos, xquat, xmat, body, w, m, pos, quat)


@triton.jit
def attach(xpos, xmat, local_pos, local_mat, pos, mat, body_ptr, n, w, m):
    """Poses of n geoms or sites: x_body + R_body p and R_body R."""
    for i in range(n):
        body = tl.load(body_ptr + i)
        frame = load9(xmat, body, w, m)
        shift = rotate(frame, load3(local_pos, i, w, m))
        store3(pos, i, w, m, add(load3(xpos, body, w, m), shift))
        store9(mat, i, w, m, compose(frame, load9(local_mat, i, w, m)))
