"""Hulls of an mjModel's meshes, as the convex colliders need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.convex import Mesh

Array = np.ndarray
MESH = int(mujoco.mjtGeom.mjGEOM_MESH)


class Hull(NamedTuple):
    """The convex hull of one mesh, in the frame of its geoms, in MuJoCo's order."""

    corners: Array  # (V, 3)
    faces: list[Array]  # of each polygon its corners, counter-clockwise from outside
    normals: Array  # (F, 3)
    around: list[list[int]]  # the faces of each corner
    edges: list[list[int]]  # in each of those, the corner before it


def mesh_side(mj: mujoco.MjModel, geoms: Array, put: Callable[..., Tensor]) -> Mesh | None:
    """Tables of the meshes of geoms (P,), or None where they are no meshes."""
    if not len(geoms) or mj.geom_type[geoms[0]] != MESH:
        return None
    hulls = [hull(mj, int(mj.geom_dataid[g])) for g in geoms]
    most = max(len(h.corners) for h in hulls)
    sides = max(len(face) for h in hulls for face in h.faces)
    faces = max(len(h.faces) for h in hulls)
    degree = max(len(row) for h in hulls for row in h.around)
    corners = [_filled(list(h.corners), most) for h in hulls]
    normals = [np.vstack([h.normals, np.zeros((faces - len(h.normals), 3))]) for h in hulls]
    rounds = [_filled([_filled(list(f), sides) for f in h.faces], faces) for h in hulls]
    counts = [_filled([len(f) for f in h.faces], faces) for h in hulls]
    around, edges = (
        [_filled([_filled(row, degree) for row in rows], most) for rows in lists]
        for lists in ([h.around for h in hulls], [h.edges for h in hulls])
    )
    return Mesh(
        corners=put(np.array(corners)),
        repeats=put(np.array([np.arange(most) >= len(h.corners) for h in hulls])),
        face_normal=put(np.array(normals)),
        face_corner=put(np.array(rounds, np.int64)),
        face_size=put(np.array(counts, np.int64)),
        around=put(np.array(around, np.int64)),
        neighbours=put(np.array(edges, np.int64)),
    )


def _filled(values: list, count: int) -> list:
    """The list filled up with its last element."""
    return values + [values[-1]] * (count - len(values))


def hull(mj: mujoco.MjModel, mesh: int) -> Hull:
    """The hull of a mesh; MuJoCo makes it for every mesh that can collide."""
    start, count = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    adr, num = int(mj.mesh_polyadr[mesh]), int(mj.mesh_polynum[mesh])
    polygons = [
        np.array(mj.mesh_polyvert[begin : begin + size])
        for begin, size in zip(
            mj.mesh_polyvertadr[adr : adr + num], mj.mesh_polyvertnum[adr : adr + num], strict=True
        )
    ]
    used = np.unique(np.concatenate(polygons))
    local = np.full(count, -1)
    local[used] = np.arange(len(used))
    faces = [local[polygon] for polygon in polygons]
    around, edges = [], []
    for vertex, corner in zip(used, range(len(used)), strict=True):
        begin = int(mj.mesh_polymapadr[start + vertex])
        own = mj.mesh_polymap[begin : begin + int(mj.mesh_polymapnum[start + vertex])]
        around.append([int(face) for face in own])
        edges.append([int(np.roll(faces[f], 1)[list(faces[f]).index(corner)]) for f in own])
    vertices = np.array(mj.mesh_vert[start : start + count], float)
    normals = np.array(mj.mesh_polynormal[adr : adr + num], float)
    return Hull(vertices[used], faces, normals, around, edges)


def has_hull(mj: mujoco.MjModel, geom: int) -> bool:
    """Whether MuJoCo has made the hull of a mesh geom."""
    return int(mj.mesh_polynum[mj.geom_dataid[geom]]) > 0
