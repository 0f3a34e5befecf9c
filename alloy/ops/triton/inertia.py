"""Centres of mass, mass matrix, velocities and bias. Twin of `alloy.ops.reference.inertia`.

The recursions are walked here: a sum over a subtree runs from the leaves to the root, a sum along
a path from the root to the leaves, each in an output or a scratch buffer that the same thread
reads back. Bodies come after their parents, so that both are plain loops.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import (
    empty,
    launch,
    load,
    load3,
    load6,
    load9,
    store,
    store3,
    store6,
    store9,
    worlds_of,
    zeros,
)
from alloy.ops.triton.tables import (
    BALL,
    BODY,
    DOF,
    DOF_AXIS,
    DOF_BODY,
    DOF_JOINT,
    DOF_KIND,
    DOF_STARTS,
    DOF_STILL,
    DOFS,
    FIRST_DOF,
    FREE,
    HINGE,
    PARENT,
    ROOT,
    tree_tables,
)
from alloy.ops.triton.vector import (
    MINVAL,
    add,
    axpy,
    compose,
    cross,
    cross_force,
    cross_motion,
    dot,
    rotate,
    scale,
    sub,
)

if TYPE_CHECKING:
    from alloy.physics.tree import Tree


# ------------------------------------------------------------------ centres of mass


@triton.jit
def _spatial_inertia(rows, moments, mass, r):
    """Inertia about the tree's centre of mass, six numbers: R diag(I) R' + mass (r'r 1 - r r')."""
    square = dot(r, r)
    a = (rows[0][0] * moments[0], rows[0][1] * moments[1], rows[0][2] * moments[2])
    b = (rows[1][0] * moments[0], rows[1][1] * moments[1], rows[1][2] * moments[2])
    c = (rows[2][0] * moments[0], rows[2][1] * moments[1], rows[2][2] * moments[2])
    return (
        dot(a, rows[0]) + mass * (square - r[0] * r[0]),
        dot(b, rows[1]) + mass * (square - r[1] * r[1]),
        dot(c, rows[2]) + mass * (square - r[2] * r[2]),
        dot(a, rows[1]) - mass * (r[0] * r[1]),
        dot(a, rows[2]) - mass * (r[0] * r[2]),
        dot(b, rows[2]) - mass * (r[1] * r[2]),
    )


@triton.jit
def _dof_axes(xmat, xanchor, xaxis, subtree_com, cdof, body_ptr, dof_ptr, dof, w, m):
    """Motion axis of a dof about the tree's centre of mass."""
    row = dof_ptr + dof * DOF
    body, joint = tl.load(row + DOF_BODY), tl.load(row + DOF_JOINT)
    kind, k = tl.load(row + DOF_KIND), tl.load(row + DOF_AXIS)
    root = tl.load(body_ptr + body * BODY + ROOT)
    arm = sub(load3(subtree_com, root, w, m), load3(xanchor, joint, w, m))
    zero = zeros(cdof, w)
    nothing = (zero, zero, zero)
    axis = load3(xaxis, joint, w, m)
    if tl.load(row + DOF_STILL) == 1:
        unit = (zero + (k == 0), zero + (k == 1), zero + (k == 2))
        store6(cdof, dof, w, m, (nothing, unit))
    elif (kind == HINGE) | (kind == BALL) | (kind == FREE):
        if kind != HINGE:
            at = 9 * body + k
            axis = load(xmat, at, w, m), load(xmat, at + 3, w, m), load(xmat, at + 6, w, m)
        store6(cdof, dof, w, m, (axis, cross(axis, arm)))
    else:
        store6(cdof, dof, w, m, (nothing, axis))


@triton.jit
def centres(
    # in
    xpos, xmat, xanchor, xaxis, body_ipos, body_imat, body_mass, body_subtreemass, body_inertia,
    # out
    xipos, ximat, subtree_com, cinert, cdof,
    # tables and sizes
    body_ptr, dof_ptr, nbody, nv, w, m,
):  # fmt: skip
    """Subtree_com = sum of m x / sum of m; cinert by the parallel axes; cdof = (a, a x (com - p)).

    Source: Featherstone (2008), sections 2.13 and 5.3; MuJoCo's mj_comPos.
    """
    for body in range(nbody):
        mat = load9(xmat, body, w, m)
        pos = add(load3(xpos, body, w, m), rotate(mat, load3(body_ipos, body, w, m)))
        store3(xipos, body, w, m, pos)
        store9(ximat, body, w, m, compose(mat, load9(body_imat, body, w, m)))
        store3(subtree_com, body, w, m, scale(load(body_mass, body, w, m), pos))
    for i in range(1, nbody):
        body = nbody - i
        parent = tl.load(body_ptr + body * BODY + PARENT)
        total = add(load3(subtree_com, parent, w, m), load3(subtree_com, body, w, m))
        store3(subtree_com, parent, w, m, total)
    for body in range(nbody):
        mass = load(body_subtreemass, body, w, m)
        pos, moment = load3(xipos, body, w, m), load3(subtree_com, body, w, m)
        light, safe = mass < MINVAL, tl.maximum(mass, MINVAL)
        for k in tl.static_range(3):
            store(subtree_com, 3 * body + k, w, m, tl.where(light, pos[k], moment[k] / safe))
    for body in range(nbody):
        root = tl.load(body_ptr + body * BODY + ROOT)
        r = sub(load3(xipos, body, w, m), load3(subtree_com, root, w, m))
        mass, moments = load(body_mass, body, w, m), load3(body_inertia, body, w, m)
        inertia = _spatial_inertia(load9(ximat, body, w, m), moments, mass, r)
        for k in tl.static_range(6):
            store(cinert, 10 * body + k, w, m, inertia[k])
        for k in tl.static_range(3):
            store(cinert, 10 * body + 6 + k, w, m, mass * r[k])
        store(cinert, 10 * body + 9, w, m, mass)
    for dof in range(nv):
        _dof_axes(xmat, xanchor, xaxis, subtree_com, cdof, body_ptr, dof_ptr, dof, w, m)


# ------------------------------------------------------------------ mass matrix


@triton.jit
def times_inertia(cinert, body, motion, w, m):
    """Momentum of a body moving with `motion`: (I w + mr x v, mass v - mr x w) with cinert."""
    at, turn, speed = 10 * body, motion[0], motion[1]
    xx, yy, zz = load(cinert, at, w, m), load(cinert, at + 1, w, m), load(cinert, at + 2, w, m)
    xy, xz, yz = load(cinert, at + 3, w, m), load(cinert, at + 4, w, m), load(cinert, at + 5, w, m)
    mr = load(cinert, at + 6, w, m), load(cinert, at + 7, w, m), load(cinert, at + 8, w, m)
    inertia = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))
    rotation = add(rotate(inertia, turn), cross(mr, speed))
    return rotation, sub(scale(load(cinert, at + 9, w, m), speed), cross(mr, turn))


@triton.jit
def _mass_matrix_kernel(
    # in
    cinert, cdof, dof_armature,
    # out
    mass,
    # scratch
    crb,
    # tables and sizes
    body_ptr, dof_ptr, above_ptr, nbody, nv, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """M_ij = cdof_j . I_i cdof_i for j above i, I_i the inertia of the subtree of i's body.

    Source: Featherstone (2008), section 6.2, composite rigid bodies.
    """
    w, m = worlds_of(n_world, BLOCK)
    for k in range(10 * nbody):
        store(crb, k, w, m, load(cinert, k, w, m))
    for i in range(1, nbody):
        body = nbody - i
        parent = tl.load(body_ptr + body * BODY + PARENT)
        for k in range(10):
            total = load(crb, 10 * parent + k, w, m) + load(crb, 10 * body + k, w, m)
            store(crb, 10 * parent + k, w, m, total)
    zero = zeros(mass, w)
    for i in range(nv):
        motion = load6(cdof, i, w, m)
        momentum = times_inertia(crb, tl.load(dof_ptr + i * DOF + DOF_BODY), motion, w, m)
        for j in range(i):
            value = zero
            if tl.load(above_ptr + i * nv + j) == 1:
                other = load6(cdof, j, w, m)
                value = dot(other[0], momentum[0]) + dot(other[1], momentum[1])
            store(mass, i * nv + j, w, m, value)
            store(mass, j * nv + i, w, m, value)
        value = dot(motion[0], momentum[0]) + dot(motion[1], momentum[1])
        store(mass, i * nv + i, w, m, value + load(dof_armature, i, w, m))


def mass_matrix(cinert: Tensor, cdof: Tensor, dof_armature: Tensor, tree: Tree) -> Tensor:
    """See `alloy.ops.mass_matrix`."""
    worlds, t = cinert.shape[0], tree_tables(tree)
    out = empty(worlds, t.nv, t.nv, like=cinert)
    crb = empty(worlds, t.nbody, 10, like=cinert)
    launch(
        _mass_matrix_kernel, worlds, cinert, cdof, dof_armature, out, crb,
        t.body, t.dof, t.above, t.nbody, t.nv,
    )  # fmt: skip
    return out


# ------------------------------------------------------------------ velocity and bias


@triton.jit
def velocities(cdof, qvel, cvel, cdof_dot, body_ptr, dof_ptr, nbody, w, m):
    """Cvel = sum of cdof qvel along the path; cdof_dot = (velocity before the joint) x cdof.

    The axes of a ball joint turn together, those of a free joint's translation not at all.
    Source: MuJoCo's mj_comVel.
    """
    zero = zeros(cvel, w)
    nothing = ((zero, zero, zero), (zero, zero, zero))
    store6(cvel, 0, w, m, nothing)
    for body in range(1, nbody):
        row = body_ptr + body * BODY
        vel = load6(cvel, tl.load(row + PARENT), w, m)
        before = vel
        first = tl.load(row + FIRST_DOF)
        for dof in range(first, first + tl.load(row + DOFS)):
            axis, speed = load6(cdof, dof, w, m), load(qvel, dof, w, m)
            if tl.load(dof_ptr + dof * DOF + DOF_STARTS) == 1:
                before = vel
            if tl.load(dof_ptr + dof * DOF + DOF_STILL) == 1:
                store6(cdof_dot, dof, w, m, nothing)
            else:
                store6(cdof_dot, dof, w, m, cross_motion(before, axis))
            vel = axpy(speed, axis[0], vel[0]), axpy(speed, axis[1], vel[1])
        store6(cvel, body, w, m, vel)


@triton.jit
def to_dofs(force, cdof, out, body_ptr, dof_ptr, nbody, nv, w, m):
    """Out = cdof . sum of the forces (W, nbody, 6) on the subtree, which are summed in place."""
    for i in range(1, nbody):
        body = nbody - i
        parent = tl.load(body_ptr + body * BODY + PARENT)
        upper, lower = load6(force, parent, w, m), load6(force, body, w, m)
        store6(force, parent, w, m, (add(upper[0], lower[0]), add(upper[1], lower[1])))
    for dof in range(nv):
        axis = load6(cdof, dof, w, m)
        total = load6(force, tl.load(dof_ptr + dof * DOF + DOF_BODY), w, m)
        store(out, dof, w, m, dot(axis[0], total[0]) + dot(axis[1], total[1]))


@triton.jit
def bias_forces(
    # in
    cinert, cdof, cdof_dot, cvel, qvel, gravity,
    # out
    qfrc_bias,
    # scratch
    cacc, cfrc,
    # tables and sizes
    body_ptr, dof_ptr, nbody, nv, w, m, GRAVITY: tl.constexpr,
):  # fmt: skip
    """Bias_i = cdof_i . sum over the subtree of (I a + v x* I v), a the acceleration at qacc = 0.

    Source: Featherstone (2008), section 5.3, recursive Newton-Euler; MuJoCo's mj_rne.
    """
    zero = zeros(cacc, w)
    nothing = (zero, zero, zero)
    up = nothing
    if GRAVITY:
        up = scale(-1.0, load3(gravity, 0, w, m))
    store6(cacc, 0, w, m, (nothing, up))
    store6(cfrc, 0, w, m, (nothing, nothing))
    for body in range(1, nbody):
        row = body_ptr + body * BODY
        acc = load6(cacc, tl.load(row + PARENT), w, m)
        first = tl.load(row + FIRST_DOF)
        for dof in range(first, first + tl.load(row + DOFS)):
            turn, speed = load6(cdof_dot, dof, w, m), load(qvel, dof, w, m)
            acc = axpy(speed, turn[0], acc[0]), axpy(speed, turn[1], acc[1])
        store6(cacc, body, w, m, acc)
        vel = load6(cvel, body, w, m)
        force = times_inertia(cinert, body, acc, w, m)
        gyroscopic = cross_force(vel, times_inertia(cinert, body, vel, w, m))
        store6(cfrc, body, w, m, (add(force[0], gyroscopic[0]), add(force[1], gyroscopic[1])))
    to_dofs(cfrc, cdof, qfrc_bias, body_ptr, dof_ptr, nbody, nv, w, m)
