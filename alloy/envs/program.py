"""One control step of an environment as pure functions of tensors: the page to read first.

`Program.step` maps an `EnvState` and an action to the next `EnvState` and what the step says. It
never looks at a value, so it can be traced, compiled or captured; run eagerly on a CPU it skips the
reset when no world needs one, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alloy.engines import Guard, guarded_step, make_guard
from alloy.envs.actions import Actions
from alloy.envs.resets import Rng
from alloy.envs.task import BoundTask, Task
from alloy.envs.view import COUNTERS, EnvState, EnvView, Episode
from alloy.physics.model import INPUTS, STATE, Data, Model, tensor_fields
from alloy.sim import Draw

if TYPE_CHECKING:
    from alloy.sim import Simulator

HELD = (*STATE, *INPUTS)  # the fields of Data that nothing else determines

Obs = dict[str, Tensor]
AUTORESET = ("same_step", "next_step", "disabled")


@dataclass(frozen=True)
class StepOutput:
    """What a step says; every field a tensor [W, ...] or a dict of them."""

    obs: Obs  # after the reset, where one took place
    final_obs: Obs  # of the post-step state, before any reset
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    success: Tensor
    invalid: Tensor  # the world turned non-finite and was frozen
    bad_action: Tensor  # the action was not finite: all controls of the step were zero
    dropped: Tensor  # contacts of its physics steps that found no slot
    terms: dict[str, Tensor]  # weighted; they sum to the reward
    info: dict[str, Tensor]
    total: Tensor  # sum of the episode's rewards so far
    steps: Tensor  # the episode's length so far


def select(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows of `new` where the mask [W] is true, of `old` elsewhere."""
    return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def select_all(mask: Tensor, new: dict[str, Tensor], old: dict[str, Tensor]) -> dict[str, Tensor]:
    """`select` on every tensor of a dict."""
    return {name: select(mask, new[name], old[name]) for name in new}


def _select_fields(mask: Tensor, new: Any, old: Any, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: select(mask, getattr(new, name), getattr(old, name)) for name in names}


def zero_where(mask: Tensor, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Zero the rows where the mask [W] is true in every tensor of a dict."""
    return {name: select(mask, torch.zeros_like(v), v) for name, v in values.items()}


class Physics:
    """What a program needs of a simulator, as functions of tensors."""

    def __init__(self, sim: Simulator, keep: Sequence[str] = (), *, traced: bool = False) -> None:
        """Take the parts of a simulator that never change; its state stays its own.

        Args:
            sim: the simulator.
            keep: derived fields of Data to hand out as the last physics step leaves them.
            traced: let the physics be `guarded_step` itself, for an engine to compile with the
                rest. What nobody reads is then not computed, let alone stored.
        """
        self.keep, self._traced = tuple(keep), traced
        self.names, self.substeps, self.dt = sim._names, sim.substeps, sim.dt
        self._step = partial(guarded_step, derived=False) if traced else sim._engine.step
        self._start = {name: getattr(sim._start, name)[:1] for name in HELD}
        self._nominal = sim._nominal
        # the quantities that the scene randomizes, and what follows from them
        self.varied = tuple(
            f.name
            for f in tensor_fields(Model)
            if getattr(sim.model, f.name) is not getattr(sim._nominal, f.name)
        )
        # nothing here holds the simulator itself unless it must: an engine finds what it compiled
        # by all that this object holds
        self._drawn = sim._drawn if self.varied else None

    def start(self, worlds: int) -> Data:
        """The state and inputs that every reset starts from."""
        return Data(**{n: t.expand(worlds, *t.shape[1:]) for n, t in self._start.items()})

    def held(self, state: EnvState) -> EnvState:
        """A state without what follows from it."""
        data = Data(**{name: getattr(state.data, name) for name in HELD})
        return replace(state, data=data)

    def clean(self, worlds: int) -> Guard:
        """The health of worlds that begin."""
        return make_guard(worlds, self._nominal.qpos0.device)

    def model(self, fields: dict[str, Tensor]) -> Model:
        """The model of worlds whose own values are `fields`."""
        return replace(self._nominal, **fields) if fields else self._nominal

    def draw(self, seed: Tensor, number: Tensor) -> dict[str, Tensor]:
        """What the scene's randomizations give worlds in an episode, by field of Model."""
        if self._drawn is None:
            return {}
        model = self._drawn(Draw(seed, number))
        return {name: getattr(model, name) for name in self.varied}

    def advance(self, state: EnvState, data: Data) -> tuple[Data, Guard, dict[str, Tensor]]:
        """One control step of every valid world from `data`; health, and what is kept of it."""
        model = self.model(state.fields)
        data, guard = self._step(model, data, state.guard, self.substeps, keep=self.keep)
        last = {name: getattr(data, name) for name in self.keep}
        return replace(data, **dict.fromkeys(last)) if self._traced else data, guard, last


class Program:
    """A bound environment: the physics, the actions and the task, for any number of worlds."""

    def __init__(
        self, physics: Physics, task: Task, actions: Actions, autoreset: str, worlds: int
    ) -> None:
        """Bind the task's terms, and try them on that many worlds as `physics` starts them."""
        if autoreset not in AUTORESET:
            raise ValueError(f"autoreset must be one of {list(AUTORESET)}, not {autoreset!r}")
        self.physics, self.actions, self.autoreset = physics, actions, autoreset
        start = self._begun(worlds)
        self.task = BoundTask(task, self.view(start))
        self.restart(start, start.episode.ended)

    def view(self, state: EnvState, previous: EnvState | None = None) -> EnvView:
        """The state as a task's functions see it."""
        return EnvView(
            self.physics.names,
            self.physics.model(state.fields),
            state.data,
            state.episode,
            previous=previous,
            dt=self.physics.dt,
        )

    def step(
        self, state: EnvState, action: Tensor, *, lazy: bool = False
    ) -> tuple[EnvState, StepOutput]:
        """One control step of every world, resets included.

        Args:
            state: of all worlds.
            action: (W, A), in the units of the action space.
            lazy: look whether any world needs a reset, and skip the reset if none does.

        Returns:
            The next state, and what the step says. In `next_step` mode the worlds that had ended
            begin a new episode instead: reward zero, no flags, their action ignored.
        """
        pending = state.episode.ended
        state, out = self._advance(state, action)
        if self.autoreset == "disabled":
            return state, out
        if self.autoreset == "next_step":
            if lazy and not pending.any():
                return state, out
            return self._replace_ended(state, out, pending)
        ended = state.episode.ended
        if lazy and not ended.any():
            return state, out
        state = self.restart(state, ended)
        obs = select_all(ended, self.observe(state), out.obs)
        return state, replace(out, obs=obs)

    def restart(self, state: EnvState, mask: Tensor, seed: Tensor | None = None) -> EnvState:
        """Begin a new episode in the masked worlds: the next one, or the first of a given seed."""
        ep, worlds = state.episode, state.data.qpos.shape[0]
        number = ep.number + 1 if seed is None else torch.zeros_like(ep.number)
        new = self._begun(worlds, ep.seed if seed is None else seed, number)
        view = self.view(new)
        self.task.begin(view, Rng(new.episode.seed, number, view.qpos.dtype))
        last = self.task.start_last(view)
        view.leave(last)
        memory = self.task.start_memory(view)
        begun = view.at("state")
        return EnvState(
            replace(state.data, **_select_fields(mask, begun, state.data, HELD)),
            Guard(**_select_fields(mask, new.guard, state.guard, Guard._fields)),
            Episode(
                memory=select_all(mask, memory, ep.memory or memory),
                last=select_all(mask, last, ep.last or last),
                **_select_fields(mask, new.episode, ep, COUNTERS),
            ),
            select_all(mask, new.fields, state.fields),
        )

    def observe(self, state: EnvState) -> Obs:
        """The observation of a state, after a forward pass on it."""
        return self.task.observe(self.view(state))

    def reset_info(self, state: EnvState) -> dict[str, Tensor]:
        """What a reset reports."""
        return self.task.info(self.view(state), self.task.task.reset_info)

    def first(self, seed: Tensor) -> EnvState:
        """Every world at the start of its seed's first episode."""
        state = self._begun(seed.shape[0], seed)
        return self.restart(state, torch.ones_like(state.episode.ended), seed)

    def _advance(self, state: EnvState, action: Tensor) -> tuple[EnvState, StepOutput]:
        """Physics and judgement of one control step, without resets."""
        before, ep = state.data, state.episode
        action, bad = self._clip(action)
        ep = replace(
            ep,
            steps=ep.steps + 1,
            action=action,
            last_action=select(ep.steps == 0, action, ep.action),
        )
        begun = self._disturbed(replace(state, episode=ep), state)
        # not a number in, so that the guard counts it; the last targets stay as they were
        spoilt = select(bad, torch.full_like(begun.ctrl, torch.nan), begun.ctrl)
        after, guard, last = self.physics.advance(state, replace(begun, ctrl=spoilt))
        after = replace(after, ctrl=select(bad, before.ctrl, after.ctrl))
        invalid = guard.invalid
        ep = replace(ep, last=last)
        view = self.view(EnvState(after, guard, ep, state.fields), previous=state)
        verdict = self.task.judge(view)
        task = self.task.task
        success = verdict.success & ~invalid
        terminated = verdict.failure | invalid
        if task.end_on_success:
            terminated = terminated | success
        truncated = torch.zeros_like(terminated)
        if task.max_steps is not None:
            truncated = (ep.steps >= task.max_steps) & ~invalid
        reward = select(invalid, torch.zeros_like(verdict.reward), verdict.reward)
        ep = replace(
            ep, memory=verdict.memory, total=ep.total + reward, ended=terminated | truncated
        )
        obs = self.task.observe(view)
        return EnvState(after, guard, ep, state.fields), StepOutput(
            obs=obs,
            final_obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            invalid=invalid,
            bad_action=bad,
            dropped=guard.dropped - state.guard.dropped,
            terms=zero_where(invalid, verdict.terms),
            info=verdict.info,
            total=ep.total,
            steps=ep.steps,
        )

    def _disturbed(self, state: EnvState, previous: EnvState) -> Data:
        """What the physics starts from: the new targets, and what events change besides."""
        view = self.view(state, previous)
        ctrl = self.actions.ctrl(self.task.delayed(view), state.data.ctrl)
        view.change({"ctrl": ctrl})
        self.task.disturb(view)
        return view.at("state")

    def _clip(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """The action within its bounds, and the worlds [W] whose action is not finite."""
        bad = ~torch.isfinite(action).all(-1)
        low, high = self.actions.clip
        action = torch.where(bad.unsqueeze(-1), torch.zeros_like(action), action)
        return torch.clamp(action, low, high), bad

    def _replace_ended(
        self, state: EnvState, out: StepOutput, pending: Tensor
    ) -> tuple[EnvState, StepOutput]:
        """Turn the step of the worlds that had ended into the start of their next episode."""
        state = self.restart(state, pending)
        obs = select_all(pending, self.observe(state), out.obs)
        flags = {
            name: getattr(out, name) & ~pending
            for name in ("terminated", "truncated", "success", "invalid", "bad_action")
        }
        return state, replace(
            out,
            obs=obs,
            final_obs=obs,
            reward=select(pending, torch.zeros_like(out.reward), out.reward),
            terms=zero_where(pending, out.terms),
            info=zero_where(pending, out.info) | self._fresh_info(state, out, pending),
            total=state.episode.total,
            steps=state.episode.steps,
            **flags,
        )

    def _fresh_info(self, state: EnvState, out: StepOutput, pending: Tensor) -> dict[str, Tensor]:
        """What a reset reports, in the worlds that begin an episode."""
        return select_all(pending, self.reset_info(state), out.info)

    def _begun(
        self, worlds: int, seed: Tensor | None = None, number: Tensor | None = None
    ) -> EnvState:
        """Worlds at the start, before any reset term, in episodes of these seeds and numbers."""
        data = self.physics.start(worlds)
        count = torch.zeros(worlds, dtype=torch.int64, device=data.qpos.device)
        seed, number = count if seed is None else seed, count if number is None else number
        low, high = self.actions.clip
        action = torch.clamp(data.qpos.new_zeros(worlds, len(self.actions.names)), low, high)
        episode = Episode(
            seed=seed,
            number=number,
            steps=count,
            total=data.qpos.new_zeros(worlds),
            action=action,
            last_action=action,
            ended=count.bool(),
        )
        fields = self.physics.draw(seed, number)
        return EnvState(data, self.physics.clean(worlds), episode, fields)
