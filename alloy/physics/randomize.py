"""Randomized quantities: from a model shared by all worlds to one whose worlds differ.

Everything starts from the nominal model, so that nothing compounds over episodes, and whatever
MuJoCo's compiler derives from a changed quantity is derived again (see randomize_derive.py):
inertia, masses of subtrees, the inverse weights of bodies, dofs and tendons, lengths of tendons and
anchors of equalities at qpos0, bounding radii, mixed contact parameters and the constants of the
constraint rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from alloy.math import quat_from_axis_angle, quat_mul, quat_to_mat
from alloy.physics import constraint
from alloy.physics.model import Model, present
from alloy.physics.randomize_derive import (
    SIZE_FACTORS,
    Values,
    bounding_radius,
    derive,
    filled,
)

# What is a column of a model's field, or all of its columns, and nothing else. The fields are
# mjModel's too, but for qpos_spring and dof_*, which have a row for each qpos or dof of a joint.
PLAIN: dict[str, tuple[str, int | slice]] = {
    "friction": ("geom_friction", 0),
    "friction_torsional": ("geom_friction", 1),
    "friction_rolling": ("geom_friction", 2),
    "geom_pos": ("geom_pos", slice(3)),
    "geom_solref": ("geom_solref", slice(2)),
    "geom_solimp": ("geom_solimp", slice(5)),
    "com": ("body_ipos", slice(3)),
    "inertia": ("body_inertia", slice(3)),
    "body_pos": ("body_pos", slice(3)),
    "gravcomp": ("body_gravcomp", slice(None)),
    "site_pos": ("site_pos", slice(3)),
    "damping": ("dof_damping", slice(None)),
    "armature": ("dof_armature", slice(None)),
    "frictionloss": ("dof_frictionloss", slice(None)),
    "solreffriction": ("dof_solref", slice(2)),
    "solimpfriction": ("dof_solimp", slice(5)),
    "stiffness": ("jnt_stiffness", slice(None)),
    "springref": ("qpos_spring", slice(None)),
    "joint_range": ("jnt_range", slice(2)),
    "actuatorfrcrange": ("jnt_actfrcrange", slice(2)),
    "solreflimit": ("jnt_solref", slice(2)),
    "solimplimit": ("jnt_solimp", slice(5)),
    "gain": ("actuator_gainprm", 0),
    "forcerange": ("actuator_forcerange", slice(2)),
    "timeconst": ("actuator_dynprm", 0),
    "tendon_stiffness": ("tendon_stiffness", slice(None)),
    "tendon_damping": ("tendon_damping", slice(None)),
    "tendon_armature": ("tendon_armature", slice(None)),
    "tendon_frictionloss": ("tendon_frictionloss", slice(None)),
    "tendon_range": ("tendon_range", slice(2)),
    "tendon_springlength": ("tendon_lengthspring", slice(2)),
    "tendon_solreflimit": ("tendon_solref_lim", slice(2)),
    "tendon_solimplimit": ("tendon_solimp_lim", slice(5)),
    "tendon_solreffriction": ("tendon_solref_fri", slice(2)),
    "tendon_solimpfriction": ("tendon_solimp_fri", slice(5)),
    "equality_solref": ("eq_solref", slice(2)),
    "equality_solimp": ("eq_solimp", slice(5)),
    "polycoef": ("eq_data", slice(5)),
    "anchor": ("eq_data", slice(3)),
}
_IN_ROWS = {  # what `constraint.constants` reads
    "body_invweight0", "con_friction", "con_solref", "con_solimp", "jnt_range", "jnt_solref",
    "jnt_solimp", "dof_solref", "dof_solimp", "tendon_solref_lim", "tendon_solimp_lim",
    "tendon_solref_fri", "tendon_solimp_fri", "eq_solref", "eq_solimp",
}  # fmt: skip


class Target(Protocol):
    """What one randomization changes; `alloy.scene_targets.Target` is one."""

    @property
    def field(self) -> str:
        """Name of the quantity."""
        ...

    @property
    def ids(self) -> tuple[int, ...]:
        """Rows of the field: geoms, bodies, joints, dofs, ..."""
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
    values = Values(m, draws.shape[0])
    split = draws.double().split([len(t.low) for t in targets], -1)
    order = {"size": 0, "density": 1}
    for t, u in sorted(zip(targets, split, strict=True), key=lambda x: order.get(x[0].field, 2)):
        low, high = values.constant(t.low), values.constant(t.high)
        _CHANGES[t.field](values, t, low + (high - low) * u)
    derive(values)
    new = {name: _world_last(value.to(m.qpos0.dtype)) for name, value in values.new.items()}
    m = replace(m, **new)
    if new.keys() & _IN_ROWS:
        m = constraint.constants(m)
        rows = {f.name: getattr(m, f.name) for f in present(m) if f.name.startswith("efc_")}
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
    count = max(getattr(m, f.name).shape[0] for f in present(m))
    new = {}
    for f in present(m):
        ours, theirs = getattr(m, f.name), getattr(part, f.name)
        if ours is not theirs and ours.shape[0] == count:
            new[f.name] = _world_last(ours.index_copy(0, worlds, theirs))
    return replace(m, **new)


def _mixed(old: Tensor, draw: Tensor, mode: str) -> Tensor:
    """What a draw (W, ...) makes of old values of a shape that it broadcasts to."""
    if mode == "scale":
        return old * draw
    return old + draw if mode == "add" else draw.expand_as(old)


# ------------------------------------------------------------------ one function for each field

Change = Callable[[Values, Target, Tensor], None]


def _plain(name: str, columns: int | slice) -> Change:
    """Elements of one field, or of some of its columns."""

    def change(values: Values, t: Target, draw: Tensor) -> None:
        field = values[name]
        at = (values.index(t.ids), columns) if field.ndim > 2 else (values.index(t.ids),)
        old = field[(slice(None), *at)]
        values.put(name, at, _mixed(old, draw.unsqueeze(1) if old.ndim > 2 else draw, t.mode))

    return change


def _turned(name: str) -> Change:
    """Orientations, turned by rotation vectors in the elements' own axes."""

    def change(values: Values, t: Target, draw: Tensor) -> None:
        at = (values.index(t.ids),)
        angle = torch.linalg.vector_norm(draw, dim=-1)
        turn = quat_from_axis_angle(draw / angle.clamp(min=1e-12).unsqueeze(-1), angle)
        quat = quat_mul(values[f"{name}_quat"][:, at[0]], turn.unsqueeze(1))
        values.put(f"{name}_quat", at, quat)
        if name != "body":
            values.put(f"{name}_mat", at, quat_to_mat(quat))

    return change


def _world(name: str) -> Change:
    """A vector of the world, or its z component."""

    def change(values: Values, t: Target, draw: Tensor) -> None:
        every = draw.shape[1] == 3 or t.mode == "scale"
        along = slice(None) if every else slice(2, 3)
        values.put(name, (along,), _mixed(values[name][:, along], draw, t.mode))

    return change


def _gear(values: Values, t: Target, draw: Tensor) -> None:
    every = draw.shape[1] == 6 or t.mode == "scale"
    _plain("actuator_gear", slice(None) if every else 0)(values, t, draw)


def _scale_mass(values: Values, bodies: Tensor, ratio: Tensor) -> None:
    """Mass and inertia of bodies times (W, len(bodies) or 1)."""
    values.put("body_mass", (bodies,), values["body_mass"][:, bodies] * ratio)
    inertia = values["body_inertia"][:, bodies] * ratio.unsqueeze(-1)
    values.put("body_inertia", (bodies,), inertia)


def _mass(values: Values, t: Target, draw: Tensor) -> None:
    bodies = values.index(t.ids)
    total = values["body_mass"][:, bodies].sum(-1, keepdim=True)
    _scale_mass(values, bodies, _mixed(total, draw, t.mode) / total)


def _density(values: Values, t: Target, draw: Tensor) -> None:
    nominal = values.constant(t.density or (1.0,))
    ratio = _mixed(nominal.expand(len(draw), -1), draw, t.mode) / nominal
    _scale_mass(values, values.index(t.ids), ratio)


def _size(values: Values, t: Target, draw: Tensor) -> None:
    for geom, shape, solid in zip(t.ids, t.shapes, t.flags, strict=True):
        factor = values.constant(SIZE_FACTORS[shape])
        n = len(factor)
        old = values["geom_size"][:, geom]
        size = torch.cat([_mixed(old[:, :n] * factor, draw, t.mode) / factor, old[:, n:]], -1)
        values.put("geom_size", (geom,), size)
        values.put("geom_rbound", (geom,), bounding_radius(shape, size))
        if solid:
            body = values.m.derived["geom_bodyid"][geom : geom + 1]
            (before, _), (after, unit) = filled(shape, old), filled(shape, size)
            mass = values["body_mass"][:, body] * (after / before).unsqueeze(-1)
            values.put("body_mass", (body,), mass)
            values.put("body_inertia", (body,), (mass * unit).unsqueeze(1))


def _kp(values: Values, t: Target, draw: Tensor) -> None:
    at = values.index(t.ids)
    kp = _mixed(values["actuator_gainprm"][:, at, 0], draw, t.mode)
    values.put("actuator_gainprm", (at, 0), kp)
    values.put("actuator_biasprm", (at, 1), -kp)


def _kv(values: Values, t: Target, draw: Tensor) -> None:
    at = values.index(t.ids)
    kv = _mixed(-values["actuator_biasprm"][:, at, 2], draw, t.mode)
    values.put("actuator_biasprm", (at, 2), -kv)
    gain = values["actuator_gainprm"][:, at, 0]  # of a velocity servo, the same number
    is_velocity = values.constant(t.flags).bool()
    values.put("actuator_gainprm", (at, 0), torch.where(is_velocity, kv, gain))


_CHANGES: dict[str, Change] = {
    **{field: _plain(*where) for field, where in PLAIN.items()},
    "size": _size,
    "mass": _mass,
    "density": _density,
    "geom_quat": _turned("geom"),
    "body_quat": _turned("body"),
    "site_quat": _turned("site"),
    "kp": _kp,
    "kv": _kv,
    "gear": _gear,
    "gravity": _world("gravity"),
    "wind": _world("wind"),
}


def _world_last(value: Tensor) -> Tensor:
    return value.movedim(0, -1).contiguous().movedim(-1, 0)
