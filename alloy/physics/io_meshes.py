"""Meshes and height fields of an mjModel, as the colliders need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy.ops.reference.collide_hfield import Field
from alloy.ops.reference.convex import Mesh, extremes

Array = np.ndarray
MESH, HFIELD = int(mujoco.mjtGeom.mjGEOM_MESH), int(mujoco.mjtGeom.mjGEOM_HFIELD)
MOST_PRISMS = 4096  # under one shape; a shape is refused that would look at more


class Hull(NamedTuple):
    """The convex hull of one mesh, in the frame of its geoms, in MuJoCo's order."""

    corners: Array  # (V, 3)
    faces: list[Array]  # of each polygon its corners, counter-clockwise from outside
    normals: Array  # (F, 3)
    around: list[list[int]]  # the faces of each corner; the number of faces where it has none
    edges: list[list[int]]  # in each of those, the corner before it, or those next to it


def mesh_side(mj: mujoco.MjModel, geoms: Array, put: Callable[..., Tensor]) -> Mesh | None:
    """Tables of the meshes of geoms (P,), or None where they are no meshes."""
    if not len(geoms) or mj.geom_type[geoms[0]] != MESH:
        return None
    meshes, row = np.unique(mj.geom_dataid[geoms], return_inverse=True)
    hulls = [hull(mj, int(mesh)) for mesh in meshes]
    most = max(len(h.corners) for h in hulls)
    sides = max(len(face) for h in hulls for face in h.faces)
    faces = 1 + max(len(h.faces) for h in hulls)  # one is no face
    degree = max(len(row) for h in hulls for rows in (h.around, h.edges) for row in rows)
    corners = np.array([_filled(list(h.corners), most) for h in hulls])
    normals = [np.vstack([h.normals, np.zeros((faces - len(h.normals), 3))]) for h in hulls]
    rounds = [_filled([_filled(list(f), sides) for f in h.faces], faces) for h in hulls]
    counts = [_filled([len(f) for f in h.faces], faces) for h in hulls]
    around, edges = (
        [_filled([_filled(row, degree) for row in rows], most) for rows in lists]
        for lists in ([h.around for h in hulls], [h.edges for h in hulls])
    )
    return Mesh(
        corners=put(corners),
        extremes=put(extremes(torch.from_numpy(corners)).numpy()),
        face_normal=put(np.array(normals)),
        face_corner=put(np.array(rounds, np.int64)),
        face_size=put(np.array(counts, np.int64)),
        around=put(np.array(around, np.int64)),
        neighbours=put(np.array(edges, np.int64)),
        row=put(row.astype(np.int64)),
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
    beside = _hull_edges(mj, mesh)
    used = np.unique([*np.concatenate(polygons), *beside])
    local = np.full(count, -1)
    local[used] = np.arange(len(used))
    faces = [local[polygon] for polygon in polygons]
    around, edges = [], []
    for corner, vertex in enumerate(used):
        begin = int(mj.mesh_polymapadr[start + vertex])
        own = mj.mesh_polymap[begin : begin + int(mj.mesh_polymapnum[start + vertex])]
        before = [int(np.roll(faces[f], 1)[list(faces[f]).index(corner)]) for f in own]
        around.append([int(face) for face in own] or [len(faces)])
        edges.append(before or [int(k) for k in local[beside[vertex]]])
    vertices = np.array(mj.mesh_vert[start : start + count], float)
    normals = np.array(mj.mesh_polynormal[adr : adr + num], float)
    return Hull(vertices[used], faces, normals, around, edges)


def _hull_edges(mj: mujoco.MjModel, mesh: int) -> dict[int, list[int]]:
    """The corners of a mesh's hull as MuJoCo searches it, and those next to each.

    Some of them have no face: those that lie on an edge or in a face, up to rounding. The hull's
    graph is numvert, numface, vert_edgeadr, vert_globalid, and edge_localid that ends each with -1.
    """
    adr = int(mj.mesh_graphadr[mesh])
    if adr < 0:
        return {}
    graph = mj.mesh_graph[adr:]
    corners = int(graph[0])
    begin, names, lists = graph[2 : 2 + corners], graph[2 + corners :], graph[2 + 2 * corners :]
    beside = {}
    for first, name in zip(begin, names[:corners], strict=True):
        ends = lists[first:]
        beside[int(name)] = [int(names[k]) for k in ends[: int(np.argmax(ends < 0))]]
    return beside


def has_hull(mj: mujoco.MjModel, geom: int) -> bool:
    """Whether MuJoCo has made the hull of a mesh geom."""
    return int(mj.mesh_polynum[mj.geom_dataid[geom]]) > 0


def window(mj: mujoco.MjModel, field: int, geom: int, margin: float) -> tuple[int, int]:
    """Most rows and columns of a field's cells that can be under a geom."""
    hfield = int(mj.geom_dataid[field])
    size, cells = mj.hfield_size[hfield], (mj.hfield_nrow[hfield] - 1, mj.hfield_ncol[hfield] - 1)
    wide = 2 * (float(mj.geom_rbound[geom]) + margin)
    spans = (wide * n / (2 * half) for n, half in zip(cells, (size[1], size[0]), strict=True))
    rows, columns = (min(int(np.ceil(s)) + 1, int(n)) for s, n in zip(spans, cells, strict=True))
    return rows, columns


def field_side(
    mj: mujoco.MjModel, fields: Array, geoms: Array, margins: Array, put: Callable[..., Tensor]
) -> Field | None:
    """Tables of the height fields of pairs (P,), or None where they are none."""
    if not len(fields) or mj.geom_type[fields[0]] != HFIELD:
        return None
    ids = mj.geom_dataid[fields]
    windows = [window(mj, *pair) for pair in zip(fields, geoms, margins, strict=True)]
    most = int((mj.hfield_nrow[ids] * mj.hfield_ncol[ids]).max())
    heights = np.zeros((len(fields), most))
    for row, k in zip(heights, ids, strict=True):
        count, adr = int(mj.hfield_nrow[k] * mj.hfield_ncol[k]), int(mj.hfield_adr[k])
        row[:count] = mj.hfield_data[adr : adr + count] * mj.hfield_size[k, 2]
    shape = np.stack([mj.hfield_nrow[ids], mj.hfield_ncol[ids]], -1).astype(np.int64)
    size = np.array(mj.hfield_size[ids], float)
    return Field(put(heights), put(shape), put(size), put(np.zeros(np.max(windows, 0))))
