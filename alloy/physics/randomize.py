"""Randomized quantities: from a model shared by all worlds to one whose worlds differ.

Everything starts from the nominal model, so that nothing compounds over episodes, and whatever
MuJoCo's compiler derives from a changed quantity is derived again: inertia, masses of subtrees, the
inverse weights of bodies, dofs and tendons (mj_setConst), bounding radii, mixed friction and the
constants of the constraint rows. Derivations run in float64. Two things keep their nominal value,
as they are no parameters of the dynamics: `meaninertia`, which scales the solver's tolerance, and
the sensors' and contacts' static tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from alloy import ops
from alloy.math import cross
from alloy.ops.reference.transmission import transmission
from alloy.physics import constraint, passive, smooth
from alloy.physics.model import Model, make_data, tensor_fields

MINMU = 1e-5  # mjMINMU: least friction of a contact


class Target(Protocol):
    """What one randomization changes; `alloy.scene_targets.Target` is one."""

    @property
    def field(self) -> str:
        """Name of the quantity."""
        ...

    @property
    def ids(self) -> tuple[int, ...]:
        """Geoms, bodies, joints, dofs or actuators."""
        ...

    @property
    def low(self) -> tuple[float, ...]:
        """Least draw by component."""
        ...

    @property
    def high(self) -> tuple[float, ...]:
        """Greatest draw by component."""
        ...

    @property
    def mode(self) -> str:
        """value, scale or add."""
        ...

    @property
    def shapes(self) -> tuple[str, ...]:
        """Of size: the kind of each geom."""
        ...

    @property
    def flags(self) -> tuple[bool, ...]:
        """Of size: the body is this geom, filled; of kv: a velocity servo."""
        ...

    @property
    def density(self) -> tuple[float, ...]:
        """Of density: nominal, by body."""
        ...


def draw_count(targets: Sequence[Target]) -> int:
    """How many numbers per world `apply` takes."""
    return sum(len(t.low) for t in targets)


def apply(m: Model, targets: Sequence[Target], draws: Tensor) -> Model:
    """A model whose worlds have the values drawn for them.

    Sizes change first, then densities, then the rest in the order given: a drawn mass is the mass,
    whatever was drawn for the size.

    Args:
        m: the nominal model; left alone.
        targets: what to change.
        draws: (W, draw_count(targets)) uniform in [0, 1); 0 stands for `low`, 1 for `high`.

    Returns:
        The model with rows for each world in the fields that were drawn or follow from them.

    Raises:
        ValueError: draws of another shape.
    """
    count = draw_count(targets)
    if draws.ndim != 2 or draws.shape[1] != count:
        raise ValueError(f"draws: expected shape (W, {count}), received {tuple(draws.shape)}")
    if not targets:
        return m
    values = _Values(m, draws.shape[0])
    split = draws.double().split([len(t.low) for t in targets], -1)
    order = {"size": 0, "density": 1}
    for t, u in sorted(zip(targets, split, strict=True), key=lambda x: order.get(x[0].field, 2)):
        low, high = values.constant(t.low), values.constant(t.high)
        _CHANGES[t.field](values, t, low + (high - low) * u)
    _derive(values)
    new = {name: _world_last(value.to(m.qpos0.dtype)) for name, value in values.new.items()}
    m = replace(m, **new)
    if new.keys() & {"body_invweight0", "con_friction"}:
        m = constraint.constants(m)
        rows = {f.name: getattr(m, f.name) for f in _tensors(m) if f.name.startswith("efc_")}
        m = replace(m, **{name: _world_last(value) for name, value in rows.items()})
    return m


def put_worlds(m: Model, worlds: Tensor, part: Model) -> Model:
    """Take some worlds of a randomized model from another one of the same nominal model.

    So a few worlds can be drawn anew without deriving all: `part = apply(nominal, targets,
    draws[worlds])`.

    Args:
        m: from `apply`, W worlds.
        worlds: (n,) which of them.
        part: from `apply` with the same targets, n worlds in the order of `worlds`.
    """
    count = max(getattr(m, f.name).shape[0] for f in _tensors(m))
    new = {}
    for f in _tensors(m):
        ours, theirs = getattr(m, f.name), getattr(part, f.name)
        if ours is not theirs and ours.shape[0] == count:
            new[f.name] = _world_last(ours.index_copy(0, worlds, theirs))
    return replace(m, **new)


def _tensors(m: Model) -> list[Field]:
    return [f for f in tensor_fields(Model) if getattr(m, f.name) is not None]


class _Values:
    """Model fields in float64 with a row for each world; `new` has those that were put."""

    def __init__(self, m: Model, worlds: int) -> None:
        self.m, self.worlds = m, worlds
        self.new: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name in self.new:
            return self.new[name]
        shared = getattr(self.m, name).double()
        return shared.expand(self.worlds, *shared.shape[1:])

    def put(self, name: str, at: tuple[Tensor | slice | int, ...], value: Tensor) -> None:
        """Set a part of a field, at indices behind the world axis."""
        whole = self[name].clone()
        whole[(slice(None), *at)] = value
        self.new[name] = whole

    def constant(self, numbers: Sequence[float]) -> Tensor:
        """Float64 on the model's device, copied there once."""
        return _on_device(tuple(numbers), torch.float64, str(self.m.qpos0.device))

    def index(self, ids: Sequence[int]) -> Tensor:
        """Indices on the model's device, copied there once."""
        return _on_device(tuple(ids), torch.int64, str(self.m.qpos0.device))


@lru_cache(maxsize=512)
def _on_device(numbers: tuple[float, ...], dtype: torch.dtype, device: str) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)


def _mixed(old: Tensor, draw: Tensor, mode: str) -> Tensor:
    """What a draw (W, ...) makes of old values of a shape that it broadcasts to."""
    if mode == "scale":
        return old * draw
    return old + draw if mode == "add" else draw.expand_as(old)


# ------------------------------------------------------------------ one function for each field

Change = Callable[[_Values, Target, Tensor], None]


def _column(name: str, *column: int) -> Change:
    """Elements of one field, or of one of its columns."""

    def change(values: _Values, t: Target, draw: Tensor) -> None:
        at = (values.index(t.ids), *column)
        old = values[name][(slice(None), *at)]
        values.put(name, at, _mixed(old, draw, t.mode))

    return change


def _com(values: _Values, t: Target, draw: Tensor) -> None:
    at = values.index(t.ids)
    old = values["body_ipos"][:, at]
    values.put("body_ipos", (at,), _mixed(old, draw.unsqueeze(1), t.mode))


def _gravity(values: _Values, t: Target, draw: Tensor) -> None:
    along = (slice(None),) if draw.shape[1] == 3 or t.mode == "scale" else (slice(2, 3),)
    values.put("gravity", along, _mixed(values["gravity"][:, along[0]], draw, t.mode))


def _scale_mass(values: _Values, bodies: Tensor, ratio: Tensor) -> None:
    """Mass and inertia of bodies times (W, len(bodies) or 1)."""
    values.put("body_mass", (bodies,), values["body_mass"][:, bodies] * ratio)
    inertia = values["body_inertia"][:, bodies] * ratio.unsqueeze(-1)
    values.put("body_inertia", (bodies,), inertia)


def _mass(values: _Values, t: Target, draw: Tensor) -> None:
    bodies = values.index(t.ids)
    total = values["body_mass"][:, bodies].sum(-1, keepdim=True)
    _scale_mass(values, bodies, _mixed(total, draw, t.mode) / total)


def _density(values: _Values, t: Target, draw: Tensor) -> None:
    nominal = values.constant(t.density or (1.0,))
    ratio = _mixed(nominal.expand(len(draw), -1), draw, t.mode) / nominal
    _scale_mass(values, values.index(t.ids), ratio)


def _size(values: _Values, t: Target, draw: Tensor) -> None:
    for geom, shape, solid in zip(t.ids, t.shapes, t.flags, strict=True):
        factor = values.constant(_SIZE_FACTORS[shape])
        n = len(factor)
        old = values["geom_size"][:, geom]
        size = torch.cat([_mixed(old[:, :n] * factor, draw, t.mode) / factor, old[:, n:]], -1)
        values.put("geom_size", (geom,), size)
        values.put("geom_rbound", (geom,), _bounding_radius(shape, size))
        if solid:
            body = values.m.derived["geom_bodyid"][geom : geom + 1]
            (before, _), (after, unit) = _solid(shape, old), _solid(shape, size)
            mass = values["body_mass"][:, body] * (after / before).unsqueeze(-1)
            values.put("body_mass", (body,), mass)
            values.put("body_inertia", (body,), (mass * unit).unsqueeze(1))


def _kp(values: _Values, t: Target, draw: Tensor) -> None:
    at = values.index(t.ids)
    kp = _mixed(values["actuator_gainprm"][:, at, 0], draw, t.mode)
    values.put("actuator_gainprm", (at, 0), kp)
    values.put("actuator_biasprm", (at, 1), -kp)


def _kv(values: _Values, t: Target, draw: Tensor) -> None:
    at = values.index(t.ids)
    kv = _mixed(-values["actuator_biasprm"][:, at, 2], draw, t.mode)
    values.put("actuator_biasprm", (at, 2), -kv)
    gain = values["actuator_gainprm"][:, at, 0]  # of a velocity servo, the same number
    is_velocity = values.constant(t.flags).bool()
    values.put("actuator_gainprm", (at, 0), torch.where(is_velocity, kv, gain))


_CHANGES: dict[str, Change] = {
    "friction": _column("geom_friction", 0),
    "friction_torsional": _column("geom_friction", 1),
    "friction_rolling": _column("geom_friction", 2),
    "size": _size,
    "mass": _mass,
    "density": _density,
    "com": _com,
    "damping": _column("dof_damping"),
    "armature": _column("dof_armature"),
    "frictionloss": _column("dof_frictionloss"),
    "stiffness": _column("jnt_stiffness"),
    "kp": _kp,
    "kv": _kv,
    "gain": _column("actuator_gainprm", 0),
    "gravity": _gravity,
}


# ------------------------------------------------------------------ shapes

# what a scene calls the size of a shape, over what MuJoCo stores: radius, half lengths
_SIZE_FACTORS = {
    "sphere": (1.0,),
    "capsule": (1.0, 2.0),
    "cylinder": (1.0, 2.0),
    "ellipsoid": (2.0, 2.0, 2.0),
    "box": (2.0, 2.0, 2.0),
}


def _solid(shape: str, size: Tensor) -> tuple[Tensor, Tensor]:
    """Volume (W,) and inertia for a mass of 1 about the principal axes (W, 3), filled uniformly."""
    a, b, c = size.unbind(-1)
    if shape == "sphere":
        return 4 / 3 * math.pi * a**3, (0.4 * a * a).unsqueeze(-1).expand(-1, 3)
    if shape in ("ellipsoid", "box"):
        square = size * size
        others = square.sum(-1, keepdim=True) - square
        if shape == "box":
            return 8 * a * b * c, others / 3
        return 4 / 3 * math.pi * a * b * c, others / 5
    tube = 2 * math.pi * a * a * b  # a: radius, b: half length
    across, along = tube * (a * a / 4 + b * b / 3), tube * a * a / 2
    volume = tube
    if shape == "capsule":  # two half balls, their centres of mass 3/8 of a radius beyond the ends
        ball = 4 / 3 * math.pi * a**3
        volume = tube + ball
        across = across + ball * (0.4 * a * a + b * b + 0.75 * a * b)
        along = along + ball * 0.4 * a * a
    return volume, torch.stack([across, across, along], -1) / volume.unsqueeze(-1)


def _bounding_radius(shape: str, size: Tensor) -> Tensor:
    a, b, _ = size.unbind(-1)
    if shape == "sphere":
        return a
    if shape == "capsule":
        return a + b
    if shape == "cylinder":
        return torch.hypot(a, b)
    return size.amax(-1) if shape == "ellipsoid" else torch.linalg.vector_norm(size, dim=-1)


# ------------------------------------------------------------------ what follows


def _derive(values: _Values) -> None:
    """Everything that follows from the fields put so far, the constants of the rows aside."""
    m = values.m
    if values.new.keys() & {"body_mass", "body_inertia", "body_ipos", "dof_armature"} and m.nv:
        values.new["body_subtreemass"] = values["body_mass"] @ m.tree.subtree.double().mT
        values.new |= _inverse_weights(values)
    if "geom_friction" in values.new and m.ncon:
        con = m.derived["contact"]
        both = torch.stack([values["geom_friction"][:, g] for g in (con.geom1, con.geom2)], -1)
        mixed = (both * con.take.double().unsqueeze(1)).amax(-1)[..., [0, 0, 1, 2, 2]]
        friction = torch.where(con.is_pair, con.pair_friction.double(), mixed)
        values.new["con_friction"] = friction.clamp(min=MINMU)


def _inverse_weights(values: _Values) -> dict[str, Tensor]:
    """What mj_setConst says of inertia at qpos0: of bodies, dofs, tendons, and actuators' acc0."""
    m = _double(values)
    tree = m.tree
    d = smooth.mass_matrix(m, smooth.kinematics(m, make_data(m, values.worlds)))
    # factorised from the leaves to the root, which keeps the zeros of M
    unit = torch.eye(m.nv, dtype=d.M.dtype, device=d.M.device).expand_as(d.M)
    inverse = torch.cholesky_solve(unit, ops.factor(d.M)).flip(-1, -2)

    joint, turns = tree.dof_anchor, tree.dof_is_rot
    alike = ((joint == joint.unsqueeze(-1)) & (turns == turns.mT)).double()
    dof = torch.diagonal(inverse, dim1=-2, dim2=-1) @ (alike / alike.sum(0))

    arm = (d.xipos - d.subtree_com[:, tree.body_root]).unsqueeze(2)  # (W, nbody, 1, 3)
    rot, lin = d.cdof.unsqueeze(1).split(3, -1)  # (W, 1, nv, 3)
    moves = tree.moves.unsqueeze(-1)
    jacobian = torch.stack([lin + cross(rot, arm), rot.expand(-1, arm.shape[1], -1, -1)], 1)
    jacobian = (jacobian * moves).transpose(-1, -2)  # (W, 2, nbody, 3, nv)
    weight = ((jacobian @ inverse[:, None, None]) * jacobian).sum(-1).mean(-1)  # (W, 2, nbody)
    weights = {"body_invweight0": weight.mT, "dof_invweight0": dof}
    if m.ntendon:
        d = passive.tendon(m, d)
        weights["tendon_invweight0"] = ((d.ten_J @ inverse) * d.ten_J).sum(-1)
    if m.nu:
        t = m.derived["actuation"]
        moment = transmission(m, d, replace(t, adhesion=None))[2]
        moment = m.actuator_gear[..., :1] * t.moment if moment is None else moment
        weights["actuator_acc0"] = torch.linalg.vector_norm(moment @ inverse, dim=-1)
    return weights


def _double(values: _Values) -> Model:
    """The model with its new values in float64; without geoms and sites if nothing needs them."""
    m = values.m
    new = {f.name: getattr(m, f.name).double() for f in _tensors(m)} | values.new
    new["derived"] = m.derived | {k: _in_double(m.derived[k]) for k in ("passive", "actuation")}
    t = m.derived["actuation"]
    if not m.ntendon and t.sites is None and t.cranks is None:
        new |= {"ngeom": 0, "nsite": 0}
    return replace(m, tree=_in_double(m.tree), **new)


def _in_double(table: Any) -> Any:
    """Tables of a stage with their constants in float64."""
    if isinstance(table, Tensor):
        return table.double() if table.is_floating_point() else table
    if isinstance(table, tuple):
        return tuple(_in_double(x) for x in table)
    if not is_dataclass(table) or isinstance(table, type):
        return table
    return replace(table, **{f.name: _in_double(getattr(table, f.name)) for f in fields(table)})


def _world_last(value: Tensor) -> Tensor:
    return value.movedim(0, -1).contiguous().movedim(-1, 0)
