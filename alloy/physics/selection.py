"""Rows for the nearest contacts only, in models with more pairs than ever touch at once.

Every pair keeps its contact slots, which is what sensors and views read. But where a model is built
with a bound on contacts, only so many of each condim, the nearest to their margins, get constraint
rows; their parameters are gathered world by world. What has no row exerts no force, and is counted.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from alloy.physics.layout import ContactSide, Selection
from alloy.physics.model import Data, Model


def choose(m: Model, d: Data) -> Data:
    """Choose the contacts (mj_collision's, of each world) that get rows; count the others."""
    s = _of(m)
    gap = d.contact_dist - m.con_margin
    chosen = []
    for slots, count in s.groups:
        nearest = gap[:, slots].sort(dim=-1, stable=True).indices[:, :count]
        chosen.append(slots[nearest.sort(-1).values])
    chosen = torch.cat(chosen, 1)
    left = (gap < 0).sum(-1) - (gap.gather(1, chosen) < 0).sum(-1)
    before = 0 if d.contact_dropped is None else d.contact_dropped
    return replace(d, contact_chosen=chosen, contact_dropped=left + before)


def reduced(m: Model, d: Data) -> tuple[Model, Data]:
    """A model of the chosen contacts only, and the data of these."""
    s, chosen = _of(m), d.contact_chosen
    row, unit = _rows(s, chosen), m.nunit - m.ncon + chosen

    def of_rows(values: Tensor) -> Tensor:
        return torch.cat([_wide(values[:, : s.rows], d), _pick(values, row)], 1)

    def of_units(values: Tensor) -> Tensor:
        return torch.cat([_wide(values[:, : m.nunit - m.ncon], d), _pick(values, unit)], 1)

    sides = tuple(
        ContactSide(side.root[chosen], side.move[chosen[:, s.row_contact]]) for side in s.sides
    )
    few = replace(
        m,
        selection=None,
        ncon=s.ncon,
        nefc=s.nefc,
        nunit=m.nunit - m.ncon + s.ncon,
        efc=replace(s.layout, sides=sides),
        con_friction=_pick(m.con_friction, chosen),
        efc_k=of_rows(m.efc_k),
        efc_b=of_rows(m.efc_b),
        efc_diag=of_rows(m.efc_diag),
        efc_imp=of_units(m.efc_imp),
        efc_margin=of_units(m.efc_margin),
    )
    return few, replace(
        d,
        contact_dist=_pick(d.contact_dist, chosen),
        contact_pos=_pick(d.contact_pos, chosen),
        contact_frame=_pick(d.contact_frame, chosen),
    )


def spread(m: Model, d: Data) -> Data:
    """Forces and flags of the chosen contacts' rows in their places among the rows of all."""
    s = _of(m)
    row = _rows(s, d.contact_chosen)
    force = d.efc_force.new_zeros(len(d.efc_force), m.nefc)
    active = torch.zeros_like(force, dtype=torch.bool)
    every = torch.arange(s.rows, device=row.device).expand(len(force), -1)
    row = torch.cat([every, row], 1)
    return replace(
        d,
        efc_force=force.scatter(1, row, d.efc_force),
        efc_active=active.scatter(1, row, d.efc_active),
    )


def _of(m: Model) -> Selection:
    assert m.selection is not None
    return m.selection


def _rows(s: Selection, chosen: Tensor) -> Tensor:
    """Rows (W, n) among all of the rows of the chosen contacts."""
    return s.first_row[chosen[:, s.row_contact]] + s.row_part


def _wide(values: Tensor, d: Data) -> Tensor:
    return values.expand(len(d.qpos), *values.shape[1:])


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """Rows (W, n, ...) of values (1|W, m, ...) by index (W, n)."""
    values = values.expand(len(index), *values.shape[1:])
    place = index.reshape(*index.shape, *([1] * (values.ndim - 2)))
    return values.gather(1, place.expand(*index.shape, *values.shape[2:]))
