"""Narrowphase collision, one pair of a world per lane. Twin of `alloy.ops.reference.collide`.

Every kind fills its fixed number of slots; a slot that the geometry does not fill has dist FAR. The
formulas are in the collide_ files beside this one, the kernel in contacts. Source: MuJoCo 4.0's
primitive colliders.
"""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import torch
import triton
import triton.language as tl

from alloy.ops.triton import collide_box as box
from alloy.ops.triton import collide_boxbox as boxes
from alloy.ops.triton import collide_cylinder as cylinder
from alloy.ops.triton import collide_ellipsoid as egg
from alloy.ops.triton import collide_pair as pair
from alloy.ops.triton.lane import load

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 0, 2, 3, 4, 5, 6  # mjtGeom
# of collide_shared, in its order
TOLERANCE = {
    torch.float64: (1e-12, 1e-8, 0.0, 1e-16, 1e-13, 1e-15, 1e-14, 1e-12, 1e-12, 2.0**-50, 1e-9),
    torch.float32: (1e-4, 1e-6, 1e-6, 1e-7, 1e-6, 1e-7, 1e-8, 1e-5, 1e-5, 2.0**-21, 1e-5),
}


@triton.jit
def by_shapes(
    a, b, margin, i, out, slot, w, m, SHAPES: tl.constexpr, TOL: tl.constexpr
):  # fmt: skip
    """Contacts of geoms a and b of pair i, each (pos, mat, size), into slots from `slot` on.

    The fields of out are dist, negative in penetration, pos midway and frame, its row 0 the normal.
    """
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
    elif SHAPES == "sphere-ellipsoid":
        egg.sphere_ellipsoid(a, b, out, slot, w, m, TOL)
    elif SHAPES == "sphere-box":
        box.sphere_box(a, b, out, slot, w, m)
    elif SHAPES == "sphere-cylinder":
        pair.sphere_cylinder(a, b, out, slot, w, m)
    elif SHAPES == "capsule-capsule":
        pair.capsule_capsule(a, b, out, slot, w, m, TOL)
    elif SHAPES == "capsule-ellipsoid":
        egg.capsule_ellipsoid(a, b, out, slot, w, m, TOL)
    elif SHAPES == "capsule-cylinder":
        cylinder.capsule_cylinder(a, b, load(margin, i, w, m), out, slot, w, m, TOL)
    elif SHAPES == "capsule-box":
        box.capsule_box(a, b, load(margin, i, w, m), out, slot, w, m, TOL)
    elif SHAPES == "ellipsoid-box":
        egg.ellipsoid_box(a, b, out, slot, w, m, TOL)
    else:
        tl.static_assert(SHAPES == "box-box")
        boxes.box_box(a, b, load(margin, i, w, m), out, slot, w, m, TOL)


# name and slots of every kind
SHAPES: dict[tuple[int, int], tuple[str, int]] = {
    (PLANE, SPHERE): ("plane-sphere", 1),
    (PLANE, CAPSULE): ("plane-capsule", 2),
    (PLANE, ELLIPSOID): ("plane-ellipsoid", 1),
    (PLANE, CYLINDER): ("plane-cylinder", 4),
    (PLANE, BOX): ("plane-box", 4),
    (SPHERE, SPHERE): ("sphere-sphere", 1),
    (SPHERE, CAPSULE): ("sphere-capsule", 1),
    (SPHERE, ELLIPSOID): ("sphere-ellipsoid", 1),
    (SPHERE, CYLINDER): ("sphere-cylinder", 1),
    (SPHERE, BOX): ("sphere-box", 1),
    (CAPSULE, CAPSULE): ("capsule-capsule", 2),
    (CAPSULE, ELLIPSOID): ("capsule-ellipsoid", 1),
    (CAPSULE, CYLINDER): ("capsule-cylinder", 2),
    (CAPSULE, BOX): ("capsule-box", 2),
    (ELLIPSOID, BOX): ("ellipsoid-box", 1),
    (BOX, BOX): ("box-box", 8),
}
# kinds whose code is several times as long as that of the others
LONG_KINDS = frozenset(
    {(CAPSULE, CYLINDER), (CAPSULE, ELLIPSOID), (CAPSULE, BOX), (ELLIPSOID, BOX), (BOX, BOX)}
)
