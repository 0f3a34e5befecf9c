"""Static tables of delayed controls, and of sensors with a record, read from an MjModel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.actuation import DelayTables
from alloy.ops.reference.sensor_history import CUBIC, HOLD, Histories, Sampling
from alloy.physics.io_motors import controls

Put = Callable[..., Tensor]

_ROUNDING = 1e-6  # steps: a delay of five steps is five, however it is written
_FINEST = 4096  # of the parts of a step in which times of sampling are counted


def delays(m: mujoco.MjModel, put: Put) -> DelayTables | None:
    """How far back controls are read, if some are delayed; a record that nobody reads is none."""
    delayed = np.flatnonzero((m.actuator_delay > 0) & (m.actuator_history[:, 0] > 0))
    parts = [_weights(m, int(i)) for i in delayed for _ in controls(m, i)]
    if not parts:
        return None
    chosen = np.concatenate([controls(m, i) for i in delayed])
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
    back = _steps(m, m.actuator_delay[actuator])
    if kind == HOLD:
        back = np.ceil(back)
    back = float(np.clip(back, 1, samples))
    first = int(back)
    u = back - first
    terms = [(first, 1 - u), (first + 1, u)]
    if kind == CUBIC:  # Catmull and Rom's, level at the outermost samples
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


def _steps(m: mujoco.MjModel, time: float) -> float:
    """A time in steps, whole where it is about whole."""
    steps = float(time) / m.opt.timestep
    return float(round(steps)) if abs(steps - round(steps)) < _ROUNDING else steps


def histories(m: mujoco.MjModel, put: Put) -> Histories | None:
    """Sensors with a delay or an interval, and their record at time zero; None: there are none.

    As in MuJoCo an interval is nothing without a record.
    """
    members: dict[tuple, list[int]] = defaultdict(list)
    timed = (m.sensor_delay > 0) | (m.sensor_interval[:, 0] > 0)
    for i in np.flatnonzero(timed & (m.sensor_history[:, 0] > 0)):
        times = (m.sensor_delay[i], *m.sensor_interval[i])
        members[(*m.sensor_history[i].tolist(), *map(float, times))].append(int(i))
    if not members:
        return None
    groups, records, order = [], [], np.arange(m.nsensordata)
    shown = m.nsensordata
    for (samples, interp, delay, period, phase), ids in members.items():
        entries = np.concatenate([m.sensor_adr[i] + np.arange(m.sensor_dim[i]) for i in ids])
        order[entries] = shown + np.arange(len(entries))
        shown += len(entries)
        between = Fraction(_steps(m, period)).limit_denominator(_FINEST)
        parts = between.denominator
        group = Sampling(
            entries=put(entries),
            start=sum(map(len, records)),
            samples=samples,
            delay=_steps(m, delay),
            interp=interp,
            period=between.numerator,
            parts=parts,
        )
        record = np.zeros(group.size)
        record[1 : samples + 1] = 1 + np.arange(samples)
        if period:  # samples are taken at the first step at which they are due
            last, apart = _steps(m, phase or -period), max(_steps(m, period), 1.0)
            record[0] = np.ceil((last + _steps(m, period)) * parts - _ROUNDING)
            times = (last if phase else -apart) - np.arange(samples) * apart
            record[1 : samples + 1] = -np.ceil(times - _ROUNDING)
        groups.append(group)
        records.append(record)
    return Histories(tuple(groups), put(order), put(np.concatenate(records)))
