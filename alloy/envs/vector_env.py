"""The face of an environment: Gymnasium's vector API over one simulator of many worlds.

The env owns the episode's bookkeeping, `env.sim` the physical state. A step assembles both into an
`EnvState`, hands it to `alloy.envs.program`, puts the parts back and converts what leaves once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from alloy.envs.actions import bind_actions
from alloy.envs.backend import exporter, import_action, import_mask
from alloy.envs.program import HELD, EnvState, Physics, Program, StepOutput
from alloy.envs.rendering import Renderer, RenderOptions
from alloy.envs.task import Task
from alloy.health import SimulationError, dropped_message
from alloy.physics.model import Data
from alloy.random import world_seeds
from alloy.sim import Draw, build

if TYPE_CHECKING:
    from alloy.scene import Scene

MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}
Seeds = int | Sequence[int | None] | None
StepFunction = Callable[[EnvState, Tensor], tuple[EnvState, StepOutput]]


class VectorEnv(gym.vector.VectorEnv):
    """A task in a scene, in many worlds at once.

    Attributes:
        sim: the simulator underneath; its state may be read and written between steps.
        num_envs: number of worlds, W.
        dt: control step, s.
    """

    def __init__(
        self,
        scene: Scene | Any,
        task: Task,
        worlds: int | None = None,
        *,
        num_envs: int | None = None,
        seed: int | Sequence[int] | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        engine: str = "auto",
        backend: str = "torch",
        autoreset: str = "same_step",
        strict: bool = False,
        max_contacts: int | None = None,
        render_mode: str | None = None,
        render: RenderOptions | None = None,
    ) -> None:
        """Build the simulator and try every term of the task.

        Args:
            scene: what `alloy.build` takes: a Scene, an MjModel or MjSpec, a path or MJCF text.
            task: what is seen, done, rewarded and judged.
            worlds: number of worlds; `num_envs` is another name for it. One if neither is given.
            num_envs: see worlds.
            seed: of the episodes: s for the seeds s, s + 1, ..., or one per world; None for one
                from the operating system. `reset(seed=)` gives new ones.
            device: of the simulation and of everything that leaves.
            dtype: torch.float32 or torch.float64, of the physics, observations and rewards.
            engine: as for `alloy.build`.
            backend: "torch", "tensordict" or "numpy": what leaves. Actions of any are accepted.
            autoreset: "same_step", "next_step" or "disabled".
            strict: raise where a world turns non-finite or contacts are dropped.
            max_contacts: as for `alloy.build`.
            render_mode: "rgb_array" to be able to render, or None.
            render: size and camera of the pictures.

        Raises:
            UnknownName: the task names something that is not in the scene.
            ValueError, TypeError: see `Task`, `bind_actions` and `alloy.build`.
        """
        if worlds is not None and num_envs is not None and worlds != num_envs:
            raise ValueError(f"worlds={worlds} and num_envs={num_envs} differ; give one of them")
        self.num_envs = worlds if worlds is not None else (num_envs if num_envs is not None else 1)
        export = exporter(backend)
        self._export: Callable[[Any], Any] = lambda tree: export(tree, self.num_envs)
        self.backend = backend
        if autoreset not in MODES:
            raise ValueError(f"autoreset must be one of {list(MODES)}, not {autoreset!r}")
        self.autoreset, self._strict = autoreset, strict
        self.sim = build(
            scene, self.num_envs, device=device, dtype=dtype, engine=engine, strict=strict,
            max_contacts=max_contacts,
        )  # fmt: skip
        self.task = task
        actions = bind_actions(task.actions, self.sim)
        self.program = Program(
            Physics(self.sim, task.after_step), task, actions, autoreset, self.num_envs
        )
        self._episode: Any = None
        self._seed = None if seed is None else world_seeds(seed, self.num_envs, self.sim.device)
        self._step: StepFunction | None = None  # made with the first step
        self._spaces()
        self.render_mode = render_mode
        self._renderer = Renderer(self.sim, render_mode, render or RenderOptions())
        self.metadata = {
            "autoreset_mode": MODES[autoreset],
            "render_modes": ["rgb_array"],
            "render_fps": round(1.0 / self.sim.dt),
        }

    def _spaces(self) -> None:
        observe, actions = self.program.task.observe, self.program.actions
        dtype = np.float64 if self.sim.dtype == torch.float64 else np.float32
        boxes: dict[str, gym.Space] = {
            group: gym.spaces.Box(-np.inf, np.inf, (observe.size(group),), dtype)
            for group in observe.groups
        }
        grouped = observe.grouped or self.backend == "tensordict"
        self._grouped = grouped
        self.single_observation_space = (
            gym.spaces.Dict(boxes) if grouped else next(iter(boxes.values()))
        )
        self.single_action_space = gym.spaces.Box(actions.low, actions.high, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    # names

    @property
    def device(self) -> torch.device:
        """Where the simulation runs and what leaves it lies."""
        return self.sim.device

    @property
    def dt(self) -> float:
        """Control step, s."""
        return self.sim.dt

    def action_names(self) -> list[str]:
        """Names of the action's components, in order."""
        return list(self.program.actions.names)

    def observation_names(self) -> dict[str, dict[str, slice]]:
        """Which columns of each group's observation each term fills."""
        return self.program.task.observe.columns()

    # episodes

    @property
    def episode_length(self) -> Tensor:
        """Steps of every world's episode so far, int64 [W]; the environment's own.

        Writing it, whole or in place, moves worlds within their episodes: the time limit counts
        from it.

        Raises:
            ResetNeeded: before the first reset.
            ValueError: what is written has another shape than (W,).
        """
        if self._episode is None:
            raise ResetNeeded("call env.reset() first: no episode has begun")
        return self._episode.steps

    @episode_length.setter
    def episode_length(self, steps: Tensor) -> None:
        now = self.episode_length
        if steps.shape != now.shape:
            raise ValueError(
                f"episode_length must have shape {tuple(now.shape)}, one number per world, "
                f"received {tuple(steps.shape)}"
            )
        self._episode = replace(self._episode, steps=steps.to(now, copy=True))

    def reset(
        self, *, seed: Seeds = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode in every world, or in those of `options["reset_mask"]`.

        Args:
            seed: s for the seeds s, s + 1, ..., or one per world (None keeps a world's seed). A
                world that gets a seed begins that seed's first episode, another its next.
            options: {"reset_mask": bool array (W,)} for a partial reset.

        Returns:
            Observation of all worlds, and info.

        Raises:
            ValueError: a seed or mask of the wrong length or kind, or an unknown option; nothing is
                changed.
        """
        mask = self._mask(options)
        seeds, given = self._seeds(seed)
        if self._episode is None:  # the first reset begins every world
            self._set(self.program.first(seeds))
        else:
            both = self._state()
            keep = mask & ~given
            state = self.program.restart(both, keep) if bool(keep.any()) else both
            new = mask & given
            self._set(self.program.restart(state, new, seeds) if bool(new.any()) else state)
        state = self._state()
        obs = self._export(self._shape(self.program.observe(state)))
        return obs, self._masked(self._export(self.program.reset_info(state)), mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step of every world.

        Args:
            actions: (W, A), of any backend, in the units of the action space; values outside its
                bounds count as the bounds. A row that is not finite makes all controls of its world
                zero for this step, and `info["bad_action"]` says so.

        Returns:
            Observation, reward, terminated, truncated (each of all worlds) and info. All of it is
            fresh: nothing is written again.

        Raises:
            ResetNeeded: before the first reset, or in "disabled" mode with a world that has ended.
            SimulationError: under strict, when a world turns non-finite or contacts are dropped.
            ValueError: a wrong shape, kind of number or device; nothing is changed.
        """
        if self._episode is None:
            raise ResetNeeded("call env.reset() before env.step()")
        action = import_action(
            actions, (self.num_envs, len(self.action_names())), self.sim.dtype, self.sim.device
        )
        state = self._state()
        if self.autoreset == "disabled" and bool(state.episode.ended.any()):
            rows = state.episode.ended.nonzero().flatten().tolist()
            raise ResetNeeded(
                f"worlds {rows} have ended and autoreset is 'disabled'; reset them first with "
                f"env.reset(options={{'reset_mask': mask}})"
            )
        pending = state.episode.ended & (self.autoreset == "next_step")
        if self._step is None:
            self._step = self._step_function(state, action)
        state, out = self._step(state, action)
        self._set(state)
        if self._strict and bool(out.invalid.any()):
            rows = out.invalid.nonzero().flatten().tolist()
            raise SimulationError(
                f"worlds {rows} turned non-finite in this step; make the environment with "
                f"strict=False to let their episodes end and go on with the others"
            )
        if self._strict and self.sim.model.drops_contacts and bool(out.dropped.any()):
            rows = out.dropped.nonzero().flatten().tolist()
            raise SimulationError(dropped_message(rows, self.num_envs))
        flags = {"reward": out.reward, "terminated": out.terminated, "truncated": out.truncated}
        flags = {name: self._export(value) for name, value in flags.items()}
        return self._export(self._shape(out.obs)), *flags.values(), self._info(out, pending)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture [height, width, 3] of every world; None without a render_mode.

        Raises:
            RuntimeError: this machine offers no OpenGL; the message says how to get it.
        """
        if self.render_mode is None:
            return None
        return self._renderer.frames(range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Release what rendering holds."""
        self._renderer.close()

    # between the parts of the state and where they are kept

    def _state(self) -> EnvState:
        data = Data(**{name: getattr(self.sim.data, name) for name in HELD})
        fields = {name: getattr(self.sim.model, name) for name in self.program.physics.varied}
        return EnvState(data, self.sim._guard, self._episode, fields)

    def _set(self, state: EnvState) -> None:
        self._episode = state.episode
        if state.fields:
            self.sim._draw = Draw(state.episode.seed, state.episode.number)
            self.sim._model = self.program.physics.model(state.fields)
        self.sim._change(state.data, state.guard)

    def _step_function(self, state: EnvState, action: Tensor) -> StepFunction:
        """The whole step in one call of the engine, where it offers that; else torch, eagerly."""
        fuse = getattr(self.sim._engine, "fuse", None)
        if fuse is not None:
            physics = Physics(self.sim, self.task.after_step, traced=True)
            program = Program(
                physics, self.task, self.program.actions, self.autoreset, self.num_envs
            )
            fused = fuse(program.step, (state, action), program)
            if fused is not None:
                return fused
        return partial(self.program.step, lazy=self.sim.device.type == "cpu")

    # between the tensors inside and what leaves

    def _shape(self, obs: dict[str, Tensor]) -> dict[str, Tensor] | Tensor:
        """The observation's groups, or the only group's rows where it was given as a list."""
        return obs if self._grouped else next(iter(obs.values()))

    def _info(self, out: StepOutput, pending: Tensor) -> dict[str, Any]:
        """What a step reports, in the form of the backend."""
        ended = out.terminated | out.truncated
        said = {
            **out.info,
            "terms": out.terms,
            "success": out.success,
            "invalid": out.invalid,
            "bad_action": out.bad_action,
        }
        if self.sim.model.drops_contacts:
            said["dropped_contacts"] = out.dropped
        episode = {
            "r": torch.where(ended, out.total, 0),
            "l": torch.where(ended, out.steps, 0),
        }
        if self.backend != "numpy":
            info = said | {"episode": episode, "_episode": ended}
            info |= {"final_obs": self._shape(out.final_obs), "_final_obs": ended}
            info = self._export(info | {"_final_info": ended})
            keys = (*said, "episode")
            nested = self.backend == "tensordict"
            info["final_info"] = info.select(*keys) if nested else {k: info[k] for k in keys}
            return info
        info = self._masked(self._export(said), ~pending)
        info |= {f"_{name}": np.ones(self.num_envs, bool) for name in self.task.reset_info}
        if self.autoreset == "same_step" and bool(ended.any()):
            last = self._masked(self._export(said | {"episode": episode}), ended)
            info |= self._masked(
                {"final_obs": self._export(self._shape(out.final_obs)), "final_info": last}, ended
            )
        return info

    def _masked(self, info: dict[str, Any], mask: Tensor) -> dict[str, Any]:
        """For numpy, beside every entry the mask of the worlds it holds for, as Gymnasium does."""
        if self.backend != "numpy":
            return info
        masks = {f"_{name}": mask.cpu().numpy().copy() for name in info}
        inner = {n: self._masked(v, mask) if isinstance(v, dict) else v for n, v in info.items()}
        return inner | masks

    def _mask(self, options: dict[str, Any] | None) -> Tensor:
        """Which worlds a reset begins anew."""
        options = options or {}
        unknown = [name for name in options if name != "reset_mask"]
        if unknown:
            raise ValueError(f"options may hold 'reset_mask' only, not {unknown}")
        if "reset_mask" not in options:
            return torch.ones(self.num_envs, dtype=torch.bool, device=self.sim.device)
        return import_mask(options["reset_mask"], self.num_envs, self.sim.device)

    def _seeds(self, seed: Seeds) -> tuple[Tensor, Tensor]:
        """The seed of every world, and which worlds were given one."""
        entries = seed.tolist() if isinstance(seed, (np.ndarray, np.generic, Tensor)) else seed
        if self._episode is not None:
            now = self._episode.seed
        elif self._seed is not None:
            now = self._seed
        else:
            start = int(self.np_random.integers(2**31))
            now = world_seeds(start, self.num_envs, self.sim.device)
        if entries is None:
            return now, torch.zeros_like(now).bool()
        if isinstance(entries, Sequence):
            given = [s is not None for s in entries]
            entries = [s if s is not None else 0 for s in entries]
        else:
            given = [True] * self.num_envs
        seeds = world_seeds(entries, self.num_envs, self.sim.device)
        if bool((seeds < 0).any()):
            raise ValueError(f"seed must not be negative, not {seed!r}")
        new = torch.tensor(given, device=self.sim.device)
        if isinstance(entries, int):
            super().reset(seed=entries)
        return torch.where(new, seeds, now), new
