"""A nominal model that is ready for randomization: what may come to life is there from the start.

Which springs, dampers and friction losses a model has is decided when it is built. One that is zero
in the scene but randomized is therefore built in, and only its value is zero.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import mujoco
import numpy as np
import torch

from alloy.physics import io
from alloy.physics.model import Model
from alloy.physics.randomize import Target

_SWITCHES = {
    "damping": "dof_damping",
    "frictionloss": "dof_frictionloss",
    "stiffness": "jnt_stiffness",
}


def put_model(
    mj: mujoco.MjModel,
    targets: Sequence[Target],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Model:
    """As `io.put_model`, for a model whose worlds will differ in what `targets` name."""
    built, values = mj, {}
    put = io.make_put(dtype, device)
    for t in targets:
        name = _SWITCHES.get(t.field)
        if name is None or (getattr(mj, name)[list(t.ids)] != 0).all():
            continue
        built = copy.copy(mj) if built is mj else built
        switched = getattr(built, name)[list(t.ids)]
        getattr(built, name)[list(t.ids)] = np.where(switched == 0, 1.0, switched)
        values[name] = put(getattr(mj, name))[None]
    return replace(io.put_model(built, dtype=dtype, device=device), **values)
