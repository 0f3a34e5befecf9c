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
from alloy.ops.reference import noslip, tendon_inertia
from alloy.physics import (
    actuation,
    constraint,
    occupancy,
    passive,
    selection,
    sensor,
    sensor_forces,
    smooth,
)
from alloy.physics import collision as contact
from alloy.physics.model import Data, Model, tensor_fields

FORCES = tuple(f.name for f in tensor_fields(Data) if f.metadata["stage"] == "forces")
_ROWS = ("efc_J", "efc_pos", "efc_kip", "efc_D", "efc_active")  # what constraint.rows makes
_SHAPES = {f.name: f.metadata["shape"][1:] for f in tensor_fields(Data)}


def kinematics(m: Model, d: Data) -> Data:
    """Poses, centres of mass and motion axes (mj_kinematics, mj_comPos)."""
    return smooth.kinematics(m, d)


def after_kinematics(m: Model, d: Data) -> Data:
    """The rest of the position stage: tendons, M, contacts and constraint rows."""
    return rows(m, contacts(m, d))


def contacts(m: Model, d: Data) -> Data:
    """Tendons, M and contacts."""
    d = passive.tendon(m, d)
    d = smooth.mass_matrix(m, d)
    return contact.collision(m, d)


def rows(m: Model, d: Data) -> Data:
    """Constraint rows of all contacts, or of those chosen."""
    if m.selection is None:
        return constraint.rows(m, d)
    d = selection.choose(m, d)
    found = constraint.rows(*selection.reduced(m, d))
    return replace(d, **{name: getattr(found, name) for name in _ROWS})


def position(m: Model, d: Data) -> Data:
    """Everything that depends on positions only (mj_fwdPosition)."""
    return after_kinematics(m, kinematics(m, d))


def velocity(m: Model, d: Data) -> Data:
    """Everything that depends on velocities (mj_fwdVelocity)."""
    d = smooth.velocity(m, d)
    d = passive.passive(m, d)
    return constraint.reference(m if m.selection is None else selection.reduced(m, d)[0], d)


def solve(m: Model, d: Data) -> Data:
    """Acceleration with and without constraints (mj_fwdAcceleration, mj_fwdConstraint)."""
    if m.selection is not None:
        return selection.spread(m, solve(selection.reduced(m, d)[0], d))
    if not m.nefc:
        return replace(
            d,
            qacc=ops.factor_solve(ops.factor(d.M), d.qfrc_smooth),
            qfrc_constraint=torch.zeros_like(d.qfrc_smooth),
            efc_force=d.efc_D,
            solver_niter=torch.zeros_like(d.step_count),
        )
    loss = m.dof_frictionloss
    if m.efc.n_tendon_losses:
        tendons = m.tendon_frictionloss
        worlds = max(len(loss), len(tendons))
        loss = torch.cat([x.expand(worlds, -1) for x in (loss, tendons)], -1)
    cold = "warmstart" in m.opt.disable
    opt = (m.opt.tolerance, m.opt.ls_tolerance, m.opt.iterations, m.opt.ls_iterations)
    rows = (d.efc_J, d.efc_aref, d.efc_D, loss, m.con_friction)
    scale = 1 / (m.meaninertia * max(1, m.nv))
    qacc, qfrc_constraint, force, niter = ops.solve(
        d.M, d.qfrc_smooth, *rows, torch.zeros_like(d.qvel) if cold else d.qacc_warmstart, m.efc,
        m.opt.impratio, scale, opt, m.tree,
    )  # fmt: skip
    if m.opt.noslip_iterations:
        qacc, qfrc_constraint, force = noslip.noslip(
            d.M, qacc, *rows, m.efc, m.opt.impratio, scale, m.derived["noslip"],
            (m.opt.noslip_tolerance, m.opt.noslip_iterations),
        )  # fmt: skip
    return replace(
        d, qacc=qacc, qfrc_constraint=qfrc_constraint, efc_force=force, solver_niter=niter
    )


def _measured(m: Model, d: Data) -> Data:
    return sensor.sensor(m, solve(m, actuation.actuation(m, d)))


def acceleration(m: Model, d: Data) -> Data:
    """Everything that depends on controls: actuation, solver, sensors with their delays."""
    return sensor.shown(m, _measured(m, d))


def forces(m: Model, d: Data) -> Data:
    """Accelerations and forces of bodies (mj_rnePostConstraint), behind everything else."""
    return sensor_forces.forces(m, d)


def forward(m: Model, d: Data) -> Data:
    """All stages without integration (mj_forward)."""
    return acceleration(m, velocity(m, position(m, d)))


def _forward(m: Model, d: Data, keep: tuple[str, ...]) -> Data:
    """All stages, that of the forces too where a field to keep is one of them.

    Sensordata is what is measured: the step puts it into the record that delays are read from.
    Rows are there for the contacts in use only, unless they themselves are to be kept.
    """

    def behind_contacts(m: Model, d: Data) -> Data:
        d = _measured(m, velocity(m, rows(m, d)))
        return forces(m, d) if set(keep) & set(FORCES) else d

    d = contacts(m, kinematics(m, d))
    if set(keep) & set(occupancy.ROWS):
        return behind_contacts(m, d)
    return occupancy.by_occupancy(m, d, behind_contacts)


def unset(m: Model, d: Data, keep: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Zeros in the shapes of derived float fields, to carry them through a loop."""
    shapes = [[n if isinstance(n, int) else getattr(m, n) for n in _SHAPES[name]] for name in keep]
    return tuple(d.qpos.new_zeros(d.qpos.shape[0], *shape) for shape in shapes)


def _gyroscopic_derivative(m: Model, d: Data) -> Tensor:
    """D qfrc_bias / d qvel of the trees that are one free body, (W, nv, nv); not symmetric.

    In the body's axes bias is w x I w on the rotation and R (w x K w) on the translation, where
    I and R K are blocks of M. MuJoCo 4's implicitfast takes exactly these derivatives of the bias.
    """
    free = m.derived["free_bodies"]
    rot = free.place[:, 3:]  # (n, 3, nv) one-hot
    w = (d.qvel @ rot.flatten(0, 1).T).unflatten(-1, (-1, 3))  # (W, n, 3)
    mass, of_tendons = d.M - torch.diag_embed(m.dof_armature), tendon_inertia.inertia(m, d)
    mass = (mass if of_tendons is None else mass - of_tendons).unsqueeze(1)
    inertia = rot @ mass @ rot.transpose(-1, -2)
    frame = d.xmat[:, free.body]
    shift = free.place[:, :3] @ mass @ rot.transpose(-1, -2)
    local = frame.transpose(-1, -2) @ shift
    spin = math.cross_matrix(w)
    on_rot = spin @ inertia - math.cross_matrix(math.rotate(inertia, w))
    on_pos = frame @ (spin @ local - math.cross_matrix(math.rotate(local, w)))
    block = free.place.transpose(-1, -2) @ torch.cat([on_pos, on_rot], -2) @ rot
    return block.sum(1)


def _implicit_qacc(m: Model, d: Data) -> Tensor:
    """Acceleration with velocity-dependent forces taken at the end of the step.

    With implicit all there are. With implicitfast all whose velocity derivative is
    symmetric, and the gyroscopic ones of lone free bodies.
    """
    h, total = m.opt.timestep, d.qfrc_smooth + d.qfrc_constraint
    change = passive.damping_derivative(m, d) + actuation.velocity_derivative(m, d)
    matrix = d.M - h * change
    if m.opt.integrator == "implicit":
        return ops.eliminate(matrix + h * smooth.bias_derivative(m, d), total)
    if m.derived["free_bodies"] is not None:
        return ops.eliminate(matrix + h * _gyroscopic_derivative(m, d), total)
    return ops.factor_solve(ops.factor(matrix), total)


def _semi_implicit(m: Model, d: Data, keep: tuple[str, ...]) -> Data:
    """Velocity first, then position with the new velocity (mj_Euler, mj_implicit)."""
    d = _forward(m, d, keep)
    if m.opt.integrator in ("implicit", "implicitfast"):
        return ops.semi_implicit(m, d, _implicit_qacc(m, d))
    damping = passive.euler_damping(m, d)
    if damping is None:
        return ops.semi_implicit(m, d, None)
    matrix = d.M + torch.diag_embed(m.opt.timestep * damping)
    qacc = ops.factor_solve(ops.factor(matrix), d.qfrc_smooth + d.qfrc_constraint)
    return ops.semi_implicit(m, d, qacc)


def _runge_kutta(m: Model, d: Data, derived: bool, keep: tuple[str, ...]) -> Data:
    """Fourth-order Runge-Kutta over (qpos, qvel, act), Lie-group form (mj_RungeKutta, N = 4).

    The stages are one loop; with `derived` the fourth stands behind it and leaves its derived
    fields in the result, as MuJoCo does. Without, the loop carries the fields to keep.
    """
    start = d
    carried = () if derived else keep

    def stage(
        i: int | Tensor, carry: tuple[Tensor, ...], keep: tuple[str, ...]
    ) -> tuple[Data, control.Carry]:
        qpos, qvel, act, warmstart, *sums = carry[:10]
        at = replace(start, qpos=qpos, qvel=qvel, act=act, qacc_warmstart=warmstart)
        at = _forward(m, at, keep)
        return at, ops.runge_kutta_stage(m, start, at, i, tuple(sums))

    def body(i: int | Tensor, *carry: Tensor) -> control.Carry:
        at, carry = stage(i, carry, carried)
        return (*carry, *(getattr(at, name) for name in carried))

    rest, none = torch.zeros_like(d.qvel), torch.zeros_like(d.step_count)
    carry = (
        d.qpos, d.qvel, d.act, d.qacc_warmstart, rest, rest, rest, torch.zeros_like(d.act), none,
        d.qpos.new_zeros(d.qpos.shape[0], m.nsensordata), *unset(m, d, carried),
    )  # fmt: skip
    carry = control.repeat(3 if derived else 4, body, carry)
    d = replace(d, **dict(zip(carried, carry[10:], strict=True)))
    if derived:
        d, carry = stage(3, carry, keep)
    yields = m.derived["passive"].plastic
    if yields is not None and yields.tendon is not None:  # by the lengths of the step's start
        at = passive.tendon(m, kinematics(m, start))
        d = replace(d, ten_length=at.ten_length, ten_J=at.ten_J)
    warmstart, _, *sums, niter, sensordata = carry[3:10]
    d = replace(d, qacc=warmstart, solver_niter=niter, sensordata=sensordata)
    return ops.runge_kutta_end(m, start, d, tuple(sums))


def step(m: Model, d: Data, *, derived: bool = True, keep: tuple[str, ...] = ()) -> Data:
    """Advance every world by one physics step (mj_step).

    Without `derived`, only the state, qacc, sensordata, solver_niter and the fields named by `keep`
    of the result count; what else is in it may be left out. A compiled program is smaller that way.
    The fields of `forces` are in the result only if they are named.
    """
    run = partial(_runge_kutta, derived=derived) if m.opt.integrator == "rk4" else _semi_implicit
    new = replace(run(m, d, keep=keep), ctrl_history=actuation.recorded(m, d))
    return sensor.recorded(m, new)
