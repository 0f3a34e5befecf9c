"""Static layout of contacts and constraint rows: which slot is which pair, which row is what.

Rows are kept in base form: a frictional contact owns `dim` rows (normal, tangents, spin, roll)
whatever the cone. The pyramid's edges are normal +- mu * tangent of those rows, and the elliptic
cone reads them as they are, so both cones share one Jacobian and one reference acceleration.
Order: equality, friction loss, limits, frictionless contacts, then contacts by dim 3, 4, 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from alloy.ops.reference.collide_hfield import Field
from alloy.ops.reference.convex import Mesh


@dataclass(frozen=True)
class PairGroup:
    """Enabled geom pairs that share one collider."""

    kind: tuple[int, int]  # mjtGeom of geom1 and geom2
    geom1: Tensor  # (P,)
    geom2: Tensor  # (P,)
    slots: int  # contacts of each pair
    start: int  # first contact in collider order
    shape1: Mesh | Field | None = None  # of geom1 where it is a mesh or a height field
    shape2: Mesh | None = None

    @property
    def shapes(self) -> tuple[Mesh | Field | None, ...]:
        """What the collider takes besides poses and sizes."""
        some = self.shape1 is not None or self.shape2 is not None
        return (self.shape1, self.shape2) if some else ()

    @property
    def drops(self) -> bool:
        """Whether there can be more contacts than slots."""
        return isinstance(self.shape1, Field)


@dataclass(frozen=True)
class ConeGroup:
    """Frictional contacts of one condim; their base rows are contiguous, contact by contact."""

    dim: int  # 3, 4 or 6
    slots: Tensor | None  # (n,) contact slots, None: every slot in order
    n: int
    start: int  # first base row


@dataclass(frozen=True)
class EqualityGroup:
    """Equality constraints of one type (connect, weld, joint, tendon), each with `dim` rows."""

    kind: str
    ids: Tensor  # (n,) equality ids
    n: int
    dim: int
    obj1: Tensor  # (n,) bodies, joints' qpos addresses, or tendons
    obj2: Tensor
    move1: Tensor  # (n, nv) dofs that move object 1, or one-hot dof; (n, ntendon) one-hot tendon
    move2: Tensor


@dataclass(frozen=True)
class ContactTables:
    """Per contact slot: who touches, and how the parameters of the two geoms mix."""

    order: Tensor | None  # collider order -> slot order, None: the same
    geom1: Tensor  # (ncon,)
    geom2: Tensor  # (ncon,)
    geom_ids: tuple[tuple[int, int], ...]  # the same as plain numbers
    move: Tensor  # (ncon, nv) dofs that move geom2's body less those that move geom1's
    dim: tuple[int, ...]
    take: Tensor  # (ncon, 2) 1 where that geom's friction takes part in the maximum
    pair_friction: Tensor  # (ncon, 5) of explicit pairs
    is_pair: Tensor  # (ncon, 1) bool: nothing is mixed from the geoms
    body1: Tensor  # (ncon,)
    body2: Tensor  # (ncon,)


@dataclass(frozen=True)
class ContactSide:
    """One side of the contacts, whose dofs move about the centre of mass of one tree.

    Where every world has chosen its own contacts both have a dimension for worlds in front.
    """

    root: Tensor  # (ncon,) root body of that tree
    move: Tensor  # (rows, nv) by contact row: +1 and -1 where the dof moves geom2 or geom1


@dataclass(frozen=True)
class FreeBodies:
    """Trees that are one body on a free joint."""

    body: Tensor  # (n,)
    place: Tensor  # (n, 6, nv) one-hot: their dofs


@dataclass(frozen=True)
class PyramidTables:
    """How the faces of a pyramidal model come from base rows: x = base[normal] +- mu base[tangent].

    Rows outside of a friction cone are their own face, with slope zero.
    """

    normal: Tensor  # (faces,) base row of the normal, or the row itself
    tangent: Tensor  # (faces,) base row of the tangent, or the row itself
    friction: Tensor  # (faces,) into con_friction flattened over (slot, axis)
    sign: Tensor  # (faces,) +1, -1, or 0 where the face has no tangent
    base_normal: Tensor  # (nefc,) the normal of each tangent row, else the row itself


@dataclass(frozen=True)
class ConstraintLayout:
    """Order of the base rows and of their units (an equality, a dof, a limit or a contact)."""

    equalities: tuple[EqualityGroup, ...]
    ne: int  # equality rows
    nf: int  # friction loss rows, of dofs and then of tendons
    nl: int  # limit rows, of joints and then of tendons
    n1: int  # frictionless contact rows
    cones: tuple[ConeGroup, ...]
    pyramidal: bool
    pyramid: PyramidTables | None  # None: elliptic, or no friction cones
    face_top: Tensor  # (faces,) inf on equalities, 0 on one-sided faces
    is_loss: Tensor | None  # (faces,) bool, friction loss faces; None: there are none
    loss_place: Tensor | None  # (nv, faces) one-hot: the dof of each friction loss face; with
    # friction loss of tendons (nv + ntendon, faces)
    friction_dofs: Tensor | None
    n_tendon_losses: int
    loss_tendons: Tensor | None  # (n_tendon_losses,)
    limit_joints: Tensor | None  # hinges and slides (nlimit), then balls
    limit_side: Tensor | None  # (nlimit,) +1 lower, -1 upper, 0 the nearer one; None: all are 0
    limit_qpos: Tensor | None
    limit_dofs: Tensor | None  # (nlimit, nv) one-hot: the Jacobian of lower limits
    limit_dofs_high: Tensor | None  # minus that: of upper limits
    n_ball_limits: int
    n_tendon_limits: int
    limit_tendons: Tensor | None  # (n_tendon_limits,)
    tendon_side: Tensor | None  # as limit_side
    ball_qpos: Tensor | None  # (n, 4)
    ball_dofs: Tensor | None  # (n, 3, nv) one-hot
    row_unit: Tensor | None  # (nefc,) unit of each row, None: the same
    row_normal: (
        Tensor | None
    )  # (nefc,) 1 where the row has stiffness, 0 on friction rows; None: all
    frictionless: Tensor | None  # (n1,) contact slots of condim 1
    sides: tuple[ContactSide, ...]  # of the contacts; two where some contact joins two trees
    wrenches: int  # unit wrenches of each contact: 3 forces, and 3 torques if a cone needs them
    wrench_row: Tensor | None  # contact rows in row order, into (slot, wrench); None: the same
    n_unit: int
    quadratic_imp: bool  # every unit's impedance has power 2
    has_solreffriction: bool

    @property
    def fixed(self) -> bool:
        """Whether every world's rows belong to the same contacts."""
        return all(side.root.ndim == 1 for side in self.sides)

    @property
    def n_scalar(self) -> int:
        """Rows that are no part of a friction cone."""
        return self.ne + self.nf + self.nl + self.n1


@dataclass(frozen=True)
class Selection:
    """Which contacts get rows, where that are fewer than there are contact slots."""

    layout: ConstraintLayout  # of the chosen contacts, in the order of `groups`
    groups: tuple[tuple[Tensor, int], ...]  # by condim: contact slots, and how many are chosen
    ncon: int  # chosen contacts
    nefc: int  # base rows with these
    rows: int  # rows that are not of contacts; they come first, here and there
    first_row: Tensor  # (ncon of all,) first of a contact's rows among the rows of all
    row_contact: Tensor  # (contact rows,) which chosen contact each row belongs to
    row_part: Tensor  # (contact rows,) which of its rows it is
    sides: tuple[ContactSide, ...]  # of all contacts, `move` by contact: (ncon of all, nv)
