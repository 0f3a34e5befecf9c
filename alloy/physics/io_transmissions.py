"""Static tables of the transmissions of actuators, read from an MjModel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from alloy.physics import io_layout
from alloy.physics.actuation import AdhesionTables, CrankTables, SiteTables, TurnTables
from alloy.physics.io_tendons import body_moves, is_spatial, tendon_coefficients, tendon_support

Put = Callable[..., Tensor]
Array = np.ndarray

_JOINT, _TRN = mujoco.mjtJoint, mujoco.mjtTrn
ON_JOINT = (_TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT)


def transmissions(m: mujoco.MjModel, put: Put) -> tuple[dict[str, Any], Array]:
    """Fields of ActuationTables about transmissions that are not constant.

    And which dofs they act on, (nactuator, nv), not zero where they do.
    """
    arms = np.zeros((m.nactuator, m.nv))
    fields = {
        "turn": _turn_tables(m, put, arms),
        "tendons": _tendon_table(m, put, arms),
        "sites": _site_tables(m, put, arms),
        "cranks": _crank_tables(m, put, arms),
        "adhesion": _adhesion_tables(m, put, arms),
    }
    return fields, arms


def scalar_transmissions(m: mujoco.MjModel) -> tuple[Array, Array]:
    """Length by qpos (nq, nactuator), moment (nactuator, nv) at unit gear, of scalar ones."""
    tendon_q, tendon_J = tendon_coefficients(m)
    length, moment = np.zeros((m.nq, m.nactuator)), np.zeros((m.nactuator, m.nv))
    for i in range(m.nactuator):
        target = m.actuator_trnid[i, 0]
        if m.actuator_trntype[i] == _TRN.mjTRN_TENDON:
            length[:, i], moment[i] = tendon_q[:, target], tendon_J[target]
        elif int(m.actuator_trntype[i]) in ON_JOINT and is_scalar(m, target):
            length[m.jnt_qposadr[target], i] = moment[i, m.jnt_dofadr[target]] = 1.0
    return length, moment


def _turn_tables(m: mujoco.MjModel, put: Put, arms: Array) -> TurnTables | None:
    """Transmissions on ball and free joints, if there are any."""
    chosen = [i for i in _on_joints(m) if not is_scalar(m, m.actuator_trnid[i, 0])]
    if not chosen:
        return None
    place, rows = np.zeros((len(chosen), 6, m.nv)), np.zeros((m.nactuator, len(chosen)))
    quat, is_ball = [], []
    for n, i in enumerate(chosen):
        joint = m.actuator_trnid[i, 0]
        ball = m.jnt_type[joint] == _JOINT.mjJNT_BALL
        first, adr = m.jnt_dofadr[joint], m.jnt_qposadr[joint]
        for k in range(3 if ball else 6):
            place[n, k + 3 * ball, first + k] = 1.0
        quat.append(np.arange(4) + adr + (0 if ball else 3))
        is_ball.append(ball)
        rows[i, n] = 1.0
        arms[i] += place[n].any(0)
    in_parent = m.actuator_trntype[chosen] == _TRN.mjTRN_JOINTINPARENT
    return TurnTables(
        actuator=put(np.array(chosen)),
        quat=put(np.array(quat)),
        is_ball=put(np.array(is_ball)[:, None]),
        in_parent=put(in_parent[:, None]) if in_parent.any() else None,
        place=put(place),
        rows=put(rows),
    )


def _tendon_table(m: mujoco.MjModel, put: Put, arms: Array) -> Tensor | None:
    """Which actuators pull which spatial tendons, if any."""
    pulls = np.zeros((m.nactuator, m.ntendon))
    for i in np.flatnonzero(m.actuator_trntype == _TRN.mjTRN_TENDON):
        pulls[i, m.actuator_trnid[i, 0]] = is_spatial(m, m.actuator_trnid[i, 0])
    arms += pulls @ tendon_support(m)
    return put(pulls) if pulls.any() else None


def _site_tables(m: mujoco.MjModel, put: Put, arms: Array) -> SiteTables | None:
    chosen = np.flatnonzero(m.actuator_trntype == _TRN.mjTRN_SITE)
    if not len(chosen):
        return None
    moves = body_moves(m)
    site, ref = m.actuator_trnid[chosen].T
    given = ref >= 0
    frame = np.where(given, ref, site)
    body, frame_body = m.site_bodyid[site], m.site_bodyid[frame]
    both = moves[body] * moves[frame_body] * given[:, None]
    move = moves[body] - both
    ref_move = moves[frame_body] * given[:, None] - both
    arms[chosen] += move + ref_move
    return SiteTables(
        actuator=put(chosen),
        site=put(site),
        frame=put(frame),
        has_ref=put(given),
        body=put(body),
        frame_body=put(frame_body),
        root=put(m.body_rootid[body]),
        move=put(move),
        ref_root=put(m.body_rootid[frame_body]),
        ref_move=put(ref_move) if given.any() else None,
        rows=put(np.eye(m.nactuator)[:, chosen]),
    )


def _crank_tables(m: mujoco.MjModel, put: Put, arms: Array) -> CrankTables | None:
    chosen = np.flatnonzero(m.actuator_trntype == _TRN.mjTRN_SLIDERCRANK)
    if not len(chosen):
        return None
    moves = body_moves(m)
    site, slider = m.actuator_trnid[chosen].T
    body, base = m.site_bodyid[site], m.site_bodyid[slider]
    arms[chosen] += moves[body] + moves[base]
    return CrankTables(
        actuator=put(chosen),
        site=put(site),
        slider=put(slider),
        root=put(m.body_rootid[body]),
        move=put(moves[body]),
        slider_root=put(m.body_rootid[base]),
        slider_move=put(moves[base]),
        rows=put(np.eye(m.nactuator)[:, chosen]),
    )


def _adhesion_tables(m: mujoco.MjModel, put: Put, arms: Array) -> AdhesionTables | None:
    """Adhesion of bodies that some contact may touch; of others it does nothing."""
    chosen = np.flatnonzero(m.actuator_trntype == _TRN.mjTRN_BODY)
    if not len(chosen):
        return None
    moves = body_moves(m)
    table = io_layout.contacts(m, put, moves).tables
    one, two = (x.cpu().numpy() for x in (table.body1, table.body2))
    if not len(one):
        return None
    body = m.actuator_trnid[chosen, :1]
    touches = ((body == one) | (body == two)).astype(float)
    arms[chosen] += touches @ np.abs(moves[two] - moves[one])
    sides = ((two, moves[two]), (one, -moves[one]))
    return AdhesionTables(
        touches=put(touches),
        sides=tuple((put(m.body_rootid[b]), put(move)) for b, move in sides),
        rows=put(np.eye(m.nactuator)[:, chosen]),
    )


def is_scalar(m: mujoco.MjModel, joint: int) -> bool:
    """Whether a joint is a slide or a hinge."""
    return int(m.jnt_type[joint]) in (_JOINT.mjJNT_SLIDE, _JOINT.mjJNT_HINGE)


def _on_joints(m: mujoco.MjModel) -> Array:
    """Ids of the actuators on joints."""
    return np.flatnonzero(np.isin(m.actuator_trntype, ON_JOINT))
