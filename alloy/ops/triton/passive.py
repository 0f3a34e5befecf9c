"""Passive forces and tendons. Twin of `alloy.ops.reference.passive`."""

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

from alloy.ops.triton.inertia import to_dofs
from alloy.ops.triton.lane import (
    empty,
    launch,
    load,
    load3,
    load4,
    load6,
    load9,
    store,
    store6,
    worlds_of,
    zeros,
)
from alloy.ops.triton.tables import (
    BALL,
    BODY,
    FREE,
    JOINT,
    KIND,
    QPOS,
    QVEL,
    ROOT,
    knows,
    table,
    tree_tables,
)
from alloy.ops.triton.vector import (
    MINVAL,
    add,
    cross,
    quat_conj,
    quat_mul,
    quat_normalize,
    quat_to_rotvec,
    rotate,
    rotate_inv,
    scale,
    sub,
)

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.passive import PassiveTables
    from alloy.physics.tree import Tree

# which passive forces there are, in `HAS`
SPRING, TENDON_SPRING, DAMPER, TENDON_DAMPER, GRAVCOMP, FLUID = (tl.constexpr(k) for k in range(6))
STOKES = tl.constexpr(9.42477796076938)  # 3 pi


# ------------------------------------------------------------------ joints and tendons


@triton.jit
def _joint_springs(
    qpos, qpos_spring, jnt_stiffness, spring, joint_ptr, sprung_ptr, njnt, w, m
):  # fmt: skip
    """Stiffness times the way back to rest; of a quaternion, against its rotation vector."""
    for joint in range(njnt):
        row = joint_ptr + joint * JOINT
        kind, q, v = tl.load(row + KIND), tl.load(row + QPOS), tl.load(row + QVEL)
        stiffness = load(jnt_stiffness, joint, w, m)
        if kind == FREE:
            for k in range(3):
                away = load(qpos_spring, q + k, w, m) - load(qpos, q + k, w, m)
                store(spring, v + k, w, m, stiffness * away)
            q, v = q + 3, v + 3
        if (kind == FREE) | (kind == BALL):
            if tl.load(sprung_ptr + joint) == 1:
                rest = quat_conj(load4(qpos_spring, q, w, m))
                turn = quat_to_rotvec(quat_mul(rest, quat_normalize(load4(qpos, q, w, m))))
                for k in tl.static_range(3):
                    store(spring, v + k, w, m, -stiffness * turn[k])
        else:
            away = load(qpos_spring, q, w, m) - load(qpos, q, w, m)
            store(spring, v, w, m, stiffness * away)


@triton.jit
def _pull(tension, tendon_J, tendon, out, nv, w, m):
    """Out += J' tension of one tendon."""
    for dof in range(nv):
        coefficient = load(tendon_J, tendon * nv + dof, w, m)
        store(out, dof, w, m, load(out, dof, w, m) + tension * coefficient)


@triton.jit
def _tendon_springs(ten_length, stiffness, lengthspring, tendon_J, out, ntendon, nv, w, m):
    """Within the dead band of rest lengths nothing pulls."""
    for t in range(ntendon):
        length = load(ten_length, t, w, m)
        low, high = load(lengthspring, 2 * t, w, m), load(lengthspring, 2 * t + 1, w, m)
        stretch = tl.minimum(tl.maximum(length, low), high) - length
        _pull(load(stiffness, t, w, m) * stretch, tendon_J, t, out, nv, w, m)


# ------------------------------------------------------------------ bodies


@triton.jit
def _wrench(body, torque, force, xipos, subtree_com, wrench, body_ptr, w, m):
    """Note a torque and a force on a body's centre of mass, about that of its tree."""
    root = tl.load(body_ptr + body * BODY + ROOT)
    arm = sub(load3(xipos, body, w, m), load3(subtree_com, root, w, m))
    store6(wrench, body, w, m, (add(cross(arm, force), torque), force))


@triton.jit
def _gravity_compensation(
    body_mass, body_gravcomp, gravity, xipos, subtree_com, wrench, body_ptr, nbody, w, m
):  # fmt: skip
    zero = zeros(wrench, w)
    up = scale(-1.0, load3(gravity, 0, w, m))
    for body in range(nbody):
        weight = load(body_mass, body, w, m) * load(body_gravcomp, body, w, m)
        force = scale(weight, up)
        _wrench(body, (zero, zero, zero), force, xipos, subtree_com, wrench, body_ptr, w, m)


@triton.jit
def _drag(v, linear, quadratic):
    """-(linear + quadratic |v|) v, component by component."""
    return (
        -(linear + quadratic[0] * tl.abs(v[0])) * v[0],
        -(linear + quadratic[1] * tl.abs(v[1])) * v[1],
        -(linear + quadratic[2] * tl.abs(v[2])) * v[2],
    )


@triton.jit
def _edge(total, moment, mass):
    """Edge of the box with the body's inertia along the axis of a principal moment."""
    solid = tl.maximum(total - 2.0 * moment, MINVAL) * 6.0
    return tl.sqrt(solid / tl.maximum(mass, MINVAL))


@triton.jit
def _fluid(
    body_mass, body_inertia, wind, xipos, ximat, subtree_com, cvel, wrench, body_ptr, nbody, w, m,
    DENSITY: tl.constexpr, VISCOSITY: tl.constexpr,
):  # fmt: skip
    """Drag of each body's inertia box: Stokes' on its mean sphere, quadratic on its faces.

    Source: MuJoCo documentation, Computation, Fluid forces.
    """
    for body in range(nbody):
        mass, moments = load(body_mass, body, w, m), load3(body_inertia, body, w, m)
        total = moments[0] + moments[1] + moments[2]
        a, b, c = (
            _edge(total, moments[0], mass),
            _edge(total, moments[1], mass),
            _edge(total, moments[2], mass),
        )
        solid = tl.where(mass >= MINVAL, 1.0, 0.0).to(mass.dtype)
        diameter = (a + b + c) / 3
        stokes = diameter * solid * (STOKES * VISCOSITY)
        a4, b4, c4 = a * a * a * a, b * b * b * b, c * c * c * c
        dense = DENSITY * solid
        paddles = scale(dense / 64, (a * (b4 + c4), b * (c4 + a4), c * (a4 + b4)))
        faces = scale(dense / 2, (b * c, c * a, a * b))
        root = tl.load(body_ptr + body * BODY + ROOT)
        arm = sub(load3(xipos, body, w, m), load3(subtree_com, root, w, m))
        vel, mat = load6(cvel, body, w, m), load9(ximat, body, w, m)
        speed = sub(add(vel[1], cross(vel[0], arm)), load3(wind, 0, w, m))
        turn, speed = rotate_inv(mat, vel[0]), rotate_inv(mat, speed)
        torque = rotate(mat, _drag(turn, stokes * diameter * diameter / 3, paddles))
        force = rotate(mat, _drag(speed, stokes, faces))
        store6(wrench, body, w, m, (add(cross(arm, force), torque), force))


# ------------------------------------------------------------------ the stage


@triton.jit
def _passive_kernel(
    # in: joints and tendons
    qpos, qvel, qpos_spring, jnt_stiffness, dof_damping, ten_length, ten_velocity,
    tendon_stiffness, tendon_damping, tendon_lengthspring, tendon_J,
    # in: bodies
    body_mass, body_gravcomp, body_inertia, gravity, wind, xipos, ximat, subtree_com, cdof, cvel,
    felt,
    # out
    spring, damper, gravcomp, fluid, total,
    # scratch
    wrench,
    # tables and sizes
    body_ptr, joint_ptr, dof_ptr, sprung_ptr, nbody, njnt, nv, ntendon, HAS: tl.constexpr,
    DENSITY: tl.constexpr, VISCOSITY: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Springs, dampers, gravity compensation and drag; HAS says which of them there are.

    Source: MuJoCo manual, Computation, Passive forces.
    """
    w, m = worlds_of(n_world, BLOCK)
    zero = zeros(total, w)
    for dof in range(nv):
        store(spring, dof, w, m, zero)
        store(gravcomp, dof, w, m, zero)
        store(fluid, dof, w, m, zero)
        value = zero
        if HAS[DAMPER]:
            value = -load(dof_damping, dof, w, m) * load(qvel, dof, w, m)
        store(damper, dof, w, m, value)
    if HAS[SPRING]:
        _joint_springs(qpos, qpos_spring, jnt_stiffness, spring, joint_ptr, sprung_ptr, njnt, w, m)
    if HAS[TENDON_SPRING]:
        _tendon_springs(
            ten_length, tendon_stiffness, tendon_lengthspring, tendon_J, spring, ntendon, nv, w, m
        )
    if HAS[TENDON_DAMPER]:
        for t in range(ntendon):
            tension = -load(tendon_damping, t, w, m) * load(ten_velocity, t, w, m)
            _pull(tension, tendon_J, t, damper, nv, w, m)
    if HAS[GRAVCOMP]:
        _gravity_compensation(
            body_mass, body_gravcomp, gravity, xipos, subtree_com, wrench, body_ptr, nbody, w, m
        )
        to_dofs(wrench, cdof, gravcomp, body_ptr, dof_ptr, nbody, nv, w, m)
    if HAS[FLUID]:
        _fluid(
            body_mass, body_inertia, wind, xipos, ximat, subtree_com, cvel, wrench, body_ptr,
            nbody, w, m, DENSITY, VISCOSITY,
        )  # fmt: skip
        to_dofs(wrench, cdof, fluid, body_ptr, dof_ptr, nbody, nv, w, m)
    for dof in range(nv):
        value = load(spring, dof, w, m) + load(damper, dof, w, m)
        value += load(gravcomp, dof, w, m) * load(felt, dof, w, m) + load(fluid, dof, w, m)
        store(total, dof, w, m, value)


KNOWN = frozenset(
    "spring damper gravcomp fluid dof_joint spring_place spring_quat passive_gravcomp tendon_q "
    "tendon_J tendon_spring tendon_damper pattern others box".split()
)


def has_kernel(m: Model) -> bool:
    """Whether all passive forces and tendons of a model are of kinds that the kernels know."""
    return knows(KNOWN, m.derived["passive"])


def passive(m: Model, d: Data) -> Data:
    """See `alloy.ops.passive`."""
    p: PassiveTables = m.derived["passive"]
    t, has = tree_tables(m.tree), _present(m, p)
    worlds, like = d.qvel.shape[0], d.qvel
    names = ("qfrc_spring", "qfrc_damper", "qfrc_gravcomp", "qfrc_fluid", "qfrc_passive")
    out = {name: empty(worlds, m.nv, like=like) for name in names}
    wrench = empty(worlds, t.nbody if has[GRAVCOMP] or has[FLUID] else 0, 6, like=like)
    felt, sprung = _joint_tables(p, m.tree)
    launch(
        _passive_kernel, worlds, d.qpos, d.qvel, m.qpos_spring, m.jnt_stiffness, m.dof_damping,
        d.ten_length, d.ten_velocity, m.tendon_stiffness, m.tendon_damping, m.tendon_lengthspring,
        p.tendon_J.unsqueeze(0), m.body_mass, m.body_gravcomp, m.body_inertia, m.gravity, m.wind,
        d.xipos, d.ximat, d.subtree_com, d.cdof, d.cvel, felt, *out.values(), wrench, t.body,
        t.joint, t.dof, sprung, t.nbody, t.njnt, t.nv, m.ntendon, HAS=has,
        DENSITY=m.opt.density, VISCOSITY=m.opt.viscosity,
    )  # fmt: skip
    return replace(d, **out)


def _present(m: Model, p: PassiveTables) -> tuple[bool, ...]:
    """Which passive forces a model has, in the order of the constants above."""
    off = m.opt.disable
    if {"spring", "damper"} <= off:
        return (False,) * 6
    springs, dampers = "spring" not in off, "damper" not in off
    return (
        p.spring and springs, p.tendon_spring and springs, p.damper and dampers,
        p.tendon_damper and dampers, p.gravcomp and "gravity" not in off, p.fluid,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _joint_tables(p: PassiveTables, tree: Tree) -> tuple[Tensor, Tensor]:
    """1 where a dof feels gravity compensation (1, nv), and joints whose quaternion is sprung."""
    nv, device = tree.moves.shape[1], tree.moves.device
    felt = tree.moves.new_ones(nv) if p.passive_gravcomp is None else p.passive_gravcomp
    first = tree.joint_qpos.cpu().numpy()
    sprung = [] if p.spring_quat is None else p.spring_quat[:, 0].tolist()
    quat = np.isin(first, sprung) | np.isin(first + 3, sprung)
    return felt.unsqueeze(0), table(quat.astype(int), device)


@triton.jit
def _tendon_kernel(
    # in
    qpos, qvel, tendon_q, tendon_J,
    # out
    length, velocity,
    # sizes
    nq, nv, ntendon, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Length and velocity of fixed tendons: constant combinations of qpos and qvel."""
    w, m = worlds_of(n_world, BLOCK)
    for t in range(ntendon):
        total, speed = zeros(length, w), zeros(length, w)
        for q in range(nq):
            total += load(qpos, q, w, m) * load(tendon_q, q * ntendon + t, w, m)
        for v in range(nv):
            speed += load(qvel, v, w, m) * load(tendon_J, t * nv + v, w, m)
        store(length, t, w, m, total)
        store(velocity, t, w, m, speed)


def tendon(m: Model, d: Data) -> Data:
    """See `alloy.ops.tendon`."""
    p: PassiveTables = m.derived["passive"]
    worlds = d.qpos.shape[0]
    length, velocity = (empty(worlds, m.ntendon, like=d.qpos) for _ in range(2))
    launch(
        _tendon_kernel, worlds, d.qpos, d.qvel, p.tendon_q.unsqueeze(0), p.tendon_J.unsqueeze(0),
        length, velocity, m.nq, m.nv, m.ntendon,
    )  # fmt: skip
    jac = p.tendon_J.expand(worlds, -1, -1)  # constant; read where a stage keeps the reference
    return replace(d, ten_length=length, ten_velocity=velocity, ten_J=jac)
