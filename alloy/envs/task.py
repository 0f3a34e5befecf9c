"""A task: what is seen, done, rewarded and judged in a scene, and where its episodes begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alloy.envs.actions_spec import ActionTerm
from alloy.envs.checks import Check, Memory, Operand, as_check, valid
from alloy.envs.observations import Observations, Spec
from alloy.envs.resets import ResetTerm, Rng
from alloy.physics.forward import FORCES
from alloy.physics.model import INPUTS, STATE, Data, tensor_fields

if TYPE_CHECKING:
    from alloy.envs.view import EnvView

InfoTerm = Callable[["EnvView"], Tensor]
EventTerm = Callable[["EnvView"], dict[str, Any]]
HISTORY = "actions not yet taken"  # key of the memory behind action_delay
DELAY_DRAW = 0xDE1A  # purpose of the delay's draw

DERIVED = tuple(
    f.name
    for f in tensor_fields(Data)
    if f.name not in (*STATE, *INPUTS) and f.metadata["dtype"] == "float"
)


@dataclass(frozen=True)
class Task:
    """A task in a scene.

    Attributes:
        obs: terms of the observation (see `alloy.envs.observations`), or a dict of such lists by
            group, such as {"policy": [...], "critic": [...]}.
        actions: components of the action space, each in [-1, 1]: action terms, or names of
            actuators for their targets; None for the controls themselves, in their own units and
            ranges.
        reward: terms by name, each a weight and a check; their sum is the reward.
        success: bool check; it is reported and, by default, ends the episode as terminated.
        failure: bool check that ends the episode as terminated.
        max_steps: control steps after which an episode is truncated; None for no limit.
        reset: one or several reset terms (see `alloy.envs.resets`), applied in order.
        info: further functions of the view to report, by name, each [W] or [W, k].
        reset_info: names of `info` that a reset reports too.
        end_on_success: whether success ends the episode.
        after_step: derived fields of Data, such as "xpos" or "cfrc_ext", that terms read with
            `sim.last(name)` as the last physics step left them, which is before its integration:
            what mjData holds after mj_step. Everything else that terms read follows from the state
            after the step.
        events: one or several functions `(sim) -> dict` of fields of the state that change before
            the physics of every control step, applied in order: pushes, wind, noise on the
            targets. They draw from `sim.rng(purpose)`, find the new targets in `sim.ctrl`, and
            return what a reset term may. What they set stays set: a force until an event changes
            it, a target as the one that "delta" actions move.
        action_delay: control steps by which actions take effect later, or a pair of bounds of a
            whole number drawn for each episode. Until the first action arrives, actions are zero.
    """

    obs: Spec
    actions: Sequence[ActionTerm | str] | None = None
    reward: Mapping[str, tuple[float, Operand]] = field(default_factory=dict)
    success: Operand | None = None
    failure: Operand | None = None
    max_steps: int | None = None
    reset: ResetTerm | Sequence[ResetTerm] = ()
    info: Mapping[str, InfoTerm] = field(default_factory=dict)
    reset_info: Sequence[str] = ()
    end_on_success: bool = True
    after_step: Sequence[str] = ()
    events: EventTerm | Sequence[EventTerm] = ()
    action_delay: int | tuple[int, int] = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be a task, by name."""
        if self.max_steps is not None and (
            isinstance(self.max_steps, bool)
            or self.max_steps != int(self.max_steps)
            or self.max_steps < 1
        ):
            raise ValueError(
                f"max_steps must be a whole number of at least 1, not {self.max_steps!r}"
            )
        for name, term in self.reward.items():
            if not isinstance(term, tuple) or len(term) != 2 or not isinstance(term[0], Real):
                raise TypeError(
                    f"reward {name!r} must be a pair (weight, check), as (-1.0, C.distance(a, b)), "
                    f"not {term!r}"
                )
            as_check(term[1], f"reward {name!r}")
        _delays(self.action_delay)
        for name in self.after_step:
            if name not in DERIVED:
                raise ValueError(f"after_step names {name!r}; it may name {[*DERIVED]}")
        for name in self.reset_info:
            if name not in self.info:
                raise ValueError(f"reset_info names {name!r}, which is not in info: {[*self.info]}")


@dataclass(frozen=True)
class Verdict:
    """What a task says of one step, every field a tensor [W] or a dict of them."""

    reward: Tensor
    terms: dict[str, Tensor]
    success: Tensor
    failure: Tensor
    memory: dict[str, Tensor]
    info: dict[str, Tensor]


class BoundTask:
    """A task whose terms have been looked up in a scene and tried on its starting state."""

    def __init__(self, task: Task, sim: EnvView) -> None:
        """Look up and try every term on `sim`; see `Task` for what may be refused."""
        self.task = task
        self.reward = {n: (float(w), as_check(c)) for n, (w, c) in task.reward.items()}
        self.success = as_check(task.success, "success") if task.success is not None else None
        self.failure = as_check(task.failure, "failure") if task.failure is not None else None
        self.resets = (task.reset,) if callable(task.reset) else tuple(task.reset)
        self.events = (task.events,) if callable(task.events) else tuple(task.events)
        self.delays = _delays(task.action_delay)
        self._memories = self._collect()
        sim.leave(self.start_last(sim))
        sim.remember(self.start_memory(sim))
        self.observe = Observations(task.obs, sim)
        self.disturb(sim.previous)
        self.judge(sim)

    def _collect(self) -> dict[str, Memory]:
        checks = [c for _, c in self.reward.values()] + [self.success, self.failure]
        groups = self.task.obs.values() if isinstance(self.task.obs, Mapping) else [self.task.obs]
        checks += [term for terms in groups for term in terms if isinstance(term, Check)]
        checks += [c for c in self.task.info.values() if isinstance(c, Check)]
        memories = {m.key: m for c in checks if c is not None for m in c.memories}
        if self.delays[1]:
            memories[HISTORY] = _history(self.delays[1])
        return memories

    def start_memory(self, sim: EnvView) -> dict[str, Tensor]:
        """What the checks remember of the state an episode begins with."""
        return {key: m.start(sim).clone() for key, m in self._memories.items()}

    def start_last(self, sim: EnvView) -> dict[str, Tensor]:
        """The fields of `after_step` where an episode begins: those of a forward pass on its state.

        Forces on bodies, which mj_forward does not compute, are zero.
        """
        zero = (*sim.qpos.shape[:1], sim.model.nbody, 6)
        return {
            name: sim.qpos.new_zeros(zero) if name in FORCES else sim.get(name)
            for name in self.task.after_step
        }

    def begin(self, sim: EnvView, rng: Rng) -> None:
        """Change the state in `sim` as the reset terms say."""
        for term in self.resets:
            _change(sim, term(sim, rng), "reset", term)

    def disturb(self, sim: EnvView) -> None:
        """Change the state in `sim` as the events say."""
        for term in self.events:
            _change(sim, term(sim), "event", term)

    def delayed(self, sim: EnvView) -> Tensor:
        """The action [W, A] that takes effect in the step that begins, where they take time."""
        low, high = self.delays
        if not high:
            return sim.action
        if low == high:
            return sim.memory(HISTORY)[:, high - 1]
        line = torch.cat([sim.action.unsqueeze(1), sim.memory(HISTORY)], 1)  # newest first
        start = Rng(sim.episode.seed, sim.episode.number, sim.qpos.dtype, purpose=DELAY_DRAW)
        lag = (low + (high + 1 - low) * start.uniform()).long()
        taken = torch.arange(high + 1, device=lag.device) == lag  # [W, high + 1]
        return torch.where(taken.unsqueeze(-1), line, 0.0).sum(1)

    def judge(self, sim: EnvView) -> Verdict:
        """Memory, success, failure, then rewards and info of the step that led to `sim`."""
        memory = {
            key: m.update(sim, sim.memory(key)) if m.update else sim.memory(key)
            for key, m in self._memories.items()
        }
        sim.remember(memory)
        never = torch.zeros_like(sim.failed)
        success = valid(self.success, sim, "success", boolean=True) if self.success else never
        sim.failed = valid(self.failure, sim, "failure", boolean=True) if self.failure else never
        terms = {
            name: weight * valid(check, sim, f"reward {name!r}", boolean=False)
            for name, (weight, check) in self.reward.items()
        }
        reward = torch.zeros_like(sim.time)
        for value in terms.values():
            reward = reward + value
        info = self.info(sim, [*self.task.info])
        return Verdict(reward, terms, success, sim.failed, memory, info)

    def info(self, sim: EnvView, names: Sequence[str]) -> dict[str, Tensor]:
        """The further functions to report, by name."""
        out = {}
        for name in names:
            value = self.task.info[name](sim)
            if not isinstance(value, Tensor) or value.shape[:1] != (sim.num_worlds,):
                expected = f"a tensor of shape ({sim.num_worlds}, ...)"
                raise ValueError(f"info {name!r} must return {expected}, not {_described(value)}")
            out[name] = value
        return out


def _history(depth: int) -> Memory:
    """The last `depth` actions, newest first, [W, depth, A]; zeros at the start of an episode."""

    def start(sim: EnvView) -> Tensor:
        return torch.zeros_like(sim.action).unsqueeze(1).repeat(1, depth, 1)

    def update(sim: EnvView, line: Tensor) -> Tensor:
        return torch.cat([sim.action.unsqueeze(1), line[:, :-1]], 1)

    return Memory(HISTORY, start, update)


def _delays(given: Any) -> tuple[int, int]:
    """Least and greatest delay of actions, in control steps."""
    bounds: Any = given if isinstance(given, Sequence) and len(given) == 2 else (given, given)
    whole = all(isinstance(b, int) and not isinstance(b, bool) for b in bounds)
    if not whole or not 0 <= bounds[0] <= bounds[1]:
        raise ValueError(
            f"action_delay must be a number of control steps of at least 0, or (least, greatest), "
            f"not {given!r}"
        )
    return bounds[0], bounds[1]


def _change(sim: EnvView, update: Any, kind: str, term: Any) -> None:
    """Change the state in `sim`, after seeing that the update of a term fits it."""
    name = f"{kind} {getattr(term, '__qualname__', repr(term))}"
    if not isinstance(update, Mapping):
        raise TypeError(f"{name} must return a dict of fields, not {type(update).__name__}")
    for field_name, value in update.items():
        if field_name not in sim.settable:
            raise ValueError(f"{name} sets {field_name!r}; it may set {[*sim.settable]}")
        now = getattr(sim.at("state"), field_name)
        if not isinstance(value, Tensor) or value.shape != now.shape or value.dtype != now.dtype:
            raise ValueError(
                f"{name}: {field_name} must be {_described(now)}, not {_described(value)}"
            )
    sim.change(dict(update))


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
