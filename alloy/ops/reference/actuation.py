"""Actuators: activation dynamics, force and its clamps; see transmission.py, muscle.py.

Source: MuJoCo manual, Computation, Actuation model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL, picked
from alloy.ops.reference import dcmotor, muscle, orientation, pid
from alloy.ops.reference.smooth import applied_force
from alloy.ops.reference.transmission import transmission

if TYPE_CHECKING:
    from alloy.physics.actuation import ActuationTables
    from alloy.physics.model import Data, Model


def actuation(m: Model, d: Data) -> Data:
    """See `alloy.ops.actuation`."""
    d = _actuation(m, d)
    smooth = d.qfrc_passive - d.qfrc_bias + d.qfrc_actuator + applied_force(m, d)
    return replace(d, qfrc_smooth=smooth)


def _actuation(m: Model, d: Data) -> Data:
    t: ActuationTables = m.derived["actuation"]
    length, velocity, moment = transmission(m, d, t)
    turned = None if t.servos is None else orientation.motion(m, d, t.servos)
    reach = orientation.beside(t.servos, length, turned and turned.length)
    speed = orientation.beside(t.servos, velocity, turned and turned.velocity)
    d = replace(d, actuator_length=reach, actuator_velocity=speed)
    if m.nactuator == 0 or "actuation" in m.opt.disable:  # MuJoCo then leaves velocities out, too
        return replace(
            d,
            act_dot=torch.zeros_like(d.act),
            actuator_velocity=torch.zeros_like(speed),
            actuator_force=torch.zeros_like(reach),
            qfrc_actuator=torch.zeros_like(d.qvel),
        )
    ctrl = clamped_ctrl(m, d, t)
    d, force = _plain_forces(m, d, t, length, velocity, ctrl)
    if moment is None:
        joint = (force * m.actuator_gear[..., 0]) @ t.moment
    else:
        joint = (force.unsqueeze(-2) @ moment).squeeze(-2)
    if t.servos is not None and turned is not None:
        turning, _ = orientation.forces(m, t.servos, turned, ctrl, active(m, d, t))
        joint = joint + orientation.joint_force(turned, turning)
        force = orientation.beside(t.servos, force, turning)
    if t.gravcomp is not None:
        joint = joint + d.qfrc_gravcomp * t.gravcomp
    if t.joint_limit is not None:
        joint = t.joint_limit.clamp(joint, m.jnt_actfrcrange[:, t.dof_joint])
    return replace(d, actuator_force=force, qfrc_actuator=joint)


def _plain_forces(
    m: Model, d: Data, t: ActuationTables, length: Tensor, velocity: Tensor, ctrl: Tensor
) -> tuple[Data, Tensor]:
    """Data with act_dot, and the forces (W, nactuator) of actuators that have one.

    Args:
        m: the model.
        d: with actuator_velocity.
        t: its actuators.
        length: (W, nactuator).
        velocity: (W, nactuator).
        ctrl: (W, nu) within their ranges.
    """
    first, own, held = first_ctrl(t, ctrl), None, None
    if t.dcmotor is not None:
        own = dcmotor.motors(m, d, t.dcmotor, length, velocity, ctrl)
    if t.pid is not None:
        held = pid.controllers(m, d, t.pid, length, ctrl)
    d = replace(d, act_dot=_activation_rate(m, d, t, ctrl, own, held))
    gain = m.actuator_gainprm[..., 0]
    if t.gain_affine:
        gain = _affine(m.actuator_gainprm, t.gain_mask, length, velocity)
    if t.muscle_gain is not None:
        gain = torch.where(t.muscle_gain, muscle.gain(m, length, velocity)[0], gain)
    force = gain * inputs(m, d, t, first)
    if held is not None and t.pid is not None:
        force = torch.where(t.pid.is_pid, held.force @ t.pid.rows, force)
    if t.bias_affine:
        force = force + _affine(m.actuator_biasprm, t.bias_mask, length, velocity)
    if t.muscle_bias is not None:
        force = force + torch.where(t.muscle_bias, muscle.bias(m, length), 0.0)
    if own is not None and t.dcmotor is not None:
        force = torch.where(t.dcmotor.is_motor, own.force @ t.dcmotor.rows, force)
    force = _clamped_force(m, t, force)
    if own is not None and t.dcmotor is not None:
        beside = own.beside @ t.dcmotor.rows
        force = force + (beside if t.enabled is None else torch.where(t.enabled, beside, 0.0))
    return d, force


def next_activation(m: Model, d: Data) -> Tensor:
    """Activations one timestep later, moved by act_dot and clamped; (W, na).

    Filters of the kind filterexact are integrated in closed form. Activations of disabled groups
    stand still.
    """
    t: ActuationTables = m.derived["actuation"]
    if m.na == 0 or "actuation" in m.opt.disable:
        return d.act
    step = d.act_dot * m.opt.timestep
    if t.act_exact is not None:
        tau = _time_constant(m, t)
        step = torch.where(t.act_exact, d.act_dot * tau * -torch.expm1(-m.opt.timestep / tau), step)
    if t.dcmotor is not None:
        step = torch.where(t.dcmotor.is_state, dcmotor.steps(m, d, t.dcmotor, step), step)
    if t.act_enabled is not None:
        step = torch.where(t.act_enabled, step, 0.0)
    act = d.act + step
    if t.act_limit is not None:
        act = t.act_limit.clamp(act, _by_act(m.actuator_actrange, t))
    return act if t.servos is None else orientation.wrapped(t.servos, act)


@dataclass(frozen=True)
class DelayTables:
    """How delayed controls are read from what was recorded; built by io_delays."""

    read: Tensor  # (nhistory, nu) weights
    delayed: Tensor  # (nu,) bool
    shift: Tensor  # (nhistory,) the next record, into [ctrl, ctrl_history]


def clamped_ctrl(m: Model, d: Data, t: ActuationTables) -> Tensor:
    """Controls, those of before where they are delayed, within their ranges (W, nu)."""
    ctrl = d.ctrl
    if t.delay is not None:
        ctrl = torch.where(t.delay.delayed, d.ctrl_history @ t.delay.read, ctrl)
    if t.ctrl_limit is None or "clampctrl" in m.opt.disable:
        return ctrl
    return t.ctrl_limit.clamp(ctrl, m.actuator_ctrlrange)


def first_ctrl(t: ActuationTables, ctrl: Tensor) -> Tensor:
    """The first control of each actuator, zero for those that have none; (W, nactuator)."""
    return ctrl if t.first_ctrl is None else picked(t.first_ctrl, ctrl)


def recorded(m: Model, d: Data) -> Tensor:
    """The record of controls once those of this step are in it (W, nhistory)."""
    t: ActuationTables = m.derived["actuation"]
    if t.delay is None:
        return d.ctrl_history
    return torch.cat([d.ctrl, d.ctrl_history], -1)[:, t.delay.shift]


def _activation_rate(
    m: Model,
    d: Data,
    t: ActuationTables,
    ctrl: Tensor,
    own: dcmotor.Motors | None,
    held: pid.Controllers | None,
) -> Tensor:
    """Time derivative of the activations, also of those in disabled groups; (W, na)."""
    if m.na == 0:
        return torch.zeros_like(d.act)
    every, ctrl = ctrl, first_ctrl(t, ctrl)
    rate = ctrl if t.act_actuator is None else ctrl[:, t.act_actuator]
    if t.act_filter is not None:
        rate = torch.where(t.act_filter, (rate - d.act) / _time_constant(m, t), rate)
    if t.act_muscle is not None:
        control = ctrl if t.act_actuator is None else ctrl[:, t.act_actuator]
        of_muscle = muscle.activation_rate(control, d.act, _by_act(m.actuator_dynprm, t))
        rate = torch.where(t.act_muscle, of_muscle, rate)
    if own is not None and t.dcmotor is not None:
        rate = torch.where(t.dcmotor.is_state, own.rates, rate)
    if held is not None and t.pid is not None:
        rate = torch.where(t.pid.is_state, held.rates, rate)
    return rate if t.servos is None else orientation.rates(t.servos, every, rate)


def inputs(m: Model, d: Data, t: ActuationTables, ctrl: Tensor) -> Tensor:
    """What gains multiply: the first control, or the activation if there is one; (W, nactuator)."""
    if t.input is None:
        return ctrl
    return torch.cat([ctrl, active(m, d, t)], -1)[:, t.input]


def active(m: Model, d: Data, t: ActuationTables) -> Tensor:
    """Activations that forces follow from, (W, na): those of the next step where that is asked."""
    if t.act_early is None:
        return d.act
    return torch.where(t.act_early, next_activation(m, d), d.act)


def by_actuator(t: ActuationTables, x: Tensor) -> Tensor:
    """Of what Data has by force, (W, nout), that of each actuator with one force."""
    return x if t.servos is None else x[:, t.servos.plain]


def _by_act(field: Tensor, t: ActuationTables) -> Tensor:
    return field if t.act_actuator is None else field[:, t.act_actuator]


def _time_constant(m: Model, t: ActuationTables) -> Tensor:
    return _by_act(m.actuator_dynprm[..., 0], t).clamp(min=MINVAL)


def _affine(prm: Tensor, mask: Tensor | None, length: Tensor, velocity: Tensor) -> Tensor:
    """Const + kp length + kv velocity, of the terms that count; (W, nactuator)."""
    terms = prm[..., :3] if mask is None else prm[..., :3] * mask
    const, kp, kv = terms.unbind(-1)
    return const + kp * length + kv * velocity


def _clamped_force(m: Model, t: ActuationTables, force: Tensor) -> Tensor:
    """Disabled groups, then limits of tendon totals, then of each actuator; (W, nactuator).

    In MuJoCo's order: a disabled actuator is clamped too, so that a range without zero shows.
    """
    if t.enabled is not None:
        force = torch.where(t.enabled, force, 0.0)
    if t.tendon_range is not None and t.tendon_actuators is not None:
        total = force @ t.tendon_actuators
        clamped = torch.clamp(total, t.tendon_range[:, 0], t.tendon_range[:, 1])
        outside = clamped != total
        scale = torch.where(outside, clamped / torch.where(outside, total, 1.0), 1.0)
        force = force * (1.0 + (scale - 1.0) @ t.tendon_actuators.mT)
    if t.force_limit is not None:
        force = t.force_limit.clamp(force, m.actuator_forcerange)
    return force
