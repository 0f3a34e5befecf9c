"""From accelerations to the next state.

Source: MuJoCo manual, Computation, Numerical integration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import linear, plastic, pose
from alloy.ops.reference.actuation import next_activation

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

MAXVAL = 1e10  # mjMAXVAL: beyond it, as NaN, a value is bad


def _advanced(
    m: Model, d: Data, act: Tensor, qvel: Tensor, mean_qvel: Tensor, qpos: Tensor
) -> Data:
    moved = _moved(m, qpos, mean_qvel)
    return replace(
        d,
        act=act,
        qvel=qvel,
        qpos=moved,
        plastic=plastic.yielded(m, d, mean_qvel, moved),
        qacc_warmstart=d.qacc,
        step_count=d.step_count + 1,
    )


def _moved(m: Model, qpos: Tensor, qvel: Tensor) -> Tensor:
    return pose.integrate_pos(qpos, qvel, m.opt.timestep, *m.derived["integrate"])


def semi_implicit(m: Model, d: Data, qacc: Tensor | None) -> Data:
    """See `alloy.ops.semi_implicit`."""
    if qacc is None:
        qacc = _euler_qacc(m, d)
    qvel = d.qvel + m.opt.timestep * qacc
    return _advanced(m, d, next_activation(m, d), qvel, qvel, d.qpos)


def _euler_qacc(m: Model, d: Data) -> Tensor:
    """Acceleration with the damping of joints taken at the end of the step."""
    if not m.derived["euler_damping"]:
        return d.qacc
    matrix = d.M + torch.diag_embed(m.opt.timestep * m.dof_damping)
    return linear.solve(linear.factor(matrix), d.qfrc_smooth + d.qfrc_constraint)


def _pulled_back(m: Model, moved: Tensor, qvel: Tensor) -> Tensor:
    """Rate of the rotation vectors `moved` (in qvel's layout) at velocity qvel.

    The inverse derivative of the exponential map, k + u x k / 2 + c u x (u x k) in body frames.
    Munthe-Kaas, High order Runge-Kutta methods on manifolds (1999); as in MuJoCo since 4.0.
    """
    dofs = m.derived["integrate"][3]
    if dofs is None:
        return qvel
    u, k = moved[:, dofs], qvel[:, dofs]
    square = math.dot(u, u).unsqueeze(-1)
    small = square < 1e-4
    half = 0.5 * torch.where(small, 1.0, square).sqrt()
    closed = (1 - half * torch.cos(half) / torch.sin(half)) / (4 * half * half)
    c = torch.where(small, 1 / 12 + square / 720, closed)
    twist = math.cross(u, k)
    rate = k + 0.5 * twist + c * math.cross(u, twist)
    return qvel.index_copy(1, dofs.flatten(), rate.flatten(1))


def runge_kutta_stage(
    m: Model, start: Data, at: Data, i: int | Tensor, sums: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """See `alloy.ops.runge_kutta_stage`."""
    h = m.opt.timestep
    moved, rates, accs, act_dots, niter, sensordata = sums
    rate = _pulled_back(m, h * moved, at.qvel)
    share, weight = 0.5 * (1 + (i == 2)), 1 + ((i == 1) | (i == 2))
    moved = share * rate
    return (
        _moved(m, start.qpos, moved),
        start.qvel + h * (share * at.qacc),
        start.act + h * (share * at.act_dot),
        at.qacc,
        moved,
        rates + weight * rate,
        accs + weight * at.qacc,
        act_dots + weight * at.act_dot,
        torch.maximum(niter, at.solver_niter),
        torch.where(torch.as_tensor(i == 0), at.sensordata, sensordata),
    )


def runge_kutta_end(m: Model, start: Data, d: Data, sums: tuple[Tensor, ...]) -> Data:
    """See `alloy.ops.runge_kutta_end`."""
    rates, accs, act_dots = sums
    h, qacc = m.opt.timestep, accs / 6
    d = replace(d, act=start.act, act_dot=act_dots / 6)
    act = next_activation(m, d)
    d = _advanced(m, d, act, start.qvel + h * qacc, rates / 6, start.qpos)
    return replace(d, qacc=qacc)


def keep_sound(stopped: Tensor, niter: Tensor, old: Data, new: Data) -> tuple[Tensor, Data]:
    """See `alloy.ops.keep_sound`."""
    watched = torch.cat([new.qpos, new.qvel, new.act, new.qacc], -1)
    if watched.shape[-1]:
        stopped = stopped | ~(watched.abs().amax(-1) <= MAXVAL)
    state = {}
    for name in (
        "qpos", "qvel", "act", "qacc_warmstart", "ctrl_history", "sensor_history", "plastic",
        "step_count",
    ):  # fmt: skip
        state[name] = math.where_worlds(stopped, getattr(old, name), getattr(new, name))
    return stopped, replace(new, **state, solver_niter=torch.maximum(niter, new.solver_niter))
