"""Which contacts get constraint rows where a model is built with a bound on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mujoco
import numpy as np
from torch import Tensor

from alloy.physics import io_layout
from alloy.physics.io_layout import Contacts
from alloy.physics.layout import ConstraintLayout, ContactSide, Selection

MANY = 64  # contact slots from which it pays to have rows for those in use only
RUNGS = (8, 32, 128)  # contacts of a condim


def selection(
    mj: mujoco.MjModel, put: Callable[..., Tensor], moves: np.ndarray, found: Contacts,
    layout: ConstraintLayout, most: int | None,
) -> Selection | None:  # fmt: skip
    """Tables for at most so many contacts of each condim, or None where there are no more.

    Raises:
        NotImplementedError: the model has noslip iterations, which know the rows of all contacts.
    """
    groups = _by_condim(found)
    if most is None or all(len(slots) <= most for _, slots in groups):
        return None
    if mj.opt.noslip_iterations:
        raise NotImplementedError(
            f"max_contacts={most} with option noslip_iterations={mj.opt.noslip_iterations}: "
            f"leave one of them out"
        )
    return _tables(mj, put, moves, found, layout, most)


def ladder(
    mj: mujoco.MjModel, put: Callable[..., Tensor], moves: np.ndarray, found: Contacts,
    layout: ConstraintLayout,
) -> tuple[Selection, ...]:  # fmt: skip
    """Tables for few, more and many contacts of each condim; none where all are not that many.

    With noslip iterations there are none: they know the rows of all contacts.
    """
    largest = max((len(slots) for _, slots in _by_condim(found)), default=0)
    if mj.opt.noslip_iterations or len(found.dim) < MANY:
        return ()
    return tuple(
        _tables(mj, put, moves, found, layout, most) for most in RUNGS if 2 * most <= largest
    )


def _by_condim(found: Contacts) -> list[tuple[int, np.ndarray]]:
    """Condims that occur, and the contact slots of each."""
    dims = np.array(found.dim, int)
    return [(dim, np.flatnonzero(dims == dim)) for dim in (1, 3, 4, 6) if (dims == dim).any()]


def _tables(
    mj: mujoco.MjModel, put: Callable[..., Tensor], moves: np.ndarray, found: Contacts,
    layout: ConstraintLayout, most: int,
) -> Selection:  # fmt: skip
    groups, dims = _by_condim(found), np.array(found.dim, int)
    counts = [min(len(slots), most) for _, slots in groups]
    kept = np.concatenate([slots[:n] for (_, slots), n in zip(groups, counts, strict=True)])
    tables = replace(
        found.tables, body1=found.tables.body1[kept], body2=found.tables.body2[kept],
        dim=tuple(int(dims[k]) for k in kept),
    )  # fmt: skip
    few, _ = io_layout.rows(mj, put, moves, replace(found, tables=tables, dim=tables.dim))
    contact, part = _rows_of([(dim, n) for (dim, _), n in zip(groups, counts, strict=True)])
    first = np.zeros(len(dims), int)
    row = layout.n_scalar - layout.n1
    for dim, slots in groups:
        first[slots] = row + dim * np.arange(len(slots))
        row += dim * len(slots)
    return Selection(
        layout=few,
        groups=tuple((put(slots), n) for (_, slots), n in zip(groups, counts, strict=True)),
        ncon=len(kept),
        nefc=few.n_scalar + sum(c.n * c.dim for c in few.cones),
        rows=layout.n_scalar - layout.n1,
        first_row=put(first),
        row_contact=put(contact),
        row_part=put(part),
        sides=tuple(
            ContactSide(side.root, side.move[put(first - layout.n_scalar + layout.n1)])
            for side in layout.sides
        ),
    )


def _rows_of(groups: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Which chosen contact each row belongs to and which of its rows it is; (condim, contacts)."""
    contact, part, start = [], [], 0
    for dim, count in groups:
        contact += [start + i for i in range(count) for _ in range(dim)]
        part += list(range(dim)) * count
        start += count
    return np.array(contact, int), np.array(part, int)
