"""Sensors on frames. Twin of `alloy.ops.reference.sensor`, for the kinds in KINDS.

A model with a sensor of another kind, or with one in a reference frame, keeps the reference.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

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
from alloy.ops.triton.tables import int32, table
from alloy.ops.triton.vector import add, axpy, cross, quat_mul, rotate_inv, scale, sub

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import SensorTables

KINDS = ("framepos", "framelinvel", "frameangvel", "velocimeter", "gyro", "accelerometer",
         "framequat")  # fmt: skip
POSITION, LINEAR, ANGULAR, VELOCIMETER, GYRO, ACCELEROMETER, ORIENTATION = (
    tl.constexpr(k) for k in range(7)
)
OBJECTS = ("inertia", "body", "geom", "site")
INERTIA, BODY_FRAME, GEOM, SITE = (tl.constexpr(k) for k in range(4))
# columns of the sensor table; OUT is the address in sensordata
SENSOR = tl.constexpr(6)
WHAT, OBJECT, ID, OF_BODY, ROOT_OF, OUT = (tl.constexpr(k) for k in range(6))


@triton.jit
def _frame(kind, i, poses, w, m):
    """Position and orientation of an object."""
    pos, mat = load3(poses[0], i, w, m), load9(poses[1], i, w, m)
    if kind == BODY_FRAME:
        pos, mat = load3(poses[2], i, w, m), load9(poses[3], i, w, m)
    elif kind == GEOM:
        pos, mat = load3(poses[4], i, w, m), load9(poses[5], i, w, m)
    elif kind == SITE:
        pos, mat = load3(poses[6], i, w, m), load9(poses[7], i, w, m)
    return pos, mat


@triton.jit
def _orientation(kind, i, body, xquat, quats, w, m):
    """Quaternion of an object: its body's times its own in the body."""
    quat = load4(xquat, 4 * body, w, m)
    if kind == INERTIA:
        quat = quat_mul(quat, load4(quats[0], 4 * i, w, m))
    elif kind == GEOM:
        quat = quat_mul(quat, load4(quats[1], 4 * i, w, m))
    elif kind == SITE:
        quat = quat_mul(quat, load4(quats[2], 4 * i, w, m))
    return quat


@triton.jit
def _acceleration(body, motion, gravity, moves_ptr, nv, w, m, GRAVITY: tl.constexpr):
    """Spatial acceleration of a body about its tree's centre of mass, gravity as an upward one."""
    cdof, cdof_dot, qvel, qacc = motion
    zero = zeros(qacc, w)
    turn, shift = (zero, zero, zero), (zero, zero, zero)
    if GRAVITY:
        shift = scale(-1.0, load3(gravity, 0, w, m))
    for dof in range(nv):
        if tl.load(moves_ptr + body * nv + dof) != 0:
            axis, rate = load6(cdof, dof, w, m), load6(cdof_dot, dof, w, m)
            speed, acc = load(qvel, dof, w, m), load(qacc, dof, w, m)
            turn = axpy(acc, axis[0], axpy(speed, rate[0], turn))
            shift = axpy(acc, axis[1], axpy(speed, rate[1], shift))
    return turn, shift


@triton.jit
def _sensor_kernel(
    # in: poses and motion
    xipos, ximat, xpos, xmat, geom_xpos, geom_xmat, site_xpos, site_xmat, xquat,
    body_iquat, geom_quat, site_quat, subtree_com, cvel, cdof, cdof_dot, qvel, qacc, gravity,
    # in: least and largest value of each entry
    low, high,
    # out
    sensordata,
    # tables and sizes
    sensor_ptr, moves_ptr, nv, GRAVITY: tl.constexpr, CUTOFF: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """One sensor per program. Source: MuJoCo's mj_sensorPos, mj_sensorVel, mj_sensorAcc."""
    w, m = worlds_of(n_world, BLOCK)
    row = sensor_ptr + tl.program_id(1) * SENSOR
    what, kind, i = tl.load(row + WHAT), tl.load(row + OBJECT), tl.load(row + ID)
    body, at = tl.load(row + OF_BODY), tl.load(row + OUT)
    poses = (xipos, ximat, xpos, xmat, geom_xpos, geom_xmat, site_xpos, site_xmat)
    pos, mat = _frame(kind, i, poses, w, m)
    arm = sub(pos, load3(subtree_com, tl.load(row + ROOT_OF), w, m))
    vel = load6(cvel, body, w, m)
    linear = add(vel[1], cross(vel[0], arm))
    value, last = pos, zeros(sensordata, w)
    if what == LINEAR:
        value = linear
    elif what == ANGULAR:
        value = vel[0]
    elif what == VELOCIMETER:
        value = rotate_inv(mat, linear)
    elif what == GYRO:
        value = rotate_inv(mat, vel[0])
    elif what == ACCELEROMETER:
        motion = (cdof, cdof_dot, qvel, qacc)
        acc = _acceleration(body, motion, gravity, moves_ptr, nv, w, m, GRAVITY)
        seen = add(add(acc[1], cross(acc[0], arm)), cross(vel[0], linear))
        value = rotate_inv(mat, seen)
    elif what == ORIENTATION:
        quats = (body_iquat, geom_quat, site_quat)
        quat = _orientation(kind, i, body, xquat, quats, w, m)
        value, last = (quat[0], quat[1], quat[2]), quat[3]
    for k in tl.static_range(4):
        entry = last
        if k < 3:
            entry = value[k]
        if (k < 3) | (what == ORIENTATION):
            if CUTOFF:
                entry = tl.maximum(entry, load(low, at + k, w, m))
                entry = tl.minimum(entry, load(high, at + k, w, m))
            store(sensordata, at + k, w, m, entry)


def has_kernel(t: SensorTables) -> bool:
    """Whether every sensor of a model is of a kind that the kernel knows."""
    return bool(t.groups) and all(g.kind in KINDS and g.reference is None for g in t.groups)


def sensor(m: Model, d: Data) -> Data:
    """See `alloy.ops.sensor`."""
    t: SensorTables = m.derived["sensor"]
    worlds = d.qpos.shape[0]
    rows, count = _sensor_table(t)
    low, high = (d.qpos[0, :0],) * 2 if t.cutoff is None else t.cutoff
    out = empty(worlds, m.nsensordata, like=d.qpos)
    launch(
        _sensor_kernel, worlds, d.xipos, d.ximat, d.xpos, d.xmat, d.geom_xpos, d.geom_xmat,
        d.site_xpos, d.site_xmat, d.xquat, m.body_iquat, m.geom_quat, m.site_quat, d.subtree_com,
        d.cvel, d.cdof, d.cdof_dot, d.qvel, d.qacc, m.gravity, low.unsqueeze(0),
        high.unsqueeze(0), out, rows, int32(m.tree.moves), m.nv, programs=count,
        GRAVITY="gravity" not in m.opt.disable, CUTOFF=t.cutoff is not None,
    )  # fmt: skip
    return replace(d, sensordata=out)


@lru_cache(maxsize=64)
def _sensor_table(t: SensorTables) -> tuple[Tensor, int]:
    """(sensors * SENSOR,) and how many sensors."""
    rows, start = [], 0
    for g in t.groups:
        frames = g.frames
        assert frames is not None
        width = 4 if g.kind == "framequat" else 3
        objects = [(OBJECTS.index(p.kind), i) for p in frames.parts for i in p.ids.tolist()]
        order = range(len(objects)) if frames.order is None else frames.order.tolist()
        bodies, roots = frames.body.tolist(), frames.root.tolist()
        for n, at in enumerate(order):
            rows.append((KINDS.index(g.kind), *objects[at], bodies[n], roots[n], start))
            start += width
    place = np.arange(start) if t.order is None else np.argsort(t.order.cpu().numpy())
    rows = [(*row[:5], place[row[5]]) for row in rows]
    return table(rows, t.magnetic.device), len(rows)
