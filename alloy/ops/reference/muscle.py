"""Muscles: force by length, velocity and activation, and how activation follows the control.

Source: MuJoCo manual, Modeling, Muscle actuators; Millard et al. 2013 for the time constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.math import MINVAL

if TYPE_CHECKING:
    from alloy.physics.model import Model


def _scale(m: Model, prm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Peak force, rest length, and the length of normalised length zero; (1|W, nactuator)."""
    low, high, force, scale = prm[..., :4].unbind(-1)
    automatic = scale / m.actuator_acc0.clamp(min=MINVAL)
    force = torch.where(force < 0, automatic, force)
    shortest, longest = m.actuator_lengthrange.unbind(-1)
    rest = (longest - shortest) / (high - low).clamp(min=MINVAL)
    return force, rest, shortest - low * rest.clamp(min=MINVAL)


def _half_square(part: Tensor, whole: Tensor) -> Tensor:
    share = part / whole.clamp(min=MINVAL)
    return 0.5 * share * share


def _by_length(length: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Active force by normalised length: one at 1, zero outside of low .. high, four parabolas."""
    left, right = 0.5 * (low + 1), 0.5 * (1 + high)
    rising, falling = length <= 1, length <= right
    bell = torch.where(
        rising, 1 - _half_square(1 - length, 1 - left), 1 - _half_square(length - 1, right - 1)
    )
    bell = torch.where(length <= left, _half_square(length - low, left - low), bell)
    bell = torch.where(rising | falling, bell, _half_square(high - length, high - right))
    return torch.where((length >= low) & (length <= high), bell, 0.0)


def gain(m: Model, length: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
    """Active force at full activation (W, nactuator), and its derivative by the velocity."""
    prm = m.actuator_gainprm
    force, rest, zero = _scale(m, prm)
    low, high, fastest, top = prm[..., 4], prm[..., 5], prm[..., 6], prm[..., 8]
    active = force * _by_length((length - zero) / rest.clamp(min=MINVAL), low, high)
    per_speed = 1 / (rest * fastest).clamp(min=MINVAL)
    v, knee = velocity * per_speed, top - 1
    short, below = v + 1, knee - v
    steep = knee.clamp(min=MINVAL)
    curve = torch.where(v <= 0, short * short, top - below * below / steep)
    slope = torch.where(v <= 0, 2 * short, 2 * below / steep)
    slack, fast = v <= -1, v > torch.where(v <= 0, torch.inf, knee)
    curve = torch.where(slack, 0.0, torch.where(fast, top, curve))
    slope = torch.where(slack | fast, 0.0, slope)
    return -active * curve, -active * slope * per_speed


def bias(m: Model, length: Tensor) -> Tensor:
    """Passive force by length: none up to rest, then a parabola, then a line; (W, nactuator)."""
    prm = m.actuator_biasprm
    force, rest, zero = _scale(m, prm)
    x = (length - zero) / rest.clamp(min=MINVAL)
    knee = 0.5 * (1 + prm[..., 5])
    span = (knee - 1).clamp(min=MINVAL)
    parabola = 0.5 * ((x - 1) / span) ** 2
    pull = torch.where(x <= knee, parabola, 0.5 + (x - knee) / span)
    return torch.where(x <= 1, 0.0, -force * prm[..., 7] * pull)


def activation_rate(ctrl: Tensor, act: Tensor, prm: Tensor) -> Tensor:
    """Rate of activations (W, na) towards their controls, by dynprm (1|W, na, 10).

    Activating and deactivating have time constants of their own; the third parameter blends them
    over a range of differences.
    """
    rise, fall, width = prm[..., 0], prm[..., 1], prm[..., 2]
    ease = 0.5 + 1.5 * act.clamp(0, 1)
    rise, fall = rise * ease, fall / ease
    change = ctrl.clamp(0, 1) - act
    hard = width < MINVAL
    x = (change / torch.where(hard, 1.0, width) + 0.5).clamp(0, 1)
    smooth = x * x * x * (x * (6 * x - 15) + 10)
    share = torch.where(hard, (change > 0).to(smooth.dtype), smooth)
    return change / (fall + (rise - fall) * share).clamp(min=MINVAL)
