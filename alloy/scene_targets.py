"""Which elements of a compiled scene a randomization changes, and whether its draws are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import mujoco
import numpy as np

from alloy.physics.io_randomize import interval
from alloy.physics.randomize import PLAIN
from alloy.scene_randomization import FIELDS, GEOM_SIZES, Mode, Randomization, elements

_JOINT, _OBJ = mujoco.mjtJoint, mujoco.mjtObj
_OF_CONTACTS = (
    "friction", "friction_torsional", "friction_rolling", "geom_solref", "geom_solimp",
)  # fmt: skip
_PLACED = ("body_pos", "body_quat")
_ALONE = ("com", "body_pos", "geom_pos", "site_pos", "anchor")  # as a value, of one element only
_FIRST = {  # a field with a row for each element
    "geom": "geom_type", "joint": "jnt_type", "site": "site_type", "actuator": "actuator_trntype",
    "tendon": "tendon_adr", "equality": "eq_type",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A randomization with its names resolved in one compiled model.

    Attributes:
        field: as in `FIELDS`.
        ids: rows of the field: geoms, bodies, joints, dofs, ...; empty for the world.
        low: least draw by component, of length 1 where one draw serves all components.
        high: greatest draw by component.
        mode: "value", "scale" or "add".
        shapes: for `size`, the kind of each geom (sphere, box, ...).
        flags: for `size`, whether the body's mass and inertia are those of the geom alone; for
            `kv`, whether the actuator is a velocity servo.
        density: for `density`, that of each body in the scene; empty where it is only scaled.
    """

    field: str
    ids: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    mode: Mode
    shapes: tuple[str, ...] = ()
    flags: tuple[bool, ...] = ()
    density: tuple[float, ...] = ()


def targets(m: mujoco.MjModel, randomizations: Iterable[Randomization]) -> tuple[Target, ...]:
    """Resolve names in a compiled model, and check the bounds against its values.

    Raises:
        UnknownName: no such entity.
        ValueError: the entity has nothing that the field could change, or some draw would leave
            what the field allows.
    """
    return tuple(_target(m, r) for r in randomizations)


def _target(m: mujoco.MjModel, r: Randomization) -> Target:
    about, where = FIELDS[r.field], f"randomize({r.entity!r}, {r.field!r})"
    low, high = (tuple(np.atleast_1d(bound).tolist()) for bound in (r.low, r.high))
    if about.kind == "world":
        if r.entity != "world":
            raise ValueError(f"{where}: {r.field} is the same everywhere; its entity is 'world'")
        return Target(r.field, (), low, high, r.mode)
    ids = elements(m, r.entity, about.kind)
    shapes, flags, density = (), (), ()
    ids = _those_that_have(m, ids, r.field, where)
    if r.field == "kv":
        flags = tuple(bool(m.actuator_biasprm[i, 1] == 0) for i in ids)
    if r.field in _ALONE and r.mode == "value" and len(ids) > 1:
        what = {"body": "bodies", "equality": "equalities"}.get(about.kind, f"{about.kind}s")
        raise ValueError(
            f"{where}: {len(ids)} {what} cannot share one {r.field}; name one, or use 'add'"
        )
    if r.field == "density" and r.mode != "scale":
        density = tuple(_density(m, body, where) for body in ids)
    if r.field == "size":
        _check_shapes(m, ids, r, where)
        shapes = tuple(_shape(m.geom_type[geom]) for geom in ids)
        flags = tuple(_moves_mass(m, geom, where) for geom in ids)
    if PLAIN.get(r.field, ("",))[0].startswith("dof_"):
        ids = np.flatnonzero(np.isin(m.dof_jntid, ids)).tolist()
    if r.field == "springref":
        ids = m.jnt_qposadr[ids].tolist()
    target = Target(r.field, tuple(ids), low, high, r.mode, shapes, flags, density)
    if r.mode == "add" and np.isfinite(about.low):
        _check_sums(m, target, where)
    if about.ordered and r.mode != "value":
        _check_order(m, target, where)
    return target


def _shape(kind: int) -> str:
    return mujoco.mjtGeom(kind).name.removeprefix("mjGEOM_").lower()


def _those_that_have(m: mujoco.MjModel, ids: list[int], field: str, where: str) -> list[int]:
    """Those elements that have the field; ValueError where none has, or one may not change."""
    kind = FIELDS[field].kind
    for barred, why in _barred(m, field):
        names = [repr(getattr(m, kind)(i).name) for i in ids if barred[i]]
        if names:
            raise ValueError(f"{where}: {', '.join(names)} {why}")
    have, those = _owners(m, field)
    found = [i for i in ids if have[i]]
    if not found and those == "mass":
        raise ValueError(f"{where}: no body of it has mass")
    if not found:
        names = ", ".join(repr(getattr(m, kind)(i).name) for i in ids)
        raise ValueError(f"{where}: none of {names} is a {those}")
    return found


def _owners(m: mujoco.MjModel, field: str) -> tuple[np.ndarray, str]:
    """Which elements of the field's kind have it, and what those are."""
    kind = FIELDS[field].kind
    gain, bias = m.actuator_gainprm[:, 0], m.actuator_biasprm
    fixed = m.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED
    affine = fixed & (m.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)
    position = affine & (gain != 0) & (bias[:, 1] == -gain)
    velocity = affine & (gain != 0) & (bias[:, 1] == 0) & (bias[:, 2] == -gain)
    scalar = np.isin(m.jnt_type, (_JOINT.mjJNT_SLIDE, _JOINT.mjJNT_HINGE))
    filters = (mujoco.mjtDyn.mjDYN_FILTER, mujoco.mjtDyn.mjDYN_FILTEREXACT)
    polynomial = np.isin(m.eq_type, (mujoco.mjtEq.mjEQ_JOINT, mujoco.mjtEq.mjEQ_TENDON))
    connect = m.eq_type == mujoco.mjtEq.mjEQ_CONNECT
    limited = {"joint": m.jnt_limited, "tendon": m.tendon_limited}.get(kind)
    if field.endswith(("_range", "limit")) and limited is not None:
        return limited != 0, f"{kind} with limits"
    special = {
        "kp": (position, "position servo"),
        "kv": (position | velocity, "position or velocity servo"),
        "gain": (fixed, "actuator with a fixed gain"),
        "forcerange": (m.actuator_forcelimited != 0, "actuator with a force range"),
        "timeconst": (np.isin(m.actuator_dyntype, filters), "actuator with a filter"),
        "springref": (scalar, "hinge or slide"),
        "actuatorfrcrange": (m.jnt_actfrclimited != 0, "joint with actuatorfrcrange"),
        "polycoef": (polynomial, "joint or tendon equality"),
        "anchor": (connect & (m.eq_objtype == _OBJ.mjOBJ_BODY), "connect of bodies"),
    }
    if kind == "body":
        return m.body_mass > 0 if field not in _PLACED else np.arange(m.nbody) > 0, "mass"
    every = np.ones(len(getattr(m, _FIRST[kind])), bool)
    return special.get(field, (every, kind))


def _barred(m: mujoco.MjModel, field: str) -> list[tuple[np.ndarray, str]]:
    """Elements whose change would reach what the model derives once, and what to do instead."""
    overridden = m.opt.enableflags & mujoco.mjtEnableBit.mjENBL_OVERRIDE
    if overridden and field in _OF_CONTACTS:
        why = "takes the options' values in its contacts (flag override='enable'); leave that out"
        return [(np.ones(m.ngeom, bool), why)]
    wraps = np.isin(m.wrap_type, (mujoco.mjtWrap.mjWRAP_SPHERE, mujoco.mjtWrap.mjWRAP_CYLINDER))
    if field in ("size", "geom_pos", "geom_quat"):
        why = "bends a tendon, by which side is decided once; draw another geom's"
        return [(np.isin(np.arange(m.ngeom), m.wrap_objid[wraps]), why)]
    if field in ("site_pos", "site_quat"):
        sides = m.wrap_prm[wraps]
        on_sites = m.eq_objtype == _OBJ.mjOBJ_SITE
        welded = np.concatenate([m.eq_obj1id[on_sites], m.eq_obj2id[on_sites]])
        site = np.arange(m.nsite)
        return [
            (np.isin(site, sides[sides >= 0]), "tells a tendon its side, which is decided once"),
            (np.isin(site, welded), "is part of an equality; give that bodies and randomize them"),
        ]
    if field in _PLACED:
        free = np.isin(np.arange(m.nbody), m.jnt_bodyid[m.jnt_type == _JOINT.mjJNT_FREE])
        return [
            (free, "floats: its pose is in qpos, which the reset sets"),
            (m.body_mocapid >= 0, "is a mocap body: write its mocap pose instead"),
        ]
    if field == "gear":
        own = (m.actuator_damping != 0) | (m.actuator_armature != 0)
        return [
            (own, "gives its joint damping or armature; give those to the joint itself"),
            (m.actuator_outnum != 1, "has three forces and no gear"),
        ]
    yields = {"springref": m.jnt_plasticadr, "tendon_springlength": m.tendon_plasticadr}
    if field in yields:
        why = "yields: where it is at rest is the state plastic, which the reset sets"
        return [(yields[field] >= 0, why)]
    return []


def _check_shapes(m: mujoco.MjModel, ids: list[int], r: Randomization, where: str) -> None:
    """Sizes are drawn for shapes that have them, all of one kind unless scaled by one number."""
    kinds = {int(m.geom_type[i]) for i in ids}
    sized = {int(kind): names for kind, names in GEOM_SIZES.items()}
    for kind in kinds - set(sized):
        known = ", ".join(map(_shape, GEOM_SIZES))
        raise ValueError(f"{where}: a {_shape(kind)} has no size to draw; these have: {known}")
    width = np.size(r.low)
    if np.ndim(r.low) == 0 and r.mode == "scale":
        return
    names = {sized[kind] for kind in kinds}
    if len(names) > 1:
        raise ValueError(f"{where}: shapes of several kinds only share one number with 'scale'")
    (components,) = names
    same = np.ndim(r.low) == 0 and components in (("radius",), ("x", "y", "z"))
    if width != len(components) and not same:
        raise ValueError(f"{where}: low has {width} numbers; it needs ({', '.join(components)})")


def _moves_mass(m: mujoco.MjModel, geom: int, where: str) -> bool:
    """Whether a geom's size decides its body's mass; ValueError where the model cannot tell."""
    body = m.geom_bodyid[geom]
    if m.body_weldid[body] == 0:
        return False
    if m.body_geomnum[body] > 1:
        raise ValueError(
            f"{where}: body {m.body(body).name!r} has {m.body_geomnum[body]} geoms; size can be"
            " drawn for bodies of one geom, whose inertia can follow it"
        )
    return _solid_volume(m, geom) is not None


def _density(m: mujoco.MjModel, body: int, where: str) -> float:
    volume = None
    if m.body_geomnum[body] == 1:
        volume = _solid_volume(m, m.body_geomadr[body])
    if volume is None:
        raise ValueError(
            f"{where}: the mass of body {m.body(body).name!r} is not that of one uniform shape, so"
            " it has no single density; use mode='scale', or draw its mass"
        )
    return float(m.body_mass[body] / volume)


def _solid_volume(m: mujoco.MjModel, geom: int) -> float | None:
    """Volume of a geom if its body's inertia is that of this geom filled uniformly, else None."""
    body = m.geom_bodyid[geom]
    if m.geom_type[geom] not in tuple(map(int, GEOM_SIZES)):
        return None
    spec = mujoco.MjSpec()
    kind, size = mujoco.mjtGeom(m.geom_type[geom]), m.geom_size[geom]
    spec.worldbody.add_body().add_geom(type=kind, size=size, density=1.0)
    alone = spec.compile()
    unit = alone.body_inertia[1] / alone.body_mass[1]
    here = m.body_inertia[body] / m.body_mass[body]
    placed = (m.body_ipos[body], m.geom_pos[geom]), (m.body_iquat[body], m.geom_quat[geom])
    same = np.allclose(here, unit, 1e-6, 0) and all(np.allclose(*pair, 0, 1e-9) for pair in placed)
    return float(alone.body_mass[1]) if same else None


def _check_sums(m: mujoco.MjModel, t: Target, where: str) -> None:
    """Refuse an "add" whose lowest draw takes some element's value below what is allowed."""
    about = FIELDS[t.field]
    value = nominal(m, t).min(0)
    least = (value + np.array(t.low)).min()
    if least < about.low or (about.positive and least == about.low):
        bound = "above 0" if about.positive else "at least 0"
        raise ValueError(
            f"{where}: adding {t.low} to {value.tolist()} gives {least:.6g}; it must be {bound}"
        )


def _check_order(m: mujoco.MjModel, t: Target, where: str) -> None:
    """Refuse a draw that could put the lower end of a range above its upper end."""
    least, most = interval(nominal(m, t), t)
    together = len(t.low) == 1 and t.mode == "scale" and t.low[0] >= 0  # one draw keeps the order
    if not together and (most[:, 0] > least[:, 1]).any():
        raise ValueError(f"{where}: the lower end of a range may come above its upper end")


def nominal(m: mujoco.MjModel, t: Target) -> np.ndarray:
    """Values in the scene of what a target changes: (elements, components)."""
    ids = list(t.ids)
    special = {
        "size": lambda: _sizes(m, ids),
        "mass": lambda: m.body_mass[ids].sum(keepdims=True),
        "density": lambda: np.array(t.density),
        "kp": lambda: m.actuator_gainprm[ids, 0],
        "kv": lambda: -m.actuator_biasprm[ids, 2],
        "gear": lambda: m.actuator_gear[m.actuator_outadr[ids]],
        "gravity": lambda: m.opt.gravity[None],
        "wind": lambda: m.opt.wind[None],
    }
    if t.field in special:
        value = special[t.field]()
    else:
        name, columns = PLAIN[t.field]
        value = getattr(m, name)[ids]
        value = value[:, columns] if value.ndim > 1 else value
    return value.reshape(-1, 1) if value.ndim == 1 else value


def _sizes(m: mujoco.MjModel, geoms: list[int]) -> np.ndarray:
    """Sizes as `add_*` takes them, of geoms that are all of one kind."""
    components = GEOM_SIZES[mujoco.mjtGeom(m.geom_type[geoms[0]])]
    factor = [1.0 if name == "radius" else 2.0 for name in components]
    return m.geom_size[geoms][:, : len(components)] * factor
