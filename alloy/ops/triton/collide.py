"""Narrowphase collision, one pair of a world per lane. Twin of `alloy.ops.reference.collide`.

The grid's second axis runs over the pairs of one kind. Every kind fills its fixed number of slots;
a slot that the geometry does not fill has dist FAR. Source: MuJoCo 4.0's primitive colliders.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton import collide_box as box
from alloy.ops.triton import collide_boxbox as boxes
from alloy.ops.triton import collide_pair as pair
from alloy.ops.triton.lane import empty, launch, load, load3, load9, worlds_of
from alloy.ops.triton.tables import table

Contacts = tuple[Tensor, Tensor, Tensor]  # dist (W, P, K), pos (W, P, K, 3), frame (W, P, K, 3, 3)

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 0, 2, 3, 4, 5, 6  # mjtGeom
# of collide_shared, in its order
TOLERANCE = {
    torch.float64: (1e-12, 1e-8, 0.0, 1e-16, 1e-13, 1e-15, 1e-14, 1e-12, 1e-12, 2.0**-50),
    torch.float32: (1e-4, 1e-6, 1e-6, 1e-7, 1e-6, 1e-7, 1e-8, 1e-5, 1e-5, 2.0**-21),
}


@triton.jit
def by_shapes(
    a, b, margin, i, out, slot, w, m, SHAPES: tl.constexpr, TOL: tl.constexpr
):  # fmt: skip
    """Contacts of geoms a and b of pair i, each (pos, mat, size), into slots from `slot` on."""
    if SHAPES == "plane-sphere":
        pair.plane_sphere(a, b, out, slot, w, m)
    elif SHAPES == "plane-capsule":
        pair.plane_capsule(a, b, out, slot, w, m, TOL)
    elif SHAPES == "plane-ellipsoid":
        pair.plane_ellipsoid(a, b, out, slot, w, m)
    elif SHAPES == "plane-cylinder":
        pair.plane_cylinder(a, b, out, slot, w, m)
    elif SHAPES == "plane-box":
        box.plane_box(a, b, out, slot, w, m)
    elif SHAPES == "sphere-sphere":
        pair.sphere_sphere(a, b, out, slot, w, m)
    elif SHAPES == "sphere-capsule":
        pair.sphere_capsule(a, b, out, slot, w, m)
    elif SHAPES == "sphere-box":
        box.sphere_box(a, b, out, slot, w, m)
    elif SHAPES == "sphere-cylinder":
        pair.sphere_cylinder(a, b, out, slot, w, m)
    elif SHAPES == "capsule-capsule":
        pair.capsule_capsule(a, b, out, slot, w, m, TOL)
    elif SHAPES == "capsule-box":
        box.capsule_box(a, b, load(margin, i, w, m), out, slot, w, m, TOL)
    else:
        tl.static_assert(SHAPES == "box-box")
        boxes.box_box(a, b, load(margin, i, w, m), out, slot, w, m, TOL)


@triton.jit
def _collide_kernel(
    # in
    pos1, mat1, size1, pos2, mat2, size2, margin,
    # out
    dist, pos, frame,
    # tables and sizes
    geom1_ptr, geom2_ptr, SHAPES: tl.constexpr, SLOTS: tl.constexpr, TOL: tl.constexpr,
    n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Contacts of geom 1 with geom 2; dist < 0 in penetration, pos midway, frame's row 0 normal.

    The formula of each kind is in collide_pair, collide_box or collide_boxbox. Source: MuJoCo
    4.0's primitive colliders.
    """
    w, m = worlds_of(n_world, BLOCK)
    i = tl.program_id(1)
    g1, g2 = tl.load(geom1_ptr + i), tl.load(geom2_ptr + i)
    a = load3(pos1, g1, w, m), load9(mat1, g1, w, m), load3(size1, g1, w, m)
    b = load3(pos2, g2, w, m), load9(mat2, g2, w, m), load3(size2, g2, w, m)
    by_shapes(a, b, margin, i, (dist, pos, frame), SLOTS * i, w, m, SHAPES, TOL)


def collide_pairs(
    pos: Tensor,
    mat: Tensor,
    size: Tensor,
    geom1: Tensor,
    geom2: Tensor,
    margin: Tensor,
    kind: tuple[int, int],
) -> Contacts:
    """Contacts of all pairs of one kind, straight from the poses of all geoms.

    Args:
        pos: (W, ngeom, 3) [m].
        mat: (W, ngeom, 3, 3).
        size: (1|W, ngeom, 3) [m].
        geom1: (P,) geoms whose kind is kind[0].
        geom2: (P,) geoms whose kind is kind[1].
        margin: (1|W, P) [m].
        kind: one of SHAPES.
    """
    tables = tuple(_int32(g) for g in (geom1, geom2))
    return _launch((pos, mat, size), (pos, mat, size), margin, tables, kind)


def collide(
    kind: tuple[int, int],
    pos1: Tensor,
    mat1: Tensor,
    size1: Tensor,
    pos2: Tensor,
    mat2: Tensor,
    size2: Tensor,
    margin: Tensor,
) -> Contacts:
    """See `alloy.ops.collide`."""
    every = _counting(pos1.shape[1], pos1.device)
    return _launch((pos1, mat1, size1), (pos2, mat2, size2), margin, (every, every), kind)


def _launch(
    a: tuple[Tensor, ...], b: tuple[Tensor, ...], margin: Tensor, tables: tuple[Tensor, Tensor],
    kind: tuple[int, int],
) -> Contacts:  # fmt: skip
    like, (name, slots) = a[0], SHAPES[kind]
    worlds, pairs = like.shape[0], len(tables[0])
    out = tuple(empty(worlds, pairs, slots, *rest, like=like) for rest in ((), (3,), (3, 3)))
    launch(
        _collide_kernel, worlds, *a, *b, margin, *out, *tables, programs=pairs,
        SHAPES=name, SLOTS=slots, TOL=TOLERANCE.get(like.dtype, TOLERANCE[torch.float32]),
    )  # fmt: skip
    return out


@lru_cache(maxsize=256)
def _int32(index: Tensor) -> Tensor:
    return index.to(torch.int32)


@lru_cache(maxsize=64)
def _counting(n: int, device: torch.device) -> Tensor:
    return table(np.arange(n), device)


# name and slots of every kind
SHAPES: dict[tuple[int, int], tuple[str, int]] = {
    (PLANE, SPHERE): ("plane-sphere", 1),
    (PLANE, CAPSULE): ("plane-capsule", 2),
    (PLANE, ELLIPSOID): ("plane-ellipsoid", 1),
    (PLANE, CYLINDER): ("plane-cylinder", 4),
    (PLANE, BOX): ("plane-box", 4),
    (SPHERE, SPHERE): ("sphere-sphere", 1),
    (SPHERE, CAPSULE): ("sphere-capsule", 1),
    (SPHERE, CYLINDER): ("sphere-cylinder", 1),
    (SPHERE, BOX): ("sphere-box", 1),
    (CAPSULE, CAPSULE): ("capsule-capsule", 2),
    (CAPSULE, BOX): ("capsule-box", 2),
    (BOX, BOX): ("box-box", 8),
}
