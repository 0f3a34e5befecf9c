"""From accelerations to the next state. Twin of `alloy.ops.reference.integrate`."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.activation import activation_tables, next_activation
from alloy.ops.triton.lane import empty, launch, load, store, worlds_of
from alloy.ops.triton.plan import mass_pattern
from alloy.ops.triton.pose import addresses, move
from alloy.ops.triton.solver import factor, factor_solve
from alloy.ops.triton.solver_rows import triangle
from alloy.ops.triton.vector import add, cross, dot, scale

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

MAXVAL = tl.constexpr(1e10)  # mjMAXVAL: beyond it, as NaN, a value is bad


# ------------------------------------------------------------------ Euler and implicitfast


@triton.jit
def _damped_acceleration(
    mass, dof_damping, smooth, constraint, h, x, lower_ptr, columns_ptr, nv, w, m, DT: tl.constexpr
):  # fmt: skip
    """Solve (M + DT diag(damping)) x = smooth + constraint forces."""
    for i in range(nv):
        for at in range(tl.load(lower_ptr + i), tl.load(lower_ptr + i + 1)):
            j = tl.load(columns_ptr + at)
            store(h, triangle(i) + j, w, m, load(mass, i * nv + j, w, m))
        diagonal = load(mass, i * nv + i, w, m) + DT * load(dof_damping, i, w, m)
        store(h, triangle(i) + i, w, m, diagonal)
        store(x, i, w, m, load(smooth, i, w, m) + load(constraint, i, w, m))
    factor(h, lower_ptr, columns_ptr, nv, w, m)
    factor_solve(h, x, lower_ptr, columns_ptr, nv, w, m)


@triton.jit
def _semi_implicit_kernel(
    # in
    mass, dof_damping, qfrc_smooth, qfrc_constraint, qacc, qpos, qvel, act, act_dot, step_count,
    actuator_dynprm, actuator_actrange,
    # out
    new_qpos, new_qvel, new_act, new_count,
    # scratch
    h, x,
    # tables and sizes
    lower_ptr, columns_ptr, linear_ptr, quat_ptr, act_ptr, nv, na, n_linear, n_quat,
    DT: tl.constexpr, DAMPED: tl.constexpr, ACTUATED: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Qvel += DT a, then qpos moves with the new qvel; a takes joint damping at the end if DAMPED.

    Source: MuJoCo manual, Computation, Numerical integration.
    """
    w, m = worlds_of(n_world, BLOCK)
    if DAMPED:
        _damped_acceleration(
            mass, dof_damping, qfrc_smooth, qfrc_constraint, h, x, lower_ptr, columns_ptr, nv,
            w, m, DT,
        )  # fmt: skip
    for i in range(nv):
        if DAMPED:
            acc = load(x, i, w, m)
        else:
            acc = load(qacc, i, w, m)
        store(new_qvel, i, w, m, load(qvel, i, w, m) + DT * acc)
    move(qpos, new_qvel, new_qpos, linear_ptr, quat_ptr, n_linear, n_quat, w, m, DT)
    for a in range(na):
        rate = load(act_dot, a, w, m)
        value = next_activation(
            act, rate, a, actuator_dynprm, actuator_actrange, act_ptr, w, m, DT, ACTUATED
        )
        store(new_act, a, w, m, value)
    store(new_count, 0, w, m, load(step_count, 0, w, m) + 1)


def semi_implicit(m: Model, d: Data, qacc: Tensor | None) -> Data:
    """See `alloy.ops.semi_implicit`."""
    worlds, damped = d.qpos.shape[0], qacc is None and m.derived["euler_damping"]
    out = _next_state(m, d)
    size = m.nv if damped else 0
    h, x = empty(worlds, size * (size + 1) // 2, like=d.qpos), empty(worlds, size, like=d.qpos)
    linear, quat, n_linear, n_quat = addresses(m.nq, m.derived["integrate"], d.qpos.device)
    launch(
        _semi_implicit_kernel, worlds, d.M, m.dof_damping, d.qfrc_smooth, d.qfrc_constraint,
        d.qacc if qacc is None else qacc, d.qpos, d.qvel, d.act, d.act_dot, d.step_count,
        m.actuator_dynprm, m.actuator_actrange, *out.values(), h, x, *mass_pattern(m.tree),
        linear, quat, activation_tables(m.derived["actuation"], m.na, d.qpos.device), m.nv, m.na,
        n_linear, n_quat, DT=m.opt.timestep, DAMPED=damped,
        ACTUATED="actuation" not in m.opt.disable,
    )  # fmt: skip
    return replace(d, **out, qacc_warmstart=d.qacc)


def has_kernel(m: Model) -> bool:
    """Whether a model's states are of kinds that these kernels know."""
    t = m.derived["actuation"]
    return not m.nplastic and t.dcmotor is None and t.servos is None


def _next_state(m: Model, d: Data) -> dict[str, Tensor]:
    sizes = {"qpos": m.nq, "qvel": m.nv, "act": m.na}
    out = {name: empty(d.qpos.shape[0], n, like=d.qpos) for name, n in sizes.items()}
    return out | {"step_count": empty(d.qpos.shape[0], like=d.step_count)}


# ------------------------------------------------------------------ Runge-Kutta


@triton.jit
def _pulled_back(moved, qvel, rate, quat_ptr, n_quat, nv, w, m, DT: tl.constexpr):
    """Rate of the rotation vectors DT * moved at velocity qvel: k + u x k / 2 + c u x (u x k).

    Source: Munthe-Kaas, High order Runge-Kutta methods on manifolds (1999).
    """
    for i in range(nv):
        store(rate, i, w, m, load(qvel, i, w, m))
    for i in range(n_quat):
        v = tl.load(quat_ptr + 2 * i + 1)
        u = scale(DT, (load(moved, v, w, m), load(moved, v + 1, w, m), load(moved, v + 2, w, m)))
        k = load(qvel, v, w, m), load(qvel, v + 1, w, m), load(qvel, v + 2, w, m)
        square = dot(u, u)
        small = square < 1e-4
        half = 0.5 * tl.sqrt(tl.where(small, 1.0, square))
        closed = (1 - half * tl.cos(half) / tl.sin(half)) / (4 * half * half)
        c = tl.where(small, 1 / 12 + square / 720, closed)
        twist = cross(u, k)
        turned = add(add(k, scale(0.5, twist)), scale(c, cross(u, twist)))
        for j in tl.static_range(3):
            store(rate, v + j, w, m, turned[j])


@triton.jit
def _runge_kutta_stage_kernel(
    # in: the step's start, the stage, the sums so far
    qpos0, qvel0, act0, qvel, qacc, act_dot, niter, sensordata,
    moved, rates, accs, act_dots, most, first_sensordata,
    # out: the next stage, the sums with this one
    new_qpos, new_qvel, new_act, new_moved, new_rates, new_accs, new_act_dots, new_most,
    new_sensordata,
    # tables, sizes, weights
    linear_ptr, quat_ptr, nv, na, nsensordata, n_linear, n_quat, share, weight, first,
    DT: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """The next stage begins at start + DT share rate; sums += weight * rate.

    Source: MuJoCo's mj_RungeKutta.
    """
    w, m = worlds_of(n_world, BLOCK)
    _pulled_back(moved, qvel, new_moved, quat_ptr, n_quat, nv, w, m, DT)
    for i in range(nv):
        rate, acc = load(new_moved, i, w, m), load(qacc, i, w, m)
        store(new_rates, i, w, m, load(rates, i, w, m) + weight * rate)
        store(new_accs, i, w, m, load(accs, i, w, m) + weight * acc)
        store(new_moved, i, w, m, share * rate)
        store(new_qvel, i, w, m, load(qvel0, i, w, m) + DT * (share * acc))
    move(qpos0, new_moved, new_qpos, linear_ptr, quat_ptr, n_linear, n_quat, w, m, DT)
    for a in range(na):
        rate = load(act_dot, a, w, m)
        store(new_act_dots, a, w, m, load(act_dots, a, w, m) + weight * rate)
        store(new_act, a, w, m, load(act0, a, w, m) + DT * (share * rate))
    store(new_most, 0, w, m, tl.maximum(load(most, 0, w, m), load(niter, 0, w, m)))
    for i in range(nsensordata):
        value = load(first_sensordata, i, w, m)
        if first == 1:
            value = load(sensordata, i, w, m)
        store(new_sensordata, i, w, m, value)


def runge_kutta_stage(
    m: Model, start: Data, at: Data, i: int, sums: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """See `alloy.ops.runge_kutta_stage`."""
    like, worlds = start.qpos, start.qpos.shape[0]
    qpos, qvel, act, moved, rates, accs, act_dots, sensordata = (
        empty(worlds, n, like=like)
        for n in (m.nq, m.nv, m.na, m.nv, m.nv, m.nv, m.na, m.nsensordata)
    )
    most = empty(worlds, like=start.step_count)
    linear, quat, n_linear, n_quat = addresses(m.nq, m.derived["integrate"], like.device)
    launch(
        _runge_kutta_stage_kernel, worlds, start.qpos, start.qvel, start.act, at.qvel, at.qacc,
        at.act_dot, at.solver_niter, at.sensordata, *sums, qpos, qvel, act, moved, rates, accs,
        act_dots, most, sensordata, linear, quat, m.nv, m.na, m.nsensordata, n_linear, n_quat,
        1.0 if i == 2 else 0.5, 2.0 if i in (1, 2) else 1.0, int(i == 0), DT=m.opt.timestep,
    )  # fmt: skip
    return qpos, qvel, act, at.qacc, moved, rates, accs, act_dots, most, sensordata


@triton.jit
def _runge_kutta_end_kernel(
    # in
    qpos, qvel, act, step_count, rates, accs, act_dots, actuator_dynprm, actuator_actrange,
    # out
    new_qpos, new_qvel, new_act, new_count, qacc, act_dot,
    # scratch
    mean,
    # tables and sizes
    linear_ptr, quat_ptr, act_ptr, nv, na, n_linear, n_quat,
    DT: tl.constexpr, ACTUATED: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """The step with the mean of four stages, weighted 1, 2, 2, 1. Source: mj_RungeKutta."""
    w, m = worlds_of(n_world, BLOCK)
    for i in range(nv):
        acc = load(accs, i, w, m) / 6
        store(qacc, i, w, m, acc)
        store(mean, i, w, m, load(rates, i, w, m) / 6)
        store(new_qvel, i, w, m, load(qvel, i, w, m) + DT * acc)
    move(qpos, mean, new_qpos, linear_ptr, quat_ptr, n_linear, n_quat, w, m, DT)
    for a in range(na):
        rate = load(act_dots, a, w, m) / 6
        store(act_dot, a, w, m, rate)
        value = next_activation(
            act, rate, a, actuator_dynprm, actuator_actrange, act_ptr, w, m, DT, ACTUATED
        )
        store(new_act, a, w, m, value)
    store(new_count, 0, w, m, load(step_count, 0, w, m) + 1)


def runge_kutta_end(m: Model, start: Data, d: Data, sums: tuple[Tensor, ...]) -> Data:
    """See `alloy.ops.runge_kutta_end`."""
    worlds, like = d.qpos.shape[0], d.qpos
    out = _next_state(m, d)
    qacc, mean, act_dot = (empty(worlds, n, like=like) for n in (m.nv, m.nv, m.na))
    linear, quat, n_linear, n_quat = addresses(m.nq, m.derived["integrate"], like.device)
    launch(
        _runge_kutta_end_kernel, worlds, start.qpos, start.qvel, start.act, start.step_count,
        *sums, m.actuator_dynprm, m.actuator_actrange, *out.values(), qacc, act_dot, mean, linear,
        quat, activation_tables(m.derived["actuation"], m.na, like.device), m.nv, m.na, n_linear,
        n_quat, DT=m.opt.timestep, ACTUATED="actuation" not in m.opt.disable,
    )  # fmt: skip
    return replace(d, **out, qacc=qacc, act_dot=act_dot, qacc_warmstart=d.qacc)


# ------------------------------------------------------------------ worlds that blow up


@triton.jit
def _unsound(x, n, w, m):
    """Worlds in which one of n values is not finite or beyond MAXVAL."""
    bad = w < 0
    for i in range(n):
        bad |= ~(tl.abs(load(x, i, w, m)) <= MAXVAL)
    return bad


@triton.jit
def _keep(old, new, out, n, stopped, w, m):
    for i in range(n):
        store(out, i, w, m, tl.where(stopped, load(old, i, w, m), load(new, i, w, m)))


@triton.jit
def _keep_sound_kernel(
    # in
    stopped, niter, qpos, qvel, act, warmstart, count,
    new_qpos, new_qvel, new_act, new_warmstart, new_count, new_niter, qacc,
    # out
    out_stopped, out_niter, out_qpos, out_qvel, out_act, out_warmstart, out_count,
    # sizes
    nq, nv, na, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """The old state where a world has stopped or stops now, the new one elsewhere."""
    w, m = worlds_of(n_world, BLOCK)
    bad = load(stopped, 0, w, m) != 0
    bad |= _unsound(new_qpos, nq, w, m) | _unsound(new_qvel, nv, w, m)
    bad |= _unsound(new_act, na, w, m) | _unsound(qacc, nv, w, m)
    store(out_stopped, 0, w, m, bad)
    store(out_niter, 0, w, m, tl.maximum(load(niter, 0, w, m), load(new_niter, 0, w, m)))
    _keep(qpos, new_qpos, out_qpos, nq, bad, w, m)
    _keep(qvel, new_qvel, out_qvel, nv, bad, w, m)
    _keep(act, new_act, out_act, na, bad, w, m)
    _keep(warmstart, new_warmstart, out_warmstart, nv, bad, w, m)
    _keep(count, new_count, out_count, 1, bad, w, m)


def keep_sound(stopped: Tensor, niter: Tensor, old: Data, new: Data) -> tuple[Tensor, Data]:
    """See `alloy.ops.keep_sound`."""
    state = ("qpos", "qvel", "act", "qacc_warmstart", "step_count")
    worlds, (nq, nv, na) = stopped.shape[0], (getattr(old, name).shape[1] for name in state[:3])
    out = {name: empty(worlds, *x.shape[1:], like=x)
           for name, x in ((name, getattr(old, name)) for name in state)}  # fmt: skip
    now, most = empty(worlds, like=stopped), empty(worlds, like=niter)
    launch(
        _keep_sound_kernel, worlds, stopped, niter, *(getattr(old, name) for name in state),
        *(getattr(new, name) for name in state), new.solver_niter, new.qacc, now, most,
        *out.values(), nq, nv, na,
    )  # fmt: skip
    return now, replace(new, **out, solver_niter=most)
