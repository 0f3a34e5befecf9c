"""Springs that yield: ideal plasticity, whose rest follows what stretches them beyond springyield.

Source: MuJoCo manual, XML reference, springyield of joints and tendons; what it leaves open (when,
and by which length of a tendon) was found by experiment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import pose

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model


@dataclass(frozen=True)
class PlasticTables:
    """Which springs yield, and where in Data.plastic their rest is; built by io_plastic."""

    rest: Tensor  # (nq + 2 ntendon,) into [qpos_spring, tendon_lengthspring, plastic]
    scalar: Tensor | None  # (n,) hinges and slides that yield
    scalar_qpos: Tensor | None  # (n,)
    ball: Tensor | None  # (k,) balls that yield
    ball_qpos: Tensor | None  # (k, 4)
    tendon: Tensor | None  # (t,) tendons that yield
    place: Tensor  # (nplastic,) from plastic to these, scalars first, then balls, then tendons
    order: Tensor  # (nplastic,) and back


def springs_at_rest(m: Model, d: Data) -> tuple[Tensor, Tensor]:
    """Where springs are at rest now: qpos (1|W, nq), and lengths of tendons (1|W, ntendon, 2)."""
    t: PlasticTables | None = m.derived["passive"].plastic
    if t is None:
        return m.qpos_spring, m.tendon_lengthspring
    worlds = len(d.plastic)
    fixed = (x.expand(worlds, *x.shape[1:]) for x in (m.qpos_spring, m.tendon_lengthspring))
    rest = torch.cat([*(x.flatten(1) for x in fixed), d.plastic], -1)[:, t.rest]
    return rest[:, : m.nq], rest[:, m.nq :].unflatten(-1, (m.ntendon, 2))


def yielded(m: Model, d: Data, qvel: Tensor, qpos: Tensor) -> Tensor:
    """Plastic state (W, nplastic) at the end of a step.

    Args:
        m: the model.
        d: with tendons and plastic of the step's start.
        qvel: (W, nv) velocity by which positions move over the step.
        qpos: (W, nq) positions at the step's end.
    """
    t: PlasticTables | None = m.derived["passive"].plastic
    if t is None or "spring" in m.opt.disable:
        return d.plastic
    left, parts = d.plastic[:, t.place], []
    if t.scalar is not None:
        own, far = qpos[:, t.scalar_qpos], m.jnt_springyield[:, t.scalar]
        parts.append(torch.clamp(left[:, : len(t.scalar)], own - far, own + far))
        left = left[:, len(t.scalar) :]
    if t.ball is not None:
        rest = left[:, : 4 * len(t.ball)].unflatten(-1, (-1, 4))
        parts.append(_turned(rest, qpos[:, t.ball_qpos], m.jnt_springyield[:, t.ball]).flatten(1))
        left = left[:, 4 * len(t.ball) :]
    if t.tendon is not None:
        # MuJoCo does not measure tendons again: these lengths follow from those of the start
        length = d.ten_length + m.opt.timestep * (d.ten_J @ qvel.unsqueeze(-1)).squeeze(-1)
        rest, far = left.unflatten(-1, (-1, 2)), m.tendon_springyield[:, t.tendon]
        parts.append(_shifted(rest, length[:, t.tendon], far).flatten(1))
    return torch.cat(parts, -1)[:, t.order]


def _turned(rest: Tensor, quat: Tensor, far: Tensor) -> Tensor:
    """Rest (W, k, 4) of ball joints at quat, turned after them to within the angle far (1|W, k)."""
    turn = math.quat_mul(math.quat_conj(rest), math.quat_normalize(quat))
    way, angle = math.normalize(math.quat_to_rotvec(turn))
    beyond = angle - far.unsqueeze(-1)
    return torch.where(beyond > 0, pose.integrate_quat(rest, beyond * way, 1.0), rest)


def _shifted(rest: Tensor, length: Tensor, far: Tensor) -> Tensor:
    """Rest lengths (W, t, 2) of tendons, both shifted so that length is not beyond them by far.

    A tendon that may be slack (at rest from zero to a length) only grows longer when it is pulled.
    """
    low, high = rest.unbind(-1)
    shift = length - torch.clamp(length, low - far, high + far)
    slack = (low == 0) & (high > 0) & (shift > 0)
    return torch.stack([low + torch.where(slack, 0.0, shift), high + shift], -1)
