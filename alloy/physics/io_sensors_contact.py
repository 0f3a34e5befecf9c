"""Tables of contact sensors: which contacts each may report, and from which side."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
from torch import Tensor

from alloy import ops
from alloy.ops.reference.sensor_contact import WIDTH
from alloy.physics.io_layout import Pair, enabled_pairs
from alloy.physics.layout import ConstraintLayout
from alloy.physics.sensor import ContactSensors, Zones

Put = Callable[..., Tensor]
Array = np.ndarray

_OBJ, _GEOM = mujoco.mjtObj, mujoco.mjtGeom
_REDUCTIONS = ("none", "mindist", "maxforce", "netforce")
# what is the other way round, component by component, seen from the other side: the frame turns
# by half a turn about its second tangent
_FLIPPED = {
    "force": (1, 1, -1), "torque": (1, 1, -1), "normal": (-1, -1, -1), "tangent": (-1, -1, -1),
    "linvel": (1, 1, -1), "angvel": (1, 1, -1),
}  # fmt: skip


def contact_spec(m: mujoco.MjModel, i: int) -> tuple[tuple[str, ...], int, str, bool]:
    """Fields, number of contacts and reduction of a contact sensor, and whether a site limits it.

    Sensors that agree in all are evaluated together.
    """
    bits, reduction = (int(x) for x in m.sensor_intprm[i][:2])
    fields = tuple(name for k, name in enumerate(WIDTH) if bits >> k & 1)
    num = int(m.sensor_dim[i]) // sum(WIDTH[name] for name in fields)
    return fields, num, _REDUCTIONS[reduction], int(m.sensor_objtype[i]) == _OBJ.mjOBJ_SITE


def contact_sensors(
    m: mujoco.MjModel, put: Put, layout: ConstraintLayout, ids: list[int]
) -> ContactSensors:
    """Tables of sensors of one `contact_spec`."""
    fields, num, reduction, by_site = contact_spec(m, ids[0])
    pairs, slots = ordered_slots(m)
    side = np.array([[_side(m, i, pair) for pair in pairs] for i in ids], int)
    side = side.reshape(len(ids), len(pairs))
    some = (side != 0).any(0)
    side, slots = side[:, some], slots[some]
    back = (side < 0) if (side < 0).any() else None
    flip = np.concatenate([_FLIPPED.get(name, (1,) * WIDTH[name]) for name in fields])
    turned = back is not None and reduction != "netforce" and (flip < 0).any()
    order = _wrench_order(layout)
    return ContactSensors(
        slots=put(slots),
        match=put(side != 0),
        back=None if back is None else put(back),
        signs=put(np.where(back[..., None], flip, 1.0)) if turned and back is not None else None,
        zones=zones(m, put, m.sensor_objid[ids]) if by_site else None,
        fields=fields,
        num=num,
        reduce=reduction,
        wrench_order=None if order is None else put(order),
    )


def ordered_slots(m: mujoco.MjModel) -> tuple[list[Pair], Array]:
    """Pair of every contact slot, and the slots, in the order of mjData.contact.

    That is: by bodies, explicit pairs before others, then by geoms in collider order.
    """
    pairs = enabled_pairs(m)
    count = [
        ops.collider_slots((int(m.geom_type[p.geom1]), int(m.geom_type[p.geom2]))) for p in pairs
    ]
    starts = np.cumsum([0, *count])
    sorts = not m.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)

    def place(k: int) -> tuple[int, ...]:
        p = pairs[k]
        bodies = sorted(int(m.geom_bodyid[g]) for g in (p.geom1, p.geom2))
        if p.explicit >= 0:
            return (*bodies, 0, p.explicit)
        geoms = (p.geom1, p.geom2) if sorts else sorted((p.geom1, p.geom2))
        return (*bodies, 1, *geoms)

    order = sorted(range(len(pairs)), key=place)
    slots = [np.arange(starts[k], starts[k] + count[k]) for k in order]
    return [pairs[k] for k in order for _ in range(count[k])], np.concatenate(
        [*slots, np.zeros(0, int)]
    ).astype(int)


def _side(m: mujoco.MjModel, i: int, pair: Pair) -> int:
    """1 where the contacts of a pair match a sensor, -1 where they do the other way round, or 0."""
    kinds = (int(m.sensor_objtype[i]), int(m.sensor_reftype[i]))
    ids = (int(m.sensor_objid[i]), int(m.sensor_refid[i]))
    first, second = (
        [_matches(m, kind, ident, geom) for geom in (pair.geom1, pair.geom2)]
        for kind, ident in zip(kinds, ids, strict=True)
    )
    if not (any(first) and any(second)):
        return 0
    if kinds[1] == _OBJ.mjOBJ_UNKNOWN:
        return 1 if first[0] else -1
    if kinds[0] == _OBJ.mjOBJ_UNKNOWN:
        return 1 if second[1] else -1
    if first[0] and second[1]:
        return 1
    return -1 if first[1] and second[0] else 0


def _matches(m: mujoco.MjModel, kind: int, ident: int, geom: int) -> bool:
    """Whether a geom is, or belongs to, what a sensor names; a site filters by position only."""
    body = int(m.geom_bodyid[geom])
    if kind == _OBJ.mjOBJ_GEOM:
        return geom == ident
    if kind == _OBJ.mjOBJ_BODY:
        return body == ident
    if kind == _OBJ.mjOBJ_XBODY:
        while body > ident:
            body = int(m.body_parentid[body])
        return body == ident
    return True


def _wrench_order(layout: ConstraintLayout) -> Array | None:
    """Where each contact's rows are among those of all, by condim; None: in the same order."""
    cones = [c.slots for c in layout.cones if c.slots is not None]
    if layout.frictionless is None and not cones:
        return None
    every = [x.cpu().numpy() for x in (layout.frictionless, *cones) if x is not None]
    return np.argsort(np.concatenate(every))


def zones(m: mujoco.MjModel, put: Put, sites: Array) -> Zones:
    """Volumes of sites."""
    kind = m.site_type[sites]
    return Zones(
        sites=put(sites),
        size=put(_half_sizes(kind, m.site_size[sites])),
        is_round=put(np.isin(kind, [_GEOM.mjGEOM_SPHERE, _GEOM.mjGEOM_ELLIPSOID])),
        is_box=put(kind == _GEOM.mjGEOM_BOX),
        is_capsule=put(kind == _GEOM.mjGEOM_CAPSULE),
    )


def _half_sizes(kind: Array, size: Array) -> Array:
    """Three semi-axes, three half-edges, or radius and half-length; never zero."""
    size = np.where((kind == _GEOM.mjGEOM_SPHERE)[:, None], size[:, :1], size)
    return np.where(size > 0, size, 1.0)
