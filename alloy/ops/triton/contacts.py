"""Contacts of all pairs of all kinds. Twin of `alloy.ops.reference.contacts`.

The grid's second axis runs over the pairs; a table says of each which kind it is, which geoms they
are, and its first slot. One launch does it, unless a model has many kinds or several long ones.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.collide import LONG_KINDS, SHAPES, TOLERANCE, by_shapes
from alloy.ops.triton.collide_shared import entry
from alloy.ops.triton.lane import empty, launch, load3, load9, worlds_of
from alloy.ops.triton.tables import table

if TYPE_CHECKING:
    from alloy.physics.layout import ContactTables, PairGroup
    from alloy.physics.model import Data, Model

# columns of the pair table
PAIR = tl.constexpr(4)
KIND_OF, GEOM1, GEOM2, SLOT = (tl.constexpr(k) for k in range(4))
MOST, LONG = 6, 4  # kinds that share a launch, and as how many of them a long one counts


@triton.jit
def _contacts_kernel(
    # in
    geom_xpos, geom_xmat, geom_size, margin,
    # out
    dist, pos, frame,
    # tables and sizes
    pair_ptr, KINDS: tl.constexpr, TOL: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Contacts of one pair; the formula of each kind is with the colliders."""
    w, m = worlds_of(n_world, BLOCK)
    i = tl.program_id(1)
    row = pair_ptr + i * PAIR
    kind, slot = tl.load(row + KIND_OF), tl.load(row + SLOT)
    g1, g2 = tl.load(row + GEOM1), tl.load(row + GEOM2)
    a = load3(geom_xpos, g1, w, m), load9(geom_xmat, g1, w, m), load3(geom_size, g1, w, m)
    b = load3(geom_xpos, g2, w, m), load9(geom_xmat, g2, w, m), load3(geom_size, g2, w, m)
    for k in tl.static_range(len(KINDS)):
        if kind == k:
            by_shapes(a, b, margin, i, (dist, pos, frame), slot, w, m, entry(KINDS, k), TOL)


def has_kernel(m: Model) -> bool:
    """Whether every kind of pair of a model has a kernel that fills its slots."""
    return all(SHAPES.get(g.kind, ("", 0))[1] == g.slots for g in m.pairs)


def contacts(m: Model, d: Data) -> Data:
    """See `alloy.ops.contacts`."""
    worlds, like = d.qpos.shape[0], d.geom_xpos
    shapes = {"contact_dist": (), "contact_pos": (3,), "contact_frame": (3, 3)}
    out = {name: empty(worlds, m.ncon, *rest, like=like) for name, rest in shapes.items()}
    for groups in _launches(m.pairs):
        margins = _margins(tuple(m.derived["pair_margin"][g.kind] for g in groups))
        pairs = _pair_table(groups, m.pairs, m.derived["contact"], like.device)
        launch(
            _contacts_kernel, worlds, d.geom_xpos, d.geom_xmat, m.geom_size, margins,
            *out.values(), pairs, programs=sum(len(g.geom1) for g in groups),
            KINDS=tuple(SHAPES[g.kind][0] for g in groups),
            TOL=TOLERANCE.get(like.dtype, TOLERANCE[torch.float32]),
        )  # fmt: skip
    return replace(d, **out)


def _launches(groups: tuple[PairGroup, ...]) -> list[tuple[PairGroup, ...]]:
    """Groups that share a launch: a kernel's seconds to compile grow with its length squared."""
    launches: list[tuple[PairGroup, ...]] = []
    length = MOST
    for group in groups:
        own = LONG if group.kind in LONG_KINDS else 1
        if length + own > MOST:
            launches.append(())
            length = 0
        launches[-1] += (group,)
        length += own
    return launches


@lru_cache(maxsize=64)
def _pair_table(
    groups: tuple[PairGroup, ...], every: tuple[PairGroup, ...], contact: ContactTables,
    device: torch.device,
) -> Tensor:  # fmt: skip
    count = sum(len(g.geom1) * g.slots for g in every)
    order = np.arange(count) if contact.order is None else contact.order.cpu().numpy()
    place = np.argsort(order)  # slot of each contact in collider order
    rows = []
    for k, g in enumerate(groups):
        for i, geoms in enumerate(zip(g.geom1.tolist(), g.geom2.tolist(), strict=True)):
            rows.append((k, *geoms, place[g.start + i * g.slots]))
    return table(rows, device)


@lru_cache(maxsize=64)
def _margins(margins: tuple[Tensor, ...]) -> Tensor:
    worlds = max(len(x) for x in margins)
    return torch.cat([x.expand(worlds, -1) for x in margins], 1)
