"""What the parts of a model are called and where they sit: names, ids and addresses, all static.

Physical values are `alloy.physics.io`'s business; this module reads of an MjModel only what a name
has to be turned into (an id, an address, the body or the entity a part belongs to).
"""

from __future__ import annotations

from operator import index
from typing import NamedTuple

import mujoco

from alloy.scene import UnknownName

__all__ = ["Actuator", "Entity", "Joint", "Names", "UnknownName"]

_OBJECTS = {
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "joint": mujoco.mjtObj.mjOBJ_JOINT,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "site": mujoco.mjtObj.mjOBJ_SITE,
    "sensor": mujoco.mjtObj.mjOBJ_SENSOR,
    "tendon": mujoco.mjtObj.mjOBJ_TENDON,
    "camera": mujoco.mjtObj.mjOBJ_CAMERA,
    "light": mujoco.mjtObj.mjOBJ_LIGHT,
    "equality": mujoco.mjtObj.mjOBJ_EQUALITY,
    "keyframe": mujoco.mjtObj.mjOBJ_KEY,
}
_SIZES = {
    "joint": "njnt", "actuator": "nactuator", "camera": "ncam", "equality": "neq",
    "keyframe": "nkey",
}  # fmt: skip
_PLURALS = {"body": "bodies", "equality": "equalities"}
_JOINT_TYPES = ("free", "ball", "slide", "hinge")  # mjtJoint
_JOINT_NQ, _JOINT_NV = (7, 4, 1, 1), (6, 3, 1, 1)


class Joint(NamedTuple):
    """Where a joint sits."""

    kind: str  # free, ball, slide, hinge
    qpos: slice  # its part of qpos
    dof: slice  # its part of qvel
    body: int
    limited: bool


class Actuator(NamedTuple):
    """Where an actuator sits: entries, or slices where there are several or none."""

    ctrl: int | slice  # its part of ctrl
    force: int | slice  # its part of actuator_length, actuator_velocity and actuator_force
    controls: tuple[str, ...]  # names of its controls: its own, or "its own/input"


class Entity(NamedTuple):
    """Names of what belongs to one thing in the scene, in the model's order."""

    name: str
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    geoms: tuple[str, ...]
    sites: tuple[str, ...]


def _place(first: int, count: int) -> int | slice:
    return first if count == 1 else slice(first, first + count)


class Names:
    """Names, ids and addresses of one model.

    An entity is what a prefix before "/" names (a robot added under a name), or a top-level body
    without such a prefix, with all bodies below it.
    """

    def __init__(self, mj_model: mujoco.MjModel) -> None:
        """Read the names once; unnamed parts are reached by their id."""
        m = mj_model
        self._names: dict[str, list[str]] = {}
        for kind, obj in _OBJECTS.items():
            size = getattr(m, _SIZES.get(kind, f"n{kind}"))
            self._names[kind] = [mujoco.mj_id2name(m, obj, i) or "" for i in range(size)]
        self._ids = {
            kind: {name: i for i, name in enumerate(names) if name}
            for kind, names in self._names.items()
        }
        self.body_parent = tuple(int(i) for i in m.body_parentid)
        self.body_root = tuple(int(i) for i in m.body_rootid)
        self.geom_body = tuple(int(i) for i in m.geom_bodyid)
        self.site_body = tuple(int(i) for i in m.site_bodyid)
        joints = zip(
            m.jnt_type, m.jnt_qposadr, m.jnt_dofadr, m.jnt_bodyid, m.jnt_limited, strict=True
        )
        self.joints = tuple(
            Joint(
                kind=_JOINT_TYPES[t],
                qpos=slice(int(q), int(q) + _JOINT_NQ[t]),
                dof=slice(int(v), int(v) + _JOINT_NV[t]),
                body=int(body),
                limited=bool(limited),
            )
            for t, q, v, body, limited in joints
        )
        self.ctrl_limited = [bool(limited) for limited in m.actuator_ctrllimited]
        self.actuators = tuple(self._actuator(m, i) for i in range(m.nactuator))
        self.sensors = tuple(
            slice(int(adr), int(adr) + int(dim))
            for adr, dim in zip(m.sensor_adr, m.sensor_dim, strict=True)
        )
        self.mocap = [self._names["body"][i] for i in range(m.nbody) if m.body_mocapid[i] >= 0]
        self._body_entity = self._find_body_entities()
        self._entities = list(dict.fromkeys(name for name in self._body_entity if name))
        self._actuator_body = tuple(self._find_actuator_body(m, i) for i in range(m.nactuator))

    def id(self, kind: str, name: str | int) -> int:
        """Id of a part by name; an id is checked and returned.

        Raises:
            UnknownName: no such part; the message has near matches and the list.
        """
        if isinstance(name, str):
            found = self._ids[kind].get(name)
            if found is None:
                raise UnknownName(kind, name, list(self._ids[kind]))
            return found
        size = len(self._names[kind])
        if not hasattr(name, "__index__") or not 0 <= index(name) < size:
            raise UnknownName(f"{kind} (of {size}, by name or id)", name, list(self._ids[kind]))
        return index(name)

    def find(self, kind: str, name: str) -> int | None:
        """Id of a part, None where there is none of that name."""
        return self._ids[kind].get(name) if isinstance(name, str) else None

    def name(self, kind: str, index: int) -> str:
        """Name of a part by id, empty for an unnamed one."""
        return self._names[kind][index]

    def listing(self) -> dict[str, list[str]]:
        """Names by kind, in the model's order: bodies, joints, actuators, ..., entities.

        The controls are all there are, in the order of ctrl: one has its actuator's name, several
        of one actuator are called "actuator/input".
        """
        out = {_PLURALS.get(kind, f"{kind}s"): list(ids) for kind, ids in self._ids.items()}
        out["controls"] = [name for actuator in self.actuators for name in actuator.controls]
        return out | {"mocap": [name for name in self.mocap if name], "entities": self.entities()}

    def known(self, *kinds: str) -> list[str]:
        """All names of some kinds ("entity" is one), each once, for an error message."""
        names = [n for kind in kinds for n in self._ids.get(kind, self._entities)]
        return list(dict.fromkeys(names))

    def entities(self) -> list[str]:
        """Names of the entities, in the order of their first bodies."""
        return list(self._entities)

    def entity(self, name: str) -> Entity:
        """Everything that belongs to an entity; actuators by prefix or by the joint they drive.

        Raises:
            UnknownName: no entity of that name.
        """
        if name not in self._entities:
            raise UnknownName("entity", name, self._entities)

        def named(kind: str, bodies: tuple[int, ...]) -> tuple[str, ...]:
            parts = zip(self._names[kind], bodies, strict=True)
            return tuple(part for part, body in parts if part and self._owner(part, body) == name)

        return Entity(
            name=name,
            bodies=named("body", tuple(range(len(self.body_parent)))),
            joints=named("joint", tuple(joint.body for joint in self.joints)),
            actuators=named("actuator", self._actuator_body),
            geoms=named("geom", self.geom_body),
            sites=named("site", self.site_body),
        )

    def geoms_of(self, name: str) -> tuple[int, ...]:
        """Geom ids that a name stands for: a geom, else a body's own geoms, else an entity's.

        Raises:
            UnknownName: neither a geom nor a body nor an entity is called that.
        """
        known_geom, body = self.find("geom", name), self.find("body", name)
        if known_geom is not None:
            return (known_geom,)
        if body is not None:
            return tuple(i for i, b in enumerate(self.geom_body) if b == body)
        if name not in self._entities:
            raise UnknownName("geom, body or entity", name, self.known("geom", "body", "entity"))
        parts = enumerate(zip(self._names["geom"], self.geom_body, strict=True))
        return tuple(i for i, (geom, b) in parts if self._owner(geom, b) == name)

    def _owner(self, part: str, body: int) -> str:
        """Entity of a part: the one its own prefix names, else that of its body (-1: none)."""
        prefix, slash, _ = part.partition("/")
        if slash and prefix in self._entities:
            return prefix
        return self._body_entity[body] if body >= 0 else ""

    def _find_body_entities(self) -> tuple[str, ...]:
        entity = [""]  # the world belongs to none
        for body, name in enumerate(self._names["body"][1:], start=1):
            prefix, slash, _ = name.partition("/")
            parent = self.body_parent[body]
            entity.append(prefix if slash or parent == 0 else entity[parent])
        return tuple(entity)

    def _actuator(self, m: mujoco.MjModel, actuator: int) -> Actuator:
        name = self._names["actuator"][actuator] or f"actuator {actuator}"
        count, outputs = int(m.actuator_ctrlnum[actuator]), int(m.actuator_outnum[actuator])
        inputs = [mujoco.mj_actuatorInputName(m, actuator, k) for k in range(count)]
        return Actuator(
            ctrl=_place(int(m.actuator_ctrladr[actuator]), count),
            force=_place(int(m.actuator_outadr[actuator]), outputs),
            controls=(name,) if count == 1 else tuple(f"{name}/{which}" for which in inputs),
        )

    def _find_actuator_body(self, m: mujoco.MjModel, actuator: int) -> int:
        kind, target = int(m.actuator_trntype[actuator]), int(m.actuator_trnid[actuator, 0])
        transmission = mujoco.mjtTrn
        if kind in (transmission.mjTRN_JOINT, transmission.mjTRN_JOINTINPARENT):
            return self.joints[target].body
        if kind == transmission.mjTRN_SO3 and int(m.actuator_trnid[actuator, 1]) < 0:
            return self.joints[target].body
        if kind in (transmission.mjTRN_SITE, transmission.mjTRN_SO3):
            return self.site_body[target]
        return target if kind == transmission.mjTRN_BODY else -1
