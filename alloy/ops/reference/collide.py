"""Narrowphase collision of planes, spheres, capsules, cylinders; the table of all colliders.

A collider takes all pairs of its kind in all worlds at once and fills a fixed number of slots K:

    pos (W, P, 3), mat (W, P, 3, 3), size (1|W, P, 3) of geom 1 and of geom 2, margin (1|W, P)
    -> dist (W, P, K), pos (W, P, K, 3), frame (W, P, K, 3, 3)

Lengths are in metres; dist is negative in penetration, pos is midway between the surfaces, the rows
of frame are the normal (from geom 1 to geom 2) and two tangents. A slot that the geometry does not
fill has dist FAR. The caller drops contacts with dist > margin, as MuJoCo does; a collider looks at
the margin only where it decides which contacts there are. Colliders of meshes and height fields
take their tables after the margin; those of height fields also return how many contacts (W, P) of a
pair found no slot. Source: MuJoCo 4.0's colliders, whose contact sets these are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alloy import math
from alloy.ops.reference.collide_box import capsule_box, plane_box, sphere_box
from alloy.ops.reference.collide_boxbox import box_box
from alloy.ops.reference.collide_convex import convex_collider, convex_slots, plane_mesh
from alloy.ops.reference.collide_cylinder import capsule_cylinder
from alloy.ops.reference.collide_ellipsoid import (
    capsule_ellipsoid,
    ellipsoid_box,
    sphere_ellipsoid,
)
from alloy.ops.reference.collide_hfield import SLOTS as HFIELD_SLOTS
from alloy.ops.reference.collide_hfield import hfield_collider
from alloy.ops.reference.collide_shared import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    FAR,
    HFIELD,
    MESH,
    PLANE,
    SPHERE,
    Collider,
    Contacts,
    choose,
    clip,
    dot,
    make_frame,
    make_frame_along,
    on_plane,
    repeat_slots,
    sign,
    table,
    to_local,
    tolerance,
    unit_or,
)

__all__ = ["COLLIDERS", "FAR", "Collider", "make_frame"]

_SQRT3_2 = 3**0.5 / 2
# local points under a plane from (vx, vy, cap): v on the near cap, v on the far cap, v turned by
# +-120 degrees on the near cap
_CYLINDER_POINTS = (
    (1.0, 0.0, 0.0, 1.0, 0.0, 0.0, -0.5, -_SQRT3_2, 0.0, -0.5, _SQRT3_2, 0.0),
    (0.0, 1.0, 0.0, 0.0, 1.0, 0.0, _SQRT3_2, -0.5, 0.0, -_SQRT3_2, -0.5, 0.0),
    (0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0),
)


def plane_sphere(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The lowest point of the sphere; 1 slot."""
    normal, radius = mat1[..., 2], size2[..., :1]
    dist = dot(pos2 - pos1, normal) - radius
    pos = pos2 - normal * (0.5 * dist + radius)
    return dist, pos.unsqueeze(-2), make_frame(normal).unsqueeze(-3)


def plane_capsule(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The lowest points of the two end spheres, frames aligned with the capsule; 2 slots."""
    normal, axis, size = mat1[..., 2], mat2[..., 2], size2.unsqueeze(-2)
    radius, ends = size[..., :1], size[..., 1:2] * table(((1.0,), (-1.0,)), size)
    center = pos2.unsqueeze(-2) + ends * axis.unsqueeze(-2)  # (W, P, 2, 3)
    up = normal.unsqueeze(-2)
    dist = dot(center - pos1.unsqueeze(-2), up) - radius
    pos = center - up * (0.5 * dist + radius)
    frame = make_frame_along(normal, axis, mat1[..., 0])
    return dist.squeeze(-1), pos, repeat_slots(frame, 2)


def plane_ellipsoid(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The lowest point of the ellipsoid; 1 slot."""
    down = size2 * to_local(mat2, -mat1[..., 2])
    point = size2 * down / torch.linalg.vector_norm(down, dim=-1, keepdim=True)
    return on_plane(pos1, mat1, pos2, mat2, point.unsqueeze(-2))


def plane_cylinder(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The lowest point of both caps and two more that make a triangle of the lower cap; 4 slots."""
    normal = to_local(mat2, mat1[..., 2])
    radius, half = size2[..., :1], size2[..., 1:2]
    flat = normal[..., :2]
    length = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
    tilted = length > math.MINVAL
    minus_x = table((-1.0, 0.0), normal)  # where the whole cap is lowest MuJoCo starts at +x
    edge = torch.where(tilted, flat, minus_x) * (-radius / choose(tilted, length, 1.0))
    cap = torch.where(normal[..., 2:] > 0, -half, half)
    seed = torch.cat(torch.broadcast_tensors(edge[..., :1], edge[..., 1:], cap), -1)
    points = (seed @ table(_CYLINDER_POINTS, seed)).unflatten(-1, (4, 3))
    return on_plane(pos1, mat1, pos2, mat2, points)


def sphere_sphere(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The nearest points of two spheres; 1 slot."""
    normal, length = unit_or(pos2 - pos1, _spare_normal(mat1, mat2))
    return _one_contact(pos1, size1[..., :1], normal, length - size2[..., :1])


def sphere_capsule(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The sphere against the nearest sphere of the capsule; 1 slot."""
    axis = mat2[..., 2]
    along = clip(dot(axis, pos1 - pos2), size2[..., 1:2])
    normal, length = unit_or(pos2 + along * axis - pos1, _spare_normal(mat1, mat2))
    return _one_contact(pos1, size1[..., :1], normal, length - size2[..., :1])


def sphere_cylinder(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The sphere against side, cap or rim, whichever is nearest; 1 slot."""
    axis, radius, half = mat2[..., 2], size2[..., :1], size2[..., 1:2]
    center = pos1 - pos2
    height = dot(axis, center)
    radial = center - height * axis
    rho = math.safe_norm(radial, keepdim=True)
    up = sign(height > 0, height)
    depth_cap, depth_side = half - up * height, radius - rho
    in_height, in_radius = depth_cap > 0, depth_side > 0
    cap_wins = depth_cap < depth_side
    side = in_height & ~(in_radius & cap_wins)
    cap = in_radius & ~(in_height & ~cap_wins)
    # from the sphere's centre to the axis, straight to the cap, or to the rim
    shrink = choose(side, 1.0, 1.0 - radius / torch.where(in_radius, radius, rho))
    to_rim = choose(side, 0.0, up * depth_cap) * axis - shrink * radial
    normal, length = unit_or(torch.where(cap, -up * axis, to_rim), _spare_normal(mat1, mat2))
    gap = torch.where(side, length - radius, torch.where(cap, -depth_cap, length))
    return _one_contact(pos1, size1[..., :1], normal, gap)


def capsule_capsule(
    pos1: Tensor, mat1: Tensor, size1: Tensor,
    pos2: Tensor, mat2: Tensor, size2: Tensor, margin: Tensor,
) -> Contacts:  # fmt: skip
    """The nearest points of the two segments; both ends of their overlap if parallel; 2 slots."""
    axis1, axis2, apart = mat1[..., 2], mat2[..., 2], pos2 - pos1
    radius1, half1, radius2, half2 = *_capsule(size1), *_capsule(size2)
    across = math.cross(axis1, axis2)
    sine2, cosine = dot(across, across), dot(axis1, axis2)
    ahead1, ahead2 = dot(axis1, apart), dot(axis2, apart)
    parallel = sine2 < tolerance(sine2).parallel

    # skew: the lines' nearest points, clipped to segment 1, then 2, then 1 again
    skew1 = dot(math.cross(apart, axis2), across) / choose(parallel, 1.0, sine2)
    # parallel: the ends of segment 2; one that lies beyond segment 1 gives way to the end there
    ends2 = half2 * table((1.0, -1.0), half2)  # (W, P, 2)
    ends1 = ahead1 + cosine * ends2
    along1 = clip(torch.where(parallel, ends1, skew1), half1)
    along2 = clip(cosine * along1 - ahead2, half2)
    along2 = torch.where(parallel & (ends1.abs() <= half1), ends2, along2)
    along1 = torch.where(parallel, along1, clip(ahead1 + cosine * along2, half1))

    point1 = pos1.unsqueeze(-2) + along1.unsqueeze(-1) * axis1.unsqueeze(-2)  # (W, P, 2, 3)
    point2 = pos2.unsqueeze(-2) + along2.unsqueeze(-1) * axis2.unsqueeze(-2)
    normal, length = unit_or(point2 - point1, across.unsqueeze(-2))
    dist = length - (radius1 + radius2).unsqueeze(-2)
    pos = point1 + normal * (0.5 * dist + radius1.unsqueeze(-2))
    used = parallel | table((1.0, 0.0), pos).bool()
    return choose(used, dist.squeeze(-1), FAR), pos, make_frame(normal)


def _capsule(size: Tensor) -> tuple[Tensor, Tensor]:
    """Radius and half length (1|W, P, 1)."""
    return size[..., :1], size[..., 1:2]


def _spare_normal(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Direction of MuJoCo's normal where centres coincide: across both z axes; (W, P, 3)."""
    return math.cross(mat1[..., 2], mat2[..., 2])


def _one_contact(pos1: Tensor, radius1: Tensor, normal: Tensor, gap: Tensor) -> Contacts:
    """Contact of a sphere whose centre is `gap` (W, P, 1) from a surface in direction `normal`."""
    dist = gap - radius1
    pos = pos1 + normal * (0.5 * dist + radius1)
    return dist, pos.unsqueeze(-2), make_frame(normal).unsqueeze(-3)


# those of two convex shapes whose contact is searched for
CONVEX_KINDS = (
    (ELLIPSOID, ELLIPSOID), (ELLIPSOID, CYLINDER), (CYLINDER, CYLINDER), (CYLINDER, BOX),
    (SPHERE, MESH), (CAPSULE, MESH), (ELLIPSOID, MESH), (CYLINDER, MESH), (BOX, MESH),
    (MESH, MESH),
)  # fmt: skip

COLLIDERS: dict[tuple[int, int], Collider] = {
    (PLANE, SPHERE): Collider(plane_sphere, 1),
    (PLANE, CAPSULE): Collider(plane_capsule, 2),
    (PLANE, ELLIPSOID): Collider(plane_ellipsoid, 1),
    (PLANE, CYLINDER): Collider(plane_cylinder, 4),
    (PLANE, BOX): Collider(plane_box, 4),
    (SPHERE, SPHERE): Collider(sphere_sphere, 1),
    (SPHERE, CAPSULE): Collider(sphere_capsule, 1),
    (SPHERE, ELLIPSOID): Collider(sphere_ellipsoid, 1),
    (SPHERE, CYLINDER): Collider(sphere_cylinder, 1),
    (SPHERE, BOX): Collider(sphere_box, 1),
    (CAPSULE, CAPSULE): Collider(capsule_capsule, 2),
    (CAPSULE, ELLIPSOID): Collider(capsule_ellipsoid, 1),
    (CAPSULE, CYLINDER): Collider(capsule_cylinder, 2),
    (CAPSULE, BOX): Collider(capsule_box, 2),
    (ELLIPSOID, BOX): Collider(ellipsoid_box, 1),
    (BOX, BOX): Collider(box_box, 8),
    (PLANE, MESH): Collider(plane_mesh, 4),
    **{kind: Collider(convex_collider(kind), convex_slots(kind)) for kind in CONVEX_KINDS},
    **{
        (HFIELD, shape): Collider(hfield_collider(shape), HFIELD_SLOTS)
        for shape in (SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH)
    },
}
