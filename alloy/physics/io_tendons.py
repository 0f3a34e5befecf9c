"""Static tables of tendons, read from an MjModel: pieces of spatial ones, and constraint rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mujoco
import numpy as np
from torch import Tensor

from alloy.physics.passive_tendon import Ends, Pieces, SpatialTendons, Wraps

Put = Callable[..., Tensor]
Array = np.ndarray
_WRAP = mujoco.mjtWrap


class _Piece(NamedTuple):
    tendon: int
    site1: int
    site2: int
    share: float
    geom: int  # -1: straight
    cylinder: bool
    side: int  # -1: none


def body_moves(m: mujoco.MjModel) -> Array:
    """1 where the dof (column) moves the body (row), (nbody, nv)."""
    moves = np.zeros((m.nbody, m.nv))
    for body in range(1, m.nbody):
        moves[body] = moves[m.body_parentid[body]]
        moves[body, m.body_dofadr[body] : m.body_dofadr[body] + m.body_dofnum[body]] = 1
    return moves


def tendon_coefficients(m: mujoco.MjModel) -> tuple[Array, Array]:
    """Fixed tendons as constant matrices: length by qpos (nq, ntendon), J (ntendon, nv)."""
    by_q, by_v = np.zeros((m.nq, m.ntendon)), np.zeros((m.ntendon, m.nv))
    for t in range(m.ntendon):
        for w in range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t]):
            if m.wrap_type[w] == _WRAP.mjWRAP_JOINT:
                joint = m.wrap_objid[w]
                by_q[m.jnt_qposadr[joint], t] += m.wrap_prm[w]
                by_v[t, m.jnt_dofadr[joint]] += m.wrap_prm[w]
    return by_q, by_v


def tendon_support(m: mujoco.MjModel) -> Array:
    """Which dofs (columns) may change the length of each tendon, (ntendon, nv) 0/1."""
    support = (tendon_coefficients(m)[1] != 0).astype(float)
    moves = body_moves(m)
    for p in _pieces(m):
        bodies = [m.site_bodyid[p.site1], m.site_bodyid[p.site2]]
        bodies += [m.geom_bodyid[p.geom]] if p.geom >= 0 else []
        some, every = moves[bodies].any(0), moves[bodies].all(0)
        support[p.tendon] = np.maximum(support[p.tendon], some & ~every)
    return support


def is_spatial(m: mujoco.MjModel, tendon: int) -> bool:
    """Whether a tendon runs over sites."""
    return bool(m.wrap_type[m.tendon_adr[tendon]] != _WRAP.mjWRAP_JOINT)


def _pieces(m: mujoco.MjModel) -> list[_Piece]:
    out = []
    for t in range(m.ntendon):
        if not is_spatial(m, t):
            continue
        start, share = int(m.tendon_adr[t]), 1.0
        path = range(start, start + int(m.tendon_num[t]))
        last, geom = -1, None
        for w in path:
            kind = m.wrap_type[w]
            if kind == _WRAP.mjWRAP_PULLEY:
                last, share = -1, 1.0 / m.wrap_prm[w]
            elif kind == _WRAP.mjWRAP_SITE:
                site = int(m.wrap_objid[w])
                if last >= 0:
                    bend = geom or (-1, False, -1)
                    out.append(_Piece(t, last, site, share, *bend))
                last, geom = site, None
            else:
                cylinder = bool(kind == _WRAP.mjWRAP_CYLINDER)
                geom = (int(m.wrap_objid[w]), cylinder, round(float(m.wrap_prm[w])))
    return out


def spatial_tendons(m: mujoco.MjModel, put: Put) -> SpatialTendons | None:
    """Pieces of the spatial tendons, straight ones and those that may wrap; None: no tendons."""
    pieces = _pieces(m)
    if not pieces:
        return None
    straight = [p for p in pieces if p.geom < 0]
    wrapped = [p for p in pieces if p.geom >= 0]
    return SpatialTendons(
        _put_pieces(m, put, straight) if straight else None,
        _put_pieces(m, put, wrapped) if wrapped else None,
    )


def _put_pieces(m: mujoco.MjModel, put: Put, pieces: list[_Piece]) -> Pieces:
    moves = body_moves(m)
    sites = [np.array([getattr(p, name) for p in pieces]) for name in ("site1", "site2")]
    bodies = [m.site_bodyid[s] for s in sites]
    share = np.zeros((len(pieces), m.ntendon))
    for k, p in enumerate(pieces):
        share[k, p.tendon] = p.share
    ends = Ends(
        *(put(s) for s in sites),
        *(put(m.body_rootid[b]) for b in bodies),
        *(put(moves[b]) for b in bodies),
    )
    return Pieces(ends, put(share), _wraps(m, put, pieces, moves) if pieces[0].geom >= 0 else None)


def _wraps(m: mujoco.MjModel, put: Put, pieces: list[_Piece], moves: Array) -> Wraps:
    geom, side = (np.array([getattr(p, name) for p in pieces]) for name in ("geom", "side"))
    body = m.geom_bodyid[geom]
    given = side >= 0
    # where geom and side's site are fixed to each other, it is known which side of the surface
    fixed = given & (m.site_bodyid[side] == body)
    gap = np.linalg.norm(m.site_pos[side] - m.geom_pos[geom], axis=1)
    inside = np.flatnonzero(given & ~(fixed & (gap > m.geom_size[geom, 0])))
    return Wraps(
        geom=put(geom),
        is_cylinder=put(np.array([p.cylinder for p in pieces])),
        side=put(side.clip(0)) if given.any() else None,
        has_side=put(given),
        inside=put(inside) if len(inside) else None,
        inside_rows=put(np.eye(len(pieces))[:, inside]),
        root=put(m.body_rootid[body]),
        move=put(moves[body]),
    )


def limit_sides(limited: Array, bounds: Array, margin: Array) -> list[tuple[int, int]]:
    """(index, side) of limits: +1 lower, -1 upper, 0 whichever is nearer.

    One row stands for both sides where the range is so wide that only one can be active.
    """
    out = []
    for k in np.flatnonzero(limited):
        low, high = bounds[k]
        sides = (0,) if high - low > 2 * margin[k] else (1, -1)
        out += [(int(k), side) for side in sides]
    return out


def row_fields(m: mujoco.MjModel, put: Put, limits: bool, losses: bool) -> dict[str, Any]:
    """Fields of ConstraintLayout about limits and friction loss of tendons, if they are enabled."""
    sides = limit_sides(m.tendon_limited, m.tendon_range, m.tendon_margin) if limits else []
    loss = np.flatnonzero(m.tendon_frictionloss > 0) if losses else np.zeros(0, int)
    return {
        "n_tendon_limits": len(sides),
        "limit_tendons": put(np.array([t for t, _ in sides])) if sides else None,
        "tendon_side": put(np.array([s for _, s in sides])) if sides else None,
        "n_tendon_losses": len(loss),
        "loss_tendons": put(loss) if len(loss) else None,
    }
