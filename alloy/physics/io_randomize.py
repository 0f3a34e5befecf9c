"""A nominal model that is ready for randomization: what may come to life is there from the start.

Which springs, dampers, friction losses and other features a model has is decided when it is built.
One that the scene lacks but that a draw may bring is therefore built in, and only its values are
those of the scene.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy.physics import constraint, io
from alloy.physics.model import Model, tensor_fields
from alloy.physics.randomize import PLAIN, Target
from alloy.physics.randomize_derive import Nominal

_ABSENT_AT_ZERO = (
    "damping", "frictionloss", "stiffness", "gravcomp", "tendon_stiffness", "tendon_damping",
    "tendon_armature", "tendon_frictionloss",
)  # fmt: skip
_EQ = mujoco.mjtEq
_RANGES = {"joint_range": "jnt", "tendon_range": "tendon"}
_TURNED = (0.6, 0.8, 0.0, 0.0)  # any orientation that is none
_ANY_POWER = 3.0  # of an impedance, other than 2, for which there is a shorter way


def put_model(
    mj: mujoco.MjModel,
    targets: Sequence[Target],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    max_contacts: int | None = None,
) -> Model:
    """As `io.put_model`, for a model whose worlds will differ in what `targets` name."""
    like: dict[str, Any] = {"dtype": dtype, "device": device, "max_contacts": max_contacts}
    nominal = io.put_model(mj, **like)
    if not targets:
        return nominal
    full, m = copy.copy(mj), nominal
    changes = [(t, change) for t in targets if (change := _brought_to_life(mj, t)) is not None]
    for t, (name, rows) in changes:
        getattr(full, name)[list(t.ids)] = rows
    if changes:
        m = io.put_model(full, **like)
        names = (f.name for f in tensor_fields(Model) if not f.name.startswith("efc_"))
        m = constraint.constants(replace(m, **{name: getattr(nominal, name) for name in names}))
    beside = _nominal(mj, m, io.make_put(dtype, device))
    return replace(m, derived=m.derived | {"randomize": beside})


def _brought_to_life(mj: mujoco.MjModel, t: Target) -> tuple[str, np.ndarray] | None:
    """A field, and the rows of the target's elements with whatever a draw of it may bring.

    None where the scene has it all.
    """
    ids = list(t.ids)
    name, columns = PLAIN.get(t.field, (t.field, slice(None)))
    if t.field in _ABSENT_AT_ZERO:
        rows = getattr(mj, name)[ids]
        return (name, np.where(rows == 0, 1.0, rows)) if (rows == 0).any() else None
    if t.field == "body_quat":
        return name, np.tile(_TURNED, (len(ids), 1))
    if t.field in _RANGES:
        rows, margin = getattr(mj, name)[ids], getattr(mj, f"{_RANGES[t.field]}_margin")[ids]
        low, high = interval(rows, t)
        both = low[:, 1] - high[:, 0] <= 2 * margin  # then each side needs a row of its own
        narrow = np.stack([np.zeros(len(ids)), margin], -1)
        return (name, np.where(both[:, None], narrow, rows)) if both.any() else None
    if t.field.endswith(("solimp", "solimplimit", "solimpfriction")):
        rows = getattr(mj, name)[ids][:, columns].copy()
        if all((bound[:, 4] == 2).all() for bound in interval(rows, t)):
            return None
        rows[:, 4] = _ANY_POWER
        return name, rows
    return None


def interval(nominal: np.ndarray, t: Target) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest value (elements, components) of what a target draws."""
    draws = [np.broadcast_to(bound, nominal.shape) for bound in (t.low, t.high)]
    if t.mode == "value":
        return draws[0], draws[1]
    ends = [nominal * d if t.mode == "scale" else nominal + d for d in draws]
    return np.minimum(*ends), np.maximum(*ends)


def _nominal(mj: mujoco.MjModel, m: Model, put: Callable[..., Tensor]) -> Nominal:
    """What derivations read beside the model."""
    contact = m.derived["contact"]
    one, two = (g.cpu().numpy() for g in (contact.geom1, contact.geom2))
    first, second = mj.geom_priority[one], mj.geom_priority[two]
    share = np.where(first == second, _share(mj, one, two), 1.0 * (first > second))
    on_bodies = mj.eq_objtype == mujoco.mjtObj.mjOBJ_BODY
    connect, weld = (mj.eq_type == int(k) for k in (_EQ.mjEQ_CONNECT, _EQ.mjEQ_WELD))
    return Nominal(
        geom_solref=put(mj.geom_solref)[None],
        geom_solimp=put(mj.geom_solimp)[None],
        mix=put(np.stack([share, 1 - share], -1)),
        by_priority=put(first != second).unsqueeze(-1),
        connects=put(np.flatnonzero(on_bodies & connect)),
        # the last number says whether the relative pose is that of the start
        welds=put(np.flatnonzero(on_bodies & weld & (mj.eq_data[:, 11] != 0))),
        eq_body1=put(mj.eq_obj1id.astype(int)),
        eq_body2=put(mj.eq_obj2id.astype(int)),
    )


def _share(mj: mujoco.MjModel, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """How much of a contact's solver parameters is the first geom's, of equal priority."""
    mix = np.stack([mj.geom_solmix[one], mj.geom_solmix[two]])
    mix = np.where(mix < mujoco.mjMINVAL, 0.0, mix)
    total = mix.sum(0)
    return np.where(total == 0, 0.5, mix[0] / np.where(total == 0, 1.0, total))
