"""What the solver's loops run over: which dofs a row moves, and where H = M + J' C J is not zero.

A row's support is the set of dofs with an entry in J. Rows on one path of the tree add nothing to
the pattern of M; a contact between two branches couples them. The factor is computed from the
leaves to the root, whose fill-in is found here, once for each model.
Source: Featherstone (2008), section 6.5; George and Liu (1981), section 5.2, for the fill-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from alloy.ops.triton.tables import table

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout


@dataclass(frozen=True)
class Plan:
    """Tables of a model's rows and of its Hessian.

    Units are the scalar rows, then the contacts with a friction cone, in the order of their rows.
    """

    unit: Tensor  # (3 units,) first row of each, where its support begins in `dofs` and ends
    dofs: Tensor  # supports, ascending
    slot: Tensor  # (contacts,) contact slot of each cone
    loss: Tensor  # (nf,) dof of each friction loss row
    lower: Tensor  # (nv + 1,) where each row of H begins in `columns`
    columns: Tensor  # columns below the diagonal, ascending
    dims: tuple[int, ...]  # condim of each cone group
    groups: tuple[int, ...]  # units of each cone group: its first, and at last the end
    entries: int  # nonzero entries of the factor, for reports


@lru_cache(maxsize=64)
def dense_plan(layout: ConstraintLayout, nefc: int, nv: int, device: torch.device) -> Plan:
    """A plan that takes every entry of J and M to be there."""
    return _plan(layout, np.ones((nefc, nv), bool), np.ones((nv, nv), bool), device)


def sparse_plan(layout: ConstraintLayout, rows: Tensor, mass: Tensor) -> Plan:
    """A plan from patterns.

    Args:
        layout: what each row is.
        rows: (nefc, nv) nonzero where J may be.
        mass: (nv, nv) nonzero where M may be.
    """
    patterns = ((x != 0).cpu().numpy() for x in (rows, mass))
    return _plan(layout, *patterns, rows.device)


def row_support(layout: ConstraintLayout, nv: int, contact_move: Tensor | None) -> Tensor:
    """Which dofs move each row, (nefc, nv) bool.

    Args:
        layout: what each row is.
        nv: number of dofs.
        contact_move: (ncon, nv) nonzero where the dof moves one of a contact's two bodies.
    """
    parts = []
    for eq in layout.equalities:
        both = (eq.move1 != 0) | (eq.move2 != 0)
        parts.append(both.repeat_interleave(eq.dim, 0))
    if layout.nf:
        parts.append(layout.loss_place.T[layout.ne : layout.ne + layout.nf] != 0)
    if layout.limit_dofs is not None:
        parts.append(layout.limit_dofs != 0)
    if layout.ball_dofs is not None:
        parts.append((layout.ball_dofs != 0).any(1))
    if contact_move is not None:
        move = contact_move != 0
        if layout.n1:
            parts.append(move[layout.frictionless])
        for cone in layout.cones:
            of_group = move if cone.slots is None else move[cone.slots]
            parts.append(of_group.repeat_interleave(cone.dim, 0))
    return torch.cat(parts) if parts else torch.zeros(0, nv, dtype=torch.bool)


def _plan(
    layout: ConstraintLayout, rows: np.ndarray, mass: np.ndarray, device: torch.device
) -> Plan:
    first, size = list(range(layout.n_scalar)), [1] * layout.n_scalar
    slots, groups = [], [layout.n_scalar]
    for cone in layout.cones:
        first += range(cone.start, cone.start + cone.n * cone.dim, cone.dim)
        size += [cone.dim] * cone.n
        slots += range(cone.n) if cone.slots is None else cone.slots.tolist()
        groups.append(groups[-1] + cone.n)
    supports = [np.flatnonzero(rows[i : i + n].any(0)) for i, n in zip(first, size, strict=True)]
    ends = np.cumsum([0, *map(len, supports)])
    lower = _fill_in(mass, supports)
    losses = layout.friction_dofs.tolist() if layout.nf else []
    return Plan(
        unit=table(np.stack([first, ends[:-1], ends[1:]], 1), device),
        dofs=table(np.concatenate([[], *supports]), device),
        slot=table(slots, device),
        loss=table(losses, device),
        lower=table(np.cumsum([0, *map(len, lower)]), device),
        columns=table(np.concatenate([[], *lower]), device),
        dims=tuple(cone.dim for cone in layout.cones),
        groups=tuple(groups),
        entries=len(mass) + sum(map(len, lower)),
    )


def _fill_in(mass: np.ndarray, supports: list[np.ndarray]) -> list[np.ndarray]:
    """Columns of each row of the factor below its diagonal, ascending."""
    pattern = mass.copy()
    for support in {tuple(s) for s in supports}:
        pattern[np.ix_(support, support)] = True
    lower: list[np.ndarray] = []
    for i in reversed(range(len(pattern))):
        columns = np.flatnonzero(pattern[i, :i])
        pattern[np.ix_(columns, columns)] = True
        lower.append(columns)
    return lower[::-1]
