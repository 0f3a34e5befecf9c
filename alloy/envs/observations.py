"""What a policy sees: terms by name or by function, laid side by side into one row per world.

A term is a name or a function of a view that returns [W] or [W, k]. A name is looked up among the
entities first (their joint positions, then their joint velocities, as in qpos and qvel: for a free
body its pose 7 and its velocity 6), then among bodies (position 3, quaternion 4, linear and angular
velocity 3 + 3 in the world frame), then sensors and joints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alloy import math
from alloy.envs.checks import Check, Point, position
from alloy.names import UnknownName

if TYPE_CHECKING:
    from alloy.envs.view import EnvView

Term = str | Callable[["EnvView"], Tensor]
Spec = Sequence[Term] | Mapping[str, Sequence[Term]]
DEFAULT_GROUP = "policy"


def joint_positions(entity: str) -> Check:
    """Positions of an entity's joints, [W, n]: a free joint has 7 numbers, a ball joint 4."""
    return Check(
        lambda sim: torch.cat([j.qpos for j in sim.joints_of(entity)], -1),
        f"joint_positions({entity!r})",
    )


def joint_velocities(entity: str) -> Check:
    """Velocities of an entity's joints, [W, n]; as in qvel, a free body turns in its own frame."""
    return Check(
        lambda sim: torch.cat([j.qvel for j in sim.joints_of(entity)], -1),
        f"joint_velocities({entity!r})",
    )


def place(point: Point) -> Check:
    """World position of a body, site or geom, [W, 3]."""
    return Check(lambda sim: position(sim, point), f"place({point!r})")


def offset(a: Point, b: Point) -> Check:
    """World vector from `a` to `b`, [W, 3]."""
    return Check(lambda sim: position(sim, b) - position(sim, a), f"offset({a!r}, {b!r})")


def motion(body: str) -> Check:
    """Position 3, quaternion 4, linear and angular velocity 3 + 3 of a body in the world frame."""

    def value(sim: EnvView) -> Tensor:
        at = sim.frame(body)
        return torch.cat([at.pos, at.quat, at.linvel, at.angvel], -1)

    return Check(value, f"motion({body!r})")


def up(body: str) -> Check:
    """The world's vertical seen from a body's frame, [W, 3]: (0, 0, 1) where it stands upright."""
    return Check(lambda sim: sim.frame(body).mat[:, 2, :], f"up({body!r})")


def sensor(name: str, noise: float = 0.0) -> Check:
    """Reading of a sensor, [W, dim]; exact, unless noise is asked for.

    Args:
        name: the sensor.
        noise: how many times the standard deviation that the model gives the sensor, its attribute
            `noise`. Normal numbers are drawn anew in every control step and added to what the
            sensor shows: to a positive number only where it is not zero, and it stays positive.
            Axes and quaternions are turned by such an angle (rad) about an axis drawn at random.

    Raises:
        ValueError: a negative scale, or a sensor whose noise is zero in the model.
    """
    if not noise:
        return Check(lambda sim: sim.sensor(name), f"sensor({name!r})")
    if not 0 < noise < float("inf"):
        raise ValueError(
            f"noise of sensor {name!r} is {noise}; it must be 0 for none, or a factor above 0 of "
            f"the standard deviation in the model"
        )

    def value(sim: EnvView) -> Tensor:
        return _noisy(sim.sensor(name), sim, name, noise)

    return Check(value, f"sensor({name!r}, noise={noise:g})")


def _noisy(reading: Tensor, sim: EnvView, name: str, scale: float) -> Tensor:
    """A reading with the noise of its kind, as MuJoCo's own was while it had any."""
    said = sim.sensor_noise(name)
    if not said.std > 0:
        raise ValueError(
            f"sensor {name!r} has no noise in the model; give it a standard deviation there, as in "
            f'noise="0.01", or leave noise= out'
        )
    rng, std = sim.rng(f"noise of sensor {name}"), scale * said.std
    if said.kind in ("axis", "quaternion"):
        angle, axis = rng.normal(std).squeeze(-1), math.normalize(rng.normal(n=3))[0]
        turn = math.quat_from_axis_angle(axis, angle)
        if said.kind == "quaternion":
            return math.quat_mul(reading, turn)
        return math.rotate(math.quat_to_mat(turn), reading)
    moved = reading + rng.normal(std, reading.shape[-1])
    if said.kind == "positive":
        return torch.where(reading > 0, moved.clamp(min=0.0), reading)
    return moved


def last_action() -> Check:
    """The action of the step that led here, after clipping; zeros at the start of an episode."""
    return Check(lambda sim: sim.action, "last_action()")


def _joint(name: str) -> Check:
    def value(sim: EnvView) -> Tensor:
        joint = sim.joint(name)
        return torch.cat([joint.qpos, joint.qvel], -1)

    return Check(value, name)


def _entity(name: str) -> Check:
    def value(sim: EnvView) -> Tensor:
        joints = sim.joints_of(name)
        return torch.cat([*(j.qpos for j in joints), *(j.qvel for j in joints)], -1)

    return Check(value, name)


def as_term(term: Term, sim: EnvView) -> Check:
    """The function behind a term of an observation.

    Raises:
        UnknownName: no entity, body, sensor or joint of that name.
        TypeError: neither a name nor a function.
    """
    if isinstance(term, Check):
        return term
    if callable(term):
        return Check(term, getattr(term, "__name__", type(term).__name__))
    if not isinstance(term, str):
        raise TypeError(
            f"an observation term must be a name or a function (sim) -> [W] or [W, k], not {term!r}"
        )
    names = sim.names()
    if term in names["entities"] and sim.joints_of(term):
        return _entity(term)
    if term in names["entities"] or term in names["bodies"]:
        return motion(term).named(term)
    if term in names["sensors"]:
        return sensor(term).named(term)
    if term in names["joints"]:
        return _joint(term)
    known = [n for kind in ("entities", "bodies", "sensors", "joints") for n in names[kind]]
    raise UnknownName("entity, body, sensor or joint", term, known)


class Observations:
    """The groups of an observation, ready to be computed: built once per environment."""

    def __init__(self, spec: Spec, sim: EnvView) -> None:
        """Look up every term and learn its width from `sim`, a view of the starting state."""
        if isinstance(spec, str):
            raise TypeError(
                f"obs must be a list of terms or a dict of lists, not the name {spec!r}"
            )
        self.grouped = isinstance(spec, Mapping)
        groups: Mapping[str, Any] = spec if isinstance(spec, Mapping) else {DEFAULT_GROUP: spec}
        self.groups = {g: [as_term(t, sim) for t in terms] for g, terms in groups.items()}
        self.widths: dict[str, dict[str, int]] = {}
        for group, terms in self.groups.items():
            if not terms:
                raise ValueError(f"obs group {group!r} is empty; give it at least one term")
            self.widths[group] = {t.name: _column(t, sim).shape[-1] for t in terms}

    def size(self, group: str) -> int:
        """Numbers per world in a group."""
        return sum(self.widths[group].values())

    def columns(self) -> dict[str, dict[str, slice]]:
        """Which columns of each group each term fills."""
        out: dict[str, dict[str, slice]] = {}
        for group, widths in self.widths.items():
            ends = list(itertools.accumulate(widths.values()))
            starts = [0, *ends[:-1]]
            slices = [slice(a, b) for a, b in zip(starts, ends, strict=True)]
            out[group] = dict(zip(widths, slices, strict=True))
        return out

    def __call__(self, sim: EnvView) -> dict[str, Tensor]:
        """Each group's rows, [W, k]."""
        return {g: torch.cat([_column(t, sim) for t in ts], -1) for g, ts in self.groups.items()}


def _column(term: Check, sim: EnvView) -> Tensor:
    value = term(sim)
    if not isinstance(value, Tensor):
        raise TypeError(f"obs term {term.name} must return a tensor, not {type(value).__name__}")
    if value.ndim == 1:
        value = value.unsqueeze(-1)
    if value.ndim != 2 or value.shape[0] != sim.num_worlds:
        raise ValueError(
            f"obs term {term.name} must return shape ({sim.num_worlds},) or ({sim.num_worlds}, k), "
            f"not {tuple(term(sim).shape)}"
        )
    return value.to(sim.qpos.dtype)
