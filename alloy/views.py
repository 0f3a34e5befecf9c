"""Reading a simulation by name: every quantity of a Data as a batched tensor, computed when asked.

A `View` stands over any Data, also over one that is being traced: it never looks at a value. What
it hands out by name is a fresh, contiguous tensor that nobody writes again; the state and input
tensors (`qpos`, `ctrl`, ...) are the simulation's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from alloy import math
from alloy.engines import STAGES, advance
from alloy.names import Entity, Names, UnknownName
from alloy.physics.model import Data, Model, tensor_fields

_STAGE_OF = {f.name: f.metadata["stage"].replace("input", "state") for f in tensor_fields(Data)}


class Contacts(NamedTuple):
    """Contact slots of every world: fixed pairs of geoms, some of them active.

    What an inactive slot holds besides its geoms means nothing, except that its force is zero.
    """

    geom1: tuple[int, ...]  # geom ids by slot
    geom2: tuple[int, ...]
    active: Tensor  # [W, ncon] bool, nearer than the pair's margin, so that forces can act
    dist: Tensor  # [W, ncon] distance, negative in penetration, m
    pos: Tensor  # [W, ncon, 3] midpoint in world coordinates, m
    frame: Tensor  # [W, ncon, 3, 3] rows: normal from geom1 to geom2, then two tangents
    force: Tensor  # [W, ncon, 3] along the rows of frame, N, as mj_contactForce


def _fresh(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _own(field: str, doc: str) -> Any:
    """A property: the simulation's own tensor of that name."""
    return property(lambda self: self.get(field), doc=doc)


def _derived(field: str, doc: str) -> Any:
    """A property: what follows from the present state, as a fresh tensor."""
    return property(lambda self: _fresh(self.get(field)), doc=doc)


def _model(field: str, doc: str) -> Any:
    """A property: the part's row of a model field, for every world whether shared or not."""

    def get(self: _Part) -> Tensor:
        value = getattr(self._view.model, field)[:, self.id]
        return _fresh(value.expand(self._view.num_worlds, *value.shape[1:]))

    return property(get, doc=doc)


def _data(field: str, doc: str) -> Any:
    """A property: the part's row of a data field."""
    return property(lambda self: _fresh(self._view.get(field)[:, self.id]), doc=doc)


def _placed(field: str, which: str, doc: str) -> Any:
    """A property: the entries of a data field where a joint or an actuator has its own."""
    return property(
        lambda self: _fresh(self._view.get(field)[:, getattr(self._at, which)]), doc=doc
    )


class View:
    """Read-only access to all worlds of a Data; tensors have the world axis first."""

    qpos = _own("qpos", "Generalised positions, [W, nq].")
    qvel = _own("qvel", "Generalised velocities, [W, nv].")
    act = _own("act", "Actuator activations, [W, na].")
    plastic = _own("plastic", "Where springs that yield are at rest, [W, nplastic].")
    ctrl = _own("ctrl", "Actuator controls, [W, nu].")
    qfrc_applied = _own("qfrc_applied", "Forces applied in joint coordinates, [W, nv].")
    xfrc_applied = _own(
        "xfrc_applied", "Forces and torques at the bodies' centres of mass, world, [W, nbody, 6]."
    )
    mocap_pos = _own("mocap_pos", "Positions of the mocap bodies, [W, nmocap, 3].")
    mocap_quat = _own("mocap_quat", "Orientations of the mocap bodies, [W, nmocap, 4].")
    eq_active = _own("eq_active", "Which equality constraints hold, [W, neq] bool.")
    qacc = _derived("qacc", "Generalised accelerations, [W, nv].")
    sensordata = _derived("sensordata", "All sensors, [W, nsensordata].")

    def __init__(self, names: Names, model: Model, data: Data, stage: str = "state") -> None:
        """Look at `data`, whose derived fields fit its state up to and including `stage`."""
        self._names, self._model = names, model
        self._computed, self._stage = data, stage

    def at(self, stage: str) -> Data:
        """The Data with a stage computed: kinematics, position, velocity or acceleration."""
        if STAGES.index(stage) > STAGES.index(self._stage):
            self._computed = advance(self._model, self._computed, self._stage, stage)
            self._stage = stage
        return self._computed

    def get(self, field: str) -> Tensor:
        """A Data field in the present state, [W, ...], computed if need be; only to be read."""
        return getattr(self.at(_STAGE_OF[field]), field)

    @property
    def model(self) -> Model:
        """The model's quantities as tensors."""
        return self._model

    @property
    def num_worlds(self) -> int:
        """Number of worlds, W."""
        return self.get("qpos").shape[0]

    @property
    def time(self) -> Tensor:
        """Time since each world's reset, [W], s: the number of steps times the physics step."""
        return self.get("step_count").to(self.qpos.dtype) * self._model.opt.timestep

    # by name; an id does as well, and unknown names raise UnknownName with near matches

    def names(self) -> dict[str, list[str]]:
        """Names by kind: bodies, joints, actuators, geoms, sites, sensors, ..., entities."""
        return self._names.listing()

    def body(self, name: str | int) -> BodyView:
        """A body in every world."""
        return BodyView(self, self._names.id("body", name))

    def joint(self, name: str | int) -> JointView:
        """A joint in every world."""
        return JointView(self, self._names.id("joint", name))

    def site(self, name: str | int) -> SiteView:
        """A site in every world."""
        return SiteView(self, self._names.id("site", name))

    def geom(self, name: str | int) -> GeomView:
        """A geom in every world."""
        return GeomView(self, self._names.id("geom", name))

    def actuator(self, name: str | int) -> ActuatorView:
        """An actuator in every world."""
        return ActuatorView(self, self._names.id("actuator", name))

    def tendon(self, name: str | int) -> TendonView:
        """A tendon in every world."""
        return TendonView(self, self._names.id("tendon", name))

    def sensor(self, name: str | int) -> Tensor:
        """A sensor's reading in the present state, [W, dim]."""
        where = self._names.sensors[self._names.id("sensor", name)]
        return _fresh(self.get("sensordata")[:, where])

    def entity(self, name: str) -> Entity:
        """Names of an entity's bodies, joints, actuators, geoms and sites."""
        return self._names.entity(name)

    def joints_of(self, entity: str) -> list[JointView]:
        """The joints of an entity, in the model's order."""
        return [self.joint(name) for name in self._names.entity(entity).joints]

    def frame(self, name: str) -> FrameView:
        """What has a pose by this name: a body, else a site, a geom or an entity's first body."""
        for kind, part in (("body", BodyView), ("site", SiteView), ("geom", GeomView)):
            index = self._names.find(kind, name)
            if index is not None:
                return part(self, index)
        if name in self._names.entities():
            return self.body(self._names.entity(name).bodies[0])
        known = self._names.known("body", "site", "geom", "entity")
        raise UnknownName("body, site, geom or entity", name, known)

    def contacts(self) -> Contacts:
        """Every contact slot in the present state."""
        m, d = self._model, self.at("acceleration")
        pairs = _pairs(m)
        return Contacts(
            geom1=tuple(first for first, _ in pairs),
            geom2=tuple(second for _, second in pairs),
            active=_touching(m, d.contact_dist),
            dist=_fresh(d.contact_dist),
            pos=_fresh(d.contact_pos),
            frame=_fresh(d.contact_frame),
            force=_contact_force(m, d),
        )

    def in_contact(self, a: str, b: str | None = None) -> Tensor:
        """Whether `a` touches `b`, or without `b` anything: geoms, bodies or entities; [W] bool.

        A name is a geom's, else a body's (its own geoms), else an entity's (all its geoms). Pairs
        that the model never lets collide do not touch.
        """
        return self._any_slot(a, b, _touching(self._model, self.at("position").contact_dist))

    def _any_slot(self, a: str, b: str | None, active: Tensor) -> Tensor:
        """Whether some contact slot of two names is active; [W] bool."""
        ours = set(self._names.geoms_of(a))
        theirs = set(range(self._model.ngeom) if b is None else self._names.geoms_of(b))
        slots = [
            i
            for i, (p, q) in enumerate(_pairs(self._model))
            if (p in ours and q in theirs) or (q in ours and p in theirs)
        ]
        if not slots:
            return torch.zeros(self.num_worlds, dtype=torch.bool, device=self.qpos.device)
        return torch.cat([active[:, run] for run in _runs(slots)], 1).any(1)


class _Part:
    """One part of the model in every world."""

    _kind = ""

    def __init__(self, view: View, index: int) -> None:
        self._view, self.id = view, index

    @property
    def name(self) -> str:
        """Its name, empty if it has none."""
        return self._view._names.name(self._kind, self.id)

    def __repr__(self) -> str:
        return f"<{self._kind} {self.name or self.id!r} in {self._view.num_worlds} worlds>"


class FrameView(_Part):
    """A part with a pose, in the world frame: a body, a geom or a site."""

    _pos, _quat = "xpos", ""  # Data and Model fields

    @property
    def _body(self) -> int:
        return self.id

    @property
    def pos(self) -> Tensor:
        """Position of the frame's origin, [W, 3], m."""
        return _fresh(self._view.get(self._pos)[:, self.id])

    @property
    def mat(self) -> Tensor:
        """Orientation as a rotation matrix, [W, 3, 3]."""
        return _fresh(self._view.get(self._pos.replace("pos", "mat"))[:, self.id])

    @property
    def quat(self) -> Tensor:
        """Orientation as a quaternion w x y z, [W, 4]."""
        of_body = self._view.get("xquat")[:, self._body]
        if not self._quat:
            return _fresh(of_body)
        return math.quat_mul(of_body, getattr(self._view.model, self._quat)[:, self.id])

    @property
    def linvel(self) -> Tensor:
        """Velocity of the frame's origin, [W, 3], m/s; mj_objectVelocity with flg_local = 0."""
        d = self._view.at("velocity")
        root = self._view._names.body_root[self._body]
        arm = getattr(d, self._pos)[:, self.id] - d.subtree_com[:, root]
        cvel = d.cvel[:, self._body]  # taken at the centre of mass of the body's tree
        return cvel[:, 3:] + math.cross(cvel[:, :3], arm)

    @property
    def angvel(self) -> Tensor:
        """Angular velocity, [W, 3], rad/s."""
        return _fresh(self._view.get("cvel")[:, self._body, :3])


class BodyView(FrameView):
    """A body in every world."""

    _kind = "body"
    com = _data("xipos", "Position of the body's own centre of mass, [W, 3], m.")
    mass = _model("body_mass", "Mass, [W], kg.")


class GeomView(FrameView):
    """A geom in every world."""

    _kind, _pos, _quat = "geom", "geom_xpos", "geom_quat"
    size = _model("geom_size", "Size as MJCF gives it, by type of geom, [W, 3].")
    friction = _model("geom_friction", "Sliding, torsional and rolling friction, [W, 3].")

    @property
    def _body(self) -> int:
        return self._view._names.geom_body[self.id]


class SiteView(FrameView):
    """A site in every world."""

    _kind, _pos, _quat = "site", "site_xpos", "site_quat"

    @property
    def _body(self) -> int:
        return self._view._names.site_body[self.id]


class JointView(_Part):
    """A joint in every world; `pos` and `vel` are for joints of one degree of freedom."""

    _kind = "joint"
    qpos = _placed("qpos", "qpos", "Its part of qpos, [W, 7 | 4 | 1 | 1].")
    qvel = _placed("qvel", "dof", "Its part of qvel, [W, 6 | 3 | 1 | 1].")
    qacc = _placed("qacc", "dof", "Its part of qacc, [W, 6 | 3 | 1 | 1].")
    range = _model("jnt_range", "Lower and upper limit, [W, 2].")

    @property
    def _at(self) -> Any:
        return self._view._names.joints[self.id]

    @property
    def kind(self) -> str:
        """One of free, ball, slide, hinge."""
        return self._at.kind

    @property
    def limited(self) -> bool:
        """Whether its range is enforced."""
        return self._at.limited

    @property
    def pos(self) -> Tensor:
        """Position of a slide (m) or hinge (rad), [W]."""
        return self._scalar("qpos")

    @property
    def vel(self) -> Tensor:
        """Velocity of a slide (m/s) or hinge (rad/s), [W]."""
        return self._scalar("qvel")

    def _scalar(self, field: str) -> Tensor:
        if self.kind not in ("slide", "hinge"):
            raise ValueError(
                f"joint {self.name!r} is a {self.kind} joint, pos and vel are for slide and hinge; "
                f"use .{field}"
            )
        return getattr(self, field)[:, 0]


class ActuatorView(_Part):
    """An actuator in every world; where it has several controls or forces, they are behind W."""

    _kind = "actuator"
    ctrl = _placed("ctrl", "ctrl", "Control, [W] or [W, n].")
    force = _placed("actuator_force", "force", "Force in the present state, [W], N or N m.")
    length = _placed("actuator_length", "force", "Length of the transmission, [W].")
    velocity = _placed("actuator_velocity", "force", "Rate of change of the length, [W].")

    @property
    def _at(self) -> Any:
        return self._view._names.actuators[self.id]

    @property
    def ctrlrange(self) -> Tensor:
        """Range of ctrl, [W, 2] or [W, n, 2]; infinite without one."""
        value = self._view.model.actuator_ctrlrange[:, self._at.ctrl]
        end = torch.full_like(self.ctrl, torch.inf)
        limited = torch.tensor(self._view._names.ctrl_limited, device=end.device)[self._at.ctrl]
        return torch.where(limited.unsqueeze(-1), value, torch.stack([-end, end], -1))


class TendonView(_Part):
    """A tendon in every world."""

    _kind = "tendon"
    length = _data("ten_length", "Length, [W], m.")
    velocity = _data("ten_velocity", "Rate of change of the length, [W], m/s.")


def _pairs(m: Model) -> tuple[tuple[int, int], ...]:
    """Geom ids of every contact slot."""
    return m.derived["contact"].geom_ids if m.ncon else ()


def _touching(m: Model, dist: Tensor) -> Tensor:
    """Which contact slots are nearer than their margin, so that they have rows; [W, ncon]."""
    return dist < m.con_margin


def _runs(slots: list[int]) -> list[slice]:
    """The runs of consecutive numbers in an ascending list."""
    known = set(slots)
    starts = [i for i in slots if i - 1 not in known]
    ends = [i + 1 for i in slots if i + 1 not in known]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


def _contact_force(m: Model, d: Data) -> Tensor:
    """Force in each contact's frame from the base rows (normal, tangents, ...); [W, ncon, 3]."""
    if not m.ncon:
        return _fresh(d.contact_pos)
    lay, worlds = m.efc, d.qpos.shape[0]
    forces, slots = [], []
    if lay.n1:
        normal = d.efc_force[:, lay.n_scalar - lay.n1 : lay.n_scalar].unsqueeze(-1)
        forces.append(torch.cat([normal, torch.zeros_like(normal).expand(-1, -1, 2)], -1))
        slots.append(lay.frictionless)
    for cone in lay.cones:
        rows = d.efc_force[:, cone.start : cone.start + cone.n * cone.dim]
        forces.append(rows.reshape(worlds, cone.n, cone.dim)[..., :3])
        slots.append(cone.slots)
    if len(forces) == 1:  # then the group holds every slot in order
        return _fresh(forces[0])
    return torch.cat(forces, 1)[:, torch.argsort(torch.cat(slots))]


def copy_like(name: str, value: Any, like: Tensor) -> Tensor:
    """A copy of value, world axis last in memory, if shape, kind of dtype and device fit."""
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(np.array(value, order="C")).to(like.device)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: expected {described(like)}; {error}") from None
    given, wanted = value.dtype, like.dtype
    number = not given.is_complex and (given == torch.bool) == (wanted == torch.bool)
    fits = number and given.is_floating_point <= wanted.is_floating_point
    if value.shape != like.shape or value.device != like.device or not fits:
        raise ValueError(f"{name}: expected {described(like)}; received {described(value)}")
    world_last = value.to(wanted).movedim(0, -1)
    return world_last.clone(memory_format=torch.contiguous_format).movedim(-1, 0)


def described(t: Tensor) -> str:
    """What a tensor is, for a message."""
    return f"shape {tuple(t.shape)}, {t.dtype}, on {t.device}"
