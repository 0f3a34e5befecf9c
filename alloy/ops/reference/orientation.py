"""Orientation servos (so3): three forces that turn a ball joint, or a site against another.

Such an actuator stands beside all others, which have one force each: what the actuation stage knows
by actuator is theirs, what Data has by force is put together here.
Source: MuJoCo manual, XML reference, actuator orientation; what becomes of the activation beyond
half a turn was found by experiment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from alloy import math
from alloy.math import quat_conj, quat_mul, quat_normalize, quat_to_rotvec

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


@dataclass(frozen=True)
class SitePairs:
    """Sites that servos turn against others."""

    site: Tensor  # (k,)
    ref: Tensor  # (k,)
    body: Tensor  # (k,) of the site
    ref_body: Tensor  # (k,)
    move: Tensor  # (k, nv) 1 where the dof turns only the site, -1 only the reference


@dataclass(frozen=True)
class OrientationTables:
    """The servos of a model, those on joints first; built by io_orientations."""

    actuator: Tensor  # (n,)
    plain: Tensor  # (nactuator,) force of each other actuator; of a servo, its first
    owner: Tensor  # (nout,) actuator of each force
    is_servo: Tensor  # (nout,) bool
    rows: Tensor  # (3 n, nout) one-hot: forces of the servos
    ball: Tensor | None  # (j, 4) qpos addresses
    ball_place: Tensor | None  # (j, 3, nv) one-hot: their dofs
    sites: SitePairs | None
    target: Tensor  # (n, 4) into [ctrl, act, 0]
    is_quat: Tensor | None  # (n, 1) bool, the target is a quaternion; None: none is
    act: Tensor | None  # (s, 3) activations that are targets; None: there are none
    act_rows: Tensor | None  # (3 s, na) one-hot
    act_ctrl: Tensor | None  # (na,) into [ctrl, 0], what integrates to each of these
    is_act: Tensor | None  # (na,) bool
    limited: Tensor | None  # (n, 1) bool, the force has a limit; None: none has
    enabled: Tensor | None  # (n, 1) bool; None: all are


class Motion(NamedTuple):
    """What the servos turn."""

    quat: Tensor  # (W, n, 4) orientation of the ball, or of the site against the other
    length: Tensor  # (W, n, 3) its rotation vector
    velocity: Tensor  # (W, n, 3) in its axes, as the moments
    moment: Tensor  # (W, n, 3, nv)


def exponential(turn: Tensor) -> Tensor:
    """Quaternion (..., 4) of a rotation vector (..., 3)."""
    axis, angle = math.normalize(turn)
    return math.quat_from_axis_angle(axis, angle.squeeze(-1))


def motion(m: Model, d: Data, t: OrientationTables) -> Motion:
    """Orientations, and how they follow the dofs."""
    quat, moment = _turned(m, d, t)
    velocity = (moment @ d.qvel[:, None, :, None]).squeeze(-1)
    return Motion(quat, quat_to_rotvec(quat), velocity, moment)


def forces(
    m: Model, t: OrientationTables, motion: Motion, ctrl: Tensor, act: Tensor
) -> tuple[Tensor, Tensor]:
    """Forces (W, n, 3), and their derivative by the velocity (W, n, 1), zero at the limit.

    Args:
        m: the model.
        t: its servos.
        motion: of these.
        ctrl: (W, nu) within their ranges.
        act: (W, na) activations.
    """
    wanted = math.picked(t.target, ctrl, act)
    target = exponential(wanted[..., :3])
    if t.is_quat is not None:
        target = torch.where(t.is_quat, quat_normalize(wanted), target)
    kp = m.actuator_gainprm[:, t.actuator, :1]
    kv = -m.actuator_biasprm[:, t.actuator, 2:3]
    error = quat_to_rotvec(quat_mul(quat_conj(motion.quat), target))
    force = kp * error - kv * motion.velocity
    slope = (-kv).expand_as(force[..., :1])
    if t.limited is not None:
        size = math.safe_norm(force, keepdim=True)
        bound = m.actuator_forcerange[:, t.actuator, 1:]
        over = t.limited & (size > bound)
        force = torch.where(over, force * (bound / torch.where(over, size, 1.0)), force)
        slope = torch.where(over, 0.0, slope)
    if t.enabled is not None:
        force, slope = torch.where(t.enabled, force, 0.0), torch.where(t.enabled, slope, 0.0)
    return force, slope


def _turned(m: Model, d: Data, t: OrientationTables) -> tuple[Tensor, Tensor]:
    """What the servos turn: quaternions (W, n, 4), and moments (W, n, 3, nv) in its axes."""
    quats, moments = [], []
    if t.ball is not None and t.ball_place is not None:
        quats.append(quat_normalize(d.qpos[:, t.ball]))
        moments.append(t.ball_place.expand(len(d.qpos), -1, -1, -1))
    if t.sites is not None:
        s = t.sites
        quat = quat_mul(d.xquat[:, s.body], m.site_quat[:, s.site])
        ref = quat_mul(d.xquat[:, s.ref_body], m.site_quat[:, s.ref])
        quats.append(quat_mul(quat_conj(ref), quat))
        axes = d.cdof[:, None, :, :3].mT  # (W, 1, 3, nv)
        moments.append((d.site_xmat[:, s.site].mT @ axes) * s.move.unsqueeze(-2))
    return torch.cat(quats, 1), torch.cat(moments, 1)


def beside(t: OrientationTables | None, plain: Tensor, own: Tensor | None) -> Tensor:
    """By force (W, nout): of other actuators (W, nactuator), and of the servos (W, n, 3)."""
    if t is None or own is None:
        return plain
    return torch.where(t.is_servo, own.flatten(1) @ t.rows, plain[:, t.owner])


def joint_force(motion: Motion, force: Tensor) -> Tensor:
    """Forces (W, n, 3) of the servos on the dofs, (W, nv)."""
    return (force.unsqueeze(-2) @ motion.moment).squeeze(-2).sum(1)


def damping(motion: Motion, slope: Tensor) -> Tensor:
    """Derivative of that by qvel (W, nv, nv), with the slopes of `forces`."""
    return (motion.moment.mT @ (slope.unsqueeze(-1) * motion.moment)).sum(1)


def wrapped(t: OrientationTables, act: Tensor) -> Tensor:
    """Activations (W, na) with those that are rotation vectors kept within half a turn."""
    if t.act is None or t.act_rows is None or t.is_act is None:
        return act
    turn = act[:, t.act]
    beyond = math.safe_norm(turn, keepdim=True) > torch.pi
    turn = torch.where(beyond, quat_to_rotvec(exponential(turn)), turn)
    return torch.where(t.is_act, turn.flatten(1) @ t.act_rows, act)


def rates(t: OrientationTables, ctrl: Tensor, others: Tensor) -> Tensor:
    """Rates of the activations (W, na): the controls (W, nu) of targets, and those of others."""
    if t.act_ctrl is None or t.is_act is None:
        return others
    return torch.where(t.is_act, math.picked(t.act_ctrl, ctrl), others)
