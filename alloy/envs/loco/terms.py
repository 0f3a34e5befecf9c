"""Terms of walking tasks: commands, how well they are followed, feet, pushes.

Velocities are those of the trunk in its heading frame: the body frame turned upright, so that x
points where the robot looks and z up. A command is (forward m/s, left m/s, turn rad/s).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alloy.envs.checks import Check, Memory

if TYPE_CHECKING:
    from alloy.envs.resets import ResetTerm, Rng
    from alloy.envs.view import EnvView

Range = tuple[float, float]


@dataclass(frozen=True)
class Commands:
    """Velocity commands: drawn at the start of an episode and again every so often.

    Attributes:
        vx: lowest and highest forward velocity, m/s.
        vy: lowest and highest velocity to the left, m/s.
        yaw: lowest and highest turning rate about the vertical, rad/s.
        every: control steps between draws; None to keep an episode's first command.
        standing: share of the draws that say: stand still.
    """

    vx: Range = (-1.0, 1.0)
    vy: Range = (-0.5, 0.5)
    yaw: Range = (-1.0, 1.0)
    every: int | None = 250
    standing: float = 0.1

    KEY = "velocity command"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn from."""
        for name in ("vx", "vy", "yaw"):
            given = getattr(self, name)
            low, high = given
            if not low <= high:
                raise ValueError(f"command {name} is {given}; its low must not be above its high")
        if not 0.0 <= self.standing <= 1.0:
            raise ValueError(f"standing is a share from 0 to 1, not {self.standing}")
        if self.every is not None and self.every < 1:
            raise ValueError(f"every is a number of control steps of at least 1, not {self.every}")

    @property
    def memory(self) -> Memory:
        """The command that holds from now on, [W, 3]."""

        def update(sim: EnvView, command: Tensor) -> Tensor:
            if self.every is None:
                return command
            due = sim.steps % self.every == 0
            return torch.where(due.unsqueeze(-1), self._draw(sim), command)

        return Memory(self.KEY, self._draw, update)

    def _draw(self, sim: EnvView) -> Tensor:
        u = sim.rng(self.KEY).uniform(n=4)
        spans = (self.vx, self.vy, self.yaw)
        drawn = [low + (high - low) * u[:, i] for i, (low, high) in enumerate(spans)]
        moving = (u[:, 3:] >= self.standing).to(u.dtype)
        return torch.stack(drawn, -1) * moving

    def now(self) -> Check:
        """The command to follow from here on, [W, 3]: what the policy sees."""
        return Check(lambda sim: sim.memory(self.KEY), self.KEY, [self.memory])

    def followed(self) -> Check:
        """The command that held during the step that led here, [W, 3]: what it is judged by."""
        return Check(lambda sim: sim.previous.memory(self.KEY), "command followed", [self.memory])

    def linear_error(self, body: str) -> Check:
        """Distance between commanded and actual planar velocity, m/s."""
        return self._error(body, lambda v, c: (v[:, :2] - c[:, :2]).square().sum(-1).sqrt())

    def turning_error(self, body: str) -> Check:
        """Distance between commanded and actual turning rate, rad/s."""
        return self._error(body, lambda v, c: (v[:, 2] - c[:, 2]).abs())

    def _error(self, body: str, distance: Callable[[Tensor, Tensor], Tensor]) -> Check:
        followed = self.followed()
        return Check(
            lambda sim: distance(planar_velocity(sim, body), followed(sim)),
            f"velocity error of {body!r}",
            [self.memory],
        )

    def mean_errors(self, body: str) -> Check:
        """Both errors, each its mean over the episode so far, [W, 2]: m/s and rad/s."""
        both = (self.linear_error(body), self.turning_error(body))

        def update(sim: EnvView, sums: Tensor) -> Tensor:
            one = torch.ones_like(sim.time)
            return sums + torch.stack([*(error(sim) for error in both), one], -1)

        def start(sim: EnvView) -> Tensor:
            return torch.zeros_like(sim.time).unsqueeze(-1).repeat(1, 3)

        # by the steps that were summed: an episode may have begun at any step count
        memory = Memory(f"velocity errors of {body!r}", start, update)

        def value(sim: EnvView) -> Tensor:
            sums = sim.memory(memory.key)
            return sums[:, :2] / torch.clamp(sums[:, 2:], min=1.0)

        return Check(value, f"mean_errors({body!r})", [self.memory, memory])

    def moving(self) -> Check:
        """Whether the command asks for more than standing still."""
        followed = self.followed()
        return Check(
            lambda sim: followed(sim).square().sum(-1) > 0.01, "command to move", [self.memory]
        )


def planar_velocity(sim: EnvView, body: str) -> Tensor:
    """Forward and leftward velocity [m/s] and turning rate [rad/s] of a body, [W, 3].

    Forward is where its x axis points, seen from above.
    """
    at = sim.frame(body)
    x = at.mat[:, :2, 0]
    ahead = x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-8)
    v = at.linvel
    forward = v[:, 0] * ahead[:, 0] + v[:, 1] * ahead[:, 1]
    left = v[:, 1] * ahead[:, 0] - v[:, 0] * ahead[:, 1]
    return torch.stack([forward, left, at.angvel[:, 2]], -1)


def body_linvel(body: str) -> Check:
    """Linear velocity of a body in its own frame, [W, 3]."""
    return Check(lambda sim: _inward(sim, body, sim.frame(body).linvel), f"body_linvel({body!r})")


def body_angvel(body: str) -> Check:
    """Angular velocity of a body in its own frame, [W, 3]: a gyroscope there."""
    return Check(lambda sim: _inward(sim, body, sim.frame(body).angvel), f"body_angvel({body!r})")


def _inward(sim: EnvView, body: str, vector: Tensor) -> Tensor:
    return (sim.frame(body).mat * vector.unsqueeze(-1)).sum(-2)


def columns(term: Check, which: slice) -> Check:
    """Some of a term's numbers, [W, k]."""
    return Check(lambda sim: term(sim)[:, which], f"{term.name}[{which.start}:{which.stop}]")


def noisy(term: Check, scale: float) -> Check:
    """A term with uniform noise of half width `scale`, drawn anew in every control step."""

    def value(sim: EnvView) -> Tensor:
        x = term(sim)
        return x + sim.rng(f"noise on {term.name}").uniform(-scale, scale, x.shape[-1])

    return Check(value, term.name, term.memories) if scale else term


class Feet:
    """What a robot's feet do: which touch the ground, and how long they have been in the air."""

    def __init__(self, geoms: Sequence[str], dt: float) -> None:
        """Name the geoms and the control step [s]."""
        self.geoms, self.dt = tuple(geoms), dt
        self.memory = Memory(f"air time of {self.geoms}", self._start, self._update)

    def touching(self) -> Check:
        """1 for each foot on the ground, [W, feet]."""
        return Check(lambda sim: self._touching(sim).to(sim.qpos.dtype), "feet on the ground")

    def air_time(self) -> Check:
        """Seconds that each foot has been in the air, 0 on the ground, [W, feet]."""
        return Check(lambda sim: sim.memory(self.memory.key), "air time", [self.memory])

    def steps_taken(self, least: float, most: float) -> Check:
        """For each foot that lands: its time in the air beyond `least`, at most `most`, s."""

        def value(sim: EnvView) -> Tensor:
            flight = sim.previous.memory(self.memory.key)
            landed = self._touching(sim) & (flight > 0)
            return torch.where(landed, torch.clamp(flight, max=most) - least, 0.0).sum(-1)

        return Check(value, f"steps_taken({least})", [self.memory])

    def slip(self) -> Check:
        """Sum of the squared horizontal speeds of the feet on the ground, (m/s)^2."""

        def value(sim: EnvView) -> Tensor:
            v = torch.stack([sim.geom(g).linvel[:, :2] for g in self.geoms], 1)
            return torch.where(self._touching(sim), v.square().sum(-1), 0.0).sum(-1)

        return Check(value, "slip")

    def clearance(self, height: float) -> Check:
        """Sum over feet of (missing height [m])^2 times horizontal speed [m/s]."""

        def value(sim: EnvView) -> Tensor:
            feet = [sim.geom(g) for g in self.geoms]
            z = torch.stack([f.pos[:, 2] for f in feet], 1)
            v = torch.stack([f.linvel[:, :2] for f in feet], 1)
            speed = torch.sqrt(v.square().sum(-1) + 1e-8)
            return ((z - height).square() * speed).sum(-1)

        return Check(value, f"clearance({height})")

    def _touching(self, sim: EnvView) -> Tensor:
        return torch.stack([sim.in_contact(g) for g in self.geoms], -1)

    def _start(self, sim: EnvView) -> Tensor:
        return torch.zeros_like(sim.time).unsqueeze(-1).repeat(1, len(self.geoms))

    def _update(self, sim: EnvView, flight: Tensor) -> Tensor:
        return torch.where(self._touching(sim), 0.0, flight + self.dt)


def push(entity: str, speed: float, every: int) -> Callable[[EnvView], dict[str, Any]]:
    """Event: a kick that changes a free body's horizontal velocity, now and then.

    Args:
        entity: what has the free joint.
        speed: greatest change along x and along y, m/s, drawn uniformly.
        every: control steps between kicks; the first comes after that many.
    """

    def kick(sim: EnvView) -> dict[str, Tensor]:
        start = sim.free_joint(entity).dof.start
        u = sim.rng("push").uniform(-speed, speed, 2)
        kicked = torch.where((sim.steps % every == 0).unsqueeze(-1), u, torch.zeros_like(u))
        v = sim.qvel
        moved = v[:, start : start + 2] + kicked
        return {"qvel": torch.cat([v[:, :start], moved, v[:, start + 2 :]], -1)}

    return kick


def stand(entity: str, pose: Mapping[str, float], noise: float = 0.0) -> ResetTerm:
    """Reset: put the joints of an entity into a pose.

    Args:
        entity: its name in the scene.
        pose: angle [rad] or position [m] of each joint, by its name within the entity.
        noise: half width of uniform noise on each of them.
    """

    def term(sim: EnvView, rng: Rng) -> dict[str, Tensor]:
        q = sim.qpos
        start = {f"{entity}/{name}": value for name, value in pose.items()}
        places = [(sim.where(sim.joint(name)).qpos.start, v) for name, v in start.items()]
        drawn = rng.uniform(-noise, noise, len(places))
        column = {i: v + drawn[:, k] for k, (i, v) in enumerate(places)}
        new = [column[i] if i in column else q[:, i] for i in range(q.shape[-1])]
        return {"qpos": torch.stack(new, -1)}

    return term
