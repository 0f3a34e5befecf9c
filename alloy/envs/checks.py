"""What a task asks of a world: plain functions of tensors, `(sim) -> [W]`, with names and algebra.

A check is called with an `EnvView`, which reads like the simulator (`sim.body("cube").pos`) and
adds what the episode knows (`sim.action`, `sim.steps`, `sim.previous`). It returns one number or
one bool per world. Checks combine with `& | ~`, with `+ - * /`, with comparisons, and with plain
functions of the same shape, so a reward is written the way it is said:

    C.lifted("cube", by=0.05) & C.upright("cube") & (lambda sim: sim.steps > 10)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from alloy.envs.view import EnvView

Function = Callable[["EnvView"], Tensor]
Point = str | Sequence[float]


@dataclass(frozen=True, eq=False)
class Memory:
    """What a check remembers of its episode: one tensor [W, ...] per key in the state.

    Two checks that ask for the same key share it: `start` must then mean the same.
    """

    key: str
    start: Function  # its value on the state an episode begins with
    update: Callable[[EnvView, Tensor], Tensor] | None = None  # its value after a step; None: kept


class Check:
    """A named function of a view that returns one number or bool per world, [W]."""

    def __init__(self, function: Function, name: str, memories: Sequence[Memory] = ()) -> None:
        """Name a function; `memories` are what it reads with `sim.memory(key)`."""
        self.function = function
        self.name = name
        self.memories = tuple(memories)

    def __call__(self, sim: EnvView) -> Tensor:
        """The value in every world, [W]."""
        return self.function(sim)

    def __repr__(self) -> str:
        """The check as it was written."""
        return self.name

    # logic, for checks that return bool
    def __and__(self, other: Operand) -> Check:
        return _combine(torch.logical_and, "&", self, other)

    def __rand__(self, other: Operand) -> Check:
        return _combine(torch.logical_and, "&", other, self)

    def __or__(self, other: Operand) -> Check:
        return _combine(torch.logical_or, "|", self, other)

    def __ror__(self, other: Operand) -> Check:
        return _combine(torch.logical_or, "|", other, self)

    def __invert__(self) -> Check:
        return Check(lambda sim: ~_truth(self, sim), f"~{self.name}", self.memories)

    # arithmetic
    def __add__(self, other: Operand) -> Check:
        return _combine(operator.add, "+", self, other)

    def __radd__(self, other: Operand) -> Check:
        return _combine(operator.add, "+", other, self)

    def __sub__(self, other: Operand) -> Check:
        return _combine(operator.sub, "-", self, other)

    def __rsub__(self, other: Operand) -> Check:
        return _combine(operator.sub, "-", other, self)

    def __mul__(self, other: Operand) -> Check:
        return _combine(operator.mul, "*", self, other)

    def __rmul__(self, other: Operand) -> Check:
        return _combine(operator.mul, "*", other, self)

    def __truediv__(self, other: Operand) -> Check:
        return _combine(operator.truediv, "/", self, other)

    def __rtruediv__(self, other: Operand) -> Check:
        return _combine(operator.truediv, "/", other, self)

    def __pow__(self, exponent: float) -> Check:
        return self.map(lambda x: x**exponent, f"{self.name}**{exponent}")

    def __neg__(self) -> Check:
        return self.map(operator.neg, f"-{self.name}")

    def __abs__(self) -> Check:
        return self.map(torch.abs, f"abs({self.name})")

    # comparisons
    def __lt__(self, other: Operand) -> Check:
        return _combine(operator.lt, "<", self, other)

    def __le__(self, other: Operand) -> Check:
        return _combine(operator.le, "<=", self, other)

    def __gt__(self, other: Operand) -> Check:
        return _combine(operator.gt, ">", self, other)

    def __ge__(self, other: Operand) -> Check:
        return _combine(operator.ge, ">=", self, other)

    # shapes of rewards
    def exp(self) -> Check:
        """E to the power of this check."""
        return self.map(torch.exp, f"exp({self.name})")

    def tanh(self) -> Check:
        """Hyperbolic tangent of this check."""
        return self.map(torch.tanh, f"tanh({self.name})")

    def clip(self, low: float | None = None, high: float | None = None) -> Check:
        """This check kept between `low` and `high`."""
        return self.map(lambda x: torch.clamp(x, low, high), f"clip({self.name}, {low}, {high})")

    def map(self, function: Callable[[Tensor], Tensor], name: str) -> Check:
        """A function of this check's value alone."""
        return Check(lambda sim: function(_number(self, sim)), name, self.memories)

    def named(self, name: str) -> Check:
        """The same check under another name."""
        return Check(self.function, name, self.memories)


Operand = Check | Function | float


def _truth(check: Check, sim: EnvView) -> Tensor:
    value = check(sim)
    if value.dtype != torch.bool:
        raise TypeError(
            f"{check.name} gives {value.dtype}, but & | ~ combine bool checks; compare it first, "
            f"as in ({check.name} > 0.5)"
        )
    return value


def _number(check: Check, sim: EnvView) -> Tensor:
    """The value as a number: a bool counts as 0 or 1."""
    value = check(sim)
    return value.to(sim.qpos.dtype) if value.dtype == torch.bool else value


def as_check(value: Any, what: str = "a check") -> Check:
    """A check from a check, a function of a view, or a number."""
    if isinstance(value, Check):
        return value
    if isinstance(value, (bool, int, float)):
        number = float(value)
        return Check(lambda sim: torch.full_like(sim.time, number), f"{value}")
    if callable(value):
        return Check(cast("Function", value), getattr(value, "__name__", type(value).__name__))
    raise TypeError(
        f"{what} must be a check of alloy.envs.checks, a function (sim) -> [W] or a number, "
        f"not {type(value).__name__}"
    )


def _combine(op: Callable[..., Any], sign: str, left: Operand, right: Operand) -> Check:
    a, b = as_check(left, f"the left side of {sign}"), as_check(right, f"the right side of {sign}")
    value = _truth if sign in "&|" else _number
    memories = tuple({m.key: m for m in (*a.memories, *b.memories)}.values())
    return Check(
        lambda sim: op(value(a, sim), value(b, sim)), f"({a.name} {sign} {b.name})", memories
    )


# Where things are


def position(sim: EnvView, point: Point) -> Tensor:
    """World position, [W, 3]: of a body, entity, site or geom by name, or of a fixed point."""
    if isinstance(point, str):
        return sim.frame(point).pos
    if len(point) != 3:
        raise ValueError(f"a point must be a name or three numbers, not {point!r}")
    return torch.stack([torch.full_like(sim.time, float(x)) for x in point], -1)


def height(body: str) -> Check:
    """Height of a body, site or geom above z = 0, m."""
    return Check(lambda sim: position(sim, body)[:, 2], f"height({body!r})")


def distance(a: Point, b: Point) -> Check:
    """Distance between two bodies, sites, geoms or fixed points, m."""
    return Check(
        lambda sim: torch.linalg.vector_norm(position(sim, a) - position(sim, b), dim=-1),
        f"distance({a!r}, {b!r})",
    )


def reached(a: Point, b: Point, within: float = 0.02) -> Check:
    """Whether `a` is no further than `within` metres from `b`."""
    return (distance(a, b) <= within).named(f"reached({a!r}, {b!r}, within={within})")


def near(a: Point, b: Point, scale: float) -> Check:
    """1 where `a` is at `b`, falling as exp(-(distance / scale)^2); a reward that is never flat."""
    return (-((distance(a, b) / scale) ** 2)).exp().named(f"near({a!r}, {b!r}, {scale})")


def lifted(body: str, by: float) -> Check:
    """Whether a body, site or geom is at least `by` metres above where its episode began."""
    risen = since_start(height(body))
    return (risen >= by).named(f"lifted({body!r}, by={by})")


def below(body: str, z: float) -> Check:
    """Whether a body, site or geom is lower than `z` metres: it fell."""
    return (height(body) < z).named(f"below({body!r}, {z})")


def tilt(body: str) -> Check:
    """Angle between the z axis of a body and the vertical, from 0 to pi."""
    return Check(
        lambda sim: torch.acos(sim.frame(body).mat[:, 2, 2].clamp(-1.0, 1.0)), f"tilt({body!r})"
    )


def upright(body: str, within: float = 0.35) -> Check:
    """Whether the z axis of a body is within `within` radians of the vertical."""
    cosine = math.cos(within)
    return Check(
        lambda sim: sim.frame(body).mat[:, 2, 2] >= cosine, f"upright({body!r}, within={within})"
    )


def since_start(value: Operand) -> Check:
    """How much a number has changed since the episode began."""
    check = as_check(value)
    memory = Memory(f"{check.name} at the start", lambda sim: _number(check, sim))
    return Check(
        lambda sim: _number(check, sim) - sim.memory(memory.key),
        f"since_start({check.name})",
        (*check.memories, memory),
    )


def held(value: Operand, steps: int) -> Check:
    """Whether a bool check has been true for `steps` control steps in a row, this one included."""
    check = as_check(value)
    if steps < 1:
        raise ValueError(f"held needs steps of at least 1, not {steps}")
    memory = Memory(
        f"steps in a row of {check.name}",
        lambda sim: torch.zeros_like(sim.steps),
        lambda sim, count: torch.where(_truth(check, sim), count + 1, 0),
    )
    return Check(
        lambda sim: sim.memory(memory.key) >= steps,
        f"held({check.name}, steps={steps})",
        (*check.memories, memory),
    )


# How things move

_AXES = {"x": 0, "y": 1, "z": 2}


def velocity(body: str, axis: str | None = None) -> Check:
    """Linear velocity of a body or site along a world axis, or without an axis its speed, m/s."""
    if axis is not None and axis not in _AXES:
        raise ValueError(f"axis must be one of {sorted(_AXES)} or None for the speed, not {axis!r}")

    def value(sim: EnvView) -> Tensor:
        linvel = sim.frame(body).linvel
        return torch.linalg.vector_norm(linvel, dim=-1) if axis is None else linvel[:, _AXES[axis]]

    return Check(value, f"velocity({body!r}, {axis!r})")


def in_contact(a: str, b: str | None = None) -> Check:
    """Whether geom, body or entity `a` touches `b`, or without `b` anything."""
    return Check(lambda sim: sim.in_contact(a, b), f"in_contact({a!r}, {b!r})")


def touched(a: str, b: str | None = None) -> Check:
    """As `in_contact`, in any physics step of the control step; see `EnvView.touched`."""
    return Check(lambda sim: sim.touched(a, b), f"touched({a!r}, {b!r})")


def joint_limit(entity: str, margin: float = 0.0) -> Check:
    """Whether a slide or hinge of an entity is within `margin` (m or rad) of its range's end."""

    def value(sim: EnvView) -> Tensor:
        joints = [j for j in sim.joints_of(entity) if j.limited and j.qpos.shape[-1] == 1]
        if not joints:
            raise ValueError(
                f"{entity!r} has no slide or hinge joint with a range, "
                f"so joint_limit has nothing to judge"
            )
        room = [torch.minimum(j.pos - j.range[..., 0], j.range[..., 1] - j.pos) for j in joints]
        return torch.stack(room, -1).amin(-1) <= margin

    return Check(value, f"joint_limit({entity!r}, margin={margin})")


def joint_speed(entity: str) -> Check:
    """Sum of the squared velocities of an entity's joints."""
    return Check(
        lambda sim: sum((j.qvel.square().sum(-1) for j in sim.joints_of(entity)), 0.0 * sim.time),
        f"joint_speed({entity!r})",
    )


# What the policy does


def action_size() -> Check:
    """Sum of the squared actions of this step, after clipping to the action space."""
    return Check(lambda sim: sim.action.square().sum(-1), "action_size()")


def action_rate() -> Check:
    """Sum of the squared changes of the action since the step before; 0 in an episode's first."""
    return Check(lambda sim: (sim.action - sim.last_action).square().sum(-1), "action_rate()")


def alive() -> Check:
    """True in every step that does not end in failure."""
    return Check(lambda sim: ~sim.failed, "alive()")


def valid(check: Check, sim: EnvView, what: str, *, boolean: bool | None = None) -> Tensor:
    """The check's value, after seeing that it is a tensor [W] (and bool, or a number, if asked).

    Raises:
        TypeError, ValueError: naming `what`, the check, what it returned and what is expected.
    """
    value = check(sim)
    where = f"{what} ({check.name})"
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{where} must return a tensor of shape ({sim.num_worlds},), not {type(value).__name__}"
        )
    if value.shape != (sim.num_worlds,):
        raise ValueError(
            f"{where} must return shape ({sim.num_worlds},), one value per world, "
            f"not {tuple(value.shape)}"
        )
    if boolean and value.dtype != torch.bool:
        raise TypeError(f"{where} must return bool, not {value.dtype}; compare it with a number")
    if value.device != sim.qpos.device:
        raise ValueError(f"{where} must return a tensor on {sim.qpos.device}, not {value.device}")
    return value if boolean or boolean is None else value.to(sim.qpos.dtype)
