"""What a task's functions see: the simulation of all worlds, and what their episodes know."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from alloy.envs.resets import Rng
from alloy.physics.model import INPUTS
from alloy.views import JointView, View

if TYPE_CHECKING:
    from alloy.engines import Guard
    from alloy.names import Joint, Names
    from alloy.physics.model import Data, Model
    from alloy.physics.sensor import SensorNoise


@dataclass(frozen=True)
class Episode:
    """Where each world is in its episode; every field a tensor with the world axis first."""

    seed: Tensor  # [W] int64
    number: Tensor  # [W] int64, episodes begun since the seed was given
    steps: Tensor  # [W] int64, control steps taken
    total: Tensor  # [W] sum of rewards
    action: Tensor  # [W, A] the latest action, after clipping; zeros at the start
    last_action: Tensor  # [W, A] the one before
    ended: Tensor  # [W] bool, over and not yet reset
    memory: dict[str, Tensor] = field(default_factory=dict)  # what checks remember, [W, ...]
    last: dict[str, Tensor] = field(default_factory=dict)  # what the task keeps of a step


COUNTERS = tuple(f.name for f in fields(Episode) if f.name not in ("memory", "last"))


@dataclass(frozen=True)
class EnvState:
    """All that a step reads and writes; the rest of an environment never changes."""

    data: Data
    guard: Guard
    episode: Episode
    fields: dict[str, Tensor] = field(default_factory=dict)  # of Model, where worlds differ


class EnvView(View):
    """The simulation by name, as `alloy.sim.Simulator` shows it, with the episode beside it."""

    settable: ClassVar = ("qpos", "qvel", "act", "plastic", *INPUTS)  # what a reset may change

    def __init__(
        self,
        names: Names,
        model: Model,
        data: Data,
        episode: Episode,
        *,
        previous: EnvState | None = None,
        dt: float,
    ) -> None:
        """Look at `data` in an episode; `previous` is the state before the control step."""
        super().__init__(names, model, data)
        self.episode = episode
        self.dt = dt  # control step, s
        self._before = previous
        self.failed = torch.zeros_like(episode.ended)  # [W] bool, known once failure is judged

    @property
    def action(self) -> Tensor:
        """The action of this step, clipped to the action space, [W, A]; zeros at the start."""
        return self.episode.action

    @property
    def last_action(self) -> Tensor:
        """The action of the step before, [W, A]; in an episode's first step that of this one."""
        return self.episode.last_action

    @property
    def steps(self) -> Tensor:
        """Control steps taken in this episode, this one included, [W] int64."""
        return self.episode.steps

    @property
    def previous(self) -> EnvView:
        """The worlds as they were before this control step; at the start, as they are."""
        before = self._before
        data = self.at("state") if before is None else before.data
        episode = self.episode if before is None else before.episode
        return EnvView(self._names, self._model, data, episode, dt=self.dt)

    def last(self, field: str) -> Tensor:
        """A field of Data as the last physics step left it, [W, ...]; see `Task.after_step`.

        Raises:
            KeyError: the task does not keep that field.
        """
        if field not in self.episode.last:
            raise KeyError(
                f"the task keeps {[*self.episode.last]} of the last physics step, not {field!r}; "
                f"name it in Task(after_step=[...])"
            )
        return self.episode.last[field]

    def touched(self, a: str, b: str | None = None) -> Tensor:
        """As `in_contact`, in any physics step of this control step; [W] bool.

        The task has to keep it: `Task(after_step=["contact_least"])`. In an episode's first
        observation it is `in_contact`.
        """
        active = self.last("contact_least") < self._model.con_margin
        return self._any_slot(a, b, active) | self.in_contact(a, b)

    def rng(self, purpose: str) -> Rng:
        """Random numbers of this control step, the same for the same seed, episode and step.

        Every call for a purpose begins its numbers anew, so that all terms which ask for "push" see
        the same push, and none depends on what the others draw.
        """
        ep = self.episode
        counter = ep.number + (ep.steps << 32)  # an episode's number fits the lower word
        return Rng(ep.seed, counter, self.qpos.dtype, purpose=zlib.crc32(purpose.encode()))

    def sensor_noise(self, name: str | int) -> SensorNoise:
        """What the model says of the noise of a sensor, which is not in its reading."""
        return self._model.derived["sensor"].noise[self._names.id("sensor", name)]

    def memory(self, key: str) -> Tensor:
        """What a check has asked to be remembered of this episode, [W, ...]."""
        return self.episode.memory[key]

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take the memory as it is after this step."""
        self.episode = replace(self.episode, memory=memory)

    def leave(self, last: dict[str, Tensor]) -> None:
        """Take what the last physics step left."""
        self.episode = replace(self.episode, last=last)

    def change(self, update: dict[str, Any]) -> None:
        """Look at a state that differs in some fields."""
        self._computed, self._stage = replace(self.at("state"), **update), "state"

    def where(self, joint: JointView) -> Joint:
        """Where a joint sits in qpos and qvel."""
        return self._names.joints[joint.id]

    def free_joint(self, entity: str) -> Joint:
        """Where an entity's free joint sits.

        Raises:
            UnknownName: no entity of that name.
            ValueError: the entity has no free joint.
        """
        for joint in self.joints_of(entity):
            if joint.kind == "free":
                return self.where(joint)
        raise ValueError(
            f"{entity!r} has no free joint, so its pose cannot be set; its joints are "
            f"{[j.name for j in self.joints_of(entity)]}"
        )
