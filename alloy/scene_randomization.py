"""What may be randomized in a scene: the fields, their limits, and which elements a name means."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import mujoco
import numpy as np

Mode = Literal["value", "scale", "add"]
Bound = float | Sequence[float]
_SHOWN = 40  # names that a message lists before it only counts

GEOM_SIZES = {  # what add_* calls the size of each shape, in order
    mujoco.mjtGeom.mjGEOM_SPHERE: ("radius",),
    mujoco.mjtGeom.mjGEOM_CAPSULE: ("radius", "length"),
    mujoco.mjtGeom.mjGEOM_CYLINDER: ("radius", "length"),
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: ("x", "y", "z"),
    mujoco.mjtGeom.mjGEOM_BOX: ("x", "y", "z"),
}


@dataclass(frozen=True)
class Field:
    """A quantity that may be randomized."""

    kind: str  # of the elements that have it: one of KINDS, or world
    doc: str
    low: float = -math.inf  # least value allowed
    positive: bool = False  # whether zero is refused too
    widths: tuple[int, ...] = (1,)  # numbers in a bound: 1, or one per component
    modes: tuple[Mode, ...] = ("value", "scale", "add")
    ordered: bool = False  # two numbers, the first of which may not be above the second


KINDS = ("body", "geom", "joint", "site", "actuator", "tendon", "equality")
_POSE: dict[str, Any] = {"widths": (3,)}
_TURN: dict[str, Any] = {"widths": (3,), "modes": ("add",)}
_RANGE: dict[str, Any] = {"widths": (2,), "ordered": True}
_SOLREF: dict[str, Any] = {"widths": (2,)}
_SOLIMP: dict[str, Any] = {"widths": (5,), "low": 0}
_AXES = "rotation vector in its own axes [rad], added"

FIELDS = {
    "friction": Field("geom", "sliding friction coefficient", 0),
    "friction_torsional": Field("geom", "torsional friction coefficient [m]", 0),
    "friction_rolling": Field("geom", "rolling friction coefficient [m]", 0),
    "size": Field("geom", "size as add_* takes it [m]", 0, True, (1, 2, 3)),
    "geom_pos": Field("geom", "position in its body [m]; the body's inertia stays", **_POSE),
    "geom_quat": Field("geom", f"orientation in its body: {_AXES}; inertia stays", **_TURN),
    "geom_solref": Field("geom", "solref of its contacts, mixed as MuJoCo does", **_SOLREF),
    "geom_solimp": Field("geom", "solimp of its contacts, mixed as MuJoCo does", **_SOLIMP),
    "mass": Field("body", "total mass [kg]; inertia follows", 0, True),
    "density": Field("body", "density [kg/m^3]; mass and inertia follow", 0, True),
    "inertia": Field("body", "principal moments of inertia [kg m^2]", 0, True, (3,)),
    "com": Field("body", "centre of mass in the body's frame [m]", **_POSE),
    "body_pos": Field("body", "position in its parent [m]", **_POSE),
    "body_quat": Field("body", f"orientation in its parent: {_AXES}", **_TURN),
    "gravcomp": Field("body", "share of its weight that is compensated"),
    "site_pos": Field("site", "position in its body [m]", **_POSE),
    "site_quat": Field("site", f"orientation in its body: {_AXES}", **_TURN),
    "damping": Field("joint", "damping [N s/m or N m s/rad]", 0),
    "armature": Field("joint", "armature inertia [kg or kg m^2]", 0),
    "stiffness": Field("joint", "spring stiffness [N/m or N m/rad]", 0),
    "springref": Field("joint", "where the spring is at rest [m or rad]"),
    "frictionloss": Field("joint", "dry friction [N or N m]", 0),
    "joint_range": Field("joint", "lower and upper limit [m or rad]", **_RANGE),
    "actuatorfrcrange": Field("joint", "range of its actuators' force [N or N m]", **_RANGE),
    "solreflimit": Field("joint", "solref of its limits", **_SOLREF),
    "solimplimit": Field("joint", "solimp of its limits", **_SOLIMP),
    "solreffriction": Field("joint", "solref of its dry friction", **_SOLREF),
    "solimpfriction": Field("joint", "solimp of its dry friction", **_SOLIMP),
    "kp": Field("actuator", "position gain of position servos", 0),
    "kv": Field("actuator", "velocity gain of position and velocity servos", 0),
    "gain": Field("actuator", "gain of motors and other actuators with a fixed gain"),
    "gear": Field("actuator", "gear: its first number, or all six", widths=(1, 6)),
    "forcerange": Field("actuator", "range of its force [N or N m]", **_RANGE),
    "timeconst": Field("actuator", "time constant of its filter [s]", 0),
    "tendon_stiffness": Field("tendon", "spring stiffness [N/m]", 0),
    "tendon_damping": Field("tendon", "damping [N s/m]", 0),
    "tendon_armature": Field("tendon", "inertia of its length [kg]", 0),
    "tendon_frictionloss": Field("tendon", "dry friction [N]", 0),
    "tendon_range": Field("tendon", "lower and upper limit of its length [m]", **_RANGE),
    "tendon_springlength": Field("tendon", "lengths between which its spring rests [m]", **_RANGE),
    "tendon_solreflimit": Field("tendon", "solref of its limits", **_SOLREF),
    "tendon_solimplimit": Field("tendon", "solimp of its limits", **_SOLIMP),
    "tendon_solreffriction": Field("tendon", "solref of its dry friction", **_SOLREF),
    "tendon_solimpfriction": Field("tendon", "solimp of its dry friction", **_SOLIMP),
    "equality_solref": Field("equality", "solref", **_SOLREF),
    "equality_solimp": Field("equality", "solimp", **_SOLIMP),
    "polycoef": Field("equality", "polynomial of a joint or tendon equality", widths=(5,)),
    "anchor": Field("equality", "anchor of a connect in its first body [m]", **_POSE),
    "gravity": Field("world", "gravity vector, or its z component [m/s^2]", widths=(1, 3)),
    "wind": Field("world", "velocity of the medium, or its z component [m/s]", widths=(1, 3)),
}
REFUSED = {
    "timestep": "the step is compiled in: build a simulator for each timestep",
    "impratio": "an option of the solver is compiled in: randomize geom_solref or friction",
    "viscosity": "the medium is compiled in: randomize wind, or the damping of joints",
    "margin": "it decides which contacts there are: randomize size instead",
    "ctrlrange": "it is the range of actions: randomize gear, gain, kp or forcerange",
}


class UnknownName(KeyError):
    """A name that is not there. Says what was asked for, the near matches, and what there is."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(set(known))
        self.near = difflib.get_close_matches(str(name), self.known, n=3, cutoff=0.5)
        super().__init__(kind, name)

    def __str__(self) -> str:  # KeyError would show the repr of its arguments
        near = f" Did you mean {' or '.join(map(repr, self.near))}?" if self.near else ""
        known = ", ".join(map(repr, self.known[:_SHOWN])) or "nothing with a name"
        more = f" and {len(self.known) - _SHOWN} more" if len(self.known) > _SHOWN else ""
        return f"no {self.kind} is called {self.name!r}.{near} There is: {known}{more}."


@dataclass(frozen=True)
class Randomization:
    """A quantity drawn uniformly between two bounds, once per world and episode.

    Attributes:
        entity: name of a robot or an element of `KINDS`, a pattern of names, or "world".
        field: one of `FIELDS`.
        low: least draw: one number, or one per component, drawn independently.
        high: greatest draw, shaped like `low`.
        mode: "value" sets the drawn value, "scale" multiplies the scene's by it, "add" adds it.
    """

    entity: str
    field: str
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    mode: Mode = "value"


def randomization(entity: str, field: str, low: Bound, high: Bound, mode: Mode) -> Randomization:
    """Check everything about a randomization that can be checked without the scene.

    Raises:
        UnknownName: no such field.
        ValueError: a mode that does not exist, bounds of different or wrong lengths, not finite,
            in the wrong order, or beyond what the field allows.
    """
    if not isinstance(entity, str):
        raise ValueError(f"entity must be a name or a pattern of names, not {entity!r}")
    if field in REFUSED:
        raise ValueError(f"{field} cannot be randomized: {REFUSED[field]}")
    if field not in FIELDS:
        raise UnknownName("field that may be randomized", field, FIELDS)
    where, about = f"randomize({entity!r}, {field!r})", FIELDS[field]
    if mode not in get_args(Mode):
        raise ValueError(f"{where}: mode is {mode!r}; it is one of {', '.join(get_args(Mode))}")
    if mode not in about.modes:
        raise ValueError(f"{where}: mode is {mode!r}; {field} takes {' or '.join(about.modes)}")
    lows, highs = _numbers(low, f"{where}: low"), _numbers(high, f"{where}: high")
    vector = np.ndim(low) > 0
    if len(lows) != len(highs) or vector != (np.ndim(high) > 0):
        raise ValueError(f"{where}: low {low} and high {high} must have the same length")
    if (vector or mode != "scale") and len(lows) not in about.widths:
        allowed = " or ".join(map(str, about.widths))
        raise ValueError(f"{where}: low has {len(lows)} numbers; {field} takes {allowed}")
    if about.ordered and mode == "value" and highs[0] > lows[1]:
        raise ValueError(
            f"{where}: the first number may be {highs[0]}, above the second: {lows[1]}"
        )
    if any(a > b for a, b in zip(lows, highs, strict=True)):
        raise ValueError(f"{where}: low {low} is above high {high}")
    signed = mode == "add" or about.low == -math.inf
    if not signed and (min(lows) < 0 or (about.positive and min(lows) == 0)):
        least = "above 0" if about.positive else "at least 0"
        raise ValueError(f"{where}: low is {low}; {field} as a {mode} must be {least}")
    if vector:
        return Randomization(entity, field, lows, highs, mode)
    return Randomization(entity, field, lows[0], highs[0], mode)


def elements(m: mujoco.MjModel, entity: str, kind: str) -> list[int]:
    """Ids of an entity's elements of one of `KINDS` in a compiled scene.

    An entity is a robot (everything under its prefix), a body (its own geoms and joints), a single
    element, or a pattern such as "robot/*_foot" over the names of elements and their bodies.

    Raises:
        UnknownName: nothing in the scene has that name.
        ValueError: the entity is there but has nothing of that kind.
    """
    names = {k: _names(m, k) for k in KINDS}
    owner = {"geom": m.geom_bodyid, "joint": m.jnt_bodyid, "site": m.site_bodyid}
    ids = [
        i
        for i, name in enumerate(names[kind])
        if _means(entity, name) or (kind in owner and _means(entity, names["body"][owner[kind][i]]))
    ]
    if ids:
        return ids
    known = {name for group in names.values() for name in group if name}
    if not any(_means(entity, name) for name in known):
        robots = {name.split("/")[0] for name in known if "/" in name}
        raise UnknownName("entity or element of the scene", entity, known | robots)
    raise ValueError(
        f"{entity!r} has no {kind} to randomize; of this kind the scene has "
        f"{', '.join(repr(name) for name in names[kind] if name) or 'nothing with a name'}"
    )


def _means(entity: str, name: str) -> bool:
    if any(c in entity for c in "*?["):
        return fnmatch.fnmatchcase(name, entity)
    return name == entity or name.startswith(entity + "/")


def _names(m: mujoco.MjModel, kind: str) -> list[str]:
    count = {"joint": "njnt", "actuator": "nactuator", "equality": "neq"}.get(kind, f"n{kind}")
    names = [getattr(m, kind)(i).name for i in range(getattr(m, count))]
    if kind != "body":
        return names
    for i in range(1, m.nbody):  # a body without a name belongs to the nearest one above with one
        names[i] = names[i] or names[m.body_parentid[i]]
    return names


def _numbers(bound: Bound, what: str) -> tuple[float, ...]:
    try:
        numbers = tuple(np.asarray(bound, float).reshape(-1).tolist())
    except (TypeError, ValueError):
        raise ValueError(f"{what} is {bound!r}; it must be a number or a few") from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{what} is {bound!r}; it must be finite")
    return numbers
