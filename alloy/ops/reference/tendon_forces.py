"""What spatial tendons do to bodies: the forces along them, and where they pull.

No stage of a step needs it: there, tendons act through their Jacobians.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference import passive, tendon, tendon_inertia
from alloy.ops.reference.actuation import by_actuator
from alloy.ops.reference.constraint import polynomial_rows

if TYPE_CHECKING:
    from alloy.physics.model import Data, Model
    from alloy.physics.passive_tendon import Pieces

Action = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # as in body_forces


def along(m: Model, d: Data) -> Tensor:
    """Forces along all tendons (W, ntendon), positive where they lengthen.

    Of springs, dampers, actuators, constraints and of the tendon's own inertia, less than nothing
    where it holds back.
    """
    t, act = m.derived["passive"], m.derived["actuation"]
    force = torch.zeros_like(d.ten_length)
    if not passive.all_disabled(m):
        if t.tendon_spring and "spring" not in m.opt.disable:
            force = force + passive.tendon_springs(m, d, t)
        if t.tendon_damper and "damper" not in m.opt.disable:
            force = force - passive.tendon_damping(m, d, t, passive.FORCE) * d.ten_velocity
    if act.tendons is not None:
        force = force + (by_actuator(act, d.actuator_force) * m.actuator_gear[..., 0]) @ act.tendons
    if m.derived["tendon_inertia"] is not None:
        growth = (d.ten_J @ d.qacc.unsqueeze(-1)).squeeze(-1) + tendon_inertia.drift(m, d)
        force = force - m.tendon_armature * growth
    for rows, share in _constraints(m, d):
        force = force + (d.efc_force[:, rows].unsqueeze(-2) @ share).squeeze(-2)
    return force


def _constraints(m: Model, d: Data) -> Iterator[tuple[slice, Tensor]]:
    """Constraint rows of tendons, and the tendons' shares in them, (W, n, ntendon)."""
    lay, start = m.efc, 0
    for eq in lay.equalities:
        if eq.kind == "tendon":
            length = d.ten_length - m.tendon_length0
            share, _ = polynomial_rows(m, eq, length, eq.move1, eq.move2)
            yield slice(start, start + eq.n), share.squeeze(-2)
        start += eq.n * eq.dim
    eye = torch.eye(m.ntendon, dtype=d.qpos.dtype, device=d.qpos.device)
    if lay.loss_tendons is not None:
        end = lay.ne + lay.nf
        share = eye[lay.loss_tendons].expand(len(d.qpos), -1, -1)
        yield slice(end - lay.n_tendon_losses, end), share
    if lay.limit_tendons is not None:
        end = lay.ne + lay.nf + lay.nl
        rows, own = slice(end - lay.n_tendon_limits, end), d.ten_J[:, lay.limit_tendons]
        square = math.dot(own, own)
        side = math.dot(d.efc_J[:, rows], own) / square.clamp(min=math.MINVAL)
        yield rows, side.unsqueeze(-1) * eye[lay.limit_tendons]


def pulls(m: Model, d: Data) -> Iterator[Action]:
    """Forces on what the tendons run over, piece by piece."""
    pieces = m.derived["passive"].spatial
    if pieces is None:
        return
    force = along(m, d)
    for part in (pieces.straight, pieces.wrapped):
        if part is not None:
            yield from _of_pieces(m, d, part, (force @ part.share.mT).unsqueeze(-1))


def _of_pieces(m: Model, d: Data, part: Pieces, force: Tensor) -> Iterator[Action]:
    ends, w = part.ends, part.wraps
    one, two = (m.derived["site_bodyid"][site] for site in (ends.site1, ends.site2))
    first, last = d.site_xpos[:, ends.site1], d.site_xpos[:, ends.site2]
    if w is None:
        way = math.normalize(last - first)[0]
        yield one, two, first, last, _wrench(force * way)
        return
    way, held = tendon.way_around(m, d, w, first, last), m.derived["geom_bodyid"][w.geom]
    direct = torch.where(way.bent, 0.0, force)
    bent = torch.where(way.bent, force, 0.0)
    yield one, two, first, last, _wrench(direct * way.leaving)
    yield one, held, first, way.touch1, _wrench(bent * way.leaving)
    yield held, two, way.touch2, last, _wrench(bent * way.arriving)


def _wrench(force: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(force), force], -1)
