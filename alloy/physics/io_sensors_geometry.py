"""Tables of sensors that look at geoms: what rays can hit, and which distances are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import mujoco
import numpy as np
from torch import Tensor

from alloy.ops.reference.ray_shapes import INTERSECT
from alloy.ops.reference.sensor_distance import measured
from alloy.ops.reference.sensor_rays import WIDTH
from alloy.physics.io_elements import name_of, spelled
from alloy.physics.io_meshes import HFIELD, MESH, has_hull, mesh_side
from alloy.physics.sensor import Distances, GeomPairs, HeightField, RayGroup, Rays

Put = Callable[..., Tensor]
Array = np.ndarray

_OBJ, _GEOM = mujoco.mjtObj, mujoco.mjtGeom
_SEEN = (*INTERSECT, MESH, HFIELD)
_HIDE = "make it transparent (alpha 0), or a primitive"
_BLOCK = 128  # triangles that are looked at together
DISTANCES = ("geomdist", "geomnormal", "geomfromto")


def ray_fields(m: mujoco.MjModel, i: int) -> tuple[str, ...]:
    """What a rangefinder reports of a ray."""
    return tuple(name for k, name in enumerate(WIDTH) if int(m.sensor_intprm[i, 0]) >> k & 1)


def visible(m: mujoco.MjModel) -> Array:
    """Which geoms rays can hit: those that are not fully transparent, (ngeom,) bool."""
    alpha = m.geom_rgba[:, 3].copy()
    painted = m.geom_matid >= 0
    alpha[painted] = m.mat_rgba[m.geom_matid[painted], 3]
    return alpha != 0


def rays(m: mujoco.MjModel, put: Put, own_body: Array) -> Rays:
    """What rays can hit that start from bodies (rays,), whose own geoms they do not see."""
    groups, seen = [], visible(m)
    for kind in INTERSECT:
        geoms = np.flatnonzero(seen & (m.geom_type == kind))
        allowed = m.geom_bodyid[geoms] != own_body[:, None]
        used = allowed.any(0)
        if used.any():
            mask = allowed[:, used]
            groups.append(RayGroup(kind, put(geoms[used]), None if mask.all() else put(mask)))
    for g in np.flatnonzero(seen & np.isin(m.geom_type, (MESH, HFIELD))).tolist():
        mask = (m.geom_bodyid[g] != own_body)[:, None]
        if mask.any():
            kind, one = int(m.geom_type[g]), put(np.array([g]))
            shape = _triangles(m, g) if kind == MESH else None
            groups.append(
                RayGroup(
                    kind,
                    one,
                    None if mask.all() else put(mask),
                    None if shape is None else put(shape),
                    _height_field(m, put, g) if kind == HFIELD else None,
                )
            )
    return Rays(tuple(groups))


def rays_from(m: mujoco.MjModel, put: Put, body: int) -> Rays:
    """What rays can hit that see all geoms but those of one body, -1 for none.

    Raises:
        NotImplementedError: there are visible geoms of a type that rays do not know, named.
    """
    others = np.flatnonzero(visible(m) & (m.geom_bodyid != body)).tolist()
    strange = [g for g in others if int(m.geom_type[g]) not in _SEEN]
    if strange:
        names = ", ".join(name_of(m, "geom", g) for g in strange)
        raise NotImplementedError(f"rays do not know the shape of {names}; {_HIDE}")
    return rays(m, put, np.array([body]))


def _triangles(m: mujoco.MjModel, geom: int) -> Array:
    """The surface of a mesh as triangles in the geom's frame, in blocks, the last filled up."""
    data = int(m.geom_dataid[geom])
    start, count = int(m.mesh_faceadr[data]), int(m.mesh_facenum[data])
    vertices = m.mesh_vert[int(m.mesh_vertadr[data]) :].astype(float)
    size = min(count, _BLOCK)
    places = np.minimum(np.arange(-(-count // size) * size), count - 1) + start
    return vertices[m.mesh_face[places]].reshape(-1, size, 3, 3)


def _height_field(m: mujoco.MjModel, put: Put, geom: int) -> HeightField:
    data = int(m.geom_dataid[geom])
    rows, columns, first = (int(x[data]) for x in (m.hfield_nrow, m.hfield_ncol, m.hfield_adr))
    heights = m.hfield_data[first : first + rows * columns].astype(float)
    return HeightField(put(m.hfield_size[data]), put(heights), rows, columns)


def geoms_of(m: mujoco.MjModel, kind: int, ident: int) -> range:
    """Geoms of one side of a distance sensor: a geom, or those of a body."""
    if kind == _OBJ.mjOBJ_GEOM:
        return range(ident, ident + 1)
    first = int(m.body_geomadr[ident])
    return range(first, first + int(m.body_geomnum[ident]))


def pairs_of(m: mujoco.MjModel, i: int) -> list[tuple[int, int]]:
    """Pairs of geoms whose distance a sensor measures."""
    one = geoms_of(m, int(m.sensor_objtype[i]), int(m.sensor_objid[i]))
    two = geoms_of(m, int(m.sensor_reftype[i]), int(m.sensor_refid[i]))
    return [(a, b) for a in one for b in two]


def distances(m: mujoco.MjModel, put: Put, ids: list[int]) -> Distances:
    """Queries of distance sensors, each once; `ids` by type, in the order of DISTANCES."""
    signatures = [
        (*pairs_of(m, i), float(m.sensor_cutoff[i])) for i in ids
    ]  # those of equal ones are measured once
    queries = list(dict.fromkeys(signatures))
    wanted: dict[tuple[int, int], list[tuple[int, int, float]]] = defaultdict(list)
    for *pairs, cutoff in queries:
        for a, b in pairs:
            kind = tuple(sorted((int(m.geom_type[a]), int(m.geom_type[b]))))
            if (a, b, cutoff) not in wanted[kind]:
                wanted[kind].append((a, b, cutoff))
    every = [entry for entries in wanted.values() for entry in entries]
    place = {entry: k for k, entry in enumerate(every)}
    chosen = [[place[a, b, cutoff] for a, b in pairs] for *pairs, cutoff in queries]
    most = max(len(c) for c in chosen)
    number = {signature: k for k, signature in enumerate(queries)}
    of_kind = {
        kind: [number[s] for i, s in zip(ids, signatures, strict=True) if _type(m, i) == kind]
        for kind in DISTANCES
    }
    return Distances(
        pairs=tuple(_pairs(m, put, kind, entries) for kind, entries in wanted.items()),
        choices=put(np.array([c + c[:1] * (most - len(c)) for c in chosen])),
        cutoff=put(np.array([cutoff for *_, cutoff in queries])),
        dist=put(np.array(of_kind["geomdist"], int)),
        normal=put(np.array(of_kind["geomnormal"], int)),
        fromto=put(np.array(of_kind["geomfromto"], int)),
    )


def _type(m: mujoco.MjModel, i: int) -> str:
    return spelled(mujoco.mjtSensor, int(m.sensor_type[i]))


def _pairs(
    m: mujoco.MjModel, put: Put, kind: tuple[int, int], entries: list[tuple[int, int, float]]
) -> GeomPairs:
    one, two = (np.array([e[k] for e in entries]) for k in (0, 1))
    back = m.geom_type[one] > m.geom_type[two]
    first, second = np.where(back, two, one), np.where(back, one, two)
    return GeomPairs(
        kind=kind,
        geom1=put(first),
        geom2=put(second),
        margin=put(np.array([[cutoff for *_, cutoff in entries]])),
        back=put(back[:, None]) if back.any() else None,
        mesh1=mesh_side(m, first, put),
        mesh2=mesh_side(m, second, put),
    )


def refusals(m: mujoco.MjModel, i: int) -> Iterator[str]:
    """What one of these sensors looks at and cannot."""
    if _type(m, i) == "rangefinder":
        yield from _ray_refusals(m, i)
    elif _type(m, i) in DISTANCES:
        for a, b in pairs_of(m, i):
            one, two = sorted((int(m.geom_type[a]), int(m.geom_type[b])))
            if not measured((one, two)):
                shapes = " and ".join(repr(spelled(_GEOM, k)) for k in (one, two))
                names = f"{name_of(m, 'geom', a)} and {name_of(m, 'geom', b)}"
                yield f"the distance of {names}, of types {shapes}; use other shapes"
            for g in (a, b):
                if m.geom_type[g] == MESH and not has_hull(m, g):
                    yield f"{name_of(m, 'geom', g)}: MuJoCo has made no hull of its mesh"


def _ray_refusals(m: mujoco.MjModel, i: int) -> Iterator[str]:
    by_site = m.sensor_objtype[i] == _OBJ.mjOBJ_SITE
    own = (m.site_bodyid if by_site else m.cam_bodyid)[m.sensor_objid[i]]
    for g in np.flatnonzero(visible(m) & (m.geom_bodyid != own)).tolist():
        if int(m.geom_type[g]) not in _SEEN:
            kind = spelled(_GEOM, int(m.geom_type[g]))
            yield f"a ray can meet {name_of(m, 'geom', g)} of type {kind!r}; {_HIDE}"
