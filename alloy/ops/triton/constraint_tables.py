"""What each unit of constraint is, as an int32 table; made once for each layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.tables import int32, knows, table

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout
    from alloy.physics.tree import Tree

# kinds of units: equalities come first
CONNECT, WELD, JOINT_EQUALITY, FRICTION, LIMIT, BALL_LIMIT, CONTACT = (
    tl.constexpr(k) for k in range(7)
)
_EQUALITY = {"connect": 0, "weld": 1, "joint": 2}
# columns of the unit table: what it is, its first row and their number; bodies, roots of trees or
# addresses in qpos; its dof or where its two rows in `move` begin; its id among its like; the side
# of a limit, or the second dof of a joint equality (-1: none)
COLUMNS = tl.constexpr(8)
KIND, ROW, ROWS, ONE, TWO, AT, ID, SIDE = (tl.constexpr(k) for k in range(8))


@dataclass(frozen=True)
class UnitTables:
    """Units of a layout in their order."""

    unit: Tensor  # (nunit * COLUMNS,)
    move: Tensor  # rows of nv: how much of each dof's motion an object has, -1, 0 or 1
    dof_root: Tensor  # (nv,)
    has: tuple[bool, ...]  # whether there are units of each kind


KNOWN = frozenset(
    "equalities ne nf nl n1 cones pyramidal pyramid face_top is_loss loss_place friction_dofs "
    "limit_joints limit_side limit_qpos limit_dofs limit_dofs_high n_ball_limits ball_qpos "
    "ball_dofs row_unit row_normal frictionless sides wrenches wrench_row n_unit quadratic_imp "
    "has_solreffriction".split()
)


def has_kernel(layout: ConstraintLayout) -> bool:
    """Whether all rows of a model are of kinds that the kernels know."""
    known = all(eq.kind in _EQUALITY for eq in layout.equalities)
    return known and layout.fixed and knows(KNOWN, layout)


@lru_cache(maxsize=64)
def unit_tables(layout: ConstraintLayout, tree: Tree) -> UnitTables:
    """The tables of a layout, on its device."""
    device = tree.moves.device
    units: list[tuple[int, ...]] = []
    moves: list[np.ndarray] = []

    def moved(one: Tensor, two: Tensor) -> int:
        """Where these two rows of dofs (nv,) begin in `move`."""
        moves.extend(x.cpu().numpy() for x in (one, two))
        return (len(moves) - 2) * tree.moves.shape[1]

    row = 0
    for eq in layout.equalities:
        kind = _EQUALITY[eq.kind]
        for i in range(eq.n):
            one, two = int(eq.obj1[i]), int(eq.obj2[i])
            if eq.kind == "joint":
                at, side = int(eq.move1[i].argmax()), -1
                if eq.move2[i].any():
                    side = int(eq.move2[i].argmax())
            else:
                at, side = moved(eq.move1[i], eq.move2[i]), 0
            units.append((kind, row, eq.dim, one, two, at, int(eq.ids[i]), side))
            row += eq.dim
    for dof in layout.friction_dofs.tolist() if layout.friction_dofs is not None else ():
        units.append((FRICTION.value, row, 1, 0, 0, dof, dof, 0))
        row += 1
    units += _limit_units(layout, row)
    units += _contact_units(layout, row + layout.nl, moved)
    return UnitTables(
        table(units, device), table(moves, device), int32(tree.dof_root),
        tuple(k in {u[0] for u in units} for k in range(7)),
    )  # fmt: skip


def _limit_units(layout: ConstraintLayout, row: int) -> list[tuple[int, ...]]:
    units = []
    if layout.limit_dofs is not None and layout.limit_qpos is not None:
        dofs, qpos = layout.limit_dofs.argmax(1).tolist(), layout.limit_qpos.tolist()
        sides = [0] * len(dofs) if layout.limit_side is None else layout.limit_side.tolist()
        for i, (dof, q, side) in enumerate(zip(dofs, qpos, sides, strict=True)):
            units.append((LIMIT.value, row + i, 1, q, 0, dof, i, int(side)))
    if layout.ball_dofs is not None and layout.ball_qpos is not None:
        assert layout.limit_joints is not None
        joints = layout.limit_joints.tolist()[-layout.n_ball_limits :]
        dofs, qpos = layout.ball_dofs[:, 0].argmax(1).tolist(), layout.ball_qpos[:, 0].tolist()
        for joint, dof, q in zip(joints, dofs, qpos, strict=True):
            units.append((BALL_LIMIT.value, row + len(units), 1, q, 0, dof, joint, 0))
    return units


def _contact_units(layout: ConstraintLayout, row: int, moved: object) -> list[tuple[int, ...]]:
    """Contacts in the order of their slots."""
    if not layout.sides:
        return []
    first, two = layout.sides[0], layout.sides[-1]
    base, places = row, {}
    if layout.frictionless is not None:
        for slot in layout.frictionless.tolist():
            places[slot] = (row, 1)
            row += 1
    for cone in layout.cones:
        slots = range(cone.n) if cone.slots is None else cone.slots.tolist()
        for k, slot in enumerate(slots):
            places[slot] = (cone.start + k * cone.dim, cone.dim)
    units = []
    for slot in sorted(places):
        at, rows = places[slot]
        second = two.move[at - base] * (0.0 if two is first else 1.0)
        begin = moved(first.move[at - base], second)
        roots = int(first.root[slot]), int(two.root[slot])
        units.append((CONTACT.value, at, rows, *roots, begin, slot, 0))
    return units
