"""Static layout read from an mjModel: contact slots of the enabled pairs, and constraint rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from alloy import ops
from alloy.physics.io_meshes import field_side, mesh_side
from alloy.physics.io_tendons import limit_sides, row_fields
from alloy.physics.layout import (
    ConeGroup,
    ConstraintLayout,
    ContactSide,
    ContactTables,
    EqualityGroup,
    PairGroup,
    PyramidTables,
)
from alloy.physics.tree import BALL, HINGE, SLIDE

MINMU = 1e-5  # mjMINMU
_EQUALITY_DIM = {"connect": 3, "weld": 6, "joint": 1, "tendon": 1}
_EQUALITY_TYPE = {"connect": 0, "weld": 1, "joint": 2, "tendon": 3}
Put = Callable[..., Tensor]


def _disabled(mj: mujoco.MjModel, *names: str) -> bool:
    bits = [int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{n}")) for n in names]
    return any(mj.opt.disableflags & b for b in bits)


def _body_filter(mj: mujoco.MjModel, b1: int, b2: int) -> bool:
    """Whether MuJoCo lets two bodies collide dynamically (manual, Collision, Selection)."""
    w1, w2 = mj.body_weldid[b1], mj.body_weldid[b2]
    if w1 == w2:
        return False
    if not _disabled(mj, "FILTERPARENT"):
        p1 = mj.body_weldid[mj.body_parentid[w1]]
        p2 = mj.body_weldid[mj.body_parentid[w2]]
        if w1 != 0 and w2 != 0 and (w1 == p2 or w2 == p1):
            return False
    low, high = min(b1, b2), max(b1, b2)
    excluded = {int(s) for s in mj.exclude_signature}
    return (low << 16) + high not in excluded


@dataclass(frozen=True)
class Pair:
    """Two geoms in collider order, and the explicit pair they come from, if any."""

    geom1: int
    geom2: int
    explicit: int  # id of <pair>, -1: dynamic


def _can_move(mj: mujoco.MjModel, g1: int, g2: int) -> bool:
    return any(mj.body_weldid[mj.geom_bodyid[g]] != 0 for g in (g1, g2))


def _ordered(mj: mujoco.MjModel, g1: int, g2: int, explicit: int) -> Pair:
    swap = mj.geom_type[g1] > mj.geom_type[g2]
    return Pair(g2, g1, explicit) if swap else Pair(g1, g2, explicit)


def enabled_pairs(mj: mujoco.MjModel) -> list[Pair]:
    """Every pair of geoms that may ever touch, in the order of MuJoCo's contacts."""
    if _disabled(mj, "CONSTRAINT", "CONTACT") or not mj.nv:
        return []
    pairs, seen = [], set()
    for k in range(mj.npair):
        g1, g2 = int(mj.pair_geom1[k]), int(mj.pair_geom2[k])
        seen.add(frozenset((g1, g2)))
        if _can_move(mj, g1, g2):
            pairs.append(_ordered(mj, g1, g2, k))
    for g1 in range(mj.ngeom):
        for g2 in range(g1 + 1, mj.ngeom):
            touch = (mj.geom_contype[g1] & mj.geom_conaffinity[g2]) or (
                mj.geom_contype[g2] & mj.geom_conaffinity[g1]
            )
            if not touch or frozenset((g1, g2)) in seen or not _can_move(mj, g1, g2):
                continue
            if mj.geom_type[g1] <= 1 and mj.geom_type[g2] <= 1:
                continue  # planes and height fields do not touch each other
            if _body_filter(mj, int(mj.geom_bodyid[g1]), int(mj.geom_bodyid[g2])):
                pairs.append(_ordered(mj, g1, g2, -1))
    return sorted(pairs, key=lambda pair: _place(mj, pair))


def _place(mj: mujoco.MjModel, pair: Pair) -> tuple[tuple[int, ...], ...]:
    """By pair of bodies; of each first the explicit ones, then by the geom of the lower body."""
    sides = sorted((int(mj.geom_bodyid[g]), g) for g in (pair.geom1, pair.geom2))
    bodies, geoms = zip(*sides, strict=True)
    return bodies, (pair.explicit,) if pair.explicit >= 0 else (mj.npair, *geoms)


@dataclass(frozen=True)
class Contacts:
    """Slots of all enabled pairs: collider groups, per-slot parameters and tables."""

    groups: tuple[PairGroup, ...]
    margins: tuple[np.ndarray, ...]  # by group: margin + gap of each pair
    params: dict[str, np.ndarray]  # con_* fields
    tables: ContactTables
    dim: tuple[int, ...]


def _solmix(mj: mujoco.MjModel, g1: int, g2: int) -> float:
    s1, s2 = mj.geom_solmix[g1], mj.geom_solmix[g2]
    tiny = 1e-15
    if s1 >= tiny and s2 >= tiny:
        return s1 / (s1 + s2)
    if s1 < tiny and s2 < tiny:
        return 0.5
    return 0.0 if s1 < tiny else 1.0


def pair_params(mj: mujoco.MjModel, pair: Pair) -> dict[str, np.ndarray]:
    """Contact parameters of a pair, all but its gap overridden where the option's flag says so.

    MuJoCo manual, Modeling, Contact override.
    """
    out = _own_params(mj, pair)
    if not overridden(mj):
        return out
    opt = mj.opt
    return out | {
        "friction": opt.o_friction, "solref": opt.o_solref, "solreffriction": opt.o_solref,
        "solimp": opt.o_solimp, "margin": np.array(opt.o_margin),
    }  # fmt: skip


def overridden(mj: mujoco.MjModel) -> bool:
    """Whether all contacts take their parameters from the options."""
    return bool(mj.opt.enableflags & mujoco.mjtEnableBit.mjENBL_OVERRIDE)


def _own_params(mj: mujoco.MjModel, pair: Pair) -> dict[str, np.ndarray]:
    """Contact parameters of a pair (MuJoCo manual, Computation, Contact parameters)."""
    g1, g2, k = pair.geom1, pair.geom2, pair.explicit
    if k >= 0:
        out = {
            "dim": mj.pair_dim[k], "take": np.zeros(2), "friction": mj.pair_friction[k],
            "solref": mj.pair_solref[k], "solreffriction": mj.pair_solreffriction[k],
            "solimp": mj.pair_solimp[k], "margin": mj.pair_margin[k], "gap": mj.pair_gap[k],
        }  # fmt: skip
        return {name: np.array(value, float) for name, value in out.items()}
    p1, p2 = mj.geom_priority[g1], mj.geom_priority[g2]
    if p1 != p2:
        top = g1 if p1 > p2 else g2
        take = np.array([p1 > p2, p2 > p1], float)
        dim, solref, solimp = mj.geom_condim[top], mj.geom_solref[top], mj.geom_solimp[top]
    else:
        take, mix = np.ones(2), _solmix(mj, g1, g2)
        dim = max(mj.geom_condim[g1], mj.geom_condim[g2])
        r1, r2 = mj.geom_solref[g1], mj.geom_solref[g2]
        solref = mix * r1 + (1 - mix) * r2 if r1[0] > 0 and r2[0] > 0 else np.minimum(r1, r2)
        solimp = mix * mj.geom_solimp[g1] + (1 - mix) * mj.geom_solimp[g2]
    friction = np.maximum(take[0] * mj.geom_friction[g1], take[1] * mj.geom_friction[g2])
    out = {
        "dim": dim, "take": take, "friction": friction[[0, 0, 1, 2, 2]], "solref": solref,
        "solreffriction": np.zeros(2), "solimp": solimp,
        "margin": mj.geom_margin[g1] + mj.geom_margin[g2],
        "gap": mj.geom_gap[g1] + mj.geom_gap[g2],
    }  # fmt: skip
    return {name: np.array(value, float) for name, value in out.items()}


def contacts(mj: mujoco.MjModel, put: Put, moves: np.ndarray) -> Contacts:
    """Contact slots in pair order, and the colliders that fill them."""
    pairs = enabled_pairs(mj)
    params = [pair_params(mj, p) for p in pairs]
    kinds = [(int(mj.geom_type[p.geom1]), int(mj.geom_type[p.geom2])) for p in pairs]
    groups, margins, collider_order, start = [], [], [], 0
    for kind in sorted(set(kinds)):
        members = [i for i, k in enumerate(kinds) if k == kind]
        slots = ops.collider_slots(kind)
        g1, g2 = (np.array([getattr(pairs[i], n) for i in members]) for n in ("geom1", "geom2"))
        margin = np.array([params[i]["margin"] + params[i]["gap"] for i in members])
        shape1 = field_side(mj, g1, g2, margin, put) or mesh_side(mj, g1, put)
        shapes = shape1, mesh_side(mj, g2, put)
        groups.append(PairGroup(kind, put(g1), put(g2), slots, start, *shapes))
        margins.append(margin)
        collider_order += [i for i in members for _ in range(slots)]
        start += slots * len(members)
    order = np.argsort(np.array(collider_order, int), kind="stable")
    slot_pair = np.array(collider_order, int)[order]
    of_slot = [(pairs[i], params[i]) for i in slot_pair]
    body = mj.geom_bodyid
    b1 = np.array([body[p.geom1] for p, _ in of_slot], int)
    b2 = np.array([body[p.geom2] for p, _ in of_slot], int)

    def column(name: str, width: int) -> np.ndarray:
        return np.array([q[name] for _, q in of_slot], float).reshape(len(of_slot), width)

    friction = column("friction", 5)
    tables = ContactTables(
        order=None if (order == np.arange(len(order))).all() else put(order),
        geom1=put(np.array([p.geom1 for p, _ in of_slot], int)),
        geom2=put(np.array([p.geom2 for p, _ in of_slot], int)),
        geom_ids=tuple((p.geom1, p.geom2) for p, _ in of_slot),
        move=put(moves[b2] - moves[b1]),
        dim=tuple(int(q["dim"]) for _, q in of_slot),
        take=put(column("take", 2)),
        pair_friction=put(friction),
        is_pair=put(
            np.array([[overridden(mj) or p.explicit >= 0] for p, _ in of_slot], bool).reshape(-1, 1)
        ),
        body1=put(b1),
        body2=put(b2),
    )
    values = {
        "con_friction": np.maximum(friction, MINMU),
        "con_solref": column("solref", 2),
        "con_solreffriction": column("solreffriction", 2),
        "con_solimp": column("solimp", 5),
        "con_margin": column("margin", 1)[:, 0],
        "con_gap": column("gap", 1)[:, 0],
    }
    return Contacts(tuple(groups), tuple(margins), values, tables, tables.dim)


def _equalities(mj: mujoco.MjModel, put: Put, moves: np.ndarray) -> list[EqualityGroup]:
    if _disabled(mj, "CONSTRAINT", "EQUALITY") or not mj.nv:
        return []
    groups = []
    eye = np.vstack([np.eye(mj.nv), np.zeros((1, mj.nv))])
    for kind, code in _EQUALITY_TYPE.items():
        ids = np.flatnonzero(mj.eq_type == code)
        if not len(ids):
            continue
        obj1, obj2 = mj.eq_obj1id[ids].astype(int), mj.eq_obj2id[ids].astype(int)
        if kind == "joint":
            move1 = eye[mj.jnt_dofadr[obj1]]
            move2 = eye[np.where(obj2 < 0, mj.nv, mj.jnt_dofadr[obj2])]
            obj1, obj2 = mj.jnt_qposadr[obj1], np.where(obj2 < 0, 0, mj.jnt_qposadr[obj2])
        elif kind == "tendon":
            one_hot = np.vstack([np.eye(mj.ntendon), np.zeros((1, mj.ntendon))])
            move1, move2, obj2 = one_hot[obj1], one_hot[obj2], obj2.clip(0)
        else:
            move1, move2 = moves[obj1], moves[obj2]
        tensors = [put(x) for x in (ids, obj1, obj2, move1, move2)]
        groups.append(EqualityGroup(kind, tensors[0], len(ids), _EQUALITY_DIM[kind], *tensors[1:]))
    return groups


def _limit_joints(mj: mujoco.MjModel) -> tuple[list[tuple[int, int]], list[int]]:
    """(joint, side) of hinge and slide limits, and ball joints with limits."""
    if _disabled(mj, "CONSTRAINT", "LIMIT"):
        return [], []
    limited = mj.jnt_limited.astype(bool)
    is_scalar = np.isin(mj.jnt_type, (SLIDE, HINGE))
    ball = np.flatnonzero(limited & (mj.jnt_type == BALL))
    return limit_sides(limited & is_scalar, mj.jnt_range, mj.jnt_margin), ball.tolist()


def _row_tables(
    units: list[tuple[int, bool]], cones: list[ConeGroup], put: Put
) -> tuple[Tensor | None, Tensor | None]:
    """Unit of each row and whether it has stiffness; units: (rows, friction rows follow)."""
    unit = np.array([u for u, _ in units], int)
    normal = np.array([n for _, n in units], float)
    trivial = len(set(unit.tolist())) == len(unit) and not cones
    return (None if trivial else put(unit)), (None if not cones else put(normal))


def _pyramid(
    cones: list[ConeGroup], slots: list[np.ndarray], n_scalar: int, put: Put
) -> tuple[PyramidTables, int]:
    """Faces of a pyramidal model, and their number."""
    normal, tangent, friction, sign = (
        list(range(n_scalar)), list(range(n_scalar)), [0] * n_scalar, [0.0] * n_scalar,
    )  # fmt: skip
    base_normal = list(range(n_scalar))
    for cone, members in zip(cones, slots, strict=True):
        for k, slot in enumerate(members):
            first = cone.start + k * cone.dim
            base_normal += [first] * cone.dim
            for axis in range(1, cone.dim):
                normal += [first, first]
                tangent += [first + axis, first + axis]
                friction += [5 * int(slot) + axis - 1] * 2
                sign += [1.0, -1.0]
    columns = (np.array(x, int) for x in (normal, tangent, friction))
    tables = [put(x) for x in (*columns, np.array(sign), np.array(base_normal, int))]
    return PyramidTables(*tables), len(normal)


def _sides(
    mj: mujoco.MjModel, put: Put, moves: np.ndarray, found: Contacts, row_slot: np.ndarray
) -> tuple[ContactSide, ...]:
    """The moving sides of the contacts; a second one only where a contact joins two trees."""
    one, two = (x.cpu().numpy() for x in (found.tables.body1, found.tables.body2))
    root, alone = mj.body_rootid.astype(int), moves.any(1)
    joins = alone[one] & alone[two] & (root[one] != root[two])
    first = (np.where(alone[two], root[two], root[one]), moves[two] - ~joins[:, None] * moves[one])
    second = (np.where(joins, root[one], 0), -(joins[:, None] * moves[one]))
    sides = (first, second) if joins.any() else (first,)
    return tuple(ContactSide(put(r), put(0.0 + move[row_slot])) for r, move in sides)


def _limits(mj: mujoco.MjModel, put: Put) -> tuple[dict[str, Any], np.ndarray]:
    """Fields of ConstraintLayout about joint limits, and the dof (nl,) of each limit."""
    scalar, ball = _limit_joints(mj)
    eye = np.eye(mj.nv)
    joints = np.array([j for j, _ in scalar], int)
    side = np.array([float(s) for _, s in scalar])
    ball_dofs = [eye[mj.jnt_dofadr[j] + np.arange(3)] for j in ball]
    ball_qpos = [mj.jnt_qposadr[j] + np.arange(4) for j in ball]
    every = np.concatenate([joints, np.array(ball, int)])
    dofs = eye[mj.jnt_dofadr[joints]]
    fields = {
        "nl": len(every),
        "n_ball_limits": len(ball),
        "limit_joints": put(every) if len(every) else None,
        "limit_side": put(side) if side.any() else None,
        "limit_qpos": put(mj.jnt_qposadr[joints]) if scalar else None,
        "limit_dofs": put(dofs) if scalar else None,
        "limit_dofs_high": put(0.0 - dofs) if scalar else None,
        "ball_qpos": put(np.array(ball_qpos, int)) if ball else None,
        "ball_dofs": put(np.array(ball_dofs)) if ball else None,
    }
    return fields, mj.jnt_dofadr[every].astype(int)


def _friction_loss(mj: mujoco.MjModel, put: Put, ne: int, faces: int) -> dict[str, Any]:
    """Fields of ConstraintLayout about friction loss, and which faces are equalities."""
    off = _disabled(mj, "CONSTRAINT", "FRICTIONLOSS")
    dofs = np.array([], int) if off else np.flatnonzero(mj.dof_frictionloss > 0)
    tendons = np.array([], int) if off else np.flatnonzero(mj.tendon_frictionloss > 0)
    every = np.concatenate([dofs, mj.nv + tendons])
    face = np.arange(faces)
    is_loss = (face >= ne) & (face < ne + len(every))
    place = np.zeros((mj.nv + mj.ntendon * bool(len(tendons)), faces))
    place[every, face[is_loss]] = 1
    some = len(every) > 0
    return {
        "face_top": put(np.where(face < ne, np.inf, 0.0)),
        "is_loss": put(is_loss) if some else None,
        "loss_place": put(place) if some else None,
        "friction_dofs": put(dofs) if some else None,
    }


def _quadratic(mj: mujoco.MjModel, equalities: list[EqualityGroup], joints: Any) -> bool:
    """Whether the impedance of every constraint has power 2."""
    used = [mj.eq_solimp[g.ids.cpu().numpy()] for g in equalities]
    used += [mj.dof_solimp[mj.dof_frictionloss > 0]]
    used += [mj.tendon_solimp_fri, mj.tendon_solimp_lim]
    used += [] if joints is None else [mj.jnt_solimp[joints.cpu().numpy()]]
    powers = [u[:, 4] for u in used]
    powers.append(np.array([pair_params(mj, p)["solimp"][4] for p in enabled_pairs(mj)]))
    return bool((np.concatenate(powers) == 2).all())


def rows(
    mj: mujoco.MjModel, put: Put, moves: np.ndarray, found: Contacts
) -> tuple[ConstraintLayout, Tensor]:
    """The constraint layout and the dof (nl,) whose invweight0 each limit takes."""
    equalities = _equalities(mj, put, moves)
    limits, limit_dof = _limits(mj, put)
    no_limits, no_friction = (
        _disabled(mj, "CONSTRAINT", name) for name in ("LIMIT", "FRICTIONLOSS")
    )
    tendons = row_fields(mj, put, limits=not no_limits, losses=not no_friction)
    limits["nl"] += tendons["n_tendon_limits"]
    ne, nl = sum(g.n * g.dim for g in equalities), limits["nl"]
    nf = 0 if no_friction else int((mj.dof_frictionloss > 0).sum())
    nf += tendons["n_tendon_losses"]
    dims = np.array(found.dim, int)
    frictionless = np.flatnonzero(dims == 1)
    n_scalar = ne + nf + nl + len(frictionless)
    units: list[tuple[int, bool]] = []
    n_unit = 0
    for g in equalities:
        units += [(n_unit + i, True) for i in range(g.n) for _ in range(g.dim)]
        n_unit += g.n
    units += [(n_unit + i, True) for i in range(nf + nl)]
    n_unit += nf + nl
    units += [(n_unit + int(slot), True) for slot in frictionless]
    wrench_rows = [(int(slot), 0) for slot in frictionless]  # slot, and force 0-2 or torque 3-5
    cones, cone_slots, start = [], [], n_scalar
    for dim in (3, 4, 6):
        slots = np.flatnonzero(dims == dim)
        if not len(slots):
            continue
        every = len(slots) == len(dims)
        cones.append(ConeGroup(dim, None if every else put(slots), len(slots), start))
        cone_slots.append(slots)
        start += dim * len(slots)
        units += [(n_unit + int(slot), k == 0) for slot in slots for k in range(dim)]
        wrench_rows += [(int(slot), k) for slot in slots for k in range(dim)]
    row_unit, row_normal = _row_tables(units, cones, put)
    pyramidal, pyramid, faces = mj.opt.cone == 0, None, n_scalar
    if pyramidal and cones:
        pyramid, faces = _pyramid(cones, cone_slots, n_scalar, put)
    wrenches = 6 if (dims > 3).any() else 3
    slot_wrench = np.array(wrench_rows, int).reshape(-1, 2)
    wrench_row = slot_wrench @ [wrenches, 1]
    straight = np.array_equal(wrench_row, np.arange(wrenches * len(dims)))
    layout = ConstraintLayout(
        equalities=tuple(equalities), ne=ne, nf=nf, n1=len(frictionless), cones=tuple(cones),
        pyramidal=pyramidal, pyramid=pyramid, row_unit=row_unit, row_normal=row_normal,
        frictionless=put(frictionless) if len(frictionless) else None,
        sides=_sides(mj, put, moves, found, slot_wrench[:, 0]) if len(dims) else (),
        wrenches=wrenches, wrench_row=None if straight else put(wrench_row),
        n_unit=n_unit + len(dims),
        quadratic_imp=_quadratic(mj, equalities, limits["limit_joints"]),
        has_solreffriction=bool(mj.pair_solreffriction.any() and mj.opt.cone == 1),
        **limits, **tendons, **_friction_loss(mj, put, ne, faces),
    )  # fmt: skip
    return layout, put(limit_dof)
