"""A control step, and what happens to a world that blows up in it.

`guarded_step` is the whole control step as a pure function of tensors: what the reference engine
runs, what `torch.compile` takes, what the lanes engine compiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from alloy import ops
from alloy.math import where_worlds
from alloy.ops import control
from alloy.physics import forward
from alloy.physics.model import STATE, Data, Model

MAXVAL = 1e10  # mjMAXVAL: beyond it, as NaN, a value is bad

_COMPUTE = {
    "kinematics": forward.kinematics,
    "position": forward.after_kinematics,
    "velocity": forward.velocity,
    "acceleration": forward.acceleration,
    "forces": forward.forces,
}
STAGES = ("state", *_COMPUTE)  # each builds on those before it
LEAST = ("contact_least",)  # kept fields that are the least of all substeps


class Guard(NamedTuple):
    """What a step remembers of each world's health; cleared by its reset."""

    invalid: Tensor  # [W] bool, blew up and stands still since
    bad_ctrl: Tensor  # [W] int64, control steps whose controls were unusable
    dropped: Tensor  # [W] int64, contacts of all physics steps that found no slot


def make_guard(worlds: int, device: torch.device | str) -> Guard:
    """The guard of healthy worlds."""
    return Guard(
        invalid=torch.zeros(worlds, dtype=torch.bool, device=device),
        bad_ctrl=torch.zeros(worlds, dtype=torch.int64, device=device),
        dropped=torch.zeros(worlds, dtype=torch.int64, device=device),
    )


def usable_ctrl(m: Model, ctrl: Tensor) -> tuple[Tensor, Tensor]:
    """Controls that a step can use and the worlds [W] whose own it cannot, by MuJoCo's rule.

    Controls are clamped to their ranges first. If one of a world is then still NaN or beyond 1e10,
    all of that world's controls count as zero.
    """
    if m.nu == 0:
        return ctrl, torch.zeros(ctrl.shape[0], dtype=torch.bool, device=ctrl.device)
    limit = m.derived["actuation"].ctrl_limit
    clamped = ctrl
    if limit is not None and "clampctrl" not in m.opt.disable:
        clamped = limit.clamp(ctrl, m.actuator_ctrlrange)
    bad = ~(clamped.abs().amax(-1) <= MAXVAL)
    usable = torch.where(ctrl.abs() <= MAXVAL, ctrl, clamped)
    return torch.where(bad.unsqueeze(-1), 0.0, usable), bad


def advance(m: Model, d: Data, done: str, stage: str) -> Data:
    """Compute the stages of `d` behind `done` up to `stage`; controls count as in a step."""
    for name in STAGES[STAGES.index(done) + 1 : STAGES.index(stage) + 1]:
        if name == "acceleration":
            usable, _ = usable_ctrl(m, d.ctrl)
            d = replace(_COMPUTE[name](m, replace(d, ctrl=usable)), ctrl=d.ctrl)
        else:
            d = _COMPUTE[name](m, d)
    return d


def _finite(*values: Tensor) -> Tensor:
    """Worlds [W] all of whose values (W, n) are finite and within mjMAXVAL."""
    together = torch.cat(values, -1)
    if together.shape[-1] == 0:
        return torch.ones(together.shape[0], dtype=torch.bool, device=together.device)
    return together.abs().amax(-1) <= MAXVAL


def guarded_step(
    m: Model,
    d: Data,
    guard: Guard,
    substeps: int,
    *,
    derived: bool = True,
    keep: tuple[str, ...] = (),
) -> tuple[Data, Guard]:
    """One control step: `substeps` physics steps of every world that is not invalid.

    A world whose qpos, qvel, act or qacc turns NaN, infinite or larger than 1e10 is invalid: it
    keeps the state it had before that substep, and stands still until its reset. A world that
    comes in with such a state (somebody wrote it) starts again from qpos0 at rest, invalid too.
    The controls that were used come back in `ctrl`. No world affects another.

    Without `derived`, of the derived fields only solver_niter and those named by `keep` are there;
    a traced program then holds one copy of the substep, in a loop. The fields kept are those of the
    last substep, computed before its integration as in mjData after mj_step, and `contact_least`
    the least `contact_dist` of all of them; zero where invalid.
    """
    ctrl, bad = usable_ctrl(m, d.ctrl)
    guard = guard._replace(bad_ctrl=guard.bad_ctrl + bad)
    sound = _finite(d.qpos, d.qvel, d.act, d.plastic)
    d = replace(
        d,
        ctrl=ctrl,
        qpos=where_worlds(sound, d.qpos, m.qpos0),
        qvel=where_worlds(sound, d.qvel, torch.zeros_like(d.qvel)),
        act=where_worlds(sound, d.act, torch.zeros_like(d.act)),
        plastic=where_worlds(sound, d.plastic, m.derived["start"]["plastic"]),
        qacc_warmstart=where_worlds(sound, d.qacc_warmstart, torch.zeros_like(d.qacc_warmstart)),
    )
    least = tuple(name for name in keep if name in LEAST)
    d = replace(
        d, **{n: x + MAXVAL for n, x in zip(least, forward.unset(m, d, least), strict=True)}
    )

    counts = ("contact_dropped",) if m.drops_contacts else ()
    d = replace(d, **dict.fromkeys(counts, guard.dropped))

    def substep(
        d: Data, stopped: Tensor, niter: Tensor, derived: bool, keep: tuple[str, ...]
    ) -> tuple[Data, Tensor]:
        new = forward.step(m, d, derived=derived, keep=(*keep, *counts))
        new = replace(new, **{n: getattr(d, n) + getattr(new, n) for n in counts})
        stopped, new = ops.keep_sound(stopped, niter, d, new)
        found = {name: getattr(new, name) for name in keep}
        found |= {name: torch.minimum(found[name], getattr(d, name)) for name in least}
        kept = {n: where_worlds(~stopped, x, torch.zeros_like(x)) for n, x in found.items()}
        return replace(new, **kept), stopped

    carried = least if derived else keep  # else the last substep stands behind the loop

    def body(_: int | Tensor, stopped: Tensor, niter: Tensor, *carry: Tensor) -> control.Carry:
        at = replace(d, **dict(zip((*STATE, *counts, *carried), carry, strict=True)))
        new, stopped = substep(at, stopped, niter, derived=False, keep=carried)
        out = (getattr(new, name) for name in (*STATE, *counts, *carried))
        return (stopped, new.solver_niter, *out)

    state = tuple(getattr(d, name) for name in (*STATE, *counts))
    carry = (guard.invalid | ~sound, torch.zeros_like(d.step_count), *state)
    start = dict(zip(carried, forward.unset(m, d, carried), strict=True))
    start |= {name: getattr(d, name) for name in least}
    stopped, niter, *rest = control.repeat(substeps - derived, body, (*carry, *start.values()))
    d = replace(d, **dict(zip((*STATE, *counts, *carried), rest, strict=True)), solver_niter=niter)
    if derived:
        d, stopped = substep(d, stopped, niter, derived=True, keep=keep)
    dropped = d.contact_dropped if counts else guard.dropped
    return d, guard._replace(invalid=stopped, dropped=dropped)
