"""Actuators: transmission, activation dynamics, force and its clamps.

On scalar joints and fixed tendons an actuator's moment arm is its first gear times a constant row;
ball and free joints, whose moments are three or six gears wide, are a case of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from alloy.math import MINVAL, dot, quat_normalize, quat_to_mat, quat_to_rotvec, rotate_inv
from alloy.physics.model import Data, Model


@dataclass(frozen=True)
class Limit:
    """Which columns are clamped to a range (..., 2); the mask is None where all of them are."""

    mask: Tensor | None

    def clamp(self, x: Tensor, bounds: Tensor) -> Tensor:
        """Clamp the limited columns of x (..., n) to bounds (..., n, 2)."""
        clamped = torch.clamp(x, bounds[..., 0], bounds[..., 1])
        return clamped if self.mask is None else torch.where(self.mask, clamped, x)

    def reached(self, x: Tensor, bounds: Tensor) -> Tensor:
        """Limited columns that are at or beyond their bounds; bool (..., n)."""
        at = (x <= bounds[..., 0]) | (x >= bounds[..., 1])
        return at if self.mask is None else at & self.mask


@dataclass(frozen=True)
class TurnTables:
    """Transmissions on ball and free joints."""

    actuator: Tensor  # (n,)
    quat: Tensor  # (n, 4) qpos addresses
    is_ball: Tensor  # (n, 1) bool
    in_parent: Tensor | None  # (n, 1) bool, gear turns with the parent; None: never
    place: Tensor  # (n, 6, nv) unit moments of translational and rotational gear
    rows: Tensor  # (nu, n) rows of these actuators


@dataclass(frozen=True)
class ActuationTables:
    """What the actuation stage knows of a model beforehand; built by io_tables.actuation_tables."""

    length: Tensor  # (nq, nu) length of scalar transmissions at unit gear, by qpos
    moment: Tensor  # (nu, nv) moment of scalar transmissions at unit gear
    turn: TurnTables | None
    ctrl_limit: Limit | None
    force_limit: Limit | None
    joint_limit: Limit | None  # over dofs, of the joint total
    dof_joint: Tensor  # (nv,)
    joint_actuators: Tensor  # (nv, nu) 1 where the actuator acts on the dof's scalar joint
    tendon_range: Tensor | None  # (n, 2) limits of tendon totals
    tendon_actuators: Tensor | None  # (nu, n) 1 where the actuator pulls the limited tendon
    enabled: Tensor | None  # (nu,) bool; None: no group is disabled
    gain_affine: bool  # some gain depends on length or velocity
    gain_mask: Tensor | None  # (nu, 3) 1 where const, length, velocity count; None: everywhere
    bias_affine: bool  # some actuator has a bias
    bias_mask: Tensor | None  # as gain_mask
    gravcomp: Tensor | None  # (nv,) 1 where actuators compensate gravity
    pattern: Tensor | None  # (nv, nv) pairs that implicitfast keeps; None: all that are coupled
    # activations
    input: Tensor | None  # (nu,) into [ctrl, act]; None: ctrl
    act_actuator: Tensor | None  # (na,); None: one to one
    act_filter: Tensor | None  # (na,) bool
    act_exact: Tensor | None  # (na,) bool
    act_early: Tensor | None  # (na,) bool
    act_limit: Limit | None
    act_enabled: Tensor | None  # (na,) bool


def actuation(m: Model, d: Data) -> Data:
    """Actuator lengths, velocities, forces and joint forces, and the rate of the activations.

    Sets actuator_length, actuator_velocity, act_dot, actuator_force and qfrc_actuator. Needs
    qfrc_gravcomp where joints compensate gravity through actuators. Controls must be finite:
    the simulator sets them to zero beforehand where they are not.
    """
    t: ActuationTables = m.derived["actuation"]
    length, velocity, moment = _transmission(m, d, t)
    d = replace(d, actuator_length=length, actuator_velocity=velocity)
    if m.nu == 0 or "actuation" in m.opt.disable:  # MuJoCo then leaves velocities out, too
        return replace(
            d,
            act_dot=torch.zeros_like(d.act),
            actuator_velocity=torch.zeros_like(velocity),
            actuator_force=torch.zeros_like(length),
            qfrc_actuator=torch.zeros_like(d.qvel),
        )
    ctrl = _clamped_ctrl(m, d, t)
    d = replace(d, act_dot=_activation_rate(m, d, t, ctrl))
    gain = m.actuator_gainprm[..., 0]
    if t.gain_affine:
        gain = _affine(m.actuator_gainprm, t.gain_mask, length, velocity)
    force = gain * _inputs(m, d, t, ctrl)
    if t.bias_affine:
        force = force + _affine(m.actuator_biasprm, t.bias_mask, length, velocity)
    force = _clamped_force(m, t, force)
    if moment is None:
        joint = (force * m.actuator_gear[..., 0]) @ t.moment
    else:
        joint = (force.unsqueeze(-2) @ moment).squeeze(-2)
    if t.gravcomp is not None:
        joint = joint + d.qfrc_gravcomp * t.gravcomp
    if t.joint_limit is not None:
        joint = t.joint_limit.clamp(joint, m.jnt_actfrcrange[:, t.dof_joint])
    return replace(d, actuator_force=force, qfrc_actuator=joint)


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
    if t.act_enabled is not None:
        step = torch.where(t.act_enabled, step, 0.0)
    act = d.act + step
    if t.act_limit is None:
        return act
    return t.act_limit.clamp(act, _by_act(m.actuator_actrange, t))


def velocity_derivative(m: Model, d: Data) -> Tensor:
    """Derivative of qfrc_actuator by qvel as MuJoCo's implicitfast takes it; (1|W, nv, nv).

    An actuator whose force is at a limit, its own or its joint's or tendon's, contributes nothing.
    Pairs of dofs of which neither is above the other in the tree are left out. Needs actuation's
    results.
    """
    t: ActuationTables = m.derived["actuation"]
    nothing = m.nu == 0 or "actuation" in m.opt.disable
    if nothing or not (t.gain_affine or t.bias_affine):
        return torch.zeros_like(m.dof_damping).unsqueeze(-1).expand(-1, -1, m.nv)
    slope = torch.zeros_like(m.actuator_gear[..., 0])
    if t.bias_affine:
        slope = _velocity_gain(m.actuator_biasprm, t.bias_mask)
    if t.gain_affine:
        inputs = _inputs(m, d, t, _clamped_ctrl(m, d, t))
        slope = slope + _velocity_gain(m.actuator_gainprm, t.gain_mask) * inputs
    if t.enabled is not None:
        slope = torch.where(t.enabled, slope, 0.0)
    if t.force_limit is not None:
        at_limit = t.force_limit.reached(d.actuator_force, m.actuator_forcerange)
        slope = torch.where(at_limit, 0.0, slope)
    if t.joint_limit is not None:
        at_limit = t.joint_limit.reached(d.qfrc_actuator, m.jnt_actfrcrange[:, t.dof_joint])
        held = at_limit.to(slope.dtype) @ t.joint_actuators
        slope = torch.where(held > 0, 0.0, slope)
    if t.tendon_range is not None and t.tendon_actuators is not None:
        held = _tendon_at_limit(t, d.actuator_force @ t.tendon_actuators)
        slope = torch.where(held.to(slope.dtype) @ t.tendon_actuators.mT > 0, 0.0, slope)
    moment = _transmission(m, d, t)[2]
    if moment is None:
        moment = m.actuator_gear[..., :1] * t.moment
    out = moment.mT @ (slope.unsqueeze(-1) * moment)
    return out if t.pattern is None else out * t.pattern


def _transmission(m: Model, d: Data, t: ActuationTables) -> tuple[Tensor, Tensor, Tensor | None]:
    """Lengths and velocities (W, nu), and the moments (W, nu, nv) unless all joints are scalar."""
    gear = m.actuator_gear[..., 0]
    length = (d.qpos @ t.length) * gear
    if t.turn is None:
        return length, (d.qvel @ t.moment.mT) * gear, None
    turn_length, turn_moment = _turns(m, d, t.turn)
    moment = gear.unsqueeze(-1) * t.moment + t.turn.rows @ turn_moment
    velocity = (moment @ d.qvel.unsqueeze(-1)).squeeze(-1)
    return length + turn_length @ t.turn.rows.mT, velocity, moment


def _turns(m: Model, d: Data, r: TurnTables) -> tuple[Tensor, Tensor]:
    """Lengths (W, n) and moments (W, n, nv) on ball and free joints; a free joint has length 0."""
    gear = m.actuator_gear[:, r.actuator]
    shift, turn = gear[..., :3], torch.where(r.is_ball, gear[..., :3], gear[..., 3:])
    quat = quat_normalize(d.qpos[:, r.quat])
    length = torch.where(r.is_ball.squeeze(-1), dot(quat_to_rotvec(quat), turn), 0.0)
    if r.in_parent is not None:
        turn = torch.where(r.in_parent, rotate_inv(quat_to_mat(quat), turn), turn)
    both = torch.cat([shift.expand_as(turn), turn], -1)
    return length, (both.unsqueeze(-2) @ r.place).squeeze(-2)


def _clamped_ctrl(m: Model, d: Data, t: ActuationTables) -> Tensor:
    if t.ctrl_limit is None or "clampctrl" in m.opt.disable:
        return d.ctrl
    return t.ctrl_limit.clamp(d.ctrl, m.actuator_ctrlrange)


def _activation_rate(m: Model, d: Data, t: ActuationTables, ctrl: Tensor) -> Tensor:
    """Time derivative of the activations, also of those in disabled groups; (W, na)."""
    if m.na == 0:
        return torch.zeros_like(d.act)
    rate = ctrl if t.act_actuator is None else ctrl[:, t.act_actuator]
    if t.act_filter is not None:
        rate = torch.where(t.act_filter, (rate - d.act) / _time_constant(m, t), rate)
    return rate


def _inputs(m: Model, d: Data, t: ActuationTables, ctrl: Tensor) -> Tensor:
    """What each gain multiplies: the control, or the activation where there is one; (W, nu)."""
    if t.input is None:
        return ctrl
    act = d.act
    if t.act_early is not None:
        act = torch.where(t.act_early, next_activation(m, d), act)
    return torch.cat([ctrl, act], -1)[:, t.input]


def _by_act(field: Tensor, t: ActuationTables) -> Tensor:
    return field if t.act_actuator is None else field[:, t.act_actuator]


def _time_constant(m: Model, t: ActuationTables) -> Tensor:
    return _by_act(m.actuator_dynprm[..., 0], t).clamp(min=MINVAL)


def _affine(prm: Tensor, mask: Tensor | None, length: Tensor, velocity: Tensor) -> Tensor:
    """Const + kp length + kv velocity, of the terms that count; (W, nu)."""
    terms = prm[..., :3] if mask is None else prm[..., :3] * mask
    const, kp, kv = terms.unbind(-1)
    return const + kp * length + kv * velocity


def _velocity_gain(prm: Tensor, mask: Tensor | None) -> Tensor:
    return prm[..., 2] if mask is None else prm[..., 2] * mask[:, 2]


def _tendon_at_limit(t: ActuationTables, total: Tensor) -> Tensor:
    """Tendons whose total is at a limit, within what scaling the shares to it has rounded off."""
    assert t.tendon_range is not None
    low, high = t.tendon_range.unbind(-1)
    slack = 32 * torch.finfo(total.dtype).eps * (high - low)
    return (total <= low + slack) | (total >= high - slack)


def _clamped_force(m: Model, t: ActuationTables, force: Tensor) -> Tensor:
    """Disabled groups, then limits of tendon totals, then of each actuator; (W, nu).

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
