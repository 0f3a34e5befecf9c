"""Static tables of orientation servos, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.orientation import OrientationTables, SitePairs
from alloy.physics.io_tendons import body_moves

Put = Callable[..., Tensor]
Array = np.ndarray
_SO3 = mujoco.mjtTrn.mjTRN_SO3
_QUAT = mujoco.mjtCtrlChart.mjCHART_QUAT


def start_ctrl(m: mujoco.MjModel) -> Array:
    """Controls after a reset, (nu,): zero, and the identity where one is a quaternion."""
    ctrl = np.zeros(m.nu)
    for i in np.flatnonzero(m.actuator_trntype == _SO3):
        if m.actuator_ctrlspec[i] == _QUAT:
            ctrl[m.actuator_ctrladr[i]] = 1.0
    return ctrl


def orientations(
    m: mujoco.MjModel, put: Put, enabled: Array, arms: Array
) -> OrientationTables | None:
    """The servos of a model, if it has any; adds to `arms` (nactuator, nv) the dofs they turn."""
    chosen = np.flatnonzero(m.actuator_trntype == _SO3)
    if not len(chosen):
        return None
    on_site = m.actuator_trnid[chosen, 1] >= 0
    chosen = np.concatenate([chosen[~on_site], chosen[on_site]])
    joints, pairs = (m.actuator_trnid[chosen[: (~on_site).sum()], 0], np.sort(on_site))
    place = np.array([np.eye(m.nv)[m.jnt_dofadr[j] : m.jnt_dofadr[j] + 3] for j in joints])
    sites = _site_pairs(m, *m.actuator_trnid[chosen[pairs]].T) if pairs.any() else None
    arms[chosen] += np.concatenate([
        place.any(1) if len(joints) else np.zeros((0, m.nv)),
        np.zeros((0, m.nv)) if sites is None else np.abs(sites["move"]),
    ])  # fmt: skip
    out = (m.actuator_outadr[chosen][:, None] + np.arange(3)).ravel()
    owner = np.repeat(np.arange(m.nactuator), m.actuator_outnum)
    is_quat = m.actuator_ctrlspec[chosen] == _QUAT
    stateful = m.actuator_actnum[chosen] > 0
    limited = m.actuator_forcelimited[chosen].astype(bool)
    return OrientationTables(
        actuator=put(chosen),
        plain=put(m.actuator_outadr),
        owner=put(owner),
        is_servo=put(np.isin(np.arange(m.nout), out)),
        rows=put(np.eye(m.nout)[out]),
        ball=put(m.jnt_qposadr[joints][:, None] + np.arange(4)) if len(joints) else None,
        ball_place=put(place) if len(joints) else None,
        sites=None if sites is None else SitePairs(**{n: put(x) for n, x in sites.items()}),
        target=put(_targets(m, chosen, is_quat, stateful)),
        is_quat=put(is_quat[:, None]) if is_quat.any() else None,
        **_activations(m, put, chosen[stateful]),
        limited=put(limited[:, None]) if limited.any() else None,
        enabled=None if enabled[chosen].all() else put(enabled[chosen][:, None]),
    )


def _targets(m: mujoco.MjModel, chosen: Array, is_quat: Array, stateful: Array) -> Array:
    """Where targets are in [ctrl, act, 0], (n, 4)."""
    first = np.where(stateful, m.nu + m.actuator_actadr[chosen], m.actuator_ctrladr[chosen])
    target = first[:, None] + np.arange(4)
    target[~is_quat, 3] = m.nu + m.na
    return target


def _activations(m: mujoco.MjModel, put: Put, chosen: Array) -> dict[str, Any]:
    """Fields of OrientationTables about the targets that are activations."""
    if not len(chosen):
        return dict.fromkeys(("act", "act_rows", "act_ctrl", "is_act"))
    act, ctrl = (
        adr[chosen][:, None] + np.arange(3) for adr in (m.actuator_actadr, m.actuator_ctrladr)
    )
    source = np.full(m.na, m.nu)
    source[act] = ctrl
    return {
        "act": put(act),
        "act_rows": put(np.eye(m.na)[act.ravel()]),
        "act_ctrl": put(source),
        "is_act": put(source < m.nu),
    }


def _site_pairs(m: mujoco.MjModel, site: Array, ref: Array) -> dict[str, Array]:
    moves = body_moves(m)
    body, ref_body = m.site_bodyid[site], m.site_bodyid[ref]
    return {
        "site": site, "ref": ref, "body": body, "ref_body": ref_body,
        "move": moves[body] - moves[ref_body],
    }  # fmt: skip
