"""Activations of actuators: their rate and their next value, with their flags as a table."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import load
from alloy.ops.triton.tables import table
from alloy.ops.triton.vector import MINVAL, number

if TYPE_CHECKING:
    from alloy.physics.actuation import ActuationTables

# columns of the activation table
ACT = tl.constexpr(6)
OWNER, FILTER, EXACT, EARLY, LIMITED, ENABLED = (tl.constexpr(k) for k in range(6))


@lru_cache(maxsize=64)
def activation_tables(t: ActuationTables, na: int, device: torch.device) -> Tensor:
    """Owner and flags of each activation, (na * ACT,); the constants above name the columns."""

    def flag(mask: Tensor | None, default: int) -> np.ndarray:
        return np.full(na, default) if mask is None else mask.cpu().numpy().astype(int)

    owner = np.arange(na) if t.act_actuator is None else t.act_actuator.cpu().numpy()
    limited = flag(t.act_limit.mask, 1) if t.act_limit is not None else np.zeros(na, int)
    flags = (flag(t.act_filter, 0), flag(t.act_exact, 0), flag(t.act_early, 0), limited)
    return table(np.stack([owner, *flags, flag(t.act_enabled, 1)], 1), device)


@triton.jit
def _expm1(x):
    """Exp(x) - 1 without cancellation: a series where x is small."""
    series = x / 11 + 1
    for k in tl.static_range(9):
        series = series * x / (10 - k) + 1
    return tl.where(tl.abs(x) < 0.1, series * x, tl.exp(x) - 1)


@triton.jit
def _time_constant(actuator_dynprm, owner, w, m):
    """Of a filter, at least MINVAL."""
    tau = load(actuator_dynprm, 10 * owner, w, m)
    return tl.maximum(tau, number(MINVAL, tau))


@triton.jit
def activation_rate(act, control, a, actuator_dynprm, act_ptr, w, m):
    """Act_dot: the control, or (control - act) / tau of a filter."""
    rate = control
    if tl.load(act_ptr + a * ACT + FILTER) == 1:
        owner = tl.load(act_ptr + a * ACT + OWNER)
        rate = (control - load(act, a, w, m)) / _time_constant(actuator_dynprm, owner, w, m)
    return rate


@triton.jit
def next_activation(
    act, rate, a, actuator_dynprm, actuator_actrange, act_ptr, w, m,
    DT: tl.constexpr, ACTUATED: tl.constexpr,
):  # fmt: skip
    """Act + DT act_dot, or act + act_dot tau (1 - exp(-DT / tau)) of an exact filter; clamped."""
    row = act_ptr + a * ACT
    owner, value = tl.load(row + OWNER), load(act, a, w, m)
    if ACTUATED:
        if tl.load(row + ENABLED) == 1:
            step = rate * DT
            if tl.load(row + EXACT) == 1:
                tau = _time_constant(actuator_dynprm, owner, w, m)
                step = -rate * tau * _expm1(-DT / tau)
            value += step
        if tl.load(row + LIMITED) == 1:
            low = load(actuator_actrange, 2 * owner, w, m)
            high = load(actuator_actrange, 2 * owner + 1, w, m)
            value = tl.minimum(tl.maximum(value, low), high)
    return value
