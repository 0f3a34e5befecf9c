"""Static tables of DC motors, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.dcmotor import STATES, DcMotorTables

Put = Callable[..., Tensor]

_TARGETS = (1, 2, 4)  # bits of actuator_ctrlspec: position, velocity, torque; 8 is the voltage


def dc_motors(m: mujoco.MjModel, put: Put) -> DcMotorTables | None:
    """The motors of a model, if it has any."""
    chosen = np.flatnonzero(m.actuator_dyntype == mujoco.mjtDyn.mjDYN_DCMOTOR)
    if not len(chosen):
        return None
    gain, dyn = m.actuator_gainprm[chosen], m.actuator_dynprm[chosen]
    has = np.stack([
        dyn[:, 7] > 0, gain[:, 5] > 0, dyn[:, 2] > 0, dyn[:, 5] > 0, dyn[:, 0] > 0
    ])  # fmt: skip
    if np.any(has.sum(0) != m.actuator_actnum[chosen]):
        raise NotImplementedError(f"DC motors with other states than {STATES}")
    state = np.where(has, m.actuator_actadr[chosen] + np.cumsum(has, 0) - 1, m.na)
    place = np.zeros((has.size, m.na))
    place[np.flatnonzero(has), state[has]] = 1
    targets = np.stack([(m.actuator_ctrlspec[chosen] & bit) > 0 for bit in _TARGETS])
    return DcMotorTables(
        actuator=put(chosen),
        is_motor=put(np.isin(np.arange(m.nu), chosen)),
        rows=put(np.eye(m.nu)[chosen]),
        state=put(state),
        has=tuple(bool(row.any()) for row in has),
        has_state=put(has),
        place=put(place),
        is_state=put(place.any(0)),
        targets=put(targets.astype(float)) if targets.any() else None,
        limited_voltage=bool((gain[:, 7] > 0).any()),
    )
