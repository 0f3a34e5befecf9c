"""Stable-Baselines3: an environment as a `VecEnv`, NumPy at its edge.

env = SB3VecEnv(alloy.envs.make("HalfCheetah-v5", num_envs=64))
PPO("MlpPolicy", env).learn(1_000_000)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorWrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.restarts import base_of, by_group

Indices = int | Iterable[int] | None
POLICY = "policy"


class SB3VecEnv(VecEnv):
    """A vector environment as Stable-Baselines3 takes it.

    A world that ends restarts within the step, and its info says what SB3 looks for there:

    * `terminal_observation`: the true last observation.
    * `TimeLimit.truncated`: whether the time limit alone ended it.
    * `episode`: return "r", length "l" and time "t", what a `Monitor` records, so that none is
      needed; `env_is_wrapped(Monitor)` says so.
    * `is_success`, where the task has a success.
    * the reward's terms, "invalid" and the task's own info, of its last step.

    The info of all other worlds is an empty dict, or has the entries of `info_keywords`. Arrays
    that leave are never written again.

    SB3 has one observation for actor and critic. Of an environment with groups it gets "policy"
    if there is such a group, or those that `groups` names.

    Attributes:
        vector_env: the environment underneath.
    """

    def __init__(
        self,
        env: VectorEnv | VectorWrapper,
        *,
        groups: Sequence[str] | None = None,
        info_keywords: Sequence[str] = (),
    ) -> None:
        """Take over an environment; SB3 resets it when learning begins.

        Args:
            env: with autoreset "same_step" and backend "torch", on any device.
            groups: groups to observe; one alone becomes a flat Box, several a Dict.
            info_keywords: entries of the step's info to give of every world in every step, which
                costs a Python loop over the worlds.

        Raises:
            TypeError: this is no vector environment of Alloy's.
            ValueError: another backend or autoreset mode, or an unknown group or info.
        """
        self._base = base_of(env, "stable-baselines3")
        self.vector_env = env
        self._groups, space = _chosen(env, groups)
        known = [*self._base.task.info, "success", "invalid", "bad_action"]
        for name in info_keywords:
            if name not in known:
                raise ValueError(f"info_keywords names {name!r}; a step reports {known}")
        self._keywords = tuple(info_keywords)
        self._start = time.time()
        self._actions: Any = None
        super().__init__(env.num_envs, space, env.single_action_space)

    def reset(self) -> Any:
        """Begin an episode in every world, of the seeds given by `seed` if it was called."""
        options = [chosen for chosen in self._options if chosen]
        if options:
            raise ValueError(f"a reset of all worlds takes no options, not {options[0]}")
        given = any(seed is not None for seed in self._seeds)
        seeds: Any = list(self._seeds) if given else None
        obs, _ = self.vector_env.reset(seed=seeds)
        self._reset_seeds()
        return self._observed(by_group(obs))

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions [W, A] for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One control step: observations, rewards [W] (float32), dones [W] and infos."""
        obs, reward, terminated, truncated, info = self.vector_env.step(self._actions)
        done = _array(terminated | truncated)
        infos = self._infos(info)
        rows = np.flatnonzero(done)
        if rows.size:
            limit = _array(truncated & ~terminated)
            for row, about in zip(rows, self._endings(rows, info, limit), strict=True):
                infos[row].update(about)
        rewards = _array(reward).astype(np.float32, copy=False)
        return self._observed(by_group(obs)), rewards, done, infos

    def close(self) -> None:
        """Release what the environment holds."""
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of the environment for each world.

        Args:
            attr_name: of the `VectorEnv` or a wrapper; its spaces are those of one world. A tensor
                or an array [W, ...] gives each world its row, anything else is shared.
            indices: of the worlds; all of them if None.

        Raises:
            AttributeError: it has none of that name.
        """
        single = {"observation_space": self.observation_space, "action_space": self.action_space}
        if attr_name in single:
            return [single[attr_name] for _ in self._get_indices(indices)]
        return self._by_world(self._attribute(attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the environment, which all worlds share.

        Raises:
            ValueError: `indices` are not all worlds.
        """
        if sorted({*self._get_indices(indices)}) != [*range(self.num_envs)]:
            raise ValueError(
                f"all {self.num_envs} worlds share the attribute {attr_name!r}; set it without "
                f"indices, or write rows of the simulator's state through `vector_env`"
            )
        setattr(self.vector_env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the environment once, and give each world its row of the result.

        Raises:
            AttributeError: it has no method of that name.
            ValueError: `step` or `reset`, which would reach every world.
        """
        if method_name in ("step", "reset", "close"):
            raise ValueError(
                f"{method_name!r} would reach all worlds, whatever the indices; call it on this "
                f"VecEnv, or on its `vector_env`"
            )
        result = self._attribute(method_name)(*method_args, **method_kwargs)
        return self._by_world(result, indices)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: Indices = None
    ) -> list[bool]:
        """Whether the worlds behave as if wrapped: true for `Monitor` alone."""
        return [issubclass(wrapper_class, Monitor) for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of each world, or None for each without a render_mode."""
        frames: Any = self.vector_env.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def _attribute(self, name: str) -> Any:
        owner = self.vector_env if hasattr(self.vector_env, name) else self._base
        return getattr(owner, name)

    def _by_world(self, value: Any, indices: Indices) -> list[Any]:
        if isinstance(value, Tensor):
            value = _array(value)
        many = isinstance(value, np.ndarray | list | tuple) and np.ndim(value) > 0
        each = many and len(value) == self.num_envs
        return [value[i] if each else value for i in self._get_indices(indices)]

    def _observed(self, obs: dict[str, Tensor]) -> Any:
        """The observation as its space has it: an array, or a dict of arrays."""
        arrays = {name: _array(obs[name]) for name in self._groups}
        return arrays if len(arrays) > 1 else next(iter(arrays.values()))

    def _infos(self, info: Any) -> list[dict[str, Any]]:
        if not self._keywords:
            return [{} for _ in range(self.num_envs)]
        columns = [_array(info[name]) for name in self._keywords]
        return [dict(zip(self._keywords, row, strict=True)) for row in zip(*columns, strict=True)]

    def _endings(self, rows: np.ndarray, info: Any, limit: np.ndarray) -> list[dict[str, Any]]:
        """What is said of the worlds in `rows`, whose episodes ended in this step."""
        last = {n: _array(t)[rows] for n, t in by_group(info["final_obs"]).items()}
        told = dict(info["terms"]) | {n: info[n] for n in (*self._base.task.info, "invalid")}
        if self._base.task.success is not None:
            told["is_success"] = info["success"]
        columns = {name: _array(value)[rows] for name, value in told.items()}
        total, length = (_array(info["episode"][key])[rows] for key in ("r", "l"))
        now = round(time.time() - self._start, 6)
        endings = []
        for i, row in enumerate(rows):
            seen = {name: last[name][i] for name in self._groups}
            about = {name: column[i] for name, column in columns.items()}
            about["terminal_observation"] = seen if len(seen) > 1 else next(iter(seen.values()))
            about["TimeLimit.truncated"] = bool(limit[row])
            about["episode"] = {"r": float(total[i]), "l": int(length[i]), "t": now}
            endings.append(about)
        return endings


def _array(tensor: Tensor) -> np.ndarray:
    """On the CPU the very memory of the tensor, which is a fresh copy that nobody writes."""
    return tensor.cpu().numpy()


def _chosen(env: Any, groups: Sequence[str] | None) -> tuple[tuple[str, ...], gym.Space]:
    """The groups to observe, and the space of one world's observation."""
    space = env.single_observation_space
    spaces = dict(space) if isinstance(space, gym.spaces.Dict) else {"observation": space}
    if groups is None:
        groups = [POLICY] if POLICY in spaces else [*spaces]
    if not groups or any(name not in spaces for name in groups):
        raise ValueError(f"groups must name some of {[*spaces]}, not {groups!r}")
    chosen = {name: spaces[name] for name in groups}
    alone = next(iter(chosen.values()))
    return tuple(chosen), gym.spaces.Dict(chosen) if len(chosen) > 1 else alone
