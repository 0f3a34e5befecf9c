"""Static tables of springs that yield, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.plastic import PlasticTables

Put = Callable[..., Tensor]
_BALL = mujoco.mjtJoint.mjJNT_BALL


def _places(m: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """For each entry of [qpos_spring, tendon_lengthspring] its entry of plastic, -1: none.

    And for each entry of plastic the one of these that it begins as.
    """
    entry = np.full(m.nq + 2 * m.ntendon, -1)
    for joint in np.flatnonzero(m.jnt_plasticadr >= 0):
        q, width = m.jnt_qposadr[joint], 4 if m.jnt_type[joint] == _BALL else 1
        entry[q : q + width] = m.jnt_plasticadr[joint] + np.arange(width)
    for tendon in np.flatnonzero(m.tendon_plasticadr >= 0):
        q = m.nq + 2 * tendon
        entry[q : q + 2] = m.tendon_plasticadr[tendon] + np.arange(2)
    start = np.zeros(m.nplastic, int)
    start[entry[entry >= 0]] = np.flatnonzero(entry >= 0)
    return entry, start


def plastic_start(m: mujoco.MjModel) -> np.ndarray:
    """Where springs that yield are at rest before they do, (nplastic,)."""
    return np.concatenate([m.qpos_spring, m.tendon_lengthspring.ravel()])[_places(m)[1]]


def plastic_tables(m: mujoco.MjModel, put: Put) -> PlasticTables | None:
    """The springs of a model that yield, if there are any."""
    if not m.nplastic:
        return None
    entry, _ = _places(m)
    given = np.arange(len(entry))
    joints, tendons = (np.flatnonzero(adr >= 0) for adr in (m.jnt_plasticadr, m.tendon_plasticadr))
    is_ball = m.jnt_type[joints] == _BALL
    scalars, balls = joints[~is_ball], joints[is_ball]
    parts = [
        m.jnt_plasticadr[scalars],
        (m.jnt_plasticadr[balls, None] + np.arange(4)).ravel(),
        (m.tendon_plasticadr[tendons, None] + np.arange(2)).ravel(),
    ]
    place = np.concatenate(parts)
    return PlasticTables(
        rest=put(np.where(entry >= 0, len(entry) + entry, given)),
        scalar=_if_any(put, scalars),
        scalar_qpos=_if_any(put, m.jnt_qposadr[scalars]),
        ball=_if_any(put, balls),
        ball_qpos=_if_any(put, m.jnt_qposadr[balls, None] + np.arange(4)),
        tendon=_if_any(put, tendons),
        place=put(place),
        order=put(np.argsort(place)),
    )


def _if_any(put: Put, values: np.ndarray) -> Tensor | None:
    return put(values) if len(values) else None
