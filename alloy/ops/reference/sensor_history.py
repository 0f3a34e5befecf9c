"""Sensors that are sampled now and then, or show what was some time ago: their record.

A record is part of the state. It holds, of sensors that are sampled and read alike: how long it is
until the next sample, the age of each sample, the youngest first, and the samples. What was before
the start is zero. Source: MuJoCo manual, Modeling, Delays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy.ops.reference.collide_shared import first

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model

HOLD, LINEAR, CUBIC = range(3)  # second column of sensor_history and actuator_history


@dataclass(frozen=True)
class Sampling:
    """Sensors that are sampled and read alike."""

    entries: Tensor  # (n,) of sensordata
    start: int  # where their record begins
    samples: int
    delay: float  # age of what is shown, steps; 0: as young as there is
    interp: int  # HOLD, LINEAR or CUBIC
    period: int  # from one sample to the next, in parts of a step; 0: every step is sampled
    parts: int  # of a step

    @property
    def size(self) -> int:
        """Length of the record."""
        return 1 + self.samples * (1 + len(self.entries))

    def split(self, record: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Parts of a step until the next sample (W, 1), ages (W, k) in steps, samples (W, k, n)."""
        own = record[:, self.start : self.start + self.size]
        wait, age, values = own.split((1, self.samples, self.size - 1 - self.samples), 1)
        return wait, age, values.unflatten(1, (self.samples, -1))


@dataclass(frozen=True)
class Histories:
    """All sensors with a record that somebody reads."""

    groups: tuple[Sampling, ...]
    order: Tensor  # (nsensordata,) into sensordata as measured, then what each group shows
    start: Tensor  # (nsensorhistory,) the record at time zero


def shown(m: Model, d: Data) -> Data:
    """Sensordata as MuJoCo shows it, from what is measured in the present state."""
    t = _histories(m)
    if t is None:
        return d
    parts = [_reading(g, d.sensordata[:, g.entries], *g.split(d.sensor_history)) for g in t.groups]
    return replace(d, sensordata=torch.cat([d.sensordata, *parts], 1)[:, t.order])


def recorded(m: Model, d: Data) -> Data:
    """As `shown`; with what was measured in the record of the next step."""
    t = _histories(m)
    if t is None:
        return d
    parts = []
    for g in t.groups:
        wait, age, values = g.split(d.sensor_history)
        now = d.sensordata[:, g.entries].unsqueeze(1)
        new_age = torch.cat([torch.zeros_like(wait), age[:, :-1]], 1)
        new_values = torch.cat([now, values[:, :-1]], 1)
        if g.period:
            due = wait <= 0
            wait = wait + torch.where(due, float(g.period), 0.0) - g.parts
            new_age = torch.where(due, new_age, age)
            new_values = torch.where(due.unsqueeze(-1), new_values, values)
        parts += [wait, new_age + 1, new_values.flatten(1)]
    return replace(shown(m, d), sensor_history=torch.cat(parts, 1))


def later(m: Model, record: Tensor, steps: Tensor) -> Tensor:
    """The record as if so many steps (W,) had passed without a sample, which a keyframe says."""
    t, steps = _histories(m), steps.to(record.dtype).unsqueeze(1)
    parts = []
    for g in () if t is None else t.groups:
        wait, age, values = g.split(record)
        parts += [wait - g.parts * steps if g.period else wait, age + steps, values.flatten(1)]
    return torch.cat(parts, 1) if parts else record


def _histories(m: Model) -> Histories | None:
    return None if "sensor" in m.opt.disable else m.derived["sensor"].history


def _reading(g: Sampling, now: Tensor, wait: Tensor, age: Tensor, values: Tensor) -> Tensor:
    """What sensors show (W, n); MuJoCo reads before it records, unless there is no delay."""
    if not g.delay:
        return torch.where(wait <= 0, now, values[:, 0])
    return (_weights(g, age).unsqueeze(-1) * values).sum(1)


def _weights(g: Sampling, age: Tensor) -> Tensor:
    """Weight (W, k) of each sample in what is shown; outside of them the nearest one counts."""
    old = age >= g.delay
    last = torch.cat([torch.zeros_like(old[:, 1:]), torch.ones_like(old[:, :1])], 1)
    at = first(old | last).to(age.dtype)  # the youngest that is old enough, else the oldest
    if g.interp == HOLD:
        return at
    none = torch.zeros_like(at[:, :1])
    younger, older = torch.cat([at[:, 1:], none], 1), torch.cat([none, at[:, :-1]], 1)

    def age_of(which: Tensor) -> Tensor:
        return (which * age).sum(1, keepdim=True)

    def over(x: Tensor, gap: Tensor, there: Tensor) -> Tensor:
        return torch.where(there, x / torch.where(there, gap, 1.0), 0.0)

    begin, end = age_of(younger), age_of(at)
    between = (younger.sum(1, keepdim=True) > 0) & (end >= g.delay)
    u = torch.where(between, over(g.delay - begin, end - begin, between), 1.0)
    if g.interp == LINEAR:
        return (1 - u) * younger + u * at
    # Catmull and Rom's: slopes by the neighbours on both sides, level at the outermost samples
    youngest = torch.cat([younger[:, 1:], none], 1)
    outside = (1 - u) * u * (end - begin)
    inner = youngest.sum(1, keepdim=True) > 0
    front = over(outside * (1 - u), end - age_of(youngest), between & inner)
    inner = older.sum(1, keepdim=True) > 0
    back = over(-outside * u, age_of(older) - begin, between & inner)
    rise = u * u * (3 - 2 * u)
    return (1 - rise - back) * younger + (rise + front) * at - front * youngest + back * older
