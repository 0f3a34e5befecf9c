"""DC motors: voltage to current to torque, with a controller, friction and heat where they are.

The voltage is a control, and what a controller of position, velocity and torque asks for, within
its limit. The current follows it at once or with the coil's time constant. States, where a motor
has them: the control after its slew limit, the controller's integral, the winding's temperature
above the ambient one, the bristles' deflection (LuGre) and the current.
Source: MuJoCo technical note, DC motor model; XML reference, actuator dcmotor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy.math import MINVAL, picked
from alloy.ops.reference import pid

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

STATES = ("slew", "integral", "temperature", "bristle", "current")  # in the order of activations


@dataclass(frozen=True)
class DcMotorTables:
    """The motors of a model, and where their states are; built by io_motors."""

    actuator: Tensor  # (n,)
    force: Tensor  # (n,) their forces among those of all
    is_motor: Tensor  # (nactuator,) bool
    rows: Tensor  # (n, nactuator) one-hot
    inputs: Tensor  # (4, n) position, velocity, torque and voltage, into [ctrl, 0]
    first: Tensor  # (4, n) bool, the one whose rate is limited
    state: Tensor  # (5, n) into [act, 0], by STATES
    has: tuple[bool, ...]  # whether some motor has that state
    has_state: Tensor  # (5, n) bool
    place: Tensor  # (5 n, na) where the states are
    is_state: Tensor  # (na,) bool
    controlled: Tensor | None  # (n,) bool, has a controller; None: none has
    limited_voltage: bool  # some controller's voltage has a limit


class Motors(NamedTuple):
    """What the motors do, (W, n) each."""

    force: Tensor  # of the current, before its limit
    beside: Tensor  # of cogging and friction, which have none
    # their derivatives by the velocity, as the implicit integrators take them
    slope: Tensor
    slope_beside: Tensor
    rates: Tensor  # (W, na) of the states, zero for other activations


def motors(
    m: Model, d: Data, t: DcMotorTables, length: Tensor, velocity: Tensor, ctrl: Tensor
) -> Motors:
    """Forces and rates of all motors, from lengths, velocities (W, nactuator), controls (W, nu)."""
    h, pick = m.opt.timestep, t.actuator
    gain, bias = m.actuator_gainprm[:, pick], m.actuator_biasprm[:, pick]
    dyn = m.actuator_dynprm[:, pick]
    length, velocity = length[:, pick], velocity[:, pick]
    inputs = picked(t.inputs, ctrl)  # (W, 4, n)
    state = dict(zip(STATES, picked(t.state, d.act).unbind(1), strict=True))
    zero = torch.zeros_like(velocity)
    rates = dict.fromkeys(STATES, zero)
    resistance, constant = gain[..., 0], gain[..., 1].clamp(min=MINVAL)

    if t.has[0]:
        wanted = torch.where(t.first, inputs, 0.0).sum(1)
        moved = pid.slewed(m, wanted, state["slew"], dyn[..., 7])
        inputs = torch.where(t.first & t.has_state[0], moved.unsqueeze(1), inputs)
        rates["slew"] = (moved - state["slew"]) / h
    voltage, voltage_slope = inputs[:, 3], zero
    if t.controlled is not None:
        error = inputs[:, 0] - length
        wanted, slope = _controlled(t, gain, inputs, error, state["integral"], velocity)
        voltage = voltage + torch.where(t.controlled, wanted, 0.0)
        voltage_slope = torch.where(t.controlled, slope, 0.0)
        rates["integral"] = pid.winding(state["integral"], error, dyn[..., 8])
    if t.has[2]:
        warmth = 1 + gain[..., 2] * (state["temperature"] + dyn[..., 4] - gain[..., 3])
        resistance = torch.where(
            t.has_state[2], (resistance * warmth).clamp(min=MINVAL), resistance
        )
    settled = (voltage - constant * velocity) / resistance
    current, used, share = settled, settled, torch.ones_like(zero)
    if t.has[4]:
        tau = dyn[..., 0].clamp(min=MINVAL)
        rate, most = (settled - state["current"]) / tau, dyn[..., 1]
        most = torch.where(most > 0, most, torch.inf)
        held = torch.minimum(torch.maximum(rate, -most), most)
        reach = -torch.expm1(-h / tau)
        current = torch.where(t.has_state[4], state["current"], settled)
        used = torch.where(t.has_state[4], current + held * tau * reach, settled)
        share = torch.where(t.has_state[4], torch.where(rate.abs() < most, reach, 0.0), share)
        rates["current"] = held
    beside = bias[..., 0] * torch.sin(bias[..., 1] * length + bias[..., 2])
    slope = constant * (voltage_slope - constant) / resistance * share
    if t.has[2]:
        lost = state["temperature"] / dyn[..., 2].clamp(min=MINVAL)
        heat = current * current * resistance - lost
        rates["temperature"] = heat / dyn[..., 3].clamp(min=MINVAL)
    slope_beside = zero
    if t.has[3]:
        rates["bristle"] = _slip(bias, dyn, velocity) * state["bristle"] + velocity
        friction = dyn[..., 5] * state["bristle"] + dyn[..., 6] * rates["bristle"]
        beside = beside - torch.where(t.has_state[3], friction, 0.0)
        slope_beside = torch.where(t.has_state[3], -dyn[..., 6], zero)
    moved = torch.cat([rates[name] for name in STATES], -1) @ t.place
    return Motors(constant * used, beside, slope, slope_beside, moved)


def _controlled(
    t: DcMotorTables,
    gain: Tensor,
    inputs: Tensor,
    error: Tensor,
    integral: Tensor,
    velocity: Tensor,
) -> tuple[Tensor, Tensor]:
    """Voltage that a controller sets for the torque it wants, and its slope by velocity; (W, n).

    It knows the motor cold, makes up for the voltage that the motion induces, and has a limit.
    """
    resistance, constant = gain[..., 0], gain[..., 1].clamp(min=MINVAL)
    torque = inputs[:, 2] + gain[..., 4] * error + gain[..., 5] * integral
    torque = torque + gain[..., 6] * (inputs[:, 1] - velocity)
    voltage = torque * resistance / constant + constant * velocity
    slope = constant - gain[..., 6] * resistance / constant
    if t.limited_voltage:
        limit = torch.where(gain[..., 7] > 0, gain[..., 7], torch.inf)
        slope = torch.where(voltage.abs() < limit, slope, 0.0)
        voltage = torch.minimum(torch.maximum(voltage, -limit), limit)
    return voltage, slope


def _slip(bias: Tensor, dyn: Tensor, velocity: Tensor) -> Tensor:
    """How fast bristles let go, -sigma0 |v| / g(v), by Stribeck's curve g; (W, n)."""
    coulomb, static, knee = bias[..., 3:6].unbind(-1)
    ratio = velocity / knee.clamp(min=MINVAL)
    curve = coulomb + (static - coulomb) * torch.exp(-ratio * ratio)
    return -dyn[..., 5] * velocity.abs() / curve.clamp(min=MINVAL)


def steps(m: Model, d: Data, t: DcMotorTables, change: Tensor) -> Tensor:
    """What the states gain in a timestep (W, na) at their rates, zero for other activations.

    Current and bristles are integrated in closed form, the integral stays within its bound, the
    rest goes by Euler.

    Args:
        m: the model.
        d: with act_dot and actuator_velocity.
        t: its motors.
        change: (W, na) act_dot times the timestep.
    """
    h, bias, dyn = m.opt.timestep, m.actuator_biasprm, m.actuator_dynprm
    bias, dyn, velocity = bias[:, t.actuator], dyn[:, t.actuator], d.actuator_velocity[:, t.force]
    parts = list(picked(t.state, change).unbind(1))
    if t.has[1]:
        now, bound = picked(t.state[1], d.act), dyn[..., 8]
        bound = torch.where(bound > 0, bound, torch.inf)
        parts[1] = torch.minimum(torch.maximum(now + parts[1], -bound), bound) - now
    if t.has[3]:
        slip = _slip(bias, dyn, velocity)
        fast = slip < 0
        safe = torch.where(fast, slip, -1.0)
        parts[3] = torch.where(fast, parts[3] * torch.expm1(safe * h) / (safe * h), parts[3])
    if t.has[4]:
        tau = dyn[..., 0].clamp(min=MINVAL)
        parts[4] = parts[4] * tau * -torch.expm1(-h / tau) / h
    return torch.cat(parts, -1) @ t.place
