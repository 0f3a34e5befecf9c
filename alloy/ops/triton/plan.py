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

from alloy.ops.triton.constraint_tables import has_kernel
from alloy.ops.triton.tables import table

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout
    from alloy.physics.tree import Tree


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
def plan_of(layout: ConstraintLayout, tree: Tree) -> Plan:
    """The tables of a model's rows and tree."""
    return _plan(
        layout,
        _row_support(layout, len(tree.m_lower)),
        tree.m_lower.cpu().numpy() != 0,
        tree.m_lower.device,
    )


@lru_cache(maxsize=64)
def mass_pattern(tree: Tree) -> tuple[Tensor, Tensor]:
    """Where each row of M begins in its list of columns below the diagonal, and that list."""
    lower = _fill_in(tree.m_lower.cpu().numpy() != 0, [])
    device = tree.m_lower.device
    return table(np.cumsum([0, *map(len, lower)]), device), table(
        np.concatenate([[], *lower]), device
    )


def _row_support(layout: ConstraintLayout, nv: int) -> np.ndarray:
    """Which dofs may move each row, (nefc, nv) bool; all, if there are rows of an unknown kind."""
    if not has_kernel(layout):
        rows = layout.n_scalar + sum(cone.n * cone.dim for cone in layout.cones)
        return np.ones((rows, nv), bool)
    parts = []
    for eq in layout.equalities:
        both = (eq.move1 != 0) | (eq.move2 != 0)
        parts.append(both.repeat_interleave(eq.dim, 0))
    if layout.loss_place is not None:
        parts.append(layout.loss_place.T[layout.ne : layout.ne + layout.nf] != 0)
    if layout.limit_dofs is not None:
        parts.append(layout.limit_dofs != 0)
    if layout.ball_dofs is not None:
        parts.append((layout.ball_dofs != 0).any(1))
    if layout.sides:
        parts.append(torch.stack([side.move != 0 for side in layout.sides]).any(0))
    return torch.cat(parts).cpu().numpy()


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
