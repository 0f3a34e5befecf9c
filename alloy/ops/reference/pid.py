"""PID controllers, and what those of DC motors have in common with them.

The setpoint of the position may be limited in its rate, which takes a state, and the integral of
its error is another, which winds up no more where it is beyond its bound.
Source: MuJoCo manual, XML reference, actuator pid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy.math import picked

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

STATES = ("slew", "integral")  # in the order of activations


@dataclass(frozen=True)
class PidTables:
    """The controllers of a model, and where their states are; built by io_motors."""

    actuator: Tensor  # (n,)
    is_pid: Tensor  # (nactuator,) bool
    rows: Tensor  # (n, nactuator) one-hot
    inputs: Tensor  # (3, n) position, velocity and force, into [ctrl, 0]
    state: Tensor  # (2, n) into [act, 0], by STATES
    has_state: Tensor  # (2, n) bool
    place: Tensor  # (2 n, na) where the states are
    is_state: Tensor  # (na,) bool


class Controllers(NamedTuple):
    """What the controllers do."""

    force: Tensor  # (W, n) but for the bias, which is affine
    rates: Tensor  # (W, na) of the states, zero for other activations


def slewed(m: Model, wanted: Tensor, last: Tensor, most: Tensor) -> Tensor:
    """A setpoint that moves by at most `most` in a second, from what it was in the last step."""
    reach = m.opt.timestep * most
    return last + torch.minimum(torch.maximum(wanted - last, -reach), reach)


def winding(integral: Tensor, error: Tensor, bound: Tensor) -> Tensor:
    """Rate of an integral: the error, unless it winds up beyond a bound above zero."""
    full = (bound > 0) & (integral * error > 0) & (integral.abs() >= bound)
    return torch.where(full, 0.0, error)


def controllers(m: Model, d: Data, t: PidTables, length: Tensor, ctrl: Tensor) -> Controllers:
    """Forces and rates, from lengths (W, nactuator) and clamped controls (W, nu)."""
    gain, bias, dyn = (
        x[:, t.actuator] for x in (m.actuator_gainprm, m.actuator_biasprm, m.actuator_dynprm)
    )
    length = length[:, t.actuator]
    position, velocity, force = picked(t.inputs, ctrl).unbind(1)
    last, integral = picked(t.state, d.act).unbind(1)
    limited = slewed(m, position, last, dyn[..., 1])
    position = torch.where(t.has_state[0], limited, position)
    rates = [(position - last) / m.opt.timestep, winding(integral, position - length, dyn[..., 0])]
    force = force - bias[..., 1] * position - bias[..., 2] * velocity + gain[..., 0] * integral
    return Controllers(force, torch.cat(rates, -1) @ t.place)
