"""Tables of tactile sensors: their taxels, and the geoms that they may feel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.sensor_tactile import DISTANCE
from alloy.physics.io_elements import name_of, spelled
from alloy.physics.io_meshes import MESH
from alloy.physics.io_sensors_contact import ordered_slots
from alloy.physics.sensor import Tactile, TactileSide

Put = Callable[..., Tensor]
Array = np.ndarray


def tactile(m: mujoco.MjModel, put: Put, i: int) -> Tactile:
    """Taxels of a sensor in its geom's frame, and what can touch, by type."""
    mesh, geom = int(m.sensor_objid[i]), int(m.sensor_refid[i])
    count, normals = int(m.mesh_vertnum[mesh]), int(m.mesh_normalnum[mesh])
    first, first_normal = int(m.mesh_vertadr[mesh]), int(m.mesh_normaladr[mesh])
    tangents = None
    if normals == 3 * count:  # a normal and two tangents of each vertex
        axes = m.mesh_normal[first_normal : first_normal + normals].reshape(count, 3, 3)
        tangents = put(axes[:, 1:].swapaxes(0, 1).astype(float))
    by_kind: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for other, slots in _touching(m, geom).items():
        if int(m.geom_type[other]) != MESH:  # which MuJoCo does not feel, without an octree
            by_kind[int(m.geom_type[other])][other] = slots
    return Tactile(
        geom=put(np.array([geom])),
        body=put(m.geom_bodyid[[geom]]),
        taxels=put(m.mesh_vert[first : first + count].astype(float)),
        tangents=tangents,
        sides=tuple(_side(m, put, kind, slots) for kind, slots in by_kind.items()),
    )


def _touching(m: mujoco.MjModel, geom: int) -> dict[int, list[int]]:
    """Contact slots of every geom with those of the same welded bodies."""
    weld = m.body_weldid[m.geom_bodyid]
    out = defaultdict(list)
    for pair, slot in zip(*ordered_slots(m), strict=True):
        for one, two in ((pair.geom1, pair.geom2), (pair.geom2, pair.geom1)):
            if weld[one] == weld[geom]:
                out[two].append(int(slot))
    return out


def _side(m: mujoco.MjModel, put: Put, kind: int, slots: dict[int, list[int]]) -> TactileSide:
    geoms, every = list(slots), sorted({slot for some in slots.values() for slot in some})
    return TactileSide(
        kind=kind,
        geoms=put(np.array(geoms)),
        body=put(m.geom_bodyid[geoms]),
        slots=put(np.array(every)),
        match=put(np.array([np.isin(every, slots[g]) for g in geoms])),
    )


def refusals(m: mujoco.MjModel, i: int) -> Iterator[str]:
    """Geoms that may touch a tactile sensor, and whose signed distance is not known."""
    for g in _touching(m, int(m.sensor_refid[i])):
        kind, name = int(m.geom_type[g]), name_of(m, "geom", g)
        if kind == MESH and m.mesh_octadr[m.geom_dataid[g]] >= 0:
            yield f"the depth in {name}, a mesh with an octree; compile without needsdf"
        elif kind != MESH and kind not in DISTANCE:
            shape = spelled(mujoco.mjtGeom, kind)
            yield f"the depth in {name} of type {shape!r}; let a primitive touch the sensor"
