"""The stages of a step as ops: each takes Model and Data and returns the Data with more fields.

The fields that a stage reads and sets have the shapes, units and meaning that their declarations in
`alloy.physics.model` give; a model field may be shared by all worlds. Each stage is one kernel; a
model with something in a stage that its kernel does not know keeps the reference there.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import where_worlds
from alloy.ops.dispatch import by_kernel
from alloy.ops.reference import actuation as reference_actuation
from alloy.ops.reference import constraint as reference_constraint
from alloy.ops.reference import contacts as reference_contacts
from alloy.ops.reference import integrate as reference_integrate
from alloy.ops.reference import passive as reference_passive
from alloy.ops.reference import sensor as reference_sensor
from alloy.ops.reference import smooth as reference_smooth

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


def _by_kernel(m: Model | None, d: Data) -> bool:
    if not by_kernel(d.qpos):
        return False
    if not torch.is_grad_enabled():
        return True
    held = (getattr(x, f.name) for x in (m, d) if x is not None for f in fields(x))
    return by_kernel(*(t for t in held if isinstance(t, Tensor)))


def kinematics(m: Model, d: Data) -> Data:
    """World poses, centres of mass, spatial inertias and motion axes (mj_kinematics, mj_comPos).

    Quaternions in qpos and mocap_quat may have any length and are used normalised. Sets xpos,
    xquat, xmat, xanchor and xaxis (of a ball or free joint: after its rotation), xipos, ximat,
    subtree_com, cinert and cdof about the tree's centre of mass, poses of geoms and sites.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import smooth

        return smooth.kinematics(m, d)
    return reference_smooth.kinematics(m, d)


def tendon(m: Model, d: Data) -> Data:
    """Length, velocity and Jacobian of every tendon; needs kinematics where one is spatial.

    Sets ten_length, ten_velocity and ten_J.
    """
    if m.ntendon and _by_kernel(m, d):
        from alloy.ops.triton import passive

        if passive.has_kernel(m):
            return passive.tendon(m, d)
    return reference_passive.tendon(m, d)


def contacts(m: Model, d: Data) -> Data:
    """Contacts of every enabled pair, in slot order: contact_dist, contact_pos, contact_frame.

    Distance is negative in penetration and 1e10 in slots without a contact, the point is midway
    between the surfaces, the frame's first row is the normal from geom 1 to geom 2.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import contacts as kernel

        if kernel.has_kernel(m):
            return kernel.contacts(m, d)
    return reference_contacts.contacts(m, d)


def rows(m: Model, d: Data) -> Data:
    """Jacobian, distance, impedance and inverse mass of every base row (mj_makeConstraint).

    Sets efc_J, efc_pos, efc_kip, efc_D and efc_active; J and D are zero where not active. Source:
    MuJoCo manual, Computation, Constraint model.
    """
    if m.nefc and _by_kernel(m, d):
        from alloy.ops.triton import constraint

        if constraint.has_kernel(m.efc):
            return constraint.rows(m, d)
    return reference_constraint.rows(m, d)


def velocity(m: Model, d: Data) -> Data:
    """Spatial velocities cvel and cdof_dot, and qfrc_bias (mj_comVel, mj_rne)."""
    if _by_kernel(m, d):
        from alloy.ops.triton import smooth

        return smooth.velocity(m, d)
    return reference_smooth.velocity(m, d)


def passive(m: Model, d: Data) -> Data:
    """All passive joint forces; needs kinematics, body velocities and tendons.

    Sets qfrc_spring, qfrc_damper, qfrc_gravcomp, qfrc_fluid and their sum qfrc_passive, without the
    gravity compensation that goes through actuators. Disabling both springs and dampers disables
    every passive force, as in MuJoCo.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import passive as kernel

        if kernel.has_kernel(m):
            return kernel.passive(m, d)
    return reference_passive.passive(m, d)


def reference_acceleration(m: Model, d: Data) -> Data:
    """Reference acceleration efc_aref of every row (mj_referenceConstraint), zero where inactive.

    Connect and weld rows carry their drift Jdot qvel.
    """
    if m.nefc and _by_kernel(m, d):
        from alloy.ops.triton import constraint

        if constraint.has_kernel(m.efc):
            return constraint.reference_acceleration(m, d)
    return reference_constraint.reference_acceleration(m, d)


def actuation(m: Model, d: Data) -> Data:
    """Actuator lengths, velocities, forces and joint forces, and the rate of the activations.

    Sets actuator_length, actuator_velocity, act_dot, actuator_force and qfrc_actuator, and
    qfrc_smooth: passive, actuator and applied forces less the bias. Controls must be finite: the
    simulator sets them to zero beforehand where they are not.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import actuation as kernel

        if kernel.has_kernel(m):
            return kernel.actuation(m, d)
    return reference_actuation.actuation(m, d)


def sensor(m: Model, d: Data) -> Data:
    """All sensors: sets sensordata (W, nsensordata); the last stage, after the constraint solve."""
    if "sensor" not in m.opt.disable and _by_kernel(m, d):
        from alloy.ops.triton import sensor as kernel

        if kernel.has_kernel(m.derived["sensor"]):
            return kernel.sensor(m, d)
    return reference_sensor.sensor(m, d)


def semi_implicit(m: Model, d: Data, qacc: Tensor | None) -> Data:
    """The next state: velocity first, then position with the new velocity (mj_Euler, mj_implicit).

    Args:
        m: the model.
        d: with qacc and the forces it follows from, and tendons where their springs yield.
        qacc: (W, nv) acceleration over the step; None: Euler's, which is d.qacc, with the damping
            of joints taken at the end of the step where the model has it.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import integrate

        if integrate.has_kernel(m):
            return integrate.semi_implicit(m, d, qacc)
    return reference_integrate.semi_implicit(m, d, qacc)


def runge_kutta_stage(
    m: Model, start: Data, at: Data, i: int | Tensor, sums: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Where the next of the four stages begins, and the sums so far (mj_RungeKutta, N = 4).

    Args:
        m: the model.
        start: the state of the step's start.
        at: the stage's state with all that follows from it.
        i: 0 to 3, which stage it is.
        sums: how far the stage's state has moved from the start, as rotation vectors over the
            timestep; weighted rates, accelerations and activation rates so far; solver iterations;
            sensordata of the first stage.

    Returns:
        qpos, qvel, act and warm start of the next stage, and the sums with this stage.
    """
    if isinstance(i, int) and _by_kernel(m, at):
        from alloy.ops.triton import integrate

        return integrate.runge_kutta_stage(m, start, at, i, sums)
    return reference_integrate.runge_kutta_stage(m, start, at, i, sums)


def runge_kutta_end(m: Model, start: Data, d: Data, sums: tuple[Tensor, ...]) -> Data:
    """The next state from the sums of rates, accelerations and activation rates of four stages.

    Where springs of tendons yield, d has the tendons of the step's start.
    """
    if _by_kernel(m, d):
        from alloy.ops.triton import integrate

        if integrate.has_kernel(m):
            return integrate.runge_kutta_end(m, start, d, sums)
    return reference_integrate.runge_kutta_end(m, start, d, sums)


def keep_sound(stopped: Tensor, niter: Tensor, old: Data, new: Data) -> tuple[Tensor, Data]:
    """The new state of worlds that are sound, the old one of those that have stopped.

    Args:
        stopped: (W,) bool, worlds that had stopped before.
        niter: (W,) solver iterations of the steps before, at most.
        old: a Data.
        new: the same a step later; a world stops here where its qpos, qvel, act or qacc is not
            finite or beyond 1e10.

    Returns:
        Worlds that have stopped (W,), and `new` with what each world's state is now and the larger
        solver_niter.
    """
    if _by_kernel(None, new):
        from alloy.ops.triton import integrate

        stopped, kept = integrate.keep_sound(stopped, niter, old, new)
        for name in ("ctrl_history", "sensor_history", "plastic"):  # the kernel knows none of them
            before, after = getattr(old, name), getattr(new, name)
            if after.shape[1]:
                kept = replace(kept, **{name: where_worlds(stopped, before, after)})
        return stopped, kept
    return reference_integrate.keep_sound(stopped, niter, old, new)
