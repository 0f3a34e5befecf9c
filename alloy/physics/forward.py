"""One substep, top to bottom: the page to read first.

    kinematics -> inertia -> contacts -> constraint rows          (position)
    -> velocities, bias, passive forces, reference acceleration   (velocity)
    -> actuation -> unconstrained acceleration -> solver, sensors (acceleration)
    -> integration                                                (step)

Every function takes a Model and a Data and returns a new Data. After `step` the state is new and
the derived fields are those computed before the integration, as in mjData after mj_step.
Source: MuJoCo manual, Computation, Forward dynamics and Numerical integration.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from alloy import math, ops
from alloy.ops import control
from alloy.physics import actuation, constraint, passive, sensor, sensor_forces, smooth
from alloy.physics import collision as contact
from alloy.physics.model import Data, Model, tensor_fields

FORCES = tuple(f.name for f in tensor_fields(Data) if f.metadata["stage"] == "forces")
_SHAPES = {f.name: f.metadata["shape"][1:] for f in tensor_fields(Data)}


def kinematics(m: Model, d: Data) -> Data:
    """Poses, centres of mass and motion axes (mj_kinematics, mj_comPos)."""
    return smooth.kinematics(m, d)


def after_kinematics(m: Model, d: Data) -> Data:
    """The rest of the position stage: tendons, M, contacts and constraint rows."""
    d = passive.tendon(m, d)
    d = smooth.mass_matrix(m, d)
    return constraint.rows(m, contact.collision(m, d))


def position(m: Model, d: Data) -> Data:
    """Everything that depends on positions only (mj_fwdPosition)."""
    return after_kinematics(m, kinematics(m, d))


def velocity(m: Model, d: Data) -> Data:
    """Everything that depends on velocities (mj_fwdVelocity)."""
    d = smooth.velocity(m, d)
    return constraint.reference(m, passive.passive(m, d))


def solve(m: Model, d: Data) -> Data:
    """Acceleration with and without constraints (mj_fwdAcceleration, mj_fwdConstraint)."""
    smooth_force = d.qfrc_passive - d.qfrc_bias + d.qfrc_actuator + smooth.applied_force(m, d)
    d = replace(d, qfrc_smooth=smooth_force)
    if not m.nefc:
        return replace(
            d,
            qacc=ops.factor_solve(ops.factor(d.M), smooth_force),
            qfrc_constraint=torch.zeros_like(smooth_force),
            efc_force=d.efc_D,
            solver_niter=torch.zeros_like(d.step_count),
        )
    cold = "warmstart" in m.opt.disable
    opt = (m.opt.tolerance, m.opt.ls_tolerance, m.opt.iterations, m.opt.ls_iterations)
    qacc, qfrc_constraint, force, niter = ops.solve(
        d.M, smooth_force, d.efc_J, d.efc_aref, d.efc_D, m.dof_frictionloss, m.con_friction,
        torch.zeros_like(d.qvel) if cold else d.qacc_warmstart, m.efc, m.opt.impratio,
        1 / (m.meaninertia * max(1, m.nv)), opt,
    )  # fmt: skip
    return replace(
        d, qacc=qacc, qfrc_constraint=qfrc_constraint, efc_force=force, solver_niter=niter
    )


def acceleration(m: Model, d: Data) -> Data:
    """Everything that depends on controls: actuation, solver, sensors."""
    return sensor.sensor(m, solve(m, actuation.actuation(m, d)))


def forces(m: Model, d: Data) -> Data:
    """Accelerations and forces of bodies (mj_rnePostConstraint), behind everything else."""
    return sensor_forces.forces(m, d)


def forward(m: Model, d: Data) -> Data:
    """All stages without integration (mj_forward)."""
    return acceleration(m, velocity(m, position(m, d)))


def _forward(m: Model, d: Data, keep: tuple[str, ...]) -> Data:
    """All stages, that of the forces too where a field to keep is one of them."""
    d = forward(m, d)
    return forces(m, d) if set(keep) & set(FORCES) else d


def unset(m: Model, d: Data, keep: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Zeros in the shapes of derived float fields, to carry them through a loop."""
    shapes = [[n if isinstance(n, int) else getattr(m, n) for n in _SHAPES[name]] for name in keep]
    return tuple(d.qpos.new_zeros(d.qpos.shape[0], *shape) for shape in shapes)


def _integrate_pos(m: Model, qpos: Tensor, qvel: Tensor) -> Tensor:
    return ops.integrate_pos(qpos, qvel, m.opt.timestep, *m.derived["integrate"])


def _advance(m: Model, d: Data, act: Tensor, qvel: Tensor, mean_qvel: Tensor, qpos: Tensor) -> Data:
    return replace(
        d,
        act=act,
        qvel=qvel,
        qpos=_integrate_pos(m, qpos, mean_qvel),
        qacc_warmstart=d.qacc,
        step_count=d.step_count + 1,
    )


def _gyroscopic_derivative(m: Model, d: Data) -> Tensor:
    """D qfrc_bias / d qvel of the trees that are one free body, (W, nv, nv); not symmetric.

    In the body's axes bias is w x I w on the rotation and R (w x K w) on the translation, where
    I and R K are blocks of M. MuJoCo 4's implicitfast takes exactly these derivatives of the bias.
    """
    free = m.derived["free_bodies"]
    rot = free.place[:, 3:]  # (n, 3, nv) one-hot
    w = (d.qvel @ rot.flatten(0, 1).T).unflatten(-1, (-1, 3))  # (W, n, 3)
    inertia = rot @ (d.M - torch.diag_embed(m.dof_armature)).unsqueeze(1) @ rot.transpose(-1, -2)
    frame = d.xmat[:, free.body]
    shift = free.place[:, :3] @ d.M.unsqueeze(1) @ rot.transpose(-1, -2)
    local = frame.transpose(-1, -2) @ shift
    spin = math.cross_matrix(w)
    on_rot = spin @ inertia - math.cross_matrix(math.rotate(inertia, w))
    on_pos = frame @ (spin @ local - math.cross_matrix(math.rotate(local, w)))
    block = free.place.transpose(-1, -2) @ torch.cat([on_pos, on_rot], -2) @ rot
    return block.sum(1)


def _implicit_qacc(m: Model, d: Data) -> Tensor:
    """Acceleration with velocity-dependent forces taken at the end of the step.

    Euler treats joint damping that way; implicitfast every velocity derivative that is symmetric,
    and the gyroscopic one of lone free bodies.
    """
    h = m.opt.timestep
    total = d.qfrc_smooth + d.qfrc_constraint
    if m.opt.integrator == "implicitfast":
        change = passive.damping_derivative(m, d) + actuation.velocity_derivative(m, d)
        matrix = d.M - h * change
        if m.derived["free_bodies"] is not None:
            return torch.linalg.solve(matrix + h * _gyroscopic_derivative(m, d), total)
    elif m.derived["euler_damping"]:
        matrix = d.M + torch.diag_embed(h * m.dof_damping)
    else:
        return d.qacc
    return ops.factor_solve(ops.factor(matrix), total)


def _semi_implicit(m: Model, d: Data, keep: tuple[str, ...]) -> Data:
    """Velocity first, then position with the new velocity (mj_Euler, mj_implicit)."""
    d = _forward(m, d, keep)
    qvel = d.qvel + m.opt.timestep * _implicit_qacc(m, d)
    return _advance(m, d, actuation.next_activation(m, d), qvel, qvel, d.qpos)


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


def _runge_kutta(m: Model, d: Data, derived: bool, keep: tuple[str, ...]) -> Data:
    """Fourth-order Runge-Kutta over (qpos, qvel, act), Lie-group form (mj_RungeKutta, N = 4).

    The stages are one loop; with `derived` the fourth stands behind it and leaves its derived
    fields in the result, as MuJoCo does. Without, the loop carries the fields to keep.
    """
    h, start = m.opt.timestep, d
    rest, none = torch.zeros_like(d.qvel), torch.zeros_like(d.step_count)
    carried = () if derived else keep

    def stage(i: int | Tensor, *carry: Tensor) -> control.Carry:
        qpos, qvel, act, warmstart, moved, rates, accs, act_dots, niter, sensordata = carry[:10]
        at = replace(start, qpos=qpos, qvel=qvel, act=act, qacc_warmstart=warmstart)
        at = _forward(m, at, carried)
        rate = _pulled_back(m, h * moved, qvel)
        share, weight = 0.5 * (1 + (i == 2)), 1 + ((i == 1) | (i == 2))
        moved = share * rate
        return (
            _integrate_pos(m, start.qpos, moved),
            start.qvel + h * (share * at.qacc),
            start.act + h * (share * at.act_dot),
            at.qacc,
            moved,
            rates + weight * rate,
            accs + weight * at.qacc,
            act_dots + weight * at.act_dot,
            torch.maximum(niter, at.solver_niter),
            torch.where(torch.as_tensor(i == 0), at.sensordata, sensordata),
            *(getattr(at, name) for name in carried),
        )

    carry = (
        d.qpos, d.qvel, d.act, d.qacc_warmstart, rest, rest, rest, torch.zeros_like(d.act), none,
        d.qpos.new_zeros(d.qpos.shape[0], m.nsensordata), *unset(m, d, carried),
    )  # fmt: skip
    carry = control.repeat(3 if derived else 4, stage, carry)
    qpos, qvel, act, warmstart, moved, rates, accs, act_dots, niter, sensors = carry[:10]
    d = replace(d, **dict(zip(carried, carry[10:], strict=True)))
    if derived:
        d = replace(d, qpos=qpos, qvel=qvel, act=act, qacc_warmstart=warmstart)
        d = _forward(m, d, keep)
        rates = rates + _pulled_back(m, h * moved, qvel)
        accs, act_dots = accs + d.qacc, act_dots + d.act_dot
        niter, warmstart = torch.maximum(niter, d.solver_niter), d.qacc
    d = replace(d, act=start.act, act_dot=act_dots / 6, sensordata=sensors, solver_niter=niter)
    qacc = accs / 6
    act = actuation.next_activation(m, d)
    d = replace(d, qacc=warmstart)
    d = _advance(m, d, act, start.qvel + h * qacc, rates / 6, start.qpos)
    return replace(d, qacc=qacc)


def step(m: Model, d: Data, *, derived: bool = True, keep: tuple[str, ...] = ()) -> Data:
    """Advance every world by one physics step (mj_step).

    Without `derived`, only the state, qacc, sensordata, solver_niter and the fields named by `keep`
    of the result count; what else is in it may be left out. A compiled program is smaller that way.
    The fields of `forces` are in the result only if they are named.
    """
    run = partial(_runge_kutta, derived=derived) if m.opt.integrator == "rk4" else _semi_implicit
    return run(m, d, keep=keep)
