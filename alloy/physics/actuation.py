"""Actuators: what a model has of them, their stage, and their derivative by velocity.

On scalar joints and fixed tendons an actuator's moment arm is its first gear times a constant row.
All others (ball and free joints, spatial tendons, sites, slider-cranks, adhesion) are cases of
their own, whose tables are None in models without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alloy import ops
from alloy.ops.reference import dcmotor, muscle, orientation
from alloy.ops.reference.actuation import (
    DelayTables,
    active,
    by_actuator,
    clamped_ctrl,
    first_ctrl,
    inputs,
    next_activation,
    recorded,
)
from alloy.ops.reference.dcmotor import DcMotorTables
from alloy.ops.reference.orientation import OrientationTables
from alloy.ops.reference.pid import PidTables
from alloy.ops.reference.transmission import transmission
from alloy.physics.model import Data, Model

__all__ = ["ActuationTables", "AdhesionTables", "CrankTables", "Limit", "SiteTables", "TurnTables",
           "actuation", "next_activation", "recorded", "velocity_derivative"]  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """Which columns are clamped to a range (..., 2); the mask is None where all of them are."""

    mask: Tensor | None

    def clamp(self, x: Tensor, bounds: Tensor) -> Tensor:
        """Clamp the limited columns of x (..., n) to bounds (..., n, 2)."""
        clamped = torch.clamp(x, bounds[..., 0], bounds[..., 1])
        return clamped if self.mask is None else torch.where(self.mask, clamped, x)

    def reached(self, x: Tensor, bounds: Tensor) -> Tensor:
        """Limited columns that are at or beyond their bounds; bool (..., n)."""
        at = (x <= bounds[..., 0]) | (x >= bounds[..., 1])
        return at if self.mask is None else at & self.mask


@dataclass(frozen=True)
class TurnTables:
    """Transmissions on ball and free joints."""

    actuator: Tensor  # (n,)
    quat: Tensor  # (n, 4) qpos addresses
    is_ball: Tensor  # (n, 1) bool
    in_parent: Tensor | None  # (n, 1) bool, gear turns with the parent; None: never
    place: Tensor  # (n, 6, nv) unit moments of translational and rotational gear
    rows: Tensor  # (nactuator, n) rows of these actuators


@dataclass(frozen=True)
class SiteTables:
    """Transmissions on sites, against a reference site or in their own frames."""

    actuator: Tensor  # (n,)
    site: Tensor  # (n,)
    frame: Tensor  # (n,) site whose frame the gear is in: the reference, or the site itself
    has_ref: Tensor  # (n,) bool
    body: Tensor  # (n,) of the site
    frame_body: Tensor  # (n,)
    root: Tensor  # (n,) root body of the site's tree
    move: Tensor  # (n, nv) dofs that move the site, with a reference without those of both
    ref_root: Tensor  # (n,)
    ref_move: Tensor | None  # (n, nv) dofs that move the reference only; None: no references
    rows: Tensor  # (nactuator, n)


@dataclass(frozen=True)
class CrankTables:
    """Slider-cranks."""

    actuator: Tensor  # (n,)
    site: Tensor  # (n,) the pin
    slider: Tensor  # (n,)
    root: Tensor  # (n,) root body of the pin's tree
    move: Tensor  # (n, nv)
    slider_root: Tensor
    slider_move: Tensor
    rows: Tensor  # (nactuator, n)


@dataclass(frozen=True)
class AdhesionTables:
    """Adhesion of bodies to what they touch."""

    touches: Tensor  # (n, ncon) 1 where the contact is the body's
    sides: tuple[tuple[Tensor, Tensor], ...]  # moving sides: root (ncon,), +-1 by dof (ncon, nv)
    rows: Tensor  # (nactuator, n)


@dataclass(frozen=True)
class ActuationTables:
    """What the actuation stage knows of a model beforehand; built by io_tables.actuation_tables."""

    length: Tensor  # (nq, nactuator) length of scalar transmissions at unit gear, by qpos
    moment: Tensor  # (nactuator, nv) moment of scalar transmissions at unit gear
    turn: TurnTables | None
    tendons: Tensor | None  # (nactuator, ntendon) 1 where the actuator pulls a spatial tendon
    sites: SiteTables | None
    cranks: CrankTables | None
    adhesion: AdhesionTables | None
    ctrl_limit: Limit | None
    force_limit: Limit | None
    joint_limit: Limit | None  # over dofs, of the joint total
    dof_joint: Tensor  # (nv,)
    joint_actuators: Tensor  # (nv, nactuator) 1 where the actuator acts on the dof's scalar joint
    tendon_range: Tensor | None  # (n, 2) limits of tendon totals
    tendon_actuators: Tensor | None  # (nactuator, n) 1 where the actuator pulls the limited tendon
    enabled: Tensor | None  # (nactuator,) bool; None: no group is disabled
    gain_affine: bool  # some gain depends on length or velocity
    gain_mask: Tensor | None  # (nactuator, 3) 1 where const, length, velocity count; None: all
    bias_affine: bool  # some actuator has a bias
    bias_mask: Tensor | None  # as gain_mask
    muscle_gain: Tensor | None  # (nactuator,) bool
    muscle_bias: Tensor | None  # (nactuator,) bool
    dcmotor: DcMotorTables | None
    pid: PidTables | None
    servos: OrientationTables | None
    delay: DelayTables | None
    gravcomp: Tensor | None  # (nv,) 1 where actuators compensate gravity
    pattern: Tensor | None  # (nv, nv) pairs that implicitfast keeps; None: all that are coupled
    # activations
    first_ctrl: Tensor | None  # (nactuator,) first control, into [ctrl, 0]; None: one to one
    input: Tensor | None  # (nactuator,) into [first controls, act]; None: the controls
    act_actuator: Tensor | None  # (na,); None: one to one
    act_filter: Tensor | None  # (na,) bool
    act_exact: Tensor | None  # (na,) bool
    act_muscle: Tensor | None  # (na,) bool
    act_early: Tensor | None  # (na,) bool
    act_limit: Limit | None
    act_enabled: Tensor | None  # (na,) bool


def actuation(m: Model, d: Data) -> Data:
    """Actuators' forces and activation rates, and qfrc_smooth, all that is no constraint."""
    return ops.actuation(m, d)


def velocity_derivative(m: Model, d: Data) -> Tensor:
    """Derivative of qfrc_actuator by qvel as MuJoCo's implicitfast takes it; (1|W, nv, nv).

    An actuator whose force is at a limit, its own or its joint's or tendon's, contributes nothing.
    Pairs of dofs of which neither is above the other in the tree are left out. Needs actuation's
    results.
    """
    t: ActuationTables = m.derived["actuation"]
    nothing = m.nactuator == 0 or "actuation" in m.opt.disable
    special = t.muscle_gain, t.dcmotor, t.servos
    if nothing or not (t.gain_affine or t.bias_affine or any(x is not None for x in special)):
        return torch.zeros_like(m.dof_damping).unsqueeze(-1).expand(-1, -1, m.nv)
    length, velocity = (by_actuator(t, x) for x in (d.actuator_length, d.actuator_velocity))
    slope = torch.zeros_like(m.actuator_gear[..., 0])
    if t.bias_affine:
        slope = _velocity_gain(m.actuator_biasprm, t.bias_mask)
    if t.gain_affine or t.muscle_gain is not None:
        factor = inputs(m, d, t, first_ctrl(t, clamped_ctrl(m, d, t)))
        if t.gain_affine:
            slope = slope + _velocity_gain(m.actuator_gainprm, t.gain_mask) * factor
        if t.muscle_gain is not None:
            own = muscle.gain(m, length, velocity)[1]
            slope = slope + torch.where(t.muscle_gain, own * factor, 0.0)
    force, own = by_actuator(t, d.actuator_force), None
    if t.dcmotor is not None:
        own = dcmotor.motors(m, d, t.dcmotor, length, velocity, clamped_ctrl(m, d, t))
        slope = torch.where(t.dcmotor.is_motor, own.slope @ t.dcmotor.rows, slope)
        force = torch.where(t.dcmotor.is_motor, own.force @ t.dcmotor.rows, force)
    if t.force_limit is not None:
        at_limit = t.force_limit.reached(force, m.actuator_forcerange)
        slope = torch.where(at_limit, 0.0, slope)
    if own is not None and t.dcmotor is not None:
        slope = slope + own.slope_beside @ t.dcmotor.rows
    if t.enabled is not None:
        slope = torch.where(t.enabled, slope, 0.0)
    if t.joint_limit is not None:
        at_limit = t.joint_limit.reached(d.qfrc_actuator, m.jnt_actfrcrange[:, t.dof_joint])
        held = at_limit.to(slope.dtype) @ t.joint_actuators
        slope = torch.where(held > 0, 0.0, slope)
    if t.tendon_range is not None and t.tendon_actuators is not None:
        held = _tendon_at_limit(t, by_actuator(t, d.actuator_force) @ t.tendon_actuators)
        slope = torch.where(held.to(slope.dtype) @ t.tendon_actuators.mT > 0, 0.0, slope)
    moment = transmission(m, d, t)[2]
    if moment is None:
        moment = m.actuator_gear[..., :1] * t.moment
    out = moment.mT @ (slope.unsqueeze(-1) * moment)
    if t.servos is not None:
        turned = orientation.motion(m, d, t.servos)
        ctrl, act = clamped_ctrl(m, d, t), active(m, d, t)
        slopes = orientation.forces(m, t.servos, turned, ctrl, act)[1]
        out = out + orientation.damping(turned, slopes)
    return out if t.pattern is None else out * t.pattern


def _velocity_gain(prm: Tensor, mask: Tensor | None) -> Tensor:
    return prm[..., 2] if mask is None else prm[..., 2] * mask[:, 2]


def _tendon_at_limit(t: ActuationTables, total: Tensor) -> Tensor:
    """Tendons whose total is at a limit, within what scaling the shares to it has rounded off."""
    assert t.tendon_range is not None
    low, high = t.tendon_range.unbind(-1)
    slack = 32 * torch.finfo(total.dtype).eps * (high - low)
    return (total <= low + slack) | (total >= high - slack)
