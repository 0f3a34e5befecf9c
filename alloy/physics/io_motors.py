"""Static tables of DC motors and PID controllers, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference import dcmotor, pid
from alloy.ops.reference.dcmotor import DcMotorTables
from alloy.ops.reference.pid import PidTables

Put = Callable[..., Tensor]
Array = np.ndarray
_INPUTS = (1, 2, 4, 8)  # bits of actuator_ctrlspec: position, velocity, torque, voltage


def controls(m: mujoco.MjModel, actuator: int) -> Array:
    """The controls of an actuator."""
    return m.actuator_ctrladr[actuator] + np.arange(m.actuator_ctrlnum[actuator])


def _inputs(m: mujoco.MjModel, chosen: Array, bits: tuple[int, ...]) -> Array:
    """Where actuators find each kind of input in [ctrl, 0], (kinds, n); they are in this order."""
    given = np.stack([(m.actuator_ctrlspec[chosen] & bit) > 0 for bit in bits])
    return np.where(given, m.actuator_ctrladr[chosen] + np.cumsum(given, 0) - 1, m.nu)


def _states(m: mujoco.MjModel, chosen: Array, has: Array, names: tuple[str, ...]) -> dict[str, Any]:
    """Where the states of actuators are, as arrays; `has` (states, n) says which there are."""
    if np.any(has.sum(0) != m.actuator_actnum[chosen]):
        raise NotImplementedError(f"actuators with other states than {names}")
    state = np.where(has, m.actuator_actadr[chosen] + np.cumsum(has, 0) - 1, m.na)
    place = np.zeros((has.size, m.na))
    place[np.flatnonzero(has), state[has]] = 1
    return {"state": state, "has_state": has, "place": place, "is_state": place.any(0)}


def dc_motors(m: mujoco.MjModel, put: Put) -> DcMotorTables | None:
    """The motors of a model, if it has any."""
    chosen = np.flatnonzero(m.actuator_gaintype == mujoco.mjtGain.mjGAIN_DCMOTOR)
    if not len(chosen):
        return None
    gain, dyn = m.actuator_gainprm[chosen], m.actuator_dynprm[chosen]
    has = np.stack([
        dyn[:, 7] > 0, gain[:, 5] > 0, dyn[:, 2] > 0, dyn[:, 5] > 0, dyn[:, 0] > 0
    ])  # fmt: skip
    states = _states(m, chosen, has, dcmotor.STATES)
    inputs = _inputs(m, chosen, _INPUTS)
    controlled = (inputs[:3] < m.nu).any(0)
    return DcMotorTables(
        actuator=put(chosen),
        force=put(m.actuator_outadr[chosen]),
        is_motor=put(np.isin(np.arange(m.nactuator), chosen)),
        rows=put(np.eye(m.nactuator)[chosen]),
        inputs=put(inputs),
        first=put((inputs < m.nu) & (inputs == m.actuator_ctrladr[chosen])),
        has=tuple(bool(row.any()) for row in has),
        controlled=put(controlled) if controlled.any() else None,
        limited_voltage=bool((gain[:, 7] > 0).any()),
        **{name: put(value) for name, value in states.items()},
    )


def pid_controllers(m: mujoco.MjModel, put: Put) -> PidTables | None:
    """The PID controllers of a model, if it has any."""
    chosen = np.flatnonzero(m.actuator_gaintype == mujoco.mjtGain.mjGAIN_PID)
    if not len(chosen):
        return None
    has = np.stack([m.actuator_dynprm[chosen, 1] > 0, m.actuator_gainprm[chosen, 0] != 0])
    has &= m.actuator_dyntype[chosen] == mujoco.mjtDyn.mjDYN_PID
    return PidTables(
        actuator=put(chosen),
        is_pid=put(np.isin(np.arange(m.nactuator), chosen)),
        rows=put(np.eye(m.nactuator)[chosen]),
        inputs=put(_inputs(m, chosen, _INPUTS[:3])),
        **{name: put(value) for name, value in _states(m, chosen, has, pid.STATES).items()},
    )
