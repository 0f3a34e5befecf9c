"""Static tables of delayed controls, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.actuation import DelayTables

Put = Callable[..., Tensor]

_ROUNDING = 1e-6  # steps: a delay of five steps is five, however it is written
_HOLD, _LINEAR, _CUBIC = range(3)  # actuator_history's second column


def delays(m: mujoco.MjModel, put: Put) -> DelayTables | None:
    """How far back controls are read, if some are delayed; a record that nobody reads is none."""
    chosen = np.flatnonzero((m.actuator_delay > 0) & (m.actuator_history[:, 0] > 0))
    if not len(chosen):
        return None
    parts = [_weights(m, int(i)) for i in chosen]
    sizes = [len(part) for part in parts]
    read, shift, start = np.zeros((sum(sizes), m.nu)), [], 0
    for i, part in zip(chosen, parts, strict=True):
        read[start : start + len(part), i] = part
        # what is behind the present control: the last one, and so on
        shift += [i, *range(m.nu + start, m.nu + start + len(part) - 1)]
        start += len(part)
    return DelayTables(
        read=put(read),
        delayed=put(np.isin(np.arange(m.nu), chosen)),
        shift=put(np.array(shift)),
    )


def _weights(m: mujoco.MjModel, actuator: int) -> np.ndarray:
    """Weight of the controls one, two, ... steps ago, as far back as any counts.

    MuJoCo reads before it records, so the youngest sample is that of the last step; outside of the
    samples the nearest one counts.
    """
    samples, kind = m.actuator_history[actuator]
    back = m.actuator_delay[actuator] / m.opt.timestep
    if abs(back - round(back)) < _ROUNDING:
        back = float(round(back))
    if kind == _HOLD:
        back = np.ceil(back)
    back = float(np.clip(back, 1, samples))
    first = int(back)
    u = back - first
    terms = [(first, 1 - u), (first + 1, u)]
    if kind == _CUBIC:  # Catmull and Rom's, level at the outermost samples
        terms = [
            (first - 1 if first > 1 else first + 1, -0.5 * u * (1 - u) ** 2),
            (first, 1 + u * u * (1.5 * u - 2.5)),
            (first + 1, u * (0.5 + u * (2 - 1.5 * u))),
            (first + 2 if first + 2 <= samples else first, -0.5 * u * u * (1 - u)),
        ]
    out = np.zeros(samples)
    for sample, weight in terms if u else [(first, 1.0)]:
        out[sample - 1] += weight
    return out[: np.flatnonzero(out)[-1] + 1]
